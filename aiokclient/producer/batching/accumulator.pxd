cimport cython

from aiokclient.producer.batching.batch cimport ProducerBatch
from aiokclient.producer.batching.queue cimport BatchLimit, PartitionQueue, TopicStatus


cdef class Pool:
    cdef public Py_ssize_t limit
    cdef public Py_ssize_t half
    cdef public Py_ssize_t quarter
    cdef public Py_ssize_t total
    cdef public Py_ssize_t unsendable
    cdef public Py_ssize_t free
    cpdef Py_ssize_t compute_room(self, bint unsendable, Py_ssize_t held) except? -1
    cpdef add_bytes(self, bint unsendable, Py_ssize_t size)


cdef class Memory:
    cdef public Pool buffer
    cdef public Pool overflow
    cpdef find_pool(self, PartitionQueue queue, Py_ssize_t size)
    cpdef take_bytes(self, PartitionQueue queue, Py_ssize_t size, bint in_overflow, bint unsendable)


cdef class Accumulator:
    cdef object __weakref__
    cdef public object loop
    cdef public object _now
    cdef public object thread
    cdef public dict calling
    cdef public object wakes
    cdef public object callbacks
    cdef public Memory memory
    cdef public object _blocks
    cdef public dict pending
    cdef public dict active
    cdef public object errors
    cdef public bint _is_last_alone
    cdef public object _engine
    cdef public object _failures
    cdef public object _status
    cdef public double _expiry_s
    cdef public object _expiry_timer
    cdef public double _expiry_due
    cdef public double _linger_s
    cdef public object _compression
    cdef public object _level
    cdef public object _thread_bytes
    cdef public object _lingering
    cdef public object _linger_timer
    cdef public bint _is_resuming
    cdef public tuple _overflowing
    cdef public dict _room
    cdef public object meters
    @cython.locals(memory=Memory, unsendable=bint, size=Py_ssize_t, in_overflow=bint, likely=Py_ssize_t)
    cpdef ProducerBatch open_batch(self, PartitionQueue queue, Py_ssize_t need, bint forced=*, limit=*)
    @cython.locals(queue=PartitionQueue)
    cpdef on_batch_opened(self, ProducerBatch batch)
    @cython.locals(batch=ProducerBatch, size=Py_ssize_t)
    cpdef close_batch(self, PartitionQueue queue)
    @cython.locals(queue=PartitionQueue, topic=TopicStatus, limit=BatchLimit, count=Py_ssize_t, queued_s=double)
    cpdef complete_batch(self, ProducerBatch batch, base_offset=*, append_time=*, log_start=*)
    cpdef forget_batch(self, ProducerBatch batch)
    @cython.locals(queue=PartitionQueue, size=Py_ssize_t, in_overflow=bint, unsendable=bint)
    cpdef release_memory(self, ProducerBatch batch)
    cpdef bint prepare_batch(self, ProducerBatch batch) except -1
