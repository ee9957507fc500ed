"""Functions for primitive types, which the compiled codecs call, and for their errors.

All functions that read compare a length with the remaining bytes before they
allocate memory, and raise ProtocolError if it is too large. Lengths of one
byte, the usual case, are read inline by the compiled code.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from functools import lru_cache
from reprlib import Repr
from struct import Struct, unpack_from
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from aiokclient.errors import ProtocolError, UnsupportedVersionError
from aiokclient.errors.local import EncodeError
from aiokclient.protocol.fields import Field, Scalar

if TYPE_CHECKING:
    from aiokclient.protocol.fields import Buffer

MAX_STRING = 0x7FFF  # In bytes. Kafka has this limit even where the length is a varint.
_SMALL = 17


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 32 bits, and the position after it."""
    value = buffer[position]
    position += 1
    if value < 0x80:
        return value, position
    return continue_uvarint(buffer, position, value)


def continue_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint after a first byte with the highest bit set."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ProtocolError(f"The varint that ends at byte {position} has more than 32 bits.")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


@lru_cache(maxsize=1024)
def uuid_from(data: bytes) -> UUID:
    """Return the UUID of 16 bytes. Topic ids are repeated, so some are cached."""
    return UUID(bytes=data)


def integer_readers(code: str) -> list[object]:
    """Return functions that unpack 0, 1, 2, ... integers, for short arrays such as replicas."""
    return [Struct(f">{count}{code}").unpack_from for count in range(_SMALL)]


def integer_writers(code: str) -> list[object]:
    """Return functions that pack 0, 1, 2, ... integers."""
    return [Struct(f">{count}{code}").pack for count in range(_SMALL)]


def read_tags(buffer: Buffer, position: int, count: int) -> tuple[dict[int, bytes], int]:
    """Read a section of tagged fields that are all unknown.

    count: the first byte of the encoded number of fields, which was already read
    """
    count, position = tag_count(buffer, position, count)
    tags: dict[int, bytes] = {}
    tag = -1
    for _ in range(count):
        tag, stop, position = read_tag(buffer, position, tag)
        tags[tag] = bytes(buffer[position:stop])
        position = stop
    return tags, position


