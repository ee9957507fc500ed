"""Tests of Protobuf messages and of the parser for .proto files."""

from base64 import b64encode
from typing import Any

import pytest
from google.protobuf import json_format
from registry_fake import FakeRegistry, read_back

from aiokclient.errors import ConfigError, SerializationError
from aiokclient.schema.proto.classes import build_classes
from aiokclient.schema.proto.files import list_messages, parse_file, parse_proto
from aiokclient.schema.protobuf import ProtobufDeserializer, ProtobufSerializer
from aiokclient.schema.schema import Schema, SchemaReference

MONEY = 'syntax = "proto3"; package common; message Money { int64 units = 1; }'
SHOP = """// Orders
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "common.proto";
option java_package = "x" ".y";
option (my.option) = { a: 1 b: [1, 2] };
/* message Hidden { } */
message M {
  int32 a = 1;
  reserved 4, 6 to 8;
  enum E { option allow_alias = true; E_NONE = 0; E_ONE = 1 [deprecated = true]; E_UNO = 0x1; }
  map<string, N> by_name = 3;
  message N { string x = 1; message O { string y = 1; } }
  repeated sint64 many = 2 [packed = false, (foo.bar) = "x]y", json_name = "lots"];
  oneof choice { string s = 10; .shop.v1.Q q = 11; }
  optional double d = 12;
  E e = 13;
  google.protobuf.Timestamp at = 14;
  common.Money money = 15;
  bytes raw = 16;
}
message Q { M m = 1; M.N n = 2; }
service S { rpc Get(M) returns (stream Q) { option (x) = { a: "b" }; } rpc Put(M) returns (Q); }
enum Top { NONE = 0; NEGATIVE = -1; }
message Empty {}
"""
PREFIX = b"\x00\x00\x00\x00\x01"


def registry_with_shop(text: str = SHOP) -> tuple[Any, Schema]:
    registry = FakeRegistry()
    schema = Schema(text, "PROTOBUF", [SchemaReference("common.proto", "common.proto", 1)])
    return registry, schema


async def shop_classes() -> dict[str, Any]:
    """Return the classes of the messages in SHOP by their names."""
    found = build_classes(
        parse_proto(SHOP, "shop.proto"), {"common.proto": Schema(MONEY, "PROTOBUF")}, "it"
    )
    return {each.DESCRIPTOR.full_name.removeprefix("shop.v1."): each for each in found.values()}


FULL: dict[str, Any] = {
    "a": 5,
    "lots": ["1", "-2"],
    "byName": {"k": {"x": "y"}},
    "q": {"n": {"x": "1"}},
    "d": 0.0,
    "e": "E_ONE",
    "at": "2026-01-01T00:00:00Z",
    "money": {"units": "5"},
    "raw": "AAE=",
}


async def test_messages_of_a_proto_file_are_read_without_classes() -> None:
    registry, schema = registry_with_shop()
    await registry.register("common.proto", Schema(MONEY, "PROTOBUF"))
    registered = await registry.register("orders-value", schema)
    classes = await shop_classes()
    message = json_format.ParseDict(FULL, classes["M"]())
    data = b"\x00" + registered.id.to_bytes(4, "big") + b"\x00" + message.SerializeToString()
    deserializer: Any = ProtobufDeserializer(registry)
    assert json_format.MessageToDict(await read_back(deserializer, data)) == FULL


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("M", {"a": 5}, "00 08 05"),
        ("Q", {"m": {"a": 1}}, "02 02 0a 02 08 01"),
        ("M.N", {"x": "x"}, "04 00 02 0a 01 78"),
        ("M.N.O", {"y": "y"}, "06 00 02 00 0a 01 79"),
        ("M", {}, "00"),
        ("Empty", {}, "02 04"),
    ],
)
async def test_message_is_written_after_its_indexes(name: str, value: Any, written: str) -> None:
    registry = FakeRegistry()
    message_type = (await shop_classes())[name]
    serializer: Any = ProtobufSerializer(registry, message_type)
    await serializer.prepare("orders")
    data = serializer.serialize("orders", json_format.ParseDict(value, message_type()))
    assert data == serializer.serialize("orders", value)
    # The imported file was registered first.
    assert list(registry.subjects) == ["common.proto", "orders-value"]
    assert data == b"\x00\x00\x00\x00\x02" + bytes.fromhex(written)
    deserializer: Any = ProtobufDeserializer(registry, message_type)
    assert json_format.MessageToDict(await read_back(deserializer, data)) == value
    header = ("__value_schema_id", data[: -len(data[5:])] + bytes.fromhex(written)[:4])
    bare = json_format.ParseDict(value, message_type()).SerializeToString()
    assert json_format.MessageToDict(await read_back(deserializer, bare, [header])) == value


async def test_bytes_of_another_message_are_refused() -> None:
    registry = FakeRegistry()
    classes = await shop_classes()
    serializer: Any = ProtobufSerializer(registry, classes["M"])
    await serializer.prepare("orders")
    data = serializer.serialize("orders", {"a": 1})
    other: Any = ProtobufDeserializer(registry, classes["Q"])
    with pytest.raises(SerializationError, match=r"the message shop\.v1\.M .*not shop\.v1\.Q"):
        await read_back(other, data)
    with pytest.raises(SerializationError, match="no message of the schema"):
        other.deserialize("orders", data[:5] + b"\x02\x20")
    dynamic: Any = ProtobufDeserializer(registry)
    with pytest.raises(SerializationError, match=r"indexes \[16\]"):
        await read_back(dynamic, data[:5] + b"\x02\x20")


