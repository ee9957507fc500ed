"""The events that members report, and the log in which the test records them.

Each event is one line of JSON, `[seconds, what, ...]`, with the time of the clock that all
processes of a machine share:

    assigned PARTITIONS GENERATION      revoked PARTITIONS      lost PARTITIONS
    delivered ASKED [[PARTITION, OFFSET]]  records that the consumer delivered; requested at ASKED
    done PARTITION OFFSET               a record that was processed
    dropped                             no delivered record is being processed any more
    commit ASKED PARTITION OFFSET ERROR an explicit commit; ERROR is null if it succeeded
    started    holding    left    failed TEXT    warning TEXT

The test adds `sample OFFSETS` (the committed offsets by partition), `killed`, and descriptions of
its other actions for human readers.
"""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

now = time.monotonic


class Event(NamedTuple):
    """One event."""

    time: float
    who: str
    what: str
    data: tuple[Any, ...]


def line(what: str, *data: object) -> bytes:
    """Return the line that a member's process writes for an event."""
    return json.dumps([now(), what, *data]).encode() + b"\n"


def parsed(who: str, text: bytes) -> Event:
    when, what, *data = json.loads(text)
    return Event(when, who, what, tuple(data))


class Log:
    """All events in the order in which they arrive, and the present state that they imply."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.owned: dict[str, set[int]] = {}
        self.done: dict[int, set[int]] = {}
        self.count = 0
        self.committed: dict[int, int] = {}
        self.failures: list[Event] = []
        self._written = asyncio.Event()

    def tell(self, who: str, what: str, *data: Any) -> None:
        """Record an event of this process."""
        self.add(Event(now(), who, what, data))

    def add(self, event: Event) -> None:
        self.events.append(event)
        owned = self.owned.setdefault(event.who, set())
        match event.what, event.data:
            case "assigned", (partitions, *_):
                owned.update(partitions)
            case "revoked" | "lost", (partitions, *_):
                owned.difference_update(partitions)
            case "done", (partition, offset):
                self.done.setdefault(partition, set()).add(offset)
                self.count += 1
            case "sample", (offsets,):
                self.committed = offsets
            case "killed" | "left" | "failed", _:
                owned.clear()
        if event.what == "failed":
            self.failures.append(event)
        self._written.set()

    def of(self, who: str, what: str) -> list[Event]:
        """Return the events of one kind that one member reported."""
        return [event for event in self.events if (event.who, event.what) == (who, what)]

    async def until(self, right: Callable[[], object], timeout: float) -> None:
        """Wait for a condition, which is checked after each event."""
        async with asyncio.timeout(timeout):
            while not right():
                self._written.clear()
                await self._written.wait()
