from cpython.object cimport PyObject, PyTypeObject


cdef extern from "_plain_tuple.h":
    ctypedef struct AiokTuples:
        pass

    PyObject *aiok_plain_tuple(
        AiokTuples *spares,
        PyTypeObject *type,
        PyObject *topic,
        PyObject *partition,
        PyObject *offset,
        PyObject *timestamp,
    ) except NULL


cdef AiokTuples *spares
