"""Tests of Avro, and of what the serializers and deserializers of all formats do."""

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from registry_fake import FakeRegistry, avro_text, read_back

from aiokclient.errors import ConfigError, SchemaNotFoundError, SerializationError
from aiokclient.schema.avro import AvroDeserializer, AvroSerializer
from aiokclient.schema.schema import Schema, SchemaReference
from aiokclient.types import Serialized

ORDER = avro_text(a="string", b=["null", "int"])
COUNT_RECORD = {"type": "record", "name": "Counted", "fields": [{"name": "count", "type": "int"}]}
PREFIX = b"\x00\x00\x00\x00\x01"


async def prepared(registry: Any, schema: Any = ORDER, **options: Any) -> Any:
    serializer: AvroSerializer[Any] = AvroSerializer(registry, schema, **options)
    await serializer.prepare("orders")
    return serializer


@pytest.mark.parametrize(
    ("schema", "value", "payload"),
    [
        (ORDER, {"a": "x", "b": 1}, b"\x02\x78\x02\x02"),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "b", "type": ["null", "int"], "default": None}],
            },
            {},
            b"\x00",
        ),
        ('"string"', "hé", b"\x06\x68\xc3\xa9"),
        ('"bytes"', b"\x01\x02", b"\x01\x02"),
        ('{"type": "bytes"}', b"", b""),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            Decimal("1.25"),
            b"\x02\x7d",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2026, 1, 1, tzinfo=UTC),
            bytes.fromhex("80a0d5edee66"),
        ),
        (
            {"type": "string", "logicalType": "uuid"},
            UUID(int=5),
            b"\x48" + str(UUID(int=5)).encode(),
        ),
        ({"type": "record", "name": "Empty", "fields": []}, {}, b""),
    ],
)
async def test_avro_value_has_the_bytes_of_other_clients(
    schema: Any, value: Any, payload: bytes
) -> None:
    registry = FakeRegistry()
    text = schema if isinstance(schema, str) else json.dumps(schema)
    data = (await prepared(registry, text)).serialize("orders", value)
    assert data == PREFIX + payload
    expected = {"b": None} if payload == b"\x00" else value
    assert await read_back(AvroDeserializer(registry), data) == expected


async def test_none_is_a_tombstone_with_and_without_preparation() -> None:
    registry = FakeRegistry()
    serializer: AvroSerializer[Any] = AvroSerializer(registry, '"null"')
    deserializer: AvroDeserializer[Any] = AvroDeserializer(registry)
    assert serializer.serialize("orders", None) is None
    assert deserializer.is_prepared(None)
    assert deserializer.deserialize("orders", None) is None


async def test_second_preparation_asks_the_registry_nothing() -> None:
    registry = FakeRegistry()
    serializer = await prepared(registry)
    calls = list(registry.calls)
    await serializer.prepare("orders")
    serializer.serialize("orders", {"a": "x", "b": None})
    assert registry.calls == calls


async def test_serialize_names_prepare_if_the_topic_is_not_prepared() -> None:
    serializer = await prepared(FakeRegistry())
    with pytest.raises(SerializationError, match=r"await producer\.prepare\('other'\)"):
        serializer.serialize("other", {"a": "x", "b": None})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": 1, "b": None}, "must be string on field a"),
        ({"a": "x", "b": None, "c": 1}, "more fields.*: c"),
        ({"b": None}, "a is specified in the schema but missing"),
        ("text", "orders-value, schema id 1 of http://registry:8081"),
    ],
)
async def test_value_that_does_not_match_the_avro_schema_is_refused(value: Any, why: str) -> None:
    serializer = await prepared(FakeRegistry())
    with pytest.raises(SerializationError, match=why) as info:
        serializer.serialize("orders", value)
    assert info.value.__cause__ is not None


async def test_extra_fields_are_dropped_if_not_strict() -> None:
    serializer = await prepared(FakeRegistry(), strict=False)
    assert serializer.serialize("orders", {"a": "x", "b": 1, "c": 1}) == PREFIX + b"\x02x\x02\x02"


async def test_bytes_schema_refuses_text() -> None:
    serializer = await prepared(FakeRegistry(), '"bytes"')
    with pytest.raises(SerializationError, match="bytes, not str"):
        serializer.serialize("orders", "text")


