"""The native twin of `untracked`."""

from uuid import UUID

from cpython.object cimport PyObject, PyTypeObject

__all__ = ["structs_are", "untrack", "untrack_whole"]

cdef extern from "_untrack.h":
    PyTypeObject *aiok_struct_type
    PyTypeObject *aiok_uuid_type
    int aiok_untrack(PyObject *, void *) noexcept

cdef extern from "Python.h":
    int PyObject_IS_GC(PyObject *)
    void PyObject_GC_UnTrack(void *)

cdef object _uuid = UUID
cdef object _struct = None
aiok_uuid_type = <PyTypeObject *>_uuid


def structs_are(kind):
    """See `untracked.structs_are`."""
    global _struct, aiok_struct_type
    _struct = kind
    aiok_struct_type = <PyTypeObject *>kind


def untrack(item):
    """See `untracked.untrack`."""
    if PyObject_IS_GC(<PyObject *>item):
        PyObject_GC_UnTrack(<PyObject *>item)


def untrack_whole(item):
    """See `untracked.untrack_whole`."""
    aiok_untrack(<PyObject *>item, NULL)
