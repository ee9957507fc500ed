"""Tests that `async for` lets other tasks run when the program awaits nothing else."""

import asyncio
import contextlib
import itertools
from typing import Any

import anyio
import pytest
from world import World, simulate

from aiokclient import SKIP, Consumer


def test_an_iteration_yields_to_the_loop() -> None:
    """Timeouts still work in a program that never awaits anything else."""

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"] * 5_000)
        async with world.consumer("t") as consumer:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.001)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            seen = 0
            async for record in consumer:
                if seen == 0:
                    ticks = 0
                seen += 1
                # Simulate a slow program in virtual time.
                world.sim.loop.leap(0.001)
                if record.offset == 1_999:
                    break
            # A tick takes three iterations of the loop: one for its timer, one for its wake-up, and
            # one that it misses.
            assert ticks >= 2_000 / 10 / 3 - 5
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking

    simulate(scenario)


def test_a_timeout_around_a_loop_that_never_waits() -> None:
    async def scenario(world: World) -> None:
        for _ in range(5):
            world.cluster.produce("t", [b"v"] * 10_000)
        async with world.consumer("t") as consumer:
            offsets: list[int] = []
            with anyio.move_on_after(0.1):
                async for record in consumer:
                    offsets.append(record.offset)
                    world.sim.loop.leap(0.0001)
            assert 0 < len(offsets) < 2_000
            async for record in consumer:
                offsets.append(record.offset)
                if record.offset == 49_999:
                    break
            assert offsets == list(range(50_000))

    simulate(scenario)


def left_out(way: str) -> dict[str, object]:
    if way == "SKIP":

        def refuse(data: bytes) -> bytes:
            raise ValueError(data)

        return {"value_deserializer": refuse, "on_record_error": lambda error: SKIP}
    return {"isolation_level": "read_committed"}


READINGS = ("get", "poll", "iteration", "lists")


@pytest.mark.parametrize(
    ("way", "reading"),
    [*itertools.product(("SKIP", "aborted"), READINGS), ("aborted", "Arrow")],
)
def test_records_that_are_left_out_let_the_loop_run(way: str, reading: str) -> None:
    """Time passes only while records are read.

    The loop runs at least once per 10 ms of that time.
    """
    if reading == "Arrow":
        pytest.importorskip("pyarrow")

    async def scenario(world: World) -> None:
        for sequence in range(0, 20_000, 10):
            world.cluster.produce(
                "t",
                [b"v"] * 10,
                producer_id=1,
                base_sequence=sequence,
                transactional=way == "aborted",
            )
        if way == "aborted":
            world.cluster.end_transaction("t", producer_id=1, commit=False)
        async with world.consumer("t", **left_out(way)) as consumer:
            await asyncio.sleep(1)
            turns = [world.now]
            slow_down(consumer, world)

            async def watch() -> None:
                while True:
                    turns.append(world.now)
                    await asyncio.sleep(0.001)

            watching = asyncio.create_task(watch())
            begun = world.now
            if reading == "get":
                assert await consumer.get(timeout=0.05) is None
                assert world.now - begun < 0.1
            elif reading == "poll":
                assert await consumer.poll(timeout=0.0) == []
                assert world.now - begun < 0.1
            else:
                loops = {
                    "iteration": consumer.__aiter__,
                    "lists": consumer.batches,
                    "Arrow": consumer.arrow_batches,
                }
                with anyio.move_on_after(0.3):
                    async for _ in loops[reading]():  # type: ignore[operator]
                        raise AssertionError("no record should be delivered")
                assert world.now - begun < 0.4
            watching.cancel()
            gaps = [b - a for a, b in itertools.pairwise(turns)]
            assert max(gaps) < 0.035

    simulate(scenario)


def slow_down(consumer: Consumer[Any, Any], world: World) -> None:
    """Make each step of the unpacker take a millisecond of virtual time."""
    assert consumer._engine is not None
    unpacker = consumer._engine.reader._unpacker
    step = unpacker.unpack_next

    def slow_step(*given: Any) -> Any:
        world.sim.loop.leap(0.001)
        return step(*given)

    unpacker.unpack_next = slow_step  # type: ignore[method-assign]
