"""Serialization with Protobuf."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from aiokclient.errors import ConfigError, SerializationError
from aiokclient.schema.columns import Column, protobuf_column
from aiokclient.schema.deserializer import Read, SchemaDeserializer
from aiokclient.schema.proto.classes import build_classes
from aiokclient.schema.proto.files import list_messages, parse_file
from aiokclient.schema.schema import Schema, SchemaReference
from aiokclient.schema.serializer import (
    Refuse,
    SchemaSerializer,
    SubjectStrategy,
    Write,
    needed_extra,
)
from aiokclient.schema.wire_format import PREFIX_SIZE, decode_indexes, encode_indexes, key_of_header
from aiokclient.types import public_in

if TYPE_CHECKING:
    import pyarrow
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import Message

    # Only type checkers need this package. Without `message_type`, messages are of any type.
    from typing_extensions import TypeVar as TypeVarWithDefault

    from aiokclient.schema.registry import SchemaRegistry

    MessageT = TypeVarWithDefault("MessageT", bound=Message, default=Any)
else:
    MessageT = TypeVar("MessageT", bound="Message")

_BUILT_IN: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Imports of files that every client has. They are no references in a registry."""


@public_in("aiokclient.schema")
class ProtobufSerializer(SchemaSerializer[MessageT | Mapping[str, Any]], Generic[MessageT]):
    """A serializer for keys or values that are Protobuf messages.

    `message_type` is a class that protoc has generated. Values are its messages, or dicts in
    Protobuf's JSON form, in which `strict` refuses fields that the message lacks. With
    `use_latest_version`, it may also be the name of a message in the registry's schema, or None for
    the first one; values are dicts then. The schema is the
    file of the message; the files that it imports are registered before it, each under its path as
    the subject, and are its references. With `use_latest_version`, the message must be in the
    latest schema of the subject.

    The other arguments are those of AvroSerializer; the name of the record is the full name of the
    message. Raises ConfigError for wrong arguments, and ImportError if protobuf is not installed.
    """

    schema_type = "PROTOBUF"

    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[MessageT] | str | None = None,
        *,
        subject: SubjectStrategy = "TOPIC",
        auto_register: bool | None = None,
        use_latest_version: bool = False,
        normalize: bool = False,
        schema_id_in: Literal["prefix", "header"] = "prefix",
        strict: bool = True,
    ) -> None:
        own, self._name = None, None
        if isinstance(message_type, str) or message_type is None:
            require_message_type("ProtobufSerializer", None)
            self._message_type: type[MessageT] | None = None
            self._name = message_type
        else:
            require_message_type("ProtobufSerializer", message_type)
            self._message_type = message_type
            self._name = message_type.DESCRIPTOR.full_name
            own = Schema(_encode_file(message_type.DESCRIPTOR.file), self.schema_type)
        super().__init__(
            registry,
            own,
            record_name=self._name,
            subject=subject,
            auto_register=auto_register,
            use_latest_version=use_latest_version,
            normalize=normalize,
            schema_id_in=schema_id_in,
            strict=strict,
        )

    async def _complete_schema(self) -> Schema:
        assert self._message_type is not None  # The constructor has checked it.
        file = self._message_type.DESCRIPTOR.file
        return Schema(_encode_file(file), self.schema_type, await self._find_references(file, {}))

    async def _find_references(
        self, file: FileDescriptor, known: dict[str, SchemaReference]
    ) -> list[SchemaReference]:
        """Return the references to the files that a file imports, which are registered first."""
        references = []
        for imported in file.dependencies:
            if imported.name.startswith(_BUILT_IN):
                continue
            if imported.name not in known:
                known[imported.name] = await self._find_reference(imported, known)
            references.append(known[imported.name])
        return references

    async def _find_reference(
        self, file: FileDescriptor, known: dict[str, SchemaReference]
    ) -> SchemaReference:
        references = await self._find_references(file, known)
        schema = Schema(_encode_file(file), self.schema_type, references)
        registry, version = self._registry, None
        if self._auto_register:
            registered = await registry.register(file.name, schema, normalize=self._normalize)
            version = registered.version
        if version is None:
            version = (await registry.lookup(file.name, schema, normalize=self._normalize)).version
        assert version is not None  # A lookup returns it.
        return SchemaReference(file.name, file.name, version)

    def _encode_suffix(self, schema: Schema) -> bytes:
        if schema is self._schema and self._message_type is not None:
            return encode_indexes(_indexes_of(self._message_type.DESCRIPTOR))
        return encode_indexes(find_indexes(parse_file(schema), self._name))

    def _make_writer(
        self, schema: Schema, references: Mapping[str, Schema], prefix: bytes, refuse: Refuse
    ) -> Write:
        from google.protobuf.json_format import ParseDict

        lenient = not self._strict
        message_type: Any = self._message_type
        if message_type is None:
            file = parse_file(schema)
            classes = build_classes(file, references, f"the schema of {self._name or 'a message'}")
            message_type = classes[find_indexes(file, self._name)]

        def write(value: Any) -> bytes:
            try:
                if not isinstance(value, message_type):
                    if not isinstance(value, Mapping):
                        raise TypeError(
                            f"it is of type {type(value).__name__}, not {message_type.__name__}"
                        )
                    value = ParseDict(value, message_type(), ignore_unknown_fields=lenient)
                # Equal messages get equal bytes, which decide the partition of a key.
                payload: bytes = value.SerializeToString(deterministic=True)
                return prefix + payload
            except Exception as error:
                raise refuse(error) from error

        return write


