"""Schemas of keys and values: a client of schema registries, and serializers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient.schema.avro import AvroDeserializer, AvroSerializer
    from aiokclient.schema.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
    from aiokclient.schema.protobuf import ProtobufDeserializer, ProtobufSerializer
    from aiokclient.schema.pydantic import PydanticDeserializer, PydanticSerializer
    from aiokclient.schema.registry import SchemaRegistry
    from aiokclient.schema.schema import (
        CompatibilityCheck,
        RegisteredSchema,
        RegistryConfig,
        Schema,
        SchemaReference,
    )

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "CompatibilityCheck",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "PydanticDeserializer",
    "PydanticSerializer",
    "RegisteredSchema",
    "RegistryConfig",
    "Schema",
    "SchemaReference",
    "SchemaRegistry",
]

_MODULES = {
    "AvroDeserializer": "avro",
    "AvroSerializer": "avro",
    "CompatibilityCheck": "schema",
    "JsonSchemaDeserializer": "json_schema",
    "JsonSchemaSerializer": "json_schema",
    "ProtobufDeserializer": "protobuf",
    "ProtobufSerializer": "protobuf",
    "PydanticDeserializer": "pydantic",
    "PydanticSerializer": "pydantic",
    "RegisteredSchema": "schema",
    "RegistryConfig": "schema",
    "Schema": "schema",
    "SchemaReference": "schema",
    "SchemaRegistry": "registry",
}
"""The module of each public name. `.ci/write-names` writes it from the imports above."""


if not TYPE_CHECKING:  # If type checkers saw the function, they would accept any name.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
