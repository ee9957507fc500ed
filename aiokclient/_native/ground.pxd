"""The declarations of memory, records, and their metadata, for the other native modules.

What is created for each record has a C function here that creates it without a Python call.
"""

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport uint8_t


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
