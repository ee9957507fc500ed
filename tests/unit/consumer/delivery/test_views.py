"""Tests of `value_deserializer=memoryview`, which does not copy the values."""

from typing import Any

import pytest
from world import World, simulate

from aiokclient import RecordMetadata, TopicPartition
from aiokclient.errors import RecordError

LARGE = 200_000


async def produce(world: World, compression: str, *records: Any) -> RecordMetadata:
    async with world.producer(compression_type=compression) as producer:
        sent = [producer.send("t", value, key, partition=0) for key, value in records]
        return (await producer.gather(sent))[-1]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_views_stay_valid_after_their_batch_was_released(compression: str) -> None:
    """A view stays valid after its batch was released and its memory could be reused."""
    values = [bytes([i]) * LARGE for i in range(20)]

    async def scenario(world: World) -> None:
        await produce(world, compression, *((b"k", value) for value in values), (None, None))
        options: Any = {"value_deserializer": memoryview, "max_partition_fetch_bytes": 2 * LARGE}
        async with world.consumer("t", **options) as consumer:
            records = [record async for record in consumer.until_end()]
        assert [record.value for record in records] == [*values, None]
        assert [record.key for record in records] == [b"k"] * 20 + [None]
        assert all(type(record.key) is bytes for record in records[:-1])
        views: list[Any] = [record.value for record in records[:-1]]
        assert all(type(view) is memoryview and view.readonly for view in views)

    simulate(scenario, topics={"t": 1})


def test_values_of_one_batch_share_its_memory() -> None:
    async def scenario(world: World) -> None:
        await produce(world, "none", *[(None, bytes(100))] * 10)
        async with world.consumer("t", value_deserializer=memoryview) as consumer:
            views: list[Any] = [record.value async for record in consumer.until_end()]
        assert len({id(view.obj) for view in views}) == 1

    simulate(scenario, topics={"t": 1})


def test_the_key_deserializer_gets_bytes() -> None:
    """The key deserializer and its errors get bytes.

    The key is a view only if that is requested, too.
    """

    async def scenario(world: World) -> None:
        await produce(world, "none", (b"7", b"a"), (b"x", b"b"))
        failed: list[RecordError] = []
        options: Any = {"value_deserializer": memoryview, "on_record_error": failed.append}
        async with world.consumer("t", key_deserializer=int, **options) as consumer:
            records = [record async for record in consumer.until_end()]
            assert [record.key for record in records] == [7, None]
        (error,) = failed
        assert (error.raw_key, error.raw_value) == (b"x", b"b")
        assert type(error.raw_key) is type(error.raw_value) is bytes
        options = {"value_deserializer": memoryview, "key_deserializer": memoryview}
        async with world.consumer("t", **options) as consumer:
            consumer.seek(TopicPartition("t", 0), 1)
            record = await consumer.get()
            assert (record.key, record.value) == (b"x", b"b")
            assert type(record.key) is type(record.value) is memoryview

    simulate(scenario, topics={"t": 1})
