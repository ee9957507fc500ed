"""Tests that reading a batch in pieces gives the same records and holds little memory."""

import random
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.errors import CorruptRecordError
from aiokclient.record._pure import batch as pure_batch
from aiokclient.record._pure import decode as pure_decode
from aiokclient.record.batch import (
    HEADER_SIZE,
    Compression,
    ContentLimitError,
    RecordBatch,
    RecordBatchBuilder,
    span,
    walk,
)
from aiokclient.record.compression import compress, decompress, measure, pieces
from aiokclient.record.header import seal_crc
from aiokclient.record.stream import RecordStream

MIB = 1 << 20
CODECS = list(Compression)


def batch_of(values: list[bytes | None], codec: Compression = Compression.NONE) -> RecordBatch:
    builder = RecordBatchBuilder(compression=codec, limit=1 << 30)
    for number, value in enumerate(values):
        builder.append(number, b"key", value, headers=[("h", b"v")] if number % 3 else ())
    builder.close()
    (batch,) = walk(bytes(builder.seal()))
    return batch


def all_records(batch: RecordBatch, size: int, *, copy: bool = True, start: int = 0) -> list[Any]:
    stream = RecordStream(batch, check_crcs=True, limit=1 << 30)
    found: list[Any] = []
    while not stream.done:
        records, _ = stream.records("t", 1, start, size, copy=copy)
        found += records
    assert stream.records("t", 1, start, size, copy=copy) == ([], 0)
    return found


@given(
    values=st.lists(st.none() | st.binary(max_size=300), min_size=1, max_size=40),
    size=st.integers(1, 500),
    codec=st.sampled_from(CODECS),
    start=st.integers(0, 45),
    copy=st.booleans(),
)
def test_pieces_have_the_same_records_as_the_whole(
    values: list[bytes | None], size: int, codec: Compression, start: int, copy: bool
) -> None:
    batch = batch_of(values, codec)
    assert all_records(batch, size, copy=copy, start=start) == batch.records(
        "t", 1, start, copy=copy
    )


@pytest.mark.parametrize("codec", CODECS)
def test_pieces_of_content_are_joined_where_records_span_them(codec: Compression) -> None:
    chance = random.Random(1)
    values: list[bytes | None] = [
        chance.randbytes(chance.choice((3, 50_000, 700_000))) for _ in range(20)
    ]
    batch = batch_of(values, codec)
    assert [record.value for record in all_records(batch, 200_000)] == values


@pytest.mark.parametrize("codec", [c for c in CODECS if c])
def test_memory_depends_on_the_pieces_when_a_batch_is_large(codec: Compression) -> None:
    batch = batch_of([bytes(100_000)] * 1_500, codec)
    tracemalloc.start()
    try:
        stream = RecordStream(batch, check_crcs=True, limit=1 << 30)
        count = 0
        while not stream.done:
            count += len(stream.records("t", 1, 0, 4 * MIB, copy=True)[0])
        assert count == 1_500
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [c for c in CODECS if c])
def test_a_batch_over_the_limit_is_refused_before_its_first_record(codec: Compression) -> None:
    batch = batch_of([bytes(10_000)] * 400, codec)
    size = len(decompress(codec, batch.buffer[HEADER_SIZE:]))
    stream = RecordStream(batch, check_crcs=True, limit=size - 1)
    with pytest.raises(ContentLimitError, match=f"more than {size - 1} bytes"):
        stream.take(1_000)
    with pytest.raises(ContentLimitError):
        batch.records("t", 0, limit=size - 1)
    assert RecordStream(batch, check_crcs=True, limit=size).take(1_000) is not None
    measure(codec, batch.buffer[HEADER_SIZE:], size)


@pytest.mark.parametrize("codec", [c for c in CODECS if c])
def test_a_decompression_bomb_uses_little_more_memory_than_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(192 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(ContentLimitError):
            decompress(codec, bomb, 64 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 100 * MIB
        tracemalloc.reset_peak()
        with pytest.raises(ContentLimitError):
            measure(codec, bomb, 64 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("change", ["cut", "left over", "count", "checksum"])
def test_damage_is_reported_after_the_intact_pieces(codec: Compression, change: str) -> None:
    batch = batch_of([bytes(1_000)] * 50, codec)
    data = bytearray(batch.buffer)
    content = bytes(decompress(codec, data[HEADER_SIZE:]))
    if change == "cut":
        content = content[:-1]
    elif change == "left over":
        content += b"\x00"
    made = data[:HEADER_SIZE] + bytes(compress(codec, content))
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    if change == "count":
        made[57:61] = (51).to_bytes(4, "big")
    seal_crc(made)
    if change == "checksum":
        made[-1] ^= 1
    (broken,) = walk(bytes(made))
    with pytest.raises(CorruptRecordError) as whole:
        broken.records("t", 0)
    with pytest.raises(CorruptRecordError) as in_pieces:
        all_records(broken, 10_000)
    for raised in (whole, in_pieces):
        assert not isinstance(raised.value, ContentLimitError)


@given(
    content=st.binary(max_size=60),
    start=st.integers(0, 10),
    most=st.integers(0, 5),
    size=st.integers(0, 80),
)
def test_native_and_pure_find_the_same_records(
    content: bytes, start: int, most: int, size: int
) -> None:
    if span is pure_decode.span:
        pytest.skip("the native modules are not in use")
    start = min(start, len(content))
    results: list[Any] = []
    for function in (span, pure_decode.span):
        try:
            results.append(function(content, start, most, size))
        except CorruptRecordError as error:
            results.append(str(error))
    assert results[0] == results[1]


@pytest.mark.parametrize("expected", [0, 3, 4])
def test_native_and_pure_read_the_same_parts(expected: int) -> None:
    if span is pure_decode.span:
        pytest.skip("the native modules are not in use")
    values: list[bytes | None] = [b"%d" % number for number in range(8)]
    data = batch_of(values).buffer
    results: list[Any] = []
    for module in (pytest.importorskip("aiokclient._native.record"), pure_batch):
        batch = module.RecordBatch(data)
        content = data[HEADER_SIZE:]
        _, begin = span(content, 0, 3, 1_000)
        count, end = span(content, begin, 4, 1_000)
        part = content[begin:end]
        try:
            records = batch.part_records("t", 1, part, count, expected, 4, True)
            rows = batch.part_rows(part, count, expected, 4)
            results.append((records, rows))
        except CorruptRecordError as error:
            results.append(str(error))
    assert results[0] == results[1]
    assert isinstance(results[0], str) is (expected == 4)


def test_pieces_of_several_gzip_members_are_complete() -> None:
    members = b"".join(zlib.compress(b"%d" % n * 1_000, wbits=31) for n in range(5))
    content = b"".join(b"%d" % n * 1_000 for n in range(5))
    assert b"".join(pieces(Compression.GZIP, members, 300)) == content
    assert decompress(Compression.GZIP, members) == content
