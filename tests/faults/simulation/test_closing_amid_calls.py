"""Calls that are waiting for the cluster: they end when their consumer is closed or fails."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from group_world import fill
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import ApiTimeoutError, ClosedError, KafkaError

T0 = TopicPartition("t", 0)
Call = Callable[[Consumer[Any, Any]], Coroutine[Any, Any, Any]]

CALLS: dict[str, Call] = {
    "position": lambda c: c.position(T0),
    "end_offsets": lambda c: c.end_offsets([T0]),
    "offsets_for_times": lambda c: c.offsets_for_times({T0: 0}),
    "lag": lambda c: c.lag(),
    "partitions_for": lambda c: c.partitions_for("t"),
    "list_topics": lambda c: c.list_topics(),
}


async def ended(world: World, call: asyncio.Task[Any]) -> BaseException | None:
    """Wait for a call, check that it ended soon, and return its error."""
    began = world.now
    await asyncio.wait([call])
    assert world.now - began < 0.3
    return call.exception()


@pytest.mark.parametrize("trouble", ["none", "no leader", "no answers"])
@pytest.mark.parametrize("name", CALLS)
def test_calls_end_with_the_consumer(name: str, trouble: str) -> None:
    async def scenario(world: World, moment: float) -> None:
        fill(world, 5)
        consumer = world.consumer("t")
        await consumer.start()
        if trouble == "no leader":
            world.cluster.stop(world.cluster.leader("t"))
            await asyncio.sleep(0.05)
        elif trouble == "no answers":
            world.network.part(["client"], [world.address(b) for b in world.cluster.brokers])
        consumer.seek_to_end([T0])
        call = asyncio.create_task(CALLS[name](consumer))
        await asyncio.sleep(moment)
        await consumer.close()
        error = await ended(world, call)
        assert error is None or isinstance(error, KafkaError)
        assert not isinstance(error, ApiTimeoutError)
        assert trouble != "no answers" or isinstance(error, ClosedError)

    for n in range(12):
        simulate(lambda w, n=n: scenario(w, 0.0004 * 1.6**n), brokers=2)  # type: ignore[misc]


def test_preparing_a_topic_ends_with_the_producer() -> None:
    async def scenario(world: World) -> None:
        producer = world.producer()
        await producer.start()
        world.network.part(["client"], [world.address(b) for b in world.cluster.brokers])
        call = asyncio.create_task(producer.prepare("t"))
        await asyncio.sleep(0.1)
        await producer.close(0)
        assert isinstance(await ended(world, call), ClosedError)

    simulate(scenario)


def test_a_position_that_is_waited_for_while_the_consumer_fails() -> None:
    async def scenario(world: World) -> None:
        fill(world, 5)
        consumer = world.consumer("t")
        await consumer.start()
        world.network.part(["client"], [world.address(b) for b in world.cluster.brokers])
        consumer.seek_to_end([T0])
        call = asyncio.create_task(consumer.position(T0))
        await asyncio.sleep(0.1)
        consumer._supervisor.fail(ValueError("whatever"), "a task")
        assert isinstance(await ended(world, call), ValueError)
        await consumer.close()

    simulate(scenario)
