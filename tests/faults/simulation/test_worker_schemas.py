"""Workers in virtual time whose records or messages need a registry, or cannot be deserialized."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient import ConsumerRecord, TopicPartition
from aiokclient.errors import SchemaRegistryUnavailableError
from aiokclient.worker import Batch, Exponential, Retry, Worker

Record = ConsumerRecord[bytes, bytes]
QUICK = Exponential(1.0, max=1.0, jitter=0.0)
T0 = TopicPartition("t", 0)


async def fill(world: World) -> None:
    async with world.producer() as producer:
        for number in range(3):
            producer.send("t", b"%d" % number)


def consumer(world: World, **more: Any) -> Any:
    return world.consumer("t", checked=False, group_id="g", auto_commit_interval_ms=1000, **more)


async def committed(world: World) -> int | None:
    async with world.consumer(group_id="g", checked=False) as reader:
        found = (await reader.committed([T0]))[T0]
    return None if found is None else found.offset


class Schemas:
    """A deserializer that needs a registry, which cannot be reached until a time."""

    def __init__(self, world: World, until_s: float) -> None:
        self.world, self.until_s, self.known = world, until_s, False

    def is_prepared(self, data: bytes | None, headers: Any) -> bool:
        return self.known

    async def prepare(self, topic: str, items: Any) -> None:
        if self.world.now < self.until_s:
            raise ConnectionRefusedError("the registry is away")
        self.known = True

    def deserialize(self, topic: str, data: bytes, headers: Any) -> int:
        return int(data)


@pytest.mark.fault(59)
def test_a_worker_waits_for_a_registry_and_writes_no_dead_letter() -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        seen: list[int] = []

        async def handle(record: ConsumerRecord[bytes, int]) -> None:
            assert record.value is not None
            seen.append(record.value)

        schemas = Schemas(world, 60)
        async with consumer(
            world, value_deserializer=schemas, max_poll_interval_ms=20_000
        ) as reader:
            worker = Worker(reader, handle, dead_letter="dead", retry=Retry(1, QUICK))
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(30)
            assert not worker.health().ready
            assert any("the registry is away" in text for text in worker.health().reasons)
            assert reader.paused() == {T0}
            await asyncio.sleep(60)
            assert worker.health().ready, worker.health().reasons
            await worker.drain()
            await running
        assert seen == [0, 1, 2]
        assert not world.cluster.records("dead")
        assert await committed(world) == 3

    simulate(scenario, topics={"t": 1, "dead": 1})


def test_records_of_a_batch_that_cannot_be_deserialized_are_given_up_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0", b"x", b"2", b"y", b"4"])
        lists: list[list[int]] = []

        async def handle(records: list[Any]) -> None:
            lists.append([record.value for record in records])
            if len(lists) == 1:
                raise ValueError("all of them")

        async with consumer(world, value_deserializer=int) as reader:
            worker = Worker(
                reader, handle, batch=Batch(5), dead_letter="dead", retry=Retry(2, QUICK)
            )
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(10)
            worker.stop()
            await running
        assert lists == [[0, 2, 4], [0, 2, 4]]
        assert [record.value for record in world.cluster.records("dead")] == [b"x", b"y"]
        assert await committed(world) == 5
        assert [text.split(": ", 1)[1] for text in caplog.messages if "dead letters" in text] == [
            f"t-0 offset {offset} could not be deserialized, and the record is sent to the dead "
            "letters: RecordError: The value was refused by its deserializer, with ValueError."
            for offset in (1, 3)
        ]

    simulate(scenario, topics={"t": 1, "dead": 1})


class Writer:
    """A serializer that needs a registry, which cannot be reached until a time."""

    def __init__(self, world: World, until_s: float) -> None:
        self.world, self.until_s = world, until_s
        self.known: set[str] = set()

    async def prepare(self, topic: str) -> None:
        await asyncio.sleep(0.5)
        if self.world.now < self.until_s:
            raise SchemaRegistryUnavailableError("it is away")
        self.known.add(topic)

    def serialize(self, topic: str, value: int, headers: Any) -> bytes:
        assert topic in self.known
        return b"%d" % value


def test_a_worker_prepares_serializers_and_waits_for_their_registry() -> None:
    async def scenario(world: World) -> None:
        await fill(world)

        async def handle(record: Record, worker: Worker) -> None:
            for number in range(3):
                worker.send("out", record.offset * 10 + number)

        producer = world.producer(value_serializer=Writer(world, 30))
        async with consumer(world, value_deserializer=int) as reader, producer:
            worker = Worker(
                reader, handle, producer=producer, dead_letter="dead", retry=Retry(1, QUICK)
            )
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(20)
            assert not worker.health().ready
            await asyncio.sleep(40)
            assert worker.health().ready
            await worker.drain()
            await running
        values = [record.value for record in world.cluster.records("out")]
        assert values == [b"0", b"1", b"2", b"10", b"11", b"12", b"20", b"21", b"22"]
        assert not world.cluster.records("dead")
        assert await committed(world) == 3

    simulate(scenario, topics={"t": 1, "out": 1, "dead": 1})
