"""Serializers and deserializers of each format for the same order."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import json_format
from pydantic import BaseModel

from aiokclient.schema import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    PydanticDeserializer,
    PydanticSerializer,
    SchemaRegistry,
)
from aiokclient.schema.proto.classes import build_classes
from aiokclient.schema.proto.files import parse_proto


class Order(BaseModel):
    item: str
    count: int = 1


FIELDS = [{"name": "item", "type": "string"}, {"name": "count", "type": "int", "default": 1}]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
JSON = json.dumps(
    {"$schema": "http://json-schema.org/draft-07/schema#", **Order.model_json_schema()}
)
PROTO = 'syntax = "proto3"; package shop; message Order { string item = 1; int32 count = 2; }'
MESSAGE: Any = build_classes(parse_proto(PROTO, "round_trip.proto"), {}, "it")[(0,)]
NAMES = ("avro", "json", "protobuf", "pydantic")
TEA = {"item": "tea", "count": 2}


def pair(name: str, registry: SchemaRegistry, place: Any) -> tuple[Any, Any, Any]:
    """Return a serializer and a deserializer of a format, and a value."""
    if name == "avro":
        made = AvroSerializer[Any](registry, AVRO, schema_id_in=place)
        return made, AvroDeserializer[Any](registry), TEA
    if name == "json":
        writer = JsonSchemaSerializer[Any](registry, JSON, schema_id_in=place)
        return writer, JsonSchemaDeserializer[Any](registry), TEA
    if name == "protobuf":
        return (
            ProtobufSerializer(registry, MESSAGE, schema_id_in=place),
            ProtobufDeserializer(registry, MESSAGE),
            json_format.ParseDict(TEA, MESSAGE()),
        )
    model = PydanticSerializer(registry, Order, schema_id_in=place)
    return model, PydanticDeserializer(registry, Order), Order(item="tea", count=2)
