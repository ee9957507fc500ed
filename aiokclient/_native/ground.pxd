"""The declarations of records and their metadata, for the other native modules."""

from cpython.object cimport PyObject, PyTypeObject


cdef extern from "record_object.h":
    ctypedef struct AiokSpares:
        pass


cdef class SharedFields:
    cdef object topic
    cdef object partition
    cdef object timestamp_type
    cdef object leader_epoch


cdef class ConsumerRecord:
    cdef PyObject *_shared
    cdef PyObject *_key
    cdef PyObject *_value
    cdef PyObject *_headers
    cdef long long _offset
    cdef long long _timestamp


cdef class Tracked(ConsumerRecord):
    cdef Py_ssize_t _key_size
    cdef Py_ssize_t _value_size
    cdef bint _sized


cdef AiokSpares *record_spares
cdef SharedFields shared_fields(
    object topic, object partition, object timestamp_type, object leader_epoch
)


cdef extern from "plain_tuple.h":
    ctypedef struct AiokTuples:
        pass

    PyObject *aiok_plain_tuple(
        AiokTuples *spares,
        PyTypeObject *type,
        PyObject *topic,
        PyObject *partition,
        PyObject *offset,
        PyObject *timestamp,
        long long answer,
    ) except NULL
    long long aiok_answer(long long append_time, long long log_start)


cdef AiokTuples *metadata_spares
