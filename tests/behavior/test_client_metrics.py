"""The sums that a client pushes equal what the test has counted itself (KIP-714)."""

from __future__ import annotations

import asyncio
import csv
import math
import os
import sys
from collections import Counter as Count
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import loops
import pytest

from aiokclient import (
    Admin,
    Client,
    Consumer,
    GroupMember,
    Producer,
    SaslPlain,
    Tls,
    TopicPartition,
)
from aiokclient.admin import NewTopic
from aiokclient.errors import DeliveryTimeoutError, NotEnoughReplicasError, RecordTooLargeError
from aiokclient.events import Authenticated
from aiokclient.protocol.api import ApiKey
from aiokclient.telemetry.points import PointKind
from aiokclient.telemetry.subscription import NamePrefixes
from aiokclient.testing import BrokerListener, EmbeddedCluster

P = "org.apache.kafka."
FACTS = Path(__file__).parents[1] / "unit" / "telemetry" / "kafka_metrics.csv"
TYPES = {
    ("sum", "double"): PointKind.SUM,
    ("gauge", "double"): PointKind.GAUGE,
    ("gauge", "int"): PointKind.GAUGE_INT,
}


def is_measured(time: float) -> bool:
    """Return whether a time was measured. With uvloop, a measured time may be 0 milliseconds."""
    return time > 0 or (time == 0 and os.environ.get(loops.VARIABLE) == "uvloop")


class Leases:
    """A protocol that assigns nothing to any member."""

    name = "leases"

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Any) -> Any:
        return dict.fromkeys(members, b"")


class Pushed:
    """The points that a client would push now."""

    def __init__(self, client: Any) -> None:
        self.points = client._cluster.make_collector().collect_points(NamePrefixes([""]))

    def value(self, name: str, **labels: str) -> Any:
        """Return the only value with this name and these labels."""
        found = [p.value for p in self.points if p.name == P + name and dict(p.labels) == labels]
        assert len(found) == 1, (name, labels, len(found))
        return found[0]

    def resources(self, beginning: str) -> set[Any]:
        return {p.resource for p in self.points if p.name.startswith(P + beginning)}

    def check_facts(self, client: str) -> None:
        """Check names, kinds, and labels against those of Kafka's client of the same kind."""
        with FACTS.open() as file:
            rows = [row for row in csv.DictReader(file) if client in row["clients"].split(", ")]
        known = {(P + row["name"], TYPES[row["kind"], row["type"]], row["labels"]) for row in rows}
        found = {
            (p.name, p.kind, " ".join(sorted(dict(p.labels))))
            for p in self.points
            if ".aiokclient." not in p.name
        }
        assert found <= known
        # The missing names are left out on purpose; tests/unit/telemetry/test_table.py checks them.
        assert len(known) - len(found) <= 24
        for point in self.points:
            if point.kind is PointKind.SUM:
                assert math.isfinite(point.value), point
                assert point.value >= 0, point
            if point.kind is PointKind.GAUGE_INT:
                assert isinstance(point.value, int)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=2, topics={"orders": 2, "payments": 1}) as cluster:
        yield cluster


async def read(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += await consumer.poll(timeout=20.0)
    return found


def requests_by_node(cluster: EmbeddedCluster, client_id: str) -> Count[str]:
    """Return how many requests the cluster has received from a client, by broker."""
    return Count(f"node-{r.broker}" for r in cluster.requests if r.client_id == client_id)


async def test_a_producer_pushes_what_it_has_sent(cluster: EmbeddedCluster) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, client_id="p", compression_type="gzip"
    ) as producer:
        for number in range(90):
            producer.send("orders", b"x" * 100, partition=number % 2)
        for _ in range(10):
            producer.send("payments", b"y" * 100)
        await producer.flush()
        pushed = Pushed(producer)
        pushed.check_facts("producer")
        assert pushed.value("producer.record.send.total") == 100
        assert pushed.value("producer.topic.record.send.total", topic="orders") == 90
        assert pushed.value("producer.topic.record.send.total", topic="payments") == 10
        assert pushed.value("producer.record.error.total") == 0
        assert pushed.value("producer.record.retry.total") == 0
        assert 0 < pushed.value("producer.compression.rate.avg") < 1
        assert pushed.value("producer.buffer.available.bytes") == producer._config.buffer_memory
        assert is_measured(pushed.value("producer.flush.time.ns.total"))
        metrics = producer.metrics()
        for topic in ("orders", "payments"):
            total = pushed.value("producer.topic.byte.total", topic=topic)
            assert total == metrics[f"producer.topic.bytes{{topic={topic}}}"]
        produced = sum(r.api is ApiKey.PRODUCE for r in cluster.requests)
        assert pushed.value("producer.records.per.request.avg") == 100 / produced
        assert is_measured(pushed.value("producer.request.latency.max"))


