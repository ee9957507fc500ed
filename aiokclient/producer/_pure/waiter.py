"""Waiters of a batch: the tasks and callbacks that its outcome wakes, in order.

Each batch has one list of the tasks that await its records and of the callbacks, in the order in
which they were added. When the batch has its outcome, the event loop runs all of them, in order, in
its next iteration. A callback that is added later is scheduled in the same way. An await or a flush
ends after all callbacks that were added before it, even if it begins when the batch has its outcome
and these callbacks have not run yet. If records move to another batch, their waiters and callbacks
move with them.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from asyncio import _get_running_loop
from collections.abc import Callable
from typing import Any, Protocol

from aiokclient.errors import WrongLoopError, WrongThreadError

__all__ = ["DeliveryCallback", "Owner", "OwnerHooks", "Waiter", "refuse_caller"]

WRONG_LOOP = (
    "This delivery belongs to a producer that was started in another event loop. Await it there; "
    "from another thread send with producer.send_threadsafe()."
)
WRONG_THREAD = (
    "This delivery belongs to a producer that runs in another thread. Use it in the thread of the "
    "producer's event loop; from another thread send with producer.send_threadsafe()."
)


class OwnerHooks(Protocol):
    """The attributes of a producer that an `Owner` uses."""

    loop: asyncio.AbstractEventLoop
    thread: int
    """The thread of the loop, as returned by `threading.get_ident`."""
    calling: dict[Any, None]
    """The batches that are done but have callbacks that have not run yet."""


class Awaited(Protocol):
    """The method of a `Delivery` that the waiters of a batch call."""

    def located(self) -> tuple[Any, int]:
        """Return the batch in which the record is now, and its index there."""
        ...


def refuse_caller(hooks: OwnerHooks, no_loop: bool = False) -> None:
    """Raise WrongThreadError or WrongLoopError unless the caller is in the producer's event loop.

    `no_loop` says that no event loop runs in the calling thread. Such a call is permitted, too, if
    it comes from the producer's thread.
    """
    if not no_loop:
        raise WrongLoopError(WRONG_LOOP)
    if threading.get_ident() != hooks.thread:
        raise WrongThreadError(WRONG_THREAD)


class Waiter:
    """A task that waits for a batch.

    `delivery` is the delivery that the task awaits, or None if it waits for any change.
    """

    __slots__ = ("delivery", "future", "owner")

    def __init__(
        self, future: asyncio.Future[None], owner: Owner, delivery: Awaited | None
    ) -> None:
        self.future = future
        self.owner = owner
        self.delivery = delivery

    def leave(self) -> None:
        """Stop waiting."""
        self.owner._line.pop(self, None)


class DeliveryCallback:
    """A callback of a delivery."""

    __slots__ = ("callback", "context", "delivery")

    def __init__(
        self,
        delivery: Awaited,
        callback: Callable[[Any], Any],
        context: contextvars.Context,
    ) -> None:
        self.delivery = delivery
        self.callback = callback
        self.context = context


class Owner:
    """The base class of a batch: it holds the waiting tasks and the callbacks."""

    __slots__ = ("_callbacks", "_line", "calls", "done")

    _hooks: OwnerHooks

    def __init__(self) -> None:
        self.done = False
        self.calls = 0
        """Number of callbacks that have not run yet."""
        self._line: dict[Waiter | DeliveryCallback, None] = {}
        """Waiters and callbacks, in the order in which they were added."""
        self._callbacks: dict[int, list[DeliveryCallback]] = {}
        """The callbacks that wait for the outcome, by the index of their record."""

    def demand(self) -> None:
        """See `DeliveryBatch.demand`."""
        raise NotImplementedError

    def run(self) -> None:
        """Schedule the waiters and callbacks, in order, for the loop's next iteration."""
        if self.calls:
            self._hooks.calling[self] = None
        line, self._line, self._callbacks = self._line, {}, {}
        for entry in line:
            if isinstance(entry, DeliveryCallback):
                self._schedule(entry)
            elif not entry.future.done():
                entry.future.set_result(None)

    def wake(self) -> None:
        """Wake the tasks that wait for any change."""
        for entry in list(self._line):
            if isinstance(entry, Waiter) and entry.delivery is None:
                del self._line[entry]
                if not entry.future.done():
                    entry.future.set_result(None)

    def hand_over(self) -> None:
        """Move waiters and callbacks to the batches to which their records have moved."""
        for entry in list(self._line):
            if entry.delivery is None:
                continue
            target, index = entry.delivery.located()
            if target is self:
                continue
            del self._line[entry]
            if isinstance(entry, DeliveryCallback):
                self.calls -= 1
                target._add(entry, index)
            elif not target.done:
                entry.owner = target
                target._line[entry] = None
                target.demand()
            elif not entry.future.done():
                entry.future.set_result(None)

    def _schedule(self, call: DeliveryCallback) -> None:
        self._hooks.loop.call_soon(self._run, call, context=call.context)

    def _run(self, call: DeliveryCallback) -> None:
        try:
            call.callback(call.delivery)
        finally:
            self.calls -= 1
            if not self.calls:
                self._hooks.calling.pop(self, None)

    def wait(self, delivery: Awaited | None = None) -> Waiter:
        """Return a waiter for one task. Its future is done after a change.

        A task that stops waiting before that must call `leave`.
        """
        self.check_caller()
        waiter = Waiter(self._hooks.loop.create_future(), self, delivery)
        self._line[waiter] = None
        return waiter

    def check_caller(self) -> None:
        """Raise WrongLoopError if the calling task belongs to another event loop."""
        if _get_running_loop() is not self._hooks.loop:
            refuse_caller(self._hooks)

    @property
    def _waiters(self) -> list[Waiter]:
        """Return the waiters, in the order in which they were added."""
        return [entry for entry in self._line if isinstance(entry, Waiter)]

    @property
    def calling(self) -> bool:
        """Whether the batch has callbacks that have not run yet."""
        return self.calls > 0

    async def changed(self) -> None:
        """Wait for a change. If the wait is cancelled, its waiter is removed."""
        if self.done:
            await asyncio.sleep(0)  # Callbacks that were added earlier must run first.
            return
        waiter = self.wait()
        try:
            await waiter.future
        finally:
            waiter.leave()

    def call_when_done(
        self,
        delivery: Awaited,
        index: int,
        callback: Callable[[Any], Any],
        context: contextvars.Context | None = None,
    ) -> None:
        """Add a callback for the record with this index; see `Delivery.add_done_callback`."""
        loop = _get_running_loop()
        if loop is not self._hooks.loop:
            refuse_caller(self._hooks, loop is None)
        if context is None:
            context = contextvars.copy_context()
        self._add(DeliveryCallback(delivery, callback, context), index)

    def _add(self, call: DeliveryCallback, index: int) -> None:
        self.calls += 1
        if self.done:
            self._hooks.calling[self] = None
            self._schedule(call)
            return
        self._callbacks.setdefault(index, []).append(call)
        self._line[call] = None

    def drop_callback(self, index: int, callback: Callable[[Any], Any]) -> int:
        """See `Delivery.remove_done_callback`."""
        known = self._callbacks.get(index, [])
        found = [call for call in known if call.callback == callback]
        for call in found:
            known.remove(call)
            self._line.pop(call, None)
            self.calls -= 1
        return len(found)
