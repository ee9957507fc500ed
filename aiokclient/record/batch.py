"""Record batches, as used by the producer, the consumer and the embedded cluster.

The classes are native if the native modules are in use, and otherwise the Python ones of `_pure`.

Malformed bytes always raise CorruptRecordError. Nothing here awaits. Closing a builder and reading
a compressed batch take processor time, so large batches should be processed in a thread.
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
