"""What members tell, and the log in which the test writes it down.

A line of JSON each, `[seconds, what, ...]`, by the clock that all processes of a machine share:

    assigned PARTITIONS GENERATION      revoked PARTITIONS      lost PARTITIONS
    handed ASKED [[PARTITION, OFFSET]]  asked for at that time, and come out of the consumer
    done PARTITION OFFSET               processed
    dropped                             nothing in hand is worked on any more
    commit ASKED PARTITION OFFSET ERROR an explicit one; no error: null
    started    holding    left    failed TEXT    warning TEXT

The test adds `sample OFFSETS` (what is committed, by partition) and `killed` to them, and for
people to read what else it does.
"""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

now = time.monotonic


class Event(NamedTuple):
    """One of them."""

    time: float
    who: str
    what: str
    data: tuple[Any, ...]


def line(what: str, *data: object) -> bytes:
    """What a member's process writes."""
    return json.dumps([now(), what, *data]).encode() + b"\n"


def parsed(who: str, text: bytes) -> Event:
    when, what, *data = json.loads(text)
    return Event(when, who, what, tuple(data))


class Log:
    """All events as they arrive, and how things are by them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.owned: dict[str, set[int]] = {}
        self.done: dict[int, set[int]] = {}
        self.count = 0
        self.committed: dict[int, int] = {}
        self.failures: list[Event] = []
        self._written = asyncio.Event()

    def tell(self, who: str, what: str, *data: Any) -> None:
        """Of this process."""
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
        """What one of them told of this kind."""
        return [event for event in self.events if (event.who, event.what) == (who, what)]

    async def until(self, right: Callable[[], object], timeout: float) -> None:
        """Waits until something is so; it is looked at whenever something was written down."""
        async with asyncio.timeout(timeout):
            while not right():
                self._written.clear()
                await self._written.wait()
