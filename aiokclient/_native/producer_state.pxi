"""The outcome of a batch: the native twins of `DeliveryBatch` to `TopicState` in `_pure.delivery`.

All records of a batch have their outcome at once. So a batch stores it once, as the offset of its
first record, and `metadata` computes that of each record from its index, without a Python call. Only
what differs between records is stored for ranges of them: their timestamps, the partitions that the
program chose, and the batches to which they have moved. `send` reads and changes the fields of
`BatchState` and its queue and topic directly, which is why these are native, too; everything that
decides about batches is in the Python classes that derive from them.
"""

import contextvars
from bisect import bisect_right

from aiokclient.producer._pure.delivery import Forward
from aiokclient.producer._pure.delivery import refuse_caller
from aiokclient.types import RecordMetadata


cdef extern from "Python.h":
    void _decref "Py_DECREF"(PyObject *)


cdef object METADATA = RecordMetadata
cdef object FORWARD = Forward
if RecordMetadata.__flags__ & (1 << 14):  # Py_TPFLAGS_HAVE_GC
    raise ImportError("RecordMetadata is the pure Python class.")


cdef class DeliveryBatch(Owner):
    """See `producer._pure.delivery.DeliveryBatch`."""

    def __init__(self, topic, partition, hooks):
        begin_batch(self, topic, partition, hooks)

    cpdef succeed(self, int64_t base_offset, int64_t append_time=-1, int64_t log_start=-1):
        """Complete the batch. A base offset of -1 means that the broker returned none."""
        self.base_offset = base_offset
        self.append_time = append_time
        self.log_start = log_start
        self._mark_done()

    def fail(self, error):
        """Fail the records that are still in this batch."""
        self.error = error
        self.unretrieved = self.count - self.moved
        self._mark_done()

    def forward_records(self, Py_ssize_t count, DeliveryBatch batch not None, Py_ssize_t index):
        """Move the next `count` records to `batch`, where they begin at `index`."""
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

    def on_emptied(self):
        """Mark the batch as done after all of its records have moved."""
        self._mark_done()

    def partition_of(self, Py_ssize_t index):
        """Return the partition of a record, or None if it is not chosen yet."""
        return self.partition

    def timestamp_of(self, Py_ssize_t index):
        """Return the timestamp with which a record was sent, or -1 if it was not stored."""
        return -1

    def make_metadata(self, Py_ssize_t index, int64_t timestamp):
        """Return the metadata of a written record that was sent with `timestamp`."""
        return owned(metadata(self, index, timestamp))

    def keep_report(self, report):
        """Keep the object that logs the failure when it can no longer be retrieved."""
        self.report = report

    def notify_change(self):
        """Wake all waiting tasks, so that they look for an outcome again."""
        self.schedule_changed(self._hooks.loop)

    cdef int _mark_done(self) except -1:
        self.done = True
        if self.line.first == NULL:
            return 0
        if self.moved:
            self.hand_over_waiters()
        if self.calls:
            self.note_calling()
        self.schedule_all()
        self._callbacks = None
        return 0

    cdef int hand_over_waiters(self) except -1:
        cdef PyObject *at = self.line.first
        cdef Waiter waiter
        cdef DeliveryBatch target
        cdef list waiters = []
        while at != NULL:
            waiters.append(<Waiter>at)
            at = (<Waiter>at).after
        for waiter in waiters:
            if waiter.delivery is None:
                continue
            target, index = waiter.delivery.locate_record()
            if target is self:
                continue
            waiter.stop_waiting()
            if waiter.kind == CALL:
                self.calls -= 1
                target.add_call(waiter, index)
                continue
            target.join(waiter)
            if target.done:
                target.schedule_all()
            else:
                target.skip_linger()
        return 0

    cdef int schedule(self, list woken) except -1:
        cdef WakeQueue wakes = self._hooks.wakes
        return wakes.schedule(woken, self)

    cdef int ran(self) except -1:
        if self.is_calling and not self.calls:
            self.is_calling = False
            self._hooks.calling.pop(self, None)
        return 0

    cdef int note_calling(self) except -1:
        self.is_calling = True
        self._hooks.calling[self] = None
        return 0

    @property
    def forwards(self):
        """Return the ranges of records that have moved to other batches, in order."""
        return self._forwards or ()

    @property
    def targets(self):
        """The batches to which records of this batch have moved."""
        return [] if self._forwards is None else [forward.batch for forward in self._forwards]

    def locate_record(self, Py_ssize_t index):
        """Return the batch in which the record is now, and its index there."""
        batch = locate(self, &index)
        return batch, index

    cpdef skip_linger(self):
        """Send the batch without lingering, because a task waits for it."""
        if not self.skips_linger:
            self.skips_linger = True
            if not self.done:
                self._hooks.skip_linger(self)

    def add_waiter(self):
        """Return an awaitable, for one task, that is done after any change.

        A task that stops waiting before that must call `remove_waiter`.
        """
        cdef Waiter waiter = Waiter.__new__(Waiter)
        self.await_by(waiter)
        return waiter

    cdef object require_loop(self):
        """Return the loop of the producer. Raises an error if another one runs here, or none."""
        loop = self._hooks.loop
        if not runs_here(loop):
            refuse_caller(self._hooks)
        return loop

    cdef int await_by(self, Waiter waiter) except -1:
        loop = self.require_loop()
        waiter.begin(loop, self)
        if self.done:
            self.schedule_all()
        return 0

    @property
    def _waiters(self):
        """The waiters, in the order in which they were added."""
        cdef PyObject *at = self.line.first
        found = []
        while at != NULL:
            if (<Waiter>at).kind != CALL:
                found.append(<Waiter>at)
            at = (<Waiter>at).after
        return found

    def remove_waiter(self, Waiter waiter not None):
        """Remove a waiter that was cancelled."""
        if waiter.line == &self.line:
            waiter.stop_waiting()

    @property
    def has_callbacks(self):
        """Whether the batch has callbacks that have not run yet."""
        return self.calls > 0

    async def wait_for_change(self):
        """Wait for a change. If the wait is cancelled, its waiter is removed."""
        waiter = self.add_waiter()
        try:
            await waiter
        finally:
            self.remove_waiter(waiter)

    def call_when_done(self, delivery, Py_ssize_t index, callback, context=None):
        """See `Delivery.add_done_callback`. `index` is the record's index in this batch."""
        loop = get_running_loop()
        if loop is not self._hooks.loop:
            refuse_caller(self._hooks, loop is None)
        if context is None:
            context = contextvars.copy_context()
        self.add_call(callback_of(delivery, callback, context), index)

    cdef int add_call(self, Waiter waiter, Py_ssize_t index) except -1:
        if self._callbacks is None:
            self._callbacks = {}
        known = self._callbacks.get(index)
        if known is None:
            self._callbacks[index] = [waiter]
        else:
            known.append(waiter)
        self.calls += 1
        self.join(waiter)
        if self.done:
            self.note_calling()
            self.schedule_all()
        return 0

    def drop_callback(self, Py_ssize_t index, callback):
        """See `Delivery.remove_done_callback`."""
        cdef Waiter waiter
        cdef list known
        if self.done or self._callbacks is None:
            return 0
        known = self._callbacks.get(index)
        found = [] if known is None else [w for w in known if (<Waiter>w)._callback == callback]
        for waiter in found:
            known.remove(waiter)
            waiter.stop_waiting()
            self.calls -= 1
        return len(found)

    def retrieve_error(self, Py_ssize_t index):
        """Return the error of a record, or None if it was written. The error is marked as seen."""
        if self.error is not None and self.unretrieved:
            if self._retrieved is None:
                self._retrieved = bytearray(self.count)
            if not self._retrieved[index]:
                self._retrieved[index] = 1
                self.unretrieved -= 1
                self._hooks.count_retrieved(self, 1)
        return self.error

    def retrieve_run_error(self, Py_ssize_t index, Py_ssize_t count):
        """Return the error of `count` records, or None if they were written. Mark it as seen."""
        if self.error is not None and self.unretrieved:
            if self._retrieved is None:
                self._retrieved = bytearray(self.count)
            end = index + count
            fresh = count - sum(self._retrieved[index:end])
            self._retrieved[index:end] = b"\x01" * count
            self.unretrieved -= fresh
            self._hooks.count_retrieved(self, fresh)
        return self.error


