cimport cython
from libc.stdint cimport int64_t

from aiokclient.record cimport batch as record_batch
from aiokclient.producer.delivery cimport delivery

cdef object _OPEN
cdef object _NOT_IN_LOG
cdef object _QUEUED
cdef object _IN_FLIGHT
cdef object _DONE
cdef frozenset _BEFORE_QUEUED
cdef frozenset _BEFORE_IN_FLIGHT
cdef frozenset _BEFORE_DONE
cdef object _UNCOMPRESSED
cdef object _EMPTY


cdef class ProducerBatch(delivery.BatchState):
    cdef public object queue
    cdef public object stage
    cdef public double created
    cdef public double first_sent
    cdef public bint due
    cdef public bint compressing
    cdef public bint refused
    cdef public bint by_name
    cdef public Py_ssize_t size
    cdef public Py_ssize_t plain_size
    cdef public Py_ssize_t attempt
    cdef public Py_ssize_t failures
    cdef public Py_ssize_t requests
    cdef public tuple identity
    cdef public object in_log
    cdef public list whole
    cdef public object last_error
    cdef public object last_answer
    cpdef begin(
        self,
        topic,
        queue,
        hooks,
        record_batch.RecordBatchBuilder builder,
        double created,
        Py_ssize_t reserved,
        bint in_overflow,
        bint due,
    )
    cpdef free_memory(self)
    cpdef end_linger(self)
    @cython.locals(builder=record_batch.RecordBatchBuilder, size=Py_ssize_t)
    cpdef Py_ssize_t close_builder(self) except -1
    cpdef set_identity(self, tuple identity)
    cpdef begin_attempt(self)
    @cython.locals(builder=record_batch.RecordBatchBuilder)
    cpdef encode_for_request(self, double now, bint by_name, bint transactional)
    cpdef bint end_request(self) except -1
    cpdef acknowledge(self, int64_t base_offset, int64_t append_time, int64_t log_start=*)
