"""Joining the pieces of decompressed records, within a size limit."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO

from aiokclient.errors import CorruptRecordError
from aiokclient.record.crc import Buffer

__all__ = ["PIECE", "ContentLimitError", "check_size", "collected", "piece_size"]

PIECE = 1024 * 1024
"""Bytes of content that are decompressed at a time."""

LARGEST_PIECE = 16 * PIECE


class ContentLimitError(CorruptRecordError):
    """The content is larger than the caller's limit. It is not necessarily damaged."""


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
