"""Waiters of a batch: the tasks and callbacks that its outcome wakes, in order.

With futures, the event loop would have one entry in its queue for each waiting task. All tasks that
wait for a batch continue at the same time, so this module needs only one entry for all of them. A
waiter has exactly those methods of a future that a task of asyncio uses.
"""

import time

from aiokclient.background import SLICE_S

cdef extern from "Python.h":
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1


cdef enum:
    STRIDE = 16

cdef object monotonic = time.monotonic
cdef double slice_s = SLICE_S
cdef object current_task = asyncio.current_task


cdef class Owner:
    """The base class of a batch: it holds the waiting tasks and the callbacks."""

    def __dealloc__(self):
        cdef PyObject *at = self.line.first
        cdef PyObject *after
        while at != NULL:
            after = (<Waiter>at).after
            (<Waiter>at).line = NULL
            (<Waiter>at).before = (<Waiter>at).after = NULL
            at = after

    cdef int join(self, Waiter waiter) except -1:
        waiter.owner, waiter.line = self, &self.line
        waiter.before, waiter.after = self.line.last, NULL
        if self.line.last == NULL:
            self.line.first = <PyObject *>waiter
        else:
            (<Waiter>self.line.last).after = <PyObject *>waiter
        self.line.last = <PyObject *>waiter
        return 0

    cdef int schedule_all(self) except -1:
        cdef Waiter waiter
        cdef bint scheduled = self.woken is not None
        cdef list woken = self.woken if scheduled else []
        while self.line.first != NULL:
            waiter = <Waiter>self.line.first
            waiter.stop_waiting()
            if waiter.stage == WAITING:
                waiter.stage = WOKEN
                woken.append(waiter)
        self._callbacks = None
        if woken and not scheduled:
            self.woken = woken
            self.schedule(woken)
        return 0

    cdef int schedule_changed(self, object loop) except -1:
        cdef Waiter waiter
        cdef PyObject *at = self.line.first
        cdef list woken = []
        while at != NULL:
            waiter = <Waiter>at
            at = waiter.after
            if waiter.kind == CHANGE and waiter.stage == WAITING:
                waiter.stop_waiting()
                waiter.stage = WOKEN
                woken.append(waiter)
        if woken:
            loop.call_soon(resume, loop, woken, None, 0.0)
        return 0

    cdef int put_off(self, list waiters) except -1:
        if self.woken is not None:
            self.woken[:0] = waiters
            return 0
        self.woken = waiters
        return self.schedule(waiters)

    cdef int schedule(self, list woken) except -1:
        return 0

    cdef int ran(self) except -1:
        return 0


cdef class Waiter:
    """A future for one task. It is done when it was woken or cancelled."""

    def __dealloc__(self):
        self.stop_waiting()

    cdef int begin(self, object loop, Owner owner) except -1:
        self.stop_waiting()
        self._loop = loop
        self._callback = self._context = self._message = None
        self.stage = WAITING
        self._asyncio_future_blocking = True
        return owner.join(self)

    cdef void stop_waiting(self) noexcept:
        cdef Line *line = self.line
        if line == NULL:
            return
        if self.before == NULL:
            line.first = self.after
        else:
            (<Waiter>self.before).after = self.after
        if self.after == NULL:
            line.last = self.before
        else:
            (<Waiter>self.after).before = self.before
        self.line = NULL
        self.before = self.after = NULL
        self.owner = None

    def get_loop(self):
        """Return the waiter's event loop."""
        return self._loop

    def done(self):
        """Return whether the waiter was woken or cancelled."""
        return self.stage > WAITING

    def cancelled(self):
        """Return whether the waiter was cancelled."""
        return self.stage == CANCELLED

    def result(self):
        """Return None. Raises CancelledError if the waiter was cancelled."""
        if self.stage == CANCELLED:
            raise CancelledError() if self._message is None else CancelledError(self._message)
        if self.stage <= WAITING:
            raise InvalidStateError("The waiter has no result yet.")

    def add_done_callback(self, callback, *, context=None):
        """Call `callback(waiter)` from the event loop when the waiter is done.

        A task of asyncio passes the function that resumes it.
        """
        if self.stage == OVER or self.stage == CANCELLED:
            self._loop.call_soon(callback, self, context=context)
        elif self._callback is not None:
            raise RuntimeError("A waiter can be awaited by one task only.")
        else:
            self._callback, self._context = callback, context

    def cancel(self, msg=None):
        """Wake the task with CancelledError. Return False if the waiter is done already."""
        if self.stage != WAITING:
            return False
        self.stage = CANCELLED
        self._message = msg
        callback, context = self._callback, self._context
        self._callback = self._context = None
        if callback is not None:
            self._loop.call_soon(callback, self, context=context)
        return True

    def __await__(self):
        if self.stage == WAITING or self.stage == WOKEN:
            yield self
        return self.result()


