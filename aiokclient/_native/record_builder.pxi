"""Building a v2 batch: the native twin of `record._pure.builder`, which makes the same bytes.

Records are encoded directly into a block of memory. At first it has the likely size of the batch,
and it doubles when it is full. No other object refers to it before the batch is sealed. A block
returns to its pool when nothing refers to it: neither the builder nor a view, such as those that a
transport keeps until it has sent the bytes. It has room for the rest of a request around the batch,
so that both are written to the transport without a copy and in one piece (`frame_batches`). The size of a record is computed before it is written,
so the size limit is exact, and a refused record leaves the batch unchanged.
"""

from aiokclient.record.compression import compress

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_Check,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.stdint cimport INT32_MAX


cdef extern from "Python.h":
    PyObject *PySequence_Fast_GET_ITEM(object sequence, Py_ssize_t index)
    Py_ssize_t PySequence_Fast_GET_SIZE(object sequence)


cdef enum:
    FIRST_ROOM = 512
    # The room that a request with one batch needs around it: for all but the longest client ids,
    # transactional ids, and names of topics.
    BEFORE_BATCH = 128
    AFTER_BATCH = 4
    # The room of a small batch, which stays accounted for; see `accumulator.SLACK`.
    KEPT_ROOM = 2048

cdef object UNCOMPRESSED = Compression.NONE
cdef Py_ssize_t LARGEST_SIZE = <Py_ssize_t>((<size_t>-1) >> 1)


