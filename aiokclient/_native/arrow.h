/* Decodes records into the buffers of Arrow columns, without the interpreter; see record_arrow.pxi.

The caller must have made room in all columns with a fixed size per row. If a record's key, value or
headers need more room than there is, `aiok_fill` stops before the record and returns which of them.
The caller makes room and calls it again. */

#ifndef AIOKCLIENT_RECORD_ARROW_H
#define AIOKCLIENT_RECORD_ARROW_H

#include "record_format.h"

/* The reasons to stop, in addition to the errors of `aiok_next`, which are positive. */
enum {
    AIOK_MORE_KEYS = -1,
    AIOK_MORE_VALUES = -2,
    AIOK_MORE_HEADERS = -3,
    AIOK_CHANGED = -4, /* The bytes have changed while they were read. */
};

/* The columns that are decoded only if they are wanted. */
enum {
    AIOK_TIMESTAMPS = 1,
    AIOK_KINDS = 2,
    AIOK_KEYS = 4,
    AIOK_VALUES = 8,
    AIOK_HEADERS = 16,
    AIOK_ALL = 31,
};

/* Number of bytes that may be read and written after the end of a value. Copies of fixed sizes are
faster. */
#define AIOK_SLACK 32

typedef struct {
    uint8_t *content;
    int32_t *ends; /* The first one is 0. */
    uint8_t *valid; /* One bit per row. All bits are set initially. */
    int64_t size;
    int64_t room;
    int64_t count;
    int64_t nulls;
} AiokBinary;

typedef struct {
    int wanted; /* The wanted columns. The others are left undefined. */
    int64_t *offsets;
    int64_t *timestamps;
    uint8_t *timed;
    int32_t *kinds;
    int32_t *header_ends;
    int64_t untimed;
    int64_t rows;
    int64_t header_room; /* Number of headers for which there is room. */
    int64_t header_bytes; /* Upper bound of the bytes of a record's headers, if there is no room. */
    AiokBinary keys;
    AiokBinary values;
    AiokBinary header_keys;
    AiokBinary header_values;
} AiokColumns;

static inline void
aiok_clear_bit(uint8_t *bits, int64_t at)
{
    bits[at >> 3] &= (uint8_t)~(1 << (at & 7));
}

/* Copies a value. Most values are short, and a call of memcpy would take longer than the copy. */
static inline void
aiok_copy(uint8_t *to, const uint8_t *from, int64_t size, const uint8_t *end)
{
    if (size > 512 || end - from < size + AIOK_SLACK) {
        memcpy(to, from, (size_t)size);
        return;
    }
    for (int64_t at = 0; at < size; at += AIOK_SLACK) {
        memcpy(to + at, from + at, AIOK_SLACK);
    }
}

/* Appends a value. The caller has checked that there is room for it and for AIOK_SLACK. */
static inline void
aiok_add_bytes(AiokBinary *column, const uint8_t *content, int32_t size, const uint8_t *end)
{
    if (size > 0) {
        aiok_copy(column->content + column->size, content, size, end);
        column->size += size;
    } else if (size < 0) {
        aiok_clear_bit(column->valid, column->count);
        column->nulls++;
    }
    column->ends[++column->count] = (int32_t)column->size;
}

static inline int
aiok_fits(const AiokBinary *column, int64_t size)
{
    return size <= 0 || column->room - column->size >= size + AIOK_SLACK;
}

/* Adds all headers of a record, or none if there is not enough room. The keys are not checked for
UTF-8. */
static int
aiok_add_headers(AiokColumns *to, const AiokFields *fields, const uint8_t *stop, const uint8_t *end)
{
    const uint8_t *at = fields->headers, *content;
    int32_t count, size;
    int64_t left = fields->header_count;
    to->header_bytes = stop - at;
    if (to->header_keys.count + left > to->header_room
        || !aiok_fits(&to->header_keys, to->header_bytes)
        || !aiok_fits(&to->header_values, to->header_bytes)) {
        return AIOK_MORE_HEADERS;
    }
    if (aiok_read_varint(&at, stop, &count)) {
        return AIOK_CHANGED;
    }
    for (; left > 0; left--) {
        if (aiok_read_bytes(&at, stop, &content, &size) || size < 0) {
            return AIOK_CHANGED;
        }
        aiok_add_bytes(&to->header_keys, content, size, end);
        if (aiok_read_bytes(&at, stop, &content, &size)) {
            return AIOK_CHANGED;
        }
        aiok_add_bytes(&to->header_values, content, size, end);
    }
    return AIOK_OK;
}

