"""The native twin of `cursor`.

`__anext__` returns an awaitable that holds the iteration. Awaited, it answers at once while there
is a record at hand, without a coroutine, and drives the coroutine of `_advance` otherwise. What it
looks at, it looks at when awaited: several may be outstanding, and much may have happened since it
was made. A cursor uses its awaitable again if nobody else has it any more.
"""

from types import GenericAlias

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t

__all__ = ["RecordCursor"]


cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT

    PySendResult PyIter_Send(object iterator, object value, PyObject **result) except? PYGEN_ERROR
    PyObject *PyIter_Next(object iterator) except? NULL
    Py_ssize_t _refcount "Py_REFCNT"(PyObject *)
    void _decref "Py_DECREF"(PyObject *)
    void _xdecref "Py_XDECREF"(PyObject *)
    ctypedef PySendResult (*sendfunc)(PyObject *, PyObject *, PyObject **) except? PYGEN_ERROR
    ctypedef PyObject *(*iternextfunc)(PyObject *) except? NULL


cdef extern from "_cursor.h":
    int64_t aiok_coarse_time() nogil
    void aiok_stop_iteration(PyObject **stop, PyObject *value)
    int aiok_cursor_type(PyTypeObject *type) except -1
    int aiok_awaitable_type(PyTypeObject *type, sendfunc send, iternextfunc next) except -1


cdef class RecordCursor:
    """See `cursor.RecordCursor`, whose interface this is."""

    cdef object __weakref__
    cdef object _records
    cdef object _time
    cdef int64_t _until
    cdef double _until_s
    cdef Awaitable _spare
    cdef PyObject *_stop

    __class_getitem__ = classmethod(GenericAlias)

    def __cinit__(self):
        self._records = iter(())
        self._stop = NULL

    def __init__(self, time=None):
        self._time = time
        self._until = 0
        self._until_s = 0.0

    def __dealloc__(self):
        _xdecref(self._stop)

    def __aiter__(self):
        return self

    def __anext__(self):
        cdef Awaitable awaitable = self._spare
        # The cursor, and the variable here.
        if awaitable is None or _refcount(<PyObject *>awaitable) != 2:
            self._spare = awaitable = Awaitable.__new__(Awaitable)
        awaitable.cursor = self
        return awaitable

    def interrupt(self):
        """Has the next record come from `_advance`. From any thread."""
        self._until = 0
        self._until_s = float("-inf")

    def expose(self, records, double seconds):
        """Hand out these records, for so many seconds, before `_advance` is called again."""
        self._records = records
        if self._time is None:
            self._until = aiok_coarse_time() + <int64_t>(seconds * 1e9)
        else:
            self._until_s = self._time() + seconds

    async def _advance(self):
        """The next record, if none is at hand or it is time to give way. For subclasses."""
        raise StopAsyncIteration

    cdef PyObject *take(self) except? NULL:
        """The next record at hand, owned by the caller, or NULL."""
        if self._time is None:
            if aiok_coarse_time() >= self._until:
                return NULL
        elif <double>self._time() >= self._until_s:
            return NULL
        return PyIter_Next(self._records)


cdef class Awaitable:
    """What `anext(cursor)` returns."""

    cdef RecordCursor cursor
    cdef object coroutine

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """As of a coroutine."""
        cdef PyObject *result = NULL
        cdef PySendResult state = send(<PyObject *>self, <PyObject *>value, &result)
        answer = <object>result
        _decref(result)
        if state == PYGEN_RETURN:
            raise StopIteration(answer)
        return answer

    def throw(self, *error):
        """As of a coroutine."""
        coroutine = self.coroutine
        if coroutine is None:
            self.cursor = None
            coroutine = nothing()
        try:
            return coroutine.throw(*error)
        except BaseException:
            self.cursor = self.coroutine = None
            raise

    def close(self):
        """As of a coroutine."""
        coroutine = self.coroutine
        self.cursor = self.coroutine = None
        if coroutine is not None:
            coroutine.close()


def nothing():
    yield


cdef PySendResult send(PyObject *awaitable, PyObject *value, PyObject **result) except? PYGEN_ERROR:
    """`am_send`: an answer, an exception, or what the coroutine waits for."""
    cdef Awaitable self = <Awaitable>awaitable
    cdef RecordCursor cursor = self.cursor
    if cursor is None:
        raise RuntimeError("cannot reuse what anext() has returned")
    if self.coroutine is None:
        self.cursor = None
        result[0] = cursor.take()
        if result[0] != NULL:
            return PYGEN_RETURN
        self.coroutine = cursor._advance()
        self.cursor = cursor
        if cursor._spare is self:  # It may be dropped while it waits, which closes the coroutine.
            cursor._spare = None
    return drive(self, <object>value, result)


cdef PySendResult drive(Awaitable self, object value, PyObject **result) except? PYGEN_ERROR:
    cdef PySendResult state = PYGEN_ERROR
    coroutine = self.coroutine
    try:
        state = PyIter_Send(coroutine, value, result)
    finally:
        if state != PYGEN_NEXT:
            self.cursor = self.coroutine = None
    return state


cdef PyObject *iternext(PyObject *awaitable) except? NULL:
    """`tp_iternext`, which stands for `am_send` in Python 3.12 and later."""
    cdef RecordCursor cursor = (<Awaitable>awaitable).cursor
    cdef PyObject *result = NULL
    if send(awaitable, <PyObject *>None, &result) == PYGEN_NEXT:
        return result
    aiok_stop_iteration(&cursor._stop, result)
    _decref(result)
    return NULL


aiok_cursor_type(<PyTypeObject *>RecordCursor)
aiok_awaitable_type(<PyTypeObject *>Awaitable, send, iternext)
