"""Decoding records directly into the buffers of Arrow columns, without an object for each record.

C code decodes the records without the GIL (arrow.h) and exports them as a table through Arrow's C
data interface (arrow_export.h), so that the build does not need pyarrow. This file manages the
memory, which consists of blocks: one for all columns with a fixed size per row, one for the keys,
one for the values, and three more for headers, once a record has some. A block that is too small is
copied into a larger one.
"""

from libc.stdint cimport INT32_MAX, int8_t, uintptr_t


cdef extern from "arrow.h":
    enum:
        AIOK_MORE_KEYS
        AIOK_MORE_VALUES
        AIOK_MORE_HEADERS
        AIOK_CHANGED
        AIOK_SLACK
        AIOK_TIMESTAMPS
        AIOK_KINDS
        AIOK_KEYS
        AIOK_VALUES
        AIOK_HEADERS
        AIOK_ALL

    ctypedef struct AiokBinary:
        uint8_t *content
        int32_t *ends
        uint8_t *valid
        int64_t size
        int64_t room
        int64_t count
        int64_t nulls

    ctypedef struct AiokColumns:
        int wanted
        int64_t *offsets
        int64_t *timestamps
        uint8_t *timed
        int32_t *kinds
        int32_t *header_ends
        int64_t untimed
        int64_t rows
        int64_t header_room
        int64_t header_bytes
        AiokBinary keys
        AiokBinary values
        AiokBinary header_keys
        AiokBinary header_values

    int aiok_fill(
        AiokColumns *to,
        AiokCursor *cursor,
        AiokFields *fields,
        int32_t *left,
        int64_t base_offset,
        int64_t start_offset,
        int appended,
        int64_t append_time,
    ) nogil
    int64_t aiok_rows_before(const AiokColumns *columns, int64_t end) nogil
    bint aiok_is_ascii(const uint8_t *at, int64_t size) nogil
    void aiok_repeat(int32_t *at, int64_t count, int32_t number) nogil

cdef extern from "arrow_export.h":
    enum:
        AIOK_PARTITION
        AIOK_COLUMN_COUNT

    struct ArrowArray:
        pass

    ctypedef struct AiokExport:
        ArrowArray *arrays

    AiokExport *aiok_export(
        const AiokColumns *columns,
        object owner,
        const void *topic_ends,
        const void *topics,
        const int32_t *partitions,
        const int8_t *fields,
        int count,
    ) except NULL
    void aiok_drop(AiokExport *table)

cdef enum:
    LARGEST_GUESS = 64 * 1024 * 1024
    FIELDS = 8

# The parts of records to decode for each field of a table, in the order of `arrow_schema`. They are
# 0 for the first three fields: topics and partitions are not in the records, and offsets are always
# decoded.
cdef int[FIELDS] WANTED = [
    0, 0, 0, AIOK_TIMESTAMPS, AIOK_KINDS, AIOK_KEYS, AIOK_VALUES, AIOK_HEADERS
]


@cython.final
@cython.no_gc
cdef class Block:
    """A piece of memory from a pool. The piece is divided into aligned parts."""

    cdef object view
    cdef uint8_t *at
    cdef Py_ssize_t used

    def __cinit__(self, pool, Py_ssize_t size):
        cdef Py_buffer view
        self.view = pool.take(size)
        PyObject_GetBuffer(self.view, &view, PyBUF_SIMPLE)
        self.at = <uint8_t *>view.buf
        PyBuffer_Release(&view)

    cdef uint8_t *piece(self, Py_ssize_t size) noexcept:
        """Return the next part, which takes `pieces(size)` bytes of the block."""
        cdef uint8_t *at = self.at + self.used
        self.used += pieces(size)
        return at


cdef inline Py_ssize_t pieces(Py_ssize_t size) noexcept:
    return (size + 63) & ~63


cdef inline Py_ssize_t bits(Py_ssize_t count) noexcept nogil:
    return (count + 7) >> 3


