"""Tests of formats v0 and v1, with bytes from their description and from other clients."""

import gzip
import struct
import zlib
from typing import Any

import cramjam
import lz4.frame
import pytest

from aiokclient.errors import CorruptRecordError
from aiokclient.record.batch import Compression, RecordBatch, walk
from aiokclient.types import TimestampType

APPEND_TIME = 0x08


def sized(content: bytes | None) -> bytes:
    return b"\xff" * 4 if content is None else struct.pack(">i", len(content)) + content


def message(
    magic: int,
    offset: int,
    value: bytes | None,
    *,
    key: bytes | None = None,
    timestamp: int = 0,
    attributes: int = 0,
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    body += sized(key) + sized(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def broken_lz4(data: bytes) -> bytes:
    """Return an lz4 frame with the wrong header checksum of the first Java producers.

    Their checksum covers too many bytes.
    """
    frame = bytearray(lz4.frame.compress(data, block_linked=False, store_size=False))
    frame[6] ^= 0x33
    return bytes(frame)


def xerial(data: bytes) -> bytes:
    raw = bytes(cramjam.snappy.compress_raw(data))
    return b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + sized(raw)


def lz4_frame(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))


PACKERS: list[Any] = [
    pytest.param(0, Compression.GZIP, gzip.compress, id="v0-gzip"),
    pytest.param(0, Compression.SNAPPY, xerial, id="v0-snappy"),
    pytest.param(0, Compression.LZ4, broken_lz4, id="v0-lz4"),
    pytest.param(0, Compression.LZ4, lz4_frame, id="v0-lz4-mended"),
    pytest.param(1, Compression.GZIP, gzip.compress, id="v1-gzip"),
    pytest.param(1, Compression.SNAPPY, xerial, id="v1-snappy"),
    pytest.param(1, Compression.LZ4, lz4_frame, id="v1-lz4"),
]


def rows(batch: RecordBatch, start: int = 0) -> list[Any]:
    records = batch.records("old", 1, start)
    assert all(r.headers == () and r.leader_epoch is None for r in records)
    return [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in records]


def test_uncompressed_messages_are_read() -> None:
    data = message(0, 7, b"zero", key=b"k")
    data += message(1, 8, None, timestamp=1234)
    data += message(1, 9, b"", timestamp=99, attributes=APPEND_TIME)
    batches = walk(data + data[:20])
    assert [rows(batch) for batch in batches] == [
        [(7, -1, TimestampType.CREATE_TIME, b"k", b"zero")],
        [(8, 1234, TimestampType.CREATE_TIME, None, None)],
        [(9, 99, TimestampType.LOG_APPEND_TIME, None, b"")],
    ]
    assert [b.magic for b in batches] == [0, 1, 1]
    assert [(b.base_offset, b.last_offset, b.next_offset, b.count) for b in batches] == [
        (7, 7, 8, 1),
        (8, 8, 9, 1),
        (9, 9, 10, 1),
    ]
    assert rows(batches[1], start=9) == []
    for batch in batches:
        batch.validate()
        assert (batch.producer_id, batch.base_sequence, batch.leader_epoch) == (-1, -1, -1)
        assert not batch.is_control
        assert not batch.is_transactional
        assert batch.compression is Compression.NONE


@pytest.mark.parametrize(("magic", "codec", "pack"), PACKERS)
def test_compressed_messages_are_read(magic: int, codec: Compression, pack: Any) -> None:
    offsets = (100, 102, 103)  # Compaction has removed one message.
    inner = b"".join(
        message(magic, offset - (100 if magic else 0), b"v%d" % offset, timestamp=offset * 10)
        for offset in offsets
    )
    [batch] = walk(message(magic, 103, pack(inner), attributes=codec, timestamp=1030))
    batch.validate()
    assert (batch.compression, batch.last_offset, batch.count) == (codec, 103, -1)
    create = TimestampType.CREATE_TIME
    expected = [(o, o * 10 if magic else -1, create, None, b"v%d" % o) for o in offsets]
    assert rows(batch) == expected
    assert rows(batch, start=102) == expected[1:]
    assert [row[0] for row in batch.rows(103)] == [103]
    assert batch.records("old", 1, copy=False)[0].value == b"v100"


def test_compressed_messages_have_the_append_time() -> None:
    inner = message(1, 0, b"a", timestamp=5) + message(1, 1, b"b", timestamp=6)
    attributes = Compression.GZIP | APPEND_TIME
    [batch] = walk(message(1, 41, gzip.compress(inner), attributes=attributes, timestamp=777))
    append = TimestampType.LOG_APPEND_TIME
    assert rows(batch) == [(40, 777, append, None, b"a"), (41, 777, append, None, b"b")]


def test_a_wrapper_with_offset_zero_keeps_the_inner_offsets() -> None:
    inner = message(1, 0, b"a") + message(1, 1, b"b")
    [batch] = walk(message(1, 0, gzip.compress(inner), attributes=Compression.GZIP))
    assert [row[0] for row in rows(batch)] == [0, 1]


def packed(inner: bytes, **options: Any) -> bytes:
    return message(1, 9, gzip.compress(inner), **{"attributes": Compression.GZIP, **options})


NESTED = packed(message(1, 0, b"v"))
BROKEN = {
    "checksum": message(0, 1, b"v")[:-1] + b"w",
    "checksum of an inner one": packed(message(1, 0, b"v")[:-1] + b"w"),
    "nested": packed(NESTED),
    "zstd": packed(b"", attributes=Compression.ZSTD),
    "unknown codec": packed(b"", attributes=6),
    "null": message(1, 9, None, attributes=Compression.GZIP),
    "no inner ones": packed(b""),
    "cut inner one": packed(message(1, 0, b"v")[:-1]),
    "inner one of a few bytes": packed(b"abc"),
    "inner offsets out of order": packed(message(1, 2, b"v") + message(1, 1, b"v")),
    "inner offset above the wrapper's": packed(message(1, 10, b"v")),
    "inner format v2": packed(message(2, 0, b"v")),
    "another codec": message(1, 9, b"not gzip", attributes=Compression.GZIP),
    "lz4 of two bytes": message(0, 9, b"\x04\x22", attributes=Compression.LZ4),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=list(BROKEN))
def test_malformed_messages_are_refused(data: bytes) -> None:
    [batch] = walk(data)
    with pytest.raises(CorruptRecordError) as caught:
        batch.records("old", 1)
    assert str(caught.value.topic_partition) == "old-1"
    with pytest.raises(CorruptRecordError):
        batch.validate()


IMPOSSIBLE = {
    "negative offset": message(1, -5, b"v"),
    "key past the end": struct.pack(">qiIbbi", 3, 14, 0, 0, 0, 100) + bytes(4),
    "bytes after the value": struct.pack(">qiIbbii", 3, 17, 0, 0, 0, -1, -1) + b"abc",
    "too short for v1": struct.pack(">qiIbbii", 3, 14, 0, 1, 0, -1, -1),
}


@pytest.mark.parametrize("data", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_impossible_messages_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        walk(data)
    good = message(0, 1, b"good")
    assert [batch.base_offset for batch in walk(good + data)] == [1]


def test_checksums_of_old_formats_are_ignored_when_check_crcs_is_false() -> None:
    for data in (BROKEN["checksum"], BROKEN["checksum of an inner one"]):
        [batch] = walk(data)
        assert [r.value for r in batch.records("old", 1, check_crcs=False)] == [b"w"]


NONE, GZIP, SNAPPY, LZ4 = range(4)


def peer_batches(builder: Any) -> list[Any]:
    for offset in range(5):
        builder.append(offset, timestamp=1000 + offset, key=b"k", value=b"v%d" % offset)
    return [row for batch in walk(bytes(builder.build())) for row in rows(batch)]


def peer_rows(magic: int) -> list[Any]:
    create = TimestampType.CREATE_TIME
    return [(o, 1000 + o if magic else -1, create, b"k", b"v%d" % o) for o in range(5)]


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(0, NONE), (0, GZIP), (0, SNAPPY), (1, NONE), (1, GZIP), (1, SNAPPY), (1, LZ4)],
)
def test_messages_of_aiokafka_are_read(magic: int, codec: int) -> None:
    legacy = pytest.importorskip("aiokafka.record.legacy_records")
    builder = legacy.LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    assert peer_batches(builder) == peer_rows(magic)


@pytest.mark.parametrize(("magic", "codec"), [(0, NONE), (0, GZIP), (1, NONE), (1, GZIP), (1, LZ4)])
def test_messages_of_kafka_python_are_read(magic: int, codec: int) -> None:
    legacy = pytest.importorskip("kafka.record.legacy_records")
    builder = legacy.LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    assert peer_batches(builder) == peer_rows(magic)
