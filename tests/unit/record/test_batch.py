"""Tests of iterating over batches, changed headers, control batches, and refused batches."""

import struct
from typing import Any

import pytest

from aiokclient.errors import CorruptRecordError
from aiokclient.record.batch import (
    HEADER_SIZE,
    Compression,
    RecordBatch,
    RecordBatchBuilder,
    walk,
    with_append_time,
    with_offset,
)
from aiokclient.record.control import ControlType, control_batch, end_transaction_batch
from aiokclient.record.crc import crc32c
from aiokclient.types import TimestampType


def batch_of(*values: bytes, base: int = 0, **options: Any) -> bytes:
    builder = RecordBatchBuilder(limit=1 << 20, **options)
    for index, value in enumerate(values):
        builder.append(1000 + index, None, value)
    return with_offset(builder.seal(), base, 0)


def changed(batch: bytes, layout: str, position: int, number: int) -> bytes:
    """Return the batch with one changed header field and a correct checksum."""
    copy = bytearray(batch)
    struct.pack_into(">" + layout, copy, position, number)
    if position != 17:
        struct.pack_into(">I", copy, 17, crc32c(bytes(copy[21:])))
    return bytes(copy)


def with_records(records: bytes, count: int) -> bytes:
    """Return a batch of `count` records with these bytes. The other parts of it are valid."""
    header = bytearray(batch_of(b"x")[:HEADER_SIZE])
    struct.pack_into(">i", header, 8, HEADER_SIZE - 12 + len(records))
    struct.pack_into(">i", header, 23, max(count - 1, 0))
    struct.pack_into(">i", header, 57, count)
    return changed(bytes(header) + records, "b", 16, 2)


GOLDEN = bytes.fromhex(
    "0000000000000000"  # base offset
    "0000004d"  # length
    "ffffffff"  # leader epoch
    "02"  # magic
    "f1bcfb16"  # crc
    "0000"  # attributes
    "00000001"  # last offset delta
    "0000018bcfe56800"  # base timestamp 1700000000000
    "0000018bcfe56805"  # max timestamp
    "0000000000000007"  # producer id
    "0001"  # producer epoch
    "0000002a"  # base sequence
    "00000002"  # count
    "28 00 00 00 06 6b6579 0a 76616c7565 02 02 68 06 010203".replace(" ", "")
    + "0c 00 0a 02 01 01 00".replace(" ", "")
)


def test_a_batch_has_the_expected_bytes() -> None:
    builder = RecordBatchBuilder(limit=1 << 20)
    builder.append(1_700_000_000_000, b"key", b"value", [("h", b"\x01\x02\x03")])
    builder.append(1_700_000_000_005, None, None)
    assert builder.seal(7, 1, 42) == GOLDEN


def test_walk_reads_only_headers_and_drops_an_incomplete_end() -> None:
    first, second = batch_of(b"a", b"b", base=10), batch_of(b"c", base=12)
    broken = changed(second, "I", 17, 1)
    for end in range(len(broken)):
        batches = walk(first + broken[:end])
        assert [b.base_offset for b in batches] == [10]
    batches = walk(memoryview(bytearray(first + broken)))
    assert [(b.base_offset, b.next_offset, b.count, b.size) for b in batches] == [
        (10, 12, 2, len(first)),
        (12, 13, 1, len(second)),
    ]
    assert [bytes(b.buffer) for b in batches] == [first, broken]
    assert [b.valid for b in batches] == [True, False]
    assert walk(b"") == []


def test_a_strict_walk_requires_complete_batches() -> None:
    good = batch_of(b"a")
    assert len(walk(good + good, strict=True)) == 2
    for end in (good[:-1], b"\x00", good[:16], bytes(100)):
        with pytest.raises(CorruptRecordError):
            walk(good + end, strict=True)


