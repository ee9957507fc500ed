"""The life of an acquired record, as a table of states and events. Without IO.

A leader locks records for one member and sends them: it *acquires* them. The lock of a record ends
when the member acknowledges the record, or at its deadline, or with the member's session.

    WAITING    acquired, and not delivered to the application yet
    HELD       delivered, and not settled
    SETTLED    settled (accept, release, reject, or gap), and not sent yet
    SENT       the acknowledgement is in flight
    FINISHED   the leader has confirmed the acknowledgement
    LOST       the lock ended before that; a lost lock never comes back
    REFUSED    the leader has refused the acknowledgement, for a reason other than the lock

An event applies to a range of records. In a state without a row for the event, a record stays as it
is: a record that was released while its batch is accepted remains released.

    DELIVER    the record is passed to the application
    SETTLE     the application, or the client itself, decides what becomes of the record
    SEND       a request with the acknowledgement is written
    CONFIRM    the leader answers that it has applied the acknowledgement
    RETURN     the acknowledgement was not applied, and is sent again
    LOSE       the lock has ended
    REFUSE     the leader refuses the acknowledgement

A state is one byte, with the type of acknowledgement in its low bits. The states of the records
that were acquired together are a bytearray, in which offsets without a record have their place, so
an event is one `bytes.translate` for any number of records.
"""

from __future__ import annotations

import math
import re
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, IntEnum
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.share.delivery.record import ShareRecord
    from aiokclient.share.partition import SharePartition

Reason: TypeAlias = Literal["expired", "moved", "disconnected", "session", "refused", "fenced"]
"""Why a lock was lost; see `LockLostError`."""


DELIVERED_WITHIN: Final = 0.25
"""The part of a lock for which records wait in the consumer at most."""

LEFT_AT_DELIVERY: Final = 0.5
"""The part of a lock that must be left when a record is delivered."""


class AcknowledgeType(IntEnum):
    """The types of acknowledgement in the protocol."""

    GAP = 0
    """There is no record with this offset, or it is a control record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class LockState(IntEnum):
    """The state of an acquired record; see the module's docstring."""

    WAITING = 0x00
    HELD = 0x01
    SETTLED = 0x10
    SENT = 0x20
    FINISHED = 0x30
    LOST = 0x31
    REFUSED = 0x32


_TYPED: Final = (LockState.SETTLED, LockState.SENT)
"""The states to which the type of acknowledgement is added."""


class LockEvent(Enum):
    """An event in the life of acquired records; see the module's docstring."""

    DELIVER = "deliver"
    SETTLE = "settle"
    SEND = "send"
    CONFIRM = "confirm"
    RETURN = "return"
    LOSE = "lose"
    REFUSE = "refuse"


_S, _E = LockState, LockEvent

TABLE: Final = {
    (_S.WAITING, _E.DELIVER): _S.HELD,
    (_S.WAITING, _E.SETTLE): _S.SETTLED,
    (_S.HELD, _E.SETTLE): _S.SETTLED,
    (_S.SETTLED, _E.SEND): _S.SENT,
    (_S.SENT, _E.CONFIRM): _S.FINISHED,
    (_S.SENT, _E.RETURN): _S.SETTLED,
    (_S.SENT, _E.REFUSE): _S.REFUSED,
    (_S.WAITING, _E.LOSE): _S.LOST,
    (_S.HELD, _E.LOSE): _S.LOST,
    (_S.SETTLED, _E.LOSE): _S.LOST,
    (_S.SENT, _E.LOSE): _S.LOST,
}
"""The next state by state and event."""

_FINAL_TYPES: Final = (
    AcknowledgeType.GAP,
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
)


def _translation(event: LockEvent, kind: AcknowledgeType = AcknowledgeType.GAP) -> bytes:
    """Return the next byte for each byte of a state. `kind` is the type that SETTLE gives."""
    table = bytearray(range(256))
    for (state, given), following in TABLE.items():
        if given is not event:
            continue
        for each in _FINAL_TYPES if state in _TYPED else _FINAL_TYPES[:1]:
            kept = kind if event is LockEvent.SETTLE else each
            table[state | each] = following | kept if following in _TYPED else following
    return bytes(table)


TRANSLATIONS: Final = {event: _translation(event) for event in LockEvent}
SETTLEMENTS: Final = {kind: _translation(LockEvent.SETTLE, kind) for kind in _FINAL_TYPES}

_HELD: Final = int(LockState.HELD)
"""The last of the states of records that are neither settled nor lost, WAITING and HELD."""
_SETTLED_RUNS: Final = re.compile(rb"[\x10-\x13]+")
_SENT_RUNS: Final = re.compile(rb"[\x20-\x23]+")
_HELD_RUNS: Final = re.compile(rb"\x01+")
_WAITING_RUNS: Final = re.compile(rb"\x00+")
_OPEN_RUNS: Final = re.compile(rb"[^\x30-\x32]+")
_FINAL: Final = bytes((LockState.FINISHED, LockState.LOST, LockState.REFUSED))
_RUNS: Final = {
    LockState.SETTLED: _SETTLED_RUNS,
    LockState.SENT: _SENT_RUNS,
    LockState.HELD: _HELD_RUNS,
    LockState.WAITING: _WAITING_RUNS,
}


