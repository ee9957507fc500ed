"""Brokers whose responses would make a client fetch without a pause, or log without limit."""

import asyncio
import logging
from typing import Any

import pytest
from world import World, simulate

from aiokclient import TopicPartition
from aiokclient.errors import OffsetOutOfRangeError
from aiokclient.protocol import ApiKey

T0 = TopicPartition("t", 0)
SECONDS = 8


def of_partitions(response: Any) -> list[Any]:
    return [partition for topic in response.responses for partition in topic.partitions]


def without_waiting(request: Any) -> bool:
    """Let the broker respond to each fetch at once, even without records."""
    request.max_wait_ms = 0
    return True


async def fetches_in(world: World, seconds: float) -> int:
    begun = world.now
    await asyncio.sleep(seconds)
    return len(world.requests(ApiKey.FETCH, begun))


@pytest.mark.parametrize("options", [{}, {"fetch_max_wait_ms": 0}, {"fetch_min_bytes": 0}])
def test_empty_responses_that_come_at_once_are_requested_ever_more_slowly(
    options: dict[str, Any],
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0"])
        nothing = world.cluster.delay(ApiKey.FETCH, 0.0, where=without_waiting)
        async with world.consumer("t", **options) as consumer:
            with nothing:
                assert await consumer.get(timeout=10) is not None
                assert await fetches_in(world, SECONDS) < 150
                world.cluster.produce("t", [b"1"])
                begun = world.now
                assert await consumer.get(timeout=10) is not None
                assert world.now - begun < 0.2
                consumer.seek(T0, 0)
                begun = world.now
                assert await consumer.get(timeout=10) is not None
                assert world.now - begun < 0.02

    simulate(scenario)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if r.levelno >= logging.INFO]


@pytest.mark.parametrize("reset", ["earliest", "latest", "by_duration:P1D"])
def test_offsets_that_are_always_out_of_range_are_looked_up_ever_more_slowly(
    reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="aiokclient")

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0"])
        async with world.consumer("t", auto_offset_reset=reset) as consumer:
            with world.cluster.fail(ApiKey.FETCH, OffsetOutOfRangeError):
                assert await consumer.poll(timeout=1) == []
                assert await fetches_in(world, SECONDS) < 50
            await asyncio.sleep(2)
            assert consumer.metrics()["consumer.position.resets{topic=t}"] > 3
            world.cluster.produce("t", [b"1"])
            assert await consumer.get(timeout=10) is not None

    simulate(scenario)
    assert len(warnings_of(caplog)) < 10


def test_epochs_that_always_diverge_are_believed_ever_more_slowly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="aiokclient")

    def diverge(request: Any, response: Any) -> Any:
        for partition in of_partitions(response):
            partition.records = None
            partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset = 0, 0
        return response

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0"])
        async with world.consumer("t") as consumer:
            with world.cluster.alter(ApiKey.FETCH, diverge):
                assert await consumer.poll(timeout=1) == []
                assert await fetches_in(world, SECONDS) < 50
            assert await consumer.get(timeout=10) is not None

    simulate(scenario)
    assert len(warnings_of(caplog)) < 10
