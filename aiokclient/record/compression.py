"""The five codecs of a record batch: compressing, and decompressing within a bound.

Whatever the bytes, decompressing either returns at most `limit` bytes or raises CorruptRecordError,
and never holds much more than `limit` on the way. The one exception is zstd's window, of which a
frame may ask for 128 MiB, as in every Kafka client; memory is touched only as it is filled.

All codecs release the GIL while they work on one block, so large batches belong in a thread.
What a codec needs is imported when it is first used.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum

from aiokclient.errors import CorruptRecordError
from aiokclient.record.crc import Buffer

__all__ = ["DEFAULT_LIMIT", "LEVELS", "Compression", "check_level", "compress", "decompress"]

DEFAULT_LIMIT = 256 * 1024 * 1024
"""How large the records of one batch may become, in bytes, unless the caller says otherwise."""

_GZIP = 31  # zlib's window bits for a gzip header and trailer


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


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while data:  # one member after another
        member = zlib.decompressobj(_GZIP)
        try:
            piece = member.decompress(data, limit + 1 - size)
        except zlib.error as error:
            raise CorruptRecordError(f"the gzip content cannot be decompressed: {error}") from None
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise CorruptRecordError(f"gzip content is over {limit} bytes")
        if not member.eof:
            raise CorruptRecordError("the gzip stream is incomplete")
        data = member.unused_data
    if not pieces:
        raise CorruptRecordError("there is no gzip content")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


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
