"""The native twins of the functions in `memory` that hide data from the garbage collector.

See untrack.h for which objects they hide.
"""


cdef extern from "untrack.h":
    PyTypeObject *aiok_struct_type
    PyTypeObject *aiok_uuid_type
    int aiok_untrack(PyObject *, void *) noexcept

cdef extern from "Python.h":
    int PyObject_IS_GC(PyObject *)
    void PyObject_GC_UnTrack(void *)

cdef object _struct = None
cdef object _uuid = None


def structs_are(kind):
    """See `memory.structs_are`."""
    global _struct, _uuid, aiok_struct_type, aiok_uuid_type
    from uuid import UUID

    _struct, _uuid = kind, UUID
    aiok_struct_type, aiok_uuid_type = <PyTypeObject *>kind, <PyTypeObject *>UUID


def untrack(item):
    """See `memory.untrack`."""
    if PyObject_IS_GC(<PyObject *>item):
        PyObject_GC_UnTrack(<PyObject *>item)


def untrack_whole(item):
    """See `memory.untrack_whole`."""
    aiok_untrack(<PyObject *>item, NULL)
