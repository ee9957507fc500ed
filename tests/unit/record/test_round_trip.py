"""Tests that appended records are read back, for each codec, and that batch sizes are exact."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.record.batch import (
    HEADER_SIZE,
    Compression,
    RecordBatch,
    RecordBatchBuilder,
    walk,
)
from aiokclient.types import ConsumerRecord, TimestampType

CONTENT = st.none() | st.binary(max_size=80) | st.sampled_from([b"", b"x" * 63, b"y" * 9000])
HEADER = st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=70))
TIMESTAMP = st.one_of(
    st.just(-1),
    st.integers(1_700_000_000_000, 1_700_000_000_300),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
FIELDS = st.tuples(TIMESTAMP, CONTENT, CONTENT, st.lists(HEADER, max_size=4))
LARGE = 1 << 24


def build(records: list[Any], **options: Any) -> RecordBatchBuilder:
    builder = RecordBatchBuilder(**{"limit": LARGE, **options})
    for index, fields in enumerate(records):
        assert builder.append(*fields) == index
    return builder


def plain(records: list[Any]) -> list[tuple[Any, ...]]:
    return [(time, key, value, tuple(headers)) for time, key, value, headers in records]


def read(batch: RecordBatch, **options: Any) -> list[tuple[Any, ...]]:
    records = batch.records("orders", 3, **options)
    return [(r.timestamp, r.key, r.value, r.headers) for r in records]


@given(
    records=st.lists(FIELDS, min_size=1, max_size=30),
    codec=st.sampled_from(Compression),
    producer=st.tuples(
        st.integers(-1, (1 << 63) - 1), st.integers(-1, 32767), st.integers(-1, (1 << 31) - 1)
    ),
    transactional=st.booleans(),
    leader_epoch=st.integers(-1, (1 << 31) - 1),
)
def test_appended_records_are_read_back(
    records: list[Any],
    codec: Compression,
    producer: tuple[int, int, int],
    transactional: bool,
    leader_epoch: int,
) -> None:
    builder = build(records, compression=codec)
    size = builder.size
    data = builder.seal(*producer, transactional=transactional, leader_epoch=leader_epoch)
    assert len(data) == builder.encoded_size <= size
    [batch] = walk(data, strict=True)
    batch.validate()
    assert read(batch) == plain(records) == list(builder.records())
    assert batch.compression == (codec if builder.compressed else 0)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer
    assert (batch.is_transactional, batch.is_control) == (transactional, False)
    assert (batch.leader_epoch, batch.magic) == (leader_epoch, 2)
    assert (batch.base_offset, batch.last_offset, batch.count) == (
        0,
        len(records) - 1,
        len(records),
    )
    assert batch.base_timestamp == records[0][0]
    assert batch.max_timestamp == builder.max_timestamp == max(fields[0] for fields in records)


def test_a_record_has_its_topic_partition_and_offset() -> None:
    [batch] = walk(build([(5, b"k", b"v", [("h", None)])]).seal(leader_epoch=7))
    assert batch.records("orders", 3) == [
        ConsumerRecord("orders", 3, 0, 5, TimestampType.CREATE_TIME, b"k", b"v", (("h", None),), 7)
    ]


@given(st.lists(FIELDS, min_size=1, max_size=20), st.integers(0, 25), st.sampled_from(Compression))
def test_start_offset_skips_earlier_records(
    records: list[Any], start: int, codec: Compression
) -> None:
    [batch] = walk(build(records, compression=codec).seal())
    assert read(batch, start_offset=start) == plain(records)[start:]
    assert [row[0] for row in batch.rows(start)] == list(range(start, len(records)))


@given(st.lists(FIELDS, min_size=1, max_size=20), st.sampled_from(Compression))
def test_views_have_the_same_bytes(records: list[Any], codec: Compression) -> None:
    [batch] = walk(build(records, compression=codec).seal())
    viewed = batch.records("orders", 3, copy=False)
    assert all(isinstance(r.value, memoryview) for r in viewed if r.value is not None)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in viewed] == plain(records)


@given(st.lists(FIELDS, min_size=1, max_size=30), st.integers(0, 20_000))
def test_the_limit_and_the_size_are_exact(records: list[Any], limit: int) -> None:
    builder = RecordBatchBuilder(limit=limit)
    taken: list[Any] = []
    for fields in records:
        before = builder.size, builder.count, builder.max_timestamp
        alone = build([fields]).size - HEADER_SIZE
        index = builder.append(*fields)
        if index >= 0:
            assert index == len(taken)
            taken.append(fields)
            assert builder.size <= limit or len(taken) == 1
        else:
            assert taken, "the first record always fits"
            assert (builder.size, builder.count, builder.max_timestamp) == before
            # No record that fits is refused. In a batch with others, the deltas of a record take
            # at most 12 bytes more than in a batch of its own.
            assert builder.size + alone + 12 > limit
    assert len(builder.seal()) == builder.size
    assert list(builder.records()) == plain(taken)


@given(
    st.lists(st.none() | st.binary(max_size=70) | st.just(b"v" * 8190), min_size=1, max_size=40),
    st.integers(61, 6000),
    st.integers(0, 5),
)
def test_values_from_a_list_are_written_as_by_append(
    values: list[bytes | None], limit: int, start: int
) -> None:
    one, many = RecordBatchBuilder(limit=limit), RecordBatchBuilder(limit=limit)
    for builder in (one, many):
        builder.append(3, b"before", None)
    count = 0
    while start + count < len(values) and one.append(4, None, values[start + count]) >= 0:
        count += 1
    assert many.append_values(4, values, start) == count
    assert (one.size, one.count) == (many.size, many.count)
    assert one.seal() == many.seal()


def test_more_records_than_the_varint_table_are_written() -> None:
    one, many = RecordBatchBuilder(limit=LARGE), RecordBatchBuilder(limit=LARGE)
    values: list[bytes | None] = [b"%d" % number for number in range(10_000)]
    for value in values:
        one.append(1, None, value)
    assert many.append_values(1, values, 0) == len(values)
    assert one.seal() == many.seal()
    assert [value for _, _, value, _ in many.records()] == values


def test_a_sealed_batch_is_never_changed() -> None:
    builder = build([(1, None, b"a" * 100, ())] * 10, compression=Compression.LZ4)
    first = builder.seal(5, 0, 0)
    kept = bytes(first)
    assert builder.seal(5, 0, 0) is first
    second = builder.seal(5, 1, 0, transactional=True, leader_epoch=3)
    assert bytes(first) == kept
    assert first.readonly
    assert second.readonly
    assert walk(second)[0].producer_epoch == 1
    assert builder.seal(5, 1, 0, transactional=True, leader_epoch=3) is second
    for data in (first, second):
        walk(data)[0].validate()


BAD_APPENDS: list[tuple[Callable[[RecordBatchBuilder], object], type[Exception]]] = [
    (lambda b: b.append(1, None, "text"), TypeError),  # type: ignore[arg-type]
    (lambda b: b.append(1, 5, b""), TypeError),  # type: ignore[arg-type]
    (lambda b: b.append(1 << 63, None, b""), ValueError),
    (lambda b: b.append(1, None, b"", [("\ud800", b"")]), ValueError),
    (lambda b: b.append(1, None, b"", [("h", "text")]), TypeError),  # type: ignore[list-item]
    (lambda b: b.append_values(1, [b"taken", "text"], 0), TypeError),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("append", "error"), BAD_APPENDS)
def test_a_refused_record_leaves_a_readable_batch(
    append: Callable[[RecordBatchBuilder], object], error: type[Exception]
) -> None:
    builder = build([(1, None, b"before", ())])
    with pytest.raises(error):
        append(builder)
    builder.append(2, None, b"after")
    [batch] = walk(builder.seal(), strict=True)
    values = [value for _, _, value, _ in read(batch)]
    assert values in ([b"before", b"after"], [b"before", b"taken", b"after"])


def test_nothing_is_appended_to_a_closed_batch() -> None:
    builder = build([(1, None, b"v", ())])
    builder.close()
    for append in (
        lambda: builder.append(1, None, b""),
        lambda: builder.append_values(1, [b""], 0),
    ):
        with pytest.raises(ValueError, match="closed"):
            append()
    with pytest.raises(ValueError, match="empty"):
        RecordBatchBuilder(limit=100).seal()


def test_compression_that_saves_nothing_is_dropped() -> None:
    builder = build([(1, None, b"v", ())], compression=Compression.GZIP)
    builder.close()
    assert not builder.compressed
    assert builder.encoded_size == builder.size
    assert walk(builder.seal())[0].compression is Compression.NONE
