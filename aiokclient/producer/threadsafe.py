"""Sends from other threads: futures that get an outcome even if the event loop stops.

A callback in the queue of an event loop is dropped silently when the loop is closed, and stays in
the queue when the loop is stopped. So a thread watches the event loops while futures of
`send_threadsafe` are pending. If a loop is closed or does not run for some time, its futures fail.
A record that the loop has not processed by then is never sent.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from aiokclient.errors import ClosedError
from aiokclient.producer.delivery.delivery import Delivery
from aiokclient.types import ProducerRecord, RecordMetadata

if TYPE_CHECKING:
    from aiokclient.producer.producer import Producer

PERIOD_S = 0.1
"""Seconds between two checks of the event loops."""
UNSENT_S = 1.0
"""The future of an unsent record fails when the loop has not run for this many seconds."""
UNKNOWN_S = 5.0
"""The future of a sent record fails when the loop has not run for this many seconds."""


class ThreadsafeSend:
    """A record that another thread sends, with the future of its outcome."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, producer: Producer[Any, Any], record: ProducerRecord
    ) -> None:
        self.future: concurrent.futures.Future[RecordMetadata] = concurrent.futures.Future()
        self._loop = loop
        self._producer = producer
        self._record = record
        self._lock = threading.Lock()
        self._sent = False
        self._over = False
        self._stopped: float | None = None
        """The time at which the loop was first found stopped, on the monotonic clock."""

    def begin_sending(self) -> None:
        """Schedule the send in the loop. Raise ClosedError if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._send_record)
        except RuntimeError as error:
            del self._producer, self._record
            raise ClosedError(
                "The event loop of this Producer is closed. Make a new Producer."
            ) from error
        _watch.watch_send(self)

    def _send_record(self) -> None:
        with self._lock:
            if self._over:
                return
            if not self.future.set_running_or_notify_cancel():
                self._over = True
                return
            self._sent = True
        try:
            delivery = self._producer.send(*self._record)
        except Exception as error:
            self._set_outcome(error)
            return
        finally:
            # The traceback of an error refers to this object, which would keep the producer alive.
            del self._producer, self._record
        delivery.add_done_callback(self._on_done)

    def _on_done(self, delivery: Delivery) -> None:
        error = delivery.exception()
        self._set_outcome(delivery.result() if error is None else error)

    def _set_outcome(self, outcome: RecordMetadata | Exception) -> None:
        with self._lock:
            if self._over:
                return
            self._over = True
        # The lock is not held here, because this runs callbacks of the future.
        if isinstance(outcome, Exception):
            if self._sent or self.future.set_running_or_notify_cancel():
                self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)

    def check_loop(self, now: float) -> bool:
        """Fail the future if the loop no longer runs. Return whether it is still pending."""
        if self._over:
            return False
        closed = self._loop.is_closed()
        if not closed and self._loop.is_running():
            self._stopped = None
            return True
        if self._stopped is None:
            self._stopped = now
        if closed or now - self._stopped >= (UNKNOWN_S if self._sent else UNSENT_S):
            what = "is closed" if closed else "has stopped"
            fate = "Whether the record was written is unknown" if self._sent else "It was not sent"
            self._set_outcome(ClosedError(f"The event loop of this Producer {what}. {fate}."))
        return not self._over


class _Watch:
    """The thread that checks the loops while futures are pending."""

    def __init__(self) -> None:
        self.forget_thread()

    def forget_thread(self) -> None:
        """Discard the thread and the lock in a forked process.

        The thread does not exist there, but the copy of the lock may still be locked by it.
        """
        self._lock = threading.Lock()
        self._open: dict[ThreadsafeSend, None] = {}
        self._thread: threading.Thread | None = None

    def watch_send(self, send: ThreadsafeSend) -> None:
        with self._lock:
            self._open[send] = None
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._check_loops, name="aiokclient-threadsafe", daemon=True
                )
                self._thread.start()

    def _check_loops(self) -> None:
        while True:
            time.sleep(PERIOD_S)
            now = time.monotonic()
            with self._lock:
                sends = list(self._open)
            over = [send for send in sends if not send.check_loop(now)]
            with self._lock:
                for send in over:
                    del self._open[send]
                if not self._open:
                    self._thread = None
                    return


_watch = _Watch()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watch.forget_thread)
