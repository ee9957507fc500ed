"""From the bytes of a partition to its batches."""

from __future__ import annotations

import struct

from aiokclient.errors import CorruptRecordError, KafkaError
from aiokclient.record._legacy import SMALLEST, LegacyBatch
from aiokclient.record._pure.batch import RecordBatch
from aiokclient.record.crc import Buffer
from aiokclient.record.header import LOG_OVERHEAD, MAGIC_AT

__all__ = ["walk"]

_OFFSET_AND_LENGTH = struct.Struct(">qi")


def walk(buffer: Buffer, *, strict: bool = False) -> list[RecordBatch]:
    """The batches in `buffer`, one after another, reading only their headers.

    A broker cuts a response where it likes, so an incomplete batch at the end is left out. What
    cannot be a batch raises CorruptRecordError if it comes first; behind others it ends the list,
    so that those can be used and the error comes when reading begins there. With `strict`, both
    raise: every byte has to belong to a batch, as in what a producer sends.
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
        raise CorruptRecordError(f"the last {len(view) - position} bytes are no whole batch")
    return batches


def _end(view: memoryview, position: int) -> int:
    offset, length = _OFFSET_AND_LENGTH.unpack_from(view, position)
    if length < SMALLEST:
        raise CorruptRecordError(f"the batch at offset {offset} states a length of {length}")
    return position + LOG_OVERHEAD + int(length)