async def test_requests_are_counted_for_each_broker(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="counted") as p:
        await p.gather([p.send("orders", b"x", partition=n % 2) for n in range(20)])
        pushed = Pushed(p)
        expected = requests_by_node(cluster, "counted")
        assert pushed.value("producer.request.total") == sum(expected.values())
        assert pushed.value("producer.response.total") == sum(expected.values())
        assert pushed.value("producer.network.io.total") == 2 * sum(expected.values())
        nodes = {
            dict(point.labels)["node_id"]: point.value
            for point in pushed.points
            if point.name == f"{P}producer.node.request.total"
        }
        # The broker id of the bootstrap server is not known yet when these requests are sent.
        servers = [nodes.pop(node) for node in list(nodes) if node.startswith("node--")]
        assert 0 < sum(servers) < 5
        assert all(nodes[node] <= expected[node] for node in nodes)
        assert set(nodes) == set(expected)
        opened = pushed.value("producer.connection.creation.total")
        closed = pushed.value("producer.connection.close.total")
        assert pushed.value("producer.connection.count") == opened - closed >= 2


async def test_retries_and_errors_are_counted_in_records(cluster: EmbeddedCluster) -> None:
    options: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 1}
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        await producer.send("orders", b"first", partition=0)
        with cluster.fail(ApiKey.PRODUCE, NotEnoughReplicasError, times=2):
            await producer.gather([producer.send("orders", b"x", partition=0) for _ in range(7)])
        refused = cluster.fail(ApiKey.PRODUCE, RecordTooLargeError)
        with refused, pytest.raises(RecordTooLargeError):
            await producer.send("orders", b"x", partition=1)
        pushed = Pushed(producer)
        assert pushed.value("producer.record.retry.total") == 14
        assert pushed.value("producer.topic.record.retry.total", topic="orders") == 14
        assert pushed.value("producer.record.error.total") == 1
        assert pushed.value("producer.topic.record.error.total", topic="orders") == 1
        assert pushed.value("producer.record.send.total") == 1 + 7 + 14 + 1
        own = "producer.aiokclient.batch.retries.total"
        assert pushed.value(own, error="NOT_ENOUGH_REPLICAS") == 2
        # Each attempt counts, as in Kafka's clients.
        batches = [
            sum(len(partition.records) for partition in topic.partition_data)
            for request in cluster.requests
            if request.api is ApiKey.PRODUCE
            for topic in request.message.topic_data
        ]
        assert pushed.value("producer.topic.byte.total", topic="orders") == sum(batches)
        assert len(batches) == 5
        assert pushed.value("producer.batch.size.max") == max(batches)


async def test_a_batch_that_expires_before_its_retry_counts_as_sent_once(
    cluster: EmbeddedCluster,
) -> None:
    options: dict[str, Any] = {
        "retry_backoff_ms": 60_000,
        "retry_backoff_max_ms": 60_000,
        "request_timeout_ms": 1000,
        "delivery_timeout_ms": 1500,
    }
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        refused = cluster.fail(ApiKey.PRODUCE, NotEnoughReplicasError)
        with refused, pytest.raises(DeliveryTimeoutError):
            await producer.send("orders", b"x", partition=0)
        pushed = Pushed(producer)
        assert pushed.value("producer.record.send.total") == 1
        assert pushed.value("producer.record.retry.total") == 1
        assert pushed.value("producer.record.error.total") == 1


async def test_a_transactional_producer_pushes_its_transactions(cluster: EmbeddedCluster) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id="tx"
    ) as producer:
        for _ in range(3):
            async with producer.transaction() as tx:
                tx.send("orders", b"x")
        await producer.begin_transaction()
        await producer.send("orders", b"x")
        await producer.abort_transaction()
        pushed = Pushed(producer)
        pushed.check_facts("transactional producer")
        own = "producer.aiokclient.transactions.total"
        assert pushed.value(own, outcome="committed") == 3
        assert pushed.value(own, outcome="aborted") == 1
        assert pushed.resources("producer.record") == {(("transactional_id", "tx"),)}
        for what in ("init", "commit", "abort"):
            assert is_measured(pushed.value(f"producer.txn.{what}.time.ns.total"))


