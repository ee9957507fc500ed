"""All checks of one run. `note` accepts the entries in order; `breaches` lists broken promises.

The promises have the letters of tests/faults.md. E (everything is settled soon after the faults)
and H (nothing is left open) are checked at the end, by `finish` and by the runner.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ledger import BrokenInvariantError
from secret_search import SecretSearch

from aiokclient import TopicPartition

from . import entries
from .entries import Entry
from .group_checks import GroupChecks
from .record_checks import CopyChecks, RecordChecks
from .transaction_checks import TransactionChecks

PLAIN, COPIES, ATOMIC = "soak-plain", "soak-copies", "soak-atomic"
"""The topics of plain producers, of transactional copies of their records, and of transactions."""
PARTITIONS = 3
READING_GROUPS = ("classic", "kip848")
"""The groups whose members process the plain topic. Another group copies it in transactions."""
SLACK_S = 5.0
"""Seconds that a call may take beyond its deadline, because other processes need the processor."""
LONGEST_HOLD_S = 0.050
KEPT = 50
"""The number of breaches that are kept as texts. All are counted."""

TPS_BY_TOPIC = {
    topic: [TopicPartition(topic, index) for index in range(PARTITIONS)]
    for topic in (PLAIN, COPIES, ATOMIC)
}


class RunChecks:
    """The checks of one run. `secrets` are searched for in everything that is logged."""

    def __init__(self, secrets: SecretSearch | None = None) -> None:
        self.breaches: list[str] = []
        self.broken: Counter[str] = Counter()
        self.entries: Counter[str] = Counter()
        self.longest_hold_s, self.longest_hold = 0.0, ""
        self.worst_lateness_s, self.worst_call = 0.0, ""
        self.most_buffered: dict[str, int] = {}
        self.plain = RecordChecks(PLAIN, self.breach)
        self.copies = CopyChecks(self.breach)
        self.atomic = TransactionChecks(ATOMIC, PARTITIONS, self.breach)
        self.groups = {name: GroupChecks(name, self.breach) for name in READING_GROUPS}
        self._secrets = SecretSearch() if secrets is None else secrets
        self._ends: dict[TopicPartition, int] = {}

    def breach(self, promise: str, text: str) -> None:
        """Record that a promise is broken."""
        self.broken[promise] += 1
        if len(self.breaches) < KEPT:
            self.breaches.append(f"{promise}: {text}")

    def note(self, entry: Entry) -> None:
        """Check one entry, in the context of those before it."""
        self.entries[type(entry).__name__] += 1
        take(entry, self)

    def note_all(self, found: Iterable[Entry]) -> None:
        for entry in found:
            self.note(entry)

    # -- one method for each kind of entry

    def sent(self, entry: entries.Sent) -> None:
        if entry.tp.topic == ATOMIC:
            self.atomic.sent(entry.producer, entry.sequence)
        else:
            self.plain.sent(*entry)

    def read(self, entry: entries.Read) -> None:
        topic = entry.tp.topic
        if topic == ATOMIC:
            self.atomic.consume(*entry)
        elif topic == COPIES:
            self.copies.copy(*entry)
        else:
            self._ends[entry.tp] = max(entry.offset + 1, self._ends.get(entry.tp, 0))
            payload = self.plain.consume(*entry)
            if payload is not None:
                self.copies.original(payload)

    def of_group(self, entry: Any) -> None:
        """Pass an entry to the checks of its group, if the group has any."""
        group, *rest = entry
        if group in self.groups:
            getattr(self.groups[group], IN_GROUP[type(entry)])(*rest)

    def called(self, entry: entries.Called) -> None:
        late = entry.took_s - entry.limit_s
        if late > self.worst_lateness_s:
            self.worst_lateness_s, self.worst_call = late, entry.what
        if late > SLACK_S:
            took, limit = f"{entry.took_s:.1f} s", f"{entry.limit_s:.1f} s"
            self.breach("D", f"{entry.what} took {took}. Its limit is {limit}.")

    def held(self, entry: entries.Held) -> None:
        if entry.cpu_s > self.longest_hold_s:
            self.longest_hold_s, self.longest_hold = entry.cpu_s, entry.what
        if entry.cpu_s > LONGEST_HOLD_S:
            self.breach("J", f"{entry.what} has held the event loop for {entry.cpu_s:.3f} s.")

    def buffered(self, entry: entries.Buffered) -> None:
        most = self.most_buffered
        most[entry.what] = max(entry.held, most.get(entry.what, 0))
        if entry.held > entry.limit:
            self.breach("I", f"{entry.what} is {entry.held} bytes. Its limit is {entry.limit}.")

    def logged(self, entry: entries.Logged) -> None:
        for name, form, around in self._secrets.leaks(entry.text.encode("utf-8", "replace")):
            self.breach("L", f"the {name} ({form}) is shown: {around!r}")

    def trouble(self, entry: entries.Trouble) -> None:
        self.breach(*entry)

    # -- the end

    @property
    def open(self) -> int:
        """The number of records and transactions that are not settled yet."""
        left = sum(group.left(self._ends) for group in self.groups.values())
        return self.plain.open + self.copies.open + self.atomic.open + left

    def unfinished(self) -> Iterator[str]:
        """Yield a description of everything that is not settled."""
        for checks in (self.plain, self.copies, self.atomic):
            yield from checks.unfinished()
        for group in self.groups.values():
            yield from group.unfinished(self._ends)

    def finish(self) -> None:
        """Record everything that is not settled yet as a breach of E."""
        for text in self.unfinished():
            self.breach("E", text)

    def check(self) -> None:
        """Raise BrokenInvariantError if any promise was broken."""
        if self.broken:
            counts = ", ".join(f"{letter} {count}" for letter, count in sorted(self.broken.items()))
            raise BrokenInvariantError("\n  ".join([f"broken: {counts}", *self.breaches]))

    def summary(self) -> str:
        """Return what was checked, in one paragraph."""
        groups = ", ".join(
            f"{name} has processed {group.processed} and was assigned {group.assigned_times} times"
            for name, group in self.groups.items()
        )
        outcomes = ", ".join(f"{count} {name}" for name, count in self.atomic.outcomes.items())
        return (
            f"{self.plain.acknowledged} records acknowledged, {self.plain.read} read, "
            f"{self.copies.read} copied in transactions; group {groups}; transactions: {outcomes}; "
            f"{self.entries['Called']} calls, at most {self.worst_lateness_s:.2f} s late "
            f"({self.worst_call or 'none'}); the loop was held for at most "
            f"{1000 * self.longest_hold_s:.0f} ms ({self.longest_hold or 'never'})"
        )


IN_GROUP: Mapping[type, str] = {
    entries.Assigned: "assigned",
    entries.Revoked: "revoked",
    entries.Lost: "lost",
    entries.Delivered: "delivered",
    entries.Processed: "finished",
    entries.Committed: "committed",
}


@functools.singledispatch
def take(entry: Any, checks: RunChecks) -> None:
    raise TypeError(f"{entry!r} is not an entry.")


def _takes(kind: type, method: Callable[[RunChecks, Any], None]) -> None:
    take.register(kind, lambda entry, checks: method(checks, entry))


_takes(entries.Sent, RunChecks.sent)
_takes(entries.Acknowledged, lambda checks, entry: checks.plain.acknowledge(*entry))
_takes(entries.Undelivered, lambda checks, entry: checks.plain.fail(*entry))
_takes(entries.Read, RunChecks.read)
_takes(entries.Ended, lambda checks, entry: checks.atomic.ended(*entry))
for _kind in IN_GROUP:
    _takes(_kind, RunChecks.of_group)
_takes(entries.Called, RunChecks.called)
_takes(entries.Held, RunChecks.held)
_takes(entries.Buffered, RunChecks.buffered)
_takes(entries.Logged, RunChecks.logged)
_takes(entries.Trouble, RunChecks.trouble)
