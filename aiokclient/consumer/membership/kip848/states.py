"""A member of a group of the newer consumer protocol, as a table of states and events (KIP-848).

`Kip848Member` follows the table. Without IO.

The member sends one kind of request, the heartbeat. It contains the member's epoch. The epoch is 0
in a heartbeat that joins the group, and -1 in one that leaves it (-2 if the member is static and
may come back). The response contains the member's present epoch. If the target has changed, the
response also contains the target: all partitions that the member should own. First the member
revokes the partitions that are not in the target. Then it takes those that it does not own yet.
Finally it acknowledges the target by a heartbeat with the partitions that it owns. The coordinator
does not assign the revoked partitions to another member before that heartbeat.

    OUT             nothing is subscribed
    JOINING         sends heartbeats of epoch 0, once no partition of an earlier membership is owned
    STABLE          owns the target
    RECONCILING     revokes or takes partitions, or waits for the names of topics
    ACKNOWLEDGING   a heartbeat with the partitions that it owns is sent immediately
    FENCED          no longer a member: its partitions are lost, then it joins again
    STALE           has left because no records were requested; joins when the next are requested
    LEAVING         revokes all that it owns, then sends its last heartbeat
    FAILED          the coordinator refuses the member for a reason that only a person can fix
    CLOSED          has left for good

Heartbeats are sent in all states from JOINING to ACKNOWLEDGING, and in LEAVING until the last one.
A transition from one of these states to a state without heartbeats ends the membership (END): the
epoch is 0 again, and responses to heartbeats of that membership are ignored. If the coordinator may
still consider the member part of the group, a last heartbeat says that the member leaves (LEAVE).

An event is one of these:

- an action of the application: SUBSCRIBED, UNSUBSCRIBED, RENEWED, OVERDUE, RETURNED, CLOSED;
- the response to a heartbeat: ASSIGNED, CONFIRMED, or an error code with a special meaning for
  members (`CODES`). For all other codes the policy decides: the heartbeat is sent again, the member
  joins again (FENCED), or it fails (REFUSED);
- progress with partitions: RECONCILED, RELEASED; and LEFT when the last heartbeat is being sent.

An event without a row for the present state is ignored. Examples are a late response, and a step
of reconciliation that a newer target has made obsolete.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from aiokclient.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from aiokclient.group.heartbeats import JOIN_EPOCH
from aiokclient.types import GroupMetadata
from aiokclient.types.named_tuple import NamedTuple


class Kip848State(Enum):
    """The state of a member."""

    OUT = "out"
    JOINING = "joining"
    STABLE = "stable"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    FENCED = "fenced"
    STALE = "stale"
    LEAVING = "leaving"
    FAILED = "failed"
    CLOSED = "closed"


class Kip848Event(Enum):
    """An event that concerns a member."""

    SUBSCRIBED = "subscribed"
    """The application has subscribed, or changed its subscription."""
    UNSUBSCRIBED = "unsubscribed"
    RENEWED = "renewed"
    """The application has given up what is owned, and wants it as if it were assigned anew."""
    OVERDUE = "overdue"
    """The application has not requested records for `max_poll_interval_ms`."""
    RETURNED = "returned"
    """The application requests records."""
    CLOSED = "closed"
    """The consumer is being closed: the member leaves and never joins again."""

    ASSIGNED = "assigned"
    """A heartbeat was answered, and the target differs from what is owned."""
    CONFIRMED = "confirmed"
    """A heartbeat was answered, the target is owned, and the coordinator knows that."""
    FENCED = "fenced"
    """The coordinator does not know this member, or knows it with another epoch."""
    REPLACED = "replaced"
    """Another member has taken the instance id, or the group does not use this protocol."""
    REFUSED = "refused"
    """The coordinator has refused a heartbeat, and would refuse it again."""
    UNRELEASED = "unreleased"
    """The coordinator still has an earlier membership of this static member."""

    RECONCILED = "reconciled"
    """The member owns the target, and the coordinator does not know that yet."""
    RELEASED = "released"
    """The member owns no partitions any more."""
    LEFT = "left"
    """The last heartbeat is being sent."""


class Kip848Effect(Enum):
    """An action of a transition. Effects are executed in the order of their definition."""

    END = "end the membership: forget the epoch, the target and what the coordinator was told"
    LEAVE = "tell the coordinator that the member leaves"
    RELEASE = "tell the coordinator that an earlier membership of a static member has ended"


class Kip848Transition(NamedTuple):
    """The next state, and the effects of the transition."""

    state: Kip848State
    effects: tuple[Kip848Effect, ...] = ()


MEMBER_STATES = (
    Kip848State.JOINING,
    Kip848State.STABLE,
    Kip848State.RECONCILING,
    Kip848State.ACKNOWLEDGING,
)
"""The states in which the member follows the responses to its heartbeats."""

HEARTBEAT_STATES = (*MEMBER_STATES, Kip848State.LEAVING)
"""The states in which heartbeats are sent."""

_S, _E, _T = Kip848State, Kip848Event, Kip848Transition
_END, _LEAVE, _RELEASE = Kip848Effect.END, Kip848Effect.LEAVE, Kip848Effect.RELEASE

_EVERY_MEMBER = {
    _E.ASSIGNED: _T(_S.RECONCILING),
    _E.FENCED: _T(_S.FENCED, (_END,)),
    _E.OVERDUE: _T(_S.STALE, (_END, _LEAVE)),
    _E.UNSUBSCRIBED: _T(_S.LEAVING),
    _E.REPLACED: _T(_S.FAILED, (_END,)),
    _E.REFUSED: _T(_S.FAILED, (_END, _LEAVE)),
    _E.CLOSED: _T(_S.CLOSED, (_END, _LEAVE)),
}
_OTHERS = (_S.OUT, _S.FENCED, _S.STALE, _S.FAILED)

TABLE: Mapping[tuple[Kip848State, Kip848Event], Kip848Transition] = MappingProxyType(
    {
        **{(state, event): to for state in MEMBER_STATES for event, to in _EVERY_MEMBER.items()},
        **{
            (state, _E.CONFIRMED): _T(_S.STABLE)
            for state in MEMBER_STATES
            if state is not _S.RECONCILING
        },
        **{
            (state, _E.RECONCILED): _T(_S.ACKNOWLEDGING)
            for state in MEMBER_STATES
            if state is not _S.JOINING
        },
        **{
            (state, _E.RENEWED): _T(_S.RECONCILING)
            for state in MEMBER_STATES
            if state is not _S.JOINING
        },
        # The coordinator forgets the earlier membership when its session ends, or if the member
        # says that it leaves.
        (_S.JOINING, _E.UNRELEASED): _T(_S.JOINING, (_RELEASE,)),
        # Before its first epoch the member is not in the group and does not have to leave it.
        (_S.JOINING, _E.REFUSED): _T(_S.FAILED, (_END,)),
        (_S.OUT, _E.SUBSCRIBED): _T(_S.JOINING),
        (_S.FENCED, _E.RELEASED): _T(_S.JOINING),
        (_S.FENCED, _E.OVERDUE): _T(_S.STALE),
        (_S.FENCED, _E.UNSUBSCRIBED): _T(_S.OUT),
        (_S.STALE, _E.RETURNED): _T(_S.JOINING),
        (_S.STALE, _E.UNSUBSCRIBED): _T(_S.OUT),
        (_S.LEAVING, _E.RELEASED): _T(_S.LEAVING, (_LEAVE,)),
        (_S.LEAVING, _E.LEFT): _T(_S.OUT, (_END,)),
        (_S.LEAVING, _E.FENCED): _T(_S.OUT, (_END,)),
        (_S.LEAVING, _E.REPLACED): _T(_S.FAILED, (_END,)),
        (_S.LEAVING, _E.REFUSED): _T(_S.FAILED, (_END, _LEAVE)),
        (_S.LEAVING, _E.CLOSED): _T(_S.CLOSED, (_END, _LEAVE)),
        **{(state, _E.CLOSED): _T(_S.CLOSED, (_END,)) for state in _OTHERS},
    }
)
"""The transitions by state and event. Pairs that are not in the table change nothing."""

CODES: Mapping[int | None, Kip848Event] = MappingProxyType(
    {
        FencedMemberEpochError.code: Kip848Event.FENCED,
        UnknownMemberIdError.code: Kip848Event.FENCED,
        GroupIdNotFoundError.code: Kip848Event.FENCED,
        # If the member joined again, it would take the instance id from its new owner.
        FencedInstanceIdError.code: Kip848Event.REPLACED,
    }
)
"""The events for error codes of heartbeats."""

JOIN_CODES: Mapping[int | None, Kip848Event] = MappingProxyType(
    {
        GroupIdNotFoundError.code: Kip848Event.REPLACED,
        UnreleasedInstanceIdError.code: Kip848Event.UNRELEASED,
    }
)
"""The events for error codes of a heartbeat that joins. GroupIdNotFoundError means here that the
group uses the classic protocol, which a later attempt would not change. UNRELEASED is a refusal
unless the instance id may still belong to an earlier membership of this member."""


def event_of(state: Kip848State, code: int | None) -> Kip848Event | None:
    """Return the event for an error code in a state, or None if the policy decides about it."""
    own = JOIN_CODES.get(code) if state is Kip848State.JOINING else None
    return own or CODES.get(code)


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
    def is_or_becomes_member(self) -> bool:
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
