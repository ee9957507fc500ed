"""Tests of pydantic models."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field
from registry_fake import FakeRegistry, read_back

from aiokclient.errors import ConfigError, SchemaNotFoundError, SerializationError
from aiokclient.schema.json_schema import JsonSchemaDeserializer
from aiokclient.schema.pydantic import PydanticDeserializer, PydanticSerializer
from aiokclient.schema.schema import Schema

PREFIX = b"\x00\x00\x00\x00\x01"


class Line(BaseModel):
    item: str
    price: Decimal


class Order(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    order_id: int = Field(alias="orderId")
    at: datetime
    lines: list[Line] = []
    weight: float | None = None


ORDER = Order(
    order_id=1, at=datetime(2026, 1, 1, tzinfo=UTC), lines=[Line(item="té", price=Decimal("1.50"))]
)


async def writing(registry: Any, model: Any = Order, **options: Any) -> Any:
    serializer: PydanticSerializer[Any] = PydanticSerializer(registry, model, **options)
    await serializer.prepare("orders")
    return serializer


def reading(registry: Any, model: Any = Order) -> Any:
    return PydanticDeserializer(registry, model)


async def test_model_is_written_with_its_own_schema_and_read_back() -> None:
    registry = FakeRegistry()
    data = (await writing(registry)).serialize("orders", ORDER)
    assert data.startswith(PREFIX + b'{"orderId":1,')
    assert await read_back(reading(registry), data) == ORDER
    # The generated schema allows what was written.
    as_json: Any = JsonSchemaDeserializer(registry)
    assert (await read_back(as_json, data))["orderId"] == 1
    schema = json.loads(registry.subjects["orders-value"][0].schema.text)
    assert schema["title"] == "Order"
    assert schema["$schema"].endswith("2020-12/schema")


async def test_registered_schema_is_required_without_auto_register() -> None:
    with pytest.raises(SchemaNotFoundError):
        await writing(FakeRegistry(), auto_register=False)


async def test_models_are_validated_with_the_latest_schema() -> None:
    registry = FakeRegistry()
    text = '{"type": "object", "properties": {"weight": {"type": "number"}}}'
    await registry.register("orders-value", Schema(text, "JSON"))
    serializer = await writing(registry, use_latest_version=True)
    heavy = ORDER.model_copy(update={"weight": 1.5})
    assert serializer.serialize("orders", heavy).startswith(PREFIX)
    with pytest.raises(SerializationError, match="at weight"):
        serializer.serialize("orders", ORDER)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"orderId": 1}, "dict, not Order"),
        # Older versions of pydantic do not name the field.
        (ORDER.model_copy(update={"order_id": "x"}), "order_id|Expected `int` but got `str`"),
    ],
)
async def test_wrong_model_is_refused(value: Any, why: str) -> None:
    serializer = await writing(FakeRegistry())
    with pytest.raises(SerializationError, match=why):
        serializer.serialize("orders", value)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b'{"orderId":"x","at":"2026-01-01T00:00:00Z"}', "orderId"),
        (b'{"orderId":1,"at":"2026-01-01T00:00:00Z","weight":NaN}', "NaN is no JSON"),
        (b"{", "EOF"),
    ],
)
async def test_bytes_that_are_no_such_model_are_refused(payload: bytes, why: str) -> None:
    registry = FakeRegistry()
    await writing(registry)
    with pytest.raises(SerializationError, match=f"(?s)schema id 1.*{why}"):
        await read_back(reading(registry), PREFIX + payload)


async def test_text_may_contain_the_word_infinity() -> None:
    registry = FakeRegistry()
    line = Line(item="Infinity and NaN", price=Decimal(1))
    data = (await writing(registry, Line)).serialize("orders", line)
    assert await read_back(reading(registry, Line), data) == line


def test_class_without_a_schema_raises_config_error() -> None:
    class Odd(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        thing: Schema

    with pytest.raises(ConfigError, match="Odd has no JSON Schema"):
        PydanticSerializer(FakeRegistry(), Odd)
    with pytest.raises(ConfigError, match="BaseModel"):
        PydanticDeserializer(FakeRegistry(), dict)  # type: ignore[type-var]
