cimport cython
from libc.stdint cimport int64_t

from aiokclient.record cimport batch as record_batch
from aiokclient.producer.batching.batch cimport ProducerBatch
from aiokclient.producer.batching.meters cimport ProducerMeters
from aiokclient.producer.batching.queue cimport BatchLimit, PartitionQueue, TopicStatus
from aiokclient.producer.delivery cimport delivery

cdef object _BUFFER
cdef Py_ssize_t _OVERHEAD
cdef Py_ssize_t _RESERVE
cdef Py_ssize_t _PLENTY
cdef Py_ssize_t _SLACK


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
    cdef public delivery.WakeQueue wakes
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
    cdef public ProducerMeters meters
    @cython.locals(queue=PartitionQueue, waiting=ProducerBatch, is_alone=bint)
    cpdef skip_linger(self, batch)
    @cython.locals(batch=ProducerBatch, index=Py_ssize_t)
    cpdef tuple append_record(
        self,
        PartitionQueue queue,
        timestamp,
        key,
        value,
        headers,
        Py_ssize_t need,
        bint forced=*,
    )
    @cython.locals(
        memory=Memory,
        batch=ProducerBatch,
        builder=record_batch.RecordBatchBuilder,
        unsendable=bint,
        size=Py_ssize_t,
        in_overflow=bint,
        likely=Py_ssize_t,
        now=double,
    )
    cpdef ProducerBatch open_batch(
        self, PartitionQueue queue, Py_ssize_t need, bint forced=*, Py_ssize_t limit=*
    )
    @cython.locals(queue=PartitionQueue)
    cpdef on_batch_opened(self, ProducerBatch batch)
    @cython.locals(batch=ProducerBatch, size=Py_ssize_t)
    cpdef close_batch(self, PartitionQueue queue)
    @cython.locals(queue=PartitionQueue, topic=TopicStatus, limit=BatchLimit, count=Py_ssize_t, queued_s=double)
    cpdef complete_batch(
        self,
        ProducerBatch batch,
        int64_t base_offset=*,
        int64_t append_time=*,
        int64_t log_start=*,
    )
    cpdef resume_collected(self)
    @cython.locals(batch=ProducerBatch)
    cpdef _start_linger_timer(self)
    @cython.locals(batch=ProducerBatch)
    cpdef _on_linger_timer(self)
    cpdef forget_batch(self, ProducerBatch batch)
    @cython.locals(queue=PartitionQueue, size=Py_ssize_t, in_overflow=bint, unsendable=bint)
    cpdef release_memory(self, ProducerBatch batch)
    cpdef bint prepare_batch(self, ProducerBatch batch) except -1
