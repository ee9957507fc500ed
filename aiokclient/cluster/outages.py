"""Moments at which a client has no connection left."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Outages"]


class Outages:
    """Calls its listeners when the last open connection of a client has ended.

    What answers at the same addresses later may be another cluster.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener()` at each outage; return the end of that. Synchronous."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def happened(self) -> None:
        """No connection is left. Synchronous."""
        for listener in list(self._listeners):
            listener()
