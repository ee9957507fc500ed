"""The state of one member under KIP-848, which follows the table in `states`. Without IO."""

from __future__ import annotations

from aiokclient.consumer.membership.kip848.states import (
    HEARTBEAT_STATES,
    TABLE,
    Kip848Effect,
    Kip848Event,
    Kip848State,
)
from aiokclient.types import GroupMetadata

__all__ = ["JOIN_EPOCH", "Kip848Member"]

JOIN_EPOCH = 0
"""The epoch of heartbeats that join."""

WAITING = (Kip848State.JOINING, Kip848State.RECONCILING, Kip848State.FENCED)
"""The states in which the member waits for its group, or for partitions to be revoked or taken."""

SETTLED = (Kip848State.STABLE, Kip848State.ACKNOWLEDGING)

ABSENT = (Kip848State.STALE, Kip848State.FAILED, Kip848State.CLOSED)
"""The states from which the member joins only after an action of the application."""


class Kip848Member:
    """The state and the epoch of one member, and the number of its memberships that have ended.

    Only the methods of this class change its attributes.
    """

    def __init__(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        self.state = Kip848State.OUT
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self.memberships = 0
        """Number of memberships that have ended. Responses to their heartbeats are ignored."""
        self.must_leave = False
        """Whether the heartbeat by which the member leaves must still be sent."""
        self.must_release = False
        """Whether the coordinator must be told that an earlier membership has ended."""
        self.lost_by = ""
        """The reason for the end of the last membership, for the log."""
        self._group_id = group_id
        self._instance_id = instance_id
        self._waiting_since: float | None = None

    def apply_event(
        self, event: Kip848Event, now: float, reason: str = ""
    ) -> tuple[Kip848Effect, ...]:
        """Make the transition for an event, if the table has one, and return its effects.

        The effects on this object are executed here. The caller does the rest: after END it updates
        other objects, and after LEAVE it sends the request.
        """
        row = TABLE.get((self.state, event))
        if row is None:
            return ()
        self.state = row.state
        if row.state not in WAITING:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        if Kip848Effect.END in row.effects:
            self.memberships += 1
            self.epoch = JOIN_EPOCH
        if Kip848Effect.LEAVE in row.effects:
            self.must_leave = True
        self.must_release = Kip848Effect.RELEASE in row.effects
        self.lost_by = reason or self.lost_by
        return row.effects

    def set_epoch(self, epoch: int) -> None:
        """Store the epoch of a response."""
        self.epoch = epoch

    def mark_left(self) -> None:
        """Record that the last heartbeat is about to be sent."""
        self.must_leave = False

    def mark_released(self) -> None:
        """Record that the end of an earlier membership is about to be sent."""
        self.must_release = False

    @property
    def sends_heartbeats(self) -> bool:
        return self.state in HEARTBEAT_STATES

    @property
    def has_epoch(self) -> bool:
        """Whether the coordinator has assigned an epoch to this membership."""
        return self.epoch > JOIN_EPOCH

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED

    @property
    def joins(self) -> bool:
        return self.state not in ABSENT

    @property
    def is_closed(self) -> bool:
        return self.state is Kip848State.CLOSED

    @property
    def rebalancing_since(self) -> float | None:
        """The monotonic time at which the member began to wait; None if it does not wait."""
        return self._waiting_since

    @property
    def metadata(self) -> GroupMetadata:
        """The identity of the member in commits, with generation -1 while it is not a member."""
        if not self.has_epoch:
            return GroupMetadata(self._group_id, group_instance_id=self._instance_id)
        return GroupMetadata(self._group_id, self.epoch, self.member_id, self._instance_id)
