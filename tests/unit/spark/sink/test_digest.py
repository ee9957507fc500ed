"""The digest of the rows that an exactly-once sink has committed."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pytest

from aiokclient.spark.sink.digest import RowDigest

pa = pytest.importorskip("pyarrow")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOON = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
ROWS = [
    {
        "key": None if number % 5 == 0 else b"key-%d" % number,
        "value": b"value-%d" % number,
        "headers": [{"key": "h", "value": b"%d" % number}] if number % 2 else None,
        "partition": number % 3,
        "topic": "orders" if number % 7 else "invoices",
        "timestamp": NOON + datetime.timedelta(seconds=number),
    }
    for number in range(100)
]
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("partition", pa.int32()),
        ("topic", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


def digest(rows: list[dict[str, Any]], size: int = 100, schema: Any = SCHEMA) -> str:
    found = RowDigest()
    for start in range(0, len(rows), size):
        found.update(pa.RecordBatch.from_pylist(rows[start : start + size], schema=schema))
    assert found.rows == len(rows)
    return found.hexdigest()


def test_digest_depends_neither_on_order_nor_on_batches() -> None:
    shuffled = random.Random(1).sample(ROWS, len(ROWS))
    assert digest(shuffled, size=7) == digest(ROWS) == digest(ROWS, size=1)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("value", b"other"),
        ("value", None),
        ("key", b""),
        ("key", None),
        ("partition", 5),
        ("topic", "invoices"),
        ("timestamp", NOON),
        ("headers", []),
        ("headers", [{"key": "h", "value": None}]),
    ],
)
def test_digest_changes_with_each_column(column: str, value: Any) -> None:
    changed = [*ROWS[:41], {**ROWS[41], column: value}, *ROWS[42:]]
    assert digest(changed) != digest(ROWS)


def test_digest_changes_if_rows_are_missing_repeated_or_exchange_a_part() -> None:
    exchanged = [dict(row) for row in ROWS]
    exchanged[1]["key"], exchanged[2]["key"] = exchanged[2]["key"], exchanged[1]["key"]
    found = {digest(ROWS), digest(ROWS[1:]), digest([*ROWS, ROWS[0]]), digest(exchanged)}
    assert len(found) == 4


def test_digest_sees_where_a_key_ends() -> None:
    rows = [{"key": b"ab", "value": b"c"}]
    moved = [{"key": b"a", "value": b"bc"}]
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
    assert digest(rows, schema=schema) != digest(moved, schema=schema)


def test_digest_of_strings_is_that_of_their_bytes() -> None:
    text, data = pa.schema([("value", pa.string())]), pa.schema([("value", pa.binary())])
    assert digest([{"value": "ä"}], schema=text) == digest([{"value": "ä".encode()}], schema=data)


def test_digest_does_not_depend_on_the_time_zone_of_the_session() -> None:
    zone = pa.schema([("timestamp", pa.timestamp("us", "Asia/Tokyo"))])
    utc = pa.schema([("timestamp", pa.timestamp("us", "UTC"))])
    assert digest([{"timestamp": NOON}], schema=zone) == digest([{"timestamp": NOON}], schema=utc)


def test_digest_ignores_columns_that_are_not_written() -> None:
    known, more = (
        pa.schema([("value", pa.binary())]),
        pa.schema([("value", pa.binary()), ("offset", pa.int64())]),
    )
    assert digest([{"value": b"v", "offset": 1}], schema=more) == digest(
        [{"value": b"v"}], schema=known
    )
