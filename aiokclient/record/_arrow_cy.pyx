"""Records straight into the buffers of Arrow columns, without an object for any of them.

pyarrow makes arrays of the buffers in `arrow`; nothing of it is needed here.
"""

from aiokclient.errors import KafkaError

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy, memset

from aiokclient.record._batch_cy cimport RecordBatch, content, corrupt, fill
from aiokclient.record._decode_cy cimport Head, begin, finish, refuse
from aiokclient.record._native cimport (
    AiokCursor,
    AiokFields,
    aiok_next,
    aiok_read_bytes,
    aiok_read_varint,
)

__all__ = ["Binary", "Columns"]

cdef enum:
    SMALLEST = 7


@cython.final
@cython.no_gc
cdef class Buffer:
    """Bytes that grow, from Arrow's pool: fresh pages of memory cost as much as filling them."""

    cdef object allocate
    cdef object buffer
    cdef uint8_t *at
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    def __cinit__(self, allocate):
        self.allocate = allocate

    cdef inline int need(self, Py_ssize_t more) except -1:
        if self.size + more > self.room:
            self.grow(max(2 * self.room, self.size + more, 256))
        return 0

    cdef int grow(self, Py_ssize_t room) except -1:
        if self.buffer is None:
            self.buffer = self.allocate(room)
        else:
            self.buffer.resize(room)
        self.at = <uint8_t *><uintptr_t>self.buffer.address
        self.room = room
        return 0

    cdef inline int add(self, const void *what, Py_ssize_t size) except -1:
        self.need(size)
        memcpy(self.at + self.size, what, size)
        self.size += size
        return 0

    cdef inline void put_int64(self, int64_t number) noexcept:
        (<int64_t *>(self.at + self.size))[0] = number
        self.size += sizeof(number)

    cdef inline void put_int32(self, int32_t number) noexcept:
        (<int32_t *>(self.at + self.size))[0] = number
        self.size += sizeof(number)

    cdef object done(self):
        if self.buffer is None:
            self.grow(0)
        self.buffer.resize(self.size)
        return self.buffer


@cython.final
@cython.no_gc
cdef class Validity:
    """A bit for each row, made only once there is a null."""

    cdef object allocate
    cdef Buffer bits
    cdef readonly Py_ssize_t nulls

    def __cinit__(self, allocate):
        self.allocate = allocate

    cdef inline int add(self, Py_ssize_t row, bint valid) except -1:
        if not self.nulls or self.bits.size <= row >> 3:
            return 0 if valid and not self.nulls else self.set(row, valid)
        if not valid:
            self.bits.at[row >> 3] &= ~(1 << (row & 7))
            self.nulls += 1
        return 0

    cdef int set(self, Py_ssize_t row, bint valid) except -1:
        cdef Py_ssize_t size = row // 8 + 1, before
        if not self.nulls:
            self.bits = Buffer(self.allocate)
            self.bits.need(size)
            memset(self.bits.at, 0xFF, size)
            self.bits.size = size
        elif self.bits.size < size:
            self.bits.need(1)
            self.bits.at[size - 1] = 0xFF
            self.bits.size = size
        if not valid:
            self.bits.at[size - 1] &= ~(1 << (row & 7))
            self.nulls += 1
        return 0

    cdef object done(self):
        return self.bits.done() if self.nulls else None


@cython.final
@cython.no_gc
cdef class Binary:
    """A column of bytes: validity, offsets, content."""

    cdef Validity validity
    cdef Buffer offsets
    cdef Buffer content
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t largest

    def __cinit__(self, Py_ssize_t largest, allocate):
        self.validity = Validity(allocate)
        self.offsets, self.content = Buffer(allocate), Buffer(allocate)
        self.largest = min(largest, <Py_ssize_t>INT32_MAX)
        self.offsets.need(4)
        self.offsets.put_int32(0)

    cdef inline int add(self, const uint8_t *at, Py_ssize_t size) except -1:
        """Room for the offset has been reserved."""
        self.validity.add(self.count, size >= 0)
        if size > 0:
            if self.content.size + size > self.largest:
                raise too_large()
            self.content.add(at, size)
        self.offsets.put_int32(<int32_t>self.content.size)
        self.count += 1
        return 0

    cdef int add_object(self, object part) except -1:
        if part is None:
            return self.add(NULL, -1)
        return self.add(<const uint8_t *>PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))

    def buffers(self):
        """What pyarrow makes an array of, and the number of nulls."""
        made = [self.validity.done(), self.offsets.done(), self.content.done()]
        return made, self.validity.nulls


cdef object too_large():
    return ValueError("the keys or values come to 2 GiB or more: pass fewer batches at a time")


