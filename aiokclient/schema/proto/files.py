"""The files of Protobuf as registries have them: as texts, or as descriptors in base64.

Java's serializer registers texts, and Confluent's registry returns them for every schema. The
Python package of Protobuf has no parser for them: that is in the compiler, protoc. This one reads
what decides how bytes are read: messages, fields, enums, and imports. Services, extensions, and
options that change no value are skipped. Groups are refused. Names of types stay as they are
written; the descriptor pool resolves them.
"""

from __future__ import annotations

import ast
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final

from aiokclient.errors import SerializationError
from aiokclient.schema.serializer import describe_error

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

    from aiokclient.schema.schema import Schema

_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<token>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'
    |\.?[A-Za-z_][\w.]*|[\d.][\w.]*(?:(?<=[eE])[+-]\d+)?|.)""",
    re.VERBOSE | re.DOTALL,
)
_SCALARS: Final = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
"""The numbers of the types in FieldDescriptorProto.Type."""
_LABELS: Final = {"optional": 1, "required": 2, "repeated": 3}
_OPTIONAL: Final = _LABELS["optional"]
_REPEATED: Final = _LABELS["repeated"]
_MESSAGE: Final = 11
_OPENING: Final = {"{": "}", "[": "]", "(": ")", "<": ">"}
_MAX_DEPTH: Final = 32
"""The greatest depth of nested messages, as in Protobuf's own compiler."""


