"""Record batches: what producer, consumer and the embedded cluster use.

The implementation is picked here and nowhere else, once, at import: the native one if it was built,
unless `AIOKCLIENT_PURE=1` is in the environment. `IMPLEMENTATION` tells which: "native" or "pure".

Errors in bytes are CorruptRecordError, whatever the bytes. Nothing here waits, but closing a
builder and reading a compressed batch are work for the processor: large ones belong in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient import _native
from aiokclient.record._batch_py import RecordBatch, Row
from aiokclient.record._builder_py import RecordBatchBuilder
from aiokclient.record._decode_py import span
from aiokclient.record._walk_py import walk
from aiokclient.record.compression import DEFAULT_LIMIT, LEVELS, Compression, ContentLimitError
from aiokclient.record.control import ControlType, control_batch, end_transaction_batch
from aiokclient.record.header import HEADER_SIZE, with_append_time, with_offset

__all__ = [
    "DEFAULT_LIMIT",
    "HEADER_SIZE",
    "IMPLEMENTATION",
    "LEVELS",
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

IMPLEMENTATION = "pure"
if not TYPE_CHECKING and _native.WANTED:
    try:
        from aiokclient.record import _batch_cy, _builder_cy
    except ImportError:
        pass
    else:
        IMPLEMENTATION = "native"
        RecordBatch, span, walk = _batch_cy.RecordBatch, _batch_cy.span, _batch_cy.walk
        RecordBatchBuilder = _builder_cy.RecordBatchBuilder
