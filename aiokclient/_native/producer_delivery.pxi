"""The native twin of `producer._pure.delivery.Delivery`, with the same interface.

A delivery is a batch, an index and a timestamp. delivery_object.h explains how the garbage
collector tracks it. Each `await` of a delivery creates an awaitable of its own, so that any number
of tasks can await it: `Ended` if the delivery is done, otherwise `Waiting`.
"""

import gc
import sys

from aiokclient.producer._pure.delivery import PENDING


cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT

    ctypedef PySendResult (*sendfunc)(PyObject *, PyObject *, PyObject **) except? PYGEN_ERROR
    ctypedef PyObject *(*iternextfunc)(PyObject *) except? NULL


cdef extern from "delivery.h":
    void aiok_stop_iteration(PyObject **stop, PyObject *value)
    int aiok_awaiting_type(PyTypeObject *type, sendfunc send, iternextfunc next) except -1


cdef extern from "delivery_type.h":
    AiokDeliveries aiok_deliveries
    void aiok_know_deliveries()
    int aiok_delivery_type(PyTypeObject *type) except -1


cdef PyObject *stop = NULL


@cython.final
cdef class Delivery:
    """See `producer._pure.delivery.Delivery`.

    Awaiting a delivery returns the `RecordMetadata`, or raises the `KafkaError` that prevented the
    delivery. It has an outcome at most `delivery_timeout_ms` after the send. Any number of tasks
    may await it, any number of times. Cancelling a task that awaits it does not cancel the
    delivery: the record is still sent.
    """

    def __init__(self, DeliveryBatch batch not None, Py_ssize_t index, int64_t timestamp):
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    @property
    def origin(self):
        """The batch to which the record was first appended, its index there, and its timestamp."""
        if self._batch is None:
            raise AttributeError("The delivery was created without its batch.")
        return self._batch, self._index, self._timestamp

    def locate_record(self):
        """Return the batch in which the record is now, and its index there."""
        cdef Py_ssize_t index = self._index
        batch = locate(self._batch, &index)
        return batch, index

    @property
    def topic(self):
        """The topic that the record was sent to."""
        return self.origin[0].topic

    @property
    def partition(self):
        """The partition, or None while the topic is unknown and no partition was chosen."""
        cdef Py_ssize_t index = self._index
        return locate(self._batch, &index).partition_of(index)

    @property
    def offset(self):
        """The record's offset; -1 if the broker returned none (`acks=0`) or the record failed.

        Raises `asyncio.InvalidStateError` until done.
        """
        cdef Py_ssize_t index = self._index
        cdef DeliveryBatch batch = finished(self, &index)
        return batch.base_offset + index if batch.base_offset >= 0 else -1

    @property
    def timestamp(self):
        """The record's timestamp in milliseconds since the epoch.

        If the topic uses LogAppendTime, it is the broker's timestamp. Raises
        `asyncio.InvalidStateError` while the delivery is pending.
        """
        cdef Py_ssize_t index = self._index
        cdef DeliveryBatch batch = finished(self, &index)
        return batch.append_time if batch.append_time >= 0 else self._timestamp

    def done(self):
        """Return whether the record was delivered or has failed."""
        cdef Py_ssize_t index = self._index
        return locate(self._batch, &index).done

    def cancelled(self):
        """Return False: a delivery cannot be cancelled."""
        return False

    def result(self):
        """Return the metadata of the record, or raise its failure, which then counts as retrieved.

        Raises `asyncio.InvalidStateError` until done.
        """
        cdef Py_ssize_t index = self._index
        cdef DeliveryBatch batch = finished(self, &index)
        return owned(outcome(batch, index, self._timestamp))

    def exception(self):
        """Return the failure of the record, or None if the record was delivered.

        A returned failure counts as retrieved. Raises `asyncio.InvalidStateError` until done.
        """
        cdef Py_ssize_t index = self._index
        return finished(self, &index).retrieve_error(index)

    def add_done_callback(self, callback, *, context=None):
        """Call `callback(delivery)` from the event loop when the delivery is done.

        Callbacks and the tasks that await the delivery run in the order in which they were added,
        as they do for an asyncio.Future. A callback alone does not retrieve a failure. Raises
        WrongThreadError in another thread, and WrongLoopError in another event loop.
        """
        if not callable(callback):
            raise TypeError(
                f"add_done_callback() takes a function of one delivery, not {callback!r}.",
            )
        cdef Py_ssize_t index = self._index
        locate(self._batch, &index).call_when_done(self, index, callback, context)

    def remove_done_callback(self, callback):
        """Remove all occurrences of a callback, and return how many were removed.

        Callbacks of a delivery that is done are not removed.
        """
        cdef Py_ssize_t index = self._index
        return locate(self._batch, &index).drop_callback(index, callback)

    def __await__(self):
        cdef Py_ssize_t index = self._index
        cdef DeliveryBatch batch = self._batch
        if batch is None or index < batch.moved:
            batch = locate(batch, &index)
        cdef Ended ended
        cdef Waiting waiting
        if batch.done and not batch.calls:
            ended = Ended.__new__(Ended)
            ended.batch = batch
            ended.index = index
            ended.timestamp = self._timestamp
            return ended
        waiting = Waiting.__new__(Waiting)
        waiting.delivery = self
        waiting.kind = RECORD
        return waiting

    def __eq__(self, other):
        if not isinstance(other, Delivery):
            return NotImplemented
        return self._batch is (<Delivery>other)._batch and self._index == (<Delivery>other)._index

    def __hash__(self):
        return hash((<Py_ssize_t><PyObject *>self._batch, self._index))

    def __repr__(self):
        cdef Py_ssize_t index = self._index
        cdef DeliveryBatch batch = locate(self._batch, &index)
        where = f"topic={batch.topic!r} partition={self.partition}"
        if not batch.done:
            return f"<Delivery {where} pending>"
        if batch.error is not None:
            return f"<Delivery {where} failed: {type(batch.error).__name__}>"
        return f"<Delivery {where} offset={self.offset}>"


