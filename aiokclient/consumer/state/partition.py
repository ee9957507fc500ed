"""The position of one assigned partition, as a table of states and events.

A position says which record is handed out next. Before records can be fetched at a position it
has to be known, and it has to be on the same history of the log as what was read before it:

    AWAITING     somebody else (the group) is about to say where to begin
    RESETTING    the offset is looked up with ListOffsets, by a `Reset`
    VALIDATING   the leader changed: OffsetForLeaderEpoch tells whether the log was cut back
                 behind the position (KIP-320)
    FETCHING     records are fetched and handed out
    FAILED       an error is raised at every request until the user seeks or resets

`generation` counts the jumps. What was asked for in an earlier generation (a fetch, a lookup) is
void when its answer comes.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from enum import Enum, IntFlag, auto
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from aiokclient.consumer.state.offset_reset import Reset
from aiokclient.errors import IllegalStateError, KafkaError
from aiokclient.policy import Backoff
from aiokclient.types import OffsetAndMetadata, TopicPartition

__all__ = ["TRANSITIONS", "Event", "PartitionState", "Phase", "Withheld"]

NO_EPOCH: Final = -1
LASTING: Final = 4
"""So many refusals in a row are no passing trouble."""
FORMER: Final = 4
"""So many topics of the same name have their positions kept."""
TOLD_EVERY_S: Final = 30.0
"""Seconds between two warnings about the same partition."""
LOSSES_S: Final = 30.0
"""After so many seconds without a loss of the position, earlier losses no longer count."""


class Phase(Enum):
    AWAITING = auto()
    RESETTING = auto()
    VALIDATING = auto()
    FETCHING = auto()
    FAILED = auto()


class Withheld(IntFlag):
    """Why the library hands out nothing of a partition, though the program has not paused it."""

    NOTHING = 0
    LISTENER = auto()  # the listener has not been told of it yet
    START = auto()  # where the group begins in it is not committed yet
    LEAVING = auto()  # it is about to be given up
    UNWANTED = auto()  # it is not subscribed to any more
    REWINDING = auto()  # the group goes back
    UNCONFIRMED = auto()  # the coordinator has not answered for the session timeout


class Event(Enum):
    SEEK = auto()  # the user, the group or a lookup names an offset
    RESET = auto()  # an offset is to be looked up
    LED_ANEW = auto()  # the partition has a leader of a newer epoch
    CONFIRMED = auto()  # the position is on the leader's history
    FAIL = auto()  # nothing but the user can help


_EVERY_PHASE = {
    Event.SEEK: Phase.FETCHING,
    Event.RESET: Phase.RESETTING,
    Event.FAIL: Phase.FAILED,
}

TRANSITIONS = MappingProxyType(
    {
        **{(phase, event): to for phase in Phase for event, to in _EVERY_PHASE.items()},
        (Phase.FETCHING, Event.LED_ANEW): Phase.VALIDATING,
        (Phase.VALIDATING, Event.LED_ANEW): Phase.VALIDATING,
        (Phase.VALIDATING, Event.CONFIRMED): Phase.FETCHING,
    }
)
"""(phase, event) to the next phase; what is not here cannot happen."""


class PartitionState:
    """All that a consumer knows of one assigned partition.

    `position` is the offset of the next record to hand out, `position_epoch` the leader epoch of
    the record before it, `processed` the offset up to which the program is done, `fetch_offset`
    the one to fetch next: it runs ahead of the position by what is buffered.
    """

    __slots__ = (
        "attempts",
        "committed",
        "damaged_at",
        "error",
        "examined",
        "fetch_offset",
        "former",
        "generation",
        "held",
        "high_watermark",
        "jumps",
        "leader",
        "leader_epoch",
        "losses",
        "lost_at",
        "no_replica_until",
        "note",
        "origin",
        "outstanding",
        "paused",
        "phase",
        "position",
        "position_epoch",
        "preferred",
        "preferred_idle",
        "preferred_until",
        "processed",
        "processed_epoch",
        "reset",
        "retry_at",
        "told_until",
        "topic_id",
        "tp",
        "trouble",
        "want",
        "withheld",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.topic_id: UUID | None = None
        # Position, epoch and what is processed, by the ids that the topic's name had before.
        self.former: dict[UUID, tuple[int, int, int]] = {}
        self.phase = Phase.AWAITING
        self.generation = 0
        self.position = -1
        self.position_epoch = NO_EPOCH
        self.origin = -1  # where the position was set last, by a seek or a lookup
        self.processed = -1
        self.processed_epoch = NO_EPOCH  # of the record before `processed`
        self.fetch_offset = -1
        self.leader = -1
        self.leader_epoch = NO_EPOCH  # the position is known to be on the history of this epoch
        self.reset: Reset | None = None  # how to look the offset up, while RESETTING
        self.error: KafkaError | None = None  # while FAILED
        self.paused = False  # by the user
        self.held = False  # by an iteration that ends at an offset
        self.withheld = Withheld.NOTHING
        self.jumps = 0  # how often the position was set anew
        self.committed = -1  # what the group has, as far as is known since the last jump
        self.note = ""  # the metadata of commits that have none of their own
        # By `tracked`, and not done: offset to (record, when it was handed out).
        self.outstanding: OrderedDict[int, tuple[Any, float]] = OrderedDict()
        self.attempts = 0  # failures in a row
        self.retry_at = 0.0  # on the monotonic clock; nothing is asked for before
        self.preferred = -1  # the replica to read from instead of the leader (KIP-392)
        self.preferred_until = 0.0  # then the leader is asked again
        self.preferred_idle = 0.0  # likewise, but records put it off
        self.no_replica_until = 0.0
        self.examined = -1  # the generation in which damage is buffered; nothing more is fetched
        self.losses = 0  # how often the position was lost since `lost_at`, without a long pause
        self.lost_at = -math.inf  # on the monotonic clock
        self.told_until = -math.inf  # no warning about refusals before, on the monotonic clock
        self.damaged_at = -1  # the offset of a batch that is fetched for the second time
        self.high_watermark = -1
        self.trouble: KafkaError | None = None  # what the brokers said last, if they refused
        self.want: Any = None  # what the fetchers made of it last

    def __repr__(self) -> str:
        return f"PartitionState({self.tp}, {self.phase.name}, position={self.position})"

    @property
    def flowing(self) -> bool:
        """Whether records may be fetched and handed out."""
        return self.phase is Phase.FETCHING and not (self.paused or self.held or self.withheld)

    @property
    def consumed(self) -> int:
        """The offset up to which the program has records, without one that it still works on.

        That is the position, or the lowest record that `tracked` gave out and that is not done.
        """
        return next(iter(self.outstanding), self.position)

    @property
    def located(self) -> bool:
        """Whether the position is known."""
        return self.phase in (Phase.FETCHING, Phase.VALIDATING) or (
            self.phase is Phase.FAILED and self.position >= 0
        )

    @property
    def leaderless(self) -> bool:
        """Whether it waits for a broker to lead it."""
        return self.phase is Phase.FETCHING and self.leader < 0

    def to_commit(self, offset: int) -> OffsetAndMetadata:
        """Return the offset as a commit names it, with the leader epoch that belongs to it.

        That is the epoch of the record before it. Of an offset that `tracked` waits for it is the
        epoch of the record at it, which is never older: a log that has the record has both.
        """
        epoch: int | None = self.position_epoch
        if offset != self.position:
            entry = self.outstanding.get(offset)
            if entry is not None:
                epoch = entry[0].leader_epoch
            else:
                epoch = self.processed_epoch if offset == self.processed else NO_EPOCH
        return OffsetAndMetadata(offset, self.note, None if epoch == NO_EPOCH else epoch)

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Moves to an offset; `epoch` is that of the record before it, if it is known."""
        self.located_at(offset, epoch)
        if epoch != NO_EPOCH and epoch < self.leader_epoch:
            self._apply(Event.LED_ANEW)

    def located_at(self, offset: int, epoch: int) -> None:
        """Moves to an offset that the current leader has named."""
        self._jump(Event.SEEK)
        self.position = self.processed = self.fetch_offset = self.origin = offset
        self.position_epoch = self.processed_epoch = epoch

    def move_within(self, offset: int, epoch: int) -> None:
        """Move to an offset that is buffered: what was fetched and requested stays valid."""
        self.jumps += 1
        self.position = self.processed = self.origin = offset
        self.position_epoch = self.processed_epoch = epoch
        self.damaged_at = self.committed = -1
        self.outstanding.clear()

    def look_up(self, reset: Reset) -> None:
        """Has the position looked up anew."""
        self._jump(Event.RESET)
        self.reset = reset
        self.position = self.processed = self.fetch_offset = self.origin = -1
        self.position_epoch = self.processed_epoch = NO_EPOCH

    def named_anew(self, topic_id: UUID) -> bool:
        """Take note that the name stands for another topic; return whether it has a position.

        It has if it was the topic before: a lagging broker may tell the id of a deleted one.
        """
        if self.topic_id is not None and self.located:
            self.former[self.topic_id] = (self.position, self.position_epoch, self.processed)
            if len(self.former) > FORMER:
                del self.former[next(iter(self.former))]
        self.topic_id = topic_id
        self.leader_epoch = NO_EPOCH
        known = self.former.pop(topic_id, None)
        if known is None:
            return False
        offset, epoch, processed = known
        self.located_at(offset, epoch)
        self.processed = processed
        return True

    def await_start(self) -> None:
        """Leaves the position open until somebody names one."""
        self.generation += 1
        self.phase = Phase.AWAITING

    def led_anew(self, leader_epoch: int) -> bool:
        """Takes note of the leader's epoch; True if the position has to be validated."""
        if leader_epoch <= self.leader_epoch:
            return False
        self.leader_epoch = leader_epoch
        self.retry_at = 0.0
        # A position that no record gave an epoch to has nothing to be compared by.
        behind = self.position_epoch != NO_EPOCH and self.position_epoch < leader_epoch
        if not behind or (self.phase, Event.LED_ANEW) not in TRANSITIONS:
            return False
        self._apply(Event.LED_ANEW)
        self.rewind()
        return True

    def confirmed(self) -> None:
        """The position is on the leader's history."""
        self._apply(Event.CONFIRMED)
        self.succeeded()

    def fail(self, error: KafkaError) -> None:
        """Raises the error at every request from now on; the position stays readable."""
        self._apply(Event.FAIL)
        self.generation += 1
        self.error = error

    def rewind(self) -> None:
        """Forgets what was fetched ahead of the position."""
        self.generation += 1
        self.fetch_offset = self.position

    def begin_again(self) -> None:
        """Start again at the position: nothing is buffered and nothing is requested any more.

        Nothing is fetched before the metadata was looked at: the topic may be another one.
        """
        self.rewind()
        self.leader = -1
        self.succeeded()
        self.held = False
        self.withheld = Withheld.NOTHING

    def back_off(self, until: float, trouble: KafkaError | None = None) -> bool:
        """Ask for nothing of this partition until then; return whether the trouble now lasts.

        That is so once, of many refusals in a row.
        """
        self.attempts += 1
        self.retry_at = until
        self.trouble = trouble
        if trouble is None or self.attempts != LASTING or until <= self.told_until:
            return False
        self.told_until = until + TOLD_EVERY_S
        return True

    def lost(self, now: float, backoff: Backoff, rng: random.Random) -> None:
        """Ask for nothing for a while if the position is lost again and again."""
        self.losses = self.losses + 1 if now - self.lost_at < LOSSES_S else 1
        self.lost_at = now
        if self.losses > 1:
            self.retry_at = now + backoff.delay(self.losses - 2, rng)

    def succeeded(self) -> None:
        self.attempts, self.retry_at = 0, 0.0
        self.trouble = None

    def _jump(self, event: Event) -> None:
        self._apply(event)
        self.generation += 1
        self.jumps += 1
        self.error = self.reset = None
        self.damaged_at = self.committed = -1
        self.outstanding.clear()
        self.succeeded()

    def _apply(self, event: Event) -> None:
        to = TRANSITIONS.get((self.phase, event))
        if to is None:
            raise IllegalStateError(f"{event.name} cannot happen to {self!r}")
        self.phase = to
