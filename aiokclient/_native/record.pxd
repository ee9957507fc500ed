"""The declarations for reading and writing batches, for the other native modules.

They are C functions and fields, so that sending and iterating call the encoder and the decoder
without Python calls. The format of a record itself is in record_format.h.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from aiokclient._native.ground cimport AiokSpares, BufferPool, MemoryBlock, SharedFields


cdef extern from "record_format.h":
    enum:
        AIOK_OK
        AIOK_PAST_END
        AIOK_LONG_VARINT
        AIOK_LONG_VARLONG
        AIOK_OUT_OF_ORDER
        AIOK_HEADER_COUNT
        AIOK_HEADER_KEY
        AIOK_HEADER_END
        AIOK_WRONG_LENGTH

    ctypedef struct AiokCursor:
        const uint8_t *at
        const uint8_t *end
        int64_t base_timestamp
        int64_t expected
        int64_t last

    ctypedef struct AiokFields:
        int64_t timestamp
        int32_t offset_delta
        int32_t key_size
        int32_t value_size
        int32_t header_count
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers

    uint64_t aiok_get(const uint8_t *at, int bytes) nogil
    void aiok_put(uint8_t *at, uint64_t number, int bytes) nogil
    int aiok_varint_size(int64_t number) nogil
    uint8_t *aiok_write_varint(uint8_t *at, int64_t number) nogil
    uint8_t *aiok_write_value(
        uint8_t *at,
        const uint8_t *end,
        const uint8_t *delta,
        int delta_size,
        Py_ssize_t index,
        const uint8_t *value,
        Py_ssize_t value_size,
    ) nogil
    int aiok_read_varint(const uint8_t **at, const uint8_t *end, int32_t *number) nogil
    int aiok_read_bytes(
        const uint8_t **at, const uint8_t *end, const uint8_t **content, int32_t *size
    ) nogil
    int32_t aiok_murmur2(const uint8_t *at, size_t size) nogil
    int aiok_next(AiokCursor *cursor, AiokFields *fields) nogil

    object aiok_bytes(const uint8_t *content, int32_t size)
    object aiok_headers(const AiokFields *fields, const uint8_t *end)
    # Returns a new reference, which `aiok_add` takes over.
    PyObject *aiok_make_record(
        AiokSpares *spares,
        const AiokFields *fields,
        const AiokCursor *cursor,
        PyTypeObject *type,
        PyObject *shared,
        int64_t base_offset,
        PyObject *no_headers,
    ) except NULL
    list aiok_list(Py_ssize_t count)
    void aiok_add(PyObject *list, PyObject *item)


ctypedef struct Head:
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t start_offset
    int64_t append_time
    int64_t expected
    bint appended
    int32_t count
    # The class of the records, a borrowed reference.
    PyTypeObject *kind


cdef int begin(AiokCursor *cursor, const uint8_t *data, Py_ssize_t size, Head *head) except -1
cdef int refuse(int failed, AiokFields *fields, Head *head) except -1
cdef int finish(AiokCursor *cursor) except -1

cdef list decode_records(const uint8_t *data, Py_ssize_t size, Head *head, SharedFields shared)
cdef list decode_views(const uint8_t *data, object view, Head *head, SharedFields shared)
cdef list decode_rows(const uint8_t *data, Py_ssize_t size, Head *head)
cdef list decode_parts(const uint8_t *data, Py_ssize_t size, Head *head)
cdef int check(const uint8_t *data, Py_ssize_t size, Head *head) except -1


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
cdef object corrupt(RecordBatch batch, str reason, object topic_partition=*)


cdef struct Part:
    # A key or value. The size -1 means null.
    const uint8_t *at
    Py_ssize_t size


cdef class RecordBatchBuilder:
    cdef readonly object compression
    cdef readonly int64_t max_timestamp
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t count
    cdef readonly bint closed
    cdef BufferPool _memory
    # The memory of the batch. None before the first record.
    cdef MemoryBlock _block
    # The size of the closed batch, in bytes.
    cdef Py_ssize_t _encoded
    cdef object _level
    cdef object _sealed
    # What `_sealed` was made with.
    cdef int64_t _producer_id
    cdef int32_t _base_sequence
    cdef int32_t _leader_epoch
    cdef int16_t _producer_epoch
    cdef bint _transactional
    cdef uint8_t *_data
    cdef Py_ssize_t _room
    cdef Py_ssize_t _limit
    cdef Py_ssize_t _likely
    cdef int64_t _base_timestamp
    cdef Py_ssize_t _append(
        self, int64_t time, object key, object value, object headers
    ) except -2
    cpdef Py_ssize_t append(self, timestamp, key, value, headers=*) except -2
    cpdef close(self)
    cpdef seal(
        self,
        int64_t producer_id=*,
        int16_t producer_epoch=*,
        int32_t base_sequence=*,
        bint transactional=*,
        int32_t leader_epoch=*,
    )


cpdef RecordBatchBuilder new_builder(
    object compression, object level, Py_ssize_t limit, Py_ssize_t likely, BufferPool memory
)


cdef inline bint take(object content, Part *part) noexcept:
    """Return whether the content is bytes or None. Set `part`, which borrows its memory."""
    if PyBytes_CheckExact(content):
        part.at = <const uint8_t *>PyBytes_AS_STRING(content)
        part.size = PyBytes_GET_SIZE(content)
        return True
    part.at = NULL
    part.size = -1
    return content is None

# Add a record. Return its index, or -1 if it does not fit. `headers` are from `pack`, or NULL.
cdef Py_ssize_t write(
    RecordBatchBuilder builder,
    int64_t time,
    Part *key,
    Part *value,
    Part *headers,
    Py_ssize_t header_count,
) except -2

# Return the encoded headers, without the count that comes before them in a record.
cdef bytes pack(object headers)
