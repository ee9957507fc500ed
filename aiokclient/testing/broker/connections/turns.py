"""The turns in which the connections of a cluster handle requests.

Many clients may send a request at the same instant. Handling all of them in one iteration of the
event loop would delay everything else in it, such as the clients of a test. When an iteration has
handled requests for `_TURN_S` seconds, the other connections continue in the next iterations, in
the order in which they began to wait.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

_TURN_S = 0.005


class Connection(Protocol):
    def handle_queued(self) -> None:
        """Handle queued requests until one has to wait."""


class Turns:
    """A limit on the time for which an iteration of the event loop handles requests."""

    def __init__(self) -> None:
        self._ends: float | None = None
        """The end of the current turn, if this iteration has handled a request."""
        self._waiting: dict[Connection, None] = {}

    def take_turn(self, connection: Connection) -> bool:
        """Return whether the connection may handle a request in this iteration.

        If not, the connection's `handle_queued` is called in a later iteration.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._ends is None:
            self._ends = now + _TURN_S
            loop.call_soon(self._resume_waiting)
        if now < self._ends:
            return True
        self._waiting[connection] = None
        return False

    def _resume_waiting(self) -> None:
        """Resume the waiting connections, in the iteration after the turn."""
        self._ends = None
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            connection.handle_queued()
