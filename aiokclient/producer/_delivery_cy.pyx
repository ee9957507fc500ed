# cython: auto_pickle=False
"""The native twin of `_delivery_py` and `_state_py`, whose interfaces these are.

A delivery is a batch, an index and a timestamp, and the garbage collector does not know it. What
`await` drives is not the delivery itself but a small thing made for it: for a delivery that is done
one without a state, for others one that has a future of its own. So any number may be outstanding.
"""

import asyncio
import contextvars
from asyncio import get_running_loop
from bisect import bisect_right
from types import GenericAlias

from aiokclient.errors import WrongLoopError
from aiokclient.producer._delivery_py import PENDING, WRONG_LOOP, Forward
from aiokclient.types import RecordMetadata

cimport cython
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t

from aiokclient._plain_tuple_cy cimport aiok_plain_tuple, spares

__all__ = ["BatchState", "Delivery", "DeliveryBatch", "QueueState", "TopicState"]


cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT

    PySendResult PyIter_Send(object iterator, object value, PyObject **result) except? PYGEN_ERROR
    PyObject *_new_long "PyLong_FromLongLong"(long long) except NULL
    PyObject *_new_ref "Py_NewRef"(PyObject *)
    void _decref "Py_DECREF"(PyObject *)
    ctypedef PySendResult (*sendfunc)(PyObject *, PyObject *, PyObject **) except? PYGEN_ERROR
    ctypedef PyObject *(*iternextfunc)(PyObject *) except? NULL


cdef extern from "_delivery.h":
    void aiok_stop_with(PyObject **stop, PyObject *value)
    int aiok_awaiting_type(PyTypeObject *type, sendfunc send, iternextfunc next) except -1


cdef object InvalidStateError = asyncio.InvalidStateError
cdef object METADATA = RecordMetadata
if RecordMetadata.__flags__ & (1 << 14):  # Py_TPFLAGS_HAVE_GC
    raise ImportError("RecordMetadata is the one in Python")
cdef object FORWARD = Forward
cdef PyObject *stop = NULL


cdef class DeliveryBatch:
    """See `_delivery_py.DeliveryBatch`."""

    def __init__(self, topic, partition, hooks):
        self.topic = topic
        self.partition = partition
        self.base_offset = self.append_time = -1
        self._hooks = hooks

    def succeed(self, int64_t base_offset, int64_t append_time=-1):
        """The broker has the batch; a base offset of -1 means that it did not say where."""
        self.base_offset = base_offset
        self.append_time = append_time
        self._settle()

    def fail(self, error):
        """None of the records that are still here will be delivered."""
        self.error = error
        self.unretrieved = self.count - self.moved
        self._settle()

    def forward(self, Py_ssize_t count, DeliveryBatch batch not None, Py_ssize_t index):
        """The next `count` records that are still here are now in `batch`, from `index` on."""
        start = self.moved
        self.moved = start + count
        if self._forwards is None:
            self._forwards = []
        if self._forwards:
            last = self._forwards[len(self._forwards) - 1]
            if last.batch is batch and last.first + last.end - last.start == index:
                self._forwards[len(self._forwards) - 1] = last._replace(end=self.moved)
                return
        self._forwards.append(FORWARD(start, self.moved, batch, index))

    def emptied(self):
        """All records have moved: nothing more happens here."""
        self._settle()

    def partition_of(self, Py_ssize_t index):
        """The partition of one of its records, if it is chosen."""
        return self.partition

    def timestamp_of(self, Py_ssize_t index):
        """The timestamp that one of its records was sent with; -1 where that is not kept."""
        return -1

    def metadata(self, Py_ssize_t index, int64_t timestamp):
        """Where a written record is; `timestamp` is the one it was sent with."""
        return owned(metadata(self, index, timestamp, NULL))

    def wake(self):
        """Let everybody who waits look again."""
        waiters, self._waiters = self._waiters, None
        if waiters is not None:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _settle(self):
        self.done = True
        if self._waiters is not None:
            self.wake()
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for entry in callbacks:
                # This batch is done; the record may have moved on, and still wait there.
                entry[0].located()[0].adopt(entry)

    @property
    def targets(self):
        """The batches that records of this one have moved to."""
        return [] if self._forwards is None else [forward.batch for forward in self._forwards]

    def locate(self, Py_ssize_t index):
        """Where the record is now."""
        batch = locate(self, &index)
        return batch, index

    def demand(self):
        """Somebody waits: the batch need not linger."""
        if not self.demanded:
            self.demanded = True
            if not self.done:
                self._hooks.demand(self)

    def wait(self):
        """A future of its own for one waiter, done when there is something new to look at.

        Whoever stops waiting for it calls `leave`.
        """
        loop = get_running_loop()
        if loop is not self._hooks.loop:
            raise WrongLoopError(WRONG_LOOP)
        waiter = loop.create_future()
        if self._waiters is None:
            self._waiters = {}
        self._waiters[waiter] = None
        return waiter

    def leave(self, waiter):
        """Forget a waiter that was cancelled."""
        if self._waiters is not None:
            self._waiters.pop(waiter, None)

    async def changed(self):
        """Until there is something new to look at. Cancelling leaves nothing behind."""
        waiter = self.wait()
        try:
            await waiter
        finally:
            self.leave(waiter)

    def call_when_done(self, delivery, callback):
        """See `Delivery.add_done_callback`."""
        self.adopt((delivery, callback, contextvars.copy_context()))

    def adopt(self, entry):
        """Take a callback over, or have it called when the outcome is there."""
        if self.done:
            delivery, callback, context = entry
            self._hooks.loop.call_soon(callback, delivery, context=context)
        elif self._callbacks is None:
            self._callbacks = [entry]
        else:
            self._callbacks.append(entry)

    def retrieve(self, Py_ssize_t index):
        """The error of a record, marked as seen by the user; None when it was delivered."""
        if self.error is not None and self.unretrieved:
            if self._retrieved is None:
                self._retrieved = bytearray(self.count)
            if not self._retrieved[index]:
                self._retrieved[index] = 1
                self.unretrieved -= 1
                self._hooks.retrieved(self, 1)
        return self.error

    def retrieve_run(self, Py_ssize_t index, Py_ssize_t count):
        """The same for a run of records."""
        if self.error is not None and self.unretrieved:
            if self._retrieved is None:
                self._retrieved = bytearray(self.count)
            end = index + count
            fresh = count - sum(self._retrieved[index:end])
            self._retrieved[index:end] = b"\x01" * count
            self.unretrieved -= fresh
            self._hooks.retrieved(self, fresh)
        return self.error

    def is_retrieved(self, Py_ssize_t index):
        """Whether the user has seen the failure of this record."""
        return self._retrieved is not None and bool(self._retrieved[index])


