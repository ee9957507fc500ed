# cython: auto_pickle=False
"""Native twins of `producer._pure` and of the path of a send: sending, deliveries, and waiting for them.

All parts are in one extension module, so that they can call each other's C functions.
"""

import asyncio
import sys
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

    bint is_subtype_of "PyObject_TypeCheck"(object, PyTypeObject *)
    unsigned long get_thread_id "PyThread_get_thread_ident"()

cdef object get_running_loop = _get_running_loop
cdef object BaseEventLoop = asyncio.BaseEventLoop
cdef bint asks_system = sys.version_info < (3, 12)
cdef object CancelledError = asyncio.CancelledError
cdef object InvalidStateError = asyncio.InvalidStateError


cdef inline bint runs_here(object loop) except -1:
    """Return whether this loop runs in the calling thread.

    Before Python 3.12, asyncio asks the system for the process id at each question for the running
    loop, which takes longer than all else that a send does. asyncio's own loops know their thread
    while they run. Clients in a forked process have failed already.
    """
    if asks_system and is_subtype_of(loop, <PyTypeObject *>BaseEventLoop):
        thread = loop._thread_id
        if thread is not None and <unsigned long>thread == get_thread_id():
            return True
    return aiok_call(get_running_loop) is loop


include "producer_waiter.pxi"
include "producer_state.pxi"
include "producer_delivery.pxi"
include "producer_gather.pxi"
include "producer_send.pxi"
include "producer_arrow.pxi"
