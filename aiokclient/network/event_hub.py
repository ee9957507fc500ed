"""The distribution of a client's events to their readers.

One hub serves a client and all objects that share its connections. An event that concerns only one
of them, such as a rebalance, has that object as its source. The readers of the client itself get
all events. The readers of any other object get the events of that object and of the shared
connections.

Without readers, `emit` returns at once. Code that has to compute the contents of an event checks
`heard` first.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Hashable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from aiokclient.clock import Clock

if TYPE_CHECKING:
    from aiokclient.events import Event

EventKind: TypeAlias = Literal[
    "Assigned",
    "Authenticated",
    "ClusterChanged",
    "Connected",
    "Disconnected",
    "Failed",
    "LeaderMoved",
    "LockExpiring",
    "LockLost",
    "Rebalanced",
    "Rebootstrapped",
    "RegistryOutage",
    "SessionReset",
    "Throttled",
    "TokenRefreshed",
]
"""The name of a class in `aiokclient.events`.

That module is imported when the first event is passed to a reader."""

KEPT: Final = 1000
"""The maximum number of unread events of a reader."""


class EventReader:
    """An asynchronous iterator of events, from the call of `events()` on.

    It keeps at most 1,000 unread events. Further events replace the oldest ones, and `dropped`
    counts them. It ends when the client closes, after the unread events. Cancelling `anext` loses
    no event. Any number of readers may exist. If several tasks read from one reader, each event
    goes to one of the tasks.
    """

    def __init__(self, source: Hashable) -> None:
        self.dropped = 0
        """The number of events that were dropped because they were not read in time."""
        self._source = source
        self._unread: deque[Event] = deque()
        self._changed = asyncio.Event()
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._unread:
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._unread.popleft()

    async def aclose(self) -> None:
        """End this reader. Unread events are dropped. Idempotent."""
        self._unread.clear()
        self._end_reading()

    def _is_for(self, source: Hashable) -> bool:
        return not self._ended and (source is None or self._source in (None, source))

    def _add_event(self, event: Event) -> None:
        if len(self._unread) == KEPT:
            self._unread.popleft()
            self.dropped += 1
        self._unread.append(event)
        self._changed.set()

    def _end_reading(self) -> None:
        self._ended = True
        self._changed.set()


class EventHub:
    """The events of one client and of the objects that share its connections.

    All methods are synchronous, and belong to one event loop.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readers: weakref.WeakSet[EventReader] = weakref.WeakSet()

    @property
    def heard(self) -> bool:
        """Whether there is a reader."""
        return bool(self._readers)

    def open_reader(self, source: Hashable = None) -> EventReader:
        """Return a new reader of the events of a source, and of those without a source.

        A reader without a source gets all events. A reader that is no longer referenced is
        forgotten.
        """
        reader = EventReader(source)
        self._readers.add(reader)
        return reader

    def emit(self, kind: EventKind, *, source: Hashable = None, **fields: Any) -> None:
        """Pass a new event of this kind to the readers. The time is added."""
        if not self._readers:
            return
        hearing = [reader for reader in self._readers if reader._is_for(source)]
        if hearing:
            make = getattr(import_module("aiokclient.events"), kind)
            event = make(time=self._clock.time_ms(), **fields)
            for reader in hearing:
                reader._add_event(event)

    def end_readers(self, source: Hashable = None) -> None:
        """End the readers of a source that has closed; for None, end all readers."""
        for reader in list(self._readers):
            if source is None or reader._source == source:
                self._readers.discard(reader)
                reader._end_reading()


class EventSource:
    """The part of a hub that belongs to one object: it emits and reads the object's events."""

    __slots__ = ("_hub", "_key")

    def __init__(self, hub: EventHub, key: Hashable) -> None:
        self._hub = hub
        self._key = key

    def open_reader(self) -> EventReader:
        """Return a new reader of the events of this object and of the shared connections."""
        return self._hub.open_reader(self._key)

    def emit(self, kind: EventKind, **fields: Any) -> None:
        """Pass a new event of this object to the readers."""
        self._hub.emit(kind, source=self._key, **fields)

    def end_readers(self) -> None:
        """End the readers of this object, because it has closed."""
        self._hub.end_readers(self._key)
