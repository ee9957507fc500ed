"""The forms of keys and values: texts, JSON, hexadecimal digits, base64, numbers, packed fields.

Also the conditions for records that are written.

Each class is the type of an option: it is called with the text, and raises `ArgumentTypeError`.
"""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from aiokclient.cli.output import as_text_or_base64

if TYPE_CHECKING:
    from aiokclient import ConsumerRecord

    Record = ConsumerRecord[bytes, bytes]

NAMES = ("text", "json", "hex", "base64", "int", "auto")
SCHEMAS = ("avro", "json-schema", "protobuf")
"""The forms whose schemas are in a registry."""
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-9]{1,3})|(.))", re.DOTALL)
_FIELDS = {"b": (1, True), "h": (2, True), "i": (4, True), "q": (8, True)}
FIELDS: Mapping[str, tuple[int, bool]] = _FIELDS | {
    name.upper(): (size, False) for name, (size, _) in _FIELDS.items()
}
"""The integers of packed fields: their size in bytes, and whether they have a sign."""


class ContentError(ValueError):
    """An error raised if a key or value does not have the form that was asked for."""


def unescape(text: str) -> bytes:
    r"""Return a text as UTF-8, with `\n`, `\t`, `\r`, `\xHH`, and `\NNN` replaced.

    `\NNN` is decimal, and octal if it begins with 0, as in kcat. Before any other character, the
    backslash stands for that character.
    """
    parts = []
    at = 0
    for match in _ESCAPE.finditer(text):
        digits, number, other = match.groups()
        parts.append(text[at : match.start()].encode())
        if digits:
            parts.append(bytes([int(digits, 16)]))
        elif number:
            octal = number.startswith("0") and not set(number) & {"8", "9"}
            parts.append(bytes([int(number, 8 if octal else 10) & 0xFF]))
        else:
            parts.append(ESCAPES.get(other, other.encode()))
        at = match.end()
    parts.append(text[at:].encode())
    return b"".join(parts)


class Delimiter:
    r"""Bytes between records, or between a key and a value, with escapes such as `\n` or `\x00`."""

    def __init__(self, text: str) -> None:
        self.content = unescape(text)
        if not self.content:
            raise ArgumentTypeError("a delimiter must have at least one character")


class Form(Protocol):
    """The form in which a key or value is written."""

    def to_bytes(self, content: bytes) -> bytes:
        """Return the content for a line of text. Raises ContentError."""

    def to_json(self, content: bytes) -> Any:
        """Return the content for a JSON document. Raises ContentError."""


class NamedForm:
    """The form of one of the names text, json, hex, base64, int, and auto."""

    plain: ClassVar[tuple[str, ...]] = ("text",)
    """The names of forms that leave the bytes as they are."""

    def __init__(self, text: str) -> None:
        name = text.partition(":")[0]
        if name in SCHEMAS:
            raise ArgumentTypeError(
                f"{name} needs a registry: give it by --key-format or --value-format; here, there "
                f"are {', '.join(NAMES)}"
            )
        if text not in NAMES:
            known = ", ".join((*NAMES, *SCHEMAS))
            raise ArgumentTypeError(f"{text!r} is no format; there are {known}")
        self.name = text
        self.is_plain = text in self.plain

    def to_bytes(self, content: bytes) -> bytes:
        """Return the content for a line of text. Raises ContentError."""
        if self.is_plain:
            return content
        shown = self.to_json(content)
        if self.name == "json":
            return compact_json(shown)
        if isinstance(shown, dict):  # Bytes that are not UTF-8.
            shown = shown["base64"]
        return str(shown).encode()

    def to_json(self, content: bytes) -> Any:
        """Return the content for a JSON document. Raises ContentError."""
        if self.name == "json":
            try:
                return json.loads(content)
            except ValueError:
                raise ContentError("is not JSON") from None
        if self.name == "hex":
            return content.hex()
        if self.name == "base64":
            from base64 import b64encode

            return b64encode(content).decode()
        if self.name == "int":
            if len(content) not in (1, 2, 4, 8):
                raise ContentError(f"is no integer, because it has {len(content)} bytes")
            return int.from_bytes(content, "big", signed=True)
        return as_text_or_base64(content)


class DecodedContent(bytes):
    """A key or value that was decoded with its schema, as JSON."""


class RefusedContent(bytes):
    """A key or value that could not be decoded with a schema."""

    reason = ""
    """Why not, as what follows the name of the record."""


class SchemaForm:
    """The form of contents whose schemas are in a registry: avro, json-schema, protobuf[:MESSAGE].

    `auto` stands for all of them, and for text where there is no id of a schema. The contents are
    decoded before they are written; see `schemas.py`.
    """

    is_plain = False

    def __init__(self, text: str) -> None:
        self.name, _, self.message = text.partition(":")
        if self.name not in (*SCHEMAS, "auto") or (self.message and self.name != "protobuf"):
            known = ", ".join((*SCHEMAS, "protobuf:MESSAGE"))
            raise ArgumentTypeError(f"{text!r} is no format of a schema; there are {known}")

    def to_bytes(self, content: bytes) -> bytes:
        """Return the content for a line of text. Raises ContentError."""
        if isinstance(content, DecodedContent):
            return content
        shown = self.to_json(content)
        return str(shown["base64"] if isinstance(shown, dict) else shown).encode()

    def to_json(self, content: bytes) -> Any:
        """Return the content for a JSON document. Raises ContentError."""
        if isinstance(content, RefusedContent):
            raise ContentError(content.reason)
        if isinstance(content, DecodedContent):
            return json.loads(content)
        return as_text_or_base64(content)


