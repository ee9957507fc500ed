"""The state of one assigned partition: its position, and the parts for fetching and for the group.

The *position* is the offset of the next record to deliver. Before records can be fetched from it,
the position must be known, and it must be on the same history of the log as the records that were
read before it. `Phase` has the steps until both conditions are met, and `TRANSITIONS` has the
possible transitions:

    phase       while                                    SEEK      RESET      NEW_LEADER  CONFIRMED
    AWAITING    the committed offset is looked up        FETCHING  RESETTING  -           -
    RESETTING   ListOffsets looks up a `Reset`           FETCHING  RESETTING  -           -
    VALIDATING  OffsetForLeaderEpoch is asked whether    FETCHING  RESETTING  VALIDATING  FETCHING
                the log was truncated below the position
                (KIP-320)
    FETCHING    records are fetched and delivered        FETCHING  RESETTING  VALIDATING  -
    FAILED      an error is raised at every request      FETCHING  RESETTING  -           -
                while the partition is not paused

FAIL leads from every phase to FAILED, which only the application can end, by a seek or a reset.
AWAIT leads from every phase to AWAITING.

`generation` increases with every change that makes earlier requests obsolete: responses to fetches
and lookups of an earlier generation are dropped. `jumps` is the number of times that the position
was set. Records that were delivered before a jump are unrelated to offsets after it.

Offsets of a partition, from low to high:

    processed       all records before it are processed; automatic commits use it
    consumed        the position, or the lowest record of `tracked` that is not done; `commit()`
                    uses it
    position        all records before it were delivered or skipped
    fetch.offset    all records before it are buffered

`FetchState` has the part of the state that concerns fetching (the broker and the next offset),
`RetryState` the failures, delays, and lost positions, and `GroupState` the committed offset and the
rewind note. Only the methods of these classes change the state.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Iterable
from enum import Enum, IntFlag, auto
from heapq import heappop, heappush
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from aiokclient.cluster.requests.attempts import LastAnswer
from aiokclient.consumer.state.offset_reset import Reset
from aiokclient.errors import IllegalStateError, KafkaError
from aiokclient.metrics import Spread
from aiokclient.policy import Backoff
from aiokclient.types import OffsetAndMetadata, TopicPartition

REPLICA_IDLE_S: Final = 10.0
"""Seconds without records after which the leader is used again, because the replica may lag."""
REPLICA_REST_S: Final = 30.0
"""Seconds for which a partition is fetched from its leader after a preferred replica has failed."""


class FetchState:
    """The fetch part of a `PartitionState`. All times are on the monotonic clock."""

    __slots__ = (
        "_idle_at",
        "_preferred_until",
        "_rests_until",
        "damaged_at",
        "examined",
        "high_watermark",
        "lags",
        "last_stable",
        "leader",
        "leads",
        "log_start",
        "offset",
        "preferred",
        "want",
    )

    def __init__(self) -> None:
        self.offset = -1
        """The next offset to fetch, which is after all buffered records."""
        self.leader = -1
        """The broker that leads the partition, -1 if none is known."""
        self.high_watermark = -1
        """The high watermark at the last fetch, with any isolation level; -1 if unknown."""
        self.last_stable = -1
        """The last stable offset at the last fetch, with any isolation level; -1 if unknown."""
        self.log_start = -1
        """The first offset of the log at the last fetch, -1 if unknown."""
        self.lags = Spread()
        """The distances of fetched offsets to the high watermark."""
        self.leads = Spread()
        """The distances of fetched offsets from the log's start, where it was known."""
        self.want: Any = None
        """The last entry for a fetch request. It stays the same object until its values change."""
        self.examined = -1
        """The generation in which damage is buffered. No more is fetched until the reader has
        handled the damage."""
        self.damaged_at = -1
        """The offset of a damaged batch that is fetched for the second time, -1 for none."""
        self.preferred = -1
        """The replica to fetch from instead of the leader (KIP-392), -1 for none."""
        self._preferred_until = 0.0
        self._idle_at = 0.0
        self._rests_until = 0.0

    def set_leader(self, leader: int) -> None:
        """Store the leader; -1 for none."""
        self.leader = leader

    def fetch_from(self, offset: int) -> None:
        """Fetch this offset next."""
        self.offset = offset

    def store_want(self, want: Any) -> None:
        """Store the entry for fetch requests."""
        self.want = want

    def set_log_ends(self, high_watermark: int, log_start: int = -1, last_stable: int = -1) -> None:
        """Handle a response without an error."""
        self.high_watermark = high_watermark
        self.log_start = log_start
        self.last_stable = last_stable

    def forget_log(self) -> None:
        """Forget the end of the log, because the log was replaced."""
        self.high_watermark = self.log_start = self.last_stable = -1

    def stop_at_damage(self, generation: int) -> None:
        """Fetch nothing more in this generation: the buffered batches are damaged."""
        self.examined = generation

    def mark_refetched(self, damaged_at: int) -> None:
        """Record that the damaged batch at this offset is fetched for the second time."""
        self.damaged_at = damaged_at

    def forget_damage(self) -> None:
        """Forget a damaged batch, because the position has jumped."""
        self.damaged_at = -1

    # -- preferred replicas

    def prefer_replica(self, replica: int, now: float, seconds: float) -> None:
        """Fetch from a replica, for at most `seconds`, as long as it returns records."""
        self.preferred, self._preferred_until = replica, now + seconds
        self._idle_at = now + REPLICA_IDLE_S

    def on_replica_records(self, now: float) -> None:
        """Record that the preferred replica, if there is one, has returned records."""
        if self.preferred >= 0:
            self._idle_at = now + REPLICA_IDLE_S

    def is_replica_usable(self, now: float) -> bool:
        """Return whether to fetch from the preferred replica."""
        return now < self._preferred_until and now < self._idle_at

    def use_leader(self) -> None:
        """Fetch from the leader, which may name a preferred replica again."""
        self.preferred = -1

    def rest_replica(self, now: float) -> None:
        """Fetch from the leader, and ignore its preferred replica for REPLICA_REST_S."""
        self.preferred = -1
        self._rests_until = now + REPLICA_REST_S

    def is_resting(self, now: float) -> bool:
        """Return whether the leader's preferred replica is ignored at present."""
        return self._rests_until > now


