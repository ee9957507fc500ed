"""Reading the records of a v2 batch in C: the native twin of `record._pure.decode`.

`aiok_next` in record_format.h reads and checks the bytes of one record. Each function in this file
creates another kind of object from them, and raises CorruptRecordError unless the bytes are exactly
as many well-formed records as the head says.
"""


cdef enum:
    SMALLEST_RECORD = 7

cdef tuple NO_HEADERS = ()


cdef int begin(AiokCursor *cursor, const uint8_t *data, Py_ssize_t size, Head *head) except -1:
    cursor.at = data
    cursor.end = data + size
    cursor.base_timestamp = head.base_timestamp
    cursor.expected = head.expected
    cursor.last = head.last_offset - head.base_offset
    return 0


cdef int refuse(int failed, AiokFields *fields, Head *head) except -1:
    """Raise the error for a failure of `aiok_next`."""
    offset = int(head.base_offset) + fields.offset_delta
    if failed == AIOK_PAST_END:
        raise CorruptRecordError("The records reach past the end of the batch.")
    if failed == AIOK_LONG_VARINT:
        raise CorruptRecordError("A varint is longer than 5 bytes.")
    if failed == AIOK_LONG_VARLONG:
        raise CorruptRecordError("A varint is longer than 10 bytes.")
    if failed == AIOK_OUT_OF_ORDER:
        raise CorruptRecordError(f"A record has offset {offset}, which is out of order.")
    if failed == AIOK_HEADER_COUNT:
        raise CorruptRecordError(
            f"A record has the impossible number of {fields.header_count} headers.",
        )
    if failed == AIOK_HEADER_KEY:
        raise CorruptRecordError("A header has no key.")
    if failed == AIOK_HEADER_END:
        raise CorruptRecordError("A header reaches past the end of the batch.")
    raise CorruptRecordError(f"The record at offset {offset} does not have its stated length.")


cdef int finish(AiokCursor *cursor) except -1:
    if cursor.at != cursor.end:
        raise CorruptRecordError("Bytes are left over after the last record.")
    return 0


cdef inline list room(Py_ssize_t size, Head *head):
    """Return an empty list with room for as many records as the head says.

    The room is limited to the number of records that `size` bytes can contain.
    """
    cdef Py_ssize_t count = size // SMALLEST_RECORD
    return aiok_list(head.count if head.count < count else count)


cdef list decode_records(const uint8_t *data, Py_ssize_t size, Head *head, SharedFields shared):
    """Return the records, with copies of their keys and values."""
    cdef AiokCursor cursor
    cdef AiokFields fields
    cdef int failed
    cdef PyObject *record
    cdef int64_t base_offset = head.base_offset
    cdef list records = room(size, head)
    begin(&cursor, data, size, head)
    for _ in range(head.count):
        failed = aiok_next(&cursor, &fields)
        if failed:
            refuse(failed, &fields, head)
        if base_offset + fields.offset_delta < head.start_offset:
            continue
        if head.appended:
            fields.timestamp = head.append_time
        record = aiok_make_record(
            record_spares,
            &fields,
            &cursor,
            head.kind,
            <PyObject *>shared,
            base_offset,
            <PyObject *>NO_HEADERS,
        )
        aiok_add(<PyObject *>records, record)
    finish(&cursor)
    return records


cdef list decode_views(const uint8_t *data, object view, Head *head, SharedFields shared):
    """Return the records. Keys and values are slices of `view`, a memoryview of `data`."""
    cdef AiokCursor cursor
    cdef AiokFields fields
    cdef int failed
    cdef list records = []
    begin(&cursor, data, len(view), head)
    for _ in range(head.count):
        failed = aiok_next(&cursor, &fields)
        if failed:
            refuse(failed, &fields, head)
        if head.base_offset + fields.offset_delta < head.start_offset:
            continue
        records.append(
            (<object>head.kind)(
                shared.topic,
                shared.partition,
                head.base_offset + fields.offset_delta,
                head.append_time if head.appended else fields.timestamp,
                shared.timestamp_type,
                slice_of(data, view, fields.key, fields.key_size),
                slice_of(data, view, fields.value, fields.value_size),
                headers_of(&fields, &cursor),
                shared.leader_epoch,
            )
        )
    finish(&cursor)
    return records


cdef inline object slice_of(
    const uint8_t *data, object view, const uint8_t *content, Py_ssize_t size
):
    return None if size < 0 else view[content - data : content - data + size]


cdef inline tuple headers_of(AiokFields *fields, AiokCursor *cursor):
    return NO_HEADERS if fields.header_count == 0 else aiok_headers(fields, cursor.end)


cdef list decode_rows(const uint8_t *data, Py_ssize_t size, Head *head):
    """Return tuples (offset, timestamp, key, value, headers)."""
    cdef AiokCursor cursor
    cdef AiokFields fields
    cdef int failed
    cdef list rows = []
    begin(&cursor, data, size, head)
    for _ in range(head.count):
        failed = aiok_next(&cursor, &fields)
        if failed:
            refuse(failed, &fields, head)
        if head.base_offset + fields.offset_delta < head.start_offset:
            continue
        rows.append(
            (
                head.base_offset + fields.offset_delta,
                head.append_time if head.appended else fields.timestamp,
                aiok_bytes(fields.key, fields.key_size),
                aiok_bytes(fields.value, fields.value_size),
                headers_of(&fields, &cursor),
            )
        )
    finish(&cursor)
    return rows


cdef list decode_parts(const uint8_t *data, Py_ssize_t size, Head *head):
    """Return tuples (timestamp, key, value, headers), the arguments of `append`."""
    return [row[1:] for row in decode_rows(data, size, head)]


cdef int check(const uint8_t *data, Py_ssize_t size, Head *head) except -1:
    """Check that all records can be read."""
    cdef AiokCursor cursor
    cdef AiokFields fields
    cdef int failed
    begin(&cursor, data, size, head)
    for _ in range(head.count):
        failed = aiok_next(&cursor, &fields)
        if failed:
            refuse(failed, &fields, head)
    finish(&cursor)
    return 0
