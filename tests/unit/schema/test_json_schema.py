"""Tests of JSON with JSON Schema."""

import json
from typing import Any

import pytest
from registry_fake import FakeRegistry, read_back

from aiokclient.errors import ConfigError, SerializationError
from aiokclient.schema.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
from aiokclient.schema.schema import Schema, SchemaReference

DRAFT7 = "http://json-schema.org/draft-07/schema#"
ORDER = {
    "$schema": DRAFT7,
    "title": "Order",
    "type": "object",
    "properties": {"a": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["a"],
}
PREFIX = b"\x00\x00\x00\x00\x01"


async def writing(registry: Any, schema: Any = ORDER, **options: Any) -> Any:
    serializer: JsonSchemaSerializer[Any] = JsonSchemaSerializer(registry, schema, **options)
    await serializer.prepare("orders")
    return serializer


def reading(registry: Any, schema: Any = None, **options: Any) -> Any:
    return JsonSchemaDeserializer(registry, schema, **options)


async def test_json_is_compact_utf8_after_the_prefix() -> None:
    registry = FakeRegistry()
    value = {"a": "é", "n": 1}
    data = (await writing(registry)).serialize("orders", value)
    assert data == PREFIX + '{"a":"é","n":1}'.encode()
    assert await read_back(reading(registry), data) == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": 1}, r"not of type \"string\" \(at a\)"),
        ({}, "required"),
        ({"a": "x", "other": float("nan")}, "JSON compliant"),
        ({"a": "\ud800"}, "surrogates"),
        ({"a": "x", "b": object()}, "object"),
        ({"a": "x", 1: 1}, "key"),
    ],
)
async def test_value_that_is_no_json_of_the_schema_is_refused(value: Any, why: str) -> None:
    serializer = await writing(FakeRegistry())
    with pytest.raises(SerializationError, match=f"orders-value, schema id 1.*{why}") as info:
        serializer.serialize("orders", value)
    assert "'x'" not in str(info.value)


async def test_value_is_not_validated_if_not_strict() -> None:
    serializer = await writing(FakeRegistry(), strict=False)
    assert serializer.serialize("orders", {"a": 1}) == PREFIX + b'{"a":1}'


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b'{"a":"x","n":NaN}', "NaN is no JSON"),
        (b'{"a":1}', "not of type"),
        (b'{"a":"x"}}', "Extra data"),
        (b"", "Expecting value"),
        (b'{"a":"\xff"}', "utf-8"),
        (b"[" * 100_000, "recursion"),
    ],
)
async def test_bytes_that_are_no_json_of_the_schema_are_refused(payload: bytes, why: str) -> None:
    registry = FakeRegistry()
    await writing(registry)
    with pytest.raises(SerializationError, match=f"schema id 1 of http://registry:8081.*{why}"):
        await read_back(reading(registry), PREFIX + payload)


async def test_schema_of_the_deserializer_validates_in_place_of_the_writers() -> None:
    registry = FakeRegistry()
    data = (await writing(registry)).serialize("orders", {"a": "x"})
    wanted = {**ORDER, "required": ["a", "n"]}
    with pytest.raises(SerializationError, match="required"):
        await read_back(reading(registry, wanted), data)
    converting = reading(registry, ORDER, from_dict=lambda value: value["a"])
    assert await read_back(converting, data) == "x"


@pytest.mark.parametrize(
    ("base", "name"),
    [("", "money.json"), ("http://shop.example/order.json", "http://shop.example/money.json")],
)
async def test_reference_is_found_by_its_name(base: str, name: str) -> None:
    registry = FakeRegistry()
    await registry.register("money", Schema('{"type": "integer"}', "JSON"))
    order: dict[str, Any] = {"$schema": DRAFT7, "properties": {"price": {"$ref": "money.json"}}}
    if base:
        order["$id"] = base
    schema = Schema(json.dumps(order), "JSON", [SchemaReference(name, "money", 1)])
    serializer = await writing(registry, schema)
    data = serializer.serialize("orders", {"price": 1})
    assert await read_back(reading(registry), data) == {"price": 1}
    with pytest.raises(SerializationError, match=r"integer.*at price"):
        serializer.serialize("orders", {"price": "1"})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('{"type": "strin"}', "at type"),
        ("{", "Expecting"),
        ('{"$ref": "http://127.0.0.1:1/x.json"}', "cannot fetch|not among"),
        ('{"$schema": "http://json-schema.org/draft-99/schema"}', "draft-99"),
    ],
)
def test_json_schema_that_cannot_be_used_raises_config_error(schema: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        JsonSchemaSerializer(FakeRegistry(), schema)


async def test_missing_reference_of_the_writers_schema_is_named() -> None:
    registry = FakeRegistry()
    await registry.register("orders-value", Schema('{"$ref": "money.json"}', "JSON"))
    with pytest.raises(SerializationError, match=r"Schema id 1 of.*money\.json"):
        await read_back(reading(registry), PREFIX + b"{}")


async def test_title_is_the_name_of_the_record() -> None:
    registry = FakeRegistry()
    await writing(registry, subject="TOPIC_RECORD")
    assert list(registry.subjects) == ["orders-Order"]
    untitled = {"$schema": DRAFT7, "type": "object"}
    with pytest.raises(ConfigError, match="title"):
        await writing(registry, untitled, subject="RECORD")