LASTING: Final = 4
"""The number of consecutive failures after which a warning is logged."""
WARNED_EVERY_S: Final = 30.0
"""Seconds between two warnings about the same partition."""
LOSSES_S: Final = 30.0
"""After this many seconds without a lost position, earlier losses no longer count."""


class RetryState:
    """The retry part of a `PartitionState`. All times are on the monotonic clock."""

    __slots__ = ("_losses", "_lost_at", "_warned_until", "at", "attempts", "last", "trouble")

    def __init__(self) -> None:
        self.at = 0.0
        """The earliest time of the next request; infinity while a lookup is in flight."""
        self.attempts = 0
        """The number of consecutive failures."""
        self.trouble: KafkaError | None = None
        """The last error of the brokers; None after a response without an error."""
        self.last = LastAnswer()
        """The last error of the same attempts, which is a refusal if one of them was refused."""
        self._warned_until = -math.inf
        self._losses = 0  # Losses of the position without a long pause between them.
        self._lost_at = -math.inf

    def begin_lookup(self) -> None:
        """Request nothing more until a lookup is answered, or the position jumps."""
        self.at = math.inf

    def delay_request(self, until: float, trouble: KafkaError | None = None) -> bool:
        """Request nothing for this partition until that time; return whether to log the trouble.

        The result is true at most once in a series of failed attempts, and at most once in
        WARNED_EVERY_S.
        """
        self.attempts += 1
        self.at = until
        self.trouble = trouble
        if trouble is not None:
            self.last.note_error(trouble)
        if trouble is None or self.attempts != LASTING or until <= self._warned_until:
            return False
        self._warned_until = until + WARNED_EVERY_S
        return True

    def on_position_lost(self, now: float, backoff: Backoff, rng: random.Random) -> None:
        """Record that the position was lost; delay requests if that happens repeatedly."""
        self._losses = self._losses + 1 if now - self._lost_at < LOSSES_S else 1
        self._lost_at = now
        if self._losses > 1:
            self.at = now + backoff.compute_delay_s(self._losses - 2, rng)

    def on_success(self) -> None:
        """Record a response without an error."""
        self.attempts, self.at = 0, 0.0
        if self.trouble is not None:
            self.trouble, self.last = None, LastAnswer()

    def make_due(self) -> None:
        """Allow the next request at once, because the partition has a new leader."""
        self.at = 0.0


