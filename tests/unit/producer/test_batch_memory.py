"""Tests of the memory of written batches, which a producer keeps for new ones, in virtual time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from world import World, simulate

from aiokclient._native import in_use

VALUE = b"x" * 1_000
BATCH = 128 * 1024
BUFFER = 8 * 1024 * 1024

pytestmark = pytest.mark.skipif(not in_use(), reason="only native builders use the pool")


def kept(producer: Any) -> int:
    size: int = producer._engine.accumulator._blocks.kept
    return size


def test_memory_of_written_batches_is_bounded_and_freed_after_a_lull() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(buffer_memory=BUFFER, batch_size=BATCH) as producer:
            await producer.send("t", b"warm up")
            for _ in range(3):
                await producer.gather([producer.send("t", VALUE) for _ in range(4_000)])
                assert BATCH <= kept(producer) <= BUFFER // 8
            await anyio.sleep(60)
            assert kept(producer) == 0
            await producer.gather([producer.send("t", VALUE) for _ in range(1_000)])
            assert kept(producer) > 0
        assert kept(producer) == 0

    simulate(scenario)


def test_memory_that_small_batches_do_not_use_is_freed_while_they_are_sent() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(buffer_memory=BUFFER, batch_size=BATCH) as producer:
            await producer.gather([producer.send("t", VALUE) for _ in range(4_000)])
            assert kept(producer) >= 2 * BATCH
            for _ in range(1_000):
                await producer.send("t", VALUE)
                await anyio.sleep(0.1)
            assert kept(producer) < 2 * BATCH

    simulate(scenario)
