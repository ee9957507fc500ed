"""The view of a running client for its user: metrics, lists, health, and representations."""

import asyncio
import json
import socket
import sys
import types
from typing import Any

import pytest

from aiokclient import (
    Admin,
    Client,
    Consumer,
    ConsumerRecord,
    GroupMember,
    Producer,
    State,
    TimestampType,
    TopicPartition,
)
from aiokclient.consumer import Records
from aiokclient.protocol.api import ApiKey
from aiokclient.testing import EmbeddedCluster, Simulation


def names(shown: dict[str, Any]) -> set[str]:
    return {name.partition("{")[0] for name in shown}


@pytest.fixture
async def cluster() -> Any:
    async with EmbeddedCluster(topics={"orders": 2, "payments": 1}) as cluster:
        yield cluster


async def test_metrics_of_a_producer_have_what_an_operator_asks_for(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.gather(producer.send_many("orders", [b"v" * 100] * 50))
        await producer.send("payments", b"x")
        shown = producer.metrics()
        assert json.loads(json.dumps(shown, allow_nan=False)) == shown
        assert type(json.loads(json.dumps(shown))) is dict
        assert shown["producer.topic.records{topic=orders}"] == 50
        assert shown["producer.topic.records{topic=payments}"] == 1
        assert shown["producer.topic.bytes{topic=orders}"] > 5000
        assert shown["client.request.seconds{api=Produce,broker=1}"]["count"] >= 2
        assert shown["producer.queue.seconds"]["count"] >= 2
        assert shown["producer.batch.bytes"]["sum"] > 5000
        assert shown["client.throttle.seconds{broker=1}"]["count"] == 0
        assert {value.name for value in producer.metric_values("producer.topic.")} == {
            "producer.topic.records",
            "producer.topic.bytes",
        }
        (queue,) = producer.metric_values("producer.queue.seconds")
        assert (queue.kind, queue.unit, queue.labels) == ("histogram", "s", {})


async def test_throttle_time_is_measured_when_a_broker_throttles(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with cluster.throttle(ApiKey.PRODUCE, 0.02):
            await producer.send("orders", b"v")
        throttled = producer.metrics()["client.throttle.seconds{broker=1}"]
        assert (throttled["count"], throttled["sum"]) == (1, 0.02)


async def test_records_that_fail_are_counted_by_topic(cluster: EmbeddedCluster) -> None:
    from aiokclient.errors import InvalidRecordError

    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with (
            cluster.fail(ApiKey.PRODUCE, InvalidRecordError),
            pytest.raises(InvalidRecordError),
        ):
            await producer.send("orders", b"v")
        assert producer.metrics()["producer.topic.failed{topic=orders}"] == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_metrics_of_a_consumer_have_lag_records_poll_age_and_rebalances(
    cluster: EmbeddedCluster, protocol: str
) -> None:
    cluster.produce("orders", [b"v" * 10] * 40)
    async with Consumer(
        "orders",
        group_id="billing",
        group_protocol=protocol,
        auto_offset_reset="earliest",
        bootstrap_servers=cluster.bootstrap_servers,
    ) as consumer:
        got = 0
        while got < 30:
            got += len(await consumer.poll(max_records=30 - got))
        shown = consumer.metrics()
        assert json.loads(json.dumps(shown, allow_nan=False)) == shown
        assert shown["consumer.topic.records{topic=orders}"] == 30
        assert shown["consumer.topic.bytes{topic=orders}"] > 400
        lags = {v.labels["partition"]: v.value for v in consumer.metric_values("consumer.lag")}
        assert sum(lags.values()) <= 10
        assert shown["consumer.rebalances{group=billing}"] >= 1
        assert 0 <= shown["consumer.poll.age.seconds{group=billing}"] < 60
        assert shown["client.request.seconds{api=Fetch,broker=1}"]["count"] >= 1
        consumer.unsubscribe()
        async with asyncio.timeout(20):
            while consumer.metric_values("consumer.lag"):  # Until the partitions are released.
                await consumer.poll(timeout=0.01)


def test_poll_age_and_lag_when_the_application_stays_away_grow() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.cluster(topics={"orders": 1}) as cluster:
            cluster.produce("orders", [b"v"] * 10)
            async with Consumer(
                "orders",
                auto_offset_reset="earliest",
                bootstrap_servers=cluster.bootstrap_servers,
                connector=sim.connector,
                clock=sim.clock,
            ) as consumer:
                async for record in consumer:
                    if record.offset == 3:
                        break
                await asyncio.sleep(100)
                shown = consumer.metrics()
                assert 99 < shown["consumer.poll.age.seconds"] < 101
                assert shown["consumer.lag{partition=0,topic=orders}"] == 6

    Simulation(1).run(main)


async def test_series_of_deleted_topics_and_lost_partitions_go_away(
    cluster: EmbeddedCluster,
) -> None:
    async with (
        Client(bootstrap_servers=cluster.bootstrap_servers, metadata_max_age_ms=50) as client,
        Producer(client=client) as producer,
        Admin(client=client) as admin,
        Consumer("payments", auto_offset_reset="earliest", client=client) as consumer,
    ):
        await producer.send("payments", b"v")
        await producer.send("orders", b"v")
        assert await consumer.get() is not None
        assert any("topic=payments" in name for name in client.metrics())
        assert "consumer.lag{partition=0,topic=payments}" in client.metrics()
        consumer.unsubscribe()
        (await admin.delete_topics(["payments"])).raise_for_errors()
        while any("topic=payments" in name for name in client.metrics()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert client.metrics()["producer.topic.records{topic=orders}"] == 1


async def test_series_of_a_broker_that_left_the_cluster_go_away() -> None:
    from scripted import ScriptedBroker

    async with ScriptedBroker() as first, ScriptedBroker(node_id=2) as second:
        first.brokers[2] = second.port
        second.brokers = first.brokers
        options = {"bootstrap_servers": first.address, "metadata_max_age_ms": 20}
        async with Client(**options) as client:
            from aiokclient import Broker
            from aiokclient.protocol import messages
            from aiokclient.protocol.messages.list_groups import ListGroupsResponse

            second.handlers[ApiKey.LIST_GROUPS] = lambda *_: ListGroupsResponse()
            await client.request(messages.ListGroupsRequest(), to=Broker(2))
            assert any("broker=2" in name for name in client.metrics())
            del first.brokers[2]
            while any("broker=2" in name for name in client.metrics()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_repr_of_every_client_shows_client_id_state_brokers_and_subject(
    cluster: EmbeddedCluster,
) -> None:
    servers = cluster.bootstrap_servers
    options = {"bootstrap_servers": servers, "client_id": "app"}
    producer = Producer(**options)
    assert repr(producer) == f"<Producer client_id='app' state=NEW brokers='{servers}'>"
    async with producer:
        await producer.send("orders", b"v")
        shown = repr(producer)
        assert shown.startswith("<Producer client_id='app' state=RUNNING topics='orders' brokers=")
        assert servers in shown
    assert "state=CLOSED" in repr(producer)
    async with Consumer("orders", "payments", group_id="billing", **options) as consumer:
        assert "group='billing' topics='orders, payments'" in repr(consumer)
        assert repr(consumer) in (await asyncio.to_thread(repr, consumer))
    by_hand = Consumer(**options)
    by_hand.assign([TopicPartition("payments", 0)])
    assert "topics='payments'" in repr(by_hand)
    assert repr(Client(**options)).startswith("<Client client_id='app' state=NEW")
    assert repr(Admin(**options)).startswith("<Admin client_id='app' state=NEW")

    class Leases:
        name = "leases"

        def metadata(self) -> bytes:
            return b""

        def assign(self, members: Any) -> Any:
            return dict.fromkeys(members, b"")

    member = GroupMember("workers", protocol_type="leases", protocols=[Leases()], **options)
    assert "group='workers'" in repr(member)


def test_repr_of_many_topics_and_brokers_names_a_few() -> None:
    servers = ",".join(f"host{number}:9092" for number in range(9))
    shown = repr(Consumer(*(f"t{number}" for number in range(8)), bootstrap_servers=servers))
    assert "t4 and 3 more" in shown
    assert "host4:9092 and 4 more" in shown


def record(value: Any = b"v", **changes: Any) -> ConsumerRecord[Any, Any]:
    fields = {"topic": "orders", "partition": 1, "offset": 5, "timestamp": 7, "key": None}
    fields |= {"timestamp_type": TimestampType.CREATE_TIME, "headers": [("h", b"1")]}
    return ConsumerRecord(**{**fields, "value": value, "leader_epoch": 3, **changes})


def test_asdict_of_a_record_has_all_fields_in_order() -> None:
    assert list(record()._asdict().items()) == [
        ("topic", "orders"),
        ("partition", 1),
        ("offset", 5),
        ("timestamp", 7),
        ("timestamp_type", TimestampType.CREATE_TIME),
        ("key", None),
        ("value", b"v"),
        ("headers", (("h", b"1"),)),
        ("leader_epoch", 3),
    ]
    assert ConsumerRecord(**record()._asdict()) == record()


def test_records_in_a_notebook_are_a_table_with_everything_escaped_and_abridged() -> None:
    records: Records[Any, Any] = Records([record(b"<b>&", key="<i>"), record(b"\xff\x00")])
    html = records._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;&amp;" in html
    assert "&lt;i&gt;" in html
    assert "2 records" in html
    assert "orders" in html
    many = Records([record(b"x" * 10_000)] * 5000)._repr_html_()
    assert len(many) < 50_000
    assert "5,000" in many


async def test_health_in_a_notebook_is_a_table(cluster: EmbeddedCluster) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        assert client.health().state is State.RUNNING
        html = client.health()._repr_html_()
        assert "broker 1" in html
        assert "RUNNING" in html


class Frame:
    def __init__(self, rows: list[Any], columns: list[str]) -> None:
        self.rows, self.columns, self.attrs = rows, columns, {}
        self.changed: dict[str, Any] = {}

    def __getitem__(self, column: str) -> Any:
        return Series(row[self.columns.index(column)] for row in self.rows)

    def __setitem__(self, column: str, values: Any) -> None:
        self.changed[column] = list(values)


class Series(list[Any]):
    def __ge__(self, other: Any) -> Any:
        return [value >= other for value in self]

    def where(self, conditions: list[bool]) -> Any:
        pairs = zip(self, conditions, strict=True)
        return Series(value if condition else None for value, condition in pairs)

    def astype(self, kind: str) -> Any:
        return Series((kind, value) for value in self)


async def test_to_pandas_of_records_health_and_metrics_makes_frames(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = types.ModuleType("pandas")
    pandas.DataFrame = Frame  # type: ignore[attr-defined]
    pandas.to_datetime = lambda column, **options: column  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    frame = Records([record()]).to_pandas()
    assert frame.columns[:3] == ["topic", "partition", "offset"]
    assert frame.rows[0][frame.columns.index("value")] == b"v"
    assert frame.changed["timestamp"][0][0] == "datetime64[ms, UTC]"
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send("orders", b"v")
        metrics = producer.metrics().to_pandas()
        assert "producer.records.acknowledged" in [row[0] for row in metrics.rows]
        health = producer.health().to_pandas()
        assert health.attrs["state"] == "RUNNING"
        assert health.rows[0][0] == 1


def test_to_pandas_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        Records([record()]).to_pandas()


def test_every_metric_is_documented() -> None:
    import ast
    from pathlib import Path

    import aiokclient

    package = Path(aiokclient.__file__).parent
    documented = (package.parent / "docs" / "metrics.md").read_text()
    made = {"counter": 0, "gauge": 0, "histogram": 0, "get_topic_counters": 0, "collect_series": 0}
    made["show_series"] = 1
    parts = ("client", "consumer", "group", "producer", "schema", "telemetry", "worker")
    names = set()
    for path in package.rglob("*.py"):
        code = path.read_text()
        if not any(f"{name}(" in code for name in made):
            continue
        for node in ast.walk(ast.parse(code)):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called not in made:
                continue
            name = getattr(node.args[made[called]], "value", "")
            # The metrics that are only pushed have other first parts.
            if "." in str(name) and str(name).partition(".")[0] in parts:
                names.add(str(name))
    assert len(names) > 20
    assert [name for name in sorted(names) if f"`{name}`" not in documented] == []


async def test_health_tells_what_a_starting_client_tries_and_what_failed_last() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    client = Client(bootstrap_servers=address, default_api_timeout_ms=60_000)
    assert not client.health().brokers
    starting = asyncio.create_task(client.start())
    async with asyncio.timeout(60):
        while "unreachable" not in str(client.health().brokers.get(address)):  # noqa: ASYNC110
            await asyncio.sleep(0)
    health = client.health()
    assert health.state is State.STARTING
    assert "Connection refused" in str(health.brokers[address])
    assert f"bootstrap server {address}: unreachable " in repr(health)
    starting.cancel()
    await asyncio.wait([starting])
    assert not client.health().brokers
