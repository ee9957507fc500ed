"""Signals by which an operator ends the workers of a process.

The first signal drains all running workers, and the second cancels their handlers. With
`signals=None`, a worker handles SIGTERM and SIGINT only where nothing else does: in the main
thread, and while a signal has its default action. `asyncio.run` replaces the default action of
SIGINT by the cancellation of its main task; that counts as the default, too. The former actions are
restored when the last worker ends.

Signals belong to the process, so there is one `SignalWatch`, which all running workers share.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from aiokclient.errors import IllegalStateError

if TYPE_CHECKING:
    from aiokclient.worker.worker import Worker

DEFAULT_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class SignalWatch:
    """The signals that the workers of this process handle at present."""

    def __init__(self) -> None:
        self._workers: dict[Worker, tuple[signal.Signals, ...]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._former: dict[signal.Signals, Any] = {}

    def add_worker(self, worker: Worker, wanted: tuple[signal.Signals, ...] | None) -> None:
        """Pass signals to a worker from now on.

        Without `wanted`, these are the default ones that nothing else handles. Raises
        IllegalStateError if `wanted` has signals and this is not the main thread.
        """
        if wanted == ():
            return
        loop = asyncio.get_running_loop()
        is_main = threading.current_thread() is threading.main_thread()
        can_watch = is_main and self._loop in (None, loop) and _has_signals(loop)
        if not can_watch:
            if wanted is None:
                return
            raise IllegalStateError(
                "Only workers in the event loop of the main thread can handle signals. Set "
                "signals=False, and call drain()."
            )
        if wanted is None:
            wanted = tuple(
                each
                for each in DEFAULT_SIGNALS
                if each in self._former or _has_default_action(each)
            )
        self._loop = loop
        self._workers[worker] = wanted
        for number in wanted:
            if number not in self._former:
                self._former[number] = signal.getsignal(number)
                loop.add_signal_handler(number, self._on_signal, number)

    def remove_worker(self, worker: Worker) -> None:
        """Pass no more signals to a worker. Restore the actions of signals that none needs."""
        self._workers.pop(worker, None)
        needed = {number for chosen in self._workers.values() for number in chosen}
        for number in [number for number in self._former if number not in needed]:
            former = self._former.pop(number)
            if self._loop is not None:
                self._loop.remove_signal_handler(number)
            signal.signal(number, former if former is not None else signal.SIG_DFL)
        if not self._workers:
            self._loop = None

    def _on_signal(self, number: signal.Signals) -> None:
        for worker, chosen in list(self._workers.items()):
            if number in chosen:
                worker.on_signal(number)


def _has_signals(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether an event loop can handle signals. Virtual ones and those of Windows cannot."""
    return type(loop).add_signal_handler is not asyncio.AbstractEventLoop.add_signal_handler


def _has_default_action(number: signal.Signals) -> bool:
    action = signal.getsignal(number)
    if action in (signal.SIG_DFL, signal.default_int_handler):
        return True
    # The runner of `asyncio.run` cancels its main task instead of raising KeyboardInterrupt.
    function = getattr(action, "func", action)
    return isinstance(getattr(function, "__self__", None), asyncio.Runner)


signal_watch: Final = SignalWatch()