cdef inline void begin_batch(DeliveryBatch batch, object topic, object partition, object hooks):
    batch.topic = topic
    batch.partition = partition
    batch.base_offset = batch.append_time = batch.log_start = -1
    batch._hooks = hooks


def _start(forward):
    return forward.start


cdef DeliveryBatch locate(DeliveryBatch batch, Py_ssize_t *index):
    cdef Py_ssize_t at
    while batch is not None and index[0] < batch.moved:
        forwards = batch._forwards
        at = bisect_right(forwards, index[0], key=_start) - 1
        forward = forwards[at]
        index[0] += <Py_ssize_t>forward.first - <Py_ssize_t>forward.start
        batch = forward.batch
    if batch is None:
        raise AttributeError("The delivery was created without its batch.")
    return batch


# The last timestamp of a metadata, as a number and as an object. Records of one batch often share it.
cdef int64_t last_time = -1
cdef PyObject *last_time_object = NULL


cdef PyObject *time_object(int64_t timestamp) except NULL:
    """Return the timestamp as a new reference to a Python object."""
    global last_time, last_time_object
    cdef PyObject *made
    cdef PyObject *old
    if last_time_object == NULL or last_time != timestamp:
        made, old = _new_long(timestamp), last_time_object
        last_time, last_time_object = timestamp, made
        if old != NULL:
            _decref(old)
    return _new_ref(last_time_object)


