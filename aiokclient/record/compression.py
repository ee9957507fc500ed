"""The five codecs of a record batch: compressing, and decompressing within a bound.

Whatever the bytes, decompressing either returns at most `limit` bytes or raises CorruptRecordError
(ContentLimitError if there are more), and never holds much more than that. `pieces` holds no more
than one piece at a time, but for snappy without its framing, which is one block. The one exception
is zstd's window, of which a frame may ask for 128 MiB, as in every Kafka client; memory is touched
only as it is filled.

All codecs release the GIL while they work on one block, so large batches belong in a thread.
What a codec needs is imported when it is first used.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from io import BytesIO

from aiokclient.errors import CorruptRecordError
from aiokclient.record.crc import Buffer

__all__ = [
    "DEFAULT_LIMIT",
    "LEVELS",
    "Compression",
    "ContentLimitError",
    "check_level",
    "collected",
    "compress",
    "decompress",
    "has_many_blocks",
    "measure",
    "pieces",
]

DEFAULT_LIMIT = 256 * 1024 * 1024
"""How large the records of one batch may become, in bytes, unless the caller says otherwise."""

PIECE = 1024 * 1024
"""Bytes of content that are decompressed at a time."""

LARGEST_PIECE = 16 * PIECE

MANY_BLOCKS = 2048

_GZIP = 31  # zlib's window bits for a gzip header and trailer


class ContentLimitError(CorruptRecordError):
    """The content is larger than the caller allows; it need not be damaged."""


class Compression(IntEnum):
    """The codecs by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LEVELS: dict[Compression, range] = {
    Compression.GZIP: range(1, 10),
    Compression.LZ4: range(1, 18),
    Compression.ZSTD: range(-131072, 23),
}
"""The levels that Kafka accepts for each codec that has any (KIP-390)."""


def check_level(codec: Compression, level: int | None) -> None:
    """Raise ValueError if the codec has no such level; None stands for its default."""
    if level is None:
        return
    levels = LEVELS.get(codec)
    if levels is None:
        raise ValueError(f"{codec.name.lower()} has no levels, but level {level} was given")
    if level not in levels:
        raise ValueError(
            f"{codec.name.lower()} has levels {levels[0]} to {levels[-1]}, not {level}"
        )