cdef Waiter callback_of(object delivery, object callback, object context):
    cdef Waiter waiter = Waiter.__new__(Waiter)
    waiter.kind = CALL
    waiter.stage = WAITING
    waiter.delivery, waiter._callback, waiter._context = delivery, callback, context
    return waiter


def resume(loop, list waiters, Owner owner, double until):
    """Run callbacks and resume tasks, in order. Yield to the event loop after each time slice.

    The slice ends at `until`, or if that is 0, it begins now.
    """
    cdef Waiter waiter
    cdef Py_ssize_t at = 0, count = len(waiters)
    if not until:
        until = monotonic() + slice_s
    if owner is not None:
        owner.woken = None
    try:
        while at < count:
            waiter = waiters[at]
            at += 1
            waiter.stage = OVER
            callback, context = waiter._callback, waiter._context
            waiter._callback = waiter._context = None
            if waiter.kind == CALL:
                try:
                    call(loop, callback, context, waiter.delivery)
                finally:
                    owner.calls -= 1
            elif callback is not None:
                call(loop, callback, context, waiter)
            if at % STRIDE == 0 and monotonic() >= until:
                break
    finally:
        if owner is None:
            if at < count:
                loop.call_soon(resume, loop, waiters[at:], None, 0.0)
        elif at < count:
            owner.put_off(waiters[at:])
        else:
            owner.ran()


cdef class WakeQueue:
    """See `producer._pure.delivery.WakeQueue`."""

    def __init__(self, loop):
        self.loop = loop
        self.can_collect = True

    cpdef collect(self):
        """Let tasks and callbacks wait for `resume_collected` from now on."""
        if self.collected is None:
            self.collected = []

    cpdef resume_collected(self):
        """Resume what was collected, unless a task is running. After a time slice, schedule the rest.

        The tasks and callbacks end as in a callback of the event loop: what they raise beyond
        Exception is raised by a later callback, because the caller is a transport.
        """
        cdef list collected = self.collected
        cdef double until
        self.collected = None
        if not collected:
            return
        until = 0.0 if current_task(self.loop) is not None else monotonic() + slice_s
        for waiters, owner in collected:
            if monotonic() >= until:
                self.schedule(waiters, owner)
                continue
            try:
                resume(self.loop, waiters, owner, until)
            except BaseException as error:
                until = 0.0
                self.loop.call_soon(raise_again, error)

    cdef int schedule(self, list waiters, Owner owner) except -1:
        if self.collected is not None:
            self.collected.append((waiters, owner))
            return 0
        self.loop.call_soon(resume, self.loop, waiters, owner, 0.0)
        return 0


def raise_again(error):
    """Raise an exception in a callback of the event loop."""
    raise error


cdef int call(object loop, object callback, object context, object argument) except -1:
    """Call a callback in its context, and report its exceptions, as an event loop does."""
    try:
        if context is None:
            callback(argument)
            return 0
        PyContext_Enter(context)
        try:
            callback(argument)
        finally:
            PyContext_Exit(context)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        loop.call_exception_handler(
            {"message": f"Exception in callback {callback!r}", "exception": error}
        )
    return 0
