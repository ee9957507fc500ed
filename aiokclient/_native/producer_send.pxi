"""The native twin of `producer._pure.send_path.SendPath`, with the same interface.

It handles only the common cases: a running producer in its own loop, a known topic, bytes, and an
open batch with room. There, a send is a lookup in a dict, a comparison of the record's largest size
with the bytes that the batch has left, and the encoding. In all other cases, it changes nothing, and
the Python code of `Producer` sends the records, so that each decision is made in one place.
"""

from aiokclient.types import ProducerRecord

from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.string cimport memcpy


cdef extern from "Python.h":
    PyObject *Py_NewRef(PyObject *thing)
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL
    PyObject *PySequence_Fast_GET_ITEM(object sequence, Py_ssize_t index)
    Py_ssize_t PySequence_Fast_GET_SIZE(object sequence)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    Py_ssize_t PyUnicode_GET_LENGTH(object text)


cdef extern from "send.h":
    int64_t aiok_time_ms() nogil
    object aiok_call(object function)
    ctypedef PyObject *(*AiokSend)(PyObject *, PyObject *, PyObject *) except NULL
    void aiok_send_shortly(PyTypeObject *type, AiokSend plain)
    int aiok_own_send(PyTypeObject *type, PyTypeObject *base) except -1


cdef enum:
    RECORD_OVERHEAD = 40
    HEADERS_ROOM = 512

cdef tuple NO_HEADERS = ()
cdef object PRODUCER_RECORD = ProducerRecord
cdef uint64_t send_serials = 0

cdef struct Row:
    # A record of send_many. Its references are borrowed from the items.
    PyObject *queue
    PyObject *key
    PyObject *value
    PyObject *partition
    Py_ssize_t size
    int64_t time


cdef class SendPath:
    """See `producer._pure.send_path.SendPath`."""

    cdef public bint _usable
    cdef public bint _real_time
    cdef public bint _raw
    cdef public bint _hashes
    cdef public bint _chooses
    cdef public object _loop
    cdef public object _clock
    cdef public dict _topics
    cdef public Py_ssize_t _largest
    cdef public object _accumulator
    cdef public object _partitioner
    cdef public object _deliveries
    cdef public Delivery _last
    # The `topic` argument of the last send, the dict in which it was found, and the topic's state.
    cdef object _recent
    cdef object _recent_of
    cdef TopicState _recent_target

    __class_getitem__ = classmethod(GenericAlias)

    def send(
        self, topic, value=None, key=None, partition=None, timestamp=None, headers=NO_HEADERS
    ):
        """send($self, topic, value=None, key=None, partition=None, timestamp=None, headers=())
--

Send a record, and return its delivery immediately.

Await the `Delivery` for the acknowledgement, which takes at most `delivery_timeout_ms`. If that
wait is cancelled, the record is still sent. `timestamp` is in milliseconds since the epoch; None
means now. In a loop, use `if producer.full: await producer.drain()` for backpressure.

`send` itself raises these errors, and does not send the record then: ClosedError or the error that
failed the producer, SerializationError, RecordTooLargeError (`max_request_size`),
InvalidTopicError, UnknownTopicOrPartitionError for a partition that a known topic does not have,
BufferExhaustedError if the overflow queue is full, WrongThreadError, and WrongLoopError. The
delivery raises all other errors."""
        return sent(self, topic, value, key, partition, timestamp, headers)

    def send_many(self, topic, values):
        """send_many($self, topic, values)
--

Send all records of a sequence or none, and return their deliveries in the same order.

An item is a value, a (key, value) tuple, or a `ProducerRecord`, which may name another topic.
Raises the errors of `send`, and BufferExhaustedError if there is not enough room for all records;
`send_all()` waits for room instead."""
        cdef DeliveryRuns made = None
        if not self._usable or not runs_here(self._loop):
            self._require_usable()
        if self._raw and self._chooses and (type(values) is list or type(values) is tuple):
            found = self._topics.get(topic) if isinstance(topic, str) else None
            if found is not None and (<TopicState>found).known and values:
                # A tuple, because code that is called meanwhile could change a list.
                made = send_items(self, found, tuple(values))
        if made is None:
            return self._send_many(topic, values)
        self._last = made[-1]
        return made

    @property
    def full(self):
        """Whether the record sent last is in the overflow queue.

        `drain()` waits until it has left the queue.
        """
        cdef Py_ssize_t index
        cdef Delivery last = self._last
        if last is None:
            return False
        index = last._index
        return locate(last._batch, &index).in_overflow


