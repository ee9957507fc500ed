"""Batches, queues and topics as a send sees them, for native modules."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from aiokclient.producer._waiter_cy cimport Owner, Waiter
from aiokclient.record._builder_cy cimport RecordBatchBuilder


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