@cython.no_gc
cdef class RecordBatchBuilder:
    """A v2 batch under construction.

    It has the same interface as `record._pure.builder.RecordBatchBuilder`.
    """

    def __cinit__(self):
        self.compression = UNCOMPRESSED
        self.max_timestamp = -1
        self.size = HEADER_SIZE

    def __init__(
        self,
        *,
        compression=UNCOMPRESSED,
        level=None,
        limit,
        likely=0,
        BufferPool memory=None,
    ):
        if self.count or self.closed:
            raise ValueError("A builder can be used for one batch only.")
        self.compression = compression
        self._level = level
        self._limit = LARGEST_SIZE if limit > LARGEST_SIZE else limit
        self._likely = likely
        self._memory = memory

    cpdef Py_ssize_t append(self, timestamp, key, value, headers=()) except -2:
        """Add a record and return its index in the batch, or -1 if it does not fit.

        Raises TypeError for a key or value that is neither bytes nor None. Raises ValueError for a
        timestamp that does not fit into 64 bits, or after `close`. The batch is unchanged then.
        """
        cdef int64_t time = time_of(timestamp)
        cdef Part key_part, value_part
        if not (take(key, &key_part) and take(value, &value_part)) or headers:
            return self._append(time, key, value, headers)
        return write(self, time, &key_part, &value_part, NULL, 0)

    cdef Py_ssize_t _append(
        self, int64_t time, object key, object value, object headers
    ) except -2:
        """Append a record that has headers, or a key or value that is not bytes."""
        cdef Part key_part, value_part, headers_part
        cdef Py_ssize_t count = len(headers)
        key, value = plain(key), plain(value)
        packed = pack(headers)
        take(key, &key_part)
        take(value, &value_part)
        take(packed, &headers_part)
        return write(self, time, &key_part, &value_part, &headers_part, count)

    def append_values(self, timestamp, values, Py_ssize_t start):
        """Add values without keys from `values[start:]` while they fit, and return their number."""
        if start >= len(values) or self.append(timestamp, None, values[start]) < 0:
            return 0
        items = values if type(values) is list or type(values) is tuple else list(values)
        cdef int64_t time = timestamp
        cdef Py_ssize_t size = self.size, count = self.count, first = count, index = start + 1
        cdef Part key, value
        cdef uint8_t delta[10]
        cdef uint8_t *at
        cdef int delta_size = <int>(
            aiok_write_varint(
                delta, <int64_t>(<uint64_t>time - <uint64_t>self._base_timestamp)
            )
            - delta
        )
        key.at, key.size = NULL, -1
        try:
            while index < PySequence_Fast_GET_SIZE(items):
                item = <object>PySequence_Fast_GET_ITEM(items, index)
                if not take(item, &value):
                    item = plain(item)
                    take(item, &value)
                at = aiok_write_value(
                    self._data + self.size,
                    self._data + min(self._room, self._limit),
                    delta,
                    delta_size,
                    self.count,
                    value.at,
                    value.size,
                )
                if at != NULL:
                    self.size = at - self._data
                    self.count += 1
                elif write(self, time, &key, &value, NULL, 0) < 0:
                    break
                index += 1
        except BaseException:
            self.size, self.count = size, count
            raise
        return self.count - first + 1

    def append_buffers(
        self,
        timestamp,
        validity,
        offsets not None,
        data,
        int width,
        Py_ssize_t first,
        Py_ssize_t start,
        Py_ssize_t stop,
    ):
        """Add values of an Arrow array, as `append_values` does. Its offsets have `width` bytes.

        `first` is the index of the array's first item in its buffers. Raises ValueError if the
        buffers do not belong together.
        """
        cdef Py_buffer bits, ends, content
        cdef int64_t time = time_of(timestamp)
        cdef Py_ssize_t taken
        if width not in (4, 8) or not 0 <= start <= stop or not 0 <= first < LARGEST_SIZE - stop:
            raise ValueError("The buffers do not belong to an array of bytes.")
        memset(&bits, 0, sizeof(bits))  # Releasing an empty buffer does nothing.
        memset(&ends, 0, sizeof(ends))
        memset(&content, 0, sizeof(content))
        try:
            PyObject_GetBuffer(b"" if validity is None else validity, &bits, PyBUF_SIMPLE)
            PyObject_GetBuffer(offsets, &ends, PyBUF_SIMPLE)
            PyObject_GetBuffer(b"" if data is None else data, &content, PyBUF_SIMPLE)
            if (
                ends.len // width <= stop + first
                or (validity is not None and bits.len * 8 < stop + first)
            ):
                raise ValueError("The buffers are too small for the array.")
            taken = write_array(
                self,
                time,
                <const uint8_t *>(NULL if validity is None else bits.buf),
                <const uint8_t *>ends.buf,
                &content,
                width,
                first + start,
                first + stop,
            )
        finally:
            PyBuffer_Release(&content)
            PyBuffer_Release(&ends)
            PyBuffer_Release(&bits)
        return taken

    cpdef close(self):
        """End the batch and compress it. Nothing can be appended afterwards. May be called again.

        This may run in a thread, because the codecs release the GIL. If compression does not make
        the records smaller, they stay uncompressed, so that `encoded_size` never exceeds `size`.
        """
        if self.closed:
            return
        self.closed = True
        self._encoded = self.size
        if not self.count:
            self.compression = UNCOMPRESSED
            return
        self._block.size = self.size
        if self.compression is not UNCOMPRESSED:
            with memoryview(self._block) as view, view[HEADER_SIZE:] as records:
                compressed = compress(self.compression, records, self._level)
            if len(compressed) < self.size - HEADER_SIZE:
                replace_records(self, compressed)
                return
            self.compression = UNCOMPRESSED
        if self.size < self._room // 2 and self._room > KEPT_ROOM:
            # Small batches in large blocks would need more memory than is accounted for.
            move_block(self, self.size, self.size)

    @property
    def compressed(self):
        """Whether the batch is closed, and its records were compressed because that saved bytes."""
        return self.closed and self.compression is not UNCOMPRESSED

    @property
    def encoded_size(self):
        """The size of the closed batch in bytes; before `close`, that of the uncompressed batch."""
        return self._encoded if self.closed else self.size

    cpdef seal(
        self,
        int64_t producer_id=-1,
        int16_t producer_epoch=-1,
        int32_t base_sequence=-1,
        bint transactional=False,
        int32_t leader_epoch=-1,
    ):
        """Close the batch and return its bytes as a read-only view, with base offset 0.

        A call with the same arguments returns the same bytes. A call with other arguments returns a
        copy, because a transport may still be sending the earlier bytes.
        """
        if not self.count:
            raise ValueError("An empty batch cannot be sealed.")
        if not self.closed:
            self.close()
        if self._sealed is None or (
            producer_id != self._producer_id
            or producer_epoch != self._producer_epoch
            or base_sequence != self._base_sequence
            or transactional != self._transactional
            or leader_epoch != self._leader_epoch
        ):
            if self._sealed is not None:
                move_block(self, self._encoded, self._encoded)
            self._producer_id, self._producer_epoch = producer_id, producer_epoch
            self._base_sequence, self._transactional = base_sequence, transactional
            self._leader_epoch = leader_epoch
            write_header(self)
            self._sealed = read_only_view(self._block)
        return self._sealed

    def records(self):
        """Return the appended records as tuples (timestamp, key, value, headers).

        It is used for batches that are split, or whose records move to another partition.
        """
        cdef Py_buffer view
        cdef Head head
        if not self.count:
            return iter(())
        head.expected = 0
        head.base_offset = head.start_offset = head.append_time = 0
        head.last_offset = self.count - 1
        head.count = self.count
        head.base_timestamp = self._base_timestamp
        head.appended = False
        data = PyBytes_FromStringAndSize(
            <char *>self._data + HEADER_SIZE, self.encoded_size - HEADER_SIZE
        )
        if self.compressed:
            data = decompress(self.compression, data, self.size)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return iter(decode_parts(<const uint8_t *>view.buf, view.len, &head))
        finally:
            PyBuffer_Release(&view)


