"""The life of the records of a share partition, at the leader of the partition (KIP-932).

A record has one of these states. Records before the start offset have none: they are finished, or
were never there. Records after the end offset are not in flight yet.

    AVAILABLE      it can be acquired; `deliveries` is how often it was acquired before
    ACQUIRED       a member holds its lock, until `deadline`
    ACKNOWLEDGED   it was accepted
    ARCHIVED       it was rejected, has no content, or was acquired as often as the limit allows

    AVAILABLE --acquire, one more delivery--> ACQUIRED
    ACQUIRED  --accept--> ACKNOWLEDGED
    ACQUIRED  --reject, gap--> ARCHIVED
    ACQUIRED  --renew, new deadline--> ACQUIRED
    ACQUIRED  --settlement that waits for the share coordinator--> settling, still ACQUIRED
    settling  --stored--> as above
    settling  --given up--> ACQUIRED; the lock may have ended meanwhile
    ACQUIRED  --release, lost session, end of the lock--> AVAILABLE, or ARCHIVED after the last one
    any state --the log starts after it, aborted transaction--> ARCHIVED

The start offset moves over finished records, up to the first one that is not. The window from it to
the end offset is limited in offsets, not in locks: one record that is held at the start stops the
partition when everything after it is finished.

Records are in flight in ranges, one for each entry of a response. A range has one state for all of
its records until some of them get another one. From then on it has a state for each record. An
offset in a gap between ranges was
never in flight since the leader loaded the partition, or lies beyond the persisted ranges.

Records that are delivered often come in ever smaller parts, so that a record that makes members
fail does not archive its neighbors: from a count of half the limit on, half of a range, then a
quarter, and a record with one attempt left comes alone.

The table is pure: times are numbers that the caller gives, and nothing here waits or writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from aiokclient.testing.broker.codes import Code, Refused

_ALONE_ABOVE = 2
"""The limit of deliveries above which a record comes alone at its last attempt."""


class RecordState(IntEnum):
    """The state of a record, with the number under which Kafka persists it."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


