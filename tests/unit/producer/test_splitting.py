"""Tests of splitting a batch that may have been written already, on a simulated cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient.cluster.lifecycle.supervisor import Callbacks
from aiokclient.errors import (
    DuplicateSequenceError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
)
from aiokclient.protocol import ApiKey


def values(world: World) -> list[bytes | None]:
    return [record.value for record in world.cluster.records("t")]


def shrink(world: World, size: int) -> None:
    """Make the brokers refuse batches that are larger than `size` bytes."""
    world.cluster._data.find_topic("t").configs.apply_changes({"max.message.bytes": str(size)})


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize("lost_part", [True, False])
def test_a_split_batch_is_written_once_when_its_outcome_was_unknown(
    lost_part: bool, followed: bool, written: bool
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=5, retry_backoff_ms=500) as producer:
            await producer.send("t", b"first", partition=0)
            when: Any = "after" if written else "before"
            with world.cluster.drop(ApiKey.PRODUCE, when=when, times=1) as fault:
                own = [b"%d" % number + b"x" * 200 for number in range(10)]
                deliveries = [producer.send("t", value) for value in own]
                await world.cluster.until(lambda: fault.hits)
                shrink(world, 1_500)
                if followed:
                    own.append(b"last")
                    deliveries.append(producer.send("t", b"last"))
            if lost_part:
                world.cluster.drop(
                    ApiKey.PRODUCE, when="after", times=1, where=lambda request: small(request)
                )
            await producer.gather(deliveries)
            await producer.send("t", b"end")
        assert values(world) == [b"first", *own, b"end"]

    def small(request: Any) -> bool:
        (part,) = request.topic_data[0].partition_data
        return len(part.records) < 1_500

    simulate(scenario)


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("lost_part", [True, False])
def test_a_split_batch_is_written_once_when_its_parts_are_called_duplicates(
    lost_part: bool, written: bool
) -> None:
    """The broker calls each part of a written batch a duplicate.

    It remembers only the last batch.
    """

    def called_duplicates(request: Any, response: Any) -> Any:
        (part,) = response.responses[0].partition_responses
        if part.error_code == OutOfOrderSequenceError.code:
            part.error_code = DuplicateSequenceError.code
        return response

    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=5, retry_backoff_ms=500) as producer:
            await producer.send("t", b"first", partition=0)
            when: Any = "after" if written else "before"
            with world.cluster.drop(ApiKey.PRODUCE, when=when, times=1) as fault:
                own = [b"%d" % number + b"x" * 200 for number in range(30)]
                deliveries = [producer.send("t", value) for value in own]
                await world.cluster.until(lambda: fault.hits)
                shrink(world, 3_500)
            world.cluster.alter(ApiKey.PRODUCE, called_duplicates)
            if lost_part:
                world.cluster.drop(
                    ApiKey.PRODUCE, when="after", times=1, where=lambda request: small(request)
                )
            await producer.gather(deliveries)
            await producer.send("t", b"end")
        assert values(world) == [b"first", *own, b"end"]

    def small(request: Any) -> bool:
        (part,) = request.topic_data[0].partition_data
        return len(part.records) < 3_500

    simulate(scenario)


def test_a_split_batch_fails_when_a_lost_batch_makes_its_outcome_unknowable() -> None:
    async def scenario(world: World) -> None:
        options = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 1_000}
        async with world.producer(linger_ms=5, retry_backoff_ms=500, **options) as producer:
            await producer.send("t", b"first", partition=0)
            large = [b"%d" % number + b"x" * 200 for number in range(10)]
            with world.cluster.drop(ApiKey.PRODUCE, when="after", times=1) as fault:
                deliveries = [producer.send("t", value) for value in large]
                await world.cluster.until(lambda: fault.hits)
                shrink(world, 1_500)
                # Make the producer's last acknowledged sequence differ from the leader's.
                producer._topics["t"].queues[0].sequences.acknowledged = 0
            results = await producer.gather(deliveries, return_exceptions=True)
            assert {type(result) for result in results} == {OutOfOrderSequenceError}
            assert len({id(result) for result in results}) > 1, "each part has an error of its own"
            await producer.send("t", b"end")
        assert values(world) == [b"first", *large, b"end"]

    simulate(scenario)


def test_a_batch_is_not_written_twice_when_its_leader_moves_while_it_is_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[Any] = []
    in_thread = Callbacks.call_in_thread

    def hold(turns: Callbacks, function: Any, *args: Any, then: Any) -> None:
        if function.__name__ == "_make_builders":
            held.append(lambda: in_thread(turns, function, *args, then=then))
        else:
            in_thread(turns, function, *args, then=then)

    monkeypatch.setattr(Callbacks, "call_in_thread", hold)

    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=5, batch_size=200_000) as producer:
            await producer.send("t", b"first", partition=0)
            own = [b"%d" % number + b"x" * 10_000 for number in range(10)]
            with world.cluster.fail(ApiKey.PRODUCE, RecordTooLargeError, times=1):
                deliveries = [producer.send("t", value) for value in own]
                await world.cluster.until(lambda: held)
            before = len(world.requests(ApiKey.PRODUCE))
            with world.cluster.delay(ApiKey.PRODUCE, 0.5, when="after", times=1):
                world.cluster.move_leader("t", 0)
                await producer._cluster.updater.refresh(["t"], timeout=5, at_once=True)
                # The new leader accepts the whole batch.
                await world.cluster.until(lambda: len(world.requests(ApiKey.PRODUCE)) > before)
                (go_on,) = held
                go_on()
                await asyncio.sleep(0.1)
            await producer.gather(deliveries)
            await producer.send("t", b"end")
        assert values(world) == [b"first", *own, b"end"]

    simulate(scenario, brokers=3)