cpdef RecordBatchBuilder new_builder(
    object compression, object level, Py_ssize_t limit, Py_ssize_t likely, BufferPool memory
):
    """See `record._pure.builder.new_builder`."""
    cdef RecordBatchBuilder builder = RecordBatchBuilder.__new__(RecordBatchBuilder)
    builder.compression, builder._level = compression, level
    builder._limit, builder._likely, builder._memory = limit, likely, memory
    return builder


cdef int move_block(RecordBatchBuilder builder, Py_ssize_t size, Py_ssize_t used) except -1:
    """Continue in another block of `size` bytes, into which `used` bytes are copied."""
    cdef MemoryBlock block = new_block(builder._memory, size, BEFORE_BATCH, AFTER_BATCH)
    if used:
        memcpy(block_start(block), builder._data, used)
    builder._block = block  # This releases the former block, unless a view refers to it.
    builder._data = block_start(block)
    builder._room = size
    return 0


cdef int replace_records(RecordBatchBuilder builder, object compressed) except -1:
    """Continue in a block with the compressed records, after room for the header."""
    cdef Part part
    compressed = plain(compressed)
    take(compressed, &part)
    builder._encoded = HEADER_SIZE + part.size
    move_block(builder, builder._encoded, 0)
    memcpy(builder._data + HEADER_SIZE, part.at, part.size)
    return 0


cdef int grow(RecordBatchBuilder builder, Py_ssize_t size) except -1:
    """Make room for a batch of this size.

    Double the buffer, up to the limit, or to the size of a batch that exceeds it.
    """
    cdef Py_ssize_t room = max(2 * builder._room, FIRST_ROOM, builder._likely)
    room = max(min(room, builder._limit), size)
    return move_block(builder, room, builder.size if builder.count else 0)


cdef inline int64_t time_of(object timestamp) except? -1:
    cdef int overflow = 0
    cdef int64_t time = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
    if overflow:
        raise ValueError(f"The timestamp {timestamp} does not fit into 64 bits.")
    return time


cdef object plain(object content):
    """Return a key or value as bytes or None. Raises TypeError for any other type."""
    if content is None or PyBytes_CheckExact(content):
        return content
    if PyBytes_Check(content):
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))
    # If the items of a buffer have several bytes, len() is not the length in bytes.
    if isinstance(content, bytearray) or (
        isinstance(content, memoryview)
        and content.nbytes == len(content)
        and content.c_contiguous
    ):
        return bytes(content)
    raise TypeError(f"{type(content).__name__} is not bytes.")


cdef bytes pack(object headers):
    """Return the encoded headers, without the count that comes before them in a record."""
    packed = bytearray()
    for name, content in headers:
        for part in (name.encode(), plain(content)):
            if part is None:
                packed.append(1)
            else:
                packed += varint(len(part))
                packed += part
    return bytes(packed)


cdef bytes varint(int64_t number):
    cdef uint8_t digits[10]
    cdef uint8_t *end = aiok_write_varint(digits, number)
    return PyBytes_FromStringAndSize(<char *>digits, end - digits)


cdef inline Py_ssize_t field_size(Part *part) noexcept nogil:
    return aiok_varint_size(part.size) + (part.size if part.size > 0 else 0)


cdef inline uint8_t *write_field(uint8_t *at, Part *part) noexcept nogil:
    at = aiok_write_varint(at, part.size)
    if part.size > 0:
        memcpy(at, part.at, part.size)
        at += part.size
    return at


