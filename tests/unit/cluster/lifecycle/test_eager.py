"""Tests of `asyncio.eager_task_factory`.

With it, a task may end before the call that creates the task returns.
"""

import asyncio
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kinds import KINDS, make
from world import World, simulate

from aiokclient import Client, Consumer, Producer, State

COUNT = 100


def run(scenario: Callable[[World], Any], *, eagerly: bool = True) -> None:
    async def main(world: World) -> None:
        if eagerly:
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        await scenario(world)

    simulate(main)


needs_eager = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="the eager task factory is new in Python 3.12"
)


@needs_eager
@pytest.mark.parametrize("shared", [True, False])
def test_a_producer_sends_all_records_under_the_eager_task_factory(shared: bool) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            options = {"client": client} if shared else world.options()
            async with Producer(**options) as producer:
                deliveries = [producer.send("t", b"v") for _ in range(COUNT)]
            assert all(delivery.done() for delivery in deliveries)
            assert producer.state is State.CLOSED
        assert len(world.cluster.records("t")) == COUNT

    run(scenario)


@needs_eager
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_objects_start_and_close_under_the_eager_task_factory(kind: str, shared: bool) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            options = {"client": client} if shared else world.options()
            first = make(kind, **options)
            await asyncio.gather(first.start(), first.start())
            assert first.state is State.RUNNING
            await asyncio.gather(first.close(), first.close(5.0))
            assert first.state is State.CLOSED
            async with make(kind, **options) as second:
                assert second.state is State.RUNNING
            async with make(kind, **options):
                pass
            third = make(kind, **options)
            started = asyncio.create_task(third.start())
            started.cancel()
            await asyncio.wait([started])
            if not started.cancelled():  # It has ended before it could be cancelled.
                await third.close()
            left = make(kind, **options)
            starting = asyncio.create_task(left.start())
            await left.close()
            await asyncio.wait([starting])
            assert left.state is State.CLOSED
            if shared:
                held = await make(kind, **options)
        if shared:
            assert held.state is State.CLOSED, "its client has closed it"

    run(scenario)


@needs_eager
def test_tasks_that_send_and_read_start_immediately_under_the_eager_task_factory() -> None:
    async def scenario(world: World) -> None:
        read: list[bytes] = []

        async def consume(consumer: Consumer[bytes, bytes]) -> None:
            async for record in consumer:
                read.append(record.value)
                if len(read) == COUNT:
                    return

        async with world.client() as client:
            producer = await Producer(client=client)
            consumer = await Consumer("t", client=client, group_id="g")
            reading = asyncio.create_task(consume(consumer))
            sends = [asyncio.create_task(producer.send_and_wait("t", b"v")) for _ in range(COUNT)]
            await asyncio.gather(*sends, reading)
        assert len(read) == COUNT

    run(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_close_has_no_deadline_when_the_timeout_is_infinite(kind: str) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            one = await make(kind, client=client)
            await one.close(math.inf)
            assert one.state is State.CLOSED
            other: Client = await world.client()
            child = await make(kind, client=other)
            await other.close(math.inf)
            assert child.state is State.CLOSED

    run(scenario, eagerly=False)