cdef inline object sent(
    SendPath self,
    object topic,
    object value,
    object key,
    object partition,
    object timestamp,
    object headers,
):
    cdef Delivery delivery
    cdef TopicState target
    if not self._usable or not runs_here(self._loop):
        self._require_usable()
    if topic is self._recent and self._topics is self._recent_of:
        target = self._recent_target
    else:
        target = topic_of(self, topic)
    if not self._raw:
        key, value = self._serialize_record(topic, key, value, headers)
    delivery = put(self, target, key, value, partition, timestamp, headers)
    if delivery is None:
        return self._append_record(target, key, value, partition, timestamp, headers)
    self._last = delivery
    return delivery


cdef PyObject *sent_plain(PyObject *self, PyObject *topic, PyObject *value) except NULL:
    delivery = sent(<SendPath>self, <object>topic, <object>value, None, None, None, NO_HEADERS)
    return Py_NewRef(<PyObject *>delivery)


aiok_send_shortly(<PyTypeObject *>SendPath, sent_plain)


def with_own_send(owner):
    """See `producer._pure.send_path.with_own_send`."""
    aiok_own_send(<PyTypeObject *>owner, <PyTypeObject *>SendPath)
    return owner


cdef TopicState topic_of(SendPath self, object topic):
    cdef PyObject *found = NULL
    if isinstance(topic, str):  # Anything else may have no hash.
        found = PyDict_GetItemWithError(self._topics, topic)
    cdef TopicState target = self._find_topic(topic) if found == NULL else <object>found
    if type(topic) is str:
        self._recent, self._recent_of, self._recent_target = topic, self._topics, target
    return target


cdef Delivery put(
    SendPath self,
    TopicState target,
    object key,
    object value,
    object partition,
    object timestamp,
    object headers,
):
    """Append the record if it is of a common kind. Otherwise change nothing and return None."""
    cdef Part key_part, value_part, headers_part
    cdef Part *packed = NULL
    cdef uint8_t buffer[HEADERS_ROOM]
    cdef Py_ssize_t size, index = -1, count = 0
    cdef int64_t time
    cdef int overflow = 0
    cdef QueueState queue
    cdef BatchState batch
    if target is None or not target.known:
        return None
    if not take(key, &key_part) or not take(value, &value_part):
        return None
    size = RECORD_OVERHEAD + max(key_part.size, 0) + max(value_part.size, 0)
    if headers is not NO_HEADERS:
        if type(headers) is not list and type(headers) is not tuple:
            return None
        headers_part.at = buffer
        headers_part.size = 0
        count = pack_small(headers, &headers_part, &size)
        if count < 0:
            return None
        packed = &headers_part
    if size > self._largest:
        return None
    if timestamp is None:
        time = now(self)
    elif PyLong_CheckExact(timestamp):
        time = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        if overflow or time < 0:
            return None
    else:
        return None
    queue = choose(self, target, &key_part, partition, size)
    if queue is None:
        return None
    batch = queue.open
    if has_room(batch, size):
        index = write(batch.builder, time, &key_part, &value_part, packed, count)
    if index >= 0:
        batch.left -= size
        if time != batch.stamp:
            batch.store_timestamp(index, time)
    else:
        batch, index = self._accumulator.append_record(queue, time, key, value, headers, size)
    if partition is not None:
        batch.choose_for(index)
    return aiok_delivery_new(deliveries, <PyObject *>batch, index, time)


