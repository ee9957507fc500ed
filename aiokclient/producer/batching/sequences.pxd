from libc.stdint cimport int64_t


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
    cpdef tuple assign_identity(self, int64_t count)
    cpdef mark_written(self, tuple identity, int64_t count, int64_t base_offset=*)
