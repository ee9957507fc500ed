"""Notification of outages: moments at which a client has no connection left."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Outages"]


class Outages:
    """A list of listeners that are called when the last open connection of a client has ended.

    Afterwards, another cluster may respond at the same addresses.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener()` at each outage. Return a function that removes it. Synchronous."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def happened(self) -> None:
        """Call the listeners, because no connection is left. Synchronous."""
        for listener in list(self._listeners):
            listener()
