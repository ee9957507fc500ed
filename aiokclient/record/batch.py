"""Record batches: what producer, consumer and the embedded cluster use.

Reading and writing are native where that is in use; `_pure` has the same in Python.

Errors in bytes are CorruptRecordError, whatever the bytes. Nothing here waits, but closing a
builder and reading a compressed batch are work for the processor: large ones belong in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient._native import twin
from aiokclient.record._pure.batch import RecordBatch, Row
from aiokclient.record._pure.builder import RecordBatchBuilder
from aiokclient.record._pure.decode import span
from aiokclient.record._pure.walk import walk
from aiokclient.record.compression import DEFAULT_LIMIT, Compression, ContentLimitError
from aiokclient.record.control import ControlType, control_batch, end_transaction_batch
from aiokclient.record.header import HEADER_SIZE, with_append_time, with_offset

__all__ = [
    "DEFAULT_LIMIT",
    "HEADER_SIZE",
    "Compression",
    "ContentLimitError",
    "ControlType",
    "RecordBatch",
    "RecordBatchBuilder",
    "Row",
    "control_batch",
    "end_transaction_batch",
    "span",
    "walk",
    "with_append_time",
    "with_offset",
]

if not TYPE_CHECKING:
    RecordBatch, RecordBatchBuilder, span, walk = map(
        twin("record"), (RecordBatch, RecordBatchBuilder, span, walk)
    )
