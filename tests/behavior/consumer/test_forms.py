"""The ways to read: record by record, lists, Arrow tables, `poll`, `get`, and up to the end."""

import asyncio
import math
from typing import Any

import pytest
from world import World, simulate

from aiokclient import OffsetAndMetadata, TimestampType, TopicPartition
from aiokclient.protocol import ApiKey


class TestOneByOne:
    async def test_iteration_returns_each_record_once_and_in_order(
        self, stage: Any, right: Any
    ) -> None:
        stage.new_topic(3)
        for partition in range(3):
            stage.fill(1_000, partition)
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        async with stage.consumer() as consumer:
            async for record in consumer:
                right([record])
                seen[record.partition].append(record.offset)
                if sum(map(len, seen.values())) == 3_000:
                    break
        assert seen == {partition: list(range(1_000)) for partition in range(3)}

    async def test_iteration_returns_all_fields_of_a_record(self, stage: Any) -> None:
        from aiokclient import ProducerRecord

        header = [("h", b"1"), ("h", None), ("é", b"")]
        record = ProducerRecord(stage.topic, b"v", b"k", 0, 1_234, header)
        stage.cluster.bump_epoch(stage.topic)
        stage.cluster.produce(stage.topic, [record, None])
        async with stage.consumer() as consumer:
            first, second = await stage.drain(consumer, 2)
        assert (first.topic, first.partition, first.offset) == (stage.topic, 0, 0)
        assert (first.timestamp, first.timestamp_type) == (1_234, TimestampType.CREATE_TIME)
        assert (first.key, first.value, list(first.headers)) == (b"k", b"v", header)
        assert first.leader_epoch == 1
        assert (second.key, second.value, list(second.headers)) == (None, None, [])
        assert type(first.key) is type(first.value) is bytes

    async def test_records_have_the_append_time_of_the_broker(self, stage: Any) -> None:
        stage.new_topic(configs={"message.timestamp.type": "LogAppendTime"})
        stage.cluster.produce(stage.topic, [b"v"] * 2, timestamp=5)
        async with stage.consumer() as consumer:
            for record in await stage.drain(consumer, 2):
                assert record.timestamp_type is TimestampType.LOG_APPEND_TIME
                assert record.timestamp > 1_600_000_000_000

    async def test_bytes_of_a_record_do_not_change_when_more_is_read(self, stage: Any) -> None:
        """The bytes of a record do not change, because records do not refer to reused buffers."""
        async with stage.consumer(max_partition_fetch_bytes=2_000) as consumer:
            kept: list[Any] = []
            for first in range(0, 5_000, 500):
                stage.fill(500, batch=50)
                kept += await stage.drain(consumer, 500)
                assert len(kept) == first + 500
        assert [r.value for r in kept] == [b"0:%d" % i for i in range(5_000)]


class TestLists:
    async def test_lists_are_not_empty_and_have_at_most_max_records(
        self, stage: Any, right: Any
    ) -> None:
        stage.fill(1_234)
        sizes: list[int] = []
        async with stage.consumer() as consumer:
            async for records in consumer.batches(max_records=100):
                assert isinstance(records, list)
                right(records)
                sizes.append(len(records))
                if sum(sizes) == 1_234:
                    break
        assert all(1 <= size <= 100 for size in sizes)

    async def test_lists_have_at_most_500_records_by_default(self, stage: Any) -> None:
        stage.fill(1_600, batch=1_600)
        async with stage.consumer() as consumer:
            sizes = [len(records) async for records in consumer.batches(until_end=True)]
        assert max(sizes) <= 500
        assert sum(sizes) == 1_600

    async def test_lists_by_partition_have_consecutive_offsets(self, stage: Any) -> None:
        stage.new_topic(4)
        for partition in range(4):
            stage.fill(50, partition)
        last: dict[TopicPartition, int] = {}
        async with stage.consumer() as consumer:
            lists = consumer.batches(max_records=9, by_partition=True, until_end=True)
            async for records in lists:
                ((tp, same),) = records.by_partition().items()
                assert isinstance(tp, TopicPartition)
                assert same == list(records)
                ((also, offset),) = records.offsets().items()
                assert isinstance(offset, OffsetAndMetadata)
                assert (also, offset.offset) == (tp, records[-1].offset + 1)
                last[tp] = offset.offset
        assert last == {stage.tp(i): 50 for i in range(4)}

    async def test_a_list_may_have_several_partitions(self, stage: Any) -> None:
        stage.new_topic(4)
        for partition in range(4):
            stage.fill(10, partition)
        async with stage.consumer() as consumer:
            lists = [each async for each in consumer.batches(7, max_wait=1.0, until_end=True)]
        for records in lists:
            parts = records.by_partition()
            assert sum(map(len, parts.values())) == len(records)
            for part in parts.values():
                offsets = [r.offset for r in part]
                assert offsets == sorted(offsets)

    @pytest.mark.parametrize("max_wait", [30.0, math.inf])
    def test_the_last_list_is_delivered_without_a_wait(self, max_wait: float) -> None:
        """The last list before the end is delivered at once, without a wait for more records."""

        async def scenario(world: World) -> None:
            for partition in range(2):
                world.cluster.produce("t", [b"v"] * 10, partition)
            async with world.consumer("t") as consumer:
                began = world.now
                lists = consumer.batches(7, max_wait=max_wait, until_end=True)
                sizes = [len(each) async for each in lists]
                assert sum(sizes) == 20
                assert world.now - began < 2.0

        simulate(scenario, topics={"t": 2})

    def test_a_list_is_delivered_after_max_wait(self) -> None:
        async def scenario(world: World) -> None:
            async with world.consumer("t") as consumer:
                asyncio.get_running_loop().call_later(5.0, world.cluster.produce, "t", [b"1"])
                asyncio.get_running_loop().call_later(6.0, world.cluster.produce, "t", [b"2"])
                asyncio.get_running_loop().call_later(8.0, world.cluster.produce, "t", [b"3"])
                began = world.now
                async for records in consumer.batches(max_wait=2.0):
                    assert [r.value for r in records] == [b"1", b"2"]
                    assert 6.9 < world.now - began < 7.5
                    break
                record = await consumer.get(timeout=5.0)
                assert record is not None
                assert record.value == b"3"

        simulate(scenario)

    def test_a_bad_record_delays_no_other_record_of_a_list(self) -> None:
        async def scenario(world: World) -> None:
            world.cluster.produce("t", [b"1", b"2", b"x"])
            async with world.consumer("t", value_deserializer=int) as consumer:
                began = world.now
                async for records in consumer.batches(max_wait=60.0):
                    assert [r.value for r in records] == [1, 2]
                    break
                assert world.now - began < 5.0

        simulate(scenario)


