"""Reading ranges of offsets, on the embedded cluster and on a real Kafka."""

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from compacted import hollow

from aiokclient import Admin, Client, Consumer, Producer, ProducerRecord, TopicPartition
from aiokclient.errors import ApiTimeoutError, OffsetOutOfRangeError
from aiokclient.protocol import ApiKey

pa = pytest.importorskip("pyarrow")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADERS = [("h", b"1"), ("h", None), ("", b"")]


class Site:
    def __init__(self, client: Client, topic: str) -> None:
        self.client, self.topic = client, topic

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    def producer(self, **options: Any) -> Producer[Any, Any]:
        return Producer(client=self.client, **options)

    async def send(self, count: int, **options: Any) -> None:
        """Write records. Their values are their offsets if the topic has no other records."""
        async with self.producer(**options) as producer:
            await self.send_by(producer, count)

    async def send_by(self, producer: Producer[Any, Any], count: int) -> list[int]:
        async with Consumer(client=self.client) as consumer:
            start = (await consumer.end_offsets([self.tp]))[self.tp]
        records = [
            ProducerRecord(
                self.topic,
                b"%d" % number,
                None if number % 5 == 0 else b"key-%d" % number,
                0,
                headers=HEADERS if number % 7 == 0 else (),
            )
            for number in range(start, start + count)
        ]
        written = await producer.gather(producer.send_many(self.topic, records))
        return [each.offset for each in written]

    async def read(self, start: int, end: int, **options: Any) -> Any:
        """Return a range as one table."""
        batches = [batch async for batch in self.client.read_range(self.tp, start, end, **options)]
        return pa.Table.from_batches(batches) if batches else None

    async def offsets(self, start: int, end: int, **options: Any) -> list[int]:
        table = await self.read(start, end, columns=["value", "offset"], **options)
        if table is None:
            return []
        offsets: list[int] = table["offset"].to_pylist()
        assert table["value"].to_pylist() == [b"%d" % offset for offset in offsets]
        return offsets


@pytest.fixture
async def site(cluster_servers: Any) -> AsyncIterator[Site]:
    topic = await cluster_servers.new_topic()
    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        yield Site(client, topic)


@pytest.mark.parametrize("codec", CODECS)
async def test_a_range_equals_what_a_consumer_reads(site: Site, codec: Any) -> None:
    await site.send(1_000, compression_type=codec)
    options: Any = {"client": site.client, "auto_offset_reset": "earliest"}
    tables: list[Any] = []
    async with Consumer(site.topic, **options) as consumer:
        async for table in consumer.arrow_batches():
            tables.append(table)
            if sum(each.num_rows for each in tables) == 1_000:
                break
    whole = pa.Table.from_batches(tables)
    assert (await site.read(0, 1_000)).equals(whole)
    assert (await site.read(17, 983, batch_rows=70)).equals(whole.slice(17, 966))
    for columns in (["value"], ["headers", "key"], ["timestamp", "offset", "topic"], ["offset"]):
        assert (await site.read(0, 1_000, columns=columns)).equals(whole.select(columns))


async def test_small_fetches_read_the_same_range(site: Site) -> None:
    for _ in range(5):
        await site.send(500, batch_size=2_000)
    sizes = [
        batch.num_rows
        async for batch in site.client.read_range(
            site.tp, 100, 2_400, fetch_max_bytes=10_000, batch_rows=50
        )
    ]
    assert sum(sizes) == 2_300
    assert max(sizes) <= 50
    assert await site.offsets(100, 2_400, fetch_max_bytes=10_000) == list(range(100, 2_400))


async def test_aborted_transactions_are_left_out_if_only_committed_records_are_read(
    site: Site,
) -> None:
    await site.send(10)
    committed = list(range(10))
    written = list(range(10))
    async with site.producer(transactional_id=f"{site.topic}-writer") as producer:
        for commit in (True, False, False, True):
            await producer.begin_transaction()
            sent = await site.send_by(producer, 100)
            written += sent
            if commit:
                committed += sent
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()

    async def offsets(start: int, end: int, level: Any) -> list[int]:
        table = await site.read(start, end, columns=["offset"], isolation_level=level)
        found: list[int] = table["offset"].to_pylist()
        return found

    end = written[-1] + 1
    assert await offsets(0, end, "read_committed") == committed
    assert await offsets(0, end, "read_uncommitted") == written
    some = [offset for offset in committed if 50 <= offset < 350]
    assert await offsets(50, 350, "read_committed") == some


