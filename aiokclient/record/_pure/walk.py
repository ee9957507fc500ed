"""Finding the batches in the bytes of a partition."""

from __future__ import annotations

import struct

from aiokclient.errors import CorruptRecordError, KafkaError
from aiokclient.record._legacy import SMALLEST, LegacyBatch
from aiokclient.record._pure.batch import RecordBatch
from aiokclient.record.crc import Buffer
from aiokclient.record.header import LOG_OVERHEAD, MAGIC_AT

_OFFSET_AND_LENGTH = struct.Struct(">qi")


def walk(buffer: Buffer, *, strict: bool = False) -> list[RecordBatch]:
    """Return the batches in `buffer` in order. Only their headers are read.

    A broker may cut a response anywhere, so an incomplete batch at the end is left out. Bytes that
    are not a batch raise CorruptRecordError if they come first. After other batches, they only end
    the list, so that these batches can be used; the error is raised when the next read starts
    there. With `strict`, both cases raise: every byte must belong to a batch, as in a produce
    request.
    """
    view = memoryview(buffer)
    batches: list[RecordBatch] = []
    position = 0
    try:
        while len(view) - position > MAGIC_AT:
            end = _end(view, position)
            if end > len(view):
                break
            kind = RecordBatch if view[position + MAGIC_AT] > 1 else LegacyBatch
            batches.append(kind(view[position:end]))
            position = end
    except KafkaError:
        if strict or not batches:
            raise
    if strict and position < len(view):
        raise CorruptRecordError(f"The last {len(view) - position} bytes are not a complete batch.")
    return batches


def _end(view: memoryview, position: int) -> int:
    offset, length = _OFFSET_AND_LENGTH.unpack_from(view, position)
    if length < SMALLEST:
        raise CorruptRecordError(
            f"The batch at offset {offset} has the impossible length {length}."
        )
    return position + LOG_OVERHEAD + int(length)
