"""The native twin of `record._pure.batch`, with the same interface and the same errors.

Messages of formats v0 and v1, which brokers have not written by default since 2017, are read in
Python.
"""

from aiokclient.types import TimestampType, TopicPartition

from libc.stdint cimport INT64_MAX, INT64_MIN


cdef extern from "crc.h":
    bint aiok_crc_here()
    uint32_t aiok_crc32c(const uint8_t *at, size_t size) nogil

cdef enum:
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    SMALLEST_LENGTH = 14
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    FEW = 1024

cdef enum Kind:
    RECORDS
    VIEWS
    ROWS
    NOTHING

cdef object CREATE = TimestampType.CREATE_TIME
cdef object APPEND = TimestampType.LOG_APPEND_TIME
cdef object UNLIMITED = DEFAULT_LIMIT
cdef tuple CODECS = tuple(Compression)
cdef bint CRC_HERE = aiok_crc_here()


@cython.no_gc
cdef class RecordBatch:
    """A view of one v2 batch in a buffer: the header is read at once, the records on demand.

    It has the same interface as `record._pure.batch.RecordBatch`.
    """

    def __init__(self, buffer):
        """Read the header of the batch. Raises CorruptRecordError if `buffer` is not a batch."""
        cdef Py_buffer view
        self._source = self._buffer = bytes_view(buffer)
        self._start = 0
        self.size = len(self._source)
        PyObject_GetBuffer(self._source, &view, PyBUF_SIMPLE)
        try:
            read_header(self, <const uint8_t *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    @property
    def buffer(self):
        """The bytes of this batch only."""
        if self._buffer is None:
            self._buffer = self._source[self._start : self._start + self.size]
        return self._buffer

    @property
    def next_offset(self):
        """The offset after the batch, from which reading continues."""
        return self.last_offset + 1

    @property
    def last_sequence(self):
        """The sequence of the last record, or -1. Sequences wrap from 2147483647 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) & 0x7FFFFFFF

    @property
    def compression(self):
        """The codec. Raises CorruptRecordError if its number is unknown."""
        codec = self._attributes & CODEC_MASK
        if codec >= len(CODECS):
            raise corrupt(self, f"There is no compression codec {codec}.")
        return CODECS[codec]

    @property
    def is_compressed(self):
        """Whether the records are compressed."""
        return (self._attributes & CODEC_MASK) != 0

    @property
    def timestamp_type(self):
        """The source of the timestamps. With LOG_APPEND_TIME all records have `max_timestamp`."""
        return APPEND if self._attributes & LOG_APPEND_TIME else CREATE

    @property
    def is_transactional(self):
        """Whether the records belong to a transaction."""
        return (self._attributes & TRANSACTIONAL) != 0

    @property
    def is_control(self):
        """Whether this is a control batch, such as the end of a transaction."""
        return (self._attributes & CONTROL) != 0

    @property
    def valid(self):
        """The same as `check_crc()`."""
        return self.check_crc()

    cpdef bint check_crc(self) except -1:
        """Return whether the checksum in the header matches the bytes. The result is kept."""
        cdef Py_ssize_t start = self._start + ATTRIBUTES_AT, end = self._start + self.size
        if self._intact is None:
            if self.size <= FEW and CRC_HERE:
                self._intact = crc_of_few(self._source, start, end) == self.crc
            else:
                self._intact = crc32c(self._source[start:end]) == self.crc
        return self._intact

    def validate(self):
        """Make the checks that a broker makes for a batch from a producer.

        Raises CorruptRecordError if the checksum is wrong, a record cannot be read, or the offsets
        have gaps. Batches of a compacted log may have gaps, so this is not for consumers.
        """
        if self.count != self.last_offset - self.base_offset + 1:
            raise corrupt(self, f"Its {self.count} records do not fill its range of offsets.")
        read(self, NOTHING, "", 0, 0, True, UNLIMITED)

    def records(
        self,
        topic,
        partition,
        start_offset=0,
        *,
        bint copy=True,
        bint check_crcs=True,
        limit=UNLIMITED,
        type kind=ConsumerRecord,
    ):
        """Return the records from `start_offset` on, including those of a control batch.

        Keys and values are bytes. With `copy=False` they are read-only memoryviews, which keep the
        whole response or the decompressed bytes in memory. Raises CorruptRecordError if the
        checksum is wrong (unless `check_crcs` is False), or if the records cannot be decoded or
        have more than `limit` bytes without compression.

        `kind` is their class: ConsumerRecord, or a subclass with slots, whose slots stay empty.
        """
        if kind is not ConsumerRecord and (not issubclass(kind, Tracked) or kind.__dictoffset__):
            raise TypeError(f"Records cannot be decoded as objects of {kind.__name__}.")
        cdef Kind result = RECORDS if copy else VIEWS
        return read(self, result, topic, partition, start_offset, check_crcs, limit, kind)

    def part_records(
        self, topic, partition, content, int32_t count, int64_t expected, start_offset, bint copy
    ):
        """Return the `count` records in `content`, which is a part of this batch's records.

        `expected` is the smallest offset delta that the first of them may have. Keys, values and
        errors are as in `records`.
        """
        cdef Head head
        fill_part(&head, self, start_offset, count, expected)
        epoch = self.leader_epoch if self.leader_epoch >= 0 else None
        kind = APPEND if head.appended else CREATE
        shared = shared_fields(topic, partition, kind, epoch)
        return part(self, RECORDS if copy else VIEWS, content, &head, shared, topic, partition)

    def part_rows(self, content, int32_t count, int64_t expected, start_offset):
        """Return the records of `part_records` as tuples, in the format of `rows`."""
        cdef Head head
        fill_part(&head, self, start_offset, count, expected)
        return part(self, ROWS, content, &head, None, "", 0)

    def rows(self, start_offset=0, *, bint check_crcs=True, limit=UNLIMITED):
        """Return the records as tuples (offset, timestamp, key, value, headers); see `records`."""
        return read(self, ROWS, "", 0, start_offset, check_crcs, limit)

    def control_type(self):
        """Return the type of the first record of a control batch; see `ControlType`.

        Raises CorruptRecordError if this is not a control batch, or if the record cannot be read.
        The caller must have checked the checksum.
        """
        rows = self.rows(check_crcs=False) if self.is_control else []
        keys = [key for _, _, key, _, _ in rows]
        if not keys or keys[0] is None or len(keys[0]) < 4:
            raise corrupt(self, "It is not a control batch.")
        return int.from_bytes(keys[0][2:4], "big", signed=True)


cdef uint32_t crc_of_few(object source, Py_ssize_t start, Py_ssize_t end) except? 0:
    cdef Py_buffer view
    PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or start > end or end > view.len:
            raise CorruptRecordError("The buffer has become smaller while it was read.")
        return aiok_crc32c(<const uint8_t *>view.buf + start, end - start)
    finally:
        PyBuffer_Release(&view)


cdef object bytes_view(object buffer):
    """Return a memoryview of single bytes."""
    view = memoryview(buffer)
    if view.itemsize != 1 or view.ndim != 1:
        view = view.cast("B")
    return view


cdef int read_header(RecordBatch batch, const uint8_t *at, Py_ssize_t size) except -1:
    cdef int32_t length, last_offset_delta
    if size < HEADER_SIZE:
        raise CorruptRecordError(
            f"A record batch of format v2 has at least {HEADER_SIZE} bytes, not {size}.",
        )
    batch.base_offset = <int64_t>aiok_get(at, 8)
    length = <int32_t>aiok_get(at + 8, 4)
    batch.leader_epoch = <int32_t>aiok_get(at + 12, 4)
    batch.magic = <signed char>at[MAGIC_AT]
    batch.crc = <uint32_t>aiok_get(at + CRC_AT, 4)
    batch._attributes = <int16_t>aiok_get(at + ATTRIBUTES_AT, 2)
    last_offset_delta = <int32_t>aiok_get(at + 23, 4)
    batch.base_timestamp = <int64_t>aiok_get(at + 27, 8)
    batch.max_timestamp = <int64_t>aiok_get(at + 35, 8)
    batch.producer_id = <int64_t>aiok_get(at + 43, 8)
    batch.producer_epoch = <int16_t>aiok_get(at + 51, 2)
    batch.base_sequence = <int32_t>aiok_get(at + 53, 4)
    batch.count = <int32_t>aiok_get(at + 57, 4)
    if batch.magic != 2 or <int64_t>length + LOG_OVERHEAD != size:
        raise corrupt(batch, "Its length or its format version is wrong.")
    if (
        batch.base_offset < 0
        or last_offset_delta < 0
        or batch.base_offset > INT64_MAX - 1 - last_offset_delta
        or batch.count < 0
    ):
        raise corrupt(batch, "Its offsets or its number of records are impossible.")
    batch.last_offset = batch.base_offset + last_offset_delta
    return 0


cdef object corrupt(RecordBatch batch, str reason, object topic_partition=None):
    return CorruptRecordError(
        f"The record batch at offset {batch.base_offset} cannot be read. {reason}",
        topic_partition=topic_partition,
    )


cdef object read(
    RecordBatch batch,
    Kind kind,
    object topic,
    object partition,
    object start_offset,
    bint check_crcs,
    object limit,
    type record_kind=ConsumerRecord,
):
    if check_crcs and not batch.check_crc():
        raise corrupt(batch, "Its checksum is wrong.", named(topic, partition))
    cdef Head head
    cdef SharedFields shared = None
    fill(&head, batch, start_offset)
    head.kind = <PyTypeObject *>record_kind
    if kind == RECORDS or kind == VIEWS:
        epoch = batch.leader_epoch if batch.leader_epoch >= 0 else None
        shared = shared_fields(topic, partition, APPEND if head.appended else CREATE, epoch)
    try:
        return decode(batch, kind, &head, shared, limit)
    except ContentLimitError:
        raise
    except KafkaError as error:
        raise corrupt(batch, error.message, named(topic, partition)) from error


cdef object part(
    RecordBatch batch,
    Kind kind,
    object content,
    Head *head,
    SharedFields shared,
    object topic,
    object partition,
):
    cdef Py_buffer view
    if kind == VIEWS:
        content = memoryview(content).toreadonly()
    PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
    try:
        return make(kind, <const uint8_t *>view.buf, view.len, content, head, shared)
    except KafkaError as error:
        raise corrupt(batch, error.message, named(topic, partition)) from error
    finally:
        PyBuffer_Release(&view)


cdef int fill_part(
    Head *head, RecordBatch batch, object start_offset, int32_t count, int64_t expected
) except -1:
    fill(head, batch, start_offset)
    head.count, head.expected = count, expected
    return 0


cdef int fill(Head *head, RecordBatch batch, object start_offset) except -1:
    head.base_offset = batch.base_offset
    head.last_offset = batch.last_offset
    head.base_timestamp = batch.base_timestamp
    head.start_offset = saturated(start_offset)
    head.append_time = batch.max_timestamp
    head.appended = (batch._attributes & LOG_APPEND_TIME) != 0
    head.count = batch.count
    head.expected = 0
    head.kind = <PyTypeObject *>ConsumerRecord
    return 0


cdef object named(object topic, object partition):
    return TopicPartition(topic, partition) if topic else None


cdef int64_t saturated(object number) except? -1:
    """Return the number, limited to the range of signed 64-bit integers."""
    if number > INT64_MAX:
        return INT64_MAX
    return INT64_MIN if number < INT64_MIN else number


cdef object content(RecordBatch batch, object limit, Py_ssize_t *start, Py_ssize_t *size):
    """Return a buffer with the decompressed records, and their position in it."""
    start[0], size[0] = batch._start + HEADER_SIZE, batch.size - HEADER_SIZE
    codec = batch._attributes & CODEC_MASK
    if not codec:
        batch.content_size = size[0]
        return batch._source
    found = decompress(codec, batch._source[start[0] : start[0] + size[0]], limit)
    start[0], size[0] = 0, len(found)
    batch.content_size = size[0]
    return found


cdef object decode(RecordBatch batch, Kind kind, Head *head, SharedFields shared, object limit):
    cdef Py_buffer view
    cdef Py_ssize_t start, size
    source = content(batch, limit, &start, &size)
    if kind == VIEWS:
        source = memoryview(source).toreadonly()[start : start + size]
        start = 0
    PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
    try:
        if start + size > view.len:
            raise CorruptRecordError("The buffer has become smaller while it was read.")
        return make(kind, <const uint8_t *>view.buf + start, size, source, head, shared)
    finally:
        PyBuffer_Release(&view)


cdef object make(
    Kind kind, const uint8_t *data, Py_ssize_t size, object source, Head *head, SharedFields shared
):
    if kind == RECORDS:
        return decode_records(data, size, head, shared)
    if kind == VIEWS:
        return decode_views(data, source, head, shared)
    if kind == ROWS:
        return decode_rows(data, size, head)
    check(data, size, head)
    return None


def span(content, Py_ssize_t start, Py_ssize_t most, Py_ssize_t size):
    """Return the number of complete records from `start` on, and the position of their end.

    See `record._pure.decode.span`.
    """
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *first
    cdef int32_t length
    cdef Py_ssize_t count = 0
    cdef int failed
    PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= view.len:
            raise IndexError(start)
        first = at = <const uint8_t *>view.buf + start
        end = <const uint8_t *>view.buf + view.len
        while count < most:
            failed = aiok_read_varint(&at, end, &length)
            if failed == AIOK_PAST_END:
                break
            if failed or length < 0:
                if count:
                    break
                raise CorruptRecordError("A record has an impossible length.")
            if length > end - at or at - first + length > size:
                break
            at += length
            start = at - <const uint8_t *>view.buf
            count += 1
        return count, start
    finally:
        PyBuffer_Release(&view)


def walk(buffer, *, bint strict=False):
    """Return the batches in `buffer` in order; see `record._pure.walk`."""
    cdef Py_buffer view
    cdef Py_ssize_t position = 0
    cdef list batches = []
    source = bytes_view(buffer)
    PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
    try:
        position = walk_over(source, <const uint8_t *>view.buf, view.len, batches, strict)
        if strict and position < view.len:
            left = view.len - position
            raise CorruptRecordError(f"The last {left} bytes are not a complete batch.")
    finally:
        PyBuffer_Release(&view)
    return batches


cdef Py_ssize_t walk_over(
    object source, const uint8_t *data, Py_ssize_t size, list batches, bint strict
) except -1:
    """Append the complete batches, and return the position after the last one."""
    cdef Py_ssize_t position = 0
    cdef int64_t end
    cdef RecordBatch batch
    cdef int32_t length
    try:
        while size - position > MAGIC_AT:
            length = <int32_t>aiok_get(data + position + 8, 4)
            if length < SMALLEST_LENGTH:
                offset = <int64_t>aiok_get(data + position, 8)
                raise CorruptRecordError(
                    f"The batch at offset {offset} has the impossible length {length}."
                )
            end = position + LOG_OVERHEAD + <int64_t>length
            if end > size:
                break
            if data[position + MAGIC_AT] > 1:
                batch = RecordBatch.__new__(RecordBatch)
                batch._source = source
                batch._start = position
                batch.size = end - position
                read_header(batch, data + position, batch.size)
                batches.append(batch)
            else:
                # Few clusters have such messages, so the module is not imported with this one.
                from aiokclient.record._legacy import LegacyBatch

                batches.append(LegacyBatch(source[position:end]))
            position = end
    except KafkaError:
        if strict or not batches:
            raise
    return position
