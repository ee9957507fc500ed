"""The metrics in OpenTelemetry: names, kinds, units, and sums that equal those of a push."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from traces import Traces

from aiokclient import Admin, Client, Consumer, Producer
from aiokclient import metrics as own
from aiokclient.errors import InvalidRecordError, NotEnoughReplicasError
from aiokclient.protocol import ApiKey
from aiokclient.telemetry.bridged import DESCRIPTIONS, NAMESPACE, SAME
from aiokclient.telemetry.points import PointKind
from aiokclient.telemetry.subscription import NamePrefixes
from aiokclient.testing import EmbeddedCluster

KAFKA = "org.apache.kafka."
TIMES = ("loop.lag", "loop.held", "seconds", ".time.", "latency", "threads.", "start.time")
"""Parts of the names of those sums that are times, or that change without any request."""


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=2, topics={"orders": 2, "bills": 1}) as running:
        yield running


def bridged_name(pushed: str) -> str:
    """Return the name that a pushed sum has in the bridge."""
    name = pushed.removeprefix(KAFKA)
    for kind in ("producer", "consumer", "admin.client", "admin"):
        for prefix in (f"{kind}.aiokclient.", f"{kind}."):
            if name.startswith(prefix):
                rest = name.removeprefix(prefix)
                single = f"{kind}.{rest}"
                found = single if f"{NAMESPACE}{single}" in DESCRIPTIONS else f"client.{rest}"
                found = SAME.get(single, SAME.get(found, found))
                return f"{NAMESPACE}{found}"
    return name


def pushed_sums(client: Any) -> dict[str, float]:
    """Return the sums that the client would push now, by their names in the bridge.

    A metric of the connections is pushed once for each kind of client, and is counted only once.
    """
    sums: dict[str, Counter[str]] = {}
    for point in client._cluster.make_collector().collect_points(NamePrefixes([""])):
        if point.kind is not PointKind.SUM or any(part in point.name for part in TIMES):
            continue
        if point.name.endswith("consumed.total") and not point.labels:
            continue  # It is the total of the sums by topic.
        sums.setdefault(bridged_name(point.name), Counter())[point.name] += point.value
    for name, by_pushed in sums.items():
        assert len(set(by_pushed.values())) == 1, name
    return {name: next(iter(by_pushed.values())) for name, by_pushed in sums.items()}


async def work(client: Client, cluster: EmbeddedCluster) -> None:
    async with (
        Producer(client=client) as producer,
        Producer(client=client, transactional_id="t") as transactional,
        Consumer(
            "orders", "bills", client=client, group_id="g", auto_offset_reset="earliest"
        ) as consumer,
    ):
        with cluster.fail(ApiKey.PRODUCE, NotEnoughReplicasError, times=1):
            await producer.send("orders", b"x" * 100, partition=0)
        with cluster.fail(ApiKey.PRODUCE, InvalidRecordError, times=1):
            await producer.gather([producer.send("bills", b"x")], return_exceptions=True)
        await producer.gather(producer.send_many("orders", [b"x"] * 20))
        async with transactional.transaction() as transaction:
            transaction.send("bills", b"x")
        count = 0
        while count < 22:
            count += len(await consumer.poll(timeout=30))
        await consumer.commit()


async def test_sums_equal_those_of_a_push(cluster: EmbeddedCluster, traces: Traces) -> None:
    async with (
        Client(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as client,
        Admin(client=client) as admin,
        Producer(client=client) as producer,
        Consumer("orders", client=client, auto_offset_reset="earliest") as consumer,
    ):
        with traces.of(client), traces.of(admin), traces.of(producer), traces.of(consumer):
            await work(client, cluster)
            await producer.gather(producer.send_many("orders", [b"y"] * 10))
            await admin.list_topics()
            count = 0
            while count < 31:
                count += len(await consumer.poll(timeout=30))
            for one in (producer, consumer):
                await one.close()
            pushed = pushed_sums(client)
            values = traces.values()
    assert len(pushed) > 35
    found = {name: sum(values.get(name, {}).values()) for name in pushed}
    assert found == pytest.approx(pushed)
    for name in ("producer.records.failed", "producer.retries", "producer.transactions"):
        assert found[f"{NAMESPACE}{name}"] == 1, name
    assert found[f"{NAMESPACE}consumer.topic.records"] == 22 + 31


async def test_every_metric_of_the_client_is_bridged_once_with_its_unit(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        with traces.of(client):
            await work(client, cluster)
            expected = {value.name: value for value in client.metric_values()}
            values = traces.values()
    for name, value in expected.items():
        full = f"{NAMESPACE}{name}"
        description = DESCRIPTIONS[full]
        assert description.kind == value.kind, name
        assert description.unit == value.unit or not value.unit, name
        if value.kind == "histogram":
            assert {f"{full}.bucket", f"{full}.count", f"{full}.sum"} <= set(values)
        else:
            assert full in values
    for name, series in values.items():
        assert all(("messaging.client.id", client.config.client_id) in key for key in series), name
    assert not any(name.endswith((".rate", ".avg", ".max", ".min")) for name in values)


async def test_clients_with_the_same_id_are_told_apart(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    options = {"bootstrap_servers": cluster.bootstrap_servers, "client_id": "shop"}
    async with Producer(**options) as one, Producer(**options) as two:
        with traces.of(one), traces.of(two):
            await one.send("orders", b"x")
            await two.gather(two.send_many("orders", [b"x"] * 2))
            values = traces.values()["aiokclient.producer.records.acknowledged"]
    assert values == {
        (("messaging.client.id", "shop"),): 1,
        (("messaging.client.id", "shop-2"),): 2,
    }


async def test_last_values_are_read_after_the_end_and_none_after_uninstrument(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    name = "aiokclient.producer.records.acknowledged"
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    done = traces.of(producer)
    assert traces.values() == {}
    async with producer:
        await producer.send("orders", b"x")
    assert traces.total(name) == 1
    assert traces.total(name) == 1
    done.uninstrument()
    assert traces.values() == {}


async def test_sums_of_closed_producers_are_kept(cluster: EmbeddedCluster, traces: Traces) -> None:
    name = "aiokclient.producer.record.send.total"
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        with traces.of(client):
            for number in range(1, 4):
                async with Producer(client=client) as producer:
                    await producer.send("orders", b"x")
                    assert traces.total(name) == number
                metrics = client._cluster.metrics
                metrics.drop_owners(metrics.ended_owners)  # A push also drops ended owners.
                assert traces.total(name) == number


async def test_metrics_of_the_application_are_bridged(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    counter, histogram = own.Counter(), own.Histogram((1.0, 2.0))
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.register_metric("orders.open", lambda: 7, labels={"shop": "a"})
        with traces.of(producer):
            producer.register_metric("orders.done", counter, unit="{order}")
            producer.register_metric("orders.size", histogram)
            producer.register_metric("orders.wrong", lambda: 1 / 0)
            counter.add(3)
            histogram.observe_all([0.5, 1.5, 9])
            values = traces.values()
    client = ("messaging.client.id", producer._config.client_id)
    assert values["orders.open"] == {(client, ("shop", "a")): 7}
    assert values["orders.done"] == {(client,): 3}
    assert values["orders.size.count"] == {(client,): 3}
    assert values["orders.size.bucket"] == {
        (("le", "1.0"), client): 1,
        (("le", "2.0"), client): 2,
        (("le", "+Inf"), client): 3,
    }
    assert "orders.wrong" not in values


async def test_metrics_that_an_object_of_a_shared_client_registers_are_bridged(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        with traces.of(client):
            async with Producer(client=client) as producer:
                producer.register_metric("orders.open", lambda: 7)
                assert traces.total("orders.open") == 7
        producer_later = await Producer(client=client)
        producer_later.register_metric("orders.late", lambda: 7)
        with traces.of(producer_later):
            assert traces.total("orders.late") == 7


async def test_a_metric_that_the_sdk_refuses_is_left_out_with_one_warning(
    cluster: EmbeddedCluster, traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.register_metric("größe", lambda: 1)
        with traces.of(producer):
            producer.register_metric("größe", lambda: 2)
            producer.register_metric("größe 2", lambda: 3)
            producer.register_metric("orders.open", lambda: 4)
            values = traces.values()
    assert [name for name in values if name.startswith(("größe", "orders"))] == ["orders.open"]
    left_out = [r for r in caplog.records if r.event == "telemetry_metric_left_out"]  # type: ignore[attr-defined]
    assert [r.metric for r in left_out] == ["größe", "größe 2"]  # type: ignore[attr-defined]


async def test_metrics_are_read_in_other_threads(cluster: EmbeddedCluster, traces: Traces) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with traces.of(producer):
            await producer.send("orders", b"x")
            values = await asyncio.to_thread(traces.values)
    assert len(values["aiokclient.producer.records.acknowledged"]) == 1


async def test_admin_can_be_instrumented(cluster: EmbeddedCluster, traces: Traces) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with traces.of(admin):
            await admin.list_topics()
            assert traces.total("aiokclient.client.request.total") > 0