@public_in("aiokclient.schema")
class ProtobufDeserializer(SchemaDeserializer[MessageT]):
    """A deserializer for keys or values that are Protobuf messages.

    `message_type` is a class that protoc has generated. What was written as another message is
    refused. Without it, messages are of classes that are made of the registry's schemas, which may
    be texts of .proto files or descriptors in base64.

    `subject` is any subject of the context in which ids are looked up, such as
    ":.context:orders-value"; None means the context of the registry's URL.

    Raises ConfigError if `message_type` is no class of messages, and ImportError if protobuf is not
    installed.
    """

    schema_type = "PROTOBUF"

    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[MessageT] | None = None,
        *,
        subject: str | None = None,
    ) -> None:
        require_message_type("ProtobufDeserializer", message_type)
        super().__init__(registry, None, subject)
        self._message_type = message_type

    def arrow_column(self, values: Sequence[Any]) -> pyarrow.Array:
        """Return an array of messages, as `arrow_batches(value_schema=)` needs it.

        Messages are structs, in which fields that are not set are null if Protobuf tells them from
        those with a default. Enums are strings, and well-known types Arrow's own. Raises
        ConfigError if the deserializer has no `message_type`, or one that contains itself.
        """
        return self._column.build(values)

    @cached_property
    def _column(self) -> Column:
        if self._message_type is None:
            raise ConfigError(
                "arrow_batches(value_schema=) needs a ProtobufDeserializer with a message_type."
            )
        return protobuf_column(self._message_type.DESCRIPTOR)

    async def _make_reader(self, schema: Schema, where: str, refuse: Refuse) -> Read:
        file = parse_file(schema, where)
        if self._message_type is not None:
            return self._make_typed_reader(self._message_type, _names_by_indexes(file), refuse)
        return _make_dynamic_reader(build_classes(file, await self._resolve(schema), where), refuse)

    def _make_typed_reader(
        self, message_type: type[MessageT], names: Mapping[bytes, list[str]], refuse: Refuse
    ) -> Read:
        parse, full_name = message_type.FromString, message_type.DESCRIPTOR.full_name
        expected = next((code for code, known in names.items() if full_name in known), b"")
        start = PREFIX_SIZE + len(expected)

        def read(data: bytes, header: bytes | None) -> Any:
            try:
                if header is None and expected and data.startswith(expected, PREFIX_SIZE):
                    return parse(data[start:])
                indexes, payload = split_indexes(data, header)
                known = names.get(encode_indexes(indexes), [])
                if full_name not in known:
                    found = f"the message {known[0]}" if known else "no message"
                    raise ValueError(f"it is {found} of the schema, not {full_name}")
                return parse(payload)
            except Exception as error:
                raise refuse(error) from error

        return read


def _make_dynamic_reader(classes: Mapping[tuple[int, ...], type[Message]], refuse: Refuse) -> Read:
    def read(data: bytes, header: bytes | None) -> Any:
        try:
            indexes, payload = split_indexes(data, header)
            if indexes not in classes:
                raise ValueError(f"the schema has no message with the indexes {list(indexes)}")
            return classes[indexes].FromString(payload)
        except Exception as error:
            raise refuse(error) from error

    return read


def split_indexes(data: bytes, header: bytes | None) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes of a message, and its bytes."""
    if header is None:
        indexes, start = decode_indexes(data, PREFIX_SIZE)
        return indexes, data[start:]
    return decode_indexes(header, len(key_of_header(header)))[0], data


def require_message_type(user: str, message_type: object) -> None:
    """Raise ImportError without protobuf, and ConfigError for what is no class of messages."""
    try:
        from google.protobuf.message import Message
    except ImportError as error:
        raise needed_extra(user, "protobuf", "protobuf") from error
    if message_type is None:
        return
    if not (isinstance(message_type, type) and issubclass(message_type, Message)):
        raise ConfigError(f"{user} needs a class of messages, as protoc generates it.")


def _encode_file(file: FileDescriptor) -> str:
    return b64encode(file.serialized_pb).decode()


def _indexes_of(descriptor: Descriptor) -> tuple[int, ...]:
    """Return the way to a message in its file."""
    if descriptor.containing_type is None:
        siblings = list(descriptor.file.message_types_by_name.values())
        return (siblings.index(descriptor),)
    siblings = list(descriptor.containing_type.nested_types)
    return (*_indexes_of(descriptor.containing_type), siblings.index(descriptor))


def _names_by_indexes(file: FileDescriptorProto) -> dict[bytes, list[str]]:
    """Return the full names of the messages that encoded indexes may mean.

    Each map field has a message for its entries. Java's serializer does not count these messages,
    and others do.
    """
    names: dict[bytes, list[str]] = {}
    for counted in (True, False):
        for way, name in list_messages(file, with_entries=counted).items():
            known = names.setdefault(encode_indexes(way), [])
            if name not in known:
                known.append(name)
    return names


def find_indexes(file: FileDescriptorProto, name: str | None) -> tuple[int, ...]:
    """Return the way to a message in a file, by its full name or the last part of it.

    None means the first message. Raises SerializationError if there is no such message.
    """
    names = list_messages(file)
    for way, full_name in names.items():
        if name is None or name in (full_name, full_name.rpartition(".")[2]):
            return way
    raise SerializationError(
        f"The schema has no message {name or ''}. It has {', '.join(names.values()) or 'none'}."
    )
