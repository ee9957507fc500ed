"""Tests that confluent-kafka writes and reads the same bytes as this library."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_fake import read_back

from aiokclient.schema.avro import AvroDeserializer, AvroSerializer
from aiokclient.schema.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
from aiokclient.schema.proto.files import parse_proto
from aiokclient.schema.protobuf import ProtobufDeserializer, ProtobufSerializer
from aiokclient.schema.schema import RegisteredSchema, Schema, SchemaReference
from aiokclient.types import Serialized

pytest.importorskip("confluent_kafka.schema_registry", reason="a peer of the newest Python only")

from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaReference as TheirReference
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry import avro as their_avro
from confluent_kafka.schema_registry import json_schema as their_json
from confluent_kafka.schema_registry import protobuf as their_protobuf
from confluent_kafka.serialization import MessageField, SerializationContext


class SharedRegistry:
    """The in-memory registry of confluent-kafka, with the coroutines of this library."""

    urls = ("mock://registry",)

    def __init__(self) -> None:
        # Its HTTP client, which it does not use, takes longer than all else in these tests.
        self.client = _client()

    async def register(
        self, subject: str, schema: Schema, normalize: bool = False
    ) -> RegisteredSchema:
        return _ours(self.client.register_schema_full_response(subject, _theirs(schema), normalize))

    async def lookup(
        self, subject: str, schema: Schema, normalize: bool = False
    ) -> RegisteredSchema:
        return _ours(self.client.lookup_schema(subject, _theirs(schema), normalize))

    async def by_id(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        found = self.client.get_schema(schema_id)
        return RegisteredSchema(schema_id, None, None, None, _schema(found))

    async def by_guid(self, guid: UUID) -> RegisteredSchema:
        found = self.client.get_schema_by_guid(str(guid))
        return RegisteredSchema(None, guid, None, None, _schema(found))

    async def resolve(self, schema: Schema, subject: str | None = None) -> dict[str, Schema]:
        found: dict[str, Schema] = {}
        for reference in schema.references:
            version = self.client.get_version(reference.subject, reference.version)
            found |= await self.resolve(_schema(version.schema))
            found[reference.name] = _schema(version.schema)
        return found


@lru_cache(1)
def _client() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": "mock://registry"})


def _theirs(schema: Schema) -> TheirSchema:
    references = [
        TheirReference(each.name, each.subject, each.version) for each in schema.references
    ]
    return TheirSchema(schema.text, schema.type, references)


def _schema(theirs: Any) -> Schema:
    references = [
        SchemaReference(each.name, each.subject, each.version) for each in theirs.references or ()
    ]
    return Schema(theirs.schema_str, theirs.schema_type, references)


def _ours(registered: Any) -> RegisteredSchema:
    return RegisteredSchema(
        registered.schema_id,
        registered.guid and UUID(registered.guid),
        registered.subject,
        registered.version,
        _schema(registered.schema),
    )


CONF = {"subject.name.strategy": topic_subject_name_strategy}
HEADER_CONF = {**CONF, "schema.id.serializer": header_schema_id_serializer}


def context(headers: list[tuple[str, bytes]] | None = None) -> Any:
    return SerializationContext("orders", MessageField.VALUE, headers)


NAMES = st.text("abcdef", min_size=1, max_size=6)
LOGICAL: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    ),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        st.integers(0, 2**42).map(lambda ms: datetime.fromtimestamp(ms // 1000, UTC)),
    ),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    ({"type": "int", "logicalType": "date"}, st.dates(date(1970, 1, 1))),
]
PRIMITIVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=20)),
    ("string", st.text(max_size=20)),
]


@st.composite
def avro_types(draw: Any, depth: int = 0) -> tuple[Any, st.SearchStrategy[Any]]:
    """Return an Avro type, and a strategy for its values."""
    kinds = ["primitive", "logical", "enum", "fixed", "optional"]
    kind = draw(st.sampled_from([*kinds, "record", "array", "map"] if depth < 3 else kinds[:2]))
    name = "T" + draw(st.uuids()).hex
    if kind == "primitive":
        return draw(st.sampled_from(PRIMITIVES))  # type: ignore[no-any-return]
    if kind == "logical":
        return draw(st.sampled_from(LOGICAL))  # type: ignore[no-any-return]
    if kind == "enum":
        symbols = sorted(draw(st.sets(NAMES, min_size=1, max_size=4)))
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(1, 8))
        fixed = {"type": "fixed", "name": name, "size": size}
        return fixed, st.binary(min_size=size, max_size=size)
    if kind == "optional":
        inner, values = draw(st.sampled_from(PRIMITIVES[1:]))
        return ["null", inner], st.none() | values
    inner, values = draw(avro_types(depth + 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(NAMES, values, max_size=3)
    fields = draw(st.dictionaries(NAMES, avro_types(depth + 1), max_size=3))
    record = {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": each[0]} for field, each in fields.items()],
    }
    return record, st.fixed_dictionaries({field: each[1] for field, each in fields.items()})


@pytest.mark.parametrize("in_header", [False, True], ids=["prefix", "header"])
@settings(max_examples=40)
@given(data=st.data())
async def test_avro_is_written_and_read_as_by_confluent_kafka(
    in_header: bool, data: st.DataObject
) -> None:
    kind, values = data.draw(avro_types())
    # Confluent's serializer wraps other texts before it registers them.
    kind = kind if isinstance(kind, dict | list) else {"type": kind}
    text = json.dumps(kind)
    value = data.draw(values.filter(lambda each: each is not None or kind == {"type": "null"}))
    if value is None:
        return
    if kind == LOGICAL[0][0]:  # Confluent's serializer fails for it, except in a field.
        kind = {"type": "record", "name": "R", "fields": [{"name": "d", "type": kind}]}
        text, value = json.dumps(kind), {"d": value}
    registry: Any = SharedRegistry()
    serializer: AvroSerializer[Any] = AvroSerializer(
        registry, text, schema_id_in="header" if in_header else "prefix"
    )
    await serializer.prepare("orders")
    theirs = their_avro.AvroSerializer(
        registry.client, text, conf=HEADER_CONF if in_header else CONF
    )
    their_headers: list[tuple[str, bytes]] = []
    written = theirs(value, context(their_headers))
    ours = serializer.serialize("orders", value)
    headers: list[tuple[str, bytes]] = []
    if isinstance(ours, Serialized):
        ours, headers = ours.data, list(ours.headers)
    assert (ours, headers) == (written, their_headers)
    deserializer: AvroDeserializer[Any] = AvroDeserializer(registry)
    found = await read_back(deserializer, written, their_headers)
    assert found == value or isinstance(value, float)
    if len(written) > 5:  # Theirs refuses shorter ones, which are legal.
        read = their_avro.AvroDeserializer(registry.client, conf=CONF)
        assert repr(read(ours, context(headers))) == repr(found)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=40)
@given(
    draft=st.sampled_from(
        [
            "http://json-schema.org/draft-07/schema#",
            "https://json-schema.org/draft/2019-09/schema",
            "https://json-schema.org/draft/2020-12/schema",
        ]
    ),
    value=st.fixed_dictionaries({"é": st.text(max_size=10)}, optional={"n": JSON_VALUES}),
)
async def test_json_is_written_and_read_as_by_confluent_kafka(
    draft: str, value: dict[str, Any]
) -> None:
    registry: Any = SharedRegistry()
    text = json.dumps(
        {
            "$schema": draft,
            "title": "Thing",
            "type": "object",
            "properties": {"é": {"type": "string"}},
            "required": ["é"],
        }
    )
    serializer: JsonSchemaSerializer[Any] = JsonSchemaSerializer(registry, text)
    await serializer.prepare("orders")
    theirs = their_json.JSONSerializer(text, registry.client, conf=CONF)
    ours = serializer.serialize("orders", value)
    assert ours == theirs(value, context())
    deserializer: JsonSchemaDeserializer[Any] = JsonSchemaDeserializer(registry)
    assert await read_back(deserializer, ours) == value
    read = their_json.JSONDeserializer(None, schema_registry_client=registry.client, conf=CONF)
    assert read(ours, context()) == value


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "money.proto";
message M {
  message N { message O { string y = 1; } string x = 1; O o = 2; }
  sint64 a = 1;
  repeated double many = 2;
  map<string, int32> counts = 3;
  oneof choice { bytes raw = 4; N n = 5; }
  Money price = 6;
  google.protobuf.Timestamp at = 7;
}
message Q { M m = 1; repeated M.N ns = 2; }
"""