cdef DeliveryBatch finished(Delivery delivery, Py_ssize_t *index):
    cdef DeliveryBatch batch = locate(delivery._batch, index)
    if not batch.done:
        raise InvalidStateError(PENDING)
    return batch


cdef PyObject *outcome(DeliveryBatch batch, Py_ssize_t index, int64_t timestamp) except NULL:
    """Return the metadata of a record with an outcome, or raise its failure."""
    if batch.error is not None:
        raise batch.retrieve_error(index).with_traceback(None)
    return metadata(batch, index, timestamp)


@cython.no_gc
@cython.final
@cython.freelist(16)
cdef class Ended:
    """The awaitable of a delivery that is done. It returns immediately."""

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
        """Do what `coroutine.send` does."""
        raise StopIteration(self.answer())

    def throw(self, *error):
        """Do what `coroutine.throw` does."""
        self.batch = None
        nothing().throw(*error)

    def close(self):
        """Do what `coroutine.close` does."""
        self.batch = None

    cdef object answer(self):
        return owned(outcome(once(self), self.index, self.timestamp))


def nothing():
    yield


cdef DeliveryBatch once(Ended self):
    cdef DeliveryBatch batch = self.batch
    if batch is None:
        raise RuntimeError("cannot reuse an await of a delivery")
    self.batch = None
    return batch


cdef PySendResult ended_send(
    PyObject *awaited, PyObject *value, PyObject **result
) except? PYGEN_ERROR:
    """Implement the slot `am_send`."""
    cdef Ended self = <Ended>awaited
    result[0] = outcome(once(self), self.index, self.timestamp)
    return PYGEN_RETURN


cdef PyObject *ended_next(PyObject *awaited) except? NULL:
    """Implement the slot `tp_iternext`, which Python 3.12 and later call for an await."""
    cdef PyObject *result = NULL
    ended_send(awaited, <PyObject *>None, &result)
    aiok_stop_iteration(&stop, result)  # This takes over the reference to `result`.
    return NULL


# This class has no freelist, because a reused object would not be finalized again.
@cython.final
cdef class Waiting(Waiter):
    """The awaitable of a pending delivery."""

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """Do what `coroutine.send` does."""
        cdef PyObject *result = NULL
        if waiting_send(<PyObject *>self, <PyObject *>value, &result) == PYGEN_RETURN:
            raise StopIteration(owned(result))
        return owned(result)

    def throw(self, *error):
        """Do what `coroutine.throw` does."""
        self.close()
        nothing().throw(*error)

    def close(self):
        """Do what `coroutine.close` does."""
        self.delivery = None
        self.stop_waiting()


cdef DeliveryBatch step(Waiting self, Py_ssize_t *index):
    """Return the batch with the outcome, or None if the task must wait for it."""
    cdef Delivery delivery = <Delivery>self.delivery
    cdef DeliveryBatch batch
    if delivery is None:
        raise RuntimeError("cannot reuse an await of a delivery")
    try:
        if self.stage == WAITING:
            raise RuntimeError("await wasn't used with future")
        if self.stage != FRESH:
            self.result()
        index[0] = delivery._index
        batch = locate(delivery._batch, index)
        # An await returns only after the callbacks that were added before it have run.
        if batch.done and (self.stage != FRESH or not batch.calls):
            self.delivery = None
            return batch
        batch.await_by(self)
        batch.skip_linger()
        return None
    except BaseException:
        self.close()
        raise


cdef PySendResult waiting_send(
    PyObject *awaited, PyObject *value, PyObject **result
) except? PYGEN_ERROR:
    """Implement the slot `am_send`."""
    cdef Py_ssize_t index = 0
    cdef Delivery delivery = <Delivery>(<Waiting>awaited).delivery
    cdef DeliveryBatch batch = step(<Waiting>awaited, &index)
    if batch is None:
        result[0] = _new_ref(awaited)
        return PYGEN_NEXT
    result[0] = outcome(batch, index, delivery._timestamp)
    return PYGEN_RETURN


cdef PyObject *waiting_next(PyObject *awaited) except? NULL:
    """Implement the slot `tp_iternext`, which Python 3.12 and later call for an await."""
    cdef PyObject *result = NULL
    if waiting_send(awaited, <PyObject *>None, &result) == PYGEN_NEXT:
        return result
    aiok_stop_iteration(&stop, result)  # This takes over the reference to `result`.
    return NULL


aiok_awaiting_type(<PyTypeObject *>Ended, ended_send, ended_next)
aiok_awaiting_type(<PyTypeObject *>Waiting, waiting_send, waiting_next)


# Python 3.14 collects old objects in increments, which it reports as generation 1.
cdef int EVERYTHING = 1 if sys.version_info >= (3, 14) else 2


def collecting(phase, info):
    """Track all deliveries before old objects are collected. `gc.callbacks` has this function."""
    if phase == "start" and <int>info["generation"] >= EVERYTHING:
        aiok_know_deliveries()


aiok_delivery_type(<PyTypeObject *>Delivery)
deliveries = &aiok_deliveries
gc.callbacks.append(collecting)
