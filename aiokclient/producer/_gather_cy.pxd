"""The deliveries of one `send_many`, for native modules."""

from libc.stdint cimport int64_t, uint64_t

from aiokclient.producer._state_cy cimport DeliveryBatch


cdef struct Run:
    # So many records of one batch, up to `end` in the sequence; `number` is that of the batch.
    Py_ssize_t end
    Py_ssize_t first
    Py_ssize_t number
    int64_t timestamp


cdef class DeliveryRuns:
    cdef Run *_runs
    cdef Py_ssize_t _count
    cdef Py_ssize_t _room
    cdef uint64_t _serial
    cdef list _batches
    cdef int put(
        self, DeliveryBatch batch, Py_ssize_t first, Py_ssize_t size, int64_t timestamp
    ) except -1
    # The same for one record, which may stand right behind the one before.
    cdef int put_one(self, DeliveryBatch batch, Py_ssize_t index, int64_t timestamp) except -1
