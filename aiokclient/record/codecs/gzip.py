"""Gzip, with one or several consecutive members."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from aiokclient.errors import CorruptRecordError
from aiokclient.record.compression import collected, piece_size
from aiokclient.record.crc import Buffer

_WINDOW = 31  # zlib's window bits for a gzip header and trailer.


def compress(data: Buffer, level: int) -> Buffer:
    """Return `data` compressed, as one gzip member."""
    # cramjam is faster at level 1, zlib at all other levels.
    if level == 1:
        import cramjam

        return bytes(cramjam.gzip.compress(data, level=1))
    return zlib.compress(data, level, _WINDOW)


def decompress(data: Buffer, limit: int) -> Buffer:
    """Return the content of all members, at most `limit` bytes."""
    return collected(pieces(data, piece_size(data, limit)), limit, "gzip")


def pieces(data: Buffer, size: int) -> Iterator[Buffer]:
    """Yield the content of all members in pieces of at most `size` bytes."""
    if not len(data):
        raise CorruptRecordError("The gzip content is empty.")
    while len(data):
        member = zlib.decompressobj(_WINDOW)
        while not member.eof:
            try:
                piece = member.decompress(data, size)
            except zlib.error as error:
                raise CorruptRecordError(
                    f"The gzip content cannot be decompressed: {error}."
                ) from None
            data = member.unconsumed_tail
            if piece:
                yield piece
            elif not data and not member.eof:
                raise CorruptRecordError("The gzip stream is incomplete.")
        # Some writers pad the last member with zero bytes, which Java, librdkafka, and Python's
        # gzip module ignore.
        data = member.unused_data.lstrip(b"\0")