cdef PyObject *metadata(
    DeliveryBatch batch, Py_ssize_t index, int64_t timestamp
) except NULL:
    return aiok_plain_tuple(
        metadata_spares,
        <PyTypeObject *>METADATA,
        <PyObject *>batch.topic,
        <PyObject *>batch.partition,
        _new_long(batch.base_offset + index if batch.base_offset >= 0 else -1),
        time_object(batch.append_time if batch.append_time >= 0 else timestamp),
        aiok_answer(batch.append_time, batch.log_start),
    )


cdef object owned(PyObject *made):
    """Return the object, and take over the caller's reference to it."""
    result = <object>made
    _decref(made)
    return result


cdef class BatchState(DeliveryBatch):
    """See `producer._pure.delivery.BatchState`."""

    def __init__(self, topic, partition, hooks, RecordBatchBuilder builder not None):
        self.attach(topic, partition, hooks, builder)

    cpdef attach(self, topic, partition, hooks, RecordBatchBuilder builder):
        """Set the topic, the partition, the hooks, and the builder. A new batch has none."""
        begin_batch(self, topic, partition, hooks)
        self.builder = builder
        self.stamp = -1
        self.stamps = []

    cpdef Py_ssize_t append_record(
        self, Py_ssize_t size, timestamp, key, value, headers
    ) except -2:
        """Append a record that takes at most `size` bytes. Return its index.

        Return -1 if it does not fit in the batch, or if fewer than `size` bytes are reserved.
        """
        cdef Py_ssize_t index
        if not has_room(self, size):
            return -1
        index = self.builder.append(timestamp, key, value, headers)
        if index >= 0:
            self.left -= size
            if timestamp != self.stamp:
                self.store_timestamp(index, timestamp)
        return index

    def partition_of(self, Py_ssize_t index):
        """Return the partition that was chosen for the record or the batch, or None if none was."""
        if self.explicit is None or index >= len(self.explicit):
            return self.partition
        chosen = self.explicit[index]
        return chosen if chosen >= 0 else None

    cdef int choose_for(self, Py_ssize_t index) except -1:
        if index != self.chosen_to:
            if self.chosen_runs is None:
                self.chosen_runs = []
            self.chosen_runs.append((self.chosen_from, self.chosen_to))
            self.chosen_from = index
        self.chosen_to = index + 1
        return 0

    def mark_chosen(self, Py_ssize_t index):
        """Store that the application chose the partition of the record with this index."""
        self.choose_for(index)

    def is_chosen(self, Py_ssize_t index):
        """Return whether the application chose the partition of the record with this index."""
        if self.chosen_from <= index < self.chosen_to:
            return True
        return any([start <= index < end for start, end in self.chosen_runs or ()])

    cpdef store_timestamp(self, Py_ssize_t index, int64_t timestamp):
        """Store the timestamp of the records from this index on."""
        self.stamp = timestamp
        self.stamps.append((index, timestamp))

    def timestamp_of(self, Py_ssize_t index):
        """Return the timestamp with which a record was sent."""
        cdef Py_ssize_t at = bisect_right(self.stamps, index, key=_index) - 1
        return self.stamps[at][1] if at >= 0 else -1

    cpdef Py_ssize_t compute_room(self):
        """Compute how many of the reserved bytes are left."""
        self.left = self.reserved - self.builder.size
        return self.left


def _index(stamp):
    return stamp[0]


cdef class QueueState:
    """See `producer._pure.delivery.QueueState`."""


cdef class TopicState:
    """See `producer._pure.delivery.TopicState`."""

    def __init__(self, name):
        self.name = name
        self.queues = []