class Run(NamedTuple):
    """Consecutive offsets of one acquisition: those from `start` to before `stop`, as indexes."""

    acquisition: Acquisition
    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start

    def apply_event(self, event: LockEvent) -> None:
        """Make the transition of each record for an event."""
        self.acquisition.apply_event(event, self.start, self.stop)

    def list_offsets(self) -> range:
        """Return the offsets."""
        first = self.acquisition.first
        return range(first + self.start, first + self.stop)


class Acquisition:
    """Consecutive offsets that a leader has acquired for this member by one answer.

    All have one delivery count and, unless some of them were renewed apart, one deadline. Times are
    on the monotonic clock, in seconds.
    """

    __slots__ = (
        "_deadlines",
        "_delivered",
        "_reasons",
        "_tracked",
        "deadline",
        "delivered_at",
        "delivery_count",
        "doubtful",
        "first",
        "is_doubted",
        "is_drop_noted",
        "is_epoch_exact",
        "is_expiry_told",
        "leader_epoch",
        "lock_s",
        "partition",
        "scopes",
        "settled_late",
        "states",
    )

    def __init__(
        self,
        partition: SharePartition,
        first: int,
        last: int,
        delivery_count: int,
        deadline: float,
        lock_s: float,
    ) -> None:
        self.partition = partition
        self.first = first
        self.delivery_count = delivery_count
        self.deadline = deadline
        """The time until which the locks are certain, except of records that were renewed apart."""
        self.lock_s = lock_s
        self.states = bytearray(last - first + 1)
        self._delivered: list[Sequence[ShareRecord[Any, Any]]] = []
        """Lists of delivered records, in the order of offsets."""
        self._tracked: dict[int, Any] = {}
        """The delivered records to which only the application refers, by offset."""
        self.doubtful: set[int] = set()
        """The offsets whose acknowledgement is sent again although it may have been applied."""
        self.settled_late: set[int] = set()
        """The offsets whose loss was reported as the outcome of a settlement."""
        self.delivered_at = math.inf
        """The time at which a record was delivered last."""
        self.is_expiry_told = False
        """Whether the application was told that the locks will end."""
        self.leader_epoch = partition.requested_epoch
        """The leader epoch at the acquisition by metadata, or an earlier one; -1 if unknown."""
        self.is_epoch_exact = False
        """Whether the leader epoch is by metadata that was requested after the acquisition."""
        self.is_doubted = False
        """Whether the leader is to be asked by a renewal if the locks are its own."""
        self.is_drop_noted = False
        """Whether a call that looks for dropped records is scheduled."""
        self.scopes: dict[int, Any] = {}
        """The bodies of `processing` by offset, which are told of losses."""
        self._deadlines: dict[int, float] = {}
        self._reasons: list[tuple[range, Reason]] = []

    # -- states

    def apply_event(self, event: LockEvent, start: int, stop: int) -> None:
        """Make the transition of the records from index `start` to before `stop`."""
        self.states[start:stop] = self.states[start:stop].translate(TRANSLATIONS[event])

    def settle_run(self, kind: AcknowledgeType, start: int, stop: int) -> None:
        """Settle those of these records that are neither settled nor lost."""
        self.states[start:stop] = self.states[start:stop].translate(SETTLEMENTS[kind])

    def get_state(self, offset: int) -> LockState:
        """Return the state of a record."""
        byte = self.states[offset - self.first]
        return LockState(byte & 0xF0) if byte & 0xF0 in _TYPED else LockState(byte)

    def find_runs(self, state: LockState) -> Iterator[Run]:
        """Yield the runs of records in this state. It must not change meanwhile."""
        if self.has_state(state):
            for found in _RUNS[state].finditer(bytes(self.states)):
                yield Run(self, *found.span())

    def find_open_runs(self) -> Iterator[Run]:
        """Yield the runs of records whose state is not final."""
        if self.has_open():
            for found in _OPEN_RUNS.finditer(bytes(self.states)):
                yield Run(self, *found.span())

    def has_state(self, state: LockState) -> bool:
        """Return whether any record is in this state."""
        # A search for a byte takes much less time than one for a pattern.
        if state not in _TYPED:
            return state in self.states
        return any((state | kind) in self.states for kind in _FINAL_TYPES)

    def has_open(self) -> bool:
        """Return whether the state of any record is not final."""
        return bool(self.states.lstrip(_FINAL))

    def count_state(self, state: LockState) -> int:
        """Return the number of offsets in this state, which has no type."""
        return self.states.count(state)

    # -- records

    def keep_records(self, records: Sequence[ShareRecord[Any, Any]]) -> None:
        """Keep delivered records until their states are final. Their offsets ascend."""
        self._delivered.append(records)

    def watch_records(
        self, records: Sequence[ShareRecord[Any, Any]], on_drop: Callable[[object], object]
    ) -> None:
        """Know records without keeping them. If one is dropped, call `on_drop`."""
        references = map(weakref.ref, records, repeat(on_drop))
        self._tracked.update(zip(map(_offset_of, records), references, strict=True))

    def take_dropped(self) -> list[int]:
        """Return the offsets of the records that were dropped, and forget these."""
        dropped = [
            offset
            for offset, reference in self._tracked.items()
            if isinstance(reference, weakref.ref) and reference() is None
        ]
        for offset in dropped:
            del self._tracked[offset]
        return dropped

    def settle_record(
        self, record: ShareRecord[Any, Any], kind: AcknowledgeType, now: float
    ) -> float:
        """Settle a held record whose lock is certain. Return the seconds that are left of the lock.

        Return 0 if nothing was settled. The record is kept from now on, so that a commit finds it
        if the application drops it.
        """
        offset = record.offset
        index = offset - self.first
        state = self.states[index]
        deadline = self._deadlines.get(offset, self.deadline) if self._deadlines else self.deadline
        if state > _HELD or deadline <= now:
            return 0.0
        self.states[index] = SETTLEMENTS[kind][state]
        self.partition.has_settled = True
        if offset in self._tracked:
            self._tracked[offset] = record
        return deadline - now

    def forget_records(self) -> None:
        """Forget the delivered records, whose states are final; they refer to this object."""
        self._delivered.clear()
        self._tracked.clear()

    def find_records(self, run: Run) -> list[ShareRecord[Any, Any]]:
        """Return the delivered records of a run that still exist."""
        first, stop = self.first + run.start, self.first + run.stop
        found: list[ShareRecord[Any, Any]] = []
        for records in self._delivered:
            begin = bisect_left(records, first, key=_offset_of)
            found += records[begin : bisect_left(records, stop, begin, key=_offset_of)]
        if self._tracked:
            for offset in run.list_offsets():
                reference = self._tracked.get(offset)
                record = reference() if isinstance(reference, weakref.ref) else reference
                if record is not None:
                    found.append(record)
        return found

    # -- losses

    def note_reason(self, run: Run, reason: Reason) -> None:
        """Record why the locks of these records were lost."""
        offsets = run.list_offsets()
        if self._reasons:
            last, known = self._reasons[-1]
            if known == reason and last.stop == offsets.start:
                self._reasons[-1] = range(last.start, offsets.stop), reason
                return
        self._reasons.append((offsets, reason))

    def find_reason(self, offset: int) -> Reason:
        """Return why the lock of a record was lost."""
        return next((reason for offsets, reason in self._reasons if offset in offsets), "expired")

    def is_lost(self, offset: int, now: float | None = None) -> bool:
        """Return whether the lock of a record was lost, or has ended while it was not settled."""
        byte = self.states[offset - self.first]
        if byte > _HELD:
            return byte == LockState.LOST
        if now is None:
            now = self.partition.clock.monotonic()
        deadlines = self._deadlines
        return now >= (deadlines.get(offset, self.deadline) if deadlines else self.deadline)

    # -- deadlines

    def find_deadline(self, offset: int) -> float:
        """Return the time until which the lock of a record is certain."""
        return self._deadlines.get(offset, self.deadline) if self._deadlines else self.deadline

    def find_release_time(self) -> float:
        """Return the time until which records wait in the consumer."""
        return self.deadline - self.lock_s * (1 - DELIVERED_WITHIN)

    def has_own_deadlines(self) -> bool:
        """Return whether some records have a deadline of their own."""
        return bool(self._deadlines)

    def find_first_deadline(self, state: LockState) -> float:
        """Return the earliest deadline of the records in this state, infinity if there are none."""
        found = math.inf
        for run in self.find_runs(state):
            if not self._deadlines:
                return self.deadline
            found = min(found, *map(self.find_deadline, run.list_offsets()))
        return found

    def extend_locks(self, run: Run, deadline: float, lock_s: float) -> None:
        """Record that the leader has renewed the locks of these records."""
        self.lock_s = lock_s
        self.is_expiry_told = False
        others = self.states[: run.start] + self.states[run.stop :]
        if not others.strip(_FINAL):
            self._deadlines.clear()
            self.deadline = deadline
        else:
            self._deadlines.update(dict.fromkeys(run.list_offsets(), deadline))


_offset_of: Final = attrgetter("offset")


def acknowledge_types(run: Run) -> list[int]:
    """Return the types of a run in the form of the protocol: one type, or one for each offset."""
    kinds = run.acquisition.states[run.start : run.stop]
    if kinds.count(kinds[0]) == len(kinds):
        return [kinds[0] & 0x0F]
    return [byte & 0x0F for byte in kinds]
