"""Serialization of pydantic models, as JSON with a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from aiokclient.errors import ConfigError
from aiokclient.schema.deserializer import Read, SchemaDeserializer
from aiokclient.schema.json_schema import (
    decode_json,
    explain_error,
    make_validator,
    require_jsonschema,
)
from aiokclient.schema.serializer import (
    Refuse,
    SchemaSerializer,
    SubjectStrategy,
    Write,
    needed_extra,
)
from aiokclient.schema.wire_format import PREFIX_SIZE
from aiokclient.types import public_in

if TYPE_CHECKING:
    from pydantic import BaseModel

    from aiokclient.schema.registry import SchemaRegistry
    from aiokclient.schema.schema import Schema

ModelT = TypeVar("ModelT", bound="BaseModel")

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
"""The draft that pydantic writes. Without it, some registries do not see that it is JSON Schema."""


@public_in("aiokclient.schema")
class PydanticSerializer(SchemaSerializer[ModelT]):
    """A serializer for keys or values that are pydantic models, as JSON.

    The schema is generated from `model`, with the aliases of its fields. It is registered, or with
    `auto_register=False` must be in the registry. With `use_latest_version`, what is written is
    validated with the latest schema of the subject instead. `strict` refuses models whose fields
    have values of wrong types, which pydantic itself allows after construction. The other arguments
    are those of JsonSchemaSerializer.

    Raises ConfigError if no schema can be generated, or for wrong arguments, and ImportError if
    pydantic or jsonschema-rs is not installed.
    """

    schema_type = "JSON"

    def __init__(
        self,
        registry: SchemaRegistry,
        model: type[ModelT],
        *,
        subject: SubjectStrategy = "TOPIC",
        auto_register: bool | None = None,
        use_latest_version: bool = False,
        normalize: bool = False,
        schema_id_in: Literal["prefix", "header"] = "prefix",
        strict: bool = True,
    ) -> None:
        require_model("PydanticSerializer", model)
        super().__init__(
            registry,
            generate_schema(model),
            record_name=model.__name__,
            subject=subject,
            auto_register=auto_register,
            use_latest_version=use_latest_version,
            normalize=normalize,
            schema_id_in=schema_id_in,
            strict=strict,
        )
        self._model = model

    def _make_writer(
        self, schema: Schema, references: Mapping[str, Schema], prefix: bytes, refuse: Refuse
    ) -> Write:
        validate = None
        if self._use_latest_version:
            validate = make_validator(schema, references)
        model = self._model
        warnings: Literal["error", "none"] = "error" if self._strict else "none"

        def write(value: Any) -> bytes:
            try:
                if not isinstance(value, model):
                    raise TypeError(f"it is of type {type(value).__name__}, not {model.__name__}")
                text = value.model_dump_json(by_alias=True, warnings=warnings)
                if "NaN" in text or "Infinity" in text:
                    decode_json(text)  # Raises for them, but not if they stand in a string.
                if validate is not None:
                    validate(json.loads(text))
                return prefix + text.encode()
            except Exception as error:
                raise refuse(explain_error(error)) from error

        return write


@public_in("aiokclient.schema")
class PydanticDeserializer(SchemaDeserializer[ModelT]):
    """A deserializer for keys or values that are JSON with a JSON Schema, as pydantic models.

    `model` validates the values; that they match the schema with which they were written is not
    checked again.

    `subject` is any subject of the context in which ids are looked up, such as
    ":.context:orders-value"; None means the context of the registry's URL.

    Raises ConfigError if `model` is no class of models, and ImportError if pydantic is not
    installed.
    """

    schema_type = "JSON"

    def __init__(
        self, registry: SchemaRegistry, model: type[ModelT], *, subject: str | None = None
    ) -> None:
        require_model("PydanticDeserializer", model)
        super().__init__(registry, None, subject)
        self._model = model

    async def _make_reader(self, schema: Schema, where: str, refuse: Refuse) -> Read:
        validate = self._model.model_validate_json

        def read(data: bytes, header: bytes | None) -> Any:
            try:
                text = data[PREFIX_SIZE:] if header is None else data
                if b"NaN" in text or b"Infinity" in text:
                    decode_json(text.decode())  # pydantic would accept them as numbers.
                return validate(text)
            except Exception as error:
                raise refuse(error) from error

        return read


def require_model(user: str, model: object) -> None:
    """Raise ImportError without pydantic, and ConfigError for what is no class of models."""
    try:
        from pydantic import BaseModel
    except ImportError as error:
        raise needed_extra(user, "pydantic", "pydantic") from error
    require_jsonschema(user, "pydantic")
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise ConfigError(f"{user} needs a class that derives from pydantic.BaseModel.")


def generate_schema(model: type[BaseModel]) -> Schema:
    """Return the schema of what a model is written as."""
    from pydantic.errors import PydanticInvalidForJsonSchema

    from aiokclient.schema.schema import Schema

    try:
        content = model.model_json_schema(by_alias=True, mode="serialization")
    except PydanticInvalidForJsonSchema as error:
        raise ConfigError(f"{model.__name__} has no JSON Schema: {error.message}.") from error
    text = json.dumps({"$schema": _DRAFT, **content}, separators=(",", ":"))
    return Schema(text, "JSON")
