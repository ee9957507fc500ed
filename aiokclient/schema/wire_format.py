"""The bytes that say with which schema a key or value was written.

They stand before the payload, or in a record header:

    prefix   00, the id as a big-endian int32, [indexes], payload
    header   01, the GUID in 16 bytes, [indexes]; the payload is bare

Only Protobuf has indexes: the way to the message in its file, which may contain many. They are
zigzag varints, their number first. The way to the first message, [0], is the single byte 00.

A header may also hold an id in the form of a prefix. A header has precedence over a prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from aiokclient.errors import SerializationError

PREFIX_SIZE: Final = 5
_GUID_SIZE: Final = 17
_ID: Final = b"\x00"
_GUID: Final = b"\x01"
_MAX_DEPTH: Final = 100
"""Largest number of indexes. Protobuf's compiler allows messages nested to a depth of 32."""


def header_name(part: str) -> str:
    """Return the name of the record header for the schema of a part, "key" or "value"."""
    return f"__{part}_schema_id"


def encode_id(schema_id: int) -> bytes:
    """Return the prefix for a schema id."""
    return _ID + schema_id.to_bytes(4, "big", signed=True)


def encode_guid(guid: UUID) -> bytes:
    """Return the content of a header for the GUID of a schema."""
    return _GUID + guid.bytes


def key_of_header(content: bytes) -> bytes:
    """Return the part of a header's content that identifies the schema, without indexes."""
    return content[: _GUID_SIZE if content[:1] == _GUID else PREFIX_SIZE]


def decode_key(key: bytes) -> int | UUID | None:
    """Return the id or GUID in the bytes that identify a schema, or None if there is neither."""
    if len(key) == PREFIX_SIZE and key[:1] == _ID:
        schema_id = int.from_bytes(key[1:], "big", signed=True)
        return schema_id if schema_id >= 0 else None
    if len(key) == _GUID_SIZE and key[:1] == _GUID:
        return UUID(bytes=key[1:])
    return None


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """Return the indexes of a Protobuf message as zigzag varints."""
    if list(indexes) == [0]:
        return b"\x00"
    encoded = bytearray()
    for number in (len(indexes), *indexes):
        rest = number << 1
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
    return bytes(encoded)


def decode_indexes(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a Protobuf message, and where the bytes after them start.

    Raises SerializationError if there are no valid indexes.
    """
    count, position = _decode_varint(data, start)
    if count == 0:
        return (0,), position
    if not 0 < count <= _MAX_DEPTH:
        raise SerializationError(f"The Protobuf message has {count} indexes, which is not valid.")
    indexes: list[int] = []
    while len(indexes) < count:
        index, position = _decode_varint(data, position)
        if index < 0:
            raise SerializationError(f"The Protobuf message has the index {index}.")
        indexes.append(index)
    return tuple(indexes), position


def _decode_varint(data: bytes, start: int) -> tuple[int, int]:
    result = 0
    for position in range(start, min(len(data), start + 5)):
        byte = data[position]
        result |= (byte & 0x7F) << 7 * (position - start)
        if byte < 0x80:
            return result >> 1 ^ -(result & 1), position + 1
    raise SerializationError("The indexes of the Protobuf message are cut off, or too large.")