def _start(forward):
    return forward.start


cdef DeliveryBatch locate(DeliveryBatch batch, Py_ssize_t *index):
    cdef Py_ssize_t at
    while index[0] < batch.moved:
        forwards = batch._forwards
        at = bisect_right(forwards, index[0], key=_start) - 1
        forward = forwards[at]
        index[0] += <Py_ssize_t>forward.first - <Py_ssize_t>forward.start
        batch = forward.batch
    return batch


cdef PyObject *metadata(
    DeliveryBatch batch, Py_ssize_t index, int64_t timestamp, PyObject *time
) except NULL:
    cdef int64_t offset = batch.base_offset + index if batch.base_offset >= 0 else -1
    if batch.append_time >= 0:
        time = _new_long(batch.append_time)
    elif time != NULL:
        time = _new_ref(time)
    else:
        time = _new_long(timestamp)
    return aiok_plain_tuple(
        spares,
        <PyTypeObject *>METADATA,
        <PyObject *>batch.topic,
        <PyObject *>batch.partition,
        _new_long(offset),
        time,
    )


cdef inline object owned(PyObject *made):
    """The object, whose reference was ours."""
    result = <object>made
    _decref(made)
    return result


cdef class BatchState(DeliveryBatch):
    """See `_state_py.BatchState`."""

    def __init__(self, topic, partition, hooks, RecordBatchBuilder builder not None):
        DeliveryBatch.__init__(self, topic, partition, hooks)
        self.builder = builder
        self.stamp = -1
        self.stamps = []

    def use(self, RecordBatchBuilder builder not None):
        """Append to this builder from now on."""
        self.builder = builder

    def add(self, timestamp, key, value, headers):
        """The index that the record has in the builder, or -1 if it does not fit."""
        return self.builder.append(timestamp, key, value, headers)

    def partition_of(self, Py_ssize_t index):
        """The partition of a record: the batch's, or the one that the user chose."""
        if self.explicit is None or index >= len(self.explicit):
            return self.partition
        chosen = self.explicit[index]
        return chosen if chosen >= 0 else None

    def note(self, Py_ssize_t index, int64_t timestamp):
        """The records from this one on have another timestamp."""
        self.stamp = timestamp
        self.stamps.append((index, timestamp))

    def timestamp_of(self, Py_ssize_t index):
        """The timestamp that one of its records was sent with."""
        cdef Py_ssize_t at = bisect_right(self.stamps, index, key=_index) - 1
        return self.stamps[at][1] if at >= 0 else -1

    def room(self):
        """Look again how much of what is reserved is left."""
        self.left = self.reserved - self.builder.size
        return self.left


