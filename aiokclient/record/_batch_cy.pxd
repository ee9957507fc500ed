from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from aiokclient.record._decode_cy cimport Head


cdef class RecordBatch:
    cdef object _source
    cdef object _buffer
    cdef object _intact
    cdef Py_ssize_t _start
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t content_size
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t producer_id
    cdef readonly int32_t count
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t base_sequence
    cdef readonly uint32_t crc
    cdef readonly int16_t producer_epoch
    cdef readonly int magic
    cdef int _attributes

    cpdef bint check_crc(self) except -1


cdef int fill(Head *head, RecordBatch batch, object start_offset) except -1
cdef object content(RecordBatch batch, object limit, Py_ssize_t *start, Py_ssize_t *size)
cdef int fill_part(
    Head *head, RecordBatch batch, object start_offset, int32_t count, int64_t expected
) except -1
cdef object corrupt(RecordBatch batch, str reason, object place=*)