@pytest.mark.parametrize(
    ("payload", "why"),
    [(b"\x02x\x02\x02!", "1 bytes remain"), (b"\x02x\x02", "EOFError"), (b"\x02\xff\x00", "utf-8")],
)
async def test_avro_bytes_that_do_not_match_are_refused(payload: bytes, why: str) -> None:
    registry = FakeRegistry()
    await prepared(registry)
    with pytest.raises(SerializationError, match=f"schema id 1 of http://registry:8081.*{why}"):
        await read_back(AvroDeserializer(registry), PREFIX + payload)


@pytest.mark.parametrize("data", [b"", b"\x00\x00", b"{}", b"\xff\xff\xff\xff\xff\xff"])
async def test_bytes_without_an_id_need_no_registry_and_are_refused(data: bytes) -> None:
    deserializer: AvroDeserializer[Any] = AvroDeserializer(FakeRegistry())
    assert deserializer.is_prepared(data)
    with pytest.raises(SerializationError, match="topic orders has no schema id"):
        deserializer.deserialize("orders", data)


async def test_unknown_id_is_asked_again_at_the_next_preparation() -> None:
    registry = FakeRegistry()
    deserializer: AvroDeserializer[Any] = AvroDeserializer(registry)
    data = PREFIX + b"\x02x\x00"
    with pytest.raises(SerializationError, match="not prepared"):
        deserializer.deserialize("orders", data)
    await deserializer.prepare("orders", [(data, ()), (data, ()), (None, ())])
    assert registry.calls == [("by_id", 1)]
    with pytest.raises(SerializationError, match=r"id 1.*schemas/ids/1 does not have") as info:
        deserializer.deserialize("orders", data)
    assert isinstance(info.value.__cause__, SchemaNotFoundError)
    assert not deserializer.is_prepared(data)
    await prepared(registry)
    assert await read_back(deserializer, data) == {"a": "x", "b": None}


async def test_guid_in_a_header_replaces_the_prefix() -> None:
    registry = FakeRegistry()
    serializer = await prepared(registry, schema_id_in="header")
    serializer.bind("value")
    sent = serializer.serialize("orders", {"a": "x", "b": None})
    assert isinstance(sent, Serialized)
    assert sent.data == b"\x02x\x00"
    (name, content), *others = sent.headers
    assert (name, content[0], len(content), others) == ("__value_schema_id", 1, 17, [])
    deserializer: AvroDeserializer[Any] = AvroDeserializer(registry)
    other = [("__key_schema_id", b"\x00\x00\x00\x00\x09"), ("h", None)]
    assert await read_back(deserializer, sent.data, [*other, *sent.headers]) == {
        "a": "x",
        "b": None,
    }
    twice = [("__value_schema_id", b"\x00\x00\x00\x00\x09"), *sent.headers]
    assert await read_back(deserializer, sent.data, twice) == {"a": "x", "b": None}


async def test_header_with_an_id_is_read() -> None:
    registry = FakeRegistry()
    await prepared(registry)
    deserializer: AvroDeserializer[Any] = AvroDeserializer(registry)
    deserializer.bind("key")
    headers = [("__key_schema_id", PREFIX)]
    assert await read_back(deserializer, b"\x02x\x00", headers) == {"a": "x", "b": None}


async def test_header_needs_a_registry_with_guids() -> None:
    with pytest.raises(SerializationError, match=r"no GUID.*schema_id_in=.prefix"):
        await prepared(FakeRegistry(has_guids=False), schema_id_in="header")


