"""Native twins of the classes in `types`, of `memory`, and of the usual way through a connection.

The other native modules create objects of these classes by their C functions. All parts are in one
extension module, which imports none of the others.
"""

from types import GenericAlias

cimport cython
from cpython.object cimport PyObject, PyTypeObject

__all__ = [
    "BatchesState",
    "BufferPool",
    "ConnectionState",
    "ConsumerRecord",
    "HeldState",
    "MeterState",
    "PendingRequest",
    "PipelineState",
    "ReaderState",
    "TemplateState",
    "TimerState",
    "light_class",
    "lock_records",
    "new_request",
    "set_locks",
    "structs_are",
    "untrack",
    "untrack_whole",
    "untracked_tuple",
]

include "ground_records.pxi"
include "ground_metadata.pxi"
include "ground_untrack.pxi"
include "ground_buffers.pxi"
include "ground_frames.pxi"
include "ground_requests.pxi"
include "ground_connection.pxi"