def tag_count(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the rest of the number of tagged fields.

    Raises ProtocolError if too few bytes remain: each tagged field takes at least two.
    """
    if first > 0x7F:
        first, position = continue_uvarint(buffer, position, first)
    if first * 2 > len(buffer) - position:
        raise ProtocolError(
            f"The message announces {first} tagged fields, but only {len(buffer) - position} "
            "bytes remain."
        )
    return first, position


def read_tag(buffer: Buffer, position: int, last: int) -> tuple[int, int, int]:
    """Read the head of a tagged field. Return its tag, its end position and its start position."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if tag <= last:
        raise ProtocolError(f"Tagged field {tag} comes after {last}. Tags must increase.")
    if size > len(buffer) - position:
        raise ProtocolError(
            f"Tagged field {tag} announces {size} bytes, but only {len(buffer) - position} remain."
        )
    return tag, position + size, position


def write_tags(
    out: bytearray, known: dict[int, bytearray] | None, unknown: dict[int, bytes] | None, label: str
) -> None:
    """Append a section of tagged fields in the order of their tags."""
    fields: dict[int, bytes | bytearray] = dict(unknown or ())
    for tag in known or ():
        if tag in fields:
            raise ProtocolError(
                f"{label}: Unknown tagged field {tag} has the tag of a known field."
            )
    fields.update(known or {})
    write_uvarint(out, len(fields))
    for tag in sorted(fields):
        value = fields[tag]
        write_uvarint(out, tag)
        write_uvarint(out, len(value))
        out += value


def records_size(value: Buffer | Sequence[Buffer]) -> int:
    """Return the number of bytes of a buffer or a sequence of segments."""
    if isinstance(value, (list, tuple)):
        return sum(map(records_size, value))
    if isinstance(value, memoryview):
        return value.nbytes
    return len(value)


def add_segments(segments: list[Buffer], value: Buffer | Sequence[Buffer]) -> None:
    """Append record batches to the segments of a frame, as they are."""
    parts = value if isinstance(value, (list, tuple)) else (value,)
    for part in parts:
        if not isinstance(part, (bytes, bytearray, memoryview)):
            raise TypeError(f"Encoded records must be bytes, not {type(part).__name__}.")
    segments.extend(parts)


def integers(buffer: Buffer, position: int, count: int, code: str) -> list[int]:
    """Unpack many integers. The caller has checked that the buffer has enough bytes."""
    return [*unpack_from(f">{count}{code}", buffer, position)]


def bad_length(label: str, length: int, buffer: Buffer, position: int) -> NoReturn:
    """Refuse an impossible length or count."""
    what = "null" if length == -1 else str(length)
    raise ProtocolError(
        f"{label} has length {what} at byte {position}, where {len(buffer) - position} bytes "
        "remain."
    )


def bad_tag_size(label: str, tag: int, stop: int, position: int) -> NoReturn:
    """Refuse a tagged field whose value does not have the stated size."""
    raise ProtocolError(
        f"{label}: Tagged field {tag} ends at byte {position}, but its size says {stop}."
    )


def too_short(label: str, buffer: Buffer) -> NoReturn:
    """Refuse a message that ends before its last field."""
    raise ProtocolError(f"{label} ends before its last field. It has {len(buffer)} bytes.")


def too_long(label: str, length: int) -> NoReturn:
    """Refuse to encode a string that Kafka could not read."""
    raise EncodeError(f"{label} has a string of {length} bytes. At most {MAX_STRING} are allowed.")


def not_in_version(label: str, version: int) -> NoReturn:
    """Refuse to encode a value for which a version of a message has no field."""
    raise UnsupportedVersionError(f"{label} is set, but version {version} has no such field.")


def null_in_version(label: str, version: int) -> NoReturn:
    """Refuse None for a field that is not nullable in a version of a message."""
    raise UnsupportedVersionError(f"{label} is None, which version {version} does not allow.")


def tags_in_version(label: str, version: int) -> NoReturn:
    """Refuse tagged fields in a version that is not flexible."""
    raise UnsupportedVersionError(
        f"{label} has unknown tagged fields, but version {version} has no tagged fields."
    )


def bad_text(label: str, error: UnicodeDecodeError) -> NoReturn:
    """Refuse a string that is not UTF-8."""
    raise ProtocolError(f"{label} has a string that is not UTF-8: {error.reason}.") from error


def cannot_encode(label: str, message: Any, version: int, error: Exception) -> NoReturn:
    """Refuse a value that has a wrong type or is out of the range of its field.

    If a value is found that does not fit, the error names its field. Such an error does not contain
    the interpreter's own message, which may show the value, because the value may be secret.
    """
    found = misfit(message, version)
    if found is not None:
        raise EncodeError(f"{label} cannot be encoded: {found}.") from None
    raise EncodeError(f"{label} cannot be encoded: {error}.") from error


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "records": (bytes, bytearray, memoryview, list, tuple),
}


def misfit(message: Any, version: int) -> str | None:
    """Describe the first value that does not fit its field: its path and the value.

    For a secret value, only its type is shown. Returns None if every value fits: the error then has
    another cause.
    """
    for field in message._fields:
        if not field.present_in(version):
            continue
        value = getattr(message, field.name, None)
        if value is None and field.nullable_in(version):
            continue
        found = _in_field(field, value, version)
        if found is not None:
            return f"{field.name}{found}"
    return None


def _in_field(field: Field, value: Any, version: int) -> str | None:
    if field.kind != "array":
        return _in_element(field, value, version)
    if not isinstance(value, Collection):
        return f" is {_shown(field, value)}, not a list"
    for index, element in enumerate(value):
        found = _in_element(field, element, version)
        if found is not None:
            return f"[{index}]{found}"
    return None


def _in_element(field: Field, value: Any, version: int) -> str | None:
    element = field.element
    if not isinstance(element, Scalar):
        if not isinstance(value, element):
            return f" is {_shown(field, value)}, not a {element.__name__}"
        inner = misfit(value, version)
        return None if inner is None else f".{inner}"
    if _fits(element, value):
        return None
    return f" is {_shown(field, value)}, which does not fit the type {element.kind}"


def _shown(field: Field, value: Any) -> str:
    """Format a value for an error message. Secrets are hidden and long values are shortened."""
    if not field.shows:
        return f"a hidden value of type {type(value).__name__}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    return _SHORT.repr(value)


def _fits(kind: Scalar, value: Any) -> bool:
    try:
        if kind.kind == "uuid":
            return len(value.bytes) == kind.size
        if kind.code:
            struct.pack(">" + kind.code, value)
        elif kind.kind == "string":
            value.encode()
    except (struct.error, AttributeError, TypeError, ValueError):
        return False
    return isinstance(value, _TYPES.get(kind.kind, object))
