"""Deliveries, their batches, and what waits for them, for all parts of this module."""

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
    # A task that waits until there is something new to look at.
    CHANGE
    # A task that awaits the outcome of `delivery`.
    RECORD
    # A callback of `delivery`. Its line owns it.
    CALL


cdef struct Line:
    # Waiters and callbacks, in the order in which they were added.
    PyObject *first
    PyObject *last


cdef class Owner:
    cdef Line line
    # Callbacks that have not run yet, those that the loop is about to run included.
    cdef Py_ssize_t calls
    # The loop is about to run what was in the line, or has begun to.
    cdef bint running
    # What it is about to run; None once it has begun: what is added then comes after it.
    cdef list woken
    # The callbacks in the line, by the index of their record.
    cdef dict _callbacks
    # Add a waiter or a callback at the end of the line.
    cdef int join(self, Waiter waiter) except -1
    # Have the loop run what is in the line, in its order, at its next iteration.
    cdef int run(self, object loop) except -1
    # Have the tasks go on that wait for something new to look at; the others stay.
    cdef int run_changed(self, object loop) except -1
    # Called when the loop has run all of it.
    cdef int ran(self, object loop) except -1


cdef class Waiter:
    cdef Owner owner
    # The owner's. It stays valid when the garbage collector has cleared `owner`.
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
    # Have it wait in a line, anew if it has waited before. It has to be yielded next.
    cdef int begin(self, object loop, Owner owner) except -1
    # Wait there no more.
    cdef void leave(self) noexcept


# A callback, to be added to a line.
cdef Waiter callback_of(object delivery, object callback, object context)


cdef class DeliveryBatch(Owner):
    cdef public object topic
    cdef public object partition
    cdef public object error
    # What logs the failure once nobody can retrieve it any more.
    cdef public object report
    cdef public Py_ssize_t count
    cdef public Py_ssize_t moved
    cdef public Py_ssize_t unretrieved
    cdef public int64_t base_offset
    cdef public int64_t append_time
    cdef public bint done
    cdef public bint demanded
    cdef public bint parked
    cdef public object _hooks
    cdef public object _forwards
    cdef public object _retrieved
    # The number that the batch has in the last `Deliveries` that gave it one.
    cdef uint64_t asker
    cdef Py_ssize_t number
    # Refuse a caller in another loop or thread.
    cdef int check_caller(self, object loop) except -1
    # Have a task wait by this until there is something new to look at; `leave` ends that.
    cdef int await_by(self, Waiter waiter) except -1
    # Have a callback run after what has been added before.
    cdef int add_call(self, Waiter waiter, Py_ssize_t index) except -1
    # Let those go along whose records have moved.
    cdef int hand_over(self) except -1


cdef class BatchState(DeliveryBatch):
    cdef public RecordBatchBuilder builder
    cdef public Py_ssize_t left
    cdef public Py_ssize_t reserved
    cdef public int64_t stamp
    cdef public list stamps
    cdef public object explicit


cdef class QueueState:
    cdef public BatchState open
    cdef public bint unsendable
    # What the `send_many` of that number has for it, in bytes and records.
    cdef uint64_t asker
    cdef Py_ssize_t need
    cdef Py_ssize_t needed


cdef class TopicState:
    cdef public object name
    cdef public list queues
    cdef public bint known
    cdef public QueueState sticky
    cdef public Py_ssize_t sticky_left


# The batch that a record is in now; `index` becomes the one there.
cdef DeliveryBatch locate(DeliveryBatch batch, Py_ssize_t *index)

# The RecordMetadata of a written record that was sent with that timestamp, owned by the caller.
cdef PyObject *metadata(DeliveryBatch batch, Py_ssize_t index, int64_t timestamp) except NULL

# The same with the timestamp to show, as an object.
cdef PyObject *placed(DeliveryBatch batch, Py_ssize_t index, PyObject *time) except NULL

# The object, whose reference was ours.
cdef object owned(PyObject *made)


cdef extern from "delivery_object.h":
    ctypedef struct AiokDeliveries:
        pass

    object aiok_delivery_new(
        AiokDeliveries *all, PyObject *batch, Py_ssize_t index, int64_t timestamp
    )


cdef class Delivery:
    # As in delivery_object.h.
    cdef DeliveryBatch _batch
    cdef Py_ssize_t _index
    cdef int64_t _timestamp
    cdef void *_before
    cdef void *_after


cdef AiokDeliveries *deliveries


cdef struct Run:
    # So many records of one batch, up to `end` in the sequence; `number` is that of the batch.
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
    # The same for one record, which may stand right behind the one before.
    cdef int put_one(self, DeliveryBatch batch, Py_ssize_t index, int64_t timestamp) except -1
