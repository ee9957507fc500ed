"""Zstandard frames, with or without their content size (Java's writer leaves it out).

The streaming reader cannot distinguish the end of its input from the end of the content. To detect
a truncated stream, the block headers are checked first.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import TypeVar

import zstandard

from aiokclient.errors import CorruptRecordError
from aiokclient.record.compression import collected, piece_size
from aiokclient.record.crc import Buffer

_MAGIC = 0xFD2FB528
_SKIPPABLE, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_SINGLE_SEGMENT, _CHECKSUM = 0x20, 0x04  # Flags of the frame descriptor.
_DICTIONARY_ID_SIZES = (0, 1, 2, 4)
_CONTENT_SIZE_SIZES = (0, 2, 4, 8)
_RLE = 1  # The type of a block that is one repeated byte.


_Context = TypeVar("_Context")

# Idle contexts, for reuse: they are expensive to create, and two threads must not share one.
_MOST_IDLE = 4
_compressors: dict[int, list[zstandard.ZstdCompressor]] = {}
_decompressors: list[zstandard.ZstdDecompressor] = []


def compress(data: Buffer, level: int) -> Buffer:
    """Return `data` as one frame."""
    idle = _compressors.setdefault(level, [])
    compressor = _take(idle) or zstandard.ZstdCompressor(level=level)
    compressed = compressor.compress(data)
    _put_back(idle, compressor)
    return compressed


def decompress(data: Buffer, limit: int) -> Buffer:
    """Return the content of the frames, at most `limit` bytes."""
    return collected(pieces(data, piece_size(data, limit)), limit, "zstd")


def pieces(data: Buffer, size: int) -> Iterator[Buffer]:
    """Yield the content of the frames in pieces of at most `size` bytes."""
    _check_complete(data)
    decompressor = _take(_decompressors) or zstandard.ZstdDecompressor()
    # The package's `decompress` needs the content size, which Java's writer leaves out.
    reader = decompressor.stream_reader(data, read_across_frames=True)
    try:
        while piece := reader.read(size):
            yield piece
    except zstandard.ZstdError as error:
        raise CorruptRecordError(f"The zstd content cannot be decompressed: {error}.") from None
    _put_back(_decompressors, decompressor)


def _take(idle: list[_Context]) -> _Context | None:
    try:
        return idle.pop()
    except IndexError:
        return None


def _put_back(idle: list[_Context], context: _Context) -> None:
    if len(idle) < _MOST_IDLE:
        idle.append(context)


def has_many_blocks(data: Buffer, most: int) -> bool:
    """Return whether there are more than `most` blocks, each of which costs a Python iteration."""
    return next(islice(_blocks(data), most, None), None) is not None


def _check_complete(data: Buffer) -> None:
    position = 0
    for position in _blocks(data):  # noqa: B007 - the last one counts
        pass
    if position > len(data):
        raise CorruptRecordError("The zstd stream is incomplete.")


def _blocks(data: Buffer) -> Iterator[int]:
    """Yield the end position of each block and of each frame."""
    position = 0
    while position < len(data) or position == 0:
        position = yield from _frame(data, position)
        yield position


def _frame(data: Buffer, position: int) -> Generator[int, None, int]:
    magic = int.from_bytes(data[position : position + 4], "little")
    if magic & _SKIPPABLE_MASK == _SKIPPABLE:
        return position + 8 + int.from_bytes(data[position + 4 : position + 8], "little")
    if magic != _MAGIC or len(data) < position + 5:
        raise CorruptRecordError("There is no zstd frame.")
    flags = data[position + 4]
    position += 5 + _DICTIONARY_ID_SIZES[flags & 3] + _CONTENT_SIZE_SIZES[flags >> 6]
    if not flags & _SINGLE_SEGMENT:
        position += 1  # The size of the window.
    elif flags >> 6 == 0:
        position += 1  # A content size of one byte.
    last = False
    while not last:
        if position + 3 > len(data):
            raise CorruptRecordError("The zstd stream is incomplete.")
        block = int.from_bytes(data[position : position + 3], "little")
        last = bool(block & 1)
        position += 3 + (1 if block >> 1 & 3 == _RLE else block >> 3)
        yield position
    return position + (4 if flags & _CHECKSUM else 0)
