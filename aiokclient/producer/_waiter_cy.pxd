"""Waiters of a batch, for native modules."""

from cpython.object cimport PyObject


cdef enum Stage:
    FRESH
    WAITING
    WOKEN
    OVER
    CANCELLED


cdef enum Kind:
    # A task that waits until there is something new to look at.
    CHANGE
    # A task that awaits the outcome of `delivery`.
    RECORD
    # A callback of `delivery`. Its line owns it.
    CALL


cdef struct Line:
    # Waiters and callbacks, in the order in which they were added.
    PyObject *first
    PyObject *last


cdef class Owner:
    cdef Line line
    # Callbacks that have not run yet, those that the loop is about to run included.
    cdef Py_ssize_t calls
    # The loop is about to run what was in the line, or has begun to.
    cdef bint running
    # What it is about to run; None once it has begun: what is added then comes after it.
    cdef list woken
    # The callbacks in the line, by the index of their record.
    cdef dict _callbacks
    # Add a waiter or a callback at the end of the line.
    cdef int join(self, Waiter waiter) except -1
    # Have the loop run what is in the line, in its order, at its next iteration.
    cdef int run(self, object loop) except -1
    # Have the tasks go on that wait for something new to look at; the others stay.
    cdef int run_changed(self, object loop) except -1
    # Called when the loop has run all of it.
    cdef int ran(self, object loop) except -1


cdef class Waiter:
    cdef Owner owner
    # The owner's. It stays valid when the garbage collector has cleared `owner`.
    cdef Line *line
    cdef PyObject *before
    cdef PyObject *after
    cdef public object _asyncio_future_blocking
    cdef object _loop
    cdef object _callback
    cdef object _context
    cdef object _message
    cdef object delivery
    cdef Stage stage
    cdef Kind kind
    # Have it wait in a line, anew if it has waited before. It has to be yielded next.
    cdef int begin(self, object loop, Owner owner) except -1
    # Wait there no more.
    cdef void leave(self) noexcept


# A callback, to be added to a line.
cdef Waiter callback_of(object delivery, object callback, object context)
