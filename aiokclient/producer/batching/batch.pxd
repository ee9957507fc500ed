from aiokclient.producer.delivery cimport delivery


cdef class ProducerBatch(delivery.BatchState):
    cdef public object queue
    cdef public object stage
    cdef public double created
    cdef public double first_sent
    cdef public bint due
    cdef public bint compressing
    cdef public bint refused
    cdef public bint by_name
    cdef public Py_ssize_t size
    cdef public Py_ssize_t plain_size
    cdef public Py_ssize_t attempt
    cdef public Py_ssize_t failures
    cdef public Py_ssize_t requests
    cdef public tuple identity
    cdef public object in_log
    cdef public list whole
    cdef public object last_error
    cdef public object last_answer
    cpdef free_memory(self)
    cpdef end_linger(self)
    cpdef Py_ssize_t close_builder(self) except -1
    cpdef set_identity(self, tuple identity)
    cpdef begin_attempt(self)
    cpdef encode_for_request(self, double now, bint by_name, bint transactional)
    cpdef bint end_request(self) except -1
    cpdef acknowledge(self, base_offset, append_time, log_start=*)
