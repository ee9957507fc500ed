cimport cython
from libc.stdint cimport int64_t

cdef int64_t _MODULUS
cdef int64_t _HALF


cdef class PartitionSequences:
    cdef public int64_t producer_id
    cdef public int64_t epoch
    cdef public int64_t generation
    cdef public int64_t next
    cdef public int64_t acknowledged
    cdef public int64_t end_offset
    cdef public bint proven
    cdef public bint trusted
    cdef public bint void
    cdef public object state
    @cython.locals(sequence=int64_t)
    cpdef tuple assign_identity(self, int64_t count)
    @cython.locals(producer_id=int64_t, epoch=int64_t, sequence=int64_t, end=int64_t)
    cpdef mark_written(self, tuple identity, int64_t count, int64_t base_offset=*)
