/* The encoding of records for the native modules: varints, numbers in network byte order, and the
records of a v2 batch. Every read is checked against the end of the buffer first. */

#ifndef AIOKCLIENT_RECORD_NATIVE_H
#define AIOKCLIENT_RECORD_NATIVE_H

#include "record_object.h"
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define AIOK_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define AIOK_INLINED inline __attribute__((always_inline))
#else
#define AIOK_LIKELY(condition) (condition)
#define AIOK_INLINED __forceinline
#endif

/* The ways in which records can be malformed. The messages are in record_decode.pxi. */
enum {
    AIOK_OK = 0,
    AIOK_PAST_END,
    AIOK_LONG_VARINT,
    AIOK_LONG_VARLONG,
    AIOK_OUT_OF_ORDER,
    AIOK_HEADER_COUNT,
    AIOK_HEADER_KEY,
    AIOK_HEADER_END,
    AIOK_WRONG_LENGTH,
};

/* ---- numbers in network byte order */

static inline uint64_t
aiok_get(const uint8_t *at, int bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++) {
        number = number << 8 | at[i];
    }
    return number;
}

static inline void
aiok_put(uint8_t *at, uint64_t number, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--) {
        at[i] = (uint8_t)number;
        number >>= 8;
    }
}

/* ---- varints */

static inline uint64_t
aiok_zigzag(int64_t number)
{
    return (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
}

static inline int64_t
aiok_unzigzag(uint64_t zigzag)
{
    return (int64_t)(zigzag >> 1 ^ (0 - (zigzag & 1)));
}

/* Returns the size of the varint of a number in bytes. */
static inline int
aiok_varint_size(int64_t number)
{
    uint64_t zigzag = aiok_zigzag(number);
    if (AIOK_LIKELY(zigzag < 1 << 7)) {
        return 1;
    }
    if (AIOK_LIKELY(zigzag < 1 << 14)) {
        return 2;
    }
#if defined(__GNUC__) || defined(__clang__)
    return ((63 - __builtin_clzll(zigzag | 1)) * 9 + 73) / 64;
#else
    int size = 1;
    while (zigzag > 127) {
        zigzag >>= 7;
        size++;
    }
    return size;
#endif
}

/* Writes a varint, and returns the position after it. */
static inline uint8_t *
aiok_write_varint(uint8_t *at, int64_t number)
{
    uint64_t zigzag = aiok_zigzag(number);
    if (AIOK_LIKELY(zigzag < 1 << 7)) {
        *at = (uint8_t)zigzag;
        return at + 1;
    }
    if (AIOK_LIKELY(zigzag < 1 << 14)) {
        at[0] = (uint8_t)(zigzag | 128);
        at[1] = (uint8_t)(zigzag >> 7);
        return at + 2;
    }
    while (zigzag > 127) {
        *at++ = (uint8_t)(zigzag | 128);
        zigzag >>= 7;
    }
    *at++ = (uint8_t)zigzag;
    return at;
}

/* Writes a record that has only a value and is not the first one of its batch, and returns the
position after it. Returns NULL, and writes nothing, if the record would not end by `end`, or if a
number in it takes more than two bytes. `delta` is the encoded timestamp delta. */
static inline uint8_t *
aiok_write_value(uint8_t *at, const uint8_t *end, const uint8_t *delta, int delta_size,
                 Py_ssize_t index, const uint8_t *value, Py_ssize_t value_size)
{
    Py_ssize_t body = 5 + delta_size + (index > 63) + (value_size > 63) + value_size;
    if (value_size < 0 || index > 8191 || body > 8191 || body + 2 > end - at) {
        return NULL;
    }
    if (body > 63) {
        *at++ = (uint8_t)(body << 1 | 128);
        *at++ = (uint8_t)(body >> 6);
    }
    else {
        *at++ = (uint8_t)(body << 1);
    }
    *at++ = 0;
    *at++ = delta[0];
    for (int i = 1; i < delta_size; i++) {
        *at++ = delta[i];
    }
    if (index > 63) {
        *at++ = (uint8_t)(index << 1 | 128);
        *at++ = (uint8_t)(index >> 6);
    }
    else {
        *at++ = (uint8_t)(index << 1);
    }
    *at++ = 1;
    if (value_size > 63) {
        *at++ = (uint8_t)(value_size << 1 | 128);
        *at++ = (uint8_t)(value_size >> 6);
    }
    else {
        *at++ = (uint8_t)(value_size << 1);
    }
    memcpy(at, value, value_size);
    at += value_size;
    *at++ = 0;
    return at;
}

static int
aiok_read_long(const uint8_t **at, const uint8_t *end, int longest, uint64_t *zigzag)
{
    const uint8_t *p = *at;
    uint64_t bits = 0;
    for (int shift = 0; shift < 7 * longest; shift += 7) {
        if (p >= end) {
            return AIOK_PAST_END;
        }
        uint8_t byte = *p++;
        bits |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *zigzag = bits;
            *at = p;
            return AIOK_OK;
        }
    }
    return longest == 5 ? AIOK_LONG_VARINT : AIOK_LONG_VARLONG;
}

