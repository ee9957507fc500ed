"""Clients of every kind push their metrics to the embedded cluster, and to a real Kafka."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from kafka_harness import KafkaCluster
from kafka_harness.telemetry import Pushed, pushed
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from pushed_metrics import PREFIX, values

from aiokclient import Admin, AnyBroker, Client, Consumer, Producer, TopicPartition
from aiokclient.admin import ConfigResource, NewTopic
from aiokclient.protocol import messages
from aiokclient.testing import EmbeddedCluster, TopicTelemetryReceiver

TOPIC = "client-metrics"
DATA = TopicPartition("pushing", 0)
PUSHES = "client.request.seconds{api=PushTelemetry"
EVERYTHING = ConfigResource.client_metrics("everything")


@pytest.fixture(params=["embedded", "kafka"])
async def servers(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Run the test on both clusters, with a subscription to all metrics every second."""
    if request.param == "kafka":
        kafka: KafkaCluster = request.getfixturevalue("kafka_telemetry")
        async with subscribed(kafka.bootstrap) as found:
            yield found
        return
    receiver = TopicTelemetryReceiver(TOPIC)
    async with (
        EmbeddedCluster(telemetry=receiver) as cluster,
        subscribed(cluster.bootstrap_servers) as found,
    ):
        yield found


@asynccontextmanager
async def subscribed(servers: str) -> AsyncIterator[str]:
    """Subscribe to all metrics and create the clients' topic. Delete both after the block."""
    async with Admin(bootstrap_servers=servers, enable_metrics_push=False) as admin:
        changes = {EVERYTHING: {"metrics": "*", "interval.ms": "1000"}}
        (await admin.alter_configs(changes)).raise_for_errors()
        await admin.create_topics([NewTopic(DATA.topic, 1, 1)])
    await broker_applies(servers, 1000)
    yield servers
    async with Admin(bootstrap_servers=servers, enable_metrics_push=False) as admin:
        await admin.delete_client_metrics(["everything"])
        await admin.delete_topics([DATA.topic])


async def broker_applies(servers: str, interval_ms: int) -> None:
    """Wait until the broker has applied the subscription, which it does after its response.

    A client that asks earlier is told to ask again after the default interval of five minutes.
    """
    request = messages.GetTelemetrySubscriptionsRequest()
    async with (
        asyncio.timeout(60),
        Client(bootstrap_servers=servers, enable_metrics_push=False) as client,
    ):
        while True:
            if (await client.request(request, to=AnyBroker())).push_interval_ms == interval_ms:
                return
            await asyncio.sleep(0.02)  # The broker has no call that waits for this.


async def produce(servers: str, options: dict[str, Any]) -> UUID:
    async with Producer(bootstrap_servers=servers, **options) as producer:
        return await work(producer, lambda: producer.send_and_wait(DATA.topic, b"x"))


async def consume(servers: str, options: dict[str, Any]) -> UUID:
    async with Consumer(bootstrap_servers=servers, **options) as consumer:
        consumer.assign([DATA])
        return await work(consumer, lambda: consumer.poll(timeout=0.1))


async def administrate(servers: str, options: dict[str, Any]) -> UUID:
    async with Admin(bootstrap_servers=servers, **options) as admin:
        return await work(admin, admin.list_topics)


async def work(client: Any, call: Callable[[], Awaitable[Any]]) -> UUID:
    """Repeat a call until the client has pushed at its interval. Return its client instance id."""
    instance_id: UUID = await client.client_instance_id()
    async with asyncio.timeout(60):
        while not any(name.startswith(PUSHES) for name in client.metrics()):
            await call()
            await asyncio.sleep(0.01)
    return instance_id


KINDS = {"producer": produce, "consumer": consume, "admin": administrate}


async def pushes_of(servers: str, instance_id: UUID) -> list[Pushed]:
    """Return the pushes of one client, up to the terminating one."""
    found: list[Pushed] = []
    async with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_metrics_push=False
    ) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        async with asyncio.timeout(60):
            async for record in consumer:
                push = pushed(record.key, record.value, record.headers)
                if push.instance_id == instance_id:
                    found.append(push)
                    if push.terminating:
                        return found
    raise AssertionError("the consumer has ended")


@pytest.mark.parametrize("kind", KINDS)
async def test_client_pushes_at_the_interval_and_when_it_is_closed(servers: str, kind: str) -> None:
    instance_id = await KINDS[kind](servers, {"client_id": f"pushing-{kind}"})
    pushes = await pushes_of(servers, instance_id)
    assert [push.terminating for push in pushes][-1]
    assert len(pushes) >= 2
    sums: Counter[str] = Counter()
    for push in pushes:
        assert push.client["client_id"] == f"pushing-{kind}"
        assert push.client["software_name"] == "aiokclient"
        for each in MetricsData.FromString(push.data).resource_metrics:
            (metric,) = each.scope_metrics[0].metrics
            assert metric.name.startswith("org.apache.kafka.")
            if metric.HasField("sum"):
                sums[metric.name] += sum(point.as_double for point in metric.sum.data_points)
    assert sum(sums.values()) > 0
    assert all(value >= 0 for value in sums.values())


# -- clients that are closed before their first push


async def send_one(client: Client) -> None:
    async with Producer(client=client) as producer:
        await producer.send(DATA.topic, b"x")


async def read_one(client: Client) -> None:
    async with Consumer(client=client, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(DATA.topic)
        assert await consumer.get(timeout=60) is not None


async def list_topics(client: Client) -> None:
    async with Admin(client=client) as admin:
        await admin.list_topics()


@pytest.mark.parametrize(
    ("work", "name", "expected"),
    [
        (send_one, "producer.record.send.total", 1),
        (read_one, "consumer.fetch.manager.records.consumed.total", 1),
        (list_topics, "admin.client.connection.creation.total", None),
    ],
    ids=["producer", "consumer", "admin"],
)
@pytest.mark.parametrize("end", ["closed", "cancelled"])
async def test_last_push_has_everything_when_a_client_is_closed_before_its_first_push(
    work: Callable[[Client], Awaitable[None]], name: str, expected: int | None, end: str
) -> None:
    async with EmbeddedCluster(
        topics={DATA.topic: 1}, telemetry=TopicTelemetryReceiver(TOPIC)
    ) as cluster:
        servers = cluster.bootstrap_servers
        async with Admin(bootstrap_servers=servers, enable_metrics_push=False) as admin:
            (await admin.alter_configs({EVERYTHING: {"metrics": "*"}})).raise_for_errors()
        cluster.produce(DATA.topic, [b"y"])
        worked = asyncio.Event()

        async def program() -> None:
            async with Client(bootstrap_servers=servers) as client:
                await client.client_instance_id()
                await work(client)
                worked.set()
                if end == "cancelled":
                    await asyncio.Event().wait()

        task = asyncio.create_task(program())
        await worked.wait()
        if end == "cancelled":
            task.cancel()
        await asyncio.wait([task])
        (push,) = cluster.records(TOPIC, 0)
    assert dict(push.headers)["terminating"] == b"true"
    numbers = [each.number for each in values(push.value) if each.name == f"{PREFIX}{name}"]
    assert numbers
    assert sum(numbers) > 0
    if expected is not None:
        assert set(numbers) == {expected}
