"""Tests of subscribing, assigning, seeking, pausing, and requesting offsets."""

import asyncio
import re
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Client, Consumer, OffsetAndMetadata, State, TopicPartition
from aiokclient.errors import (
    ApiTimeoutError,
    ConfigError,
    IllegalStateError,
    NoOffsetError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import ApiKey

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TWO = {"t": 2}


def fill(world: World, count: int, topic: str = "t", partition: int = 0, **options: Any) -> None:
    for _ in range(count):
        world.cluster.produce(topic, [b"v"], partition=partition, **options)


async def offsets(consumer: Consumer[Any, Any], count: int) -> list[int]:
    """Return the offsets of the next `count` records."""
    found: list[int] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += [r.offset for r in await consumer.poll(max_records=count - len(found))]
    return found


def test_seek_moves_the_position() -> None:
    async def scenario(world: World) -> None:
        fill(world, 20)
        async with world.consumer() as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 5)
            assert await offsets(consumer, 3) == [5, 6, 7]
            consumer.seek(T0, OffsetAndMetadata(15))
            assert consumer.consumed()[T0].offset == 15
            records = await consumer.poll(max_records=2)
            assert [r.offset for r in records] == [15, 16]
            consumer.seek(records[0])
            assert await offsets(consumer, 5) == [15, 16, 17, 18, 19]
            consumer.seek_to_beginning([T0])
            assert await offsets(consumer, 2) == [0, 1]
            consumer.seek_to_end()
            assert await consumer.position(T0) == 20
            fill(world, 1)
            assert await offsets(consumer, 1) == [20]
            with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
                consumer.seek(T1, 0)
            with pytest.raises(IllegalStateError, match="not an offset"):
                consumer.seek(T0, -1)
            with pytest.raises(IllegalStateError, match="partition and an offset"):
                consumer.seek(T0)

    simulate(scenario, topics=TWO)


def test_a_seek_in_the_middle_of_an_iteration() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"] * 20)
        async with world.consumer("t") as consumer:
            seen: list[int] = []
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 5:
                    consumer.seek(T0, 2)
                if len(seen) == 10:
                    consumer.seek(T0, 18)
                if record.offset == 19:
                    break
            assert seen == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 18, 19]

    simulate(scenario)


def test_pause_stops_the_delivery_of_a_partition() -> None:
    async def scenario(world: World) -> None:
        for partition in (0, 1):
            world.cluster.produce("t", [b"v"] * 10, partition=partition)
        async with world.consumer("t") as consumer:
            first = await consumer.get()
            assert first is not None
            paused = TopicPartition("t", first.partition)
            consumer.pause([paused])
            assert consumer.paused() == {paused}
            other = await consumer.poll()
            assert {r.partition for r in other} == {1 - first.partition}
            assert await consumer.poll(timeout=3.0) == []
            consumer.resume([paused])
            assert await offsets(consumer, 9) == list(range(1, 10))

    simulate(scenario, topics=TWO)


def test_pausing_in_the_middle_of_an_iteration() -> None:
    async def scenario(world: World) -> None:
        for partition in (0, 1):
            world.cluster.produce("t", [b"v"] * 10, partition=partition)
        async with world.consumer("t") as consumer:
            seen: list[tuple[int, int]] = []
            async for record in consumer:
                seen.append((record.partition, record.offset))
                if len(seen) == 3:
                    consumer.pause([TopicPartition("t", record.partition)])
                if len(seen) == 13:
                    consumer.resume(consumer.paused())
                if len(seen) == 20:
                    break
            first = seen[0][0]
            assert seen == [
                *((first, offset) for offset in range(3)),
                *((1 - first, offset) for offset in range(10)),
                *((first, offset) for offset in range(3, 10)),
            ]

    simulate(scenario, topics=TWO)


@pytest.mark.parametrize("room", [100, 1 << 20])
def test_a_paused_partition_holds_up_no_other(room: int) -> None:
    """This holds whether or not the buffer has room for what was fetched of that partition."""

    async def scenario(world: World) -> None:
        for partition in range(4):
            fill(world, 50, partition=partition)
        async with world.consumer("t", fetch_max_bytes=room) as consumer:
            consumer.pause([T0])
            seen = 0
            while seen < 150:
                records = await consumer.poll(timeout=5.0)
                assert all(r.partition for r in records)
                assert records
                seen += len(records)
            assert consumer._engine is not None
            assert consumer._engine.buffer.paused_size <= room
            consumer.resume([T0])
            assert await offsets(consumer, 50) == list(range(50))

    simulate(scenario, topics={"t": 4})


def test_subscribing_and_assigning_together() -> None:
    async def scenario(world: World) -> None:
        fill(world, 3, "a")
        fill(world, 3, "b")
        async with world.consumer() as consumer:
            assert consumer.assignment() == set()
            consumer.subscribe(["a"])
            consumer.assign([TopicPartition("b", 0)])
            assert sorted(await offsets(consumer, 6)) == [0, 0, 1, 1, 2, 2]
            consumer.subscribe("b")
            fill(world, 1, "b")
            assert await offsets(consumer, 1) == [3]
            consumer.assign([])
            assert consumer.assignment() <= {TopicPartition("b", 0), TopicPartition("a", 0)}
            consumer.unsubscribe()
            assert consumer.assignment() == set()

    simulate(scenario, topics={"a": 1, "b": 1})