@pytest.fixture(scope="module")
def classes() -> dict[str, type[Message]]:
    """The classes of the messages in PROTO, by their names."""
    pool = descriptor_pool.Default()
    pool.Add(parse_proto("package shop; message Money { optional int64 n = 1; }", "money.proto"))  # type: ignore[no-untyped-call]
    pool.Add(parse_proto(PROTO, "shop.proto"))  # type: ignore[no-untyped-call]
    names = ["M", "Q", "M.N", "M.N.O"]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))  # type: ignore[no-untyped-call]
        for name in names
    }


ONE_N = st.fixed_dictionaries({}, optional={"x": st.text(max_size=5), "o": st.just({"y": "z"})})
ONE_M = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(-(2**63), 2**63 - 1),
        "many": st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
        "counts": st.dictionaries(NAMES, st.integers(0, 9), max_size=1),
        "n": ONE_N,
        "price": st.just({"n": 5}),
        "at": st.just("2026-01-01T00:00:00Z"),
    },
)


@settings(max_examples=40)
@given(
    given=st.tuples(st.just("M"), ONE_M)
    | st.tuples(st.just("Q"), st.fixed_dictionaries({"m": ONE_M, "ns": st.lists(ONE_N)}))
    | st.tuples(st.just("M.N"), ONE_N)
    | st.tuples(st.just("M.N.O"), st.just({"y": "z"}))
)
async def test_protobuf_is_written_and_read_as_by_confluent_kafka(
    classes: dict[str, type[Message]], given: tuple[str, dict[str, Any]]
) -> None:
    name, value = given
    registry: Any = SharedRegistry()
    serializer: ProtobufSerializer[Any] = ProtobufSerializer(registry, classes[name])
    await serializer.prepare("orders")
    ours = serializer.serialize("orders", value)
    assert isinstance(ours, bytes)
    deserializer = ProtobufDeserializer(registry, classes[name])
    message = await read_back(deserializer, ours)
    theirs: Any = their_protobuf.ProtobufSerializer(classes[name], registry.client, conf=CONF)
    assert theirs(message, context()) == ours
    read: Any = their_protobuf.ProtobufDeserializer(classes[name], CONF, registry.client)
    assert read(ours, context()) == message
    dynamic: ProtobufDeserializer[Any] = ProtobufDeserializer(registry)
    assert (await read_back(dynamic, ours)).SerializeToString(deterministic=True) == (
        message.SerializeToString(deterministic=True)
    )