cdef Py_ssize_t pack_small(object headers, Part *packed, Py_ssize_t *bound):
    """Encode headers, and return their number, or -1 if Python must handle them.

    `bound` increases by an upper bound of their size, the same as that of `batch.record_size`.
    """
    cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(headers), i, length
    cdef uint8_t *start = <uint8_t *>packed.at
    cdef uint8_t *at = start
    cdef const char *text
    cdef Part content
    for i in range(count):
        header = <object>PySequence_Fast_GET_ITEM(headers, i)
        if type(header) is not tuple or PyTuple_GET_SIZE(header) != 2:
            return -1
        name = <object>PyTuple_GET_ITEM(header, 0)
        if type(name) is not str or not take(<object>PyTuple_GET_ITEM(header, 1), &content):
            return -1
        try:
            text = PyUnicode_AsUTF8AndSize(name, &length)
        except UnicodeError:
            return -1
        if at + length + max(content.size, 0) + 20 > start + HEADERS_ROOM:
            return -1
        at = aiok_write_varint(at, length)
        memcpy(at, text, length)
        at = aiok_write_varint(at + length, content.size)
        if content.size > 0:
            memcpy(at, content.at, content.size)
            at += content.size
        bound[0] += 4 * PyUnicode_GET_LENGTH(name) + 10 + max(content.size, 0)
    packed.size = at - start
    return count


cdef inline int64_t now(SendPath self) except -1:
    return aiok_time_ms() if self._real_time else self._clock.time_ms()


cdef inline bint has_room(BatchState batch, Py_ssize_t size) noexcept:
    """Return whether the batch has `size` reserved bytes left.

    Records take fewer bytes than were reserved for them, so `left` is computed again before the
    result is False.
    """
    if batch is None or batch.builder is None:
        return False
    if batch.left < size:
        batch.left = batch.reserved - batch.builder.size
    return batch.left >= size


cdef QueueState choose(
    SendPath self, TopicState target, Part *key, object partition, Py_ssize_t size
):
    """Return the queue for a record of a known topic, or None if Python must choose it."""
    cdef Py_ssize_t count, number
    if target.sticky is not None and partition is None and self._chooses:
        if key.size < 0 or not self._hashes:
            if target.sticky_left <= 0 or target.sticky.unsendable:
                return self._partitioner.choose_sticky_queue(target, size)
            target.sticky_left -= size
            return target.sticky
    count = len(target.queues)
    if not may_choose(self, partition, count):
        return None
    if partition is not None:
        number = partition
        return target.queues[number]
    if key.size >= 0 and self._hashes:
        return target.queues[(aiok_murmur2(key.at, key.size) & 0x7FFFFFFF) % count]
    return self._partitioner.choose_sticky_queue(target, size)


cdef DeliveryRuns send_items(SendPath self, TopicState target, tuple items):
    """Send the values of a `send_many` call to a known topic.

    If the Python code must send them instead, change nothing and return None.

    First, all records are checked, their partitions are chosen, and the sizes for each partition
    are added up. If there is room for all records, they are appended.
    """
    cdef Py_ssize_t count = PyTuple_GET_SIZE(items), total = 0, largest = 0, i, size
    cdef Part part
    cdef Row *rows
    for i in range(count):
        item = <object>PyTuple_GET_ITEM(items, i)
        if not take(item, &part):
            break
        size = max(part.size, 0)
        total += size
        largest = max(largest, size)
    else:
        if largest + RECORD_OVERHEAD > self._largest:
            return None
        return self._send_values(target, items, total + RECORD_OVERHEAD * count, now(self))
    rows = <Row *>PyMem_Calloc(count, sizeof(Row))
    if rows == NULL:
        raise MemoryError
    try:
        if not look(self, target, items, rows):
            return None
        needs = settle(self, target, rows, count)
        if needs is None:
            return None
        self._accumulator.require_room(needs)
        return append(self, rows, count)
    finally:
        PyMem_Free(rows)


