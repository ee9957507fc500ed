"""What health and log say while a client makes no progress."""

import asyncio
import logging
from typing import Any

import pytest
from world import World, simulate

from aiokclient import TopicPartition
from aiokclient.protocol import ApiKey
from aiokclient.types import State

T0 = TopicPartition("t", 0)


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [getattr(record, "event", "") for record in caplog.records]
    return [event for event in found if event in ("reading_stalled", "reading_continues")]


def silence(world: World, leader: int) -> None:
    """Let a broker answer nothing on its open and new connections."""
    for api in (ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS):
        world.cluster.delay(api, 10_000.0, broker=leader)


async def polls(consumer: Any) -> None:
    async for _ in consumer:
        pass


def test_a_silent_leader_is_a_reason_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        world.cluster.move_leader("t", to=2)
        async with world.consumer("t") as consumer, world.producer() as producer:
            await producer.send("t", b"1")
            assert await consumer.get(timeout=10)
            reading = asyncio.create_task(polls(consumer))
            await asyncio.sleep(30)
            assert consumer.health().state is State.RUNNING, "an idle topic is no reason"
            silence(world, 2)
            producer.send("t", b"2").add_done_callback(lambda delivery: None)
            await asyncio.sleep(2.6)
            for client in (consumer, producer):
                assert client.health().state is State.DEGRADED, client
                reasons = client.health().reasons
                assert any("t-0" in each and "broker 2" in each for each in reasons), reasons
            await asyncio.sleep(8)
            assert events(caplog) == ["reading_stalled"]
            await asyncio.sleep(60)
            assert events(caplog) == ["reading_stalled"], "one line for each stall"
            world.cluster.reset()
            await asyncio.sleep(60)
            assert consumer.health().state is State.RUNNING
            assert producer.health().state is State.RUNNING
            assert events(caplog) == ["reading_stalled", "reading_continues"]
            reading.cancel()
            await asyncio.wait([reading])

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        simulate(scenario, brokers=3, topics={"t": 1})


def test_a_silent_leader_is_a_reason_while_the_position_is_looked_up() -> None:
    async def scenario(world: World) -> None:
        silence(world, 1)
        async with world.consumer("t") as consumer:
            await asyncio.sleep(3)
            assert consumer.health().state is State.DEGRADED
            assert any("t-0" in each for each in consumer.health().reasons)

    simulate(scenario)


def test_a_partition_without_leader_is_a_reason_for_the_producer() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            await producer.send("t", b"0")
            leader = producer._cluster.metadata.leader("t", 0)
            world.cluster.stop(leader)
            delivery = producer.send("t", b"1")
            await asyncio.sleep(3)
            assert producer.health().state is State.DEGRADED
            assert any("t-0" in each for each in producer.health().reasons)
            world.cluster.start(leader)
            await delivery
            assert producer.health().state is State.RUNNING

    simulate(scenario, brokers=2, replication=1)


@pytest.mark.parametrize("way", ["iteration", "poll"])
def test_a_response_beyond_the_limit_is_logged_once(
    caplog: pytest.LogCaptureFixture, way: str
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"x" * 40_000])
        options: Any = {"receive_message_max_bytes": 20_000, "fetch_max_bytes": 10_000}
        async with world.consumer("t", **options) as consumer:
            for _ in range(20):
                with pytest.raises(Exception, match="receive_message_max_bytes"):
                    await (consumer.poll() if way == "poll" else anext(aiter(consumer)))
                await asyncio.sleep(1)
            assert consumer.health().state is State.DEGRADED

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        simulate(scenario)
    named = [r for r in caplog.records if "receive_message_max_bytes" in r.getMessage()]
    assert len(named) == 1


def test_the_log_names_a_partition_without_leader_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1"])
        async with world.consumer("t") as consumer:
            assert await consumer.get(timeout=10)
            world.cluster.stop(1)
            for _ in range(30):
                assert not await consumer.poll(timeout=1.0)
            assert events(caplog) == ["reading_stalled"]
            world.cluster.start(1)
            world.cluster.produce("t", [b"2"])
            while not await consumer.poll(timeout=1.0):
                pass
            await asyncio.sleep(2)
            assert events(caplog) == ["reading_stalled", "reading_continues"]
            for _ in range(30):
                await consumer.poll(timeout=1.0)
            assert events(caplog) == ["reading_stalled", "reading_continues"]

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        simulate(scenario)
