# cython: auto_pickle=False
"""Native twins of `producer._pure` and of the path of a send: sending, deliveries, and waiting for them.

All parts are in one extension module, so that they can call each other's C functions.
"""

import asyncio
from asyncio import _get_running_loop
from types import GenericAlias

cimport cython
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t, uint8_t, uint64_t

from aiokclient._native.ground cimport aiok_answer, aiok_plain_tuple, metadata_spares
from aiokclient._native.record cimport Part, aiok_murmur2, aiok_write_varint, take, write

__all__ = [
    "BatchState",
    "Delivery",
    "DeliveryBatch",
    "DeliveryRuns",
    "Gathering",
    "OutcomeRuns",
    "QueueState",
    "SendPath",
    "TopicState",
    "Waiter",
    "WakeQueue",
    "send_columns",
    "with_own_send",
]

cdef extern from "Python.h":
    PyObject *_new_long "PyLong_FromLongLong"(long long) except NULL
    PyObject *_new_ref "Py_NewRef"(PyObject *)

cdef object get_running_loop = _get_running_loop
cdef object CancelledError = asyncio.CancelledError
cdef object InvalidStateError = asyncio.InvalidStateError

include "producer_waiter.pxi"
include "producer_state.pxi"
include "producer_delivery.pxi"
include "producer_gather.pxi"
include "producer_send.pxi"
include "producer_arrow.pxi"
