"""Reading the records of a v2 batch: one pass over the bytes, one call for each record.

Varints that are usually short are read inline, because a call would cost as much as the rest of the
record. A read beyond the end raises IndexError, so a length that points beyond the end is detected
by the next read. Each record must end exactly where its length says, and the last one at the end of
the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from aiokclient.errors import CorruptRecordError
from aiokclient.record.crc import Buffer
from aiokclient.types import Headers, TimestampType
from aiokclient.types.named_tuple import NamedTuple

R = TypeVar("R")

Make = Callable[
    [
        str,
        int,
        int,
        int,
        TimestampType,
        Any,
        Any,
        Headers,
        "int | None",
    ],
    R,
]
"""A constructor: topic, partition, offset, timestamp, its type, key, value, headers, epoch."""

_SIGNED = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))
"""The decoded numbers of all varints of one byte, by that byte."""

_FAR = 1 << 62
"""Above this limit, a timestamp plus a small delta may exceed 64 bits."""

_MASK_32 = (1 << 32) - 1
_MASK_64 = (1 << 64) - 1


class Head(NamedTuple):
    """The properties of a batch's records that are known before the records are read."""

    base_offset: int
    last_offset: int
    record_count: int
    base_timestamp: int
    append_time: int | None
    """The timestamp of all records, if the broker set it."""
    leader_epoch: int | None
    topic: str = ""
    partition: int = 0
    start_offset: int = 0
    """Records with a lower offset are checked, but not returned."""
    expected: int = 0
    """The smallest offset delta that the first record may have."""


def decode(data: bytes, source: bytes | memoryview, head: Head, make: Make[R]) -> list[R]:
    """Decode the records from `head.start_offset` on.

    Keys and values are slices of `source`: `data` itself for copies, a memoryview of it for views.
    Raises CorruptRecordError unless `data` is exactly `head.record_count` well-formed records.
    """
    try:
        return _decode(data, source, head, make)
    except IndexError:
        raise CorruptRecordError("The records reach past the end of the batch.") from None


def span(content: Buffer, start: int, most: int, size: int) -> tuple[int, int]:
    """Return the number of complete records from `start` on, and the position of their end.

    At most `most` records with at most `size` bytes in total are counted. Only their lengths are
    read. Raises CorruptRecordError if the first length is impossible.
    """
    count, first = 0, start
    while count < most:
        try:
            length, position = read_varint(content, start)
        except IndexError:
            break
        except CorruptRecordError:
            length, position = -1, start
        if length < 0:
            if count:
                break
            raise CorruptRecordError("A record has an impossible length.")
        end = position + length
        if end > len(content) or end - first > size:
            break
        start = end
        count += 1
    return count, start


def _decode(data: bytes, source: bytes | memoryview, head: Head, make: Make[R]) -> list[R]:
    base_offset, last_offset, count, base_timestamp, append_time, epoch = head[:6]
    topic, partition, start_offset = head[6:9]
    expected = base_offset + head.expected
    kind = TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME
    near = 128 if -_FAR < base_timestamp < _FAR else 0
    signed = _SIGNED
    records: list[R] = []
    add = records.append
    position = 0
    for _ in range(count):
        # `twice` is twice the stated end of the record. A negative length makes it odd, so that it
        # differs from twice the position after the record.
        if (byte := data[position]) < 128:
            position += 1
            twice = position + position + byte
        elif (high := data[position + 1]) < 128:
            position += 2
            twice = position + position + (byte & 127 | high << 7)
        else:
            size, position = read_varint(data, position)
            twice = 2 * (position + size) if size >= 0 else -1
        position += 1  # Skip the attributes, none of which is in use.
        if (byte := data[position]) < near:
            position += 1
            timestamp = base_timestamp + signed[byte]
        else:
            delta, position = read_varlong(data, position)
            timestamp = wrap64(base_timestamp + delta)
        if append_time is not None:
            timestamp = append_time
        if (byte := data[position]) < 128:
            position += 1
            offset = base_offset + signed[byte]
        elif (high := data[position + 1]) < 128 and not byte & 1:
            position += 2
            offset = base_offset + (byte >> 1 & 63 | high << 6)
        else:
            delta, position = read_varint(data, position)
            offset = base_offset + delta
        if offset < expected or offset > last_offset:
            raise CorruptRecordError(f"A record has offset {offset}, which is out of order.")
        expected = offset + 1
        if (byte := data[position]) < 128:
            position += 1
            key = None if byte & 1 else source[position : (position := position + (byte >> 1))]
        else:
            key, position = _bytes(data, source, position)
        if (byte := data[position]) < 128:
            position += 1
            value = None if byte & 1 else source[position : (position := position + (byte >> 1))]
        elif (high := data[position + 1]) < 128 and not byte & 1:
            position += 2
            value = source[position : (position := position + (byte >> 1 & 63 | high << 6))]
        else:
            value, position = _bytes(data, source, position)
        headers: Headers = ()
        if data[position]:
            headers, position = _headers(data, position)
        else:
            position += 1
        if position + position != twice:
            raise CorruptRecordError(
                f"The record at offset {offset} does not have its stated length."
            )
        if offset >= start_offset:
            add(make(topic, partition, offset, timestamp, kind, key, value, headers, epoch))
    if position != len(data):
        raise CorruptRecordError("Bytes are left over after the last record.")
    return records


def _bytes(
    data: bytes, source: bytes | memoryview, position: int
) -> tuple[bytes | memoryview | None, int]:
    """Read a length and that number of bytes. A negative length means null."""
    length, start = read_varint(data, position)
    if length < 0:
        return None, start
    return source[start : start + length], start + length


def _headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= len(data) - position:
        raise CorruptRecordError(f"A record has the impossible number of {count} headers.")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise CorruptRecordError("A header has no key.")
        end = position + length
        # Java's clients also replace invalid UTF-8 instead of refusing the record.
        key = str(data[position:end], "utf-8", "replace")
        length, position = read_varint(data, end)
        if length < 0:
            headers.append((key, None))
            continue
        end = position + length
        headers.append((key, data[position:end]))
        position = end
    if position > len(data):
        raise CorruptRecordError("A header reaches past the end of the batch.")
    return tuple(headers), position


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
