"""Zstandard frames, with or without their content size (Java's writer leaves it out).

The streaming reader takes the end of its input for the end of the content. So that a cut stream is
noticed, the blocks are walked first, from header to header.
"""

from __future__ import annotations

from typing import TypeVar

import zstandard

from aiokclient.errors import CorruptRecordError
from aiokclient.record.crc import Buffer

__all__ = ["compress_zstd", "decompress_zstd"]

_CHUNK = 64 * 1024
_MAGIC = 0xFD2FB528
_SKIPPABLE, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_SINGLE_SEGMENT, _CHECKSUM = 0x20, 0x04  # flags of the frame descriptor
_DICTIONARY_ID_SIZES = (0, 1, 2, 4)
_CONTENT_SIZE_SIZES = (0, 2, 4, 8)
_RLE = 1  # the type of a block that is one byte, repeated


_Context = TypeVar("_Context")

# Contexts are costly to make, and two threads must not use one at once: the idle ones wait here.
_MOST_IDLE = 4
_compressors: dict[int, list[zstandard.ZstdCompressor]] = {}
_decompressors: list[zstandard.ZstdDecompressor] = []


def compress_zstd(data: Buffer, level: int) -> bytes:
    idle = _compressors.setdefault(level, [])
    compressor = _take(idle) or zstandard.ZstdCompressor(level=level)
    compressed = compressor.compress(data)
    _put_back(idle, compressor)
    return compressed


def decompress_zstd(data: Buffer, limit: int) -> bytes:
    """The content of the frames; CorruptRecordError for what is none or over `limit` bytes."""
    _check_complete(data)
    decompressor = _take(_decompressors) or zstandard.ZstdDecompressor()
    reader = decompressor.stream_reader(data, read_across_frames=True)
    pieces: list[bytes] = []
    size, room = 0, 4 * len(data) + _CHUNK
    try:
        while piece := reader.read(min(limit + 1 - size, room)):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise CorruptRecordError(f"zstd content is over {limit} bytes")
            room *= 2
    except zstandard.ZstdError as error:
        raise CorruptRecordError(f"the zstd content cannot be decompressed: {error}") from None
    _put_back(_decompressors, decompressor)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _take(idle: list[_Context]) -> _Context | None:
    try:
        return idle.pop()
    except IndexError:
        return None


def _put_back(idle: list[_Context], context: _Context) -> None:
    if len(idle) < _MOST_IDLE:
        idle.append(context)


def _check_complete(data: Buffer) -> None:
    position = 0
    while position < len(data) or position == 0:
        position = _frame_end(data, position)
    if position > len(data):
        raise CorruptRecordError("the zstd stream is incomplete")


def _frame_end(data: Buffer, position: int) -> int:
    magic = int.from_bytes(data[position : position + 4], "little")
    if magic & _SKIPPABLE_MASK == _SKIPPABLE:
        return position + 8 + int.from_bytes(data[position + 4 : position + 8], "little")
    if magic != _MAGIC or len(data) < position + 5:
        raise CorruptRecordError("there is no zstd frame")
    flags = data[position + 4]
    position += 5 + _DICTIONARY_ID_SIZES[flags & 3] + _CONTENT_SIZE_SIZES[flags >> 6]
    if not flags & _SINGLE_SEGMENT:
        position += 1  # the size of the window
    elif flags >> 6 == 0:
        position += 1  # a content size of one byte
    last = False
    while not last:
        if position + 3 > len(data):
            raise CorruptRecordError("the zstd stream is incomplete")
        block = int.from_bytes(data[position : position + 3], "little")
        last = bool(block & 1)
        position += 3 + (1 if block >> 1 & 3 == _RLE else block >> 3)
    return position + (4 if flags & _CHECKSUM else 0)
