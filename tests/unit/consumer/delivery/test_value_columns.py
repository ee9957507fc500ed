"""Tests of Arrow tables whose values are decoded by a deserializer."""

import asyncio
from typing import Any

import pytest
from schema_values import MISSING, REFUSED, Schemas
from world import World, simulate

from aiokclient import SKIP, State, TopicPartition
from aiokclient.errors import ConfigError, RecordError, SchemaRegistryError
from aiokclient.errors import SchemaRegistryUnavailableError as Unavailable

pa = pytest.importorskip("pyarrow")

T0 = TopicPartition("t", 0)
STRUCT = pa.struct([("text", pa.string())])


class TableSchemas(Schemas):
    """Schemas whose values become a struct column."""

    def arrow_column(self, values: list[Any]) -> Any:
        return pa.array([None if value is None else {"text": value} for value in values], STRUCT)


def texts(table: Any) -> list[Any]:
    """Return the values of a table, which must have its type."""
    assert table.schema.field("value").type == STRUCT
    return [value if value is None else value["text"] for value in table["value"].to_pylist()]


async def read(batches: Any, count: int) -> list[Any]:
    """Return the next values of tables, which are read until there are `count`."""
    values: list[Any] = []
    while len(values) < count:
        values += texts(await anext(batches))
    return values


def test_values_become_a_struct_column() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [(b"k", b"1:a"), (None, None), (None, b"1:c")])
        async with world.consumer("t") as consumer:
            tables = consumer.arrow_batches(until_end=True, value_schema=TableSchemas())
            (table,) = [table async for table in tables]
            assert texts(table) == ["a", None, "c"]
            assert table["key"].to_pylist() == [b"k", None, None]
            assert table["offset"].to_pylist() == [0, 1, 2]
            assert consumer.consumed()[T0].offset == 3

    simulate(scenario)


def test_tables_end_before_a_row_that_waits_and_other_partitions_do_not_wait() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"1:b", b"2:c", b"1:d"], partition=0)
        schemas = TableSchemas(b"1")
        schemas.gate.clear()
        async with world.consumer("t") as consumer:
            batches = consumer.arrow_batches(value_schema=schemas)
            assert await read(batches, 2) == ["a", "b"]
            reading = asyncio.ensure_future(read(batches, 30))
            for number in range(30):
                world.cluster.produce("t", [b"1:%d" % number], partition=1)
                await asyncio.sleep(0.1)
            assert await reading == [str(number) for number in range(30)]
            assert consumer.consumed()[T0].offset == 2
            schemas.gate.set()
            assert await read(batches, 2) == ["c", "d"]
        assert schemas.calls == [[b"2"]]

    simulate(scenario, topics={"t": 2})


def test_an_outage_during_tables_is_raised_and_nothing_is_lost() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"2:b"])
        schemas = TableSchemas(b"1")
        schemas.errors[b"2"] = ConnectionError()
        async with world.consumer("t") as consumer:
            batches = consumer.arrow_batches(value_schema=schemas)
            assert await read(batches, 1) == ["a"]
            began = world.now
            with pytest.raises(Unavailable):
                await read(batches, 1)
            assert 59 < world.now - began < 62
            assert consumer.state is State.DEGRADED
            assert consumer.consumed()[T0].offset == 1
            schemas.errors[b"2"] = REFUSED
            with pytest.raises(SchemaRegistryError):
                await read(consumer.arrow_batches(value_schema=schemas), 1)
            schemas.errors.clear()
            assert await read(consumer.arrow_batches(value_schema=schemas), 1) == ["b"]
            assert consumer.state is State.RUNNING

    simulate(scenario)


@pytest.mark.parametrize("way", ["cancel", "seek", "pause", "stop"])
def test_a_waiting_request_for_a_table_can_be_ended(way: str) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"2:b", b"1:c"])
        schemas = TableSchemas(b"1")
        schemas.gate.clear()
        async with world.consumer("t") as consumer:
            batches = consumer.arrow_batches(value_schema=schemas)
            assert await read(batches, 1) == ["a"]
            reading = asyncio.ensure_future(read(batches, 1))
            await asyncio.sleep(3)
            if way == "cancel":
                reading.cancel()
                assert isinstance(
                    (await asyncio.gather(reading, return_exceptions=True))[0],
                    asyncio.CancelledError,
                )
            elif way == "seek":
                consumer.seek(T0, 2)
                assert await reading == ["c"]
                consumer.seek(T0, 1)
            elif way == "pause":
                consumer.pause([T0])
                await asyncio.sleep(3)
                schemas.gate.set()
                await asyncio.sleep(3)
                assert not reading.done()
                consumer.resume([T0])
                assert await reading == ["b", "c"]
                return
            else:
                consumer.stop()
                with pytest.raises(StopAsyncIteration):
                    await reading
                return
            schemas.gate.set()
            assert await read(consumer.arrow_batches(value_schema=schemas), 2) == ["b", "c"]

    simulate(scenario)


def test_each_row_that_cannot_be_decoded_is_raised_once() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"9:b", b"9:c", b"1:d"])
        schemas = TableSchemas(b"1")
        schemas.errors[b"9"] = MISSING
        async with world.consumer("t") as consumer:
            batches = consumer.arrow_batches(value_schema=schemas)
            assert await read(batches, 1) == ["a"]
            for offset in (1, 2):
                with pytest.raises(RecordError) as raised:
                    await read(batches, 1)
                assert (raised.value.offset, raised.value.__cause__) == (offset, MISSING)
                assert consumer.consumed()[T0].offset == offset + 1
            assert await read(batches, 1) == ["d"]

    simulate(scenario)


def test_on_record_error_skips_rows_of_tables() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"9:a", b"1:b", b"8:c", b"9:d"])
        schemas = TableSchemas(b"1")
        schemas.errors = {b"9": MISSING, b"8": MISSING}

        def decide(error: RecordError) -> Any:
            return None if error.offset == 2 else SKIP

        async with world.consumer("t", on_record_error=decide) as consumer:
            tables = consumer.arrow_batches(until_end=True, value_schema=schemas)
            rows = [
                (offset, text)
                async for table in tables
                for offset, text in zip(table["offset"].to_pylist(), texts(table), strict=True)
            ]
            assert rows == [(1, "b"), (2, None)]
            assert consumer.consumed()[T0].offset == 4

    simulate(scenario)


def test_a_deserializer_that_makes_no_columns_is_refused() -> None:
    class Changing(TableSchemas):
        def arrow_column(self, values: list[Any]) -> Any:
            return pa.array([1] * len(values)) if values else super().arrow_column(values)

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a"])
        async with world.consumer("t") as consumer:
            with pytest.raises(ConfigError, match=r"has no arrow_column\(\)"):
                consumer.arrow_batches(value_schema=Schemas())
            with pytest.raises(ConfigError, match="1 values of type int64, not of 1 of type stru"):
                await read(consumer.arrow_batches(value_schema=Changing(b"1")), 1)
            assert await read(consumer.arrow_batches(value_schema=TableSchemas(b"1")), 1) == ["a"]

    simulate(scenario)
