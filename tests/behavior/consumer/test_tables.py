"""Topics as Arrow tables up to their end offsets, on the embedded cluster and on Kafka."""

import asyncio
from typing import Any

import pytest

from aiokclient import Consumer, Producer, TopicPartition

pa = pytest.importorskip("pyarrow")

BATCHES: Any = {"linger_ms": 20, "compression_type": "lz4"}


class Site:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic

    def consumer(self, **options: Any) -> Consumer[Any, Any]:
        options.setdefault("auto_offset_reset", "earliest")
        return Consumer(self.topic, bootstrap_servers=self.bootstrap, **options)

    async def send(self, count: int, first: int = 0, **options: Any) -> None:
        async with Producer(bootstrap_servers=self.bootstrap, **BATCHES, **options) as producer:
            records = [b"%d" % number for number in range(first, first + count)]
            await producer.send_all(self.topic, records)

    async def writes_on(self) -> asyncio.Task[None]:
        """Write records until the task is cancelled; return once there are some."""

        async def write() -> None:
            async with Producer(bootstrap_servers=self.bootstrap) as producer:
                while True:
                    await producer.send(self.topic, b"late")

        task = asyncio.create_task(write())
        await asyncio.sleep(0)
        return task


@pytest.fixture
async def site(cluster_servers: Any) -> Site:
    return Site(cluster_servers.bootstrap, await cluster_servers.new_topic(partitions=3))


async def test_arrow_batches_until_end_have_the_records_up_to_the_end_offsets(site: Site) -> None:
    await site.send(3_000)
    async with asyncio.timeout(60), site.consumer() as consumer:
        ends = await consumer.end_offsets([TopicPartition(site.topic, p) for p in range(3)])
        writing = await site.writes_on()
        try:
            batches = [batch async for batch in consumer.arrow_batches(10_000, until_end=True)]
        finally:
            writing.cancel()
        table = pa.Table.from_batches(batches)
        values = [int(value) for value in table["value"].to_pylist() if value != b"late"]
        assert sorted(values) == list(range(3_000))
        rows = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        seen = set(rows)
        assert len(seen) == table.num_rows
        # What follows is read by the next iteration, without a gap and without a record twice.
        rest = await consumer.table()
        for partition in range(3):
            mine = [o for p, o in seen if p == partition]
            then = [
                o
                for p, o in zip(
                    rest["partition"].to_pylist(), rest["offset"].to_pylist(), strict=True
                )
                if p == partition
            ]
            assert sorted([*mine, *then]) == list(range(len(mine) + len(then)))
            assert len(mine) >= ends[TopicPartition(site.topic, partition)]


@pytest.mark.parametrize("max_bytes", [None, 2_000])
async def test_a_table_has_all_records_up_to_its_bound(site: Site, max_bytes: int | None) -> None:
    await site.send(2_000)
    async with asyncio.timeout(60), site.consumer() as consumer:
        tables = [await consumer.table(max_bytes)]
        while max_bytes is not None and (table := await consumer.table(max_bytes)).num_rows:
            assert table["value"].nbytes <= 2 * max_bytes
            tables.append(table)
        values = [int(value) for table in tables for value in table["value"].to_pylist()]
        assert sorted(values) == list(range(2_000))
        assert (len(tables) > 1) is (max_bytes is not None)
        assert tables[0]["timestamp"].type == pa.timestamp("ms", "UTC")
        empty = await consumer.table()
        assert (empty.num_rows, empty.schema) == (0, tables[0].schema)
        await site.send(10, first=5_000)
        assert (await consumer.table()).num_rows == 10


async def test_a_table_that_is_cancelled_loses_no_record(site: Site) -> None:
    await site.send(5_000)
    async with asyncio.timeout(60), site.consumer(group_id=site.topic) as consumer:
        for delay_s in (0.0, 0.001, 0.003, 0.005, 0.01):
            reading = asyncio.create_task(consumer.table(50_000_000))
            await asyncio.sleep(delay_s)
            if reading.cancel():
                await asyncio.wait([reading])
            else:
                await reading
                consumer.seek_to_beginning()
            if not reading.cancelled():
                consumer.seek_to_beginning()
        table = await consumer.table()
        assert sorted(int(value) for value in table["value"].to_pylist()) == list(range(5_000))
