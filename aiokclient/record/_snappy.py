"""Snappy as Kafka has it: raw blocks inside the framing of xerial's snappy-java.

The framing is a header of 16 bytes (eight of magic, two versions), then blocks, each with its
compressed length before it. Some clients write one raw block without the framing; both are read.
"""

from __future__ import annotations

from collections.abc import Iterator

import cramjam

from aiokclient.errors import CorruptRecordError
from aiokclient.record.crc import Buffer

__all__ = ["compress_snappy", "decompress_snappy"]

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_BLOCK = 64 * 1024  # as far as a raw block looks back

_DENSEST = 64
"""No element of a raw block yields more bytes than this for one of its own."""


def compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    pieces = [_HEADER]
    for start in range(0, len(view), _BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK]))
        pieces += (len(block).to_bytes(4, "big"), block)
    return b"".join(pieces)


def decompress_snappy(data: Buffer, limit: int) -> bytes:
    """The content of `data`; CorruptRecordError for what is not snappy or over `limit` bytes."""
    view = memoryview(data)
    framed = view[: len(_MAGIC)] == _MAGIC
    blocks = list(_blocks(view)) if framed else [view]
    sizes = [_content_size(block) for block in blocks]
    if sum(sizes) > limit:
        raise CorruptRecordError(f"snappy content of {sum(sizes)} bytes is over {limit}")
    try:
        return b"".join(
            [bytes(cramjam.snappy.decompress_raw(block)) for block in blocks if len(block)]
        )
    except cramjam.DecompressionError as error:
        raise CorruptRecordError(f"the snappy content cannot be decompressed: {error}") from None


def _blocks(view: memoryview) -> Iterator[memoryview]:
    position = len(_HEADER)
    if len(view) < position:
        raise CorruptRecordError("a snappy header is incomplete")
    while position < len(view):
        if view[position : position + len(_MAGIC)] == _MAGIC:  # streams written one after another
            position += len(_HEADER)
            continue
        start = position + 4
        position = start + int.from_bytes(view[start - 4 : start], "big")
        if start > len(view) or position > len(view):
            raise CorruptRecordError("a snappy block reaches past the end")
        yield view[start:position]


def _content_size(block: memoryview) -> int:
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 127) << 7 * index
        if byte < 128:
            break
    else:
        raise CorruptRecordError("a snappy block has no valid length")
    if size > _DENSEST * len(block):
        raise CorruptRecordError("a snappy block states more content than it can hold")
    return size