/* Reads a 32-bit number. Higher bits are dropped, as Java's shifts drop them. */
static inline int
aiok_read_varint(const uint8_t **at, const uint8_t *end, int32_t *number)
{
    const uint8_t *p = *at;
    uint64_t zigzag;
    if (AIOK_LIKELY(p < end && p[0] < 128)) {
        *number = (int32_t)aiok_unzigzag(p[0]);
        *at = p + 1;
        return AIOK_OK;
    }
    if (AIOK_LIKELY(end - p > 1 && p[1] < 128)) {
        *number = (int32_t)aiok_unzigzag((uint64_t)(p[0] & 127) | (uint64_t)p[1] << 7);
        *at = p + 2;
        return AIOK_OK;
    }
    int failed = aiok_read_long(at, end, 5, &zigzag);
    if (!failed) {
        *number = (int32_t)aiok_unzigzag(zigzag & UINT32_MAX);
    }
    return failed;
}

static inline int
aiok_read_varlong(const uint8_t **at, const uint8_t *end, int64_t *number)
{
    const uint8_t *p = *at;
    uint64_t zigzag;
    if (AIOK_LIKELY(p < end && p[0] < 128)) {
        *number = aiok_unzigzag(p[0]);
        *at = p + 1;
        return AIOK_OK;
    }
    int failed = aiok_read_long(at, end, 10, &zigzag);
    if (!failed) {
        *number = aiok_unzigzag(zigzag);
    }
    return failed;
}

/* ---- murmur2, as Java's Utils.murmur2 */

static inline int32_t
aiok_murmur2(const uint8_t *at, size_t size)
{
    const uint32_t m = 0x5bd1e995;
    uint32_t h = 0x9747b28cu ^ (uint32_t)size;
    for (; size >= 4; at += 4, size -= 4) {
        uint32_t k = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16
                     | (uint32_t)at[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = h * m ^ k * m;
    }
    if (size) {
        for (size_t i = 0; i < size; i++) {
            h ^= (uint32_t)at[i] << 8 * i;
        }
        h *= m;
    }
    h ^= h >> 13;
    h *= m;
    h ^= h >> 15;
    return (int32_t)h;
}

/* ---- the records of a batch */

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    int64_t base_timestamp;
    int64_t expected; /* The smallest offset delta that the next record may have. */
    int64_t last; /* The largest offset delta that a record may have. */
} AiokCursor;

/* The position of a record's parts in the encoded bytes. A size of -1 means null. */
typedef struct {
    int64_t timestamp;
    int32_t offset_delta;
    int32_t key_size;
    int32_t value_size;
    int32_t header_count; /* For AIOK_HEADER_COUNT, the impossible number. */
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers;
} AiokFields;

