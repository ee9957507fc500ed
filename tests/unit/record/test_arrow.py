"""Tests that records as Arrow columns equal the same records as objects."""

import datetime
import struct
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import IS_WHOLE

from aiokclient._native import in_use
from aiokclient.errors import CorruptRecordError
from aiokclient.memory import BufferPool
from aiokclient.record import arrow
from aiokclient.record._pure import builder as pure_builder
from aiokclient.record._pure import walk as pure_walk
from aiokclient.record.arrow import (
    TableBuilder,
    append_arrow,
    arrow_schema,
    empty_arrow,
    to_arrow,
)
from aiokclient.record.batch import (
    Compression,
    RecordBatch,
    RecordBatchBuilder,
    walk,
    with_append_time,
    with_offset,
)
from aiokclient.record.control import end_transaction_batch

pa = pytest.importorskip("pyarrow")

CONTENT = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=8), CONTENT), max_size=3)
TIMES = st.integers(-1, 1 << 42) | st.integers(1 << 40, (1 << 40) + 9_000)
FIELDS = st.tuples(TIMES, CONTENT, CONTENT, HEADERS | st.just([]))


def batch_of(records: list[Any], base: int = 0, codec: int = 0) -> bytes:
    builder = RecordBatchBuilder(compression=Compression(codec), limit=1 << 24)
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
def test_columns_equal_the_records(
    first: list[Any], second: list[Any], codec: int, start: int
) -> None:
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


def test_the_schema_has_the_fields_of_a_record() -> None:
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


def test_corrupt_and_too_large_batches_raise() -> None:
    data = bytearray(batch_of([(1, None, b"value", ())]))
    data[-2] ^= 1
    [batch] = walk(data)
    with pytest.raises(CorruptRecordError, match="checksum"):
        to_arrow("t", 0, [batch])
    assert to_arrow("t", 0, [batch], check_crcs=False).num_rows == 1
    bomb = batch_of([(1, None, bytes(100_000), ())], codec=Compression.GZIP)
    with pytest.raises(CorruptRecordError):
        to_arrow("t", 0, walk(bomb), limit=1000)


def test_more_than_two_gib_in_a_column_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    [batch] = walk(batch_of([(1, None, b"value", ())]))
    chunked = pa.chunked_array([pa.array([b"a"], pa.binary())])
    monkeypatch.setattr(pa, "array", lambda *arguments, **options: chunked)
    monkeypatch.setattr(arrow, "LARGEST_COLUMN", 4)
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


POOL = BufferPool(1 << 24)

LEGACY = bytes.fromhex(
    "0000000000000007 00000017 12345678 01 08 00000000000000ff ffffffff 00000001 76"
)


@given(
    parts=st.lists(st.tuples(st.lists(FIELDS, min_size=1, max_size=12), st.booleans()), max_size=4),
    codec=st.sampled_from(Compression),
    start=st.integers(0, 20),
    broken=st.none() | st.tuples(st.integers(0, 30), st.binary(max_size=2)),
)
def test_native_columns_equal_the_pure_ones(
    parts: list[Any], codec: int, start: int, broken: tuple[int, bytes] | None
) -> None:
    if not in_use():
        pytest.skip("the native modules are not in use")
    data, base = b"", 8
    for records, appended in parts:
        made = batch_of(records, base, codec)
        data += with_append_time(made, 99) if appended else made
        base += len(records)
    if broken is not None and parts:
        changed = bytearray(data)
        at = 61 + broken[0]
        changed[at : at + len(broken[1])] = broken[1]
        data = bytes(changed)
    results: list[Any] = []
    for native in (False, True):
        builder = TableBuilder("t", 3, native=native, check_crcs=False, pool=POOL)
        try:
            for batch in walk(data):
                builder.add(batch, start, 1 << 20)
            table = builder.table()
        except CorruptRecordError as error:
            results.append(str(error))
        else:
            table.validate(full=True)
            results.append([(c.to_pylist(), c.null_count) for c in table.columns])
    assert results[0] == results[1]


SUBSETS = st.lists(st.sampled_from(arrow.COLUMNS), min_size=1, unique=True)