def compress(codec: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """`data` compressed; `level` None is the codec's default. NONE returns `data` itself."""
    return _COMPRESS[codec](data, level)


def decompress(codec: int, data: Buffer, limit: int = DEFAULT_LIMIT) -> Buffer:
    """The content of `data`, at most `limit` bytes of it. NONE returns `data` itself.

    Raises CorruptRecordError for an unknown codec, bytes that are not of the codec, an incomplete
    stream, and more content than `limit`.
    """
    function = _DECOMPRESS.get(codec)
    if function is None:
        raise CorruptRecordError(f"there is no compression codec {codec}")
    return function(data, limit)


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    # cramjam is the faster one at level 1, zlib at all others.
    if level == 1:
        import cramjam

        return bytes(cramjam.gzip.compress(data, level=1))
    return zlib.compress(data, 6 if level is None else level, _GZIP)


def _decompress_gzip(data: Buffer, limit: int) -> Buffer:
    return collected(_pieces_gzip(data, piece_size(data, limit)), limit, "gzip")


def _pieces_gzip(data: Buffer, size: int) -> Iterator[bytes]:
    if not len(data):
        raise CorruptRecordError("there is no gzip content")
    while len(data):  # one member after another
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            try:
                piece = member.decompress(data, size)
            except zlib.error as error:
                raise _unusable("gzip", error) from None
            data = member.unconsumed_tail
            if piece:
                yield piece
            elif not data and not member.eof:
                raise CorruptRecordError("the gzip stream is incomplete")
        data = member.unused_data


def _compress_snappy(data: Buffer, level: int | None) -> Buffer:
    from aiokclient.record._snappy import compress_snappy

    return compress_snappy(data)


def _decompress_snappy(data: Buffer, limit: int) -> Buffer:
    from aiokclient.record._snappy import decompress_snappy

    return decompress_snappy(data, limit)


def _compress_lz4(data: Buffer, level: int | None) -> Buffer:
    from aiokclient.record._lz4 import compress_lz4

    return compress_lz4(data, 0 if level is None else level)


def _decompress_lz4(data: Buffer, limit: int) -> Buffer:
    from aiokclient.record._lz4 import decompress_lz4

    return decompress_lz4(data, limit)


def _compress_zstd(data: Buffer, level: int | None) -> Buffer:
    from aiokclient.record._zstd import compress_zstd

    return compress_zstd(data, 3 if level is None else level)


def _decompress_zstd(data: Buffer, limit: int) -> Buffer:
    from aiokclient.record._zstd import decompress_zstd

    return decompress_zstd(data, limit)


def _pieces_snappy(data: Buffer, size: int) -> Iterator[Buffer]:
    from aiokclient.record._snappy import snappy_pieces

    return snappy_pieces(data, size)


def _pieces_lz4(data: Buffer, size: int) -> Iterator[Buffer]:
    from aiokclient.record._lz4 import lz4_pieces

    return lz4_pieces(data, size)


def _pieces_zstd(data: Buffer, size: int) -> Iterator[Buffer]:
    from aiokclient.record._zstd import zstd_pieces

    return zstd_pieces(data, size)


def pieces(codec: int, data: Buffer, size: int = PIECE) -> Iterator[Buffer]:
    """Yield the content of `data` in pieces of about `size` bytes. NONE yields `data` itself.

    Raises CorruptRecordError as `decompress` does, possibly after some pieces.
    """
    function = _PIECES.get(codec)
    if function is None:
        raise CorruptRecordError(f"there is no compression codec {codec}")
    return function(data, size)


def measure(codec: int, data: Buffer, limit: int) -> None:
    """Raise ContentLimitError if there are more than `limit` bytes of content.

    Where the size of `data` does not rule that out, everything is decompressed once, and not kept.
    """
    if codec == Compression.NONE:
        return
    densest = _DENSEST.get(codec)
    if densest is None or densest * len(data) > limit:
        size = 0
        for piece in pieces(codec, data):
            size += len(piece)
            check_size(size, limit, Compression(codec).name.lower())


def has_many_blocks(codec: int, data: Buffer) -> bool:
    """Return whether the content is in so many blocks that these, not its size, take the time."""
    if len(data) < MANY_BLOCKS:
        return False
    if codec == Compression.SNAPPY:
        from aiokclient.record import _snappy

        return _snappy.has_many_blocks(data, MANY_BLOCKS)
    if codec == Compression.ZSTD:
        from aiokclient.record import _zstd

        return _zstd.has_many_blocks(data, MANY_BLOCKS)
    return False


def piece_size(data: Buffer, limit: int) -> int:
    """Return how many bytes to decompress at a time: all of what is usual, and no more."""
    return min(limit + 1, max(PIECE, min(4 * len(data), LARGEST_PIECE)))


def check_size(size: int, limit: int, name: str) -> None:
    """Raise ContentLimitError if so many bytes are over the limit."""
    if size > limit:
        raise ContentLimitError(f"{name} content is over {limit} bytes")


def collected(parts: Iterable[Buffer], limit: int, name: str) -> Buffer:
    """Join the pieces of some content; ContentLimitError if they are over `limit` bytes."""
    iterator = iter(parts)
    first = next(iterator, b"")
    check_size(len(first), limit, name)
    second = next(iterator, None)
    if second is None:
        return first
    whole = BytesIO()
    size = whole.write(first)
    while second is not None:
        check_size(size + len(second), limit, name)
        size += whole.write(second)
        second = next(iterator, None)
    return whole.getvalue()


def _unusable(name: str, error: Exception) -> CorruptRecordError:
    return CorruptRecordError(f"the {name} content cannot be decompressed: {error}")


_DENSEST: dict[int, int] = {
    Compression.GZIP: 1032,
    Compression.SNAPPY: 64,
    Compression.LZ4: 255,
}
"""The most bytes of content that one byte can hold; of zstd any number."""

_PIECES: dict[int, Callable[[Buffer, int], Iterator[Buffer]]] = {
    Compression.NONE: lambda data, size: iter((data,)),
    Compression.GZIP: _pieces_gzip,
    Compression.SNAPPY: _pieces_snappy,
    Compression.LZ4: _pieces_lz4,
    Compression.ZSTD: _pieces_zstd,
}

_COMPRESS: dict[Compression, Callable[[Buffer, int | None], Buffer]] = {
    Compression.NONE: lambda data, level: data,
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}

_DECOMPRESS: dict[int, Callable[[Buffer, int], Buffer]] = {
    Compression.NONE: lambda data, limit: data,
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