@pytest.mark.parametrize("membership", ["assigned", "classic", "consumer"])
async def test_a_consumer_pushes_what_it_has_read(
    cluster: EmbeddedCluster, membership: str
) -> None:
    cluster.produce("orders", [b"x" * 10] * 60, 0)
    cluster.produce("orders", [b"x" * 10] * 40, 1)
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "client_rack": "r1"}
    options["bootstrap_servers"] = cluster.bootstrap_servers
    if membership != "assigned":
        options |= {"group_id": "workers", "group_protocol": membership}
        options |= {"enable_auto_commit": False}
    async with Consumer("orders", **options) as consumer:
        await read(consumer, 100)
        tp = TopicPartition("orders", 0)
        commits = 0
        if membership != "assigned":
            await consumer.commit()
            await consumer.commit({tp: 30})
            commits = 2
            assert (await consumer.committed([tp]))[tp].offset == 30
        pushed = Pushed(consumer)
        pushed.check_facts(f"consumer: {membership}")
        fetches = "consumer.fetch.manager"
        assert pushed.value(f"{fetches}.records.consumed.total") == 100
        assert pushed.value(f"{fetches}.records.consumed.total", topic="orders") == 100
        headers = 2 * 61  # Kafka does not count the header of a batch.
        read_bytes = consumer.metrics()["consumer.topic.bytes{topic=orders}"] - headers
        assert pushed.value(f"{fetches}.bytes.consumed.total") == read_bytes
        assert pushed.value(f"{fetches}.bytes.consumed.total", topic="orders") == read_bytes
        for partition, count in (("0", 60), ("1", 40)):
            labels = {"topic": "orders", "partition": partition}
            assert pushed.value(f"{fetches}.records.lag", **labels) == 0
            assert pushed.value(f"{fetches}.records.lag.max", **labels) == count
            assert pushed.value(f"{fetches}.records.lead", **labels) == count
            assert pushed.value(f"{fetches}.records.lead.min", **labels) == 0
            assert pushed.value(f"{fetches}.preferred.read.replica", **labels) == -1
        assert pushed.value(f"{fetches}.records.lag.max") == 60
        assert 0 <= pushed.value("consumer.poll.idle.ratio.avg") <= 1
        assert pushed.value("consumer.aiokclient.records.in.progress") > 0
        resource = {**dict(next(iter(pushed.resources("consumer.fetch"))))}
        assert resource.pop("client_rack") == "r1"
        if membership == "assigned":
            assert not resource
            return
        assert resource.pop("group_id") == "workers"
        assert resource.pop("group_member_id") == consumer.group_metadata().member_id
        assert not resource
        assert pushed.value("consumer.coordinator.commit.total") == commits
        assert pushed.value("consumer.coordinator.assigned.partitions") == 2
        assert pushed.value("consumer.coordinator.rebalance.total") == 1
        assert pushed.value("consumer.coordinator.failed.rebalance.total") == 0
        assert pushed.value("consumer.coordinator.heartbeat.total") >= 0
        assert is_measured(pushed.value("consumer.commit.sync.time.ns.total"))
        assert is_measured(pushed.value("consumer.committed.time.ns.total"))
        if membership == "classic":
            assert pushed.value("consumer.coordinator.join.total") == 1
            assert pushed.value("consumer.coordinator.sync.total") == 1


async def test_an_admin_pushes_its_requests(cluster: EmbeddedCluster) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers, client_id="boss") as admin:
        (await admin.create_topics([NewTopic("more", 1)])).raise_for_errors()
        pushed = Pushed(admin)
        pushed.check_facts("admin")
        expected = sum(requests_by_node(cluster, "boss").values())
        assert pushed.value("admin.client.request.total") == expected


async def test_children_of_a_client_have_attributes_of_their_own(cluster: EmbeddedCluster) -> None:
    cluster.produce("payments", [b"x"] * 5, 0)
    async with (
        Client(bootstrap_servers=cluster.bootstrap_servers) as client,
        Producer(client=client) as plain,
        Producer(client=client, transactional_id="tx") as transactional,
        Consumer("payments", client=client, group_id="g", auto_offset_reset="earliest") as reader,
    ):
        await plain.send("orders", b"x")
        async with transactional.transaction() as tx:
            tx.send("orders", b"x")
            tx.send("orders", b"x")
        await read(reader, 5)
        pushed = Pushed(client)
        sent = {
            p.resource: p.value for p in pushed.points if p.name == f"{P}producer.record.send.total"
        }
        assert sent == {(): 1, (("transactional_id", "tx"),): 2}
        assert pushed.resources("producer.connection") == {()}
        (attributes,) = pushed.resources("consumer.connection")
        assert dict(attributes)["group_id"] == "g"
        assert pushed.value("consumer.fetch.manager.records.consumed.total") == 5


async def test_a_member_of_a_group_pushes_its_generations(cluster: EmbeddedCluster) -> None:
    async with GroupMember(
        "leases",
        protocol_type="leases",
        protocols=[Leases()],
        bootstrap_servers=cluster.bootstrap_servers,
    ) as member:
        async for _ in member.generations():
            break
        pushed = Pushed(member)
        assert pushed.value("consumer.coordinator.join.total") == 1
        (attributes,) = pushed.resources("consumer.coordinator")
        assert dict(attributes)["group_member_id"] == member.group_metadata().member_id


