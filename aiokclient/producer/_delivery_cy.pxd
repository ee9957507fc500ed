"""Deliveries, for native modules."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from aiokclient.producer._state_cy cimport DeliveryBatch


cdef extern from "_delivery_object.h":
    ctypedef struct AiokDeliveries:
        pass

    object aiok_delivery_new(
        AiokDeliveries *all, PyObject *batch, Py_ssize_t index, int64_t timestamp
    )


cdef class Delivery:
    # As in _delivery_object.h.
    cdef DeliveryBatch _batch
    cdef Py_ssize_t _index
    cdef int64_t _timestamp
    cdef void *_before
    cdef void *_after


cdef AiokDeliveries *deliveries
