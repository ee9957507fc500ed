"""Tests of DUPLICATE_SEQUENCE_NUMBER as the response to batches that were never sent before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from produced import numbers, values
from world import World, simulate

from aiokclient.errors import DuplicateSequenceError
from aiokclient.protocol import ApiKey

NEWEST, BY_NAME = 13, 12


@pytest.mark.parametrize("version", [NEWEST, BY_NAME])
@pytest.mark.parametrize("before", ["an acknowledgement", "a new connection"])
def test_a_duplicate_is_no_success_when_it_was_never_sent(before: str, version: int) -> None:
    async def scenario(world: World) -> None:
        world.cluster.limit_versions({ApiKey.PRODUCE: (3, version)})
        async with world.producer(linger_ms=0) as producer:
            for partition in range(3):
                await producer.send("t", b"0", partition=partition)
            if before == "a new connection":
                world.cluster.disconnect(world.cluster.leader("t", 0))
                await asyncio.sleep(0.1)
            with world.cluster.fail(ApiKey.PRODUCE, DuplicateSequenceError, times=1):
                assert (await producer.send("t", b"1", partition=0)).offset == 1
        assert values(world, 0) == [b"0", b"1"]
        (old, *_), (new, epoch, sequence) = numbers(world)
        assert new != old, "another producer has the old producer id"
        assert (epoch, sequence) == (0, 0)

    simulate(scenario, brokers=3, topics={"t": 3})


def test_a_duplicate_is_no_success_when_it_is_the_first_batch_of_a_producer_id() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0) as producer:
            await producer.prepare("t")
            with world.cluster.fail(ApiKey.PRODUCE, DuplicateSequenceError, times=1):
                assert (await producer.send("t", b"0")).offset == 0
            given = producer._require_engine().ids.generation
        assert given == 1, "the first producer id was replaced"
        assert values(world) == [b"0"]

    simulate(scenario)


def test_a_duplicate_is_no_success_when_batches_before_and_after_it_are_in_flight() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0) as producer:
            await producer.send("t", b"first")
            (old, *_) = numbers(world)[0]
            requests: list[Any] = []

            def second(request: Any) -> bool:
                requests.append(request)
                return len(requests) == 2

            with (
                world.cluster.delay(ApiKey.PRODUCE, 0.1, when="after", times=5),
                world.cluster.fail(ApiKey.PRODUCE, DuplicateSequenceError, times=1, where=second),
            ):
                deliveries = []
                for number in range(5):
                    deliveries.append(producer.send("t", b"%d" % number))
                    await asyncio.sleep(0.01)
                assert producer._require_engine().senders[1].in_flight == 5
                offsets = [each.offset for each in await producer.gather(deliveries)]
        assert offsets == [1, 2, 3, 4, 5]
        assert values(world) == [b"first", b"0", b"1", b"2", b"3", b"4"]
        assert [number[0] == old for number in numbers(world)] == [True] * 2 + [False] * 4

    simulate(scenario)


def test_a_duplicate_fails_when_the_producer_is_not_idempotent() -> None:
    """The leader cannot recognize a batch without a producer id."""

    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0, enable_idempotence=False) as producer:
            await producer.send("t", b"0")
            refusal = world.cluster.fail(ApiKey.PRODUCE, DuplicateSequenceError, times=1)
            with refusal, pytest.raises(DuplicateSequenceError):
                await producer.send("t", b"1")
            await producer.send("t", b"2")
        assert values(world) == [b"0", b"2"]

    simulate(scenario)