cdef object too_large():
    return ValueError("The keys or values have 2 GiB or more. Pass fewer batches at a time.")


@cython.final
@cython.no_gc
cdef class Columns:
    """The memory of the columns, to which records are added batch by batch.

    `largest` is the largest size of one column in bytes. `pool` is a `BufferPool`. `rows` and
    `size` are the expected numbers of records and bytes. Beyond `most` bytes, a column grows only
    as its records require. `fields` has the indexes of the table's columns in `arrow_schema`. The
    other columns are not decoded.
    """

    cdef object _pool
    cdef object _topics
    cdef int64_t _largest
    cdef AiokColumns _to
    cdef int64_t _most
    cdef int64_t _expected
    cdef Py_ssize_t _row_room
    cdef Py_ssize_t _guess
    cdef int8_t[FIELDS] _fields
    cdef int _field_count
    cdef Block _rows
    cdef Block _headers
    cdef Block _keys
    cdef Block _values
    cdef Block _header_keys
    cdef Block _header_values

    def __cinit__(
        self,
        Py_ssize_t largest,
        pool,
        Py_ssize_t rows=0,
        Py_ssize_t size=0,
        most=None,
        fields=range(FIELDS),
    ):
        self._pool = pool
        self._largest = min(largest, <Py_ssize_t>INT32_MAX)
        self._most = self._largest if most is None else min(most, self._largest)
        self._guess = min(size, self._most)
        self._choose(fields)
        self._need_rows(max(rows, 1))
        self._need_headers(0)

    cdef int _choose(self, fields) except -1:
        cdef int field
        for field in fields:
            if not 0 <= field < FIELDS or self._field_count == FIELDS:
                raise ValueError(f"{fields!r} are not the numbers of columns.")
            self._fields[self._field_count] = field
            self._field_count += 1
            self._to.wanted |= WANTED[field]
        return 0

    @property
    def count(self):
        """The number of rows."""
        return self._to.rows

    def before(self, int64_t end):
        """Return the number of rows with offsets below `end`."""
        return aiok_rows_before(&self._to, end)

    # -- the table at the end

    def table(self, take, schema, int32_t partition, topics, uintptr_t ends, uintptr_t text):
        """Return the table, which `take(address, schema)` imports from the C data interface.

        `topics` is the column of topics, which the table keeps alive. `ends` and `text` are the
        addresses of its buffers.
        """
        cdef int32_t *partitions = <int32_t *>self._rows.at
        cdef AiokExport *made
        cdef int i
        for i in range(self._field_count):
            if self._fields[i] == AIOK_PARTITION:
                aiok_repeat(partitions, self._to.rows, partition)
        if self._header_keys is not None:
            if not aiok_is_ascii(self._to.header_keys.content, self._to.header_keys.size):
                self._mend_header_keys()
        self._topics = topics
        made = aiok_export(
            &self._to,
            self,
            <void *>ends,
            <void *>text,
            partitions,
            self._fields,
            self._field_count,
        )
        try:
            return take(<uintptr_t>made.arrays, schema)
        finally:
            aiok_drop(made)

    cdef int _mend_header_keys(self) except -1:
        """Replace invalid UTF-8 in the keys of headers, as in the headers of a ConsumerRecord."""
        cdef AiokBinary *column = &self._to.header_keys
        cdef Py_ssize_t i, start = 0, size = 0
        cdef list names = []
        for i in range(column.count):
            name = column.content[start : column.ends[i + 1]]
            names.append(name.decode("utf-8", "replace").encode())
            start = column.ends[i + 1]
        found = b"".join(names)
        if len(found) > self._largest:
            raise too_large()
        self._header_keys = Block(self._pool, len(found))
        column.content = self._header_keys.at
        column.size = column.room = len(found)
        memcpy(column.content, <const uint8_t *>found, column.size)
        for i in range(column.count):
            size += len(names[i])
            column.ends[i + 1] = size
        return 0

    # -- records

    def add(self, RecordBatch batch not None, start_offset, bint check_crcs, limit):
        """Add the records of a batch from `start_offset` on. Return the total number of rows.

        Raises the errors of `RecordBatch.rows`.
        """
        if check_crcs and not batch.check_crc():
            raise corrupt(batch, "Its checksum is wrong.")
        try:
            self._add(batch, start_offset, limit)
        except ContentLimitError:
            raise
        except KafkaError as error:
            raise corrupt(batch, error.message) from error
        return self._to.rows

    def add_part(
        self, RecordBatch batch not None, part, int32_t count, int64_t expected, start_offset
    ):
        """Add the `count` records in `part`, which is a part of the batch's records.

        `expected` is the smallest offset delta that the first of them may have. Returns the
        smallest offset delta that the next part may have.
        """
        cdef Py_buffer view
        cdef Head head
        fill_part(&head, batch, start_offset, count, expected)
        PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
        try:
            self._need_rows(self._to.rows + min(<Py_ssize_t>count, view.len // SMALLEST_RECORD))
            self._read(<const uint8_t *>view.buf, view.len, &head)
        except KafkaError as error:
            raise corrupt(batch, error.message) from error
        finally:
            PyBuffer_Release(&view)
        return self._expected

    cdef int _add(self, RecordBatch batch, object start_offset, object limit) except -1:
        cdef Py_buffer view
        cdef Head head
        cdef Py_ssize_t start, size
        fill(&head, batch, start_offset)
        source = content(batch, limit, &start, &size)
        PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
        try:
            if start + size > view.len:
                raise CorruptRecordError("The buffer has become smaller while it was read.")
            self._need_rows(self._to.rows + min(<Py_ssize_t>head.count, size // SMALLEST_RECORD))
            # Expect the same compression ratio for the batches that follow.
            if self._values is None and size > batch.size:
                guess = min(self._guess * (size // batch.size), LARGEST_GUESS, self._most)
                self._guess = max(size, guess)
            self._read(<const uint8_t *>view.buf + start, size, &head)
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int _read(self, const uint8_t *data, Py_ssize_t size, Head *head) except -1:
        cdef AiokCursor cursor
        cdef AiokFields fields
        cdef AiokColumns *to = &self._to
        cdef int32_t left = head.count
        cdef int stopped
        begin(&cursor, data, size, head)
        while left:
            with nogil:
                stopped = aiok_fill(
                    to,
                    &cursor,
                    &fields,
                    &left,
                    head.base_offset,
                    head.start_offset,
                    head.appended,
                    head.append_time,
                )
            if stopped > 0:
                refuse(stopped, &fields, head)
            elif stopped == AIOK_CHANGED:
                raise BufferError("The bytes have changed while they were read.")
            elif stopped == AIOK_MORE_VALUES:
                self._values = self._more(&to.values, self._values, fields.value_size, size)
            elif stopped == AIOK_MORE_KEYS:
                self._keys = self._more(&to.keys, self._keys, fields.key_size, size)
            elif stopped == AIOK_MORE_HEADERS:
                self._more_headers(fields.header_count)
        self._expected = cursor.expected
        return finish(&cursor)

    # -- room

    cdef Block _more(self, AiokBinary *column, Block old, int64_t size, Py_ssize_t batch):
        """Return a block for `size` more bytes. The first block has room for the whole batch."""
        cdef int64_t least = column.size + size, wanted
        cdef uint8_t *at
        cdef Block block
        if least > self._largest:
            raise too_large()
        wanted = max(least, self._guess, batch) if column.size == 0 else 2 * least + batch
        if column is &self._to.keys and column.size == 0:
            wanted = max(least, min(wanted, size * self._row_room * 5 // 4))
        column.room = max(least, min(wanted, self._most)) + AIOK_SLACK
        block = Block(self._pool, column.room)
        at = block.at
        if column.size:
            with nogil:  # The copy may take long. Without the GIL, other threads can run.
                memcpy(at, column.content, column.size)
        column.content = at
        return block

    cdef int _more_headers(self, int32_t count) except -1:
        """Make room for the headers of a record. Their number was checked before."""
        cdef AiokColumns *to = &self._to
        cdef int64_t size = to.header_bytes, least = to.header_keys.count + count
        if least > self._largest:
            raise too_large()
        if least > to.header_room:
            self._need_headers(2 * least)
        if to.header_keys.room - to.header_keys.size < size + AIOK_SLACK:
            self._header_keys = self._more(&to.header_keys, self._header_keys, size, 0)
        if to.header_values.room - to.header_values.size < size + AIOK_SLACK:
            self._header_values = self._more(&to.header_values, self._header_values, size, 0)
        return 0

    cdef int _need_rows(self, Py_ssize_t rows) except -1:
        cdef AiokColumns *to = &self._to
        cdef AiokColumns old
        cdef Block block
        if rows <= self._row_room:
            return 0
        if self._row_room:
            rows = max(rows, 2 * self._row_room)
        # The first part is for the column of partitions.
        block = Block(
            self._pool,
            2 * pieces(4 * rows)
            + 2 * pieces(8 * rows)
            + 3 * pieces(4 * (rows + 1))
            + 3 * pieces(bits(rows)),
        )
        old = to[0]
        block.piece(4 * rows)
        to.offsets = <int64_t *>block.piece(8 * rows)
        to.timestamps = <int64_t *>block.piece(8 * rows)
        to.kinds = <int32_t *>block.piece(4 * rows)
        to.header_ends = <int32_t *>block.piece(4 * (rows + 1))
        to.keys.ends = <int32_t *>block.piece(4 * (rows + 1))
        to.values.ends = <int32_t *>block.piece(4 * (rows + 1))
        to.timed = block.piece(bits(rows))
        to.keys.valid = block.piece(bits(rows))
        to.values.valid = block.piece(bits(rows))
        memset(to.timed, 0xFF, 3 * pieces(bits(rows)))
        to.header_ends[0] = to.keys.ends[0] = to.values.ends[0] = 0
        if old.rows:
            with nogil:
                memcpy(to.offsets, old.offsets, 8 * old.rows)
                memcpy(to.timestamps, old.timestamps, 8 * old.rows)
                memcpy(to.kinds, old.kinds, 4 * old.rows)
                memcpy(to.header_ends, old.header_ends, 4 * (old.rows + 1))
                memcpy(to.keys.ends, old.keys.ends, 4 * (old.rows + 1))
                memcpy(to.values.ends, old.values.ends, 4 * (old.rows + 1))
                memcpy(to.timed, old.timed, bits(old.rows))
                memcpy(to.keys.valid, old.keys.valid, bits(old.rows))
                memcpy(to.values.valid, old.values.valid, bits(old.rows))
        self._rows, self._row_room = block, rows
        return 0

    cdef int _need_headers(self, Py_ssize_t count) except -1:
        cdef AiokColumns *to = &self._to
        cdef AiokColumns old
        cdef Block block
        block = Block(self._pool, 2 * pieces(4 * (count + 1)) + 2 * pieces(bits(count)))
        old = to[0]
        to.header_keys.ends = <int32_t *>block.piece(4 * (count + 1))
        to.header_values.ends = <int32_t *>block.piece(4 * (count + 1))
        to.header_keys.valid = block.piece(bits(count))
        to.header_values.valid = block.piece(bits(count))
        memset(to.header_keys.valid, 0xFF, 2 * pieces(bits(count)))
        to.header_keys.ends[0] = to.header_values.ends[0] = 0
        if old.header_keys.count:
            memcpy(to.header_keys.ends, old.header_keys.ends, 4 * (old.header_keys.count + 1))
            memcpy(to.header_values.ends, old.header_values.ends, 4 * (old.header_keys.count + 1))
            memcpy(to.header_values.valid, old.header_values.valid, bits(old.header_keys.count))
        self._headers, to.header_room = block, count
        return 0