class GroupState:
    """The group part of a `PartitionState`."""

    __slots__ = ("committed", "fallback", "note")

    def __init__(self) -> None:
        self.committed = -1
        """The committed offset, as known since the last jump of the position; -1 if unknown."""
        self.fallback = -1
        """The offset at which to continue if the group has committed none; -1 for none."""
        self.note = ""
        """The rewind note, which is the metadata of commits without other metadata."""

    def set_committed(self, offset: int) -> None:
        """Store the committed offset."""
        self.committed = offset

    def forget_committed(self) -> None:
        """Allow commits of lower offsets again, after a jump."""
        self.committed = self.fallback = -1

    def set_fallback(self, offset: int) -> None:
        """Continue at this offset if the group has committed none, until the next jump."""
        self.fallback = offset

    def set_note(self, note: str) -> None:
        """Send this metadata with the next commits."""
        self.note = note


NO_EPOCH: Final = -1
FORMER: Final = 4
"""The number of earlier topics of the same name whose positions are kept."""


class Phase(Enum):
    """The progress of finding and validating the position; see the table above."""

    AWAITING = auto()
    RESETTING = auto()
    VALIDATING = auto()
    FETCHING = auto()
    FAILED = auto()


class Withheld(IntFlag):
    """The reasons why the library delivers no records of a partition that is not paused."""

    NOTHING = 0
    LISTENER = auto()  # `on_assigned` of the listener has not returned yet
    INITIAL_OFFSET = auto()  # the initial offset of the group is not committed yet
    REVOKING = auto()  # the partition is about to be revoked
    UNSUBSCRIBED = auto()  # its topic is no longer subscribed
    REWINDING = auto()  # a rewind request is being executed
    UNCONFIRMED = auto()  # the coordinator has not answered for the session timeout
    END_OFFSET = auto()  # an iteration that ends at an offset has reached it
    FULL = auto()  # the lanes of a worker have no room for its records
    PREPARATION = auto()  # the deserializers are not prepared for the next record


NOTHING: Final = Withheld.NOTHING


class Event(Enum):
    """An event that concerns a position."""

    SEEK = auto()  # The application, the group, or a lookup has set an offset.
    RESET = auto()  # An offset must be looked up.
    NEW_LEADER = auto()  # The partition has a leader of a newer epoch.
    CONFIRMED = auto()  # The position is on the leader's history.
    FAIL = auto()  # An error that only the application can resolve.
    AWAIT = auto()  # The committed offset of the group must be looked up.


_EVERY_PHASE = {
    Event.SEEK: Phase.FETCHING,
    Event.RESET: Phase.RESETTING,
    Event.FAIL: Phase.FAILED,
    Event.AWAIT: Phase.AWAITING,
}

TRANSITIONS = MappingProxyType(
    {
        **{(phase, event): to for phase in Phase for event, to in _EVERY_PHASE.items()},
        (Phase.FETCHING, Event.NEW_LEADER): Phase.VALIDATING,
        (Phase.VALIDATING, Event.NEW_LEADER): Phase.VALIDATING,
        (Phase.VALIDATING, Event.CONFIRMED): Phase.FETCHING,
    }
)
"""The next phase for each phase and event; every other event is a bug."""


