"""The declarations of deliveries, their batches, and their waiters.

A delivery refers to its batch, and the batch has the line of those who wait for it. What `send` needs
for each record is a field of a batch, its queue, or its topic, which C code reads without a call; the
Python classes that derive from these see the same fields as attributes.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from aiokclient._native.record cimport RecordBatchBuilder


cdef enum Stage:
    FRESH
    WAITING
    WOKEN
    OVER
    CANCELLED


cdef enum Kind:
    # A task that waits for any change.
    CHANGE
    # A task that awaits the outcome of `delivery`.
    RECORD
    # A callback of `delivery`. The owner of the line keeps this waiter alive.
    CALL


cdef struct Line:
    # Waiters and callbacks, in the order in which they were added.
    PyObject *first
    PyObject *last


cdef class Owner:
    cdef Line line
    # Number of callbacks that have not run yet, including those that are scheduled.
    cdef Py_ssize_t calls
    # The scheduled waiters and callbacks. None after they have begun to run: any that are added
    # then are scheduled after them.
    cdef list woken
    # The callbacks in the line, by the index of their record.
    cdef dict _callbacks
    # Append a waiter or a callback to the line.
    cdef int join(self, Waiter waiter) except -1
    # Schedule the waiters and callbacks, in order, for the loop's next iteration.
    cdef int schedule_all(self) except -1
    # Wake the tasks that wait for any change. The others stay in the line.
    cdef int schedule_changed(self, object loop) except -1
    # Schedule the waiters and callbacks that remain after a time slice, before any newer ones.
    cdef int put_off(self, list waiters) except -1
    # Schedule waiters and callbacks in the producer's `WakeQueue`.
    cdef int schedule(self, list woken) except -1
    # Called when waiters and callbacks that were scheduled together have run.
    cdef int ran(self) except -1


cdef class WakeQueue:
    cdef readonly bint can_collect
    cdef object loop
    # Pairs of a list of waiters and callbacks, and their owner. None if they are scheduled.
    cdef list collected
    cdef int schedule(self, list waiters, Owner owner) except -1
    cpdef collect(self)
    cpdef resume_collected(self)


cdef class Waiter:
    cdef Owner owner
    # The line of the owner. It stays valid after the garbage collector has cleared `owner`.
    cdef Line *line
    cdef PyObject *before
    cdef PyObject *after
    cdef public object _asyncio_future_blocking
    cdef object _loop
    cdef object _callback
    cdef object _context
    cdef object _message
    cdef object delivery
    cdef Stage stage
    cdef Kind kind
    # Start to wait, also after an earlier wait. The caller must yield the waiter next.
    cdef int begin(self, object loop, Owner owner) except -1
    # Stop waiting.
    cdef void stop_waiting(self) noexcept


# Return a waiter that stands for a callback.
cdef Waiter callback_of(object delivery, object callback, object context)


cdef class DeliveryBatch(Owner):
    cdef public object topic
    cdef public object partition
    cdef public object error
    # The object that logs the failure when it can no longer be retrieved.
    cdef public object report
    cdef public Py_ssize_t count
    cdef public Py_ssize_t moved
    cdef public Py_ssize_t unretrieved
    cdef public int64_t base_offset
    cdef public int64_t append_time
    cdef public int64_t log_start
    cdef public bint done
    cdef public bint skips_linger
    cdef public bint in_overflow
    # Whether the batch is one of those in `_hooks.calling`.
    cdef bint is_calling
    cdef public object _hooks
    cdef public object _forwards
    cdef public object _retrieved
    # The serial number of the last `DeliveryRuns` or `OutcomeRuns` with this batch, and the
    # batch's index in it.
    cdef uint64_t asker
    cdef Py_ssize_t number
    # Raise WrongLoopError or WrongThreadError for a caller in another loop or thread.
    cdef object require_loop(self)
    # Make a task wait for any change with this waiter, until `stop_waiting`.
    cdef int await_by(self, Waiter waiter) except -1
    # Add a callback, which runs after all that were added before it.
    cdef int add_call(self, Waiter waiter, Py_ssize_t index) except -1
    # Move waiters and callbacks to the batches to which their records have moved.
    cdef int hand_over_waiters(self) except -1
    cdef int _mark_done(self) except -1
    # Add the batch to those that are done but have callbacks that have not run.
    cdef int note_calling(self) except -1
    cpdef succeed(self, int64_t base_offset, int64_t append_time=*, int64_t log_start=*)
    cpdef skip_linger(self)


cdef class BatchState(DeliveryBatch):
    cdef public RecordBatchBuilder builder
    cdef public Py_ssize_t left
    cdef public Py_ssize_t reserved
    cdef public int64_t stamp
    cdef public list stamps
    cdef public object explicit
    cdef public Py_ssize_t chosen_from
    cdef public Py_ssize_t chosen_to
    cdef public list chosen_runs
    # Store that the application chose the partition of the record.
    cdef int choose_for(self, Py_ssize_t index) except -1
    cpdef attach(self, topic, partition, hooks, RecordBatchBuilder builder)
    cpdef Py_ssize_t append_record(
        self, Py_ssize_t size, timestamp, key, value, headers
    ) except -2
    cpdef store_timestamp(self, Py_ssize_t index, int64_t timestamp)
    cpdef Py_ssize_t compute_room(self)


cdef class QueueState:
    cdef public BatchState open
    cdef public bint unsendable
    # The serial number of the last `send_many` with this queue, and what it adds to the queue:
    # `need` in bytes, `needed` in records.
    cdef uint64_t asker
    cdef Py_ssize_t need
    cdef Py_ssize_t needed


cdef class TopicState:
    cdef public object name
    cdef public list queues
    cdef public bint known
    cdef public QueueState sticky
    cdef public Py_ssize_t sticky_left


# Return the batch in which a record is now, and set `index` to its index there.
cdef DeliveryBatch locate(DeliveryBatch batch, Py_ssize_t *index)

# Return the RecordMetadata of a written record that was sent with `timestamp`, as a new reference.
cdef PyObject *metadata(DeliveryBatch batch, Py_ssize_t index, int64_t timestamp) except NULL

# Return the object, and take over the caller's reference to it.
cdef object owned(PyObject *made)


cdef extern from "delivery_object.h":
    ctypedef struct AiokDeliveries:
        pass

    object aiok_delivery_new(
        AiokDeliveries *all, PyObject *batch, Py_ssize_t index, int64_t timestamp
    )


cdef class Delivery:
    # These fields must have the same layout as AiokDelivery in delivery_object.h.
    cdef DeliveryBatch _batch
    cdef Py_ssize_t _index
    cdef int64_t _timestamp
    cdef void *_before
    cdef void *_after


cdef AiokDeliveries *deliveries


cdef struct Run:
    # Consecutive records of one batch: up to index `end` in the sequence, from index `first` in
    # the batch. `number` is the index of the batch in `_batches`.
    Py_ssize_t end
    Py_ssize_t first
    Py_ssize_t number
    int64_t timestamp


cdef class DeliveryRuns:
    cdef Run *_runs
    cdef Py_ssize_t _count
    cdef Py_ssize_t _room
    cdef uint64_t _serial
    cdef list _batches
    cdef int put(
        self, DeliveryBatch batch, Py_ssize_t first, Py_ssize_t size, int64_t timestamp
    ) except -1
    # Append one record, which may continue the last run.
    cdef int put_one(self, DeliveryBatch batch, Py_ssize_t index, int64_t timestamp) except -1


cdef struct OutcomeRun:
    # Outcomes of consecutive records: up to index `end` in the sequence. `number` is the index of
    # topic and partition, or of the error, in `_sources`. An error has no other fields.
    Py_ssize_t end
    Py_ssize_t number
    int64_t offset
    int64_t timestamp
    long long answer


cdef class OutcomeRuns:
    cdef OutcomeRun *_runs
    cdef Py_ssize_t _count
    cdef Py_ssize_t _room
    cdef uint64_t _serial
    cdef list _sources
    cdef int put_written(
        self, DeliveryBatch batch, Py_ssize_t index, Py_ssize_t count, int64_t timestamp
    ) except -1
    cdef int put_failed(self, object error, Py_ssize_t count) except -1
    # Append a run of `count` records, whose other fields the caller sets.
    cdef OutcomeRun *new_run(self, Py_ssize_t count) except NULL