async def test_an_open_transaction_holds_back_committed_records(site: Site) -> None:
    await site.send(20)
    async with site.producer(transactional_id=f"{site.topic}-writer") as producer:
        await producer.begin_transaction()
        await site.send_by(producer, 30)
        assert await site.offsets(0, 50) == list(range(50))
        found: list[int] = []

        async def committed() -> None:
            async for batch in site.client.read_range(
                site.tp, 0, 50, isolation_level="read_committed", timeout=2
            ):
                found.extend(batch["offset"].to_pylist())

        with pytest.raises(ApiTimeoutError, match="from offset 20 on"):
            await committed()
        assert found == list(range(20))
        level = {"isolation_level": "read_committed"}
        reading = asyncio.create_task(site.offsets(0, 50, **level))
        await producer.commit_transaction()
        assert await reading == list(range(50))


async def test_deleted_and_future_offsets_raise_what_is_missing(site: Site) -> None:
    await site.send(100)
    async with Admin(client=site.client) as admin:
        (await admin.delete_records({site.tp: 40})).raise_for_errors()
    with pytest.raises(OffsetOutOfRangeError, match="Offsets 10 to 39 are missing") as raised:
        await site.offsets(10, 100)
    assert (raised.value.missing_start, raised.value.missing_end) == (10, 40)
    assert await site.offsets(40, 100) == list(range(40, 100))
    with pytest.raises(OffsetOutOfRangeError, match="The log ends at offset 100") as raised:
        await site.offsets(90, 120)
    assert (raised.value.missing_start, raised.value.missing_end) == (100, 120)
    with pytest.raises(OffsetOutOfRangeError) as raised:
        await site.offsets(1_000, 2_000)
    assert (raised.value.missing_start, raised.value.missing_end) == (1_000, 2_000)


async def test_an_empty_range_needs_no_topic(site: Site) -> None:
    batches = site.client.read_range(TopicPartition("nothing", 0), 5, 5)
    assert [batch async for batch in batches] == []


async def test_several_ranges_are_read_at_the_same_time(site: Site) -> None:
    await site.send(3_000)
    bounds = range(0, 3_000, 300)
    found = await asyncio.gather(*(site.offsets(first, first + 300) for first in bounds))
    assert [offset for part in found for offset in part] == list(range(3_000))


async def test_a_compacted_range_has_the_offsets_that_exist(stage: Any) -> None:
    stage.fill(5)
    stage.cluster.append(stage.topic, 0, hollow(10))
    stage.fill(5)
    stage.cluster.append(stage.topic, 0, hollow(10))
    async with Client(bootstrap_servers=stage.cluster.bootstrap_servers) as client:
        for start, end, expected in (
            (0, 30, [*range(5), *range(15, 20)]),
            (7, 12, []),
            (4, 16, [4, 15]),
            (20, 30, []),
        ):
            batches = [batch async for batch in client.read_range(stage.tp(), start, end)]
            assert [n for batch in batches for n in batch["offset"].to_pylist()] == expected


def message(magic: int, offset: int, value: bytes) -> bytes:
    """Return a message of format v0 or v1 without a key."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1_000 + offset) if magic else b"")
    body += b"\xff" * 4 + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
async def test_old_formats_are_read(stage: Any, magic: int) -> None:
    stage.fill(20, batch=1)

    def change(request: Any, response: Any) -> Any:
        start = request.topics[0].partitions[0].fetch_offset
        messages = (message(magic, offset, b"%d" % offset) for offset in range(start, 20))
        response.responses[0].partitions[0].records = b"".join(messages)
        return response

    async with Client(bootstrap_servers=stage.cluster.bootstrap_servers) as client:
        with stage.cluster.alter(ApiKey.FETCH, change):
            columns = ["value", "offset", "timestamp"]
            batches = client.read_range(stage.tp(), 3, 15, columns=columns)
            rows = [row async for batch in batches for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(3, 15))
    assert [row["value"] for row in rows] == [b"%d" % offset for offset in range(3, 15)]
    times = [row["timestamp"] and row["timestamp"].timestamp() for row in rows]
    assert times == [(1_000 + n) / 1_000 if magic else None for n in range(3, 15)]