@pytest.mark.parametrize(
    ("strategy", "part", "subject"),
    [
        ("TOPIC", "value", "orders-value"),
        ("TOPIC", "key", "orders-key"),
        ("RECORD", "value", "shop.Order"),
        ("TOPIC_RECORD", "value", "orders-shop.Order"),
        ("ASSOCIATED", "value", "associated"),
        ("ASSOCIATED", "key", "orders-key"),
        (lambda topic, part, record: f"{record}/{part}/{topic}", "key", "shop.Order/key/orders"),
    ],
)
async def test_subject_follows_the_strategy(strategy: Any, part: str, subject: str) -> None:
    registry = FakeRegistry()
    registry.associations["orders", "value"] = "associated"
    serializer: AvroSerializer[Any] = AvroSerializer(registry, ORDER, subject=strategy)
    serializer.bind(part)
    await serializer.prepare("orders")
    assert list(registry.subjects) == [subject]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"subject": "topic"}, "no strategy"),
        ({"subject": "RECORD", "schema": '["null", "int"]'}, "the schema has none"),
        ({"subject": "RECORD", "schema": None, "use_latest_version": True}, "needs a schema"),
        ({"schema": None}, "needs a schema"),
        ({"schema": "{"}, "not valid"),
        (
            {"schema": '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "Y"}]}'},
            "Y",
        ),
        ({"schema": Schema("{}", "JSON")}, "type JSON, not AVRO"),
        ({"schema_id_in": "both"}, "schema_id_in"),
    ],
)
def test_wrong_arguments_of_a_serializer_raise_config_error(
    options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        AvroSerializer(FakeRegistry(), **{"schema": ORDER, **options})


def test_one_serializer_for_keys_and_values_is_refused() -> None:
    serializer: AvroSerializer[Any] = AvroSerializer(FakeRegistry(), ORDER)
    serializer.bind("key")
    serializer.bind("key")
    with pytest.raises(ConfigError, match="Create one for each"):
        serializer.bind("value")


async def test_lookup_raises_what_the_registry_says_without_auto_register() -> None:
    registry = FakeRegistry()
    with pytest.raises(SchemaNotFoundError, match="SCHEMA_NOT_FOUND"):
        await prepared(registry, auto_register=False)
    await registry.register("orders-value", Schema(ORDER))
    serializer = await prepared(registry, auto_register=False)
    assert serializer.serialize("orders", {"a": "", "b": None}) == PREFIX + b"\x00\x00"


async def test_latest_version_is_written_and_nothing_registered() -> None:
    registry = FakeRegistry()
    await registry.register("orders-value", Schema(ORDER))
    await registry.register("orders-value", Schema(avro_text(z="int")))
    serializer = await prepared(registry, None, use_latest_version=True)
    assert serializer.serialize("orders", {"z": 1}) == b"\x00\x00\x00\x00\x02\x02"
    both = await prepared(registry, ORDER, use_latest_version=True, auto_register=True)
    assert both.serialize("orders", {"z": 1}) == b"\x00\x00\x00\x00\x02\x02"
    assert len(registry.subjects["orders-value"]) == 2


RULES = {"domainRules": [{"name": "hide", "type": "ENCRYPT", "mode": "WRITEREAD"}]}


async def test_schema_with_rules_is_refused_for_writing_and_reading() -> None:
    registry = FakeRegistry(rule_set=RULES)
    with pytest.raises(SerializationError, match=r"hide \(ENCRYPT, WRITEREAD\)"):
        await prepared(registry)
    with pytest.raises(SerializationError, match="this client runs no rules"):
        await read_back(AvroDeserializer(registry), PREFIX + b"\x00\x00")


@pytest.mark.parametrize(
    "rules",
    [
        {"domainRules": [{"name": "r", "type": "CEL", "mode": "READ"}]},
        {"domainRules": [{"name": "r", "type": "CEL", "mode": "WRITE", "disabled": True}]},
        {"migrationRules": [{"name": "r", "type": "JSONATA", "mode": "UPGRADE"}]},
        {"enableAt": "GATEWAY", "encodingRules": [{"name": "r", "mode": "WRITE"}]},
    ],
)
async def test_rules_that_need_not_run_are_no_obstacle_for_writing(rules: Any) -> None:
    serializer = await prepared(FakeRegistry(rule_set=rules))
    assert serializer.serialize("orders", {"a": "", "b": None}) == PREFIX + b"\x00\x00"


async def test_reader_schema_adds_defaults_and_drops_fields() -> None:
    registry = FakeRegistry()
    data = (await prepared(registry)).serialize("orders", {"a": "x", "b": 1})
    fields = [
        {"name": "b", "type": ["null", "long"]},
        {"name": "c", "type": "string", "default": "new"},
    ]
    wanted = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    for _ in range(2):
        reader: AvroDeserializer[Any] = AvroDeserializer(registry, wanted)
        assert await read_back(reader, data) == {"b": 1, "c": "new"}
    fields.append({"name": "d", "type": "int"})
    incompatible: AvroDeserializer[Any] = AvroDeserializer(registry, wanted)
    with pytest.raises(SerializationError, match="d"):
        await read_back(incompatible, data)


async def test_names_of_fields_are_those_of_the_program_at_every_depth() -> None:
    """Strings of a parsed schema are interned, without which each record costs much more."""
    schema = {
        "type": "record",
        "name": "Node",
        "namespace": "trees",
        "fields": [
            {"name": "label", "type": ["null", "string"]},
            {"name": "children", "type": {"type": "array", "items": "Node"}},
            {"name": "more", "type": {"type": "map", "values": [COUNT_RECORD, "null"]}},
        ],
    }
    leaf: dict[str, Any] = {"label": None, "children": [], "more": {"x": {"count": 5}}}
    tree = {"label": "root", "children": [leaf, leaf], "more": {}}
    registry = FakeRegistry()
    data = (await prepared(registry, json.dumps(schema))).serialize("orders", tree)
    for deserializer in (AvroDeserializer[Any](registry), AvroDeserializer[Any](registry, schema)):
        found = await read_back(deserializer, data)
        assert found == tree
        inner = found["children"][1]
        for record in (found, inner, inner["more"]["x"]):
            for name in record:
                assert name is sys.intern(str(name))


async def test_referenced_schemas_are_found_by_name_even_twice() -> None:
    registry = FakeRegistry()
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "n", "type": "long"}]}
    await registry.register("money", Schema(json.dumps(money)))
    to_money = SchemaReference("shop.Money", "money", 1)
    line = {"type": "record", "name": "shop.Line", "fields": [{"name": "m", "type": "shop.Money"}]}
    await registry.register("line", Schema(json.dumps(line), references=[to_money]))
    text = avro_text(total="shop.Money", lines={"type": "array", "items": "shop.Line"})
    schema = Schema(text, references=[SchemaReference("shop.Line", "line", 1), to_money])
    value = {"total": {"n": 3}, "lines": [{"m": {"n": 1}}, {"m": {"n": 2}}]}
    data = (await prepared(registry, schema)).serialize("orders", value)
    assert await read_back(AvroDeserializer(registry), data) == value