cdef bint look(SendPath self, TopicState target, tuple items, Row *rows) except -1:
    """Return whether native code can send all of the records.

    No partition is chosen yet, so that the Python code can send the records from the same state if
    the result is False.
    """
    cdef Py_ssize_t count = PyTuple_GET_SIZE(items), partitions = len(target.queues), i
    cdef int64_t time = now(self)
    cdef Part key, value
    for i in range(count):
        item = <object>PyTuple_GET_ITEM(items, i)
        rows[i].partition = <PyObject *>None
        rows[i].time = time
        if type(item) is tuple and PyTuple_GET_SIZE(item) == 2:
            rows[i].key = PyTuple_GET_ITEM(item, 0)
            rows[i].value = PyTuple_GET_ITEM(item, 1)
        elif type(item) is PRODUCER_RECORD and PyTuple_GET_SIZE(item) == 6:
            rows[i].value = PyTuple_GET_ITEM(item, 1)
            rows[i].key = PyTuple_GET_ITEM(item, 2)
            rows[i].partition = PyTuple_GET_ITEM(item, 3)
            if not same_topic(target, item) or not time_of(item, &rows[i].time):
                return False
        else:
            rows[i].key = <PyObject *>None
            rows[i].value = <PyObject *>item
        if not take(<object>rows[i].key, &key) or not take(<object>rows[i].value, &value):
            return False
        rows[i].size = RECORD_OVERHEAD + max(key.size, 0) + max(value.size, 0)
        if rows[i].size > self._largest:
            return False
        if not may_choose(self, <object>rows[i].partition, partitions):
            return False
    return True


cdef dict settle(SendPath self, TopicState target, Row *rows, Py_ssize_t count):
    """Choose the partition of each record, and thereby its queue.

    Return, for each queue, the number of bytes and of records that the records add to it. Return
    None if Python must choose a partition.
    """
    global send_serials
    cdef Part key
    cdef QueueState queue
    cdef list queues = []
    cdef uint64_t serial
    cdef Py_ssize_t i
    send_serials += 1
    serial = send_serials
    for i in range(count):
        take(<object>rows[i].key, &key)
        queue = choose(self, target, &key, <object>rows[i].partition, rows[i].size)
        if queue is None:
            return None
        rows[i].queue = <PyObject *>queue
        if queue.asker != serial:
            queue.asker, queue.need, queue.needed = serial, 0, 0
            queues.append(queue)
        queue.need += rows[i].size
        queue.needed += 1
    return {queue: ((<QueueState>queue).need, (<QueueState>queue).needed) for queue in queues}


cdef inline bint may_choose(SendPath self, object partition, Py_ssize_t count) except -1:
    """Return whether `choose` can choose the partition."""
    if partition is None:
        return self._chooses and count > 0
    return PyLong_CheckExact(partition) and 0 <= partition < count


cdef bint same_topic(TopicState target, object record) except -1:
    """Return whether a ProducerRecord is for this topic and has no headers."""
    headers = <object>PyTuple_GET_ITEM(record, 5)
    topic = <object>PyTuple_GET_ITEM(record, 0)
    if headers is not NO_HEADERS:
        return False
    return topic is target.name or (type(topic) is str and topic == target.name)


cdef bint time_of(object record, int64_t *time) except -1:
    """Set `time` to the timestamp of a ProducerRecord, if any. Return whether it is valid."""
    cdef int overflow = 0
    timestamp = <object>PyTuple_GET_ITEM(record, 4)
    if timestamp is None:
        return True
    if not PyLong_CheckExact(timestamp):
        return False
    time[0] = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
    return not overflow and time[0] >= 0


cdef DeliveryRuns append(SendPath self, Row *rows, Py_ssize_t count):
    cdef DeliveryRuns made = self._deliveries()
    cdef BatchState batch
    cdef QueueState queue
    cdef Part key, value
    cdef Py_ssize_t i, index
    cdef Row *row
    for i in range(count):
        row = rows + i
        queue = <QueueState>row.queue
        batch = queue.open
        index = -1
        if has_room(batch, row.size):
            take(<object>row.key, &key)
            take(<object>row.value, &value)
            index = write(batch.builder, row.time, &key, &value, NULL, 0)
        if index >= 0:
            batch.left -= row.size
            if row.time != batch.stamp:
                batch.store_timestamp(index, row.time)
        else:
            key_object, value_object = <object>row.key, <object>row.value
            batch, index = self._accumulator.append_record(
                queue, row.time, key_object, value_object, NO_HEADERS, row.size, forced=True
            )
        if row.partition != <PyObject *>None:
            batch.choose_for(index)
        made.put_one(batch, index, row.time)
    return made
