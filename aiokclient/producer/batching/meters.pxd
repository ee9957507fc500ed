cdef Py_ssize_t _NOTED


cdef class ProducerMeters:
    cdef public object own_metrics
    cdef public object _acknowledged_bytes
    cdef public object _batch_bytes
    cdef public object _gauges
    cdef public list _noted
    cdef public object _requests
    cdef public Py_ssize_t _sent
    cdef public object exhausted
    cdef public object splits
    cdef public object flushing
    cdef public object _records
    cdef public object _failed
    cdef public object _retried
    cdef public object _queued
    cdef public object _batches
    cdef public object _sizes
    cdef public object _plain
    cdef public object _attempted
    cdef public dict _topics
    cdef public dict _bytes
    cpdef count_written(
        self, topic, Py_ssize_t count, Py_ssize_t size, double queued_s, Py_ssize_t plain_size
    )
    cpdef on_request_sent(self)
    cpdef _count_batches(self)
