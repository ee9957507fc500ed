from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from aiokclient._types_cy cimport AiokSpares


cdef extern from "_native.h":
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
    # Owned by the caller, for `aiok_add`.
    PyObject *aiok_make_record(
        AiokSpares *spares,
        const AiokFields *fields,
        const AiokCursor *cursor,
        PyTypeObject *type,
        PyObject *place,
        int64_t base_offset,
        PyObject *no_headers,
    ) except NULL
    list aiok_list(Py_ssize_t count)
    void aiok_add(PyObject *list, PyObject *item)
