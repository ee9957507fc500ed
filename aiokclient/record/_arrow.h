/* Records into the buffers of Arrow columns, without the interpreter; see _arrow_cy.pyx.

Whoever calls has made room in all that is counted by rows. Where keys, values or headers need more
room than there is, `aiok_fill` stops before the record and tells so; it is called again then. */

#ifndef AIOKCLIENT_RECORD_ARROW_H
#define AIOKCLIENT_RECORD_ARROW_H

#include "_native.h"

/* Why it stopped, beside the reasons of `aiok_next`, which are positive. */
enum {
    AIOK_MORE_KEYS = -1,
    AIOK_MORE_VALUES = -2,
    AIOK_MORE_HEADERS = -3,
    AIOK_CHANGED = -4, /* The bytes are not what they were a moment ago. */
};

/* What may be written and read beyond the end of a value, for the sake of speed. */
#define AIOK_SLACK 32

typedef struct {
    uint8_t *content;
    int32_t *ends; /* The first one is 0. */
    uint8_t *valid; /* Bits, all of them set to begin with. */
    int64_t size;
    int64_t room;
    int64_t count;
    int64_t nulls;
} AiokBinary;

typedef struct {
    int64_t *offsets;
    int64_t *timestamps;
    uint8_t *timed;
    int32_t *kinds;
    int32_t *header_ends;
    int64_t untimed;
    int64_t rows;
    int64_t header_room; /* How many headers there is room for. */
    int64_t header_bytes; /* What the headers of one record take at most, where there is no room. */
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

/* Most values are short, and a call would take longer than copying them. */
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

/* There is room for it, and for the slack. */
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

/* Adds the headers that were gone past; when there is not room for all of them, none. What is not
UTF-8 in a key is not looked at here. */
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

/* Reads up to `*left` records, and counts it down; those before `start_offset` are not added. */
static int
aiok_fill(AiokColumns *to, AiokCursor *cursor, AiokFields *fields, int32_t *left,
          int64_t base_offset, int64_t start_offset, int appended, int64_t append_time)
{
    for (; *left > 0; (*left)--) {
        AiokCursor before = *cursor;
        int failed = aiok_next(cursor, fields);
        if (failed) {
            return failed;
        }
        int64_t offset = base_offset + fields->offset_delta;
        if (offset < start_offset) {
            continue;
        }
        if (!aiok_fits(&to->values, fields->value_size)) {
            failed = AIOK_MORE_VALUES;
        } else if (!aiok_fits(&to->keys, fields->key_size)) {
            failed = AIOK_MORE_KEYS;
        } else if (fields->header_count) {
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
        aiok_add_bytes(&to->keys, fields->key, fields->key_size, cursor->end);
        aiok_add_bytes(&to->values, fields->value, fields->value_size, cursor->end);
        to->header_ends[row + 1] = (int32_t)to->header_keys.count;
    }
    return AIOK_OK;
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
