# cython: auto_pickle=False
"""The native twin of `_send_py`, whose interface this is.

What is not the common case is left to `sends.Sends` in Python, before anything has changed.
"""

from asyncio import _get_running_loop
from types import GenericAlias

from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from aiokclient.producer._delivery_cy cimport (
    BatchState,
    Delivery,
    DeliveryBatch,
    QueueState,
    TopicState,
    locate,
)
from aiokclient.record._builder_cy cimport Part, take, write
from aiokclient.record._native cimport aiok_murmur2

__all__ = ["SendPath"]


cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL


cdef extern from "_send.h":
    int64_t aiok_time_ms() nogil


cdef enum:
    RECORD_OVERHEAD = 40

cdef tuple NONE = ()


cdef class SendPath:
    """See `_send_py.SendPath`."""

    cdef public bint _usable
    cdef public bint _real_time
    cdef public bint _raw
    cdef public bint _hashes
    cdef public bint _chooses
    cdef public object _loop
    cdef public object _clock
    cdef public dict _topics
    cdef public Py_ssize_t _largest
    cdef public object _append
    cdef public object _advance
    cdef public Delivery _last

    __class_getitem__ = classmethod(GenericAlias)

    def send(
        self, topic, value=None, key=None, partition=None, timestamp=None, headers=NONE
    ):
        """send($self, topic, value=None, key=None, partition=None, timestamp=None, headers=())
--

Take a record to be sent; plain, it returns at once.

Awaiting the `Delivery` waits for the acknowledgement, at most `delivery_timeout_ms`; cancelling
that wait leaves the record on its way. `timestamp` is in milliseconds since the epoch, now if left
out. In a loop of sends `if producer.full: await producer.drain()` is the backpressure.

Raises at once, and keeps nothing of the record: ClosedError or what failed the producer,
SerializationError, RecordTooLargeError (`max_request_size`), InvalidTopicError,
UnknownTopicOrPartitionError for a partition that a known topic does not have, BufferExhaustedError
beyond the parking, WrongThreadError and WrongLoopError. All else comes through the delivery."""
        cdef PyObject *found
        cdef Delivery delivery
        if not self._usable or _get_running_loop() is not self._loop:
            self._check()
        found = PyDict_GetItemWithError(self._topics, topic)
        place = self._topic(topic) if found == NULL else <object>found
        if not self._raw:
            key, value = self._serialized(topic, key, value, headers)
        delivery = put(self, place, key, value, partition, timestamp, headers)
        if delivery is None:
            return self._put(place, key, value, partition, timestamp, headers)
        self._last = delivery
        return delivery

    def send_many(self, topic, values):
        """send_many($self, topic, values)
--

Send all of a sequence, or nothing of it; plain. The deliveries come in its order.

An item is a value, a (key, value), or a `ProducerRecord`, which may name another topic. Raises what
`send` raises; BufferExhaustedError, when they do not all fit, names `send_all()`, which waits for
room."""
        return self._send_many(topic, values)

    @property
    def full(self):
        """The record sent last is parked: time to await `drain()`."""
        cdef Py_ssize_t index
        cdef Delivery last = self._last
        if last is None:
            return False
        index = last._index
        return locate(last._batch, &index).parked


cdef Delivery put(
    SendPath self,
    TopicState place,
    object key,
    object value,
    object partition,
    object timestamp,
    object headers,
):
    """Append a record as most are; None for any other, of which nothing is done."""
    cdef Part key_part, value_part
    cdef Py_ssize_t size, index = -1
    cdef int64_t time
    cdef int overflow = 0
    cdef QueueState queue
    cdef BatchState batch
    cdef Delivery delivery
    if not place.known or headers is not NONE:
        return None
    if not take(key, &key_part) or not take(value, &value_part):
        return None
    size = RECORD_OVERHEAD + max(key_part.size, 0) + max(value_part.size, 0)
    if size > self._largest:
        return None
    if timestamp is None:
        time = aiok_time_ms() if self._real_time else self._clock.time_ms()
    elif PyLong_CheckExact(timestamp):
        time = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        if overflow or time < 0:
            return None
    else:
        return None
    queue = choose(self, place, &key_part, partition, size)
    if queue is None:
        return None
    batch = queue.open
    if batch is not None and has_room(batch, size):
        index = write(batch.builder, time, &key_part, &value_part, NULL, 0)
    if index >= 0:
        batch.left -= size
        if time != batch.stamp:
            batch.note(index, time)
    else:
        batch, index = self._append(queue, time, key, value, NONE, size)
    delivery = Delivery.__new__(Delivery)
    delivery._batch = batch
    delivery._index = index
    delivery._timestamp = time
    return delivery


cdef inline bint has_room(BatchState batch, Py_ssize_t size) noexcept:
    """Whether so much is reserved; what records take is less than their bounds."""
    if batch.left < size:
        batch.left = batch.reserved - batch.builder.size
    return batch.left >= size


cdef QueueState choose(
    SendPath self, TopicState place, Part *key, object partition, Py_ssize_t size
):
    """The queue for a record of a known topic; None where Python has to say."""
    cdef QueueState queue
    cdef list queues = place.queues
    cdef Py_ssize_t count = len(queues), number
    if partition is not None:
        if not PyLong_CheckExact(partition) or not 0 <= partition < count:
            return None
        number = partition
        return queues[number]
    if not self._chooses:
        return None
    if key.size >= 0 and self._hashes:
        return queues[(aiok_murmur2(key.at, key.size) & 0x7FFFFFFF) % count] if count else None
    queue = place.sticky
    if queue is None or place.sticky_left <= 0 or queue.unsendable:
        queue = self._advance(place)
    place.sticky_left -= size
    return queue