def _index(stamp):
    return stamp[0]


cdef class QueueState:
    """See `_state_py.QueueState`."""


cdef class TopicState:
    """See `_state_py.TopicState`."""

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, name):
        self.name = name
        self.queues = []


@cython.no_gc
@cython.final
@cython.freelist(2048)
cdef class Delivery:
    """See `_delivery_py.Delivery`.

    Await it, any number of times and from any number of tasks, for the `RecordMetadata`; it raises
    the `KafkaError` that kept the record from being delivered, and ends within
    `delivery_timeout_ms` of the send. Cancelling a task that awaits it never cancels the delivery.
    """

    def __init__(self, DeliveryBatch batch not None, Py_ssize_t index, int64_t timestamp):
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    @property
    def origin(self):
        """The batch that the record was sent in, its index there, and its timestamp."""
        return required(self), self._index, self._timestamp

    def located(self):
        """The batch that the record is in now, and its index there."""
        cdef Py_ssize_t index = self._index
        batch = locate(required(self), &index)
        return batch, index

    @property
    def topic(self):
        """The topic that the record was sent to."""
        return required(self).topic

    @property
    def partition(self):
        """The partition; None while it is not chosen, the topic being unknown yet."""
        cdef Py_ssize_t index = self._index
        return locate(required(self), &index).partition_of(index)

    @property
    def offset(self):
        """The record's offset; -1 when no broker told it (`acks=0`) and when it failed.

        Raises `asyncio.InvalidStateError` until done.
        """
        cdef Py_ssize_t index = self._index
        cdef DeliveryBatch batch = finished(self, &index)
        return batch.base_offset + index if batch.base_offset >= 0 else -1

    @property
    def timestamp(self):
        """Milliseconds since the epoch: the record's, or the broker's with LogAppendTime.

        Raises `asyncio.InvalidStateError` until done.
        """
        cdef Py_ssize_t index = self._index
        cdef DeliveryBatch batch = finished(self, &index)
        return batch.append_time if batch.append_time >= 0 else self._timestamp

    def done(self):
        """Whether the record has its outcome, delivered or failed."""
        cdef Py_ssize_t index = self._index
        return locate(required(self), &index).done

    def result(self):
        """Where the record is. Raises what kept it from being delivered, which retrieves it.

        Raises `asyncio.InvalidStateError` until done.
        """
        cdef Py_ssize_t index = self._index
        cdef DeliveryBatch batch = finished(self, &index)
        return owned(outcome(batch, index, self._timestamp))

    def exception(self):
        """What kept the record from being delivered, or None; this retrieves it.

        Raises `asyncio.InvalidStateError` until done.
        """
        cdef Py_ssize_t index = self._index
        return finished(self, &index).retrieve(index)

    def add_done_callback(self, callback):
        """Have the loop call `callback(delivery)` once it is done, soon if it is already.

        A callback alone does not retrieve a failure.
        """
        if not callable(callback):
            raise TypeError(f"add_done_callback takes a function of a delivery, not {callback!r}")
        self.located()[0].call_when_done(self, callback)

    def __await__(self):
        cdef Py_ssize_t index = self._index
        cdef DeliveryBatch batch = locate(required(self), &index)
        cdef Ended ended
        cdef Waiting waiting
        if batch.done:
            ended = Ended.__new__(Ended)
            ended.batch = batch
            ended.index = index
            ended.timestamp = self._timestamp
            return ended
        waiting = Waiting.__new__(Waiting)
        waiting.delivery = self
        return waiting

    def __eq__(self, other):
        if not isinstance(other, Delivery):
            return NotImplemented
        return self._batch is (<Delivery>other)._batch and self._index == (<Delivery>other)._index

    def __hash__(self):
        return hash((<Py_ssize_t><PyObject *>self._batch, self._index))

    def __repr__(self):
        cdef Py_ssize_t index = self._index
        cdef DeliveryBatch batch = locate(required(self), &index)
        place = f"topic={batch.topic!r} partition={self.partition}"
        if not batch.done:
            return f"<Delivery {place} pending>"
        if batch.error is not None:
            return f"<Delivery {place} failed: {type(batch.error).__name__}>"
        return f"<Delivery {place} offset={self.offset}>"


cdef DeliveryBatch required(Delivery delivery):
    if delivery._batch is None:
        raise AttributeError("the delivery was made without its batch")
    return delivery._batch


cdef DeliveryBatch finished(Delivery delivery, Py_ssize_t *index):
    cdef DeliveryBatch batch = locate(required(delivery), index)
    if not batch.done:
        raise InvalidStateError(PENDING)
    return batch


