"""Records exchanged with other clients through a real Kafka, with each codec.

This library reads what confluent-kafka and Kafka's console producer write, and they read what it
writes, byte for byte. So a mistake is found even if this library's encoder and decoder both make
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka_harness import ExternalKafka, JavaTool
from kafka_harness.tools import console_produce

from aiokclient import (
    Client,
    Consumer,
    ConsumerRecord,
    Leader,
    Producer,
    RecordMetadata,
)
from aiokclient.protocol import messages
from aiokclient.protocol.messages.fetch import FetchPartition, FetchTopic
from aiokclient.record.batch import Compression, walk
from aiokclient.types import Headers, TimestampType

confluent = pytest.importorskip("confluent_kafka")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW = 1_700_000_000_000
BULK = 500


class Item(NamedTuple):
    """One record, as it is written and as it must be read."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = NOW


ODD: tuple[Item, ...] = (
    Item(b"key", b"value"),
    Item(None, b"no key"),
    Item(b"tombstone", None),
    Item(None, None),
    Item(b"", b""),
    Item("Schlüssel".encode(), bytes(range(256)), [("header", b"one"), ("header", b"two")]),
    Item(b"key", b"null in a header", [("null", None), ("empty", b""), ("naïve", b"\x00\xff")]),
    Item(b"key", b"long ago", timestamp=1),
    Item(b"key", b"later", timestamp=NOW + 86_400_000),
    Item(b"large", b"0123456789abcdef" * 20_000),
)
ITEMS = (*ODD, *(Item(b"%d" % n, b"%064d" % n, timestamp=NOW + n) for n in range(BULK)))


def as_items(records: Sequence[ConsumerRecord[Any, Any]]) -> list[Item]:
    return [Item(r.key, r.value, list(r.headers), r.timestamp) for r in records]


def wanted() -> list[Item]:
    return [item._replace(headers=list(item.headers)) for item in ITEMS]


async def read_here(bootstrap: str, topic: str) -> list[ConsumerRecord[bytes, bytes]]:
    """Return all records of a topic, partition by partition."""
    options: Any = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
    async with Consumer(topic, **options) as consumer:
        records = [record async for record in consumer.until_end()]
    return sorted(records, key=lambda record: (record.partition, record.offset))


async def write_here(bootstrap: str, topic: str, codec: str) -> Sequence[RecordMetadata]:
    async with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        sent = [
            producer.send(topic, i.value, i.key, 0, i.timestamp, list(i.headers)) for i in ITEMS
        ]
        return await producer.gather(sent)


async def codecs_in(bootstrap: str, topic: str) -> set[Compression]:
    """Return the compression types of the batches of partition 0 in the broker's log."""
    async with Client(bootstrap_servers=bootstrap) as client:
        metadata = await client.request(
            messages.MetadataRequest(
                topics=[messages.metadata.MetadataRequestTopic(name=topic)],
            ),
            Leader(topic, 0),
        )
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic_id=metadata.topics[0].topic_id, partitions=[wanted])]
        request = messages.FetchRequest(max_wait_ms=1000, min_bytes=1, topics=topics)
        response = await client.request(request, Leader(topic, 0))
    partition = response.responses[0].partitions[0]
    return {Compression(batch.compression) for batch in walk(partition.records or b"")}


def confluent_write(bootstrap: str, topic: str, codec: str) -> None:
    # The linger is long, so that all records are in one batch. confluent-kafka does not compress
    # small batches.
    options = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 60_000}
    producer = confluent.Producer(options)
    for item in ITEMS:
        producer.produce(
            topic,
            value=item.value,
            key=item.key,
            partition=0,
            timestamp=item.timestamp,
            headers=list(item.headers),
        )
    assert producer.flush(30) == 0


