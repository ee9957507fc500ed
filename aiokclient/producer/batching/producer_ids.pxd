cimport cython

from aiokclient.producer.batching.batch cimport ProducerBatch
from aiokclient.producer.batching.queue cimport PartitionQueue
from aiokclient.producer.batching.sequences cimport PartitionSequences


cdef class ProducerIds:
    cdef public object current
    cdef public Py_ssize_t generation
    cdef public object last_error
    cdef public bint _idempotent
    cdef public object _config
    cdef public object _engine
    cdef public bint _asking
    cdef public dict _looked_at
    cdef public dict _looking
    @cython.locals(sequences=PartitionSequences, old=bint)
    cpdef bint identify_batch(self, PartitionQueue queue, ProducerBatch batch, bint by_name) except -1
