"""Serialization with Avro, by fastavro."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

from aiokclient.errors import ConfigError, SerializationError
from aiokclient.schema.columns import Column, avro_column
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
    import pyarrow

    from aiokclient.schema.registry import SchemaRegistry
    from aiokclient.schema.schema import Schema


@public_in("aiokclient.schema")
class AvroSerializer(SchemaSerializer[V_contra]):
    """A serializer for keys or values with an Avro schema.

    `schema` is a Schema, its text, or the object of its JSON. None means the latest schema of the
    subject, with `use_latest_version=True`. Values are those of fastavro: dicts for records,
    Decimal, datetime, and UUID for logical types, and tuples of a name and a value to choose the
    branch of a union.

    `subject` is a strategy (TOPIC, RECORD, TOPIC_RECORD, or ASSOCIATED), or a function of the
    topic, the part ("key" or "value"), and the name of the record. With `auto_register`, the schema
    is registered; otherwise, it must be in the registry. None, the default, is True, unless
    `use_latest_version` is True, with which values are written with the subject's latest schema.
    `normalize` is what the registry does before it compares schemas. `schema_id_in="header"` writes
    the GUID of the schema to a record header instead of the id before the payload. `strict` refuses
    dicts with a field that the schema lacks, or without a field that has no default.
    `to_dict(value)` converts an object of the application to a value of fastavro.

    Raises ConfigError for wrong arguments or a schema that is not valid, and ImportError if
    fastavro is not installed.
    """

    schema_type = "AVRO"

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
        require_fastavro("AvroSerializer")
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
        from fastavro import schemaless_writer

        parsed = parse_schema(schema, references)
        to_dict, strict = self._to_dict, self._strict

        def write(value: Any) -> bytes:
            output = BytesIO()
            try:
                if to_dict is not None:
                    value = to_dict(value)
                schemaless_writer(output, parsed, value, strict_allow_default=strict)
            except Exception as error:
                raise refuse(error) from error
            return prefix + output.getvalue()

        def write_bytes(value: Any) -> bytes:
            if to_dict is not None:
                try:
                    value = to_dict(value)
                except Exception as error:
                    raise refuse(error) from error
            if not isinstance(value, bytes | bytearray):
                raise refuse(TypeError(f"the schema is bytes, not {type(value).__name__}"))
            return prefix + value

        return write_bytes if is_raw(parsed) else write


@public_in("aiokclient.schema")
class AvroDeserializer(SchemaDeserializer[T_co]):
    """A deserializer for keys or values that were written with Avro schemas.

    `schema` is the reader's schema: values of other schemas are converted to it by Avro's rules
    (added fields get their defaults, removed ones are dropped). Without it, a value is returned as
    it was written. `from_dict(value)` converts the value to an object of the application.

    `subject` is any subject of the context in which ids are looked up, such as
    ":.context:orders-value"; None means the context of the registry's URL.

    Raises ConfigError for a schema that is not valid, and ImportError if fastavro is not installed.
    """

    schema_type = "AVRO"

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema | str | Mapping[str, Any] | None = None,
        *,
        from_dict: Callable[[Any], T_co] | None = None,
        subject: str | None = None,
    ) -> None:
        require_fastavro("AvroDeserializer")
        given = to_schema(schema, self.schema_type)
        if given is not None:
            check_schema(given)
        super().__init__(registry, given, subject)
        self._from_dict = from_dict

    def arrow_column(self, values: Sequence[Any]) -> pyarrow.Array:
        """Return an array of deserialized values, as `arrow_batches(value_schema=)` needs it.

        Records are structs, and enums and UUIDs strings. Raises ConfigError if the deserializer has
        no schema of its own, or one that no column fits: with references, with a record that
        contains itself, or with a union of several types.
        """
        return self._column.build(values)

    @cached_property
    def _column(self) -> Column:
        if self._schema is None or self._schema.references or self._from_dict is not None:
            raise ConfigError(
                "arrow_batches(value_schema=) needs an AvroDeserializer with a schema of its own "
                "that has no references, and without from_dict."
            )
        return avro_column(parse_schema(self._schema, {}))

    async def _make_reader(self, schema: Schema, where: str, refuse: Refuse) -> Read:
        from fastavro import schemaless_reader

        parsed = parse_schema(schema, await self._resolve(schema), where)
        wanted = None
        if self._schema is not None:
            wanted = parse_schema(self._schema, await self._resolve(self._schema))
            if is_raw(parsed) and is_raw(wanted):
                wanted = parsed
            elif is_raw(parsed) or is_raw(wanted):
                raise SerializationError(
                    f"{where.capitalize()} is bytes, or the deserializer's schema is, and the "
                    "other is not. Remove the schema of the deserializer."
                )
            elif wanted == parsed:
                wanted = None  # fastavro would compare them for each record.
        from_dict = self._from_dict

        def read(data: bytes, header: bytes | None) -> Any:
            source = BytesIO(data)
            if header is None:
                source.seek(PREFIX_SIZE)
            try:
                value = schemaless_reader(source, parsed, wanted)
                if rest := source.read():
                    raise ValueError(f"{len(rest)} bytes remain after the value")
                return value if from_dict is None else from_dict(value)
            except Exception as error:
                raise refuse(error) from error

        def read_bytes(data: bytes, header: bytes | None) -> Any:
            value = data[PREFIX_SIZE:] if header is None else data
            try:
                return value if from_dict is None else from_dict(value)
            except Exception as error:
                raise refuse(error) from error

        return read_bytes if is_raw(parsed) else read


def require_fastavro(user: str) -> None:
    """Raise ImportError, which names the extra, if fastavro is not installed."""
    try:
        import fastavro  # noqa: F401
    except ImportError as error:
        raise needed_extra(user, "fastavro", "avro") from error


def check_schema(schema: Schema) -> str | None:
    """Return the name of the record that a schema describes, or None for a union.

    Raises ConfigError if the schema is not valid, as far as that can be said without references.
    """
    try:
        if not schema.references:
            parse_schema(schema, {})
        content = json.loads(schema.text)
    except (ValueError, SerializationError) as error:
        raise ConfigError(f"The Avro schema is not valid: {describe_error(error)}") from error
    if isinstance(content, str):
        return content
    if not isinstance(content, dict):
        return None
    name, namespace = content.get("name", content.get("type")), content.get("namespace")
    if not isinstance(name, str):
        return None
    return f"{namespace}.{name}" if namespace and "name" in content and "." not in name else name


def parse_schema(schema: Schema, references: Mapping[str, Schema], where: str = "") -> Any:
    """Return the schema as fastavro needs it. `references` has the referenced schemas by name.

    Raises SerializationError if it is not valid.
    """
    from fastavro.repository.base import AbstractSchemaRepository
    from fastavro.schema import load_schema

    class References(AbstractSchemaRepository):
        def load(self, name: str) -> Any:
            if name not in contents:
                raise LookupError(f"it refers to {name}, which neither it nor a reference defines")
            return deepcopy(contents[name])  # fastavro changes what it gets.

    try:
        contents: dict[str, Any] = {"$root": json.loads(schema.text)}
        for name, referenced in references.items():
            content = contents[name] = json.loads(referenced.text)
            if isinstance(content, dict) and "name" in content:
                contents.setdefault(_full_name(content), content)
        return _intern_strings(load_schema("$root", repo=References()), {})
    except Exception as error:  # Those of fastavro have no base class of their own.
        named = where or f"The {schema.type} schema"
        raise SerializationError(
            f"{named[:1].upper()}{named[1:]} cannot be parsed: {describe_error(error)}"
        ) from error


def _intern_strings(part: Any, copies: dict[int, Any]) -> Any:
    """Return a copy of a part of a parsed schema, with its strings interned.

    For each record, fastavro looks up the keys of the schema, and compares types and names with
    constants of its own, which are interned. Strings from JSON are not, so that each of these is a
    comparison of characters: 600 instructions for a record of two fields, 4,000 for one with a list
    of two records. The names of fields are also the keys of the dicts that it returns. `copies` has
    the copy of each part by the id of the part, because some parts occur more than once.
    """
    if type(part) is str:
        return sys.intern(part)
    if id(part) in copies:
        return copies[id(part)]
    if isinstance(part, list):
        elements = copies[id(part)] = list(part)
        elements[:] = [_intern_strings(element, copies) for element in part]
        return elements
    if isinstance(part, dict):
        entries: dict[str, Any] = {}
        copies[id(part)] = entries
        for key, content in part.items():
            entries[sys.intern(key)] = _intern_strings(content, copies)
        return entries
    return part


def _full_name(content: Mapping[str, Any]) -> str:
    name, namespace = str(content["name"]), content.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def is_raw(parsed: Any) -> bool:
    """Return whether values of a schema are written without a length.

    Java's serializer writes bytes at the top level as they are, and others follow.
    """
    if isinstance(parsed, dict):
        return parsed.get("type") == "bytes" and "logicalType" not in parsed
    return bool(parsed == "bytes")