def confluent_read(bootstrap: str, topic: str, count: int) -> list[Any]:
    options = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = confluent.Consumer(options)
    try:
        consumer.assign([confluent.TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        while len(found) < count:
            found += consumer.consume(count - len(found), 30)
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
async def test_records_of_confluent_kafka_are_read(kafka: ExternalKafka, codec: str) -> None:
    topic = kafka.create_topic()
    await asyncio.to_thread(confluent_write, kafka.bootstrap, topic, codec)
    # librdkafka leaves a batch as it is if compression would not make it smaller.
    found = await codecs_in(kafka.bootstrap, topic) - {Compression.NONE}
    assert found == {Compression[codec.upper()]} - {Compression.NONE}
    records = await read_here(kafka.bootstrap, topic)
    assert as_items(records) == wanted()
    assert [record.offset for record in records] == list(range(len(ITEMS)))
    assert {record.timestamp_type for record in records} == {TimestampType.CREATE_TIME}


@pytest.mark.parametrize("codec", CODECS)
async def test_confluent_kafka_reads_our_records(kafka: ExternalKafka, codec: str) -> None:
    topic = kafka.create_topic()
    sent = await write_here(kafka.bootstrap, topic, codec)
    assert Compression[codec.upper()] in await codecs_in(kafka.bootstrap, topic)
    read = await asyncio.to_thread(confluent_read, kafka.bootstrap, topic, len(ITEMS))
    found = [Item(m.key(), m.value(), m.headers() or [], m.timestamp()[1]) for m in read]
    assert found == wanted()
    assert [m.offset() for m in read] == [metadata.offset for metadata in sent]


LINES = (b"h1:v1,h2:\tkey\tvalue", b"h:v\ttombstone\tNULL", b"NULL\tNULL\tno key", b"NULL\t\t")
FROM_LINES = (
    Item(b"key", b"value", [("h1", b"v1"), ("h2", b"")]),
    Item(b"tombstone", None, [("h", b"v")]),
    Item(None, b"no key", []),
    Item(b"", b"", []),
    *(Item(b"%d" % n, b"%064d" % n, []) for n in range(BULK)),
)
READER = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
FORMATTER = (*(f"print.{w}=true" for w in ("timestamp", "headers", "key")), "null.literal=NULL")


def options(name: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (name, value)]


@pytest.mark.parametrize("codec", CODECS)
async def test_records_of_the_console_producer_are_read(
    kafka: ExternalKafka, kafka_tools_jars: list[Path], codec: str
) -> None:
    topic = kafka.create_topic()
    lines = (*LINES, *(b"NULL\t%d\t%064d" % (n, n) for n in range(BULK)))
    how = ("--compression-codec", codec, *options("--reader-property", READER))
    await asyncio.to_thread(console_produce, kafka.bootstrap, topic, lines, *how)
    assert Compression[codec.upper()] in await codecs_in(kafka.bootstrap, topic)
    records = await read_here(kafka.bootstrap, topic)
    assert [item._replace(timestamp=NOW) for item in as_items(records)] == list(FROM_LINES)
    assert all(record.timestamp > NOW for record in records)


async def test_the_console_consumer_reads_our_records_in_each_codec(
    kafka: ExternalKafka, kafka_tools_jars: list[Path]
) -> None:
    topic = kafka.create_topic()
    for codec in CODECS:
        await write_here(kafka.bootstrap, topic, codec)
    count = len(CODECS) * len(ITEMS)
    printed = await asyncio.to_thread(console_output, kafka.bootstrap, topic, count)
    assert printed == len(CODECS) * b"".join(map(as_printed, ITEMS))


def console_output(bootstrap: str, topic: str, count: int) -> bytes:
    limits = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000")
    how = options("--formatter-property", FORMATTER)
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    return JavaTool("console-consumer", *where, *limits, *how).run()


def as_printed(item: Item) -> bytes:
    """Return the line that the console consumer prints for a record."""
    headers = b",".join(n.encode() + b":" + shown(v) for n, v in item.headers) or b"NO_HEADERS"
    columns = (b"CreateTime:%d" % item.timestamp, headers, shown(item.key), shown(item.value))
    return b"\t".join(columns) + b"\n"


def shown(content: bytes | None) -> bytes:
    return b"NULL" if content is None else content
