"""Tests that Kafka's own code reads what we write, and that we read what it writes."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokclient.record.batch import (
    Compression,
    RecordBatchBuilder,
    walk,
    with_append_time,
    with_offset,
)
from aiokclient.record.control import end_transaction_batch
from aiokclient.record.murmur2 import murmur2
from aiokclient.types import TimestampType

pytestmark = pytest.mark.java

CONTENT = st.none() | st.binary(max_size=80) | st.sampled_from([b"", b"x" * 63, b"y" * 9000])
# Surrogates cannot be encoded. All other characters exist in Java and in Python.
HEADER = st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=70))
TIMESTAMP = st.integers(0, 1 << 62) | st.integers(1_700_000_000_000, 1_700_000_000_300)
FIELDS = st.tuples(TIMESTAMP, CONTENT, CONTENT, st.lists(HEADER, max_size=3))
PRODUCER = st.tuples(
    st.integers(0, (1 << 63) - 1), st.integers(0, 32767), st.integers(0, (1 << 31) - 1)
)
OPTIONS = {"max_examples": 60, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
LEVELLED = [
    (codec, level)
    for codec in Compression
    for level in (None, *(codec.traits.levels or range(0))[-9::4])
]


def some_records(seed: int = 1, count: int = 300) -> list[Any]:
    rng = random.Random(seed)
    words = [b"alpha", b"beta", b"gamma", b"delta"]
    records = []
    for index in range(count):
        value = b" ".join(rng.choices(words, k=rng.randrange(30))) if rng.random() < 0.95 else None
        key = rng.choice([None, b"", b"key-%d" % rng.randrange(20)])
        headers = [("h\u00e4der", None), ("trace", b"%d" % index)] if index % 7 == 0 else []
        records.append((1_700_000_000_000 + rng.randrange(-500, 90_000), key, value, headers))
    return records


def rows(records: list[Any], base_offset: int = 0) -> list[Any]:
    return [
        (base_offset + index, timestamp, key, value, tuple(headers))
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]


@pytest.mark.parametrize(("codec", "level"), LEVELLED)
def test_java_reads_our_batches(java_records: Any, codec: Compression, level: int | None) -> None:
    records = some_records()
    builder = RecordBatchBuilder(compression=codec, level=level, limit=1 << 20)
    for fields in records:
        builder.append(*fields)
    data = builder.seal(77, 3, 2147483600, transactional=True)
    [batch] = java_records.read(with_offset(data, 1 << 40, 9))
    assert batch.records == rows(records, 1 << 40)
    assert (batch.magic, batch.codec, batch.append_time) == (2, codec, False)
    assert (batch.base_offset, batch.last_offset) == (1 << 40, (1 << 40) + len(records) - 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, 2147483600)
    assert batch.last_sequence == walk(data)[0].last_sequence
    assert (batch.transactional, batch.control, batch.leader_epoch) == (True, False, 9)
    assert (batch.count, batch.max_timestamp) == (len(records), builder.max_timestamp)


@pytest.mark.parametrize("append_time", [None, 1_700_000_000_123])
@pytest.mark.parametrize("codec", Compression)
def test_batches_of_java_are_read(java_records: Any, codec: int, append_time: int | None) -> None:
    records = some_records()
    options = {"base_offset": 50, "producer": (8, 1, 6), "leader_epoch": 4}
    data = java_records.write(records, codec=codec, append_time=append_time, **options)
    [batch] = walk(data, strict=True)
    batch.validate()
    expected = rows(records, 50)
    if append_time is not None:
        expected = [(offset, append_time, *rest) for offset, _, *rest in expected]
    assert batch.rows() == expected
    assert batch.compression == codec
    assert batch.timestamp_type == TimestampType(append_time is not None)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 1, 6)
    assert batch.leader_epoch == 4


@pytest.mark.parametrize("append_time", [None, 1234])
@pytest.mark.parametrize(
    ("magic", "codec"), [(magic, codec) for magic in (0, 1) for codec in Compression if codec < 4]
)
def test_batches_of_java_in_old_formats_are_read(
    java_records: Any, magic: int, codec: int, append_time: int | None
) -> None:
    records = [(timestamp, key, value, []) for timestamp, key, value, _ in some_records()]
    if magic == 0:
        append_time = None
    data = java_records.write(
        records, magic=magic, codec=codec, append_time=append_time, base_offset=31
    )
    ours = [row for batch in walk(data, strict=True) for row in batch.rows()]
    assert ours == [record for batch in java_records.read(data) for record in batch.records]
    assert [row[0] for row in ours] == list(range(31, 31 + len(records)))
    assert [row[2:] for row in ours] == [row[2:] for row in rows(records)]


@given(records=st.lists(FIELDS, min_size=1, max_size=12), producer=PRODUCER, txn=st.booleans())
@settings(**OPTIONS)
def test_bytes_of_our_batches_equal_those_of_java(
    java_records: Any, records: list[Any], producer: tuple[int, int, int], txn: bool
) -> None:
    builder = RecordBatchBuilder(limit=1 << 24)
    for fields in records:
        builder.append(*fields)
    ours = builder.seal(*producer, transactional=txn, leader_epoch=5)
    javas = java_records.write(records, producer=producer, transactional=txn, leader_epoch=5)
    assert bytes(ours) == javas


def test_append_times_are_written_as_by_java(java_records: Any) -> None:
    data = java_records.write(some_records())
    [batch] = java_records.read(with_append_time(data, 4242))
    assert batch.append_time
    assert batch.max_timestamp == 4242
    assert {record[1] for record in batch.records} == {4242}


@pytest.mark.parametrize("committed", [True, False])
def test_transaction_markers_are_written_as_by_java(java_records: Any, committed: bool) -> None:
    javas = java_records.end_transaction(committed, 700, 1_700_000_000_000, 6, (55, 2), 9)
    ours = end_transaction_batch(
        committed, 55, 2, 1_700_000_000_000, coordinator_epoch=9, base_offset=700, leader_epoch=6
    )
    assert ours == javas


@given(st.binary(max_size=40))
@settings(**OPTIONS)
def test_hashes_equal_those_of_java(java_records: Any, data: bytes) -> None:
    assert murmur2(data) == java_records.murmur2(data)


def test_java_and_this_library_refuse_a_wrong_checksum(
    java_records: Any, java_error: type[Exception]
) -> None:
    data = bytearray(java_records.write(some_records()))
    data[-1] ^= 1
    assert not walk(data)[0].valid
    with pytest.raises(java_error, match="corrupt"):
        java_records.read(bytes(data))
