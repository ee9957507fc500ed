"""Record batches, as used by the producer, the consumer and the embedded cluster.

The classes are native if the native modules are in use, and otherwise the Python ones of `_pure`.

Malformed bytes always raise CorruptRecordError. Nothing here awaits. Closing a builder and reading
a compressed batch take processor time, so large batches should be processed in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient._native import in_use, native_import
from aiokclient.record.compression import DEFAULT_LIMIT, Compression, ContentLimitError
from aiokclient.record.header import HEADER_SIZE, with_append_time, with_offset

__all__ = [
    "DEFAULT_LIMIT",
    "HEADER_SIZE",
    "Compression",
    "ContentLimitError",
    "RecordBatch",
    "RecordBatchBuilder",
    "new_builder",
    "span",
    "walk",
    "with_append_time",
    "with_offset",
]

if TYPE_CHECKING or not in_use():
    from aiokclient.record._pure.batch import RecordBatch
    from aiokclient.record._pure.builder import RecordBatchBuilder, new_builder
    from aiokclient.record._pure.decode import span
    from aiokclient.record._pure.walk import walk
else:
    with native_import("record"):
        from aiokclient._native.record import (
            RecordBatch,
            RecordBatchBuilder,
            new_builder,
            span,
            walk,
        )
