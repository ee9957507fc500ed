"""What a task waits by, for native modules."""

from cpython.object cimport PyObject


cdef enum Stage:
    FRESH
    WAITING
    WOKEN
    OVER
    CANCELLED


cdef struct Line:
    # Those who wait, in their order. It does not own them: who waits no more leaves it.
    PyObject *first
    PyObject *last


cdef class Waiter:
    cdef object owner
    cdef Line *line
    cdef PyObject *before
    cdef PyObject *after
    cdef public object _asyncio_future_blocking
    cdef object _loop
    cdef object _callback
    cdef object _context
    cdef object _message
    cdef Stage stage
    # Have it wait in a line, which is its owner's; anew if it has waited before. It has to be
    # yielded next.
    cdef int begin(self, object loop, object owner, Line *line) except -1
    # Wait there no more.
    cdef void leave(self) noexcept


# Have all in the line go on, at the loop's next turn; it is empty then.
cdef int wake_all(object loop, Line *line) except -1

# The line's owner goes.
cdef void dissolve(Line *line) noexcept