cdef PyObject *outcome(DeliveryBatch batch, Py_ssize_t index, int64_t timestamp) except NULL:
    """The metadata of a record that is done, owned by the caller; raises what it failed of."""
    if batch.error is not None:
        raise batch.retrieve(index).with_traceback(None)
    return metadata(batch, index, timestamp, NULL)


@cython.no_gc
@cython.final
@cython.freelist(16)
cdef class Ended:
    """What `await` drives for a delivery that is done: it only answers."""

    cdef DeliveryBatch batch
    cdef Py_ssize_t index
    cdef int64_t timestamp

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(self.answer())

    def send(self, value):
        """As of a coroutine."""
        raise StopIteration(self.answer())

    def throw(self, *error):
        """As of a coroutine."""
        self.batch = None
        nothing().throw(*error)

    def close(self):
        """As of a coroutine."""
        self.batch = None

    cdef object answer(self):
        return owned(once(self))


def nothing():
    yield


cdef PyObject *once(Ended self) except NULL:
    cdef DeliveryBatch batch = self.batch
    if batch is None:
        raise RuntimeError("cannot reuse an await of a delivery")
    self.batch = None
    return outcome(batch, self.index, self.timestamp)


cdef PySendResult ended_send(
    PyObject *awaited, PyObject *value, PyObject **result
) except? PYGEN_ERROR:
    """`am_send`."""
    result[0] = once(<Ended>awaited)
    return PYGEN_RETURN


cdef PyObject *ended_next(PyObject *awaited) except? NULL:
    """`tp_iternext`, which stands for `am_send` in Python 3.12 and later."""
    cdef PyObject *result = once(<Ended>awaited)
    aiok_stop_with(&stop, result)
    _decref(result)
    return NULL


# Without a freelist: what comes from one would not be finalized again.
@cython.final
cdef class Waiting:
    """What `await` drives for a delivery that has no outcome yet: it waits by a future."""

    cdef Delivery delivery
    cdef DeliveryBatch batch
    cdef object waiter
    cdef object steps

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """As of a coroutine."""
        cdef PyObject *result = NULL
        if waiting_send(<PyObject *>self, <PyObject *>value, &result) == PYGEN_RETURN:
            raise StopIteration(owned(result))
        return owned(result)

    def throw(self, *error):
        """As of a coroutine."""
        self.close()
        nothing().throw(*error)

    def close(self):
        """As of a coroutine."""
        self.delivery = None
        self.rest()

    def __del__(self):
        self.rest()

    cdef int rest(self) except -1:
        """Wait no more."""
        batch, waiter = self.batch, self.waiter
        self.batch = self.waiter = self.steps = None
        if batch is not None:
            batch.leave(waiter)
        return 0

    cdef int wait(self, DeliveryBatch batch) except -1:
        batch.demand()
        self.waiter = batch.wait()
        self.batch = batch
        self.steps = iter(self.waiter)
        return 0


cdef DeliveryBatch step(Waiting self, object value, Py_ssize_t *index, PyObject **result):
    """The batch with the outcome, or None: `result` is what has to be awaited first."""
    cdef Delivery delivery = self.delivery
    cdef DeliveryBatch batch
    if delivery is None:
        raise RuntimeError("cannot reuse an await of a delivery")
    try:
        while True:
            steps = self.steps
            if steps is not None:
                if PyIter_Send(steps, value, result) == PYGEN_NEXT:
                    return None
                _decref(result[0])
                result[0] = NULL
                self.rest()
            index[0] = delivery._index
            batch = locate(delivery._batch, index)
            if batch.done:
                self.delivery = None
                return batch
            self.wait(batch)
            value = None
    except BaseException:
        self.close()
        raise


cdef PySendResult waiting_send(
    PyObject *awaited, PyObject *value, PyObject **result
) except? PYGEN_ERROR:
    """`am_send`."""
    cdef Py_ssize_t index = 0
    cdef Delivery delivery = (<Waiting>awaited).delivery
    cdef DeliveryBatch batch = step(<Waiting>awaited, <object>value, &index, result)
    if batch is None:
        return PYGEN_NEXT
    result[0] = outcome(batch, index, delivery._timestamp)
    return PYGEN_RETURN


cdef PyObject *waiting_next(PyObject *awaited) except? NULL:
    """`tp_iternext`, which stands for `am_send` in Python 3.12 and later."""
    cdef PyObject *result = NULL
    if waiting_send(awaited, <PyObject *>None, &result) == PYGEN_NEXT:
        return result
    aiok_stop_with(&stop, result)
    _decref(result)
    return NULL


aiok_awaiting_type(<PyTypeObject *>Ended, ended_send, ended_next)
aiok_awaiting_type(<PyTypeObject *>Waiting, waiting_send, waiting_next)