class AnyForm:
    """A form by its name, with or without schemas, for --key-format and --value-format."""

    def __init__(self, text: str) -> None:
        has_schemas = text.partition(":")[0] in SCHEMAS
        self.form: NamedForm | SchemaForm = (SchemaForm if has_schemas else NamedForm)(text)


class PackedForm:
    """Fields that follow each other, as in kcat's pack strings.

    `<` and `>` are little and big endian, the default. b, h, i, and q are integers of 1, 2, 4, and
    8 bytes, without a sign as capitals. `c` is a character, `s` the rest, `$` the end,
    and a space a space in lines.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        unknown = [each for each in text if each not in "<>cs$ " and each not in FIELDS]
        if unknown:
            raise ArgumentTypeError(
                f"{unknown[0]!r} is no field; there are < > b B h H i I q Q c s $"
            )

    def to_bytes(self, content: bytes) -> bytes:
        """Return the fields, with the spaces of the pack string. Raises ContentError."""
        fields = iter(self._unpack_fields(content))
        written = []
        for letter in self.text:
            if letter == " ":
                written.append(b" ")
            elif letter not in "<>$":
                field = next(fields)
                written.append(field if isinstance(field, bytes) else str(field).encode())
        return b"".join(written)

    def to_json(self, content: bytes) -> Any:
        """Return the only field, or a list of them. Raises ContentError."""
        fields = [
            as_text_or_base64(each) if isinstance(each, bytes) else each
            for each in self._unpack_fields(content)
        ]
        return fields[0] if len(fields) == 1 else fields

    def _unpack_fields(self, content: bytes) -> list[int | bytes]:
        fields: list[int | bytes] = []
        order: Any = "big"
        at = 0
        for each in self.text:
            if each in "<>":
                order = "little" if each == "<" else "big"
            elif each == "$":
                if at < len(content):
                    raise ContentError(f"has {len(content) - at} bytes after its fields")
            elif each == "s":
                fields.append(content[at:])
                at = len(content)
            elif each != " ":
                size, signed = FIELDS.get(each, (1, False))
                part = content[at : at + size]
                if len(part) < size:
                    raise ContentError(f"ends within the field {each}")
                at += size
                fields.append(part if each == "c" else int.from_bytes(part, order, signed=signed))
        return fields


class Unpack:
    """A pack string, for the key, the value, or both: `key=PACK`, `value=PACK`, or `PACK`."""

    def __init__(self, text: str) -> None:
        part, equals, fields = text.partition("=")
        if equals and part not in ("key", "value"):
            raise ArgumentTypeError(f"{text!r} is not key=PACK or value=PACK, such as key=i")
        self.parts = (part,) if equals else ("key", "value")
        if (fields if equals else text).partition(":")[0] in SCHEMAS:
            NamedForm(fields if equals else text)  # It raises the error for schemas.
        self.form = PackedForm(fields if equals else text)


def compact_json(item: Any) -> bytes:
    """Return an item as JSON in one line, with characters as they are."""
    return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()


class RecordFilter:
    """A condition of --grep: [!]PART:PATTERN, where the pattern is searched in the part.

    The parts are k (key), v (value), t (topic), hk (names of headers), hv (their values), and
    h:NAME=PATTERN.
    """

    def __init__(self, text: str) -> None:
        self._is_negated = text.startswith("!")
        part, separator, pattern = text.removeprefix("!").partition(":")
        name = ""
        if part == "h":
            name, separator, pattern = pattern.partition("=")
        parts: Mapping[str, Callable[[Record], Iterable[bytes | None]]] = {
            "k": lambda record: (record.key,),
            "v": lambda record: (record.value,),
            "t": lambda record: (record.topic.encode(),),
            "hk": lambda record: (each.encode() for each, _ in record.headers),
            "hv": lambda record: (value for _, value in record.headers),
            "h": lambda record: (value for each, value in record.headers if each == name),
        }
        if not separator or part not in parts:
            raise ArgumentTypeError(
                f"{text!r} is not k:PATTERN, v:PATTERN, t:, hk:, hv:, or h:NAME=PATTERN"
            )
        self._find_parts = parts[part]
        try:
            self._search = re.compile(pattern.encode()).search
        except re.error as error:
            raise ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None

    def accepts_record(self, record: Record) -> bool:
        """Return whether a record fulfils the condition."""
        parts = self._find_parts(record)
        found = any(part is not None and self._search(part) for part in parts)
        return found is not self._is_negated
