"""Snappy as Kafka uses it: raw blocks in the framing of xerial's snappy-java.

The framing is a header of 16 bytes (eight magic bytes and two versions), and then blocks, each
after its compressed length. Some clients write one raw block without the framing. Both forms can be
read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import cramjam

from aiokclient.errors import CorruptRecordError
from aiokclient.record.compression import check_size, collected
from aiokclient.record.crc import Buffer

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_BLOCK = 64 * 1024  # The largest distance of a back reference in a raw block.

_DENSEST = 64
"""Largest number of content bytes that one byte of a raw block can produce."""


def compress(data: Buffer, level: int) -> Buffer:
    """Return `data` compressed, in xerial's framing. The level is ignored."""
    view = memoryview(data)
    parts = [_HEADER]
    for start in range(0, len(view), _BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def decompress(data: Buffer, limit: int) -> Buffer:
    """Return the content of `data`, at most `limit` bytes."""
    view = memoryview(data)
    if view[: len(_MAGIC)] != _MAGIC:
        check_size(_content_size(view), limit, "snappy")
        return _decompressed(view)
    check_size(sum(map(_content_size, _blocks(view))), limit, "snappy")
    return collected(pieces(view, 0), limit, "snappy")


def pieces(data: Buffer, size: int) -> Iterator[Buffer]:
    """Yield the content block by block. `size` is ignored."""
    view = memoryview(data)
    framed = view[: len(_MAGIC)] == _MAGIC
    for block in _blocks(view) if framed else (view,):
        _content_size(block)
        if len(block):
            yield _decompressed(block)


def has_many_blocks(data: Buffer, most: int) -> bool:
    """Return whether the framing holds more than `most` blocks, each of which costs a call."""
    view = memoryview(data)
    if view[: len(_MAGIC)] != _MAGIC:
        return False
    return next(islice(_blocks(view), most, None), None) is not None


def _decompressed(block: memoryview) -> bytes:
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptRecordError(f"The snappy content cannot be decompressed: {error}.") from None


def _blocks(view: memoryview) -> Iterator[memoryview]:
    position = len(_HEADER)
    if len(view) < position:
        raise CorruptRecordError("A snappy header is incomplete.")
    while position < len(view):
        if view[position : position + len(_MAGIC)] == _MAGIC:  # Another stream follows.
            position += len(_HEADER)
            continue
        start = position + 4
        position = start + int.from_bytes(view[start - 4 : start], "big")
        if start > len(view) or position > len(view):
            raise CorruptRecordError("A snappy block reaches past the end of the content.")
        yield view[start:position]


def _content_size(block: memoryview) -> int:
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 127) << 7 * index
        if byte < 128:
            break
    else:
        raise CorruptRecordError("A snappy block has no valid length.")
    if size > _DENSEST * len(block):
        raise CorruptRecordError("A snappy block announces more content than it can have.")
    return size
