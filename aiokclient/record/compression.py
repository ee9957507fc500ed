"""Compressing the records of a batch, and decompressing them within a size limit.

For any input, decompressing either returns at most `limit` bytes or raises CorruptRecordError
(ContentLimitError if the content is larger), and never uses much more memory than `limit`. `pieces`
has only one piece in memory at a time, except for snappy without framing, which is one block. Only
zstd's window may exceed the limit for memory: a frame may request up to 128 MiB, as in every Kafka
client, but the memory is used only as far as it is filled.

All codecs release the GIL while they process a block, so large batches should be compressed in a
thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Protocol, cast

from aiokclient.config.codecs import Compression
from aiokclient.errors import CorruptRecordError
from aiokclient.record.crc import Buffer

__all__ = [
    "DEFAULT_LIMIT",
    "CodecModule",
    "Compression",
    "ContentLimitError",
    "check_size",
    "collected",
    "compress",
    "decompress",
    "has_many_blocks",
    "measure",
    "piece_size",
    "pieces",
]

DEFAULT_LIMIT = 256 * 1024 * 1024
"""Default limit for the decompressed size of one batch, in bytes."""

PIECE = 1024 * 1024
"""Bytes of content that are decompressed at a time."""

LARGEST_PIECE = 16 * PIECE

MANY_BLOCKS = 2048


class ContentLimitError(CorruptRecordError):
    """The content is larger than the caller's limit. It is not necessarily damaged."""


class CodecModule(Protocol):
    """A module in `record.codecs`.

    It may also have `has_many_blocks(data, most)`, which returns whether there are more than `most`
    blocks. A codec has it if each block costs time, even a small one.
    """

    def compress(self, data: Buffer, level: int) -> Buffer:
        """Return `data` compressed; a codec without levels ignores the level."""
        ...

    def decompress(self, data: Buffer, limit: int) -> Buffer:
        """Return the content of `data`, at most `limit` bytes.

        Raises CorruptRecordError, or ContentLimitError if the content is larger.
        """
        ...

    def pieces(self, data: Buffer, size: int) -> Iterator[Buffer]:
        """Yield the content of `data` in pieces of about `size` bytes."""
        ...


@cache
def _module(codec: int) -> CodecModule:
    try:
        name = Compression(codec).title
    except ValueError:
        raise CorruptRecordError(f"There is no compression codec {codec}.") from None
    return cast(CodecModule, import_module(f"aiokclient.record.codecs.{name}"))


def compress(codec: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """Return `data` compressed; `level` None is the codec's default. NONE returns `data` itself."""
    if codec == Compression.NONE:
        return data
    return _module(codec).compress(data, codec.traits.default_level if level is None else level)


def decompress(codec: int, data: Buffer, limit: int = DEFAULT_LIMIT) -> Buffer:
    """Return the content of `data`, at most `limit` bytes of it. NONE returns `data` itself.

    Raises CorruptRecordError for an unknown codec, bytes that are not of the codec, an incomplete
    stream, and more content than `limit`.
    """
    return data if codec == Compression.NONE else _module(codec).decompress(data, limit)


def pieces(codec: int, data: Buffer, size: int = PIECE) -> Iterator[Buffer]:
    """Return the content of `data` in pieces of about `size` bytes. NONE yields `data` itself.

    Raises CorruptRecordError as `decompress` does, possibly after some pieces.
    """
    return iter((data,)) if codec == Compression.NONE else _module(codec).pieces(data, size)


def measure(codec: int, data: Buffer, limit: int) -> None:
    """Raise ContentLimitError if the content has more than `limit` bytes.

    If the size of `data` does not rule that out, the content is decompressed once and discarded.
    """
    if codec == Compression.NONE:
        return
    found = pieces(codec, data)
    densest = Compression(codec).traits.densest
    if densest is None or densest * len(data) > limit:
        size = 0
        for piece in found:
            size += len(piece)
            check_size(size, limit, Compression(codec).title)


def has_many_blocks(codec: int, data: Buffer) -> bool:
    """Return whether `data` has more than `MANY_BLOCKS` blocks that each cost time.

    The number of the blocks then determines the time to decompress them, more than their size. The
    result is False for a codec whose blocks cost no time of their own.
    """
    if codec == Compression.NONE or len(data) < MANY_BLOCKS:
        return False
    find = getattr(_module(codec), "has_many_blocks", None)
    return find is not None and bool(find(data, MANY_BLOCKS))


# -- for the codecs


def piece_size(data: Buffer, limit: int) -> int:
    """Return the number of bytes to decompress at a time: usually enough for all content."""
    return min(limit + 1, max(PIECE, min(4 * len(data), LARGEST_PIECE)))


def check_size(size: int, limit: int, name: str) -> None:
    """Raise ContentLimitError if `size` bytes exceed the limit. `name` is the codec."""
    if size > limit:
        raise ContentLimitError(f"The decompressed {name} content has more than {limit} bytes.")


def collected(parts: Iterable[Buffer], limit: int, name: str) -> Buffer:
    """Join the pieces of content. Raises ContentLimitError if they exceed `limit` bytes."""
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
