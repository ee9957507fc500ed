"""The zigzag varints in v2 records: 32 bits in at most 5 bytes, and 64 bits in at most 10."""

from __future__ import annotations

from aiokclient.errors import CorruptRecordError
from aiokclient.record.crc import Buffer

__all__ = ["SMALL", "VARINTS", "read_varint", "read_varlong", "wrap64", "write_varint"]

SMALL = 8192
"""`VARINTS` has all numbers below this limit, whose varints have one or two bytes."""

_FIRST = [bytes((byte,)) for byte in range(256)]
VARINTS: tuple[bytes, ...] = (
    *_FIRST[:128:2],
    *[first + second for second in _FIRST[1 : SMALL >> 6] for first in _FIRST[128::2]],
)
"""The varints of small numbers, by number. Most lengths and deltas are small and not negative."""

_MASK_32 = (1 << 32) - 1
_MASK_64 = (1 << 64) - 1


def write_varint(number: int) -> bytes:
    """Encode a signed integer of at most 64 bits. 32-bit fields have the same encoding."""
    if 0 <= number < SMALL:
        return VARINTS[number]
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return a 32-bit number and the position after it. Raises IndexError past the end."""
    if (byte := data[position]) < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    if (high := data[position + 1]) < 128:
        byte = byte & 127 | high << 7
        return (byte >> 1) ^ -(byte & 1), position + 2
    return _read(data, position, 5, _MASK_32)


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Return a 64-bit number and the position after it. Raises IndexError past the end."""
    if (byte := data[position]) < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    if (high := data[position + 1]) < 128:
        byte = byte & 127 | high << 7
        return (byte >> 1) ^ -(byte & 1), position + 2
    return _read(data, position, 10, _MASK_64)


def _read(data: Buffer, position: int, longest: int, mask: int) -> tuple[int, int]:
    low, high, top = data[position], data[position + 1], data[position + 2]
    if top < 128:
        zigzag = low & 127 | (high & 127) << 7 | top << 14
        return (zigzag >> 1) ^ -(zigzag & 1), position + 3
    zigzag = 0
    for shift in range(0, 7 * longest, 7):
        byte = data[position]
        position += 1
        zigzag |= (byte & 127) << shift
        if byte < 128:
            zigzag &= mask
            return (zigzag >> 1) ^ -(zigzag & 1), position
    raise CorruptRecordError(f"A varint is longer than {longest} bytes.")


def wrap64(number: int) -> int:
    """Return `number` wrapped to a signed 64-bit integer, as Java's arithmetic does."""
    return ((number + (1 << 63)) & _MASK_64) - (1 << 63)
