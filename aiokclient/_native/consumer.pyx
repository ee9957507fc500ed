"""The native twin of `consumer.delivery.iterators`.

`__anext__` returns an awaitable that refers to the cursor. When it is awaited, it returns the next
exposed record immediately, without a coroutine. If no record is exposed, it drives the coroutine of
`_advance`. It reads the state of the cursor only when it is awaited, because several awaitables may
exist at a time and the state may change in between. A cursor reuses its awaitable if no other
object refers to it.

cursor.h has the code that runs for each record and the slots of both types. This module has the
rest.
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
    void _incref "Py_INCREF"(PyObject *)
    void _decref "Py_DECREF"(PyObject *)
    void _xdecref "Py_XDECREF"(PyObject *)
    void _clear "Py_CLEAR"(PyObject *)
    ctypedef PySendResult (*sendfunc)(PyObject *, PyObject *, PyObject **) except? PYGEN_ERROR
    ctypedef PyObject *(*iternextfunc)(PyObject *) except? NULL


cdef extern from "cursor.h":
    ctypedef struct AiokCursorState:
        PyObject *records
        PyObject *spare
        PyObject *stop
        int64_t until
        bint exact

    ctypedef struct AiokAwaitableState:
        PyObject *cursor
        bint driven

    int64_t aiok_coarse_time() nogil
    void aiok_stop_iteration(PyObject **stop, PyObject *value)
    object aiok_anext(PyObject *cursor)
    int aiok_cursor_drop(PyObject *cursor)
    PySendResult aiok_send(
        PyObject *awaitable, PyObject *value, PyObject **result
    ) except? PYGEN_ERROR
    int aiok_cursor_types(
        PyTypeObject *cursors,
        Py_ssize_t cursor_at,
        PyTypeObject *awaitables,
        Py_ssize_t awaitable_at,
        iternextfunc slow_next,
        sendfunc slow_send,
    ) except -1


cdef class RecordCursor:
    """The native twin of `iterators.RecordCursor`, with the same interface."""

    cdef object __weakref__
    cdef AiokCursorState state
    cdef object _time
    cdef double _until_s

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, loop=None):
        self._time = None if loop is None else loop.time
        self._until_s = 0.0
        self.state.until = 0
        self.state.exact = loop is not None

    def __dealloc__(self):
        aiok_cursor_drop(<PyObject *>self)

    def __aiter__(self):
        return self

    def __anext__(self):
        return aiok_anext(<PyObject *>self)

    def interrupt(self):
        """Make the iteration call `_advance` for its next record. Safe in any thread."""
        self.state.until = 0
        self._until_s = float("-inf")

    def expose(self, records, double seconds):
        """Deliver these records, for at most `seconds`, before `_advance` is called again."""
        found = iter(records)
        cdef PyObject *old = self.state.records
        _incref(<PyObject *>found)
        self.state.records = <PyObject *>found
        _xdecref(old)
        if self.state.exact:
            self._until_s = self._time() + seconds
        else:
            self.state.until = aiok_coarse_time() + <int64_t>(seconds * 1e9)

    async def _advance(self):
        """Return the next record. Subclasses override this method.

        It is called when no record is exposed, or when it is time to yield to the event loop.
        """
        raise StopAsyncIteration

    cdef PyObject *take(self) except? NULL:
        """Return a new reference to the next exposed record, or NULL.

        The exact clock decides whether it is time to yield.
        """
        if not self.state.exact or self.state.records == NULL:
            return NULL
        if <double>self._time() >= self._until_s:
            return NULL
        return PyIter_Next(<object>self.state.records)


cdef class Awaitable:
    """The awaitable that `anext(cursor)` returns."""

    cdef AiokAwaitableState state
    cdef object coroutine

    def __dealloc__(self):
        _xdecref(self.state.cursor)

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """Do what `coroutine.send` does."""
        cdef PyObject *result = NULL
        cdef PySendResult state = aiok_send(<PyObject *>self, <PyObject *>value, &result)
        answer = <object>result
        _decref(result)
        if state == PYGEN_RETURN:
            raise StopIteration(answer)
        return answer

    def throw(self, *error):
        """Do what `coroutine.throw` does."""
        coroutine = self.coroutine
        if coroutine is None:
            self.let_go()
            coroutine = nothing()
        try:
            return coroutine.throw(*error)
        except BaseException:
            self.let_go()
            raise

    def close(self):
        """Do what `coroutine.close` does."""
        coroutine = self.coroutine
        self.let_go()
        if coroutine is not None:
            coroutine.close()

    cdef int let_go(self) except -1:
        """Drop the coroutine and the cursor when the await has ended."""
        self.state.driven = False
        self.coroutine = None
        _clear(self.state.cursor)
        return 0


def nothing():
    yield


cdef PySendResult send(PyObject *awaitable, PyObject *value, PyObject **result) except? PYGEN_ERROR:
    """Return the next record, or run a step of the `_advance` coroutine if none is exposed."""
    cdef Awaitable self = <Awaitable>awaitable
    cdef RecordCursor cursor
    if self.state.cursor == NULL:
        raise RuntimeError("cannot reuse what anext() has returned")
    if not self.state.driven:
        cursor = <RecordCursor>self.state.cursor
        _clear(self.state.cursor)
        result[0] = cursor.take()
        if result[0] != NULL:
            return PYGEN_RETURN
        self.coroutine = cursor._advance()
        self.state.driven = True
        _incref(<PyObject *>cursor)
        self.state.cursor = <PyObject *>cursor
        if cursor.state.spare == awaitable:
            # Then a task that drops the waiting awaitable deletes it, which closes the coroutine.
            _clear(cursor.state.spare)
    return drive(self, <object>value, result)


cdef PySendResult drive(Awaitable self, object value, PyObject **result) except? PYGEN_ERROR:
    cdef PySendResult state = PYGEN_ERROR
    coroutine = self.coroutine
    try:
        state = PyIter_Send(coroutine, value, result)
    finally:
        if state != PYGEN_NEXT:
            self.let_go()
    return state


cdef PyObject *iternext(PyObject *awaitable) except? NULL:
    """Call `send` for the slot `tp_iternext`."""
    cdef PyObject *result = NULL
    cdef PyObject *stop = NULL
    if send(awaitable, <PyObject *>None, &result) == PYGEN_NEXT:
        return result
    aiok_stop_iteration(&stop, result)
    _xdecref(stop)
    return NULL


cdef RecordCursor _cursor = RecordCursor.__new__(RecordCursor)
cdef Awaitable _awaitable = Awaitable.__new__(Awaitable)
aiok_cursor_types(
    <PyTypeObject *>RecordCursor,
    <char *>&_cursor.state - <char *><PyObject *>_cursor,
    <PyTypeObject *>Awaitable,
    <char *>&_awaitable.state - <char *><PyObject *>_awaitable,
    iternext,
    send,
)
_cursor, _awaitable = None, None