/* Reads a length and that number of bytes. A negative length means null. */
static inline int
aiok_read_bytes(const uint8_t **at, const uint8_t *end, const uint8_t **content, int32_t *size)
{
    int failed = aiok_read_varint(at, end, size);
    if (failed) {
        return failed;
    }
    if (*size < 0) {
        *size = -1;
        *content = NULL;
        return AIOK_OK;
    }
    if (*size > end - *at) {
        return AIOK_PAST_END;
    }
    *content = *at;
    *at += *size;
    return AIOK_OK;
}

/* Checks the headers and moves to their end. */
static int
aiok_skip_headers(const uint8_t **at, const uint8_t *end, int32_t *count)
{
    const uint8_t *content;
    int32_t size;
    int failed = aiok_read_varint(at, end, count);
    if (failed) {
        return failed;
    }
    if (*count < 0 || *count > end - *at) {
        return AIOK_HEADER_COUNT;
    }
    for (int32_t i = 0; i < *count; i++) {
        failed = aiok_read_bytes(at, end, &content, &size);
        if (failed) {
            return failed;
        }
        if (size < 0) {
            return AIOK_HEADER_KEY;
        }
        failed = aiok_read_varint(at, end, &size);
        if (failed) {
            return failed;
        }
        if (size > end - *at) {
            return i + 1 < *count ? AIOK_PAST_END : AIOK_HEADER_END;
        }
        *at += size < 0 ? 0 : size;
    }
    return AIOK_OK;
}

/* Reads a number of one or two bytes, without a check of the end. Returns NULL if it is longer. */
static inline const uint8_t *
aiok_read_short(const uint8_t *at, int32_t *number)
{
    uint32_t zigzag = *at++;
    if (zigzag > 127) {
        if (*at > 127) {
            return NULL;
        }
        zigzag = (zigzag & 127) | (uint32_t)*at++ << 7;
    }
    *number = (int32_t)aiok_unzigzag(zigzag);
    return at;
}

/* Reads a record as most of them are: with a value, without headers, and with numbers of at most
two bytes, so that few checks suffice. Returns whether it has read one. */
static inline int
aiok_next_short(AiokCursor *cursor, AiokFields *fields)
{
    const uint8_t *at = cursor->at, *end = cursor->end, *start;
    int32_t size, delta, offset, value_size;
    if (end - at < 11 || (start = aiok_read_short(at, &size)) == NULL
        || (at = aiok_read_short(start + 1, &delta)) == NULL
        || (at = aiok_read_short(at, &offset)) == NULL || offset < cursor->expected
        || offset > cursor->last || (at = aiok_read_short(at, &fields->key_size)) == NULL
        || fields->key_size < -1 || fields->key_size > end - at - 2) {
        return 0;
    }
    fields->key = fields->key_size < 0 ? NULL : at;
    at += fields->key_size < 0 ? 0 : fields->key_size;
    if ((at = aiok_read_short(at, &value_size)) == NULL || value_size < 0
        || value_size >= end - at || at[value_size] != 0 || at + value_size + 1 - start != size) {
        return 0;
    }
    fields->timestamp = (int64_t)((uint64_t)cursor->base_timestamp + (uint64_t)(int64_t)delta);
    fields->offset_delta = offset;
    fields->value_size = value_size;
    fields->value = at;
    fields->header_count = 0;
    cursor->expected = (int64_t)offset + 1;
    cursor->at = at + value_size + 1;
    return 1;
}

