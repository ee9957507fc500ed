"""Tests of deserializers that must be prepared for records, as by a request to a registry."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from schema_values import MISSING, REFUSED, Schemas
from world import World, simulate

from aiokclient import SKIP, Consumer, OffsetAndMetadata, State, TopicPartition, transform
from aiokclient.consumer.delivery.reader import Reader
from aiokclient.errors import (
    ConfigError,
    RecordError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
)

T0, T1 = (TopicPartition("t", i) for i in range(2))


async def by_loop(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    values: list[Any] = []
    async for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    return values


async def by_tracked(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    values: list[Any] = []
    async for record in consumer.tracked():
        values.append(record.value)
        consumer.done(record)
        if len(values) == count:
            break
    return values


async def by_poll(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    values: list[Any] = []
    while len(values) < count:
        values += [record.value for record in await consumer.poll(math.inf)]
    return values


async def by_get(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    records = [await consumer.get(math.inf) for _ in range(count)]
    return [record.value for record in records if record is not None]


async def by_lists(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    values: list[Any] = []
    async for records in consumer.batches(max_wait=0.1):
        values += [record.value for record in records]
        if len(values) >= count:
            break
    return values


Way = Callable[[Consumer[Any, Any], int], Awaitable[list[Any]]]
WAYS: list[Way] = [by_loop, by_tracked, by_poll, by_get, by_lists]
all_ways = pytest.mark.parametrize("way", WAYS)


async def after(seconds: float, function: Callable[[], object]) -> None:
    await asyncio.sleep(seconds)
    function()


@all_ways
def test_records_before_an_unprepared_one_are_delivered_at_once(way: Way) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"1:b", b"2:c", b"1:d"])
        schemas = Schemas(b"1")
        schemas.gate.clear()
        async with world.consumer("t", value_deserializer=schemas) as consumer:
            assert await way(consumer, 2) == ["a", "b"]
            reading = asyncio.ensure_future(way(consumer, 2))
            await asyncio.sleep(5)
            assert not reading.done()
            assert consumer.consumed()[T0].offset == 2
            schemas.gate.set()
            assert await reading == ["c", "d"]
        assert schemas.calls == [[b"2"]]

    simulate(scenario)


@all_ways
def test_a_partition_that_waits_delays_no_other_one(way: Way) -> None:
    async def scenario(world: World) -> None:
        schemas = Schemas(b"1")
        schemas.gate.clear()
        # With a small limit, the responses for a partition that waits would fill the buffer.
        options: Any = {"value_deserializer": schemas, "max_partition_fetch_bytes": 100}
        async with world.consumer("t", **options) as consumer:
            world.cluster.produce("t", [b"2:later"] * 30, partition=0)
            for number in range(30):
                world.cluster.produce("t", [b"1:%d" % number], partition=1)
            assert await way(consumer, 30) == [str(number) for number in range(30)]
            schemas.gate.set()
            assert await way(consumer, 30) == ["later"] * 30

    simulate(scenario, topics={"t": 2})


@all_ways
def test_a_cancelled_request_loses_no_record_that_waits(way: Way) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"2:a", b"2:b"])
        schemas = Schemas()
        schemas.gate.clear()
        async with world.consumer("t", value_deserializer=schemas) as consumer:
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await way(consumer, 2)
            assert consumer.consumed().get(T0) is None or consumer.consumed()[T0].offset == 0
            assert schemas.cancelled == 0
            schemas.gate.set()
            assert await way(consumer, 2) == ["a", "b"]
        assert schemas.calls == [[b"2", b"2"]]

    simulate(scenario)


@all_ways
@pytest.mark.parametrize(
    "outage", [SchemaRegistryUnavailableError("It is down."), ConnectionRefusedError()]
)
def test_an_outage_is_waited_for_and_is_not_the_fault_of_a_record(
    way: Way, outage: Exception
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"2:b"])
        schemas = Schemas(b"1")
        schemas.errors[b"2"] = outage
        async with world.consumer("t", value_deserializer=schemas) as consumer:
            assert await way(consumer, 1) == ["a"]
            reading = asyncio.ensure_future(way(consumer, 1))
            await asyncio.sleep(30)
            assert consumer.state is State.DEGRADED
            (reason,) = consumer.health().reasons
            assert reason.startswith(
                "t-0 cannot be read: the deserializer of the value is not prepared for offset 1: "
            )
            assert 30 < len(schemas.calls) < 60  # The backoff is about a second.
            began = world.now
            with pytest.raises(SchemaRegistryUnavailableError, match=r"t-0.*offset 1 within 60"):
                await reading
            assert 29 < world.now - began < 33
            assert consumer.consumed()[T0].offset == 1
            schemas.errors.clear()
            assert await way(consumer, 1) == ["b"]
            assert consumer.state is State.RUNNING

    simulate(scenario)


def test_an_outage_that_is_over_before_a_request_is_not_raised() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"2:a"])
        schemas = Schemas()
        schemas.errors[b"2"] = ConnectionError()
        async with world.consumer("t", value_deserializer=schemas) as consumer:
            assert await consumer.poll(1) == []
            await asyncio.sleep(100)
            schemas.errors.clear()
            await asyncio.sleep(5)
            assert await by_poll(consumer, 1) == ["a"]

    simulate(scenario)


@all_ways
def test_only_a_schema_that_does_not_exist_makes_a_record_error(way: Way) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"9:b", b"2:c", b"9:d", b"1:e"])
        schemas = Schemas(b"1")
        schemas.errors[b"9"] = MISSING
        async with world.consumer("t", value_deserializer=schemas) as consumer:
            assert await way(consumer, 1) == ["a"]
            for offset, following in ((1, "c"), (3, "e")):
                with pytest.raises(RecordError, match="value") as raised:
                    await way(consumer, 1)
                assert (raised.value.offset, raised.value.__cause__) == (offset, MISSING)
                assert await way(consumer, 1) == [following]
        assert consumer.state is State.CLOSED

    simulate(scenario)


def test_on_record_error_decides_about_a_schema_that_does_not_exist() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"9:a", b"1:b", b"8:c", b"1:d"])
        schemas = Schemas(b"1")
        schemas.errors = {b"9": MISSING, b"8": ValueError("no id")}
        told: list[Any] = []

        def decide(error: RecordError) -> Any:
            told.append((error.offset, error.__cause__))
            return SKIP if error.offset == 0 else "in its place"

        options: Any = {"value_deserializer": schemas, "on_record_error": decide}
        async with world.consumer("t", **options) as consumer:
            assert await by_poll(consumer, 3) == ["b", "in its place", "d"]
        assert told == [(0, MISSING), (2, schemas.errors[b"8"])]

    simulate(scenario)


@all_ways
def test_refused_credentials_are_raised_and_the_record_is_not_delivered(way: Way) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"2:a"])
        schemas = Schemas()
        schemas.errors[b"2"] = REFUSED
        async with world.consumer("t", value_deserializer=schemas) as consumer:
            for _ in range(3):
                with pytest.raises(SchemaRegistryError) as raised:
                    await way(consumer, 1)
                assert raised.value is REFUSED
            assert consumer.state is State.DEGRADED
            schemas.errors.clear()
            assert await way(consumer, 1) == ["a"]

    simulate(scenario)


def test_a_future_that_the_program_cancelled_refuses_no_record() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"2:a"])
        schemas = Schemas()
        schemas.errors[b"2"] = asyncio.CancelledError()
        async with world.consumer("t", value_deserializer=schemas) as consumer:
            asyncio.get_running_loop().call_later(3, schemas.errors.clear)
            assert await by_poll(consumer, 1) == ["a"]

    simulate(scenario)


def test_a_preparation_that_never_ends_is_an_outage() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"2:a"])
        schemas = Schemas()
        schemas.gate.clear()
        options: Any = {"value_deserializer": schemas, "default_api_timeout_ms": 5_000}
        async with world.consumer("t", **options) as consumer:
            began = world.now
            with pytest.raises(SchemaRegistryUnavailableError) as raised:
                await by_poll(consumer, 1)
            assert 5 <= world.now - began < 6
            assert isinstance(raised.value.__cause__, TimeoutError)

    simulate(scenario)


def test_a_stream_of_transactions_raises_an_outage_and_continues_after_it() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"2:b"])
        schemas = Schemas(b"1")
        schemas.errors[b"2"] = ConnectionError()
        group: Any = {"group_id": "g", "enable_auto_commit": False, "checked": False}
        async with (
            world.consumer("t", value_deserializer=schemas, **group) as consumer,
            world.producer(transactional_id="x") as producer,
        ):
            values: list[Any] = []

            async def read() -> None:
                async with transform(consumer, producer) as stream:
                    async for batch in stream:
                        values.extend(record.value for record in batch)

            with pytest.raises(SchemaRegistryUnavailableError):
                await read()
            assert values == ["a"]
            assert (await consumer.committed([T0]))[T0] == OffsetAndMetadata(1, "", 0)
            schemas.errors.clear()
            async with transform(consumer, producer) as stream:
                batch = await anext(stream)
                assert [record.value for record in batch] == ["b"]

    simulate(scenario)


def test_partitions_that_wait_during_one_outage_are_prepared_at_the_same_times() -> None:
    times: list[float] = []

    class Timed(Schemas):
        async def prepare(self, topic: str, items: Any) -> None:
            times.append(asyncio.get_running_loop().time())
            await super().prepare(topic, items)

    async def scenario(world: World) -> None:
        schemas = Timed()
        schemas.errors[b"2"] = ConnectionError()
        async with world.consumer("t", value_deserializer=schemas) as consumer:
            for partition in range(20):
                world.cluster.produce("t", [b"2:%d" % partition], partition=partition)
                assert await consumer.poll(0.1) == []
            await asyncio.sleep(10)
            del times[:]
            await asyncio.sleep(10)
            schemas.errors.clear()
            assert sorted(map(int, await by_poll(consumer, 20))) == list(range(20))

    simulate(scenario, topics={"t": 20})
    assert len(times) > 150
    assert len({round(time, 3) for time in times}) < 20


@all_ways
def test_a_seek_away_from_a_record_that_waits_delivers_at_once(way: Way) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"2:b", b"1:c", b"1:d"])
        schemas = Schemas(b"1")
        schemas.errors[b"2"] = ConnectionError()
        async with world.consumer("t", value_deserializer=schemas) as consumer:
            assert await way(consumer, 1) == ["a"]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(10):
                    await way(consumer, 1)
            before = world.now
            consumer.seek(T0, 2)
            assert await way(consumer, 2) == ["c", "d"]
            assert world.now - before < 0.5
            assert consumer.state is State.RUNNING
            consumer.seek(T0, 1)
            schemas.errors.clear()
            assert await way(consumer, 3) == ["b", "c", "d"]

    simulate(scenario)


def test_a_pause_while_a_record_waits_keeps_the_time_of_the_outage() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"2:b"])
        schemas = Schemas(b"1")
        schemas.errors[b"2"] = ConnectionError()
        async with world.consumer("t", value_deserializer=schemas) as consumer:
            assert await by_poll(consumer, 1) == ["a"]
            assert await consumer.poll(40) == []
            consumer.pause([T0])
            assert await consumer.poll(5) == []
            consumer.resume([T0])
            began = world.now
            with pytest.raises(SchemaRegistryUnavailableError):
                await consumer.poll(math.inf)
            assert world.now - began < 18
            consumer.pause([T0])
            schemas.errors.clear()
            assert await consumer.poll(5) == []
            consumer.resume([T0])
            assert await by_poll(consumer, 1) == ["b"]

    simulate(scenario)


def test_a_partition_that_is_taken_away_while_a_record_waits_is_forgotten() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"2:a"], partition=0)
        world.cluster.produce("t", [b"1:b"], partition=1)
        schemas = Schemas(b"1")
        schemas.errors[b"2"] = ConnectionError()
        consumer = world.consumer(value_deserializer=schemas)
        consumer.assign([T0, T1])
        async with consumer:
            assert await by_poll(consumer, 1) == ["b"]
            assert await consumer.poll(5) == []
            assert consumer.state is State.DEGRADED
            consumer.assign([T1])
            await asyncio.sleep(0)
            assert consumer.state is State.RUNNING
            calls = len(schemas.calls)
            assert await consumer.poll(100) == []
            assert len(schemas.calls) <= calls + 1
            consumer.assign([T0, T1])
            schemas.errors.clear()
            assert await by_poll(consumer, 1) == ["a"]

    simulate(scenario, topics={"t": 2})


def test_a_group_rebalances_while_a_record_waits() -> None:
    async def scenario(world: World) -> None:
        for partition in range(2):
            world.cluster.produce("t", [b"1:a", b"2:b"], partition=partition)
        schemas, other = Schemas(b"1"), Schemas(b"1", b"2")
        schemas.errors[b"2"] = ConnectionError()
        options: Any = {"group_id": "g", "checked": False}
        async with world.consumer("t", value_deserializer=schemas, **options) as consumer:
            assert await by_poll(consumer, 2) == ["a", "a"]
            assert await consumer.poll(5) == []
            async with world.consumer("t", value_deserializer=other, **options) as second:
                reading = asyncio.ensure_future(by_poll(second, 1))
                while not reading.done():
                    assert await consumer.poll(1) == []
                assert reading.result() == ["b"]
                assert len(consumer.assignment()) == 1
                schemas.errors.clear()
                assert await by_poll(consumer, 1) == ["b"]

    simulate(scenario, topics={"t": 2})


@pytest.mark.parametrize("outage", [False, True])
def test_stop_and_close_do_not_wait_for_a_preparation(outage: bool) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"2:a"])
        schemas = Schemas()
        if outage:
            schemas.errors[b"2"] = ConnectionError()
        else:
            schemas.gate.clear()
        consumer = world.consumer("t", value_deserializer=schemas)
        await consumer.start()
        reading = asyncio.ensure_future(by_loop(consumer, 1))
        await asyncio.sleep(3)
        consumer.stop()
        assert await reading == []
        began = world.now
        await consumer.close()
        assert world.now - began < 1
        assert schemas.cancelled == (not outage)

    simulate(scenario)


def test_an_iteration_to_the_end_leaves_out_what_waits_beyond_it() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"1:b"])
        schemas = Schemas(b"1")
        schemas.gate.clear()
        async with world.consumer("t", value_deserializer=schemas) as consumer:
            values: list[str] = []
            async for record in consumer.until_end():
                if not values:
                    world.cluster.produce("t", [b"2:c"])
                values.append(record.value)
            assert values == ["a", "b"]
            reading = asyncio.ensure_future(consumer.batches(until_end=True).__anext__())
            await asyncio.sleep(3)
            assert not reading.done()
            schemas.gate.set()
            assert [record.value for record in await reading] == ["c"]

    simulate(scenario)


def test_keys_and_values_are_prepared() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [(b"1:k", b"2:a"), (None, b"2:b"), (b"3:l", None)])
        keys, values = Schemas(), Schemas()
        options: Any = {"key_deserializer": keys, "value_deserializer": values}
        async with world.consumer("t", **options) as consumer:
            records = [record async for record in consumer.until_end()]
        found = [(record.key, record.value) for record in records]
        assert found == [("k", "a"), (None, "b"), ("l", None)]
        assert (keys.calls, values.calls) == ([[b"1", b"3"]], [[b"2", b"2"]])

    simulate(scenario)


def test_an_answer_of_is_prepared_that_stays_no_does_not_stop_reading() -> None:
    class Never(Schemas):
        def is_prepared(self, data: bytes, headers: Any) -> bool:
            return False

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"2:b"])
        async with world.consumer("t", value_deserializer=Never()) as consumer:
            assert await by_poll(consumer, 2) == ["a", "b"]

    simulate(scenario)


def test_a_failure_of_is_prepared_is_an_error_of_its_record() -> None:
    class Fails(Schemas):
        def is_prepared(self, data: bytes, headers: Any) -> bool:
            if data == b"bad":
                raise ValueError("no colon")
            return super().is_prepared(data, headers)

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1:a", b"bad", b"1:b"])
        async with world.consumer("t", value_deserializer=Fails()) as consumer:
            assert await by_poll(consumer, 1) == ["a"]
            with pytest.raises(RecordError) as raised:
                await consumer.poll()
            assert isinstance(raised.value.__cause__, ValueError)
            assert await by_poll(consumer, 1) == ["b"]

    simulate(scenario)


def test_is_prepared_without_prepare_is_refused() -> None:
    class Half:
        def deserialize(self, topic: str, data: bytes, headers: Any) -> bytes:
            return data

        def is_prepared(self, data: bytes, headers: Any) -> bool:
            return True

    with pytest.raises(ConfigError, match=r"value_deserializer has is_prepared\(\)"):
        Consumer("t", bootstrap_servers="b:1", value_deserializer=Half())


@contextmanager
def raw(reader: Reader) -> Iterator[None]:
    """Read records as bytes, as a worker does."""
    reader.read_raw(True)
    yield
    reader.read_raw(False)


class TestBytes:
    """Records that are read as bytes, and are deserialized later."""

    def test_records_are_delivered_as_bytes_and_are_deserialized_later(self) -> None:
        async def scenario(world: World) -> None:
            world.cluster.produce("t", [(b"k", b"2:a"), (b"k", b"1:b")])
            schemas = Schemas(b"1")
            schemas.errors[b"2"] = ConnectionError()
            options: Any = {"key_deserializer": bytes.decode, "value_deserializer": schemas}
            async with world.consumer("t", **options) as consumer:
                reader = consumer._running.reader
                with raw(reader):
                    first, second = await consumer.poll()
                    assert (first.key, first.value, second.value) == (b"k", b"2:a", b"1:b")
                    assert consumer.state is State.RUNNING
                made = await reader.deserialize_later(second, 5)
                assert made is not None
                assert (made.key, made.value, made.offset) == ("k", "b", 1)
                for _ in range(3):
                    with pytest.raises(SchemaRegistryUnavailableError):
                        await reader.deserialize_later(first, 5)
                    assert consumer.state is State.DEGRADED
                assert len(schemas.calls) == 3
                schemas.errors.clear()
                made = await reader.deserialize_later(first, 5)
                assert made is not None
                assert made.value == "a"
                assert consumer.state is State.RUNNING

        simulate(scenario)

    def test_a_record_that_cannot_be_deserialized_later_is_refused_or_skipped(self) -> None:
        async def scenario(world: World) -> None:
            world.cluster.produce("t", [b"9:a"])
            schemas = Schemas()
            schemas.errors[b"9"] = MISSING
            async with world.consumer("t", value_deserializer=schemas) as consumer:
                with raw(consumer._running.reader):
                    (record,) = await consumer.poll()
                with pytest.raises(RecordError) as raised:
                    await consumer._running.reader.deserialize_later(record, 5)
                assert raised.value.raw_value == b"9:a"
                schemas.errors[b"9"] = REFUSED
                with pytest.raises(SchemaRegistryError):
                    await consumer._running.reader.deserialize_later(record, 5)
            options: Any = {"value_deserializer": schemas, "on_record_error": lambda _: SKIP}
            schemas.errors[b"9"] = MISSING
            async with world.consumer("t", **options) as consumer:
                assert await consumer._running.reader.deserialize_later(record, 5) is None

        simulate(scenario)

    def test_records_after_it_are_deserialized_again(self) -> None:
        async def scenario(world: World) -> None:
            world.cluster.produce("t", [b"1:a", b"1:b", b"1:c"])
            async with world.consumer("t", value_deserializer=Schemas(b"1")) as consumer:
                first = await consumer.get()
                with raw(consumer._running.reader):
                    second = await consumer.get()
                third = await consumer.get()
            values = [record.value for record in (first, second, third) if record is not None]
            assert values == ["a", b"1:b", "c"]

        simulate(scenario)

    @pytest.mark.parametrize("value", [memoryview, None])
    def test_views_are_read_as_bytes_and_made_later(self, value: Any) -> None:
        async def scenario(world: World) -> None:
            world.cluster.produce("t", [b"a"])
            async with world.consumer("t", value_deserializer=value) as consumer:
                reader = consumer._running.reader
                with raw(reader):
                    (record,) = await consumer.poll()
                assert type(record.value) is bytes
                made = await reader.deserialize_later(record, 5)
                assert made is not None
                assert type(made.value) is (value or bytes)
                assert made.value == b"a"

        simulate(scenario)

    def test_a_cancelled_deserialization_changes_nothing(self) -> None:
        async def scenario(world: World) -> None:
            world.cluster.produce("t", [b"2:a"])
            schemas = Schemas()
            schemas.gate.clear()
            async with world.consumer("t", value_deserializer=schemas) as consumer:
                reader = consumer._running.reader
                with raw(reader):
                    (record,) = await consumer.poll()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(3):
                        await reader.deserialize_later(record, 5)
                assert consumer.state is State.RUNNING
                schemas.gate.set()
                made = await reader.deserialize_later(record, 5)
                assert made is not None
                assert made.value == "a"

        simulate(scenario)
