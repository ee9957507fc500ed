cimport cython
from libc.stdint cimport int64_t

from aiokclient.producer.batching.batch cimport ProducerBatch
from aiokclient.producer.batching.sequences cimport PartitionSequences
from aiokclient.producer.delivery cimport delivery

cdef object _IN_FLIGHT
cdef object _FLOWING
cdef object _DRAINING
cdef Py_ssize_t _STEP


cdef class BatchLimit:
    cdef public Py_ssize_t size
    cdef public bint lowered
    cdef Py_ssize_t _largest
    cdef bint _probing
    cdef Py_ssize_t _required
    cdef Py_ssize_t _written


cdef class TopicStatus:
    cdef public object name
    cdef public BatchLimit batch_limit
    cdef public object info
    cdef public object topic_id
    cdef public object missing_since
    cdef public bint moving
    cdef public object incarnation
    cdef public Py_ssize_t recreations
    cdef object _known_id
    cdef object _cluster_id


cdef class PartitionQueue(delivery.QueueState):
    cdef object __weakref__
    cdef public TopicStatus topic
    cdef public object partition
    cdef public object topic_partition
    cdef public Py_ssize_t buffered
    cdef public Py_ssize_t overflowed
    cdef public list sent
    cdef public Py_ssize_t in_flight
    cdef public object closed
    cdef public object overflow
    cdef public PartitionSequences sequences
    cdef public object sender
    cdef public object leader_epoch
    cdef public Py_ssize_t likely
    cdef public bint blocked
    cdef public object absent_since
    cdef public Py_ssize_t listed_in
    cdef public bint vanished
    cdef public object incarnation
    cdef object _next_incarnation
    cdef dict _former
    cpdef set_open_batch(self, ProducerBatch batch)
    @cython.locals(batch=ProducerBatch)
    cpdef close_open_batch(self)
    cpdef _close_batch(self, ProducerBatch batch, line)
    cpdef notify_sender(self, bint at_once=*)
    cpdef send_full_batches(self)
    @cython.locals(in_flight=Py_ssize_t, sequences=PartitionSequences, batch=ProducerBatch)
    cpdef next_batch(self, bint idle, Py_ssize_t limit)
    @cython.locals(at=Py_ssize_t, sent=list)
    cpdef bint mark_in_flight(self, ProducerBatch batch) except -1
    @cython.locals(sent=list, sequences=PartitionSequences, at=int64_t)
    cpdef remove_batch(self, ProducerBatch batch, bint written=*, int64_t base_offset=*)


cdef class Topic(delivery.TopicState):
    cdef public TopicStatus status
    cdef public PartitionQueue undesignated
    cdef public dict absent
    cdef public object leaving
    cdef public Py_ssize_t sticky_more
    cdef public set unseen
    cpdef stick_to_queue(self, PartitionQueue queue, Py_ssize_t size, Py_ssize_t first)
    cpdef bint stick_for_longer(self, Py_ssize_t size, Py_ssize_t first) except -1