/* Reads the record at the cursor and moves to its end. */
static inline int
aiok_next(AiokCursor *cursor, AiokFields *fields)
{
    const uint8_t *at = cursor->at, *end = cursor->end, *start;
    int32_t size;
    int64_t delta;
    int failed;
    if (AIOK_LIKELY(aiok_next_short(cursor, fields))) {
        return AIOK_OK;
    }
    if ((failed = aiok_read_varint(&at, end, &size))) {
        return failed;
    }
    start = at;
    if (at >= end) {
        return AIOK_PAST_END;
    }
    at++; /* Skip the attributes, none of which is in use. */
    if ((failed = aiok_read_varlong(&at, end, &delta))) {
        return failed;
    }
    fields->timestamp = (int64_t)((uint64_t)cursor->base_timestamp + (uint64_t)delta);
    if ((failed = aiok_read_varint(&at, end, &fields->offset_delta))) {
        return failed;
    }
    if (fields->offset_delta < cursor->expected || fields->offset_delta > cursor->last) {
        return AIOK_OUT_OF_ORDER;
    }
    cursor->expected = (int64_t)fields->offset_delta + 1;
    if ((failed = aiok_read_bytes(&at, end, &fields->key, &fields->key_size))) {
        return failed;
    }
    if ((failed = aiok_read_bytes(&at, end, &fields->value, &fields->value_size))) {
        return failed;
    }
    if (AIOK_LIKELY(at < end && *at == 0)) {
        fields->header_count = 0;
        at++;
    } else {
        fields->headers = at;
        if ((failed = aiok_skip_headers(&at, end, &fields->header_count))) {
            return failed;
        }
    }
    if (size < 0 || at - start != size) {
        return AIOK_WRONG_LENGTH;
    }
    cursor->at = at;
    return AIOK_OK;
}

/* ---- Python objects from checked bytes */

static inline PyObject *
aiok_bytes(const uint8_t *content, int32_t size)
{
    if (size < 0) {
        return Py_NewRef(Py_None);
    }
    return PyBytes_FromStringAndSize((const char *)content, size);
}

/* Returns one header, or NULL with an exception. The bytes were checked before, but the application
may change the buffer meanwhile, so the bounds are checked again. */
static PyObject *
aiok_header(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *name, *content;
    int32_t name_size, size;
    if (aiok_read_bytes(at, end, &name, &name_size) || name_size < 0
        || aiok_read_bytes(at, end, &content, &size)) {
        PyErr_SetString(PyExc_BufferError, "The bytes have changed while they were read.");
        return NULL;
    }
    /* Java's clients also replace invalid UTF-8 instead of refusing the record. */
    PyObject *key = PyUnicode_DecodeUTF8((const char *)name, name_size, "replace");
    PyObject *value = key == NULL ? NULL : aiok_bytes(content, size);
    PyObject *header = value == NULL ? NULL : PyTuple_Pack(2, key, value);
    Py_XDECREF(key);
    Py_XDECREF(value);
    return header;
}

/* Returns the headers of a record that `aiok_next` has read: a tuple of (str, bytes or None). */
static PyObject *
aiok_headers(const AiokFields *fields, const uint8_t *end)
{
    const uint8_t *at = fields->headers;
    int32_t count;
    PyObject *headers = PyTuple_New(fields->header_count);
    if (headers == NULL || fields->header_count == 0) {
        return headers;
    }
    (void)aiok_read_varint(&at, end, &count);
    for (int32_t i = 0; i < fields->header_count; i++) {
        PyObject *header = aiok_header(&at, end);
        if (header == NULL) {
            Py_DECREF(headers);
            return NULL;
        }
        PyTuple_SET_ITEM(headers, i, header);
    }
    return headers;
}

static inline PyObject *
aiok_make_record(AiokSpares *spares, const AiokFields *fields, const AiokCursor *cursor,
                 PyTypeObject *type, PyObject *shared, int64_t base_offset, PyObject *no_headers)
{
    PyObject *headers = fields->header_count ? aiok_headers(fields, cursor->end)
                                             : Py_NewRef(no_headers);
    PyObject *key = aiok_bytes(fields->key, fields->key_size);
    PyObject *value = aiok_bytes(fields->value, fields->value_size);
    return aiok_record_new(spares, type, shared, base_offset + fields->offset_delta,
                           fields->timestamp, key, value, headers);
}

/* Returns an empty list with room for `count` items. `aiok_add` takes over the reference to an
item. */
static inline PyObject *
aiok_list(Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    if (list != NULL) {
        Py_SET_SIZE(list, 0);
    }
    return list;
}

static inline void
aiok_add(PyObject *list, PyObject *item)
{
    Py_ssize_t size = PyList_GET_SIZE(list);
    Py_SET_SIZE(list, size + 1);
    PyList_SET_ITEM(list, size, item);
}

#endif
