"""Records as Arrow columns, equal to the same records as objects."""

import datetime
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.errors import CorruptRecordError
from aiokclient.record.arrow import arrow_schema, empty_arrow, to_arrow
from aiokclient.record.batch import (
    Compression,
    RecordBatch,
    RecordBatchBuilder,
    end_transaction_batch,
    walk,
    with_append_time,
    with_offset,
)

pa = pytest.importorskip("pyarrow")

CONTENT = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=8), CONTENT), max_size=3)
FIELDS = st.tuples(st.integers(-1, 1 << 42), CONTENT, CONTENT, HEADERS)


def batch_of(records: list[Any], base: int = 0, codec: int = 0) -> bytes:
    builder = RecordBatchBuilder(compression=Compression(codec), limit=1 << 20)
    for fields in records:
        builder.append(*fields)
    return with_offset(builder.seal(), base, 3)


def milliseconds(moment: datetime.datetime | None) -> int:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return -1 if moment is None else (moment - epoch) // datetime.timedelta(milliseconds=1)


@given(
    first=st.lists(FIELDS, min_size=1, max_size=8),
    second=st.lists(FIELDS, min_size=1, max_size=8),
    codec=st.sampled_from(Compression),
    start=st.integers(0, 20),
)
def test_the_same_as_records(first: list[Any], second: list[Any], codec: int, start: int) -> None:
    data = batch_of(first, codec=codec)
    data += end_transaction_batch(True, 1, 1, 1, base_offset=len(first))
    data += with_append_time(batch_of(second, base=len(first) + 1, codec=codec), 1 << 40)
    batches = walk(data, strict=True)
    table = to_arrow("orders", 3, batches, start)
    table.validate(full=True)
    assert table.schema == arrow_schema()
    records = [r for b in batches if not b.is_control for r in b.records("orders", 3, start)]
    rows = table.to_pylist()
    assert [row["topic"] for row in rows] == ["orders"] * len(records)
    assert [row["partition"] for row in rows] == [3] * len(records)
    assert [row["timestamp_type"] for row in rows] == [r.timestamp_type for r in records]
    assert [milliseconds(row["timestamp"]) for row in rows] == [r.timestamp for r in records]
    for name in ("offset", "key", "value"):
        assert [row[name] for row in rows] == [getattr(r, name) for r in records]
    found = [tuple((h["key"], h["value"]) for h in row["headers"]) for row in rows]
    assert found == [r.headers for r in records]


def test_the_schema() -> None:
    assert empty_arrow().num_rows == 0
    assert empty_arrow().schema == to_arrow("t", 0, []).schema == arrow_schema()
    assert [(field.name, str(field.type)) for field in arrow_schema()] == [
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[ms, tz=UTC]"),
        ("timestamp_type", "int32"),
        ("key", "binary"),
        ("value", "binary"),
        ("headers", "list<item: struct<key: string, value: binary>>"),
    ]


def test_corruption_and_size() -> None:
    data = bytearray(batch_of([(1, None, b"value", ())]))
    data[-2] ^= 1
    [batch] = walk(data)
    with pytest.raises(CorruptRecordError, match="checksum"):
        to_arrow("t", 0, [batch])
    assert to_arrow("t", 0, [batch], check_crcs=False).num_rows == 1
    bomb = batch_of([(1, None, bytes(100_000), ())], codec=Compression.GZIP)
    with pytest.raises(CorruptRecordError):
        to_arrow("t", 0, walk(bomb), limit=1000)


def test_more_than_one_column_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    [batch] = walk(batch_of([(1, None, b"value", ())]))
    chunked = pa.chunked_array([pa.array([b"a"], pa.binary())])
    monkeypatch.setattr(pa, "array", lambda *arguments, **options: chunked)
    with pytest.raises(ValueError, match="2 GiB"):
        to_arrow("t", 0, [batch])


def test_pyarrow_is_imported_late_and_named_when_missing() -> None:
    code = """
import sys
import aiokclient.record.arrow, aiokclient.record.batch
assert "pyarrow" not in sys.modules
sys.modules["pyarrow"] = None
try:
    aiokclient.record.arrow.to_arrow("t", 0, [])
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'aiokclient[arrow]'" in done.stdout


def test_batches_may_come_from_an_iterator() -> None:
    batches: list[RecordBatch] = walk(batch_of([(1, b"k", b"v", ())]))
    assert to_arrow("t", 0, iter(batches)).num_rows == 1