@given(
    parts=st.lists(st.tuples(st.lists(FIELDS, min_size=1, max_size=12), st.booleans()), max_size=4),
    codec=st.sampled_from(Compression),
    start=st.integers(0, 20),
    end=st.none() | st.integers(0, 60),
    columns=SUBSETS,
    native=st.booleans(),
)
def test_some_columns_equal_those_of_the_whole_table(
    parts: list[Any], codec: int, start: int, end: int | None, columns: list[str], native: bool
) -> None:
    data, base = b"", 8
    for records, appended in parts:
        made = batch_of(records, base, codec)
        data += with_append_time(made, 99) if appended else made
        base += len(records)
    batches = walk(data)
    if not native and in_use():
        batches = pure_walk.walk(data)
    builder = TableBuilder(
        "t", 3, native=native, pool=POOL, columns=columns, end_offset=end, size=len(data)
    )
    for batch in batches:
        builder.add(batch, start, 1 << 20)
    table = builder.table()
    table.validate(full=True)
    assert table.schema == arrow_schema(columns)
    whole = to_arrow("t", 3, walk(data), start)
    rows = [row for row in whole.to_pylist() if end is None or row["offset"] < end]
    assert table.num_rows == len(rows)
    assert table.to_pylist() == [{name: row[name] for name in columns} for row in rows]


@pytest.mark.skipif(not in_use(), reason="the native modules are not in use")
def test_columns_that_are_not_selected_take_no_memory() -> None:
    class Pool:
        taken = 0

        def take(self, size: int) -> memoryview:
            self.taken += size
            return memoryview(bytearray(size))

    data = batch_of([(1, b"k" * 50_000, b"v" * 100_000, [("h", b"x" * 50_000)])] * 10)
    for columns, most in ((["offset"], 20_000), (["key"], 2_100_000), (["value"], 2_100_000)):
        pool: Any = Pool()
        builder = TableBuilder("t", 0, pool=pool, columns=columns, size=1_000)
        for batch in walk(data):
            builder.add(batch, 0, 1 << 24)
        assert builder.table().num_rows == 10
        assert pool.taken < most


@pytest.mark.skipif(not in_use(), reason="the native modules are not in use")
@pytest.mark.parametrize("fields", [[8], [-1], [0] * 9])
def test_native_columns_refuse_numbers_that_are_not_of_columns(fields: list[int]) -> None:
    with pytest.raises(ValueError, match="not the numbers of columns"):
        arrow.Columns(100, POOL, 1, 1, None, fields)


@pytest.mark.parametrize("keys", [(None,), (b"key",), (None, b"key", b""), (None,) * 21 + (b"k",)])
def test_many_records_with_short_numbers_are_converted(keys: tuple[bytes | None, ...]) -> None:
    rows = [(n * 40, keys[n % len(keys)], b"v" * (n % 300), ()) for n in range(900)]
    table = to_arrow("t", 3, walk(batch_of(rows, 50)), 57)
    table.validate(full=True)
    found = table.to_pydict()
    assert found["offset"] == list(range(57, 950))
    assert found["key"] == [key for _, key, _, _ in rows[7:]]
    assert found["value"] == [value for _, _, value, _ in rows[7:]]
    assert list(map(milliseconds, found["timestamp"])) == [time for time, *_ in rows[7:]]
    assert table.column("key").null_count == found["key"].count(None)


def test_columns_outlive_their_table() -> None:
    pool = BufferPool(1 << 24)
    row = (1, b"key", b"v" * 50_000, [("h", b"x")])
    table = to_arrow("topic", 3, walk(batch_of([row, row])), pool=pool)
    topics, values, headers = (table.column(name) for name in ("topic", "value", "headers"))
    del table
    names = headers.flatten().field(0)
    del headers
    assert topics.to_pylist() == ["topic"] * 2
    assert values.to_pylist() == [b"v" * 50_000] * 2
    assert names.to_pylist() == ["h", "h"]
    assert pool.kept == 0
    columns = [topics, values, names]
    del topics, values, names
    thread = threading.Thread(target=columns.clear)
    thread.start()
    thread.join()
    if in_use():
        assert pool.kept > 100_000


def test_memory_is_not_used_again_while_anything_refers_to_it() -> None:
    pool = BufferPool(1 << 24)
    batches = [
        walk(batch_of([(number, None, bytes([number]) * 90_000, ())])) for number in range(6)
    ]
    tables = [to_arrow("t", 0, found, pool=pool) for found in batches]
    values = [table.column("value").slice(0, 1) for table in tables]
    del tables
    again = [to_arrow("t", 0, found, pool=pool) for found in batches]
    for number, (value, table) in enumerate(zip(values, again, strict=True)):
        for column in (value, table.column("value")):
            assert column.to_pylist() == [bytes([number]) * 90_000]
    if in_use():
        assert pool.kept == 0
        del value, values, table, again, column
        assert pool.kept > 500_000


def test_old_formats_are_converted_among_new_ones() -> None:
    data = LEGACY + batch_of([(5, b"k", b"w", [("h", b"x")])], 8)
    table = to_arrow("t", 1, walk(data), check_crcs=False)
    table.validate(full=True)
    assert table.column("value").to_pylist() == [b"v", b"w"]
    assert table.column("partition").to_pylist() == [1, 1]