class DeliveredList(list[Any]):
    """Records of one partition, in order, that a worker handles together.

    They are outstanding as one, by the offset of the first record, until all are done. So a list
    costs as much as a record. `divide_list` makes its records, or parts of it, outstanding apart.
    """

    __slots__ = ("leader_epoch", "offset")

    def __init__(self, records: Iterable[Any]) -> None:
        super().__init__(records)
        self.offset: int = self[0].offset
        self.leader_epoch: int = self[0].leader_epoch


def count_delivered(entry: Any) -> int:
    """Return the number of records of an entry: a record or a `DeliveredList`."""
    return len(entry) if isinstance(entry, DeliveredList) else 1


class PartitionState:
    """The state of one assigned partition. The module's docstring describes offsets and phases.

    `fetch` has the state that only fetching needs, `group` has the state that concerns the group,
    and `retry` has the failures and delays of requests.
    """

    __slots__ = (
        "_former",
        "_offsets",
        "error",
        "fetch",
        "generation",
        "group",
        "has_returned",
        "jumps",
        "leader_epoch",
        "origin",
        "outstanding",
        "paused",
        "phase",
        "position",
        "position_epoch",
        "processed",
        "processed_epoch",
        "reset",
        "retry",
        "topic_id",
        "tp",
        "withheld",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.topic_id: UUID | None = None
        self.fetch = FetchState()
        self.group = GroupState()
        self.retry = RetryState()
        self.phase = Phase.AWAITING
        self.generation = 0
        self.jumps = 0
        self.position = -1
        self.position_epoch = NO_EPOCH  # The epoch of the record before the position.
        self.origin = -1  # The offset after the last jump.
        self.processed = -1
        self.processed_epoch = NO_EPOCH  # The epoch of the record before `processed`.
        # Records that `tracked` or a worker has delivered and that are not done: offset to (record,
        # time of delivery). A `DeliveredList` stands for all of its records.
        self.outstanding: OrderedDict[int, tuple[Any, float]] = OrderedDict()
        # Whether the position went back to an outstanding record, or a list was divided, so that
        # later ones of `outstanding` may have lower offsets.
        self.has_returned = False
        # While `has_returned`, the outstanding offsets as a heap, and some that are outstanding no
        # more.
        self._offsets: list[int] = []
        self.leader_epoch = NO_EPOCH  # The epoch of the leader.
        self.reset: Reset | None = None  # The way to find an offset in RESETTING.
        self.error: KafkaError | None = (
            None  # The reason in the phase FAILED, or of `set_obstruction`.
        )
        self.paused = False  # Whether the application has paused it.
        self.withheld = NOTHING
        # The position, its epoch, and `processed`, for each topic id that the name had before.
        self._former: dict[UUID, tuple[int, int, int]] = {}

    def __repr__(self) -> str:
        return f"PartitionState({self.tp}, {self.phase.name}, position={self.position})"

    @property
    def is_readable(self) -> bool:
        """Whether records may be fetched and delivered."""
        # The comparison is faster than the truth value of a flag.
        return self.phase is Phase.FETCHING and not self.paused and self.withheld is NOTHING

    @property
    def is_at_end(self) -> bool:
        """Whether an iteration that ends at an offset has reached that offset."""
        return Withheld.END_OFFSET in self.withheld

    @property
    def consumed(self) -> int:
        """The offset that `commit()` commits; see the module's docstring."""
        if self.has_returned:
            return self._find_lowest()
        return next(iter(self.outstanding), self.position)

    def _find_lowest(self) -> int:
        """Return the lowest of the position and the outstanding offsets, in any order of these."""
        offsets = self._offsets
        while offsets and offsets[0] not in self.outstanding:
            heappop(offsets)
        return min(offsets[0], self.position) if offsets else self.position

    @property
    def is_located(self) -> bool:
        """Whether the position is known."""
        return self.phase in (Phase.FETCHING, Phase.VALIDATING) or (
            self.phase is Phase.FAILED and self.position >= 0
        )

    @property
    def is_leaderless(self) -> bool:
        """Whether the position is known, but no broker leads the partition."""
        return self.phase is Phase.FETCHING and self.fetch.leader < 0

    @property
    def has_uncommitted(self) -> bool:
        """Whether records were delivered that may not be committed yet."""
        return self.is_located and self.position > max(self.group.committed, self.origin)

    def find_lowest_record(self) -> tuple[Any, float] | None:
        """Return the lowest outstanding record, and when it was delivered; None without any."""
        outstanding = self.outstanding
        if not outstanding:
            return None
        if self.has_returned:
            self._find_lowest()
            return outstanding[self._offsets[0]]
        return next(iter(outstanding.values()))

    def make_commit(self, offset: int) -> OffsetAndMetadata:
        """Return the offset for a commit, with the leader epoch of the record before it.

        For an offset in `outstanding`, the result has the epoch of the record at that offset
        instead. It serves the same purpose: a log that has that record also has the one before it.
        """
        epoch: int | None = self.position_epoch
        if offset != self.position:
            entry = self.outstanding.get(offset)
            if entry is not None:
                epoch = entry[0].leader_epoch
            else:
                epoch = self.processed_epoch if offset == self.processed else NO_EPOCH
        return OffsetAndMetadata(offset, self.group.note, None if epoch == NO_EPOCH else epoch)

    # -- jumps of the position

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Move to an offset; `epoch` is that of the record before it, if it is known."""
        self.set_located_offset(offset, epoch)
        if epoch != NO_EPOCH and epoch < self.leader_epoch:
            self._apply_event(Event.NEW_LEADER)

    def set_located_offset(self, offset: int, epoch: int) -> None:
        """Move to an offset that the present leader has returned."""
        self._apply_jump(Event.SEEK)
        self._set_position(offset, epoch)
        self.fetch.fetch_from(offset)

    def start_at_committed(self, offset: int, epoch: int) -> None:
        """Move to the offset that the group has committed."""
        self.seek(offset, epoch)
        self.group.set_committed(offset)

    def move_in_buffer(self, offset: int, epoch: int) -> None:
        """Move to an offset that is buffered. Fetched records and requests remain valid."""
        self.jumps += 1
        self._set_position(offset, epoch)
        self.fetch.forget_damage()
        self.group.forget_committed()
        self.forget_outstanding()

    def look_up(self, reset: Reset) -> None:
        """Discard the position, and look it up by this reset."""
        self._apply_jump(Event.RESET)
        self.reset = reset
        self._set_position(-1, NO_EPOCH)
        self.fetch.fetch_from(-1)

    def replace_reset(self, reset: Reset) -> None:
        """Replace the reset of the last `look_up`."""
        self.reset = reset

    def return_to_committed(self, fallback: int) -> None:
        """Discard the position, and continue at the group's committed offset.

        If the group has none, continue at `fallback`.
        """
        self._apply_jump(Event.AWAIT)
        self.group.set_fallback(fallback)
        self._set_position(-1, NO_EPOCH)
        self.fetch.fetch_from(-1)

    def _set_position(self, offset: int, epoch: int) -> None:
        self.position = self.processed = self.origin = offset
        self.position_epoch = self.processed_epoch = epoch

    # -- delivered and processed

    def move_position(self, offset: int, epoch: int) -> None:
        """Move the position to `offset`, because all records before it were delivered or skipped.

        `epoch` is the leader epoch of the record before it.
        """
        self.position, self.position_epoch = offset, epoch

    def mark_processed_before(self, offset: int, *, epoch_known: bool) -> None:
        """Count delivered records before `offset` as processed.

        `epoch_known` says whether `position_epoch` is also the epoch of the record before `offset`.
        """
        self.processed = min(offset, self.consumed if self.outstanding else self.position)
        if epoch_known:
            self.processed_epoch = self.position_epoch

    def mark_all_processed(self) -> None:
        """Count all delivered records as processed, except for outstanding ones."""
        if self.outstanding:
            self.processed = self.consumed
        else:
            self.processed, self.processed_epoch = self.position, self.position_epoch

    def track_record(self, record: Any, time: float) -> None:
        """Record that `tracked` has delivered a record."""
        self.outstanding[record.offset] = (record, time)
        if self.has_returned:
            heappush(self._offsets, record.offset)

    def track_records(self, records: Iterable[Any], time: float) -> None:
        """Record that a worker has got these records. It does what `track_record` does for each."""
        outstanding = self.outstanding
        for record in records:
            outstanding[record.offset] = (record, time)
        if self.has_returned:
            for record in records:
                heappush(self._offsets, record.offset)

    def divide_list(self, whole: DeliveredList, parts: Iterable[Any]) -> None:
        """Make parts of an outstanding list, which are lists or records, outstanding apart.

        The parts have all records of the list. Does nothing if the list is not outstanding.
        """
        outstanding = self.outstanding
        entry = outstanding.get(whole.offset)
        if entry is None or entry[0] is not whole:
            return
        if not self.has_returned and next(reversed(outstanding)) != whole.offset:
            self._offsets = sorted(outstanding)
            self.has_returned = True
        for part in sorted(parts, key=attrgetter("offset")):
            # A part that was delivered again has an entry, which stands for later records, too.
            if part.offset == whole.offset or part.offset not in outstanding:
                self.track_record(part, entry[1])

    def count_outstanding(self) -> int:
        """Return the number of outstanding records."""
        return sum(count_delivered(entry) for entry, _ in self.outstanding.values())

    def finish_record(self, record: Any) -> bool:
        """Count a record, or a list, as done; return False if this object is not outstanding."""
        entry = self.outstanding.get(record.offset)
        if entry is None or entry[0] is not record:
            return False
        del self.outstanding[record.offset]
        # This is `mark_all_processed` without calls, because it runs for each record of `tracked`.
        if self.has_returned:
            self.processed = self._find_lowest()
        else:
            self.processed = next(iter(self.outstanding), self.position)
        if not self.outstanding:
            self.processed_epoch = self.position_epoch
            self.has_returned = False
        return True

    def return_records(self, records: Iterable[Any]) -> None:
        """Deliver these outstanding records, and all records after the lowest of them, again.

        Other outstanding records stay outstanding. Records that are no longer outstanding, because
        the position has jumped, are ignored.
        """
        outstanding = self.outstanding
        returned = [
            record
            for record in records
            if (entry := outstanding.get(record.offset)) is not None and entry[0] is record
        ]
        if not returned:
            return
        for record in returned:
            del outstanding[record.offset]
        first = min(returned, key=attrgetter("offset"))
        if not self.has_returned:
            # If records were returned before, the heap has all of them.
            self._offsets = sorted(outstanding)
        self.has_returned = bool(outstanding)
        if first.offset < self.position:
            # The record itself stands for the one before it, as in `make_commit`.
            self.move_position(first.offset, first.leader_epoch)
            self.rewind()

    def forget_outstanding(self) -> None:
        """Remove all outstanding records."""
        self.outstanding.clear()
        self.has_returned = False

    # -- delivery stopped and continued

    def pause(self, paused: bool) -> None:
        """Pause or resume, for the application."""
        self.paused = paused

    def withhold(self, why: Withheld, on: bool) -> None:
        """Add or remove a reason to deliver no records."""
        self.withheld = self.withheld | why if on else self.withheld & ~why

    # -- the topic and its leader

    def set_topic_id(self, topic_id: UUID) -> None:
        """Store the topic's id, which was not known before."""
        self.topic_id = topic_id

    def replace_topic(self, topic_id: UUID) -> bool:
        """Store the id of another topic with the same name; return whether its position is known.

        The position is known if the name had this id before: a lagging broker may temporarily
        return the id of a deleted topic.
        """
        if self.topic_id is not None and self.is_located:
            self._former[self.topic_id] = (self.position, self.position_epoch, self.processed)
            if len(self._former) > FORMER:
                del self._former[next(iter(self._former))]
        self.topic_id = topic_id
        self.leader_epoch = NO_EPOCH
        self.fetch.forget_log()
        known = self._former.pop(topic_id, None)
        if known is None:
            return False
        offset, epoch, processed = known
        self.set_located_offset(offset, epoch)
        self.processed = processed
        return True

    def forget_topic(self) -> None:
        """Forget the topic and its leader, because the client has moved to another cluster."""
        self.topic_id, self.leader_epoch = None, NO_EPOCH
        self._former.clear()
        self.fetch.forget_log()
        self.fetch.set_leader(-1)
        self.fetch.use_leader()
        self.group.set_note("")

    def set_leader_epoch(self, leader_epoch: int) -> bool:
        """Store the epoch of the leader; return whether the position must be validated.

        The epoch may be lower than before, when the metadata has accepted that (see `topic_ids`).
        """
        if leader_epoch == self.leader_epoch or leader_epoch == NO_EPOCH:
            return False
        self.leader_epoch = leader_epoch
        self.retry.make_due()
        # A position without a known epoch cannot be compared with the leader's epoch.
        is_older = self.position_epoch != NO_EPOCH and self.position_epoch < leader_epoch
        if not is_older:
            if self.phase is Phase.VALIDATING:
                self.confirm_position()  # The epoch went back, so nothing can be compared any more.
            return False
        if (self.phase, Event.NEW_LEADER) not in TRANSITIONS:
            return False
        self._apply_event(Event.NEW_LEADER)
        self.rewind()
        return True

    def confirm_position(self) -> None:
        """Record that the position is on the leader's history."""
        self._apply_event(Event.CONFIRMED)
        self.retry.on_success()

    # -- failures

    def fail(self, error: KafkaError) -> None:
        """Raise the error at every request from now on. The position remains available."""
        self._apply_event(Event.FAIL)
        self.generation += 1
        self.error = error

    def set_obstruction(self, error: KafkaError) -> None:
        """Raise the error at every request until records at the position are fetched."""
        self.rewind()
        self.error = error

    def clear_error(self) -> None:
        """Raise the error of `set_obstruction` no more."""
        self.error = None
        self.fetch.store_want(None)

    @property
    def is_obstructed(self) -> bool:
        """Whether the records at the position cannot be fetched now, but perhaps later."""
        return self.error is not None and self.phase is not Phase.FAILED

    @property
    def must_raise(self) -> bool:
        """Whether a request for records must raise `error`, which a pause defers."""
        if self.phase is Phase.FAILED:
            return not self.paused
        return self.error is not None and self.is_readable

    def rewind(self) -> None:
        """Drop all fetched records, and fetch from the position again."""
        self.generation += 1
        self.fetch.fetch_from(self.position)

    def fetch_again(self, damaged_at: int) -> None:
        """Fetch a damaged batch for the second time."""
        self.fetch.mark_refetched(damaged_at)
        self.rewind()

    def restart_fetching(self) -> None:
        """Start again at the position, without buffered records and requests.

        Fetching waits until the metadata was examined, because the topic may have been replaced.
        """
        self.rewind()
        self.fetch.set_leader(-1)
        self.retry.on_success()
        self.withheld = NOTHING

    def on_removed(self) -> None:
        """Ignore responses and outstanding records, because the partition is no longer assigned."""
        self.generation += 1
        self.forget_outstanding()

    def _apply_jump(self, event: Event) -> None:
        self._apply_event(event)
        self.generation += 1
        self.jumps += 1
        self.error = self.reset = None
        self.fetch.forget_damage()
        self.group.forget_committed()
        self.forget_outstanding()
        self.retry.on_success()

    def _apply_event(self, event: Event) -> None:
        to = TRANSITIONS.get((self.phase, event))
        if to is None:
            raise IllegalStateError(f"The event {event.name} cannot happen to {self!r}.")
        self.phase = to