static void
aiok_clear_bits(uint8_t *bits, int64_t from, int64_t to)
{
    for (; from < to && from & 7; from++) {
        aiok_clear_bit(bits, from);
    }
    for (; to - from >= 8; from += 8) {
        bits[from >> 3] = 0;
    }
    for (; from < to; from++) {
        aiok_clear_bit(bits, from);
    }
}

static inline void
aiok_repeat(int32_t *at, int64_t count, int32_t number)
{
    for (int64_t i = 0; i < count; i++) {
        at[i] = number;
    }
}

/* The largest number in a varint of at most three bytes, and the result for longer varints. */
#define AIOK_BRIEF ((1u << 21) - 1)
#define AIOK_NOT_BRIEF UINT32_MAX

/* Reads a varint of at most three bytes, and does not decode its zigzag. The caller has checked
that three bytes can be read. */
static inline uint32_t
aiok_read_brief(const uint8_t **at)
{
    const uint8_t *p = *at;
    if (AIOK_LIKELY(p[0] < 128)) {
        *at = p + 1;
        return p[0];
    }
    if (AIOK_LIKELY(p[1] < 128)) {
        *at = p + 2;
        return (uint32_t)(p[0] & 127) | (uint32_t)p[1] << 7;
    }
    if (p[2] < 128) {
        *at = p + 3;
        return (uint32_t)(p[0] & 127) | (uint32_t)(p[1] & 127) << 7 | (uint32_t)p[2] << 14;
    }
    return AIOK_NOT_BRIEF;
}

/* The room of a column that is not wanted. */
#define AIOK_UNLIMITED INT64_MAX

/* The most bytes that the numbers and attributes of a record take, if all numbers are brief. */
#define AIOK_NUMBERS 16

/* Reads records while they are of the usual kind: without headers, with short numbers, not before
`start_offset`, and with room for them. Returns how many it has read. `aiok_fill` handles the next
record, which is of another kind or malformed. The state is in local variables, so that the compiler
keeps it in registers. The function is compiled once for all columns and once for some, so that a
table of all columns costs no tests of `wanted`. */
static AIOK_INLINED int32_t
aiok_fill_usual(AiokColumns *to, AiokCursor *cursor, int32_t left, int64_t base_offset,
                int64_t start_offset, int appended, int64_t append_time, const int wanted)
{
    const uint8_t *at = cursor->at, *end = cursor->end;
    const int64_t last = cursor->last, base_timestamp = cursor->base_timestamp;
    int64_t expected = cursor->expected, row = to->rows, first = row, first_null = row;
    int64_t key_at = to->keys.size, value_at = to->values.size;
    const int wants_key = wanted & AIOK_KEYS, wants_value = wanted & AIOK_VALUES;
    const int wants_time = wanted & AIOK_TIMESTAMPS;
    const int64_t key_room = wants_key ? to->keys.room - AIOK_SLACK : AIOK_UNLIMITED;
    const int64_t value_room = wants_value ? to->values.room - AIOK_SLACK : AIOK_UNLIMITED;
    int64_t *offsets = to->offsets, *timestamps = to->timestamps;
    int32_t *key_ends = to->keys.ends, *value_ends = to->values.ends;
    uint8_t *keys = to->keys.content, *values = to->values.content, *keyed = to->keys.valid;
    for (; left > 0; left--, row++) {
        const uint8_t *p = at, *start, *key;
        if (end - p < AIOK_NUMBERS) {
            break;
        }
        uint32_t size = aiok_read_brief(&p);
        start = p++; /* Skip the attributes. */
        uint32_t time_delta = aiok_read_brief(&p);
        uint32_t offset_delta = aiok_read_brief(&p);
        uint32_t key_size = aiok_read_brief(&p);
        if (size > AIOK_BRIEF || time_delta > AIOK_BRIEF || offset_delta > AIOK_BRIEF
            || key_size > AIOK_BRIEF || (size | offset_delta) & 1) {
            break;
        }
        int64_t delta = offset_delta >> 1;
        int64_t offset = base_offset + delta;
        int64_t timestamp =
            (int64_t)((uint64_t)base_timestamp + (uint64_t)aiok_unzigzag(time_delta));
        if (delta < expected || delta > last || offset < start_offset) {
            break;
        }
        timestamp = appended ? append_time : timestamp;
        if (timestamp == -1) {
            break;
        }
        key = p;
        int has_key = !(key_size & 1);
        key_size >>= 1;
        if (has_key) {
            if (key_size > end - p - AIOK_NUMBERS || key_size > key_room - key_at) {
                break;
            }
            p += key_size;
        } else if (key_size || end - p < AIOK_NUMBERS) {
            break;
        }
        uint32_t value_size = aiok_read_brief(&p);
        if (value_size > AIOK_BRIEF || value_size & 1) {
            break;
        }
        value_size >>= 1;
        if (value_size >= end - p || value_size > value_room - value_at || p[value_size] != 0
            || p + value_size + 1 - start != size >> 1) {
            break;
        }
        if (wants_key) {
            if (has_key) {
                aiok_clear_bits(keyed, first_null, row);
                to->keys.nulls += row - first_null;
                first_null = row + 1;
                aiok_copy(keys + key_at, key, key_size, end);
                key_at += key_size;
            }
            key_ends[row + 1] = (int32_t)key_at;
        }
        if (wants_value) {
            aiok_copy(values + value_at, p, value_size, end);
            value_at += value_size;
            value_ends[row + 1] = (int32_t)value_at;
        }
        if (wants_time) {
            timestamps[row] = timestamp;
        }
        offsets[row] = offset;
        expected = delta + 1;
        at = p + value_size + 1;
    }
    if (wants_key) {
        aiok_clear_bits(keyed, first_null, row);
        to->keys.nulls += row - first_null;
    }
    if (wanted & AIOK_KINDS) {
        aiok_repeat(to->kinds + first, row - first, appended);
    }
    if (wanted & AIOK_HEADERS) {
        aiok_repeat(to->header_ends + first + 1, row - first, (int32_t)to->header_keys.count);
    }
    to->rows = to->keys.count = to->values.count = row;
    to->keys.size = key_at;
    to->values.size = value_at;
    cursor->at = at;
    cursor->expected = expected;
    return (int32_t)(row - first);
}

