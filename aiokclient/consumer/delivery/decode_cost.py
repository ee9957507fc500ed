"""The estimated cost of decoding, which decides between the event loop and a thread.

Using a thread costs about 50 microseconds, so it is worthwhile only for batches that would block
the loop for milliseconds. The time for a batch depends on its size, codec, and number of records,
and on its decompressed size, which is not known in advance. So the loop decompresses up to a limit,
and a thread decodes batches that exceed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiokclient._native import chosen
from aiokclient.errors import CorruptRecordError
from aiokclient.record.batch import HEADER_SIZE, Compression, RecordBatch
from aiokclient.record.compression import MANY_BLOCKS, has_many_blocks

__all__ = ["CONTENT", "is_light"]

CONTENT: Final = 4 * 1024 * 1024
"""The largest decompressed size in bytes of batches that the event loop decodes at a time."""

RECORDS: Final = chosen(native=65_536, pure=4096)
"""The largest number of records that the event loop decodes at a time."""


def is_light(batches: Iterable[RecordBatch]) -> bool:
    """Return whether the event loop can decode these batches without blocking for long.

    Raises CorruptRecordError for an unknown codec.
    """
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
        return False  # The error is raised when the batch is read.