class Listener:
    def __init__(self) -> None:
        self.told: list[tuple[str, list[TopicPartition]]] = []

    async def on_assigned(self, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.told.append(("assigned", partitions))

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        self.told.append(("lost", partitions))


def test_a_pattern_reads_topics_created_later() -> None:
    async def scenario(world: World) -> None:
        fill(world, 3, "orders-eu")
        fill(world, 3, "xorders-eu")
        listener = Listener()
        consumer = Consumer(
            re.compile("orders-.*"),
            listener=listener,
            **world.options(metadata_max_age_ms=1_000, auto_offset_reset="latest"),
        )
        async with consumer:
            assert consumer.assignment() == {TopicPartition("orders-eu", 0)}
            world.cluster.create_topic("orders-us", 2)
            fill(world, 2, "orders-us", 1)
            assert await offsets(consumer, 2) == [0, 1]
        assert listener.told == [
            ("assigned", [TopicPartition("orders-eu", 0)]),
            ("assigned", [TopicPartition("orders-us", 0), TopicPartition("orders-us", 1)]),
        ]

    simulate(scenario, topics={"orders-eu": 1, "xorders-eu": 1})


def test_a_listener_may_seek_and_must_not_read() -> None:
    class Seeking:
        consumer: Consumer[Any, Any]
        refused = False

        async def on_assigned(self, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(1)
            for tp in partitions:
                self.consumer.seek(tp, 7)
            try:
                await self.consumer.poll()
            except IllegalStateError:
                self.refused = True

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"] * 10)
        listener = Seeking()
        async with world.consumer() as consumer:
            listener.consumer = consumer
            consumer.subscribe(["t"], listener)
            assert await offsets(consumer, 3) == [7, 8, 9]
        assert listener.refused

    simulate(scenario)


def test_a_listener_that_fails_fails_the_consumer() -> None:
    class Bad:
        def on_assigned(self, partitions: Any) -> None:
            raise ZeroDivisionError

    async def scenario(world: World) -> None:
        consumer = Consumer("t", listener=Bad(), **world.options())
        with pytest.raises(ZeroDivisionError):
            await consumer.start()
        consumer = await world.consumer()
        waiting = asyncio.create_task(consumer.poll(timeout=50))
        await asyncio.sleep(0)
        consumer.subscribe(["t"], Bad())
        with pytest.raises(ZeroDivisionError):
            await waiting
        with pytest.raises(ZeroDivisionError):
            await consumer.poll()
        assert consumer.state is State.FAILED
        await consumer.close()

    simulate(scenario)


@pytest.mark.fault(25)
@pytest.mark.parametrize(("new", "expected"), [("earliest", 5), ("reset", 0)])
def test_what_is_written_before_a_partition_is_noticed(new: str, expected: int) -> None:
    async def scenario(world: World) -> None:
        fill(world, 5)
        options = {"new_partitions": new, "auto_offset_reset": "latest"}
        async with world.consumer("t", "late", metadata_max_age_ms=1_000, **options) as consumer:
            world.cluster.add_partitions("t", 2)
            fill(world, 5, partition=1)
            found = await consumer.poll(timeout=5.0)
            assert len(found) == expected
            assert all(r.partition == 1 for r in found)
            world.cluster.create_topic("late")
            fill(world, 5, "late")
            assert len(await consumer.poll(timeout=5.0)) == expected

    simulate(scenario)


@pytest.mark.fault(24)
def test_a_topic_created_again_is_read_anew(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        fill(world, 50)
        async with world.consumer(metadata_max_age_ms=1_000) as consumer:
            consumer.assign([T0])
            await offsets(consumer, 50)
            world.cluster.delete_topic("t")
            world.cluster.create_topic("t", 1)
            fill(world, 60)
            assert await offsets(consumer, 60) == list(range(60))
            assert consumer.metrics()["consumer.position.resets{topic=t}"] == 1

    simulate(scenario)
    assert "created again" in caplog.text


def test_a_missing_position_raises_without_a_reset() -> None:
    async def scenario(world: World) -> None:
        fill(world, 5)
        async with world.consumer("t", auto_offset_reset="none") as consumer:
            for _ in range(2):
                with pytest.raises(NoOffsetError, match="t-0"):
                    await consumer.poll()
            with pytest.raises(NoOffsetError):
                await consumer.position(T0)
            consumer.seek(T0, 3)
            assert await offsets(consumer, 2) == [3, 4]

    simulate(scenario)


def test_a_partition_without_a_position_raises_after_its_pause_only() -> None:
    async def scenario(world: World) -> None:
        fill(world, 3)
        async with world.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([T0, T1])
            consumer.seek(T0, 0)
            with pytest.raises(NoOffsetError, match="t-1"):
                await consumer.poll(timeout=10.0)
            consumer.pause([T1])
            assert await offsets(consumer, 3) == [0, 1, 2]
            consumer.resume([T1])
            with pytest.raises(NoOffsetError, match="t-1"):
                await consumer.poll(timeout=10.0)

    simulate(scenario, topics=TWO)


@pytest.mark.fault(22)
def test_out_of_range_is_told_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        async with world.consumer() as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 500)
            assert await offsets(consumer, 10) == list(range(10))
            assert consumer.metrics()["consumer.position.resets{topic=t}"] == 1

    simulate(scenario)
    assert sum("is no longer valid" in message for message in caplog.messages) == 1


@pytest.mark.fault(22)
def test_what_is_buffered_is_read_before_an_offset_is_out_of_range() -> None:
    """Buffered records are delivered before the error of a later fetch is raised."""

    async def scenario(world: World) -> None:
        fill(world, 10)
        async with world.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            await offsets(consumer, 3)
            await asyncio.sleep(1)
            with world.cluster.fail(ApiKey.FETCH, OffsetOutOfRangeError):
                fill(world, 1)  # This record is still in the response to the fetch in flight.
                await asyncio.sleep(1)
                assert await offsets(consumer, 8) == list(range(3, 11))
                with pytest.raises(OffsetOutOfRangeError):
                    await consumer.poll(timeout=10.0)

    simulate(scenario)


def test_offsets_for_times_are_returned() -> None:
    async def scenario(world: World) -> None:
        for time in (1_000, 2_000, 3_000):
            fill(world, 2, timestamp=time)
        fill(world, 4, partition=1, timestamp=9_000)
        async with world.consumer() as consumer:
            assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
            assert await consumer.end_offsets([T1, T0]) == {T1: 4, T0: 6}
            found = await consumer.offsets_for_times({T0: 1_500, T1: 9_001})
            assert found[T1] is None
            assert found[T0] is not None
            assert found[T0][:2] == (2, 2_000)
            with pytest.raises(IllegalStateError):
                await consumer.offsets_for_times({T0: -1})
            consumer.assign([T0])
            consumer.seek(T0, 2)
            assert await consumer.lag() == {T0: 4}
            assert await consumer.lag([T0]) == {T0: 4}
            with pytest.raises(IllegalStateError):
                await consumer.lag([T1])

    simulate(scenario, brokers=3, topics=TWO)


def test_by_duration_begins_at_the_first_young_record() -> None:
    async def scenario(world: World) -> None:
        now = world.sim.clock.time_ms()
        fill(world, 3, timestamp=now - 100_000)
        fill(world, 3, timestamp=now - 1_000)
        fill(world, 3, partition=1, timestamp=now - 100_000)
        async with world.consumer("t", auto_offset_reset="by_duration:PT30S") as consumer:
            assert await consumer.position(T0) == 3
            assert await consumer.position(T1) == 3

    simulate(scenario, topics=TWO)


def test_calls_for_a_missing_partition_end_by_their_timeout() -> None:
    async def scenario(world: World) -> None:
        missing = TopicPartition("t", 9)
        async with world.consumer() as consumer:
            with pytest.raises(ApiTimeoutError, match="t-9"):
                await consumer.end_offsets([missing], timeout=2.0)
            consumer.assign([missing])
            began = world.now
            with pytest.raises(ApiTimeoutError):
                await consumer.position(missing, timeout=2.0)
            assert world.now - began < 2.5
            assert await consumer.poll(timeout=20.0) == []
            assert len(world.requests(ApiKey.METADATA)) < 60

    simulate(scenario)


def test_topics_and_partitions_are_listed() -> None:
    async def scenario(world: World) -> None:
        async with world.consumer() as consumer:
            assert [p.index for p in await consumer.partitions_for("t")] == [0, 1]
            assert list(await consumer.list_topics()) == ["other", "t"]
            with pytest.raises(UnknownTopicOrPartitionError):
                await consumer.partitions_for("nowhere")

    simulate(scenario, topics={"t": 2, "other": 1})


def test_a_consumer_works_on_a_shared_client() -> None:
    async def scenario(world: World) -> None:
        fill(world, 5)
        async with Client(**world.options()) as client:
            consumers = [
                await Consumer("t", client=client, auto_offset_reset="earliest") for _ in range(2)
            ]
            for consumer in consumers:
                assert await offsets(consumer, 5) == list(range(5))
            await consumers[0].close()
            fill(world, 1)
            assert await offsets(consumers[1], 1) == [5]

    simulate(scenario)


def test_a_consumer_made_from_properties_reads() -> None:
    async def scenario(world: World) -> None:
        fill(world, 2)
        properties = {
            "bootstrap.servers": world.cluster.bootstrap_servers,
            "auto.offset.reset": "earliest",
        }
        options = {name: world.options()[name] for name in ("connector", "clock")}
        async with Consumer.from_properties(properties, "t", **options) as consumer:
            assert await offsets(consumer, 2) == [0, 1]

    simulate(scenario)


@pytest.mark.parametrize("topics", [("t", re.compile("x")), (re.compile("x"), re.compile("y"))])
def test_subscribe_takes_names_or_one_pattern(topics: Any) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        Consumer(*topics, bootstrap_servers="localhost:1")
