from cpython.object cimport PyObject


cdef extern from "_record_object.h":
    ctypedef struct AiokSpares:
        pass


cdef class Place:
    cdef object topic
    cdef object partition
    cdef object timestamp_type
    cdef object leader_epoch


cdef class ConsumerRecord:
    cdef PyObject *_place
    cdef PyObject *_key
    cdef PyObject *_value
    cdef PyObject *_headers
    cdef long long _offset
    cdef long long _timestamp


cdef AiokSpares *spares
cdef Place place_of(object topic, object partition, object timestamp_type, object leader_epoch)
