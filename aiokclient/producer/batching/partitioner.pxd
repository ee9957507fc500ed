cimport cython

from aiokclient.producer.batching.queue cimport PartitionQueue, Topic
from aiokclient.record cimport batch as record_batch

cdef Py_ssize_t _SAMPLE


cdef class Partitioner:
    cdef object _producer
    cdef public bint is_chosen_by_function
    cdef public bint ignore_keys
    cdef bint _adaptive
    cdef double _availability_s
    cdef Py_ssize_t _sticky_bytes
    cdef object _rng
    cdef object _accumulator
    cdef dict _available
    @cython.locals(
        former=PartitionQueue,
        queue=PartitionQueue,
        builder=record_batch.RecordBatchBuilder,
        room=Py_ssize_t,
        fitting=Py_ssize_t,
    )
    cpdef choose_sticky_queue(self, Topic topic, Py_ssize_t size=*)
    cpdef _find_candidates(self, list queues)
