"""Clients that start before their cluster does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin, Client, Consumer, GroupMember, Producer, State
from aiokclient.errors import (
    ApiTimeoutError,
    BootstrapError,
    BufferExhaustedError,
    DeliveryTimeoutError,
    KafkaError,
    KafkaTimeoutError,
)
from aiokclient.types import TopicPartition


class Leases:
    """A group protocol that assigns nothing to any member."""

    name = "leases"

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Any) -> Any:
        return dict.fromkeys(members, b"")


def stop_all(world: World) -> None:
    for broker in world.cluster.brokers:
        world.cluster.stop(broker)


def start_all(world: World) -> None:
    for broker in world.cluster.brokers:
        world.cluster.start(broker)


async def become(world: World, client: Any, state: State) -> None:
    while client.state is not state:  # noqa: ASYNC110 - `state` has no event
        await asyncio.sleep(0.1)


def test_a_producer_queues_records_until_its_cluster_starts() -> None:
    async def scenario(world: World) -> None:
        stop_all(world)
        producer = Producer(**world.options())
        await producer.start(wait=False)
        assert world.now < 0.1
        assert producer.state is State.STARTING
        deliveries = [producer.send("orders", b"%d" % i, partition=0) for i in range(100)]
        await asyncio.sleep(45)
        health = producer.health()
        assert health.state is State.STARTING
        assert health.reasons == (
            "no broker has responded yet",
            "topic orders cannot be written: its partitions are not known",
        )
        assert all("refused" in text for text in health.brokers.values()), health
        start_all(world)
        await become(world, producer, State.RUNNING)
        assert [m.offset for m in await producer.gather(deliveries)] == list(range(100))
        await producer.close()

    simulate(scenario, topics={"orders": 1})


def test_an_option_does_the_same_for_async_with() -> None:
    async def scenario(world: World) -> None:
        stop_all(world)
        async with Producer(**world.options(), start_without_brokers=True) as producer:
            delivery = producer.send("orders", b"v")
            start_all(world)
            await delivery
            assert producer.state is State.RUNNING

    simulate(scenario, topics={"orders": 1})


def test_records_are_bounded_and_expire() -> None:
    async def scenario(world: World) -> None:
        stop_all(world)
        options = {"buffer_memory": 100_000, "batch_size": 10_000, "delivery_timeout_ms": 40_000}
        producer = Producer(**world.options(), **options)
        await producer.start(wait=False)
        first = producer.send("orders", b"v")
        with pytest.raises(BufferExhaustedError):  # noqa: PT012 - some of the records fit
            for _ in range(1000):
                producer.send("orders", b"v" * 1000)
        with pytest.raises(DeliveryTimeoutError):
            await first
        assert world.now <= 61
        await producer.close(0)

    simulate(scenario, topics={"orders": 1})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_in_a_group_joins_when_its_cluster_starts(protocol: str) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("orders", [b"v"], 0)
        stop_all(world)
        options = {"auto_offset_reset": "earliest", "group_protocol": protocol}
        consumer = Consumer("orders", group_id="g", **world.options(), **options)
        await consumer.start(wait=False)
        assert consumer.state is State.STARTING
        assert await consumer.poll(timeout=20) == []
        start_all(world)
        async for record in consumer:
            assert record.value == b"v"
            break
        assert consumer.state is State.RUNNING
        await consumer.close()

    simulate(scenario, topics={"orders": 1})


def test_a_consumer_by_assignment_reads_when_its_cluster_starts() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("orders", [b"v"], 0)
        stop_all(world)
        consumer = Consumer(**world.options(), auto_offset_reset="earliest")
        consumer.assign([TopicPartition("orders", 0)])
        await consumer.start(wait=False)
        start_all(world)
        record = await consumer.get(timeout=30)
        assert record is not None
        await consumer.close()

    simulate(scenario, topics={"orders": 1})


def test_a_consumer_of_whole_topics_reads_when_its_cluster_starts() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("orders", [b"v"], 0)
        stop_all(world)
        consumer = Consumer("orders", **world.options(), auto_offset_reset="earliest")
        await consumer.start(wait=False)
        start_all(world)
        assert await consumer.get(timeout=30) is not None
        await consumer.close()

    simulate(scenario, topics={"orders": 1})


def test_a_transaction_begins_when_its_cluster_has_started() -> None:
    async def scenario(world: World) -> None:
        stop_all(world)
        producer = Producer(**world.options(), transactional_id="t")
        await producer.start(wait=False)
        await asyncio.sleep(10)
        start_all(world)
        async with producer.transaction() as tx:
            tx.send("orders", b"v", partition=0)
        assert len(world.cluster.records("orders", 0)) == 1
        await producer.close()

    simulate(scenario, topics={"orders": 1})


def test_a_transaction_that_cannot_begin_raises_by_its_deadline() -> None:
    async def scenario(world: World) -> None:
        stop_all(world)
        producer = Producer(**world.options(), transactional_id="t", default_api_timeout_ms=5000)
        await producer.start(wait=False)
        with pytest.raises(KafkaError, match="has not started yet"):
            await producer.begin_transaction()
        assert 4.9 < world.now < 6
        await producer.abort_transaction()  # As after any abortable error: it has nothing to do.
        assert 4.9 < world.now < 6
        start_all(world)
        await asyncio.sleep(5)
        async with producer.transaction() as tx:
            tx.send("orders", b"v", partition=0)
        assert len(world.cluster.records("orders", 0)) == 1
        await producer.close()

    simulate(scenario, topics={"orders": 1})


def test_calls_end_by_their_deadlines() -> None:
    async def scenario(world: World) -> None:
        stop_all(world)
        admin = Admin(**world.options())
        await admin.start(wait=False)
        with pytest.raises(KafkaTimeoutError):
            await admin.list_topics(timeout=7)
        assert 6.9 < world.now < 8
        start_all(world)
        assert await admin.list_topics() is not None
        await admin.close()

    simulate(scenario, topics={"orders": 1})


def test_a_member_of_another_group_joins_when_its_cluster_starts() -> None:
    async def scenario(world: World) -> None:
        stop_all(world)
        member = GroupMember(
            "workers", protocol_type="leases", protocols=[Leases()], **world.options()
        )
        await member.start(wait=False)
        start_all(world)
        async for generation in member.generations():
            async with generation:
                break
        await member.close()

    simulate(scenario, topics={"orders": 1})


def test_children_of_a_client_that_waits_start_without_waiting_too() -> None:
    async def scenario(world: World) -> None:
        stop_all(world)
        client = Client(**world.options(), default_api_timeout_ms=5000)
        await client.start(wait=False)
        producer = Producer(client=client)
        await producer.start(wait=False)
        delivery = producer.send("orders", b"v")
        with pytest.raises(BootstrapError):
            await Producer(client=client).start()
        assert (client.state, producer.state) == (State.STARTING, State.STARTING)
        start_all(world)
        await delivery
        assert (client.state, producer.state) == (State.RUNNING, State.RUNNING)
        await client.close()

    simulate(scenario, topics={"orders": 1})


def test_a_second_start_waits_for_the_cluster() -> None:
    async def scenario(world: World) -> None:
        stop_all(world)
        producer = Producer(**world.options(), default_api_timeout_ms=5000)
        await producer.start(wait=False)
        with pytest.raises(BootstrapError, match="No broker has responded within 5"):
            await producer.start()
        start_all(world)
        await producer.start()
        assert producer.state is State.RUNNING
        await producer.close()

    simulate(scenario, topics={"orders": 1})


def test_closing_before_the_cluster_starts_is_bounded() -> None:
    async def scenario(world: World) -> None:
        stop_all(world)
        producer = Producer(**world.options())
        await producer.start(wait=False)
        delivery = producer.send("orders", b"v")
        began = world.now
        await producer.close(2)
        assert world.now - began < 5
        assert delivery.exception() is not None
        assert producer.state is State.CLOSED

    simulate(scenario, topics={"orders": 1})


def test_metadata_of_a_topic_waits_for_the_cluster() -> None:
    async def scenario(world: World) -> None:
        stop_all(world)
        producer = Producer(**world.options())
        await producer.start(wait=False)
        with pytest.raises(ApiTimeoutError):
            await producer.partitions_for("orders", timeout=3)
        start_all(world)
        assert await producer.partitions_for("orders")
        await producer.close()

    simulate(scenario, topics={"orders": 1})


@pytest.mark.parametrize("brokers", ["running", "stopped", "silent"])
@pytest.mark.parametrize("how", ["close", "leave", "cancel"])
def test_closing_a_client_that_has_reached_no_broker_yet_logs_no_failure(
    brokers: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World, moment: float, kind: Any) -> None:
        if brokers == "stopped":
            stop_all(world)
        elif brokers == "silent":
            for broker in world.cluster.brokers:
                world.cluster.pause(broker)
        client = kind(**world.options(start_without_brokers=True))
        await client.start()
        await asyncio.sleep(moment)
        if how == "close":
            await client.close()
        elif how == "leave":
            await client.__aexit__(ValueError, ValueError("no"), None)
        else:
            closing = asyncio.create_task(client.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
        assert client.state is State.CLOSED

    for kind in (Client, Producer, Admin):
        for step in range(20):
            moment = 0.0007 * step if step < 14 else 0.05 * 2 ** (step - 14)
            simulate(lambda world, m=moment, k=kind: scenario(world, m, k), brokers=2)  # type: ignore[misc]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