async def test_index_that_does_not_count_entries_of_maps_is_read() -> None:
    registry = FakeRegistry()
    await registry.register("s", Schema(SHOP, "PROTOBUF"))
    message_type = (await shop_classes())["M.N"]
    deserializer: Any = ProtobufDeserializer(registry, message_type)
    # Java's serializer writes [0, 0] for the first message that is nested.
    assert (await read_back(deserializer, PREFIX + b"\x04\x00\x00\x0a\x01x")).x == "x"


@pytest.mark.parametrize(
    ("payload", "why"), [(b"\x00\x08", "parsing"), (b"", "indexes"), (b"\x01\x01", "index")]
)
async def test_damaged_messages_are_refused(payload: bytes, why: str) -> None:
    registry = FakeRegistry()
    await registry.register("s", Schema(SHOP, "PROTOBUF"))
    message_type = (await shop_classes())["M"]
    deserializer: Any = ProtobufDeserializer(registry, message_type)
    with pytest.raises(SerializationError, match=f"schema id 1.*{why}"):
        await read_back(deserializer, PREFIX + payload)


async def test_objects_that_are_no_such_message_are_refused() -> None:
    registry = FakeRegistry()
    classes = await shop_classes()
    serializer: Any = ProtobufSerializer(registry, classes["Q"])
    await serializer.prepare("orders")
    for value, why in (
        ({"z": 1}, "no field named"),
        ("text", "str, not Q"),
        (classes["M"](), "not Q"),
    ):
        with pytest.raises(SerializationError, match=why):
            serializer.serialize("orders", value)
    lenient: Any = ProtobufSerializer(registry, classes["Q"], strict=False)
    await lenient.prepare("orders")
    assert lenient.serialize("orders", {"z": 1}) == b"\x00\x00\x00\x00\x02\x02\x02"


async def test_indexes_are_those_in_the_latest_schema() -> None:
    registry = FakeRegistry()
    text = "package shop.v1; message New {} message Q { optional int32 x = 9; }"
    await registry.register("orders-value", Schema(text, "PROTOBUF"))
    classes = await shop_classes()
    for name, expected in (("Q", PREFIX + b"\x02\x02"), ("M", None)):
        serializer: Any = ProtobufSerializer(registry, classes[name], use_latest_version=True)
        if expected is None:
            with pytest.raises(SerializationError, match=r"no message shop\.v1\.M.*New"):
                await serializer.prepare("orders")
        else:
            await serializer.prepare("orders")
            assert serializer.serialize("orders", {}) == expected


def test_text_and_base64_of_a_file_mean_the_same_messages() -> None:
    file = parse_proto(SHOP, "shop.proto")
    encoded = Schema(b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    assert list_messages(parse_file(encoded)) == list_messages(parse_file(Schema(SHOP, "PROTOBUF")))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("message", "ends within a statement"),
        ("message A { foo }", "ends within|expected"),
        ("message A { optional group G = 1 { } }", "groups are not supported"),
        ("messag A {}", "'messag' begins no statement"),
        ("message A { int32 a = 1 [", "ends within"),
        ("message A { int32 a = x; }", "invalid literal"),
        ("message A {" * 40, "nested more than 32"),
        ("message A { B b = 1; }", "resolve name 'B'"),
        ('import "x.proto"; message A {}', "x.proto, which is not among its references"),
        ("!!!!", "'!' begins no statement"),
    ],
)
async def test_proto_file_that_is_not_valid_is_refused_with_the_reason(text: str, why: str) -> None:
    registry = FakeRegistry()
    await registry.register("s", Schema(text, "PROTOBUF"))
    deserializer: Any = ProtobufDeserializer(registry)
    with pytest.raises(SerializationError, match=f"(?s)Schema id 1 of http://registry:8081.*{why}"):
        await read_back(deserializer, PREFIX + b"\x00")


@pytest.mark.parametrize(
    ("message_type", "why"),
    [(dict, "as protoc generates it"), ("M", "needs a schema"), (None, "needs a schema")],
)
def test_wrong_message_type_raises_config_error(message_type: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ProtobufSerializer(FakeRegistry(), message_type)


@pytest.mark.parametrize(
    ("name", "written"),
    [(None, "00 0a 01 78"), ("Second", "02 02 08 01"), ("shop.Second", "02 02 08 01")],
)
async def test_message_of_the_registry_is_written_by_its_name(name: Any, written: str) -> None:
    registry = FakeRegistry()
    first = "package shop; message First { optional string x = 1; }"
    text = first + "message Second { optional int32 x = 1; }"
    await registry.register("orders-value", Schema(text, "PROTOBUF"))
    serializer: Any = ProtobufSerializer(registry, name, use_latest_version=True)
    await serializer.prepare("orders")
    value = {"x": 1 if name else "x"}
    assert serializer.serialize("orders", value) == PREFIX + bytes.fromhex(written)