@cython.final
@cython.no_gc
cdef class Columns:
    """What becomes the columns; `largest` is how many bytes one may hold.

    `allocate(size)` makes a buffer as `pyarrow.allocate_buffer(size, resizable=True)` does.
    """

    cdef Buffer _offsets
    cdef Buffer _timestamps
    cdef Buffer _kinds
    cdef Buffer _header_ends
    cdef Validity _timed
    cdef readonly Binary keys
    cdef readonly Binary values
    cdef readonly Binary header_keys
    cdef readonly Binary header_values
    cdef readonly Py_ssize_t count

    def __cinit__(self, Py_ssize_t largest, allocate):
        self._offsets, self._timestamps = Buffer(allocate), Buffer(allocate)
        self._kinds, self._header_ends = Buffer(allocate), Buffer(allocate)
        self._timed = Validity(allocate)
        self.keys, self.values = Binary(largest, allocate), Binary(largest, allocate)
        self.header_keys = Binary(largest, allocate)
        self.header_values = Binary(largest, allocate)
        self._header_ends.need(4)
        self._header_ends.put_int32(0)

    def buffers(self):
        """For offsets, timestamps and their types what pyarrow makes arrays of, and the nulls."""
        return [
            ([None, self._offsets.done()], 0),
            ([self._timed.done(), self._timestamps.done()], self._timed.nulls),
            ([None, self._kinds.done()], 0),
        ]

    def header_ends(self):
        """Where the headers of each row end."""
        return self._header_ends.done()

    def add(self, batch, start_offset, bint check_crcs, limit):
        """The records of a batch from `start_offset` on. Raises as its `rows` does."""
        if not isinstance(batch, RecordBatch):
            rows = batch.rows(start_offset, check_crcs=check_crcs, limit=limit)
            self._add_rows(rows, batch.timestamp_type)
            return
        if check_crcs and not batch.check_crc():
            raise corrupt(batch, "its checksum is wrong")
        try:
            self._add_batch(batch, start_offset, limit)
        except KafkaError as error:
            raise corrupt(batch, error.message) from error

    cdef int _add_batch(self, RecordBatch batch, object start_offset, object limit) except -1:
        cdef Py_buffer view
        cdef Head head
        cdef Py_ssize_t start, size
        fill(&head, batch, start_offset)
        source = content(batch, limit, &start, &size)
        PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
        try:
            if start + size > view.len:
                raise corrupt(batch, "the buffer has become smaller")
            self._add_records(<const uint8_t *>view.buf + start, size, &head)
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int _add_records(self, const uint8_t *data, Py_ssize_t size, Head *head) except -1:
        cdef AiokCursor cursor
        cdef AiokFields fields
        cdef int failed
        self._reserve(min(<Py_ssize_t>head.count, size // SMALLEST), size)
        begin(&cursor, data, size, head)
        for _ in range(head.count):
            failed = aiok_next(&cursor, &fields)
            if failed:
                refuse(failed, &fields, head)
            if head.base_offset + fields.offset_delta < head.start_offset:
                continue
            if head.appended:
                fields.timestamp = head.append_time
            self._add_place(
                head.base_offset + fields.offset_delta, fields.timestamp, head.appended
            )
            self.keys.add(fields.key, fields.key_size)
            self.values.add(fields.value, fields.value_size)
            if fields.header_count:
                self._add_headers(&fields, cursor.end)
            self._header_ends.put_int32(<int32_t>self.header_keys.count)
        return finish(&cursor)

    cdef int _reserve(self, Py_ssize_t rows, Py_ssize_t size) except -1:
        """Room for so many rows, of so many bytes: after it, `put` needs no check."""
        self._offsets.need(8 * rows)
        self._timestamps.need(8 * rows)
        self._kinds.need(4 * rows)
        self._header_ends.need(4 * rows)
        self.keys.offsets.need(4 * rows)
        self.values.offsets.need(4 * rows)
        return self.values.content.need(size)

    cdef inline int _add_place(self, int64_t offset, int64_t timestamp, int kind) except -1:
        self._offsets.put_int64(offset)
        self._timed.add(self.count, timestamp != -1)
        self._timestamps.put_int64(timestamp)
        self._kinds.put_int32(kind)
        self.count += 1
        return 0

    cdef int _add_headers(self, AiokFields *fields, const uint8_t *end) except -1:
        cdef const uint8_t *at = fields.headers
        cdef const uint8_t *part
        cdef int32_t count, size
        aiok_read_varint(&at, end, &count)
        if self.header_keys.count + fields.header_count > self.header_keys.largest:
            raise too_large()
        self.header_keys.offsets.need(4 * <Py_ssize_t>fields.header_count)
        self.header_values.offsets.need(4 * <Py_ssize_t>fields.header_count)
        for _ in range(fields.header_count):
            if aiok_read_bytes(&at, end, &part, &size) or size < 0:
                raise BufferError("the bytes have changed while they were read")
            # What is not UTF-8 becomes so, as in the headers of a record.
            name = part[:size]
            self.header_keys.add_object(name.decode("utf-8", "replace").encode())
            if aiok_read_bytes(&at, end, &part, &size):
                raise BufferError("the bytes have changed while they were read")
            self.header_values.add(part, size)
        return 0

    cdef int _add_rows(self, list rows, int kind) except -1:
        """Those of messages of an old format, which are read in Python and have no headers."""
        self._reserve(len(rows), 0)
        for offset, timestamp, key, value, _ in rows:
            self._add_place(offset, timestamp, kind)
            self.keys.add_object(key)
            self.values.add_object(value)
            self._header_ends.put_int32(<int32_t>self.header_keys.count)
        return 0
