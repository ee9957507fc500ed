"""Tests of workers whose records need a schema that the registry does not give."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from schema_values import MISSING, REFUSED, Schemas
from world import World, simulate

from aiokclient.worker import Batch, Retry, Worker


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    """Run a worker, and stop it at the end."""
    task = asyncio.ensure_future(worker.run())
    try:
        yield
    finally:
        await worker.drain()
        await task


@pytest.mark.parametrize("error", [ConnectionError("It is down."), REFUSED])
@pytest.mark.parametrize("batch", [None, Batch(10, 0.1)])
def test_a_worker_waits_for_the_registry_without_a_run_or_a_dead_letter(
    error: Exception, batch: Batch | None
) -> None:
    async def scenario(world: World) -> None:
        for partition in range(2):
            world.cluster.produce("t", [b"%d:a" % (partition + 1)], partition=partition)
        schemas = Schemas(b"1")
        schemas.errors[b"2"] = error
        handled: list[Any] = []

        async def handle(given: Any) -> None:
            records = given if batch else [given]
            handled.extend((record.partition, record.value) for record in records)

        async with world.consumer("t", group_id="g", value_deserializer=schemas) as consumer:
            worker = Worker(
                consumer, handle, retry=Retry(1), dead_letter="dead", batch=batch, timeout=1.0
            )
            async with running(worker):
                await asyncio.sleep(100)
                assert handled == [(0, "a")]
                health = worker.health()
                assert (health.ready, health.live) == (False, True)
                assert any("t-1" in reason for reason in health.reasons), health.reasons
                assert 3 < len(schemas.calls) < 30  # The backoff grows to 30 s.
                schemas.errors.clear()
                await asyncio.sleep(40)
                assert handled == [(0, "a"), (1, "a")]
                assert worker.health().ready
        assert world.cluster.records("dead", 0) == []

    simulate(scenario, topics={"t": 2, "dead": 1})


def test_the_time_of_a_preparation_is_not_that_of_the_handler() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"2:a"])
        schemas = Schemas()
        schemas.gate.clear()
        handled: list[Any] = []

        async def handle(record: Any) -> None:
            handled.append(record.value)

        async with world.consumer("t", group_id="g", value_deserializer=schemas) as consumer:
            worker = Worker(consumer, handle, retry=Retry(1), dead_letter="dead", timeout=1.0)
            async with running(worker):
                await asyncio.sleep(20)
                assert handled == []
                schemas.gate.set()
                await asyncio.sleep(10)
                assert handled == ["a"]
        assert world.cluster.records("dead", 0) == []

    simulate(scenario, topics={"t": 1, "dead": 1})


def test_a_schema_that_does_not_exist_leads_to_a_dead_letter_of_the_bytes() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [(b"k", b"9:a"), (b"k", b"1:b")])
        schemas = Schemas(b"1")
        schemas.errors[b"9"] = MISSING
        handled: list[Any] = []

        async def handle(record: Any) -> None:
            handled.append(record.value)

        async with world.consumer("t", group_id="g", value_deserializer=schemas) as consumer:
            worker = Worker(consumer, handle, retry=Retry(3), dead_letter="dead")
            async with running(worker):
                await asyncio.sleep(5)
        (letter,) = world.cluster.records("dead", 0)
        assert (letter.key, letter.value) == (b"k", b"9:a")
        assert handled == ["b"]

    simulate(scenario, topics={"t": 1, "dead": 1})


def test_a_worker_stops_while_a_record_is_being_prepared() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"2:a"])
        schemas = Schemas()
        schemas.gate.clear()

        async def handle(record: Any) -> None:
            raise AssertionError

        async with world.consumer("t", group_id="g", value_deserializer=schemas) as consumer:
            worker = Worker(consumer, handle, drain_timeout=5.0)
            began = world.now
            async with running(worker):
                await asyncio.sleep(3)
            assert world.now - began < 9
            assert consumer.state.name == "RUNNING"
        assert [each.offset for each in world.cluster.committed("g").values()] == [0]

    simulate(scenario)