IMPOSSIBLE = {
    "length 0": changed(batch_of(b"a"), "i", 8, 0),
    "negative length": changed(batch_of(b"a"), "i", 8, -1),
    "shorter than a header": changed(batch_of(b"a"), "i", 8, 48),
    "magic 3": changed(batch_of(b"a"), "b", 16, 3),
    "magic -1": changed(batch_of(b"a"), "b", 16, -1),
    "negative offset": changed(batch_of(b"a"), "q", 0, -1),
    "last offset past 63 bits": changed(batch_of(b"a"), "q", 0, (1 << 63) - 1),
    "negative range": changed(batch_of(b"a"), "i", 23, -1),
    "negative count": changed(batch_of(b"a"), "i", 57, -1),
}


@pytest.mark.parametrize("data", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_an_impossible_header_is_refused(data: bytes) -> None:
    good = batch_of(b"good")
    with pytest.raises(CorruptRecordError, match=r"offset|at least 61 bytes"):
        walk(data)
    # The batches before the damage can be used. A read that begins at the damage raises the error.
    assert [bytes(b.buffer) for b in walk(good + data + good)] == [good]
    with pytest.raises(CorruptRecordError):
        walk(good + data, strict=True)


def test_a_buffer_that_is_not_one_batch_is_refused() -> None:
    for data in (b"", batch_of(b"a")[:-1], batch_of(b"a") * 2):
        with pytest.raises(CorruptRecordError):
            RecordBatch(data)


RECORD = "0e 00 00 00 01 02 61 00"  # This record has a null key and the value b"a".
BROKEN = {
    "count too high": (RECORD, 2),
    "count too low": (RECORD + RECORD.replace("00 00 00", "00 00 02"), 1),
    "huge count": (RECORD, (1 << 31) - 1),
    "bytes left over": (RECORD + "00", 1),
    "length too small": ("0c" + RECORD[2:], 1),
    "length too large": ("10" + RECORD[2:], 1),
    "negative length": ("0d" + RECORD[2:], 1),
    "negative length of three bytes": ("fd ff 7f" + RECORD[2:], 1),
    "huge length": ("fe ff ff ff 0f" + RECORD[2:], 1),
    "length of six bytes": ("fe ff ff ff ff 0f" + RECORD[2:], 1),
    "timestamp of eleven bytes": ("22 00" + "ff" * 10 + "01 00 01 02 61 00", 1),
    "offset before the first": (RECORD.replace("00 00 00", "00 00 01"), 1),
    "offset after the last": (RECORD.replace("00 00 00", "00 00 02"), 1),
    "offset twice": (RECORD + RECORD, 2),
    "key past the end": (RECORD.replace("01 02", "7e 02"), 1),
    "value past the end": (RECORD.replace("01 02", "01 7e"), 1),
    "value far past the end": (RECORD.replace("01 02", "01 fe ff ff ff 0f"), 1),
    "negative count of headers": (RECORD[:-2] + "01", 1),
    "more headers than bytes": (RECORD[:-2] + "7e", 1),
    "header without a key": ("12" + RECORD[2:-2] + "02 01 00", 1),
    "header key past the end": ("12" + RECORD[2:-2] + "02 7e 00", 1),
    "header value past the end": ("14" + RECORD[2:-2] + "02 02 61 08", 1),
    "nothing": ("", 1),
}


@pytest.mark.parametrize(("records", "count"), BROKEN.values(), ids=list(BROKEN))
def test_malformed_records_are_refused(records: str, count: int) -> None:
    [batch] = walk(with_records(bytes.fromhex(records), count), strict=True)
    assert batch.valid
    with pytest.raises(CorruptRecordError, match="offset 0 cannot be read") as caught:
        batch.records("orders", 3)
    assert str(caught.value.topic_partition) == "orders-3"
    for read in (batch.rows, batch.validate, lambda: batch.records("t", 0, copy=False)):
        with pytest.raises(CorruptRecordError):
            read()


def test_malformations_that_java_accepts_are_accepted() -> None:
    header = "12" + RECORD[2:-2] + "02 02 ff 01"
    [batch] = walk(with_records(bytes.fromhex(header.replace("12", "14", 1)), 1))
    assert batch.records("t", 0)[0].headers == (("\ufffd", None),)
    negative = bytes.fromhex(RECORD.replace("01 02 61", "03 05 00")[:-2])
    [batch] = walk(with_records(b"\x0c" + negative[1:], 1))
    assert batch.rows() == [(0, 1000, None, None, ())]
    # Compaction leaves an empty batch when it has removed all records of a producer's last batch.
    empty = walk(with_records(b"", 0))[0]
    assert (empty.count, empty.rows(), empty.next_offset) == (0, [], 1)


def test_timestamps_wrap_as_in_java() -> None:
    latest = (1 << 63) - 1
    [batch] = walk(changed(batch_of(b"a", b"b", b"c"), "q", 27, latest))
    assert [row[1] for row in batch.rows()] == [latest, -latest - 1, -latest]


def test_a_wrong_checksum_and_an_unknown_codec_are_refused() -> None:
    [batch] = walk(changed(batch_of(b"a"), "I", 17, 1))
    for read in (batch.rows, batch.validate, lambda: batch.records("t", 0)):
        with pytest.raises(CorruptRecordError, match="checksum"):
            read()
    assert len(batch.records("t", 0, check_crcs=False)) == len(batch.rows(check_crcs=False)) == 1
    [batch] = walk(changed(batch_of(b"a"), "h", 21, 5))
    with pytest.raises(CorruptRecordError, match="codec 5"):
        batch.compression
    with pytest.raises(CorruptRecordError, match="codec 5"):
        batch.rows()


def test_headers_can_be_changed_as_by_a_broker() -> None:
    original = batch_of(b"a", b"b", compression=Compression.NONE)
    moved = with_offset(memoryview(original), 500, 7)
    [batch] = walk(moved)
    batch.validate()
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (500, 501, 7)
    assert [r.offset for r in batch.records("t", 0)] == [500, 501]
    assert moved[21:] == original[21:]
    [batch] = walk(with_append_time(moved, 99))
    batch.validate()
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [(r.timestamp, int(r.timestamp_type)) for r in batch.records("t", 0)] == [(99, 1)] * 2
    for other in (original[:60], changed(original, "b", 16, 1)):
        with pytest.raises(CorruptRecordError):
            with_offset(other, 0, 0)


def test_validate_refuses_gaps_in_offsets() -> None:
    [gap] = walk(changed(batch_of(b"a", b"b"), "i", 23, 2))
    assert len(gap.rows()) == 2
    with pytest.raises(CorruptRecordError, match="range"):
        gap.validate()


def test_the_last_sequence_of_a_batch_wraps() -> None:
    builder = RecordBatchBuilder(limit=1 << 20)
    builder.append_values(0, [b"v"] * 3, 0)
    assert walk(builder.seal(1, 0, 2147483646))[0].last_sequence == 0
    assert walk(builder.seal())[0].last_sequence == -1


def test_control_batches_have_their_type() -> None:
    commit = end_transaction_batch(True, 9, 2, 1234, coordinator_epoch=3, base_offset=40)
    [batch] = walk(commit)
    batch.validate()
    assert batch.is_control
    assert batch.is_transactional
    assert batch.control_type() == ControlType.COMMIT
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, -1)
    assert batch.rows() == [(40, 1234, b"\0\0\0\1", b"\0\0\0\0\0\3", ())]
    assert walk(changed(commit, "I", 17, 1))[0].control_type() == ControlType.COMMIT
    [abort] = walk(end_transaction_batch(False, 9, 2, 1234))
    assert abort.control_type() == ControlType.ABORT
    [leader] = walk(control_batch(ControlType.LEADER_CHANGE, b"v", 5, leader_epoch=8))
    assert (leader.control_type(), leader.is_transactional, leader.leader_epoch) == (2, False, 8)


def test_control_type_refuses_other_batches() -> None:
    for data in (batch_of(b"a"), changed(batch_of(b"a"), "h", 21, 0x20)):
        with pytest.raises(CorruptRecordError, match="control"):
            walk(data)[0].control_type()
