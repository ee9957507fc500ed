"""Keys and values whose schemas are in a registry: as JSON to write, and of JSON to send.

Bytes in JSON are texts, or {"base64": "..."} if they are not UTF-8. Decimals, times, and UUIDs are
texts, in ISO 8601. Messages of Protobuf have the names of their fields.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

from aiokclient import ConsumerRecord, ProducerRecord
from aiokclient.cli.exit_codes import one_line
from aiokclient.cli.grammar import WrongUseError
from aiokclient.cli.output import as_text_or_base64
from aiokclient.cli.records.formats import (
    DecodedContent,
    RefusedContent,
    SchemaForm,
    compact_json,
)
from aiokclient.cli.registry import make_registry
from aiokclient.errors import SchemaNotFoundError, SerializationError

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient.schema import SchemaRegistry

    Record = ConsumerRecord[bytes, bytes]

TYPES = {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}
"""The names of forms by the types of schemas."""
PREFIX_SIZE = 5


def make_decoder(given: Namespace) -> SchemaDecoder | None:
    """Return what decodes the records of a command, or None if none of its forms has schemas."""
    forms: Mapping[str, SchemaForm] = getattr(given, "schema_forms", {})
    return SchemaDecoder(make_registry(given), forms) if forms else None


def make_encoder(given: Namespace) -> SchemaEncoder | None:
    """Return what encodes the records of a command, or None if none of its forms has schemas."""
    forms: Mapping[str, SchemaForm] = given.schema_forms
    return SchemaEncoder(make_registry(given), forms) if forms else None


class SchemaDecoder:
    """A decoder of the keys and values of records, for one command."""

    def __init__(self, registry: SchemaRegistry, forms: Mapping[str, SchemaForm]) -> None:
        self._registry = registry
        self._deserializers: dict[tuple[str, str], Any] = {}
        self._forms = forms
        self._types: dict[bytes, str | None] = {}
        """The names of forms of the ids that `auto` has met, or None if there is none."""
        for part, form in forms.items():
            if form.name != "auto":
                self._find_deserializer(part, form.name)

    async def close(self) -> None:
        """Close the registry."""
        await self._registry.close()

    async def decode_records(self, records: Sequence[Record]) -> list[Record]:
        """Return records with the contents that could be decoded as JSON.

        Raises SchemaRegistryUnavailableError if the registry cannot be reached.
        """
        decoded = list(records)
        for part, form in self._forms.items():
            names = [await self._find_name(getattr(each, part), form) for each in records]
            for name in {name for name in names if name is not None}:
                deserializer = self._find_deserializer(part, name)
                indexes = [index for index, each in enumerate(names) if each == name]
                items = [
                    (getattr(records[index], part), records[index].headers) for index in indexes
                ]
                await deserializer.prepare(records[0].topic, items)
                for index in indexes:
                    content = self._decode(deserializer, decoded[index], part, form)
                    decoded[index] = _replaced(decoded[index], part, content)
        return decoded

    async def _find_name(self, content: bytes | None, form: SchemaForm) -> str | None:
        """Return the name of the form in which a content is decoded, or None to leave it."""
        if form.name != "auto":
            return form.name
        if content is None or content[:1] != b"\x00" or len(content) < PREFIX_SIZE:
            return None
        key = content[:PREFIX_SIZE]
        if key not in self._types:
            try:
                registered = await self._registry.by_id(int.from_bytes(key[1:], "big"))
            except SchemaNotFoundError:
                self._types[key] = None
            else:
                self._types[key] = TYPES.get(registered.schema.type)
        return self._types[key]

    def _find_deserializer(self, part: str, name: str) -> Any:
        key = part, name
        if key not in self._deserializers:
            self._deserializers[key] = _make_deserializer(self._registry, name)
            self._deserializers[key].bind(part)
        return self._deserializers[key]

    def _decode(
        self, deserializer: Any, record: Record, part: str, form: SchemaForm
    ) -> bytes | None:
        content: bytes | None = getattr(record, part)
        try:
            value = deserializer.deserialize(record.topic, content, record.headers)
            if value is None:
                return None if content is None else DecodedContent(b"null")
            return DecodedContent(compact_json(_to_json(value, form.message)))
        except SerializationError as error:
            if form.name == "auto":
                return content
            refused = RefusedContent(content or b"")
            refused.reason = f"cannot be decoded: {(one_line(error) or str(error)).rstrip('.')}"
            return refused


def _replaced(record: Record, part: str, content: bytes | None) -> Record:
    parts: dict[str, Any] = {"key": record.key, "value": record.value, part: content}
    return ConsumerRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        parts["key"],
        parts["value"],
        record.headers,
        record.leader_epoch,
    )


def _make_deserializer(registry: SchemaRegistry, name: str) -> Any:
    from aiokclient.schema import AvroDeserializer, JsonSchemaDeserializer, ProtobufDeserializer

    made: dict[str, Any] = {
        "avro": AvroDeserializer,
        "json-schema": JsonSchemaDeserializer,
        "protobuf": ProtobufDeserializer,
    }
    try:
        return made[name](registry)
    except ImportError as error:
        raise WrongUseError(str(error)) from error


def _to_json(value: Any, message: str) -> Any:
    descriptor = getattr(value, "DESCRIPTOR", None)
    if descriptor is None:
        return to_plain(value)
    if message and message not in (descriptor.full_name, descriptor.name):
        raise SerializationError(f"it is the message {descriptor.full_name}, not {message}")
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(value, preserving_proto_field_name=True)


def to_plain(value: Any) -> Any:
    """Return a value of Avro as a value of JSON."""
    if isinstance(value, dict):
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    if isinstance(value, bytes):
        return as_text_or_base64(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float) else str(value)


class SchemaEncoder:
    """An encoder of the keys and values of records, for one command."""

    def __init__(self, registry: SchemaRegistry, forms: Mapping[str, SchemaForm]) -> None:
        self._registry = registry
        self._serializers: dict[str, Any] = {}
        for part, form in forms.items():
            self._serializers[part] = _make_serializer(registry, form)
            self._serializers[part].bind(part)

    async def close(self) -> None:
        """Close the registry."""
        await self._registry.close()

    async def prepare(self, topic: str) -> None:
        """Find the latest schemas of a topic. Raises the registry's errors."""
        for serializer in self._serializers.values():
            await serializer.prepare(topic)

    def encode_items(
        self, topic: str, items: Sequence[Any], error: str
    ) -> tuple[Sequence[Any], str]:
        """Return items, up to the first that a schema does not allow, and why there are no more."""
        encoded: list[Any] = []
        for item in items:
            parts = {"key": None, "value": item}
            if isinstance(item, ProducerRecord):
                parts = {"key": item.key, "value": item.value}
            try:
                for part, serializer in self._serializers.items():
                    if parts[part] is not None:
                        value = from_text(parts[part])
                        parts[part] = serializer.serialize(topic, value, ())
            except SerializationError as refused:
                return encoded, str(refused)
            if isinstance(item, ProducerRecord):
                item = ProducerRecord(
                    item.topic,
                    parts["value"],
                    parts["key"],
                    item.partition,
                    item.timestamp,
                    item.headers,
                )
            else:
                item = parts["value"]
            encoded.append(item)
        return encoded, error


def from_text(content: bytes) -> Any:
    """Return the value of JSON, or the text that is none. {"base64": "..."} is bytes."""
    try:
        return json.loads(content, object_hook=_find_bytes)
    except ValueError:
        return content.decode(errors="surrogateescape")


def _find_bytes(item: dict[str, Any]) -> Any:
    return b64decode(item["base64"]) if item.keys() == {"base64"} else item


def _make_serializer(registry: SchemaRegistry, form: SchemaForm) -> Any:
    from aiokclient.schema import AvroSerializer, JsonSchemaSerializer, ProtobufSerializer

    try:
        if form.name == "avro":
            return AvroSerializer[Any](registry, use_latest_version=True)
        if form.name == "json-schema":
            return JsonSchemaSerializer[Any](registry, use_latest_version=True)
        return ProtobufSerializer(registry, form.message or None, use_latest_version=True)
    except ImportError as error:
        raise WrongUseError(str(error)) from error
