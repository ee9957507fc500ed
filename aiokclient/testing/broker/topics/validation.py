"""A broker's checks of produced batches: of headers, of checksums, and if necessary of records.

The order of the checks is Kafka's, because a batch with several errors is refused for the first
one. Records are decoded only if they may be refused: for the keys that a compacted topic requires,
and for timestamps that are out of range. The result names all records that are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiokclient.errors import KafkaError
from aiokclient.record.batch import Compression, RecordBatch, walk
from aiokclient.record.compression import DEFAULT_LIMIT, compress, decompress
from aiokclient.record.header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    seal_crc,
)
from aiokclient.record.stream import RecordStream
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.configs import TOPIC_OPTIONS
from aiokclient.testing.broker.topics.topics import Appended, BrokerTopic

MAGIC = 2
_LENGTH = slice(8, 12)
_SHORTEST = 14
_ZSTD_SINCE = 7
_NO_TIMESTAMP = -1
_PIECE = 1 << 20
_KEYLESS = "a compacted topic takes no record without a key"
_UNTIMELY = "the timestamp is outside of message.timestamp.*.max.ms"


def require_batch(records: bytes | memoryview | None) -> RecordBatch | Appended:
    """Return the only batch in the data for a partition, or the reason to refuse it.

    Bytes after a whole batch are ignored if they are not a whole batch themselves.
    """
    if records is None or len(records) <= MAGIC_AT:
        return _make_invalid("there is no batch")
    length = int.from_bytes(records[_LENGTH], "big", signed=True)
    if length < _SHORTEST or records[MAGIC_AT] > MAGIC:
        return Appended(Code.CORRUPT_MESSAGE, message="this is no record batch")
    try:
        batches = walk(records)
    except KafkaError as error:
        return _make_invalid(error.message)
    if len(batches) != 1:
        return _make_invalid(f"{len(batches)} whole batches, where one is wanted")
    if batches[0].magic != MAGIC:
        return _make_invalid("only batches of magic 2 are taken")
    return batches[0]


def check_batch(batch: RecordBatch, topic: BrokerTopic, version: int, now_ms: int) -> Appended:
    """Check a client's batch. Return a result with the code of the refusal, or with NONE."""
    configs = topic.configs
    try:
        codec = batch.compression
    except KafkaError as error:
        return Appended(Code.UNKNOWN_SERVER_ERROR, message=error.message)
    # Older clients do not know the codec (KIP-110).
    if codec == Compression.ZSTD and version < _ZSTD_SINCE:
        return Appended(Code.UNSUPPORTED_COMPRESSION_TYPE)
    if batch.size > configs.read_number("max.message.bytes"):
        return Appended(Code.MESSAGE_TOO_LARGE, message="over the topic's max.message.bytes")
    if not batch.check_crc():
        return Appended(Code.CORRUPT_MESSAGE, message="the batch fails its checksum")
    if batch.is_control:
        return _make_invalid("clients may not write control records")
    if batch.count <= 0 or batch.count != batch.next_offset - batch.base_offset:
        return _make_invalid("the count of records and their offsets differ")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        return _make_invalid("a producer id without a sequence number")
    return _check_records(batch, topic, now_ms)


def convert_batch(batch: RecordBatch, topic: BrokerTopic) -> RecordBatch | Appended:
    """Return a batch in the codec in which its topic is stored, or the reason to refuse it."""
    name = topic.configs["compression.type"]
    if name == "producer":
        return batch
    codec = Compression.NONE if name == "uncompressed" else Compression[name.upper()]
    if batch.compression == codec:
        return batch
    option = f"compression.{name}.level"
    level = topic.configs.read_number(option) if option in TOPIC_OPTIONS else None
    try:
        records = decompress(batch.compression, batch.buffer[HEADER_SIZE:])
    except KafkaError as error:
        return _make_invalid(error.message)
    data = bytearray(batch.buffer[:HEADER_SIZE])
    data += compress(codec, records, level)
    data[ATTRIBUTES_AT + 1] = data[ATTRIBUTES_AT + 1] & ~CODEC_MASK | codec
    data[_LENGTH] = (len(data) - LOG_OVERHEAD).to_bytes(4, "big")
    seal_crc(data)
    return RecordBatch(bytes(data))


def _check_records(batch: RecordBatch, topic: BrokerTopic, now_ms: int) -> Appended:
    compact = "compact" in topic.configs["cleanup.policy"]
    times = _find_accepted_times(topic, now_ms)
    if not compact and times.start <= 0 and batch.max_timestamp < times.stop:
        return Appended(Code.NONE)
    refused = {}
    try:
        for index, (timestamp, key) in enumerate(_read_times_and_keys(batch)):
            if compact and key is None:
                refused[index] = _KEYLESS
            elif timestamp not in times and timestamp != _NO_TIMESTAMP:
                refused[index] = _UNTIMELY
    except KafkaError as error:
        return _make_invalid(error.message)
    if not refused:
        return Appended(Code.NONE)
    return Appended(
        Code.INVALID_TIMESTAMP if _UNTIMELY in refused.values() else Code.INVALID_RECORD,
        message=f"{len(refused)} of {batch.count} records are refused",
        refused=refused,
    )


def _read_times_and_keys(batch: RecordBatch) -> Iterator[tuple[int, bytes | None]]:
    """Yield the timestamp and the key of each record.

    The records are read in pieces, because a small batch may decompress to a very large one.
    """
    stream = RecordStream(batch, check_crcs=False, limit=DEFAULT_LIMIT)
    while (piece := stream.take(_PIECE)) is not None:
        rows = batch.part_rows(piece.content, piece.count, piece.expected, 0)
        for _, timestamp, key, _, _ in rows:
            yield timestamp, key
        if rows:
            stream.expect(rows[-1][0] - batch.base_offset + 1)


def _make_invalid(message: str) -> Appended:
    return Appended(Code.INVALID_RECORD, message=message)


def _find_accepted_times(topic: BrokerTopic, now_ms: int) -> range:
    """Return the range of accepted timestamps."""
    if topic.uses_append_time:
        return range(-1 << 63, 1 << 63)
    before = topic.configs.read_number("message.timestamp.before.max.ms")
    after = topic.configs.read_number("message.timestamp.after.max.ms")
    return range(now_ms - before, now_ms + after + 1)
