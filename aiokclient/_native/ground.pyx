"""Native twins of `types`, `buffers`, and `untracked`."""

from types import GenericAlias

cimport cython
from cpython.object cimport PyObject, PyTypeObject

__all__ = [
    "BufferPool",
    "ConsumerRecord",
    "structs_are",
    "untrack",
    "untrack_whole",
    "untracked_tuple",
]

include "ground_records.pxi"
include "ground_metadata.pxi"
include "ground_untrack.pxi"
include "ground_buffers.pxi"
