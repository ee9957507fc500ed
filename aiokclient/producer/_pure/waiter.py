"""Waiters of a batch: the tasks and callbacks that its outcome wakes, in order.

Theory of operation. Tasks that await a record, and callbacks, form one line in each batch, in the
order in which they were added. When the batch has its outcome the loop runs the line at its next
iteration. A callback that is added later is scheduled in the same way, and an await or a flush that
begins meanwhile ends after the callbacks that were added before it. Entries whose records move to
another batch go along.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from asyncio import _get_running_loop
from collections.abc import Callable
from typing import Any, Protocol

from aiokclient.errors import WrongLoopError, WrongThreadError

__all__ = ["Call", "Owner", "OwnerHooks", "Waiter", "refuse_caller"]

WRONG_LOOP = (
    "This delivery belongs to a producer that was started in another event loop. Await it there; "
    "from another thread send with producer.send_threadsafe()."
)
WRONG_THREAD = (
    "This delivery belongs to a producer that runs in another thread. Use it in the thread of the "
    "producer's event loop; from another thread send with producer.send_threadsafe()."
)


class OwnerHooks(Protocol):
    """The producer of an owner, as the owner sees it."""

    loop: asyncio.AbstractEventLoop
    thread: int
    """The thread of the loop, as `threading.get_ident` names it."""
    calling: dict[Any, None]
    """The batches that are done and have callbacks that have not run yet."""


class Awaited(Protocol):
    """A delivery."""

    def located(self) -> tuple[Any, int]:
        """Return the batch in which the record is now, and its index there."""
        ...


def refuse_caller(hooks: OwnerHooks, no_loop: bool = False) -> None:
    """Raise unless this is the thread of the loop, and no other loop runs in it.

    `no_loop`: no loop runs here, which does no harm in the right thread.
    """
    if not no_loop:
        raise WrongLoopError(WRONG_LOOP)
    if threading.get_ident() != hooks.thread:
        raise WrongThreadError(WRONG_THREAD)


class Waiter:
    """A task that waits for a batch.

    `delivery` is what it awaits the outcome of; None if it waits for anything new to look at.
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


class Call:
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
    """The base class of a batch, for which tasks and callbacks wait."""

    __slots__ = ("_callbacks", "_line", "calls", "done")

    _hooks: OwnerHooks

    def __init__(self) -> None:
        self.done = False
        self.calls = 0
        """Callbacks that have not run yet."""
        self._line: dict[Waiter | Call, None] = {}
        """Waiters and callbacks, in the order in which they were added."""
        self._callbacks: dict[int, list[Call]] = {}
        """The callbacks in the line, by the index of their record."""

    def demand(self) -> None:
        """See `DeliveryBatch.demand`."""
        raise NotImplementedError

    def run(self) -> None:
        """Have the loop run the waiters and callbacks in order, in its next iteration."""
        if self.calls:
            self._hooks.calling[self] = None
        line, self._line, self._callbacks = self._line, {}, {}
        for entry in line:
            if isinstance(entry, Call):
                self._schedule(entry)
            elif not entry.future.done():
                entry.future.set_result(None)

    def wake(self) -> None:
        """Wake the tasks that wait for a change."""
        for entry in list(self._line):
            if isinstance(entry, Waiter) and entry.delivery is None:
                del self._line[entry]
                if not entry.future.done():
                    entry.future.set_result(None)

    def hand_over(self) -> None:
        """Move the waiters whose records have moved."""
        for entry in list(self._line):
            if entry.delivery is None:
                continue
            target, index = entry.delivery.located()
            if target is self:
                continue
            del self._line[entry]
            if isinstance(entry, Call):
                self.calls -= 1
                target._add(entry, index)
            elif not target.done:
                entry.owner = target
                target._line[entry] = None
                target.demand()
            elif not entry.future.done():
                entry.future.set_result(None)

    def _schedule(self, call: Call) -> None:
        self._hooks.loop.call_soon(self._run, call, context=call.context)

    def _run(self, call: Call) -> None:
        try:
            call.callback(call.delivery)
        finally:
            self.calls -= 1
            if not self.calls:
                self._hooks.calling.pop(self, None)

    def wait(self, delivery: Awaited | None = None) -> Waiter:
        """A waiter for one task, whose future is done after a change.

        Whoever stops waiting for it calls `leave`.
        """
        self.check_caller()
        waiter = Waiter(self._hooks.loop.create_future(), self, delivery)
        self._line[waiter] = None
        return waiter

    def check_caller(self) -> None:
        """Raise WrongLoopError for a task of another loop."""
        if _get_running_loop() is not self._hooks.loop:
            refuse_caller(self._hooks)

    @property
    def _waiters(self) -> list[Waiter]:
        """The waiting tasks, in order."""
        return [entry for entry in self._line if isinstance(entry, Waiter)]

    @property
    def calling(self) -> bool:
        """Whether it has callbacks that have not run yet."""
        return self.calls > 0

    async def changed(self) -> None:
        """Wait for a change. A cancellation leaves no waiter."""
        if self.done:
            await asyncio.sleep(0)  # The callbacks that were added before run first.
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
        """See `Delivery.add_done_callback`; `index` is that of its record here."""
        loop = _get_running_loop()
        if loop is not self._hooks.loop:
            refuse_caller(self._hooks, loop is None)
        if context is None:
            context = contextvars.copy_context()
        self._add(Call(delivery, callback, context), index)

    def _add(self, call: Call, index: int) -> None:
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
