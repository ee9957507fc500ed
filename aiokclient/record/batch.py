"""Record batches: what producer, consumer and the embedded cluster use.

The implementation is picked here and nowhere else, once, at import. There is one so far, in Python.

Errors in bytes are CorruptRecordError, whatever the bytes. Nothing here waits, but closing a
builder and reading a compressed batch are work for the processor: large ones belong in a thread.
"""

from __future__ import annotations

import struct

from aiokclient.errors import CorruptRecordError, KafkaError
from aiokclient.record._batch_py import RecordBatch, Row
from aiokclient.record._builder_py import RecordBatchBuilder
from aiokclient.record._legacy import SMALLEST, LegacyBatch
from aiokclient.record.compression import DEFAULT_LIMIT, LEVELS, Compression
from aiokclient.record.control import ControlType, control_batch, end_transaction_batch
from aiokclient.record.crc import Buffer
from aiokclient.record.header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    with_append_time,
    with_offset,
)

__all__ = [
    "DEFAULT_LIMIT",
    "HEADER_SIZE",
    "LEVELS",
    "Compression",
    "ControlType",
    "RecordBatch",
    "RecordBatchBuilder",
    "Row",
    "control_batch",
    "end_transaction_batch",
    "walk",
    "with_append_time",
    "with_offset",
]

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