cdef Py_ssize_t write(
    RecordBatchBuilder builder,
    int64_t time,
    Part *key,
    Part *value,
    Part *headers,
    Py_ssize_t header_count,
) except -2:
    """Add a record. Return its index, or -1 if it does not fit. `headers` may be NULL."""
    cdef Py_ssize_t index = builder.count, body, size
    cdef uint64_t base = <uint64_t>builder._base_timestamp if index else <uint64_t>time
    cdef int64_t delta = <int64_t>(<uint64_t>time - base)
    cdef uint8_t *at
    cdef uint8_t digits[10]
    if headers == NULL and key.size < 0 and index and not builder.closed:
        at = aiok_write_value(
            builder._data + builder.size,
            builder._data + min(builder._room, builder._limit),
            digits,
            <int>(aiok_write_varint(digits, delta) - digits),
            index,
            value.at,
            value.size,
        )
        if at != NULL:
            builder.size = at - builder._data
            builder.count = index + 1
            if time > builder.max_timestamp:
                builder.max_timestamp = time
            return index
    body = 1 + aiok_varint_size(delta) + aiok_varint_size(index)
    body += field_size(key) + field_size(value) + aiok_varint_size(header_count)
    if headers != NULL:
        body += headers.size
    size = builder.size + aiok_varint_size(body) + body
    if size > builder._limit or builder.closed:
        if builder.closed:
            raise ValueError("Nothing can be added to a batch that is closed.")
        if index:
            return -1
    if size > builder._room:
        grow(builder, size)
    at = aiok_write_varint(builder._data + builder.size, body)
    at[0] = 0
    at = aiok_write_varint(at + 1, delta)
    at = aiok_write_varint(at, index)
    at = write_field(at, key)
    at = write_field(at, value)
    at = aiok_write_varint(at, header_count)
    if headers != NULL:
        memcpy(at, headers.at, headers.size)
    builder.size = size
    builder.count = index + 1
    if not index:
        builder._base_timestamp = builder.max_timestamp = time
    elif time > builder.max_timestamp:
        builder.max_timestamp = time
    return index


cdef Py_ssize_t write_array(
    RecordBatchBuilder builder,
    int64_t time,
    const uint8_t *validity,
    const uint8_t *ends,
    Py_buffer *content,
    int width,
    Py_ssize_t start,
    Py_ssize_t stop,
) except -1:
    """Add values of an Arrow array while they fit, and return their number.

    If a value is out of bounds, none is added.
    """
    cdef Py_ssize_t size = builder.size, count = builder.count, index
    cdef int64_t begin, end, latest = builder.max_timestamp
    cdef Part key, value
    key.at, key.size = NULL, -1
    for index in range(start, stop):
        begin, end = offset_at(ends, width, index), offset_at(ends, width, index + 1)
        value.at, value.size = NULL, -1
        if validity == NULL or validity[index >> 3] >> (index & 7) & 1:
            if begin < 0 or end < begin or end > content.len:
                builder.size, builder.count, builder.max_timestamp = size, count, latest
                raise ValueError("The offsets of the array are not in order.")
            value.at, value.size = <const uint8_t *>content.buf + begin, end - begin
        if write(builder, time, &key, &value, NULL, 0) < 0:
            return index - start
    return stop - start


cdef inline int64_t offset_at(const uint8_t *ends, int width, Py_ssize_t index) noexcept:
    cdef int32_t narrow
    cdef int64_t wide
    if width == 4:
        memcpy(&narrow, ends + 4 * index, 4)
        return narrow
    memcpy(&wide, ends + 8 * index, 8)
    return wide


cdef int write_header(RecordBatchBuilder builder) except -1:
    cdef uint8_t *at = builder._data
    cdef uint32_t crc = 0
    cdef int attributes = builder.compression
    if builder._encoded - LOG_OVERHEAD > INT32_MAX or builder.count > INT32_MAX:
        raise ValueError("A batch would be larger than 2 GiB.")
    memset(at, 0, 8)
    aiok_put(at + 8, builder._encoded - LOG_OVERHEAD, 4)
    aiok_put(at + 12, <uint64_t>builder._leader_epoch, 4)
    at[16] = 2
    aiok_put(at + 21, attributes | (TRANSACTIONAL if builder._transactional else 0), 2)
    aiok_put(at + 23, builder.count - 1, 4)
    aiok_put(at + 27, <uint64_t>builder._base_timestamp, 8)
    aiok_put(at + 35, <uint64_t>builder.max_timestamp, 8)
    aiok_put(at + 43, <uint64_t>builder._producer_id, 8)
    aiok_put(at + 51, <uint64_t>builder._producer_epoch, 2)
    aiok_put(at + 53, <uint64_t>builder._base_sequence, 4)
    aiok_put(at + 57, builder.count, 4)
    if builder._encoded <= FEW and CRC_HERE:
        crc = aiok_crc32c(at + ATTRIBUTES_AT, builder._encoded - ATTRIBUTES_AT)
    else:
        with memoryview(builder._block) as view, view[ATTRIBUTES_AT:] as rest:
            crc = crc32c(rest)
    aiok_put(at + CRC_AT, crc, 4)
    return 0
