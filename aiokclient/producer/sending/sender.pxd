cimport cython

from aiokclient._native.ground cimport ConnectionState, TemplateState
from aiokclient.network cimport connection as wire
from aiokclient.producer.batching.accumulator cimport Accumulator
from aiokclient.producer.batching.batch cimport ProducerBatch
from aiokclient.producer.batching.meters cimport ProducerMeters
from aiokclient.producer.batching.queue cimport PartitionQueue
from aiokclient.protocol cimport produce_template

cdef object _IN_FLIGHT
cdef object _UNKNOWABLE
cdef int _IDS_FROM
cdef Py_ssize_t _SLACK


cdef class Sender


cdef class PendingProduce(wire.PendingRequest):
    cdef public list batches
    cdef public list attempts
    cdef public Sender sender
    cdef public bint over
    cpdef deliver_response(self, response)


cdef class ProduceRequests:
    cdef object _acks
    cdef object _timeout_ms
    cdef double _timeout_s
    cdef bint _expects_response
    cdef object _transactional_id
    cdef object _transactions
    cdef dict _templates
    @cython.locals(
        batch=ProducerBatch,
        queue=PartitionQueue,
        found=TemplateState,
        templates=list,
        encoded=list,
        attempts=list,
        by_name=bint,
        transactional=bint,
        made=PendingProduce,
    )
    cpdef PendingProduce make_request(
        self, Sender sender, list batches, int version, double now
    )


cdef class ProduceConnectionState:
    cdef public ConnectionState current
    cdef public int version
    cdef public bint silent
    cdef public object watch


cdef class Sender:
    cdef object __weakref__
    cdef public object node_id
    cdef public dict queues
    cdef public Py_ssize_t in_flight
    cdef public object _now
    cdef public Accumulator _accumulator
    cdef public object callbacks
    cdef public object _responses
    cdef public object _ids
    cdef public Py_ssize_t _limit
    cdef public Py_ssize_t _max_request
    cdef public ProduceRequests _requests
    cdef public ProducerMeters _meters
    cdef public object _resume_collected
    cdef public ProduceConnectionState _connection
    cdef public dict _ready
    cdef public dict _awaited
    cdef public dict _full
    cdef public bint _scheduled
    cdef public bint _handling_response
    cdef public bint _closed
    cpdef schedule_queue(self, PartitionQueue queue, bint at_once=*)
    cpdef send_full_batches(self, PartitionQueue queue)
    @cython.locals(connection=ConnectionState, until=double, now=double, batches=list)
    cpdef send_batches(self)
    @cython.locals(connection=ConnectionState, batches=list, queue=PartitionQueue)
    cpdef _send_full(self)
    @cython.locals(batches=list, queue=PartitionQueue, batch=ProducerBatch, total=Py_ssize_t, until=double)
    cpdef list _collect_batches(self, dict ready)
    @cython.locals(batch=ProducerBatch, waiting=ProducerBatch, is_ready=bint, by_name=bint)
    cpdef ProducerBatch _next_batch(self, PartitionQueue queue)
    @cython.locals(own=ProduceConnectionState, request=PendingProduce, now=double)
    cpdef _send_request(self, ConnectionState connection, list batches)
    @cython.locals(
        accumulator=Accumulator,
        batch=ProducerBatch,
        queue=PartitionQueue,
        at=Py_ssize_t,
        batches=list,
        connection=ProduceConnectionState,
        current=ConnectionState,
    )
    cpdef on_response(self, PendingProduce request, response, error)


cdef class TransactionalSender(Sender):
    cdef public object _transactions
    cdef public object _pause
    cdef public object _pausing
    cdef public bint _is_first
    cpdef send_batches(self)
    cpdef _send_full(self)
    cpdef _send_request(self, ConnectionState connection, list batches)
    cpdef on_response(self, PendingProduce request, response, error)
