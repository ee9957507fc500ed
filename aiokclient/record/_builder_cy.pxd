"""For native modules that write into a batch without a Python call for each record."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t


cdef struct Part:
    # A key or value; a size of -1 is null.
    const uint8_t *at
    Py_ssize_t size


cdef class RecordBatchBuilder:
    cdef readonly object compression
    cdef readonly int64_t max_timestamp
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t count
    cdef readonly bint closed
    cdef object _buffer
    cdef object _level
    cdef object _sealed
    cdef object _sealed_with
    cdef uint8_t *_data
    cdef Py_ssize_t _room
    cdef Py_ssize_t _limit
    cdef Py_ssize_t _likely
    cdef int64_t _base_timestamp
    cdef object _append(self, int64_t time, object key, object value, object headers)


cdef inline bint take(object content, Part *part) noexcept:
    """Whether it is plain bytes or None, and then where they are: as long as the object lives."""
    if PyBytes_CheckExact(content):
        part.at = <const uint8_t *>PyBytes_AS_STRING(content)
        part.size = PyBytes_GET_SIZE(content)
        return True
    part.at = NULL
    part.size = -1
    return content is None

# The index of the record, or -1 if it does not fit; `headers` are those of `pack`, NULL for none.
cdef Py_ssize_t write(
    RecordBatchBuilder builder,
    int64_t time,
    Part *key,
    Part *value,
    Part *headers,
    Py_ssize_t header_count,
) except -2

# Headers as they are written, without their number.
cdef bytes pack(object headers)
