"""LZ4 frames as Kafka uses them: with independent blocks, because Java's reader requires them.

In message format v0, the checksum of the frame's descriptor is computed over the wrong bytes, and
all writers of v0 do the same. `mend` replaces it with the correct checksum, so that any LZ4 library
can read the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import lz4.frame

from aiokclient.errors import CorruptRecordError
from aiokclient.record.compression import collected, piece_size
from aiokclient.record.crc import Buffer

_FIRST = 64 * 1024
_MOST_BLOCKS = 4096
_CONTENT_SIZE, _DICTIONARY_ID = 0x08, 0x01  # Flags of the frame descriptor.
_MASK = 0xFFFFFFFF
_BLOCK_SIZE = 0x7FFFFFFF  # A mask. The highest bit is set if the block is not compressed.
_SIZE = struct.Struct("<I")


def compress(data: Buffer, level: int) -> Buffer:
    """Return `data` as one frame."""
    # Java's reader refuses frames with linked blocks.
    compressed: bytes = lz4.frame.compress(data, compression_level=level, block_linked=False)
    return compressed


def decompress(data: Buffer, limit: int) -> Buffer:
    """Return the content of the frame, at most `limit` bytes."""
    most = _most(data)
    if 0 <= most <= min(limit, 4 * len(data) + _FIRST):
        # The size of the content is bounded, so one call can decompress it.
        try:
            return bytes(lz4.frame.decompress(data))
        except RuntimeError as error:
            raise CorruptRecordError(f"The lz4 content cannot be decompressed: {error}.") from None
    return collected(pieces(data, piece_size(data, limit)), limit, "lz4")


def _most(data: Buffer) -> int:
    """Return the largest possible size of the content in bytes, or -1 if it is not known."""
    if len(data) < 15 or data[4] & _DICTIONARY_ID or data[5] < 0x40:
        return -1
    block, trailer = 1 << 8 + (data[5] >> 3 & 14), data[4] >> 2 & 4
    position, most, told = 7, 0, 0
    if data[4] & _CONTENT_SIZE:
        position, told = 15, int.from_bytes(data[6:14], "little")
    for _ in range(_MOST_BLOCKS):
        if position + 4 > len(data):
            break
        (size,) = _SIZE.unpack_from(data, position)
        if not size:
            return most if told <= most else -1
        position += 4 + (size & _BLOCK_SIZE) + trailer
        most += block
    return -1


def pieces(data: Buffer, size: int) -> Iterator[Buffer]:
    """Yield the content of the frame in pieces of at most `size` bytes."""
    decompressor = lz4.frame.LZ4FrameDecompressor()
    while not decompressor.eof:
        try:
            piece = decompressor.decompress(data, max_length=size)
        except (RuntimeError, ValueError, EOFError) as error:
            raise CorruptRecordError(f"The lz4 content cannot be decompressed: {error}.") from None
        if piece:
            yield piece
        elif not decompressor.eof:
            raise CorruptRecordError("The lz4 frame is incomplete.")
        data = b""  # The decompressor keeps its unconsumed input.


def mend(data: Buffer) -> bytes:
    """Return a copy of the frame with the right checksum of its descriptor."""
    frame = bytearray(data)
    if len(frame) < 7:
        raise CorruptRecordError("The lz4 frame is incomplete.")
    end = 6
    end += 8 if frame[4] & _CONTENT_SIZE else 0
    end += 4 if frame[4] & _DICTIONARY_ID else 0
    if len(frame) <= end:
        raise CorruptRecordError("The lz4 frame is incomplete.")
    # Writers of v0 have included the frame's magic number in it (KAFKA-3160).
    frame[end] = _xxh32(bytes(frame[4:end])) >> 8 & 0xFF
    return bytes(frame)


def _xxh32(data: bytes) -> int:
    """Return the xxHash-32, with seed 0, of fewer than 16 bytes, such as a frame descriptor."""
    h = (374761393 + len(data)) & _MASK
    words = len(data) >> 2
    for index in range(words):
        word = int.from_bytes(data[4 * index : 4 * index + 4], "little")
        h = (h + word * 3266489917) & _MASK
        h = (h << 17 | h >> 15) * 668265263 & _MASK
    for byte in data[4 * words :]:
        h = (h + byte * 374761393) & _MASK
        h = (h << 11 | h >> 21) * 2654435761 & _MASK
    h = (h ^ h >> 15) * 2246822519 & _MASK
    h = (h ^ h >> 13) * 3266489917 & _MASK
    return h ^ h >> 16
