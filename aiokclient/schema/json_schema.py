"""Serialization with JSON Schema, by the standard library's json and by jsonschema-rs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from aiokclient.errors import ConfigError, SerializationError
from aiokclient.schema.deserializer import Read, SchemaDeserializer, T_co
from aiokclient.schema.schema_text import to_schema
from aiokclient.schema.serializer import (
    Refuse,
    SchemaSerializer,
    SubjectStrategy,
    V_contra,
    Write,
    describe_error,
    needed_extra,
)
from aiokclient.schema.wire_format import PREFIX_SIZE
from aiokclient.types import public_in

if TYPE_CHECKING:
    from aiokclient.schema.registry import SchemaRegistry
    from aiokclient.schema.schema import Schema

Validate = Callable[[Any], None]
"""A function that raises an exception for what a schema does not allow."""

encode_json: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode
"""Return the JSON of a value, without spaces. NaN and the infinities are no JSON."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


decode_json: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode
"""Return the value of a JSON text. NaN and the infinities are no JSON."""


@public_in("aiokclient.schema")
class JsonSchemaSerializer(SchemaSerializer[V_contra]):
    """A serializer for keys or values that are JSON with a JSON Schema.

    `schema` is a Schema, its text, or the object of its JSON. None means the latest schema of the
    subject, with `use_latest_version=True`. `to_dict(value)` converts an object of the application
    to a value of JSON, such as a dict.

    `strict` validates each value. The other arguments are those of AvroSerializer; the name of the
    record is the title of the schema. The drafts 4, 6, 7, 2019-09, and 2020-12 are known. Formats,
    such as "date", are not validated, and nothing is fetched from the addresses in a schema: what
    it refers to must be among its references.

    Raises ConfigError for wrong arguments or a schema that is not valid, and ImportError if
    jsonschema-rs is not installed.
    """

    schema_type = "JSON"

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema | str | Mapping[str, Any] | None = None,
        *,
        subject: SubjectStrategy = "TOPIC",
        auto_register: bool | None = None,
        use_latest_version: bool = False,
        normalize: bool = False,
        schema_id_in: Literal["prefix", "header"] = "prefix",
        strict: bool = True,
        to_dict: Callable[[V_contra], Any] | None = None,
    ) -> None:
        require_jsonschema("JsonSchemaSerializer")
        self._to_dict = to_dict
        given = to_schema(schema, self.schema_type)
        super().__init__(
            registry,
            given,
            record_name=None if given is None else check_schema(given),
            subject=subject,
            auto_register=auto_register,
            use_latest_version=use_latest_version,
            normalize=normalize,
            schema_id_in=schema_id_in,
            strict=strict,
        )

    def _make_writer(
        self, schema: Schema, references: Mapping[str, Schema], prefix: bytes, refuse: Refuse
    ) -> Write:
        validate = None
        if self._strict:
            validate = make_validator(schema, references)
        to_dict = self._to_dict

        def write(value: Any) -> bytes:
            try:
                if to_dict is not None:
                    value = to_dict(value)
                data = encode_json(value).encode()
                if validate is not None:
                    validate(value)
                return prefix + data
            except Exception as error:
                raise refuse(explain_error(error)) from error

        return write


@public_in("aiokclient.schema")
class JsonSchemaDeserializer(SchemaDeserializer[T_co]):
    """A deserializer for keys or values that are JSON with a JSON Schema.

    Values are validated with `schema`, if it is given, or else with the schema with which they were
    written. `from_dict(value)` converts the value to an object of the application.

    `subject` is any subject of the context in which ids are looked up, such as
    ":.context:orders-value"; None means the context of the registry's URL.

    Raises ConfigError for a schema that is not valid, and ImportError if jsonschema-rs is not
    installed.
    """

    schema_type = "JSON"

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema | str | Mapping[str, Any] | None = None,
        *,
        from_dict: Callable[[Any], T_co] | None = None,
        subject: str | None = None,
    ) -> None:
        require_jsonschema("JsonSchemaDeserializer")
        given = to_schema(schema, self.schema_type)
        if given is not None:
            check_schema(given)
        super().__init__(registry, given, subject)
        self._from_dict = from_dict

    async def _make_reader(self, schema: Schema, where: str, refuse: Refuse) -> Read:
        wanted = self._schema or schema
        named = "" if self._schema else where
        validate = make_validator(wanted, await self._resolve(wanted), named)
        from_dict = self._from_dict

        def read(data: bytes, header: bytes | None) -> Any:
            try:
                value = decode_json((data[PREFIX_SIZE:] if header is None else data).decode())
                validate(value)
                return value if from_dict is None else from_dict(value)
            except Exception as error:
                raise refuse(explain_error(error)) from error

        return read


def require_jsonschema(user: str, extra: str = "json-schema") -> None:
    """Raise ImportError, which names the extra, if jsonschema-rs is not installed."""
    try:
        import jsonschema_rs  # noqa: F401
    except ImportError as error:
        raise needed_extra(user, "jsonschema-rs", extra) from error


def check_schema(schema: Schema) -> str | None:
    """Return the title of a schema, or None if it has none.

    Raises ConfigError if the schema is not valid, as far as that can be said without references.
    """
    try:
        if not schema.references:
            make_validator(schema, {})
        content = json.loads(schema.text)
    except (ValueError, SerializationError) as error:
        raise ConfigError(f"The JSON Schema is not valid: {describe_error(error)}") from error
    title = content.get("title") if isinstance(content, dict) else None
    return title if isinstance(title, str) else None


def make_validator(schema: Schema, references: Mapping[str, Schema], where: str = "") -> Validate:
    """Return a function that validates values. `references` has the referenced schemas by name.

    Raises SerializationError if the schema is not valid.
    """
    import jsonschema_rs

    try:
        content = decode_json(schema.text)
        # A relative name is resolved against the base of a schema without an id.
        resources = [(name, decode_json(each.text)) for name, each in references.items()]
        registry = jsonschema_rs.Registry(resources, retriever=_refuse_retrieval)
        return jsonschema_rs.validator_for(
            content,
            registry=registry,
            retriever=_refuse_retrieval,
            mask="the value",
            validate_formats=False,
        ).validate
    except Exception as error:
        named = where or "The JSON Schema"
        why = describe_error(explain_error(error))
        raise SerializationError(
            f"{named[:1].upper()}{named[1:]} cannot be used: {why} "
            "Check that all to which it refers is among its references."
        ) from error


def _refuse_retrieval(address: str) -> NoReturn:
    raise LookupError(f"{address} is not among the references")


def explain_error(error: Exception) -> Exception:
    """Return an error of a validation with where it is, and without the lines that repeat it."""
    message = getattr(error, "message", None)
    if message is None:
        return error
    path = "/".join(str(each) for each in getattr(error, "instance_path", ()))
    return ValueError(f"{message} (at {path})" if path else message)
