"""What the loop reads itself, and what a thread reads for it.

A thread is worth its price, some 50 microseconds in all, only for what would hold the loop for
milliseconds. How long a batch takes is told by its size, its codec and its number of records, but
for one thing: how much there is in a compressed one. So the loop decompresses within a bound, and
what goes beyond it is left to a thread after all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiokclient import _native
from aiokclient.errors import CorruptRecordError
from aiokclient.record.batch import HEADER_SIZE, Compression, RecordBatch
from aiokclient.record.compression import MANY_BLOCKS, has_many_blocks

__all__ = ["CONTENT", "is_light"]

CONTENT: Final = 4 * 1024 * 1024
"""Bytes of records in compressed batches that the loop reads at once, at most."""

RECORDS: Final = 65_536 if _native.in_use() else 4096
"""The number of records, likewise."""


def is_light(batches: Iterable[RecordBatch]) -> bool:
    """Whether the loop can read them at once. CorruptRecordError for a codec that there is not."""
    cost = 0.0
    for batch in batches:
        codec = batch.compression if batch.is_compressed else Compression.NONE
        cost += max(batch.size / codec.traits.decode_inline, batch.count / RECORDS)
        if cost >= 1 or (codec and batch.size > MANY_BLOCKS and _has_many_blocks(batch, codec)):
            return False
    return True


def _has_many_blocks(batch: RecordBatch, codec: Compression) -> bool:
    content = batch.buffer[HEADER_SIZE:] if batch.magic > 1 else batch.buffer
    try:
        return has_many_blocks(codec, content)
    except CorruptRecordError:
        return False  # Reading it says so.