class TestArrow:
    async def test_arrow_columns_have_their_names_and_types(self, stage: Any) -> None:
        pa = pytest.importorskip("pyarrow")
        stage.fill(3)
        async with stage.consumer() as consumer:
            async for table in consumer.arrow_batches():
                assert isinstance(table, pa.RecordBatch)
                assert table.schema.names == [
                    "topic",
                    "partition",
                    "offset",
                    "timestamp",
                    "timestamp_type",
                    "key",
                    "value",
                    "headers",
                ]
                rows = table.to_pylist()
                assert [row["offset"] for row in rows] == [0, 1, 2]
                assert rows[0]["topic"] == stage.topic
                assert rows[0]["partition"] == 0
                assert rows[0]["key"] is None
                assert rows[0]["value"] == b"0:0"
                break

    async def test_arrow_batches_equal_the_records_of_poll(self, stage: Any) -> None:
        pytest.importorskip("pyarrow")
        from aiokclient import ProducerRecord

        sent = [
            ProducerRecord(
                stage.topic, b"v%d" % i, b"k" if i % 3 else None, 0, 10 + i, [("h", b"x")]
            )
            for i in range(40)
        ]
        for first in range(0, 40, 10):
            stage.cluster.produce(stage.topic, sent[first : first + 10], compression="lz4")
        async with stage.consumer() as consumer:
            records = await stage.drain(consumer, 40)
            consumer.seek_to_beginning()
            rows: list[Any] = []
            async for table in consumer.arrow_batches():
                rows += table.to_pylist()
                if len(rows) >= 40:
                    break
        for record, row in zip(records, rows, strict=True):
            for name in ("topic", "partition", "offset", "key", "value"):
                assert row[name] == getattr(record, name)
            assert int(row["timestamp_type"]) == record.timestamp_type
            assert [tuple(pair.values()) for pair in row["headers"]] == list(record.headers)

    async def test_an_arrow_batch_has_one_partition_and_is_not_empty(self, stage: Any) -> None:
        pytest.importorskip("pyarrow")
        stage.new_topic(3)
        for partition in range(3):
            stage.fill(100, partition)
        seen = 0
        async with stage.consumer() as consumer:
            async for table in consumer.arrow_batches():
                assert table.num_rows
                assert len(set(table.column("partition").to_pylist())) == 1
                seen += table.num_rows
                if seen == 300:
                    break
            assert {o.offset for o in consumer.consumed().values()} == {100}


class TestPollAndGet:
    def test_poll_and_get_wait_for_their_timeout(self) -> None:
        async def scenario(world: World) -> None:
            async with world.consumer("t") as consumer:
                for call, seconds in (
                    (consumer.poll(), 1.0),
                    (consumer.poll(timeout=7.5), 7.5),
                    (consumer.get(), 1.0),
                    (consumer.get(timeout=2.5), 2.5),
                    (consumer.poll(timeout=0), 0.0),
                    (consumer.get(timeout=0), 0.0),
                ):
                    began = world.now
                    assert not await call
                    assert abs(world.now - began - seconds) < 0.1
                waiting = asyncio.create_task(consumer.poll(timeout=math.inf))
                await asyncio.sleep(1_000)
                world.cluster.produce("t", [b"v"])
                assert len(await waiting) == 1

        simulate(scenario)

    async def test_poll_returns_a_list_and_get_a_record(self, stage: Any, right: Any) -> None:
        stage.fill(1_700, batch=1_700)
        async with stage.consumer() as consumer:
            records = await consumer.poll(timeout=20)
            assert len(records) == 500
            assert isinstance(records, list)
            assert records.by_partition() == {stage.tp(): list(records)}
            right(records)
            assert len(await consumer.poll(timeout=20, max_records=3)) == 3
            record = await consumer.get(timeout=20)
            right([record])
            assert record.offset == 503
            assert len(await consumer.poll(timeout=20, max_records=5_000)) == 1_196
            assert await consumer.get(timeout=0.01) is None
            assert await consumer.poll(timeout=0.01) == []

    async def test_poll_without_time_returns_all_fetched_records(self, stage: Any) -> None:
        """`poll` with a timeout of 0 returns all records that were fetched before."""
        stage.fill(10)
        async with stage.consumer() as consumer:
            first = await consumer.get(timeout=20)
            assert first.offset == 0
            assert len(await consumer.poll(timeout=0)) == 9

    async def test_a_waiting_poll_returns_records_that_arrive(self, stage: Any) -> None:
        async with stage.consumer() as consumer:
            waiting = asyncio.create_task(consumer.poll(timeout=30))
            await stage.cluster.until(
                lambda: any(
                    r.api == ApiKey.FETCH and r.message.topics for r in stage.cluster.requests
                )
            )
            stage.fill(1)
            assert [r.offset for r in await waiting] == [0]
