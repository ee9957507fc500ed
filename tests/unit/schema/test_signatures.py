"""Tests of the arguments that serializers and deserializers show and take."""

import inspect
from typing import Any

import pytest
from pydantic import BaseModel
from registry_fake import FakeRegistry

from aiokclient.schema import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    PydanticDeserializer,
    PydanticSerializer,
)

OPTIONS = {
    "subject": "TOPIC",
    "auto_register": None,
    "use_latest_version": False,
    "normalize": False,
    "schema_id_in": "prefix",
    "strict": True,
}


class Order(BaseModel):
    item: str


@pytest.mark.parametrize(
    ("owner", "positional", "options"),
    [
        (AvroSerializer, {"schema": None}, {**OPTIONS, "to_dict": None}),
        (AvroDeserializer, {"schema": None}, {"from_dict": None, "subject": None}),
        (JsonSchemaSerializer, {"schema": None}, {**OPTIONS, "to_dict": None}),
        (JsonSchemaDeserializer, {"schema": None}, {"from_dict": None, "subject": None}),
        (ProtobufSerializer, {"message_type": None}, OPTIONS),
        (ProtobufDeserializer, {"message_type": None}, {"subject": None}),
        (PydanticSerializer, {"model": inspect.Parameter.empty}, OPTIONS),
        (PydanticDeserializer, {"model": inspect.Parameter.empty}, {"subject": None}),
    ],
)
def test_signature_shows_each_argument_with_its_default(
    owner: Any, positional: dict[str, Any], options: dict[str, Any]
) -> None:
    registry, *others = inspect.signature(owner).parameters.values()
    assert registry.name == "registry"
    shown = [(each.name, each.default, each.kind) for each in others]
    assert shown == [
        *(
            (name, default, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for name, default in positional.items()
        ),
        *((name, default, inspect.Parameter.KEYWORD_ONLY) for name, default in options.items()),
    ]


@pytest.mark.parametrize(
    ("owner", "given"),
    [
        (AvroSerializer, '"int"'),
        (AvroDeserializer, '"int"'),
        (JsonSchemaSerializer, "{}"),
        (JsonSchemaDeserializer, "{}"),
        (ProtobufSerializer, None),
        (ProtobufDeserializer, None),
        (PydanticSerializer, Order),
        (PydanticDeserializer, Order),
    ],
)
def test_unknown_argument_raises_type_error(owner: Any, given: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'register'"):
        owner(FakeRegistry(), given, register=True)