static int32_t
aiok_fill_all(AiokColumns *to, AiokCursor *cursor, int32_t left, int64_t base_offset,
              int64_t start_offset, int appended, int64_t append_time)
{
    return aiok_fill_usual(to, cursor, left, base_offset, start_offset, appended, append_time,
                           AIOK_ALL);
}

static int32_t
aiok_fill_some(AiokColumns *to, AiokCursor *cursor, int32_t left, int64_t base_offset,
               int64_t start_offset, int appended, int64_t append_time)
{
    return aiok_fill_usual(to, cursor, left, base_offset, start_offset, appended, append_time,
                           to->wanted);
}

/* Reads up to `*left` records, and decreases it. Records before `start_offset` are not added. */
static int
aiok_fill(AiokColumns *to, AiokCursor *cursor, AiokFields *fields, int32_t *left,
          int64_t base_offset, int64_t start_offset, int appended, int64_t append_time)
{
    const int wanted = to->wanted;
    for (; *left > 0; (*left)--) {
        *left -= (wanted == AIOK_ALL ? aiok_fill_all : aiok_fill_some)(
            to, cursor, *left, base_offset, start_offset, appended, append_time);
        if (*left == 0) {
            break;
        }
        AiokCursor before = *cursor;
        int failed = aiok_next(cursor, fields);
        if (failed) {
            return failed;
        }
        int64_t offset = base_offset + fields->offset_delta;
        if (offset < start_offset) {
            continue;
        }
        if (wanted & AIOK_VALUES && !aiok_fits(&to->values, fields->value_size)) {
            failed = AIOK_MORE_VALUES;
        } else if (wanted & AIOK_KEYS && !aiok_fits(&to->keys, fields->key_size)) {
            failed = AIOK_MORE_KEYS;
        } else if (wanted & AIOK_HEADERS && fields->header_count) {
            failed = aiok_add_headers(to, fields, cursor->at, cursor->end);
        }
        if (failed) {
            *cursor = before;
            return failed;
        }
        int64_t row = to->rows++, time = appended ? append_time : fields->timestamp;
        to->offsets[row] = offset;
        to->timestamps[row] = time;
        if (time == -1) {
            aiok_clear_bit(to->timed, row);
            to->untimed++;
        }
        to->kinds[row] = appended;
        if (wanted & AIOK_KEYS) {
            aiok_add_bytes(&to->keys, fields->key, fields->key_size, cursor->end);
        } else {
            to->keys.count++;
        }
        if (wanted & AIOK_VALUES) {
            aiok_add_bytes(&to->values, fields->value, fields->value_size, cursor->end);
        } else {
            to->values.count++;
        }
        to->header_ends[row + 1] = (int32_t)to->header_keys.count;
    }
    return AIOK_OK;
}

/* Returns the number of rows before the first one whose offset is at least `end`. */
static int64_t
aiok_rows_before(const AiokColumns *columns, int64_t end)
{
    int64_t low = 0, high = columns->rows;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (columns->offsets[middle] < end) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int
aiok_is_ascii(const uint8_t *at, int64_t size)
{
    uint8_t bits = 0;
    for (int64_t i = 0; i < size; i++) {
        bits |= at[i];
    }
    return bits < 128;
}

#endif