def parse_file(schema: Schema, where: str = "", name: str = "schema.proto") -> FileDescriptorProto:
    """Return the descriptor of a schema, which is a text or a descriptor in base64.

    Raises SerializationError if it is not valid.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        try:
            file = FileDescriptorProto.FromString(b64decode(schema.text, validate=True))
            file.name = name
            return file
        except (ValueError, DecodeError):  # No base64, or by chance, and it is a text.
            return parse_proto(schema.text, name)
    except ValueError as error:
        named = where or "The Protobuf schema"
        raise SerializationError(
            f"{named[:1].upper()}{named[1:]} cannot be parsed: {describe_error(error)}"
        ) from error


def list_messages(
    file: FileDescriptorProto, *, with_entries: bool = True
) -> dict[tuple[int, ...], str]:
    """Return the full names of all messages of a file by their indexes.

    Without `with_entries`, the messages for entries of maps do not count.
    """
    found: dict[tuple[int, ...], str] = {}

    def add(messages: Any, way: tuple[int, ...], scope: str) -> None:
        counted = [each for each in messages if with_entries or not each.options.map_entry]
        for index, message in enumerate(counted):
            name = f"{scope}.{message.name}" if scope else message.name
            found[(*way, index)] = name
            add(message.nested_type, (*way, index), name)

    add(file.message_type, (), file.package)
    return found


def parse_proto(text: str, name: str) -> FileDescriptorProto:
    """Return the descriptor of a .proto file. Raises ValueError if it is not valid."""
    return _Parser(text).parse_file(name)


class _Parser:
    """A parser for one file."""

    def __init__(self, text: str) -> None:
        self._tokens = [
            token for match in _TOKEN.finditer(text) if (token := match.group("token")) is not None
        ]
        self._position = 0
        self._syntax = "proto2"

    def parse_file(self, name: str) -> FileDescriptorProto:
        from google.protobuf.descriptor_pb2 import Edition, FileDescriptorProto

        file = FileDescriptorProto(name=name)
        while self._peek():
            word = self._next()
            if word == "syntax":
                self._syntax = file.syntax = self._read_assigned_string()
            elif word == "edition":
                self._syntax = file.syntax = "editions"
                file.edition = Edition.Value(f"EDITION_{self._read_assigned_string()}")
            elif word == "package":
                file.package = self._next()
                self._expect(";")
            elif word == "import":
                self._parse_import(file)
            elif word == "message":
                self._parse_message(file.message_type.add(), 1)
            elif word == "enum":
                self._parse_enum(file.enum_type.add())
            elif word in ("option", "service", "extend"):
                self._skip_statement()
            elif word != ";":
                raise ValueError(f"{word!r} begins no statement of a .proto file")
        return file

    def _parse_import(self, file: FileDescriptorProto) -> None:
        kind = self._next() if self._peek() in ("public", "weak") else ""
        file.dependency.append(self._read_string())
        if kind == "public":
            file.public_dependency.append(len(file.dependency) - 1)
        self._expect(";")

    def _parse_message(self, message: DescriptorProto, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise ValueError(f"messages are nested more than {_MAX_DEPTH} deep")
        message.name = self._next()
        self._expect("{")
        optional: list[FieldDescriptorProto] = []
        while (word := self._next()) != "}":
            if word == "message" and self._peek(1) == "{":
                self._parse_message(message.nested_type.add(), depth + 1)
            elif word == "enum" and self._peek(1) == "{":
                self._parse_enum(message.enum_type.add())
            elif word == "oneof" and self._peek(1) == "{":
                self._parse_oneof(message)
            elif word == "map" and self._peek() == "<":
                self._parse_map(message)
            elif word in ("option", "extend", "reserved", "extensions"):
                self._skip_statement()
            elif word != ";":
                label = _LABELS.get(word)
                field = message.field.add(label=label or _OPTIONAL)
                self._parse_field(field, self._next() if label else word)
                if word == "optional" and self._syntax == "proto3":
                    optional.append(field)
        for (
            field
        ) in optional:  # Protobuf's own form of them: each in a oneof of its own, at the end.
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _parse_oneof(self, message: DescriptorProto) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._skip_statement()
            elif word != ";":
                field = message.field.add(label=_OPTIONAL, oneof_index=index)
                self._parse_field(field, word)

    def _parse_map(self, message: DescriptorProto) -> None:
        self._expect("<")
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        field = message.field.add(label=_REPEATED, type=_MESSAGE)
        self._parse_field(field, None)
        words = re.split(r"_+", field.name)
        entry = message.nested_type.add(
            name="".join(w[:1].upper() + w[1:] for w in words) + "Entry"
        )
        entry.options.map_entry = True
        field.type_name = entry.name
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            _set_type(entry.field.add(name=name, number=number, label=_OPTIONAL), kind)

    def _parse_field(self, field: FieldDescriptorProto, kind: str | None) -> None:
        if kind == "group":
            raise ValueError("groups are not supported")
        if kind is not None:
            _set_type(field, kind)
        field.name = self._next()
        self._expect("=")
        field.number = self._read_number()
        if self._peek() == "[":
            self._parse_options(field)
        self._expect(";")

    def _parse_options(self, field: FieldDescriptorProto) -> None:
        closing = self._next()
        while closing != "]":
            name = self._next()
            if name == "(":
                self._skip_until(")")
                while self._peek() != "=":
                    self._next()
            self._expect("=")
            if name == "json_name":
                field.json_name = self._read_string()
            elif name == "packed":
                field.options.packed = self._next() == "true"
            elif name == "default":
                sign = self._next() if self._peek() == "-" else ""
                quoted = self._peek()[:1] in "\"'"
                field.default_value = sign + (self._read_string() if quoted else self._next())
            else:
                while self._peek() not in (",", "]"):
                    opening = self._next()
                    if opening in _OPENING:
                        self._skip_until(_OPENING[opening])
            closing = self._next()

    def _parse_enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option" and self._peek() == "allow_alias":
                enum.options.allow_alias = self._peek(2) == "true"
            if word in ("option", "reserved"):
                self._skip_statement()
            elif word != ";":
                self._expect("=")
                enum.value.add(name=word, number=self._read_number())
                self._skip_statement()

    def _skip_statement(self) -> None:
        """Go to the end of a statement, which is a semicolon or the end of a block."""
        while (token := self._next()) != ";":
            if token in _OPENING:
                self._skip_until(_OPENING[token])
                # A block ends a service or extension, but in an option, it is a value.
                if token == "{" and self._peek() != ";":
                    return

    def _skip_until(self, closing: str) -> None:
        """Go to the end of what is in brackets, which may nest."""
        stack = [closing]
        while stack:
            token = self._next()
            if token == stack[-1]:
                stack.pop()
            elif token in _OPENING:
                stack.append(_OPENING[token])

    def _read_assigned_string(self) -> str:
        self._expect("=")
        text = self._read_string()
        self._expect(";")
        return text

    def _read_string(self) -> str:
        text = ""
        while self._peek()[:1] in ("'", '"'):  # Adjacent strings are one, as in C.
            text += str(ast.literal_eval(self._next()))
        return text

    def _read_number(self) -> int:
        sign = -1 if self._peek() == "-" else 1
        token = self._next() if sign > 0 else (self._next(), self._next())[1]
        octal = len(token) > 1 and token.isdigit() and token[0] == "0"
        return sign * (int(token, 8) if octal else int(token, 0))

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise ValueError(f"{token!r} is expected where {found!r} stands")

    def _peek(self, ahead: int = 0) -> str:
        position = self._position + ahead
        return self._tokens[position] if position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise ValueError("the text ends within a statement")
        self._position += 1
        return token


def _set_type(field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind  # Of a message or an enum, which the pool finds out.