async def test_objects_are_converted_by_the_functions_of_the_application() -> None:
    registry = FakeRegistry()
    serializer = await prepared(registry, to_dict=lambda pair: {"a": pair[0], "b": pair[1]})
    data = serializer.serialize("orders", ("x", 1))
    deserializer = AvroDeserializer(registry, from_dict=lambda value: tuple(value.values()))
    assert await read_back(deserializer, data) == ("x", 1)
    with pytest.raises(SerializationError, match="out of range"):
        serializer.serialize("orders", ())


async def test_schema_of_another_format_is_refused() -> None:
    registry = FakeRegistry()
    await registry.register("orders-value", Schema("true", "JSON"))
    with pytest.raises(SerializationError, match=r"type JSON.*needs AVRO"):
        await read_back(AvroDeserializer(registry), PREFIX)


async def test_known_schemas_are_bounded_but_kept_while_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aiokclient.schema.deserializer._MAX_SCHEMAS", 2)
    registry = FakeRegistry()
    for number in range(4):
        await registry.register("s", Schema(avro_text(**{f"f{number}": "int"})))
    deserializer: AvroDeserializer[Any] = AvroDeserializer(registry)
    chunk: list[tuple[bytes, Any]] = [(bytes((0, 0, 0, 0, n + 1, 2)), ()) for n in range(3)]
    await deserializer.prepare("t", chunk)
    assert [deserializer.deserialize("t", *each) for each in chunk] == [
        {"f0": 1},
        {"f1": 1},
        {"f2": 1},
    ]
    last = bytes((0, 0, 0, 0, 4, 2))
    assert await read_back(deserializer, last) == {"f3": 1}
    assert sum(deserializer.is_prepared(*each) for each in chunk) == 1