async def test_a_cancelled_call_is_counted(cluster: EmbeddedCluster) -> None:
    async with Consumer("orders", bootstrap_servers=cluster.bootstrap_servers) as consumer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await consumer.poll(timeout=30)
        pushed = Pushed(consumer)
        assert pushed.value("consumer.aiokclient.cancelled.calls.total") == 1


async def test_metrics_of_the_application_are_pushed_under_their_own_names(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.register_metric("shop.staff", lambda: 3, {"shop": "north"}, unit="{person}")
        found = [p for p in Pushed(producer).points if p.name == "shop.staff"]
        assert [(p.value, p.labels, p.unit) for p in found] == [
            (3.0, (("shop", "north"),), "{person}")
        ]
        assert not any("shop" in name for name in producer.metrics())
        producer.unregister_metric("shop.staff")
        assert not any(p.name == "shop.staff" for p in Pushed(producer).points)
        with pytest.raises(TypeError):
            producer.register_metric("shop.staff", 3)


async def test_a_client_that_nobody_collects_keeps_nothing_of_closed_objects(
    cluster: EmbeddedCluster,
) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        for _ in range(3):
            async with Producer(client=client) as producer:
                await producer.send("orders", b"x")
        assert client.cluster.metrics.owners == []


async def test_authentications_are_counted() -> None:
    listener = BrokerListener(mechanisms=("PLAIN",), users={"alice": "secret"}, max_reauth_ms=1000)
    async with (
        EmbeddedCluster(listeners={"SASL": listener}) as cluster,
        Admin(
            bootstrap_servers=cluster.bootstrap_servers_for("SASL"),
            security=SaslPlain("alice", "secret"),
        ) as admin,
    ):
        async for event in admin.events():
            if isinstance(event, Authenticated) and event.again:
                break
        pushed = Pushed(admin)
        opened = pushed.value("admin.client.connection.creation.total")
        for name in ("", ".no.reauth"):
            total = pushed.value(f"admin.client.successful.authentication{name}.total")
            assert total == opened >= 1
        assert pushed.value("admin.client.successful.reauthentication.total") >= 1
        assert is_measured(pushed.value("admin.client.reauthentication.latency.max"))
        assert pushed.value("admin.client.failed.authentication.total") == 0


async def test_tls_without_sasl_counts_as_authentication() -> None:
    listener = BrokerListener(tls=True, mutual_tls=True)
    async with EmbeddedCluster(listeners={"MTLS": listener}) as cluster:
        servers = cluster.bootstrap_servers_for("MTLS")
        alice = cluster.client_certificate("alice")
        tls = Tls(cadata=alice.authority, certdata=alice.certificate, keydata=alice.key)
        async with Admin(bootstrap_servers=servers, security=tls) as admin:
            pushed = Pushed(admin)
            opened = pushed.value("admin.client.connection.creation.total")
            total = pushed.value("admin.client.successful.authentication.total")
            assert total == opened >= 1
            assert pushed.value("admin.client.failed.authentication.total") == 0


class CountedCalls:
    """A context manager that counts the calls of functions that measure."""

    MODULES = ("meters.py", "traffic.py", "metrics.py")

    def __init__(self) -> None:
        self.calls: Count[str] = Count()

    def __enter__(self) -> Count[str]:
        sys.setprofile(self._profile)
        return self.calls

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: Any, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.name in self.MODULES and "aiokclient" in path.parts:
            self.calls[frame.f_code.co_qualname] += 1


async def test_producing_more_records_measures_no_more_often(cluster: EmbeddedCluster) -> None:
    """The cost of measuring depends on the number of batches and requests, not of records."""
    options: dict[str, Any] = {"linger_ms": 60_000, "batch_size": 1_000_000}
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        await producer.prepare("orders")
        await producer.send("orders", b"x", partition=0)
        counts, noted = [], producer._accumulator.meters._noted
        for records in (10, 2000):
            before = len(noted)
            with CountedCalls() as calls:
                for _ in range(records):
                    producer.send("orders", b"x" * 100, partition=0)
                await producer.flush()
            counts.append(len(noted) - before)
            assert sum(calls.values()) < 20, calls
        assert counts == [1, 1]


async def test_consuming_more_records_measures_no_more_often(cluster: EmbeddedCluster) -> None:
    for records in (10, 2000):
        topic = f"batch-of-{records}"
        cluster.create_topic(topic, 1)
        cluster.produce(topic, [b"x" * 100] * records, 0)
        consumer = Consumer(
            topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        async with consumer:
            with CountedCalls() as calls:
                async for record in consumer:
                    if record.offset == records - 1:
                        break
            assert sum(calls.values()) < 60, calls
            pushed = Pushed(consumer)
            name = "consumer.fetch.manager.records.consumed.total"
            assert pushed.value(name) == records
