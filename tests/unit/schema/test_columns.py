"""Tests of Arrow columns of Avro values and Protobuf messages."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from google.protobuf import json_format
from registry_fake import FakeRegistry

from aiokclient.errors import ConfigError
from aiokclient.schema.avro import AvroDeserializer
from aiokclient.schema.proto.classes import build_classes
from aiokclient.schema.proto.files import parse_proto
from aiokclient.schema.protobuf import ProtobufDeserializer

LINE = {"type": "record", "name": "Line", "fields": [{"name": "item", "type": "string"}]}
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "arrow", "found"),
    [
        ("boolean", True, "bool", True),
        ("int", 1, "int32", 1),
        ("long", 1, "int64", 1),
        ("float", 0.5, "float", 0.5),
        ("double", 0.1, "double", 0.1),
        ("bytes", b"\x00", "binary", b"\x00"),
        ("string", "é", "string", "é"),
        (["null", "int"], None, "int32", None),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", "string", "A"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", "fixed_size_binary[2]", b"ab"),
        ({"type": "array", "items": "int"}, [1], "list<item: int32>", [1]),
        (
            {"type": "array", "items": LINE},
            [{"item": "a"}],
            "list<item: struct<item: string>>",
            [{"item": "a"}],
        ),
        (
            {"type": "map", "values": "long"},
            {"a": 1},
            "map<string, int64>",
            [("a", 1)],
        ),
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 1), "date32[day]", date(2026, 1, 1)),
        ({"type": "int", "logicalType": "time-millis"}, time(1), "time32[ms]", time(1)),
        ({"type": "long", "logicalType": "timestamp-micros"}, AT, "timestamp[us, tz=UTC]", AT),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            Decimal("1.25"),
            "decimal128(6, 2)",
            Decimal("1.25"),
        ),
        (
            ["null", {"type": "string", "logicalType": "uuid"}],
            UUID(int=5),
            "string",
            str(UUID(int=5)),
        ),
        ({"type": "string", "logicalType": "unknown"}, "x", "string", "x"),
    ],
)
def test_avro_type_has_its_arrow_type(kind: Any, value: Any, arrow: str, found: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    deserializer: Any = AvroDeserializer(FakeRegistry(), schema)
    column = deserializer.arrow_column([{"f": value}, None])
    assert str(column.type) == f"struct<f: {arrow}>"
    assert column.to_pylist() == [{"f": found}, None]
    assert deserializer.arrow_column([]).type == column.type


def test_named_avro_type_that_is_used_twice_has_one_arrow_type() -> None:
    fields = [{"name": "a", "type": LINE}, {"name": "b", "type": "Line"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    deserializer: Any = AvroDeserializer(FakeRegistry(), schema)
    column = deserializer.arrow_column([{"a": {"item": "x"}, "b": {"item": "y"}}])
    assert column.to_pylist() == [{"a": {"item": "x"}, "b": {"item": "y"}}]


@pytest.mark.parametrize(
    ("schema", "options", "why"),
    [
        (None, {}, "a schema of its own"),
        ('"int"', {"from_dict": str}, "without from_dict"),
        ({"type": "array", "items": ["int", "string"]}, {}, "union of 2 types"),
        (
            {
                "type": "record",
                "name": "Tree",
                "fields": [{"name": "next", "type": ["null", "Tree"]}],
            },
            {},
            "Tree contains itself",
        ),
    ],
)
def test_avro_schema_without_an_arrow_type_raises_config_error(
    schema: Any, options: Any, why: str
) -> None:
    deserializer: Any = AvroDeserializer(FakeRegistry(), schema, **options)
    with pytest.raises(ConfigError, match=why):
        deserializer.arrow_column([])


PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message M {
  enum E { NONE = 0; ONE = 1; }
  message N { string x = 1; }
  int32 a = 1;
  repeated sint64 many = 2;
  map<string, N> by_name = 3;
  optional double d = 4;
  E e = 5;
  repeated E es = 6;
  google.protobuf.Timestamp at = 7;
  google.protobuf.Duration took = 8;
  google.protobuf.Int64Value wrapped = 9;
  google.protobuf.Struct free = 10;
  bytes raw = 11;
  repeated N ns = 12;
}
message Tree { repeated Tree children = 1; }
"""


def test_message_is_a_struct_of_its_fields() -> None:
    classes = build_classes(parse_proto(PROTO, "columns.proto"), {}, "it")
    given = {
        "a": 5,
        "many": ["1", "-2"],
        "byName": {"k": {"x": "y"}},
        "e": "ONE",
        "es": ["ONE", 7],
        "at": "2026-01-01T00:00:00Z",
        "took": "1.5s",
        "wrapped": "3",
        "free": {"k": [1, None]},
        "raw": "AAE=",
        "ns": [{"x": "z"}],
    }
    message: Any = json_format.ParseDict(given, classes[(0,)]())
    deserializer: Any = ProtobufDeserializer(FakeRegistry(), classes[(0,)])
    column = deserializer.arrow_column([message, classes[(0,)](), None])
    full, empty, null = column.to_pylist()
    assert null is None
    assert full.pop("at").isoformat() == "2026-01-01T00:00:00+00:00"
    assert full.pop("took").total_seconds() == 1.5
    assert full.pop("free") in ('{"k": [1.0, null]}', '{"k": [1, null]}')
    assert full == {
        "a": 5,
        "many": [1, -2],
        "by_name": [("k", {"x": "y"})],
        "d": None,
        "e": "ONE",
        "es": ["ONE", "7"],
        "wrapped": 3,
        "raw": b"\x00\x01",
        "ns": [{"x": "z"}],
    }
    assert (empty["a"], empty["d"], empty["e"], empty["many"]) == (0, None, "NONE", [])
    assert deserializer.arrow_column([]).type == column.type


def test_message_without_an_arrow_type_raises_config_error() -> None:
    classes = build_classes(parse_proto(PROTO, "columns.proto"), {}, "it")
    recursive: Any = ProtobufDeserializer(FakeRegistry(), classes[(1,)])
    with pytest.raises(ConfigError, match="Tree contains itself"):
        recursive.arrow_column([])
    untyped: Any = ProtobufDeserializer(FakeRegistry())
    with pytest.raises(ConfigError, match="with a message_type"):
        untyped.arrow_column([])
