from libc.stdint cimport int32_t, int64_t, uint8_t

from aiokclient._types_cy cimport Place
from aiokclient.record._native cimport AiokCursor, AiokFields


ctypedef struct Head:
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t start_offset
    int64_t append_time
    int64_t expected
    bint appended
    int32_t count


cdef int begin(AiokCursor *cursor, const uint8_t *data, Py_ssize_t size, Head *head) except -1
cdef int refuse(int failed, AiokFields *fields, Head *head) except -1
cdef int finish(AiokCursor *cursor) except -1

cdef list decode_records(const uint8_t *data, Py_ssize_t size, Head *head, Place place)
cdef list decode_views(const uint8_t *data, object view, Head *head, Place place)
cdef list decode_rows(const uint8_t *data, Py_ssize_t size, Head *head)
cdef list decode_parts(const uint8_t *data, Py_ssize_t size, Head *head)
cdef int check(const uint8_t *data, Py_ssize_t size, Head *head) except -1
