"""A codec that interprets Kafka's definitions. It is slow and shares no code with the library."""

import struct
from typing import Any
from uuid import UUID

from wire_reference.definitions import Definition, Json, span
from wire_reference.mapping import camel
from wire_reference.samples import default_of

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}


def uvarint(value: int) -> bytes:
    more, last = value >> 7, value & 0x7F
    return bytes([last | 0x80]) + uvarint(more) if more else bytes([last])


def _element(field: Json) -> Json:
    """Return an array field's definition for one element of the array. Elements are never null."""
    return {key: value for key, value in field.items() if key != "nullableVersions"}


class Interpreter:
    """An encoder and decoder of samples of one message in one version."""

    def __init__(self, definition: Definition, version: int) -> None:
        self.definition = definition
        self.version = version
        self.flexible = definition.flexible(version)
        self.data = b""
        self.offset = 0

    def encode(self, sample: dict[str, Any]) -> bytes:
        return self._write_struct(self.definition.fields, sample)

    def decode(self, data: bytes) -> dict[str, Any]:
        self.data, self.offset = data, 0
        sample = self._read_struct(self.definition.fields)
        assert self.offset == len(data)
        return sample

    def _present(self, fields: list[Json]) -> list[Json]:
        return [field for field in fields if self.version in span(field["versions"])]

    def _compact(self, field: Json) -> bool:
        return self.flexible and field.get("flexibleVersions") != "none"

    def _write_struct(self, fields: list[Json], sample: dict[str, Any]) -> bytes:
        out, tags = b"", dict(sample.get("_tags", {}))
        for field in self._present(fields):
            value = sample.get(camel(field["name"]), default_of(field))
            if "tag" not in field:
                out += self._write(field, field["type"], value)
            elif not self._is_default(field, value):
                tags[field["tag"]] = self._write(field, field["type"], value)
        if self.flexible:
            out += uvarint(len(tags))
            for tag in sorted(tags):
                out += uvarint(tag) + uvarint(len(tags[tag])) + tags[tag]
        return out

    def _is_default(self, field: Json, value: Any) -> bool:
        inner = self.definition.inner(field)
        if inner is None or not isinstance(value, dict):
            return bool(value == default_of(field))
        return "_tags" not in value and all(
            self._is_default(part, value.get(camel(part["name"]), default_of(part)))
            for part in self._present(inner)
        )

    def _write(self, field: Json, kind: str, value: Any) -> bytes:
        inner = self.definition.inner(field)
        if kind in FIXED:
            return struct.pack(">" + FIXED[kind], value)
        if kind == "uuid":
            return bytes(value.bytes)
        if inner is not None and not kind.startswith("[]"):
            null = b"" if "nullableVersions" not in field else b"\xff" if value is None else b"\1"
            return null if value is None else null + self._write_struct(inner, value)
        size = -1 if value is None else len(value.encode() if kind == "string" else value)
        head = uvarint(size + 1) if self._compact(field) else self._head(kind).pack(size)
        if value is None:
            return head
        if kind.startswith("[]"):
            return head + b"".join(self._write(_element(field), kind[2:], one) for one in value)
        return head + (value.encode() if kind == "string" else bytes(value))

    def _head(self, kind: str) -> struct.Struct:
        return struct.Struct(">h" if kind == "string" else ">i")

    def _take(self, size: int) -> bytes:
        self.offset += size
        return self.data[self.offset - size : self.offset]

    def _read_uvarint(self) -> int:
        byte = self._take(1)[0]
        return byte & 0x7F | (self._read_uvarint() << 7 if byte & 0x80 else 0)

    def _read_struct(self, fields: list[Json]) -> dict[str, Any]:
        present = self._present(fields)
        sample = {
            camel(field["name"]): self._read(field, field["type"])
            for field in present
            if "tag" not in field
        }
        tagged = {field["tag"]: field for field in present if "tag" in field}
        for _ in range(self._read_uvarint() if self.flexible else 0):
            tag, size = self._read_uvarint(), self._read_uvarint()
            if tag in tagged:
                field = tagged[tag]
                sample[camel(field["name"])] = self._read(field, field["type"])
            else:
                sample.setdefault("_tags", {})[tag] = self._take(size)
        return sample

    def _read(self, field: Json, kind: str) -> Any:
        inner = self.definition.inner(field)
        if kind in FIXED:
            layout = struct.Struct(">" + FIXED[kind])
            return layout.unpack(self._take(layout.size))[0]
        if kind == "uuid":
            return UUID(bytes=self._take(16))
        if inner is not None and not kind.startswith("[]"):
            absent = "nullableVersions" in field and self._take(1) == b"\xff"
            return None if absent else self._read_struct(inner)
        head = self._head(kind)
        size = self._read_uvarint() - 1 if self._compact(field) else None
        if size is None:
            size = head.unpack(self._take(head.size))[0]
        if size < 0:
            return None
        if kind.startswith("[]"):
            return [self._read(_element(field), kind[2:]) for _ in range(size)]
        return self._take(size).decode() if kind == "string" else self._take(size)