_FINISHED = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class AckType(IntEnum):
    """The answer of a member about a record that it acquired."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_STATES = {
    AckType.GAP: RecordState.ARCHIVED,
    AckType.ACCEPT: RecordState.ACKNOWLEDGED,
    AckType.RELEASE: RecordState.AVAILABLE,
    AckType.REJECT: RecordState.ARCHIVED,
    AckType.RENEW: RecordState.ACQUIRED,
}


class OffsetRange(NamedTuple):
    """The offsets from `first` to `last`, both included."""

    first: int
    last: int


class Acquired(NamedTuple):
    """Records that were acquired by a request: the offsets, and their delivery count."""

    first: int
    last: int
    deliveries: int


class Settlement(NamedTuple):
    """The answer of a member about records, all of one state, that is allowed and not applied."""

    first: int
    last: int
    kind: AckType


class Acknowledgement(NamedTuple):
    """A range of offsets with one type for all, or with one for each."""

    first: int
    last: int
    types: Sequence[AckType]

    def find_type(self, offset: int) -> AckType:
        return self.types[0 if len(self.types) == 1 else offset - self.first]


class StateChange(NamedTuple):
    """A state of a range of records that is to be persisted."""

    first: int
    last: int
    state: RecordState
    deliveries: int


class DeadRecord(NamedTuple):
    """A record that goes to the dead letter topic, if the group has one."""

    offset: int
    deliveries: int
    is_rejected: bool


class Limits(NamedTuple):
    """The limits of a share partition, from the configs of its group."""

    deliveries: int
    window: int


class Wanted(NamedTuple):
    """The limits of one request. With `strict`, no more than `records` are acquired."""

    records: int
    batch_size: int
    strict: bool


class RecordLife:
    """The state of one record, or of all records of a range."""

    __slots__ = ("deadline", "deliveries", "is_settling", "member_id", "state")

    def __init__(
        self, state: RecordState, deliveries: int, member_id: str = "", deadline: float = 0.0
    ) -> None:
        self.state = state
        self.deliveries = deliveries
        self.member_id = member_id
        self.deadline = deadline
        self.is_settling = False

    @property
    def is_held(self) -> bool:
        """Whether a member holds the lock, and has not settled the record."""
        return self.state is RecordState.ACQUIRED and not self.is_settling

    def copy(self) -> RecordLife:
        copied = RecordLife(self.state, self.deliveries, self.member_id, self.deadline)
        copied.is_settling = self.is_settling
        return copied

    def acquire(self, member_id: str, deadline: float) -> None:
        self.state = RecordState.ACQUIRED
        self.deliveries += 1
        self.member_id = member_id
        self.deadline = deadline

    def leave(self, state: RecordState) -> None:
        """End the lock."""
        self.state = state
        self.member_id = ""


class InFlight:
    """A range of records in flight. `lives` has one item for all, or one for each record."""

    __slots__ = ("first", "last", "lives")

    def __init__(self, first: int, last: int, life: RecordLife) -> None:
        self.first = first
        self.last = last
        self.lives = [life]

    @property
    def is_split(self) -> bool:
        return len(self.lives) > 1 or self.first == self.last

    def __len__(self) -> int:
        return self.last - self.first + 1

    def split(self) -> None:
        """Give each record a state of its own."""
        if not self.is_split:
            (life,) = self.lives
            self.lives = [life, *(life.copy() for _ in range(len(self) - 1))]

    def iterate_pieces(self, first: int, last: int) -> Iterator[tuple[int, int, RecordLife]]:
        """Yield the parts between two offsets that have a state of their own."""
        first, last = max(first, self.first), min(last, self.last)
        if len(self.lives) == 1:
            if first <= last:
                yield first, last, self.lives[0]
            return
        for offset in range(first, last + 1):
            yield offset, offset, self.lives[offset - self.first]


class RecordTable:
    """The records of one share partition that are in flight, from `start` to `end`.

    `end` is the last offset that is in flight; `start - 1` if there is none.
    """

    def __init__(self, start: int, persisted: Iterable[StateChange] = ()) -> None:
        self.start = start
        self.end = start - 1
        self._floor = start
        """The offset before which nothing is acquired, even if it is in the same batch."""
        self.ranges: list[InFlight] = []
        for each in persisted:
            first = max(each.first, start)
            if first <= each.last:
                self.ranges.append(
                    InFlight(first, each.last, RecordLife(each.state, each.deliveries))
                )
                self.end = each.last
        self.dead: list[DeadRecord] = []
        """The records that were archived since the caller last took them."""
        self._advance_start()

    # -- looking ---------------------------------------------------------------------------

    def find_next_offset(self) -> int:
        """Return the first offset that can be acquired; the one after the end if there is none."""
        expected = self.start
        for each in self.ranges:
            if each.first > expected:
                return expected
            for first, _, life in each.iterate_pieces(self.start, each.last):
                if life.state is RecordState.AVAILABLE:
                    return first
            expected = each.last + 1
        return max(expected, self.start)

    def can_acquire(self, window: int) -> bool:
        """Return whether a fetch may acquire anything, if the log has records."""
        return self.end - self.start + 1 < window or self.find_next_offset() <= self.end

    def find_deadline(self) -> float | None:
        """Return the time at which the next lock ends."""
        held = (life.deadline for each in self.ranges for life in each.lives if life.is_held)
        return min(held, default=None)

    def count_finished(self) -> int:
        """Return the number of finished records after the start offset."""
        return sum(
            last - first + 1
            for each in self.ranges
            for first, last, life in each.iterate_pieces(self.start, each.last)
            if life.state in _FINISHED
        )

    # -- acquiring -------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        batches: Sequence[OffsetRange],
        fetch_offset: int,
        wanted: Wanted,
        limits: Limits,
        deadline: float,
    ) -> list[Acquired]:
        """Acquire records of these batches of the log, and return what was acquired.

        `fetch_offset` is the result of `find_next_offset` with which the batches were read.
        """
        if batches[0].first > fetch_offset:
            self._skip_gap(fetch_offset, batches[0].first - 1)
        most, last = self._limit_request(fetch_offset, wanted.records, batches[-1].last, limits)
        first = max(batches[0].first, self._floor)
        if most <= 0 or first > last:
            return []
        acquiring = _Acquiring(self, member_id, batches, wanted, limits, deadline, most)
        acquiring.acquire_range(first, last)
        return acquiring.result

    def _skip_gap(self, first: int, last: int) -> None:
        """Archive offsets whose batches compaction has removed."""
        self.archive_ranges([OffsetRange(first, last)])
        for each in self.find_overlap(first, last):
            if each.first > first:
                self.insert_range(InFlight(first, each.first - 1, _make_archived()))
            first = max(first, each.last + 1)
        if first <= last:
            self.insert_range(InFlight(first, last, _make_archived()))
        self._advance_start()

    def _limit_request(
        self, fetch_offset: int, records: int, last: int, limits: Limits
    ) -> tuple[int, int]:
        """Return the number of records that may be acquired, and the last offset of them."""
        room = limits.window - (self.end - self.start + 1)
        if room > 0:
            return min(records, room), last
        if fetch_offset > self.end:
            return 0, last
        # Records before the end were released. No others may follow.
        return min(records, self.end - fetch_offset + 1), min(last, self.end)

    def insert_range(self, added: InFlight) -> None:
        """Insert a range of records that were not in flight."""
        position = bisect_right(self.ranges, added.first, key=_get_first)
        self.ranges.insert(position, added)
        self.end = max(self.end, added.last)

    def find_overlap(self, first: int, last: int) -> list[InFlight]:
        """Return the ranges in flight that have offsets between these two."""
        position = bisect_right(self.ranges, first, key=_get_first)
        if position and self.ranges[position - 1].last >= first:
            position -= 1
        until = bisect_right(self.ranges, last, key=_get_first)
        return self.ranges[position:until]

    # -- acknowledging -----------------------------------------------------------------------

    def check_acknowledgements(
        self,
        member_id: str,
        batches: Iterable[Acknowledgement],
        deadline: float,
        *,
        can_renew: bool,
    ) -> list[Settlement]:
        """Return the settlements of a member, whose records are settling until they are applied.

        Raises Refused if one acknowledgement is not allowed. Renewals are applied at once, and
        those before the one that is not allowed stay in force. Offsets before the start offset are
        ignored, whatever the type.
        """
        settled: list[Settlement] = []
        try:
            for batch in batches:
                if batch.last < self.start:
                    continue
                for each in self._find_acknowledged(batch):
                    for first, last, life in self._find_pieces(member_id, batch, each):
                        kind = batch.find_type(first)
                        _check_life(life, member_id, kind, can_renew)
                        if kind is AckType.RENEW:
                            life.deadline = deadline
                        else:
                            life.is_settling = True
                            settled.append(Settlement(first, last, kind))
        except Refused:
            self.give_up(settled)
            raise
        return settled

    def apply_settlements(self, settled: Iterable[Settlement], limits: Limits) -> list[StateChange]:
        """Apply settlements, and return what is to be persisted."""
        changes = [
            self._settle(first, last, life, each.kind, limits)
            for each in settled
            for first, last, life in self._find_settling(each)
        ]
        self._advance_start()
        return changes

    def give_up(self, settled: Iterable[Settlement]) -> None:
        """Undo settlements that could not be stored."""
        for each in settled:
            for _, _, life in self._find_settling(each):
                life.is_settling = False

    def _find_settling(self, settled: Settlement) -> Iterator[tuple[int, int, RecordLife]]:
        for each in self.find_overlap(settled.first, settled.last):
            for first, last, life in each.iterate_pieces(settled.first, settled.last):
                if life.is_settling:
                    yield first, last, life

    def _find_acknowledged(self, batch: Acknowledgement) -> list[InFlight]:
        first = max(batch.first, self.start)
        found = self.find_overlap(first, batch.last)
        if not self.ranges or (batch.first >= self.start and batch.first < self.ranges[0].first):
            raise _refuse_state(
                "Batch record not found. The request batch offsets are not found in the cache."
            )
        for offset, which in ((first, "first"), (batch.last, "last")):
            if not found or offset > found[-1].last:
                raise Refused(
                    Code.INVALID_REQUEST,
                    f"Batch record not found. The {which} offset in request is past acquired "
                    "records.",
                )
        return found

    def _find_pieces(
        self, member_id: str, batch: Acknowledgement, in_flight: InFlight
    ) -> Iterator[tuple[int, int, RecordLife]]:
        """Yield the acknowledged parts of a range, which is split if necessary."""
        first, last = max(batch.first, self.start), batch.last
        if not in_flight.is_split:
            (life,) = in_flight.lives
            if life.member_id not in (member_id, ""):
                raise _refuse_state("Member is not the owner of batch record")
            is_whole = first <= in_flight.first and last >= in_flight.last
            if is_whole and len(batch.types) == 1:
                if not life.is_held:
                    raise _refuse_state(
                        "The batch cannot be acknowledged. The batch is not in the acquired state."
                    )
            elif not life.is_held:
                raise _refuse_state(
                    "The batch cannot be acknowledged. The subset batch is not in the acquired "
                    "state."
                )
            else:
                in_flight.split()
        return in_flight.iterate_pieces(first, last)

    def _settle(
        self, first: int, last: int, life: RecordLife, kind: AckType, limits: Limits
    ) -> StateChange:
        life.is_settling = False
        if kind is AckType.RELEASE:
            return self._make_available(first, last, life, limits)
        life.leave(_STATES[kind])
        if kind is AckType.REJECT:
            self._bury(first, last, life, is_rejected=True)
        return StateChange(first, last, life.state, life.deliveries)

    def _make_available(
        self, first: int, last: int, life: RecordLife, limits: Limits
    ) -> StateChange:
        """End a lock, and archive the records if they were delivered as often as allowed."""
        exhausted = life.deliveries >= limits.deliveries
        life.leave(RecordState.ARCHIVED if exhausted else RecordState.AVAILABLE)
        if exhausted:
            self._bury(first, last, life, is_rejected=False)
        return StateChange(first, last, life.state, life.deliveries)

    def _bury(self, first: int, last: int, life: RecordLife, *, is_rejected: bool) -> None:
        self.dead += [
            DeadRecord(each, life.deliveries, is_rejected) for each in range(first, last + 1)
        ]

    # -- ends of locks -----------------------------------------------------------------------

    def release_member(self, member_id: str, limits: Limits) -> list[StateChange]:
        """End all locks of a member, and return what is to be persisted."""
        return self._end_locks(lambda life: life.member_id == member_id, limits)

    def expire_locks(self, now: float, limits: Limits) -> list[StateChange]:
        """End the locks whose time has passed, and return what is to be persisted."""
        return self._end_locks(lambda life: life.deadline <= now, limits)

    def _end_locks(
        self, is_over: Callable[[RecordLife], bool], limits: Limits
    ) -> list[StateChange]:
        changes = [
            self._make_available(first, last, life, limits)
            for each in self.ranges
            for first, last, life in each.iterate_pieces(self.start, each.last)
            if life.is_held and is_over(life)
        ]
        self._advance_start()
        return changes

    # -- archiving ---------------------------------------------------------------------------

    def archive_before(self, offset: int) -> list[StateChange]:
        """Move the start offset to the new start of the log.

        Records that a member holds before it can still be acknowledged, without an effect. The
        batch in which the log starts is acquired from its first record on, as in Kafka.
        """
        if offset <= self.start:
            return []
        self.start = offset
        self.end = max(self.end, offset - 1)
        self._advance_start()
        return []

    def archive_ranges(
        self, ranges: Iterable[OffsetRange], *, with_acquired: bool = False
    ) -> list[StateChange]:
        """Archive records in flight that no member should get, such as aborted ones.

        As in Kafka, the start offset stays until a member acknowledges something.
        """
        changes = []
        for wanted in ranges:
            for each in self.find_overlap(wanted.first, wanted.last):
                if not (wanted.first <= each.first and wanted.last >= each.last):
                    each.split()
                for first, last, life in each.iterate_pieces(wanted.first, wanted.last):
                    if life.state is RecordState.AVAILABLE or (
                        life.state is RecordState.ACQUIRED and with_acquired
                    ):
                        life.leave(RecordState.ARCHIVED)
                        changes.append(StateChange(first, last, life.state, life.deliveries))
        return changes

    def _advance_start(self) -> None:
        """Move the start offset over finished records, and forget ranges before it."""
        while self.ranges:
            in_flight = self.ranges[0]
            if in_flight.first > self.start:
                return
            for first, last, life in in_flight.iterate_pieces(self.start, in_flight.last):
                if life.state not in _FINISHED:
                    self.start = self._floor = first
                    return
                self.start = self._floor = last + 1
            del self.ranges[0]
        self.end = max(self.end, self.start - 1)


class _Acquiring:
    """The acquisition of records for one request."""

    def __init__(
        self,
        table: RecordTable,
        member_id: str,
        batches: Sequence[OffsetRange],
        wanted: Wanted,
        limits: Limits,
        deadline: float,
        most: int,
    ) -> None:
        self.result: list[Acquired] = []
        self._table = table
        self._member_id = member_id
        self._batches = batches
        self._wanted = wanted
        self._limits = limits
        self._deadline = deadline
        self._left = most
        self._throttled_from = max(2, -(-limits.deliveries // 2))

    def acquire_range(self, first: int, last: int) -> None:
        """Acquire what is available between two offsets, and what is not in flight yet."""
        position = first
        for each in self._table.find_overlap(first, last):
            if each.first > position:
                self._acquire_new(position, each.first - 1)
            if self._left <= 0 or not self._acquire_again(each, first, last):
                return
            position = each.last + 1
        if position <= last:
            self._acquire_new(position, last)

    def _acquire_new(self, first: int, last: int) -> None:
        """Acquire records that were not in flight, as one range or as ranges of whole batches."""
        if self._left <= 0:
            return
        end = min(last, first + self._left - 1)
        containing = self._find_batch_end(end, last)
        if not self._wanted.strict:
            end = containing
        for piece in self._cut_pieces(first, end):
            life = RecordLife(RecordState.ACQUIRED, 1, self._member_id, self._deadline)
            self._table.insert_range(InFlight(*piece, life))
            self.result.append(Acquired(*piece, 1))
        if containing > end:
            rest = RecordLife(RecordState.AVAILABLE, 0)
            self._table.insert_range(InFlight(end + 1, containing, rest))
        self._left -= end - first + 1

    def _find_batch_end(self, offset: int, last: int) -> int:
        """Return the last offset of the batch with this offset, up to `last`."""
        ends = (each.last for each in self._batches if each.last >= offset)
        return min(next(ends, last), last)

    def _cut_pieces(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        size = self._wanted.batch_size
        if last - first + 1 > size:
            for batch in self._batches:
                if batch.first > last:
                    break
                if batch.first - first >= size:
                    yield first, batch.first - 1
                    first = batch.first
        yield first, last

    def _acquire_again(self, in_flight: InFlight, first: int, last: int) -> bool:
        """Acquire what is available of a range in flight. Return whether others may follow."""
        first, last = max(first, in_flight.first), min(last, in_flight.last)
        available = [
            life
            for _, _, life in in_flight.iterate_pieces(first, last)
            if life.state is RecordState.AVAILABLE
        ]
        if not available:
            return True
        often = max(life.deliveries for life in available)
        is_throttled = often >= self._throttled_from
        if is_throttled and self.result:
            return False
        is_whole = first == in_flight.first and last == in_flight.last
        too_many = self._wanted.strict and last - first + 1 > self._left
        if is_whole and not in_flight.is_split and not is_throttled and not too_many:
            (life,) = in_flight.lives
            self._take(first, last, life)
            return True
        in_flight.split()
        most = self._left if self._wanted.strict else len(in_flight)
        if is_throttled:
            fewer = len(in_flight) >> (often - self._throttled_from + 1)
            most = min(most, max(1, fewer))
        self._acquire_some(in_flight, first, last, most)
        return not is_throttled

    def _acquire_some(self, in_flight: InFlight, first: int, last: int, most: int) -> None:
        limit = self._limits.deliveries
        entry = len(self.result)
        for offset, _, life in in_flight.iterate_pieces(first, last):
            if life.state is not RecordState.AVAILABLE:
                continue
            is_last_attempt = limit > _ALONE_ABOVE and life.deliveries == limit - 1
            if is_last_attempt and self.result:
                self._left = 0
                return
            self._take(offset, offset, life)
            self._join_entries(entry)
            most -= 1
            if is_last_attempt or most <= 0:
                if is_last_attempt:
                    self._left = 0
                return

    def _join_entries(self, since: int) -> None:
        """Join the last two entries of a range if they are adjacent and have the same count."""
        if len(self.result) - since < 2:
            return
        before, last = self.result[-2:]
        if before.last + 1 == last.first and before.deliveries == last.deliveries:
            self.result[-2:] = [before._replace(last=last.last)]

    def _take(self, first: int, last: int, life: RecordLife) -> None:
        life.acquire(self._member_id, self._deadline)
        self.result.append(Acquired(first, last, life.deliveries))
        self._left -= last - first + 1


def _check_life(life: RecordLife, member_id: str, kind: AckType, can_renew: bool) -> None:
    """Raise Refused unless a member may acknowledge a record in this way."""
    if not life.is_held:
        raise _refuse_state("The offset cannot be acknowledged. The offset is not acquired.")
    if life.member_id != member_id:
        raise _refuse_state("Member is not the owner of offset")
    if kind is AckType.RENEW and not can_renew:
        raise _refuse_state("Renewing acquisition locks is not enabled for the group.")


def _make_archived() -> RecordLife:
    return RecordLife(RecordState.ARCHIVED, 0)


def _get_first(in_flight: InFlight) -> int:
    return in_flight.first


def _refuse_state(message: str) -> Refused:
    return Refused(Code.INVALID_RECORD_STATE, message)