@settings(max_examples=100 if IS_WHOLE else 30)
@given(counts=st.lists(st.integers(1, 3000), min_size=1, max_size=4), size=st.integers(0, 700))
def test_columns_grow_with_their_records(counts: list[int], size: int) -> None:
    headers = [("name", b"h" * 40)]
    parts = [
        [(i, bytes([65 + n]) * (size // 3), bytes([n]) * size, headers * (i % 3)) for i in range(c)]
        for n, c in enumerate(counts)
    ]
    data = b"".join(batch_of(part, 0, Compression.LZ4) for part in parts)
    table = to_arrow("topic", 0, walk(data), pool=POOL)
    table.validate(full=True)
    rows = [row for part in parts for row in part]
    assert table.column("key").to_pylist() == [key for _, key, _, _ in rows]
    assert table.column("value").to_pylist() == [value for _, _, value, _ in rows]
    assert table.column("topic").to_pylist() == ["topic"] * len(rows)
    wanted = [[{"key": k, "value": v} for k, v in found] for *_, found in rows]
    assert table.column("headers").to_pylist() == wanted


def test_header_names_that_are_not_utf8_are_replaced() -> None:
    data = bytearray(batch_of([(1, None, b"value", [("name", b"v")])]))
    data[data.index(b"name") + 1] = 0xFF
    table = to_arrow("t", 0, walk(data), check_crcs=False)
    table.validate(full=True)
    assert table.to_pylist()[0]["headers"] == [{"key": "n\ufffdme", "value": b"v"}]


BUILDERS = {
    "pure": pure_builder.RecordBatchBuilder,
    "native" if in_use() else "pure": RecordBatchBuilder,
}


@pytest.mark.parametrize("kind", ["binary", "large_binary", "string", "large_string"])
@pytest.mark.parametrize("builder", BUILDERS.values(), ids=list(BUILDERS))
@given(
    values=st.lists(st.none() | st.text(max_size=9) | st.just("v" * 200), max_size=40),
    cut=st.integers(0, 12),
    start=st.integers(0, 12),
    limit=st.integers(61, 1500),
)
def test_values_of_an_array_are_appended(
    builder: Any, kind: str, values: list[str | None], cut: int, start: int, limit: int
) -> None:
    array = pa.array(values, kind).slice(cut)
    contents = [None if value is None else value.encode() for value in values[cut:]]
    one, many = builder(limit=limit), builder(limit=limit)
    expected = one.append_values(5, contents, start)
    if start <= len(array):
        assert append_arrow(many, 5, array, start) == expected
        assert (one.size, one.count) == (many.size, many.count)
        assert not one.count or one.seal() == many.seal()


def test_arrays_without_bytes_are_refused() -> None:
    builder = RecordBatchBuilder(limit=1000)
    with pytest.raises(TypeError, match="int64"):
        append_arrow(builder, 0, pa.array([1, 2]))
    assert builder.count == 0


def test_inconsistent_buffers_are_refused() -> None:
    builder: Any = RecordBatchBuilder(limit=1 << 20)
    if not hasattr(builder, "append_buffers"):
        pytest.skip("the native modules were not built")
    good = struct.pack("<3i", 0, 2, 4)
    assert builder.append_buffers(1, None, good, b"abcd", 4, 0, 0, 2) == 2
    before = builder.size, builder.count
    for validity, offsets, data, width, first, start, stop in (
        (None, good, b"abcd", 4, 0, 0, 3),
        (None, good, b"abcd", 4, 1, 0, 2),
        (None, good, b"abcd", 8, 0, 0, 2),
        (None, good, b"abc", 4, 0, 0, 2),
        (None, good, None, 4, 0, 0, 2),
        (b"", good, b"abcd", 4, 0, 0, 2),
        (None, good, b"abcd", 4, -1, 0, 2),
        (None, good, b"abcd", 4, 0, -1, 2),
        (None, good, b"abcd", 3, 0, 0, 2),
        (None, struct.pack("<3i", 0, 4, 2), b"abcd", 4, 0, 0, 2),
        (None, struct.pack("<3i", -2, 0, 2), b"abcd", 4, 0, 0, 2),
        (None, struct.pack("<3i", 0, 2, 2147483647), b"abcd", 4, 0, 0, 2),
        (None, good, b"abcd", 4, (1 << 63) - 1, 0, 2),
    ):
        with pytest.raises(ValueError):
            builder.append_buffers(1, validity, offsets, data, width, first, start, stop)
        assert (builder.size, builder.count) == before
