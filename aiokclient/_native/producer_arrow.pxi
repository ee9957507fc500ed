"""Sending the rows of Arrow columns: the native twin of `producer.send_arrow.send_columns`.

The columns are read from their buffers, which the record batch keeps alive. The buffers contain
offsets, which another thread may change. So each offset is checked against the size of the buffer
to which it refers, whenever it is read.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport INT64_MAX, int32_t
from libc.string cimport memset


cdef struct ArrowRow:
    # The queue is borrowed: its topic has a reference to it.
    PyObject *queue
    Py_ssize_t size
    int64_t time
    # The partition that the application chose, or -1.
    Py_ssize_t partition


@cython.final
@cython.no_gc
cdef class ArrowColumn:
    """The buffers of an array; see `producer.send_arrow.Buffers`."""

    cdef Py_buffer _valid
    cdef Py_buffer _ends
    cdef Py_buffer _data
    # Pointers to the validity and the data, or NULL if the array has none.
    cdef const uint8_t *_bits
    cdef const uint8_t *_content
    cdef Py_ssize_t rows
    cdef Py_ssize_t _first
    cdef int _width

    def __cinit__(self, int width, Py_ssize_t rows, Py_ssize_t first, validity, ends, data):
        memset(&self._valid, 0, sizeof(Py_buffer))  # Releasing an empty buffer does nothing.
        memset(&self._ends, 0, sizeof(Py_buffer))
        memset(&self._data, 0, sizeof(Py_buffer))
        if width not in (0, 4, 8) or rows < 0 or first < 0 or rows > INT64_MAX // 16 - first:
            raise ValueError("The buffers do not belong to an array that can be sent.")
        self._width, self.rows, self._first = width, rows, first
        if validity is not None:
            PyObject_GetBuffer(validity, &self._valid, PyBUF_SIMPLE)
            self._bits = <const uint8_t *>self._valid.buf
        if ends is not None:
            PyObject_GetBuffer(ends, &self._ends, PyBUF_SIMPLE)
        if data is not None:
            PyObject_GetBuffer(data, &self._data, PyBUF_SIMPLE)
            self._content = <const uint8_t *>self._data.buf
        rows += first
        if (
            (validity is not None and self._valid.len * 8 < rows)
            or (width and rows and self._ends.len // width <= rows)
            or (not width and data is not None and self._data.len // 8 < rows)
        ):
            raise ValueError("The buffers are too small for the array.")

    def __dealloc__(self):
        PyBuffer_Release(&self._data)
        PyBuffer_Release(&self._ends)
        PyBuffer_Release(&self._valid)

    cdef inline bint has(self, Py_ssize_t row) noexcept:
        """Return whether a row is not null. The row must exist."""
        row += self._first
        return self._bits == NULL or self._bits[row >> 3] >> (row & 7) & 1

    cdef inline int64_t number(self, Py_ssize_t row) noexcept:
        """Return the integer in a row. The row must exist and must not be null."""
        cdef int64_t found = 0
        if self._content != NULL:
            memcpy(&found, self._content + 8 * (self._first + row), 8)
        return found

    cdef inline int64_t end(self, Py_ssize_t row) noexcept:
        """Return the offset at which a row begins and the previous row ends."""
        cdef int32_t narrow
        cdef int64_t wide
        row += self._first
        if self._width == 4:
            memcpy(&narrow, <const uint8_t *>self._ends.buf + 4 * row, 4)
            return narrow
        memcpy(&wide, <const uint8_t *>self._ends.buf + 8 * row, 8)
        return wide

    cdef int range_of(
        self, Py_ssize_t row, Py_ssize_t limit, Py_ssize_t *start, Py_ssize_t *stop
    ) except -1:
        """Set the range of a row. The row must exist. A null has an empty range."""
        start[0] = stop[0] = 0
        if self.has(row):
            start[0], stop[0] = self.end(row), self.end(row + 1)
            if start[0] < 0 or stop[0] < start[0] or stop[0] > limit:
                raise ValueError("The offsets of the array are not in order.")
        return 0


cdef ArrowColumn column_of(object buffers, Py_ssize_t rows):
    """Return the column in these buffers, or None if `buffers` is None.

    Raises ValueError if the column has fewer than `rows` rows.
    """
    cdef ArrowColumn column
    if buffers is None:
        return None
    column = ArrowColumn(*buffers)
    if column.rows < rows:
        raise ValueError("The columns have different lengths.")
    return column


cdef inline int part_of(ArrowColumn column, Py_ssize_t row, Part *part) except -1:
    """Set `part` to the content of a row. The size -1 means null."""
    cdef Py_ssize_t start, stop
    part.at, part.size = NULL, -1
    if column is not None and column.has(row):
        column.range_of(row, column._data.len, &start, &stop)
        part.at, part.size = column._content + start, stop - start
    return 0


cdef object bytes_of(Part *part):
    return None if part.size < 0 else PyBytes_FromStringAndSize(<const char *>part.at, part.size)


@cython.final
@cython.no_gc
cdef class ArrowRows:
    """The columns of one call, with the queue, size, time, and partition of each row."""

    cdef ArrowColumn which
    cdef ArrowColumn keys
    cdef ArrowColumn values
    cdef ArrowColumn partitions
    cdef ArrowColumn times
    cdef ArrowColumn lists
    cdef ArrowColumn pairs
    cdef ArrowColumn names
    cdef ArrowColumn contents
    cdef Py_ssize_t count
    cdef int64_t factor
    cdef int64_t divisor
    cdef int64_t now
    cdef ArrowRow *rows
    # The encoded headers of the current row.
    cdef uint8_t *packed
    cdef Py_ssize_t room

    def __cinit__(self, records, int64_t now):
        cdef Py_ssize_t count = records.count
        which, keys, values, partitions, times, lists, pairs, names, contents = records.make_buffers()
        self.which, self.partitions = column_of(which, count), column_of(partitions, count)
        self.keys, self.values = column_of(keys, count), column_of(values, count)
        self.times, self.lists = column_of(times, count), column_of(lists, count)
        self.pairs = column_of(pairs, 0)
        if self.lists is not None:
            if self.pairs is None or names is None:
                raise ValueError("The headers have no names.")
            self.names = column_of(names, self.pairs.rows)
            self.contents = column_of(contents, self.pairs.rows)
        self.factor, self.divisor = records.factor, records.divisor
        self.count, self.now = count, now
        self.rows = <ArrowRow *>PyMem_Calloc(count, sizeof(ArrowRow))
        if self.rows == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.rows)
        PyMem_Free(self.packed)

    cdef bint set_time(self, Py_ssize_t row) except -1:
        """Set the time of a row. Return whether it is valid."""
        cdef int64_t time
        self.rows[row].time = self.now
        if self.times is None or not self.times.has(row):
            return True
        time = self.times.number(row)
        if time < 0 or time > INT64_MAX // self.factor:
            return False
        self.rows[row].time = time * self.factor // self.divisor
        return True

    cdef bint set_partition(self, Py_ssize_t row, Py_ssize_t count) noexcept:
        """Set the partition of a row. Return whether a topic of `count` partitions has it."""
        cdef int64_t number
        self.rows[row].partition = -1
        if self.partitions is None or not self.partitions.has(row):
            return count > 0
        number = self.partitions.number(row)
        self.rows[row].partition = number
        return 0 <= number < count

    cdef Py_ssize_t header_bound(self, Py_ssize_t row) except -2:
        """Return the size of the headers, as in `batch.record_size`; -1 if a header is wrong."""
        cdef Py_ssize_t start, stop, i, bound = 0, j
        cdef Part name, content
        cdef bint plain
        if self.lists is None:
            return 0
        self.lists.range_of(row, self.pairs.rows, &start, &stop)
        for i in range(start, stop):
            part_of(self.names, i, &name)
            if not self.pairs.has(i) or name.size < 0:
                return -1
            part_of(self.contents, i, &content)
            plain = True
            for j in range(name.size):
                plain = plain and name.at[j] < 128
            if plain:
                bound += 4 * name.size
            else:
                try:
                    bound += 4 * len(bytes_of(&name).decode())
                except UnicodeDecodeError:
                    return -1
            bound += 10 + max(content.size, 0)
        return bound

    cdef Py_ssize_t pack_headers(self, Py_ssize_t row, Part *packed) except -1:
        """Encode the headers of a row. Return their number."""
        cdef Py_ssize_t start, stop, i, needed = 0
        cdef Part name, content
        cdef uint8_t *at
        self.lists.range_of(row, self.pairs.rows, &start, &stop)
        for i in range(start, stop):
            part_of(self.names, i, &name)
            part_of(self.contents, i, &content)
            needed += 20 + max(name.size, 0) + max(content.size, 0)
        if needed > self.room:
            at = <uint8_t *>PyMem_Realloc(self.packed, 2 * needed)
            if at == NULL:
                raise MemoryError
            self.packed, self.room = at, 2 * needed
        at = self.packed
        for i in range(start, stop):
            part_of(self.names, i, &name)
            part_of(self.contents, i, &content)
            needed -= 20 + max(name.size, 0) + max(content.size, 0)
            if needed < 0:
                raise BufferError("The columns have changed while they were read.")
            name.size = max(name.size, 0)
            at = aiok_write_varint(at, name.size)
            memcpy(at, name.at, name.size)
            at = aiok_write_varint(at + name.size, content.size)
            if content.size > 0:
                memcpy(at, content.at, content.size)
                at += content.size
        packed.at, packed.size = self.packed, at - self.packed
        return stop - start

    cdef object header_objects(self, Py_ssize_t row):
        """Return the headers of a row as `send` takes them."""
        cdef Py_ssize_t start, stop, i
        cdef Part name, content
        if self.lists is None:
            return NO_HEADERS
        self.lists.range_of(row, self.pairs.rows, &start, &stop)
        found = []
        for i in range(start, stop):
            part_of(self.names, i, &name)
            part_of(self.contents, i, &content)
            found.append(((bytes_of(&name) or b"").decode(), bytes_of(&content)))
        return found


def send_columns(SendPath self not None, targets, records):
    """See `producer.send_arrow.send_columns`."""
    cdef ArrowRows rows = ArrowRows(records, now(self))
    cdef list topics = list(targets)
    if not look_at_rows(self, topics, rows, records):
        return None
    needs = settle_rows(self, topics, rows)
    self._accumulator.require_room(needs, are_rows=True)
    return append_rows(self, rows)


cdef bint look_at_rows(SendPath self, list topics, ArrowRows rows, records) except -1:
    """Return whether native code can send all of the rows. Compute their sizes and times.

    A row that may be wrong is passed to `records.check_row`, which raises an error if it is wrong. No
    partition is chosen yet, so that the Python code can send the rows from the same state if the
    result is False.
    """
    cdef Part key, value
    cdef TopicState target = topics[0]
    cdef Py_ssize_t i, bound
    cdef ArrowRow *row
    for i in range(rows.count):
        row = rows.rows + i
        if rows.which is not None:
            target = topics[rows.which.number(i)]
        part_of(rows.keys, i, &key)
        part_of(rows.values, i, &value)
        bound = rows.header_bound(i)
        row.size = RECORD_OVERHEAD + max(key.size, 0) + max(value.size, 0) + bound
        if (
            bound < 0
            or row.size > self._largest
            or not rows.set_time(i)
            or not rows.set_partition(i, len(target.queues))
        ):
            records.check_row(self, topics, i)
            return False
    return True


cdef dict settle_rows(SendPath self, list topics, ArrowRows rows):
    """Choose the partition of each row, and thereby its queue.

    Return, for each queue, the number of bytes and of records that the rows add to it.
    """
    global send_serials
    cdef Part key
    cdef QueueState queue
    cdef TopicState target = topics[0]
    cdef list queues = []
    cdef uint64_t serial
    cdef Py_ssize_t i
    cdef ArrowRow *row
    send_serials += 1
    serial = send_serials
    for i in range(rows.count):
        row = rows.rows + i
        if rows.which is not None:
            target = topics[rows.which.number(i)]
        if row.partition >= 0:
            queue = target.queues[row.partition]
        else:
            part_of(rows.keys, i, &key)
            queue = choose(self, target, &key, None, row.size)
        row.queue = <PyObject *>queue
        if queue.asker != serial:
            queue.asker, queue.need, queue.needed = serial, 0, 0
            queues.append(queue)
        queue.need += row.size
        queue.needed += 1
    return {queue: ((<QueueState>queue).need, (<QueueState>queue).needed) for queue in queues}


cdef DeliveryRuns append_rows(SendPath self, ArrowRows rows):
    cdef DeliveryRuns made = self._deliveries()
    cdef BatchState batch
    cdef QueueState queue
    cdef Part key, value, headers
    cdef Part *packed
    cdef Py_ssize_t i, index, count
    cdef ArrowRow *row
    for i in range(rows.count):
        row = rows.rows + i
        queue = <QueueState>row.queue
        batch = queue.open
        index = -1
        part_of(rows.keys, i, &key)
        part_of(rows.values, i, &value)
        if has_room(batch, row.size):
            packed, count = NULL, 0
            if rows.lists is not None:
                count = rows.pack_headers(i, &headers)
                packed = &headers if count else NULL
            index = write(batch.builder, row.time, &key, &value, packed, count)
        if index >= 0:
            batch.left -= row.size
            if row.time != batch.stamp:
                batch.store_timestamp(index, row.time)
        else:
            batch, index = self._accumulator.append_record(
                queue,
                row.time,
                bytes_of(&key),
                bytes_of(&value),
                rows.header_objects(i),
                row.size,
                forced=True,
            )
        if row.partition >= 0:
            batch.choose_for(index)
        made.put_one(batch, index, row.time)
    return made
