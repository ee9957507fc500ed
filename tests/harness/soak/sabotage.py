"""Deliberate defects of the recorded entries, one for each promise. With a defect, a run must fail.

Each function changes the entries before they are checked, once a run has some history.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .checks import ATOMIC, PLAIN
from .entries import (
    Buffered,
    Called,
    Committed,
    Delivered,
    Entry,
    Held,
    Logged,
    Processed,
    Read,
    Revoked,
)

AFTER = 40
"""The number of entries of the kind in question that pass before one is changed."""

Change = Callable[[Any], list[Entry]]


class Sabotage:
    """A filter of entries that breaks the promise with this letter. "" breaks none."""

    def __init__(self, promise: str = "", secret: str = "") -> None:
        if promise and promise not in CHANGES:
            letters = ", ".join(CHANGES)
            raise ValueError(f"There is no way to break {promise!r}. Choose from {letters}.")
        self.promise, self._secret = promise, secret
        self._seen = 0
        self._kept: list[Read] = []
        self.done = False

    def __call__(self, entry: Entry) -> list[Entry]:
        """Return the entries that replace this one."""
        if not self.promise:
            return [entry]
        return list(CHANGES[self.promise](self, entry))

    def turn(self, entry: Entry, kind: type, topic: str = "", after: int = AFTER) -> bool:
        """Return whether to change this entry.

        The first `after` entries of this kind and topic stay unchanged.
        """
        if self.done or type(entry) is not kind:
            return False
        if topic and getattr(entry, "tp", ("",))[0] != topic:
            return False
        self._seen += 1
        self.done = self._seen > after
        return self.done

    # -- the ways

    def lose(self, entry: Entry) -> Iterator[Entry]:
        """Break A: a record is not in the log."""
        if not self.turn(entry, Read, PLAIN):
            yield entry

    def swap(self, entry: Entry) -> Iterator[Entry]:
        """Break B: two records of a partition are swapped."""
        if self._kept and isinstance(entry, Read) and entry.tp == self._kept[0].tp:
            yield entry
            yield self._kept.pop()
        elif isinstance(entry, Read) and self.turn(entry, Read, PLAIN):
            self._kept.append(entry)
        else:
            yield entry

    def damage(self, entry: Entry) -> Iterator[Entry]:
        """Break C: a byte of a record has changed."""
        if self.turn(entry, Read, PLAIN):
            assert isinstance(entry, Read)
            changed = bytes([entry.value[-1] ^ 1])
            entry = entry._replace(value=entry.value[:-1] + changed)
        yield entry

    def delay(self, entry: Entry) -> Iterator[Entry]:
        """Break D: a call has taken a minute longer than it may."""
        if self.turn(entry, Called):
            assert isinstance(entry, Called)
            entry = entry._replace(took_s=entry.limit_s + 60)
        yield entry

    def stall(self, entry: Entry) -> Iterator[Entry]:
        """Break E: a group stops processing records."""
        if self.done and isinstance(entry, Delivered | Processed | Committed):
            return
        self.turn(entry, Processed)
        yield entry

    def commit_ahead(self, entry: Entry) -> Iterator[Entry]:
        """Break F: an offset is committed before its record is processed."""
        if self.turn(entry, Committed, after=3):
            assert isinstance(entry, Committed)
            entry = entry._replace(offset=entry.offset + 1000)
        yield entry

    def deliver_late(self, entry: Entry) -> Iterator[Entry]:
        """Break G: a record is delivered after its partition was revoked."""
        yield entry
        if isinstance(entry, Revoked) and entry.tps and self.turn(entry, Revoked, after=0):
            yield Delivered(entry.group, entry.member, entry.tps[0], 0)

    def hoard(self, entry: Entry) -> Iterator[Entry]:
        """Break I: a client holds more bytes than it may."""
        if self.turn(entry, Buffered):
            assert isinstance(entry, Buffered)
            entry = entry._replace(held=entry.limit + 1)
        yield entry

    def hold(self, entry: Entry) -> Iterator[Entry]:
        """Break J: a callback holds the event loop."""
        if self.turn(entry, Called):
            yield Held("sabotage", 0.3)
        yield entry

    def halve(self, entry: Entry) -> Iterator[Entry]:
        """Break K: a record of a transaction is not visible."""
        if not self.turn(entry, Read, ATOMIC):
            yield entry

    def leak(self, entry: Entry) -> Iterator[Entry]:
        """Break L: a secret is logged."""
        if self.turn(entry, Called):
            yield Logged(f"logging in with {self._secret}")
        yield entry


CHANGES: Mapping[str, Callable[[Sabotage, Entry], Iterator[Entry]]] = {
    "A": Sabotage.lose,
    "B": Sabotage.swap,
    "C": Sabotage.damage,
    "D": Sabotage.delay,
    "E": Sabotage.stall,
    "F": Sabotage.commit_ahead,
    "G": Sabotage.deliver_late,
    "I": Sabotage.hoard,
    "J": Sabotage.hold,
    "K": Sabotage.halve,
    "L": Sabotage.leak,
}
"""The defects by the letters of the promises. The runner breaks H by leaving sockets open."""
