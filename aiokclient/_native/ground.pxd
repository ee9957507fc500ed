"""The declarations of memory, records, and connections, for the other native modules.

What is created for each record has a C function here that creates it without a Python call.
"""

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef enum:
    BLOCKS = 32


cdef class BufferPool:
    cdef readonly Py_ssize_t kept
    cdef readonly Py_ssize_t limit
    cdef int _count
    # The lowest number of blocks in the pool since the last `trim`.
    cdef int _unused
    cdef void *_at[BLOCKS]
    cdef Py_ssize_t _rooms[BLOCKS]
    cpdef int clear(self) except -1
    cdef int _find(self, MemoryBlock block, Py_ssize_t size) except -1
    cdef void *_drop(self, int which) noexcept
    cdef void _give(self, void *at, Py_ssize_t room) noexcept


cdef class MemoryBlock:
    cdef void *at
    # Where its views begin, in bytes from the first aligned address.
    cdef Py_ssize_t start
    cdef Py_ssize_t size
    cdef Py_ssize_t room
    cdef BufferPool pool
    # Whether its further views are read-only.
    cdef bint is_fixed


# Return `size` bytes of memory with arbitrary content, from the pool if that is not None, with room
# for `frame_batches` before and after them.
cdef MemoryBlock new_block(
    BufferPool pool, Py_ssize_t size, Py_ssize_t before, Py_ssize_t after
)

# Return a read-only view of a block. Every further view of it will be read-only, too.
cdef object read_only_view(MemoryBlock block)

# Return the address of the first byte of a block.
cdef uint8_t *block_start(MemoryBlock block) noexcept


cdef extern from "record_object.h":
    ctypedef struct AiokSpares:
        pass


cdef class SharedFields:
    cdef object topic
    cdef object partition
    cdef object timestamp_type
    cdef object leader_epoch


cdef class ConsumerRecord:
    cdef PyObject *_shared
    cdef PyObject *_key
    cdef PyObject *_value
    cdef PyObject *_headers
    cdef long long _offset
    cdef long long _timestamp


cdef class Tracked(ConsumerRecord):
    cdef Py_ssize_t _key_size
    cdef Py_ssize_t _value_size
    cdef bint _sized


cdef AiokSpares *record_spares
cdef SharedFields shared_fields(
    object topic, object partition, object timestamp_type, object leader_epoch
)


cdef extern from "plain_tuple.h":
    ctypedef struct AiokTuples:
        pass

    PyObject *aiok_plain_tuple(
        AiokTuples *spares,
        PyTypeObject *type,
        PyObject *topic,
        PyObject *partition,
        PyObject *offset,
        PyObject *timestamp,
        long long answer,
    ) except NULL
    long long aiok_answer(long long append_time, long long log_start)


cdef AiokTuples *metadata_spares


cdef class ReaderState:
    cdef public Py_ssize_t max_frame
    cdef public object _scratch
    cdef public object _pool
    cdef public object _frame
    cdef public Py_ssize_t _filled
    cdef public int _lull
    cdef bytes remainder


cdef class TemplateState:
    cdef public int version
    cdef public bint flexible
    cdef public object topic_id
    cdef public bytes head
    cdef public bytes tail
    cdef public bytes answer_head
    cdef public bytes answer_tail
    cdef public Py_ssize_t answer_size


cdef class BatchesState:
    cdef public list templates
    cdef public list batches
    cdef public object _topics


cpdef BatchesState new_request(object kind, list templates, list batches)


cdef class PipelineState:
    cdef public object client_id
    cdef public dict _headers
    cdef public object _in_flight
    cdef public int32_t _next
    # The class and the version of the latest request, and the parts of its header.
    cdef object kind
    cdef object version
    cdef bytes start
    cdef bytes end
    cdef object response_header


cdef class HeldState:
    cdef public object requests
    cdef public bint paused
    cdef public double throttled_until


cdef class MeterState:
    cdef public object traffic
    cdef public object is_logged
    cdef public dict known_levels
    cdef public list sizes
    cdef public dict waits
    cdef public int64_t received


cdef class TimerState:
    cdef public double due


cdef class PendingRequest:
    cdef public object message
    cdef public object version
    cdef public double since
    cdef public double timeout_s
    cdef public double deadline
    cdef public bint expect_response
    cpdef deliver_response(self, response)


cdef class ConnectionState:
    cdef public object broker
    cdef public bint closed
    cdef public object _open_transport
    cdef public object _setup
    cdef public object _threshold
    cdef public TimerState _timer
    cdef public object _now
    cdef public object _buffer
    cdef public object _in_flight
    cdef public object _decoding
    cdef public PipelineState _pipeline
    cdef public ReaderState _reader
    cdef public HeldState _held
    cdef public MeterState _meter
    cdef public double _last_used
    cdef public bint _draining
    cdef public bint _one_way
    cdef bint is_reading
    cdef list after_read


# These are methods in Python. As methods in C, each call would look for a subclass's own in Python.
cdef int start_request(ConnectionState self, PendingRequest sent, double now) except -1
cdef bint call_after_read(ConnectionState self, object function) except -1
