"""A member of a share group, as a table of states and events (KIP-932).

`Kip932Member` follows the table. Without IO.

The member sends one kind of request, the heartbeat. It contains the member's epoch: 0 in a
heartbeat that joins the group, and -1 in one that leaves it. The response contains the member's
present epoch and, if it has changed, the assignment. Members of share groups share partitions, so
a member takes its assignment at once: it revokes nothing, and acknowledges nothing. Assignments
have no influence on locks either. Records that the member holds stay locked and can be settled,
whether the member still has their partition, was fenced, or has left.

    OUT          nothing is subscribed
    JOINING      sends heartbeats of epoch 0
    FULL         likewise, but the group has as many members as it may
    UNASSIGNED   is a member, and has no partitions
    STABLE       is a member, and has partitions
    FAILED       the coordinator refuses the member for a reason that only a person can fix
    CLOSED       has left for good

Heartbeats are sent in all states from JOINING to STABLE. The answer to a join never has partitions,
unless the coordinator still knew the member: it initializes the state of the partitions after the
join, and computes assignments at most once a second. So every new member is UNASSIGNED for a
moment, and sends its heartbeats earlier than the coordinator requests. A member whose topics do not
exist stays UNASSIGNED until they do.

A transition to a state without heartbeats, or back to JOINING, ends the membership (END): the epoch
is 0 again, and responses to heartbeats of that membership are ignored. The member id stays the
same. If the coordinator may still consider the member part of the group, a last heartbeat says that
the member leaves (LEAVE).

An event is one of these:

- an action of the application: SUBSCRIBED, UNSUBSCRIBED, CLOSED;
- the response to a heartbeat: ASSIGNED, EMPTY, or an error code with a special meaning for members
  (`CODES`). For all other codes the policy decides: the heartbeat is sent again, the member joins
  again (FENCED), or it fails (REFUSED).

An event without a row for the present state changes nothing. Examples are a late response, and the
partitions of a member that has some already.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from aiokclient.errors import (
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    TopicAuthorizationError,
    UnknownMemberIdError,
)
from aiokclient.group.heartbeats import JOIN_EPOCH
from aiokclient.types.named_tuple import NamedTuple


class Kip932State(Enum):
    """The state of a member."""

    OUT = "out"
    JOINING = "joining"
    FULL = "full"
    UNASSIGNED = "unassigned"
    STABLE = "stable"
    FAILED = "failed"
    CLOSED = "closed"


class Kip932Event(Enum):
    """An event that concerns a member."""

    SUBSCRIBED = "subscribed"
    """The application has subscribed, or changed its subscription."""
    UNSUBSCRIBED = "unsubscribed"
    """The application has subscribed to nothing."""
    CLOSED = "closed"
    """The consumer is being closed: the member leaves and never joins again."""

    ASSIGNED = "assigned"
    """A heartbeat was answered, and the member has partitions."""
    EMPTY = "empty"
    """A heartbeat was answered, and the member has no partitions."""
    FENCED = "fenced"
    """The coordinator does not know this member, or knows it with another epoch."""
    FULL = "full"
    """The group has `group.share.max.size` members."""
    WITHHELD = "withheld"
    """The user may not describe a subscribed topic."""
    REFUSED = "refused"
    """The coordinator has refused a heartbeat, and would refuse it again."""


class Kip932Effect(Enum):
    """An action of a transition. Effects are executed in the order of their definition."""

    END = "end the membership: forget the epoch, and what the coordinator was told"
    LEAVE = "tell the coordinator that the member leaves"
    KEEP = "send a heartbeat without topics before the next attempt, so that the session goes on"


class Kip932Transition(NamedTuple):
    """The next state, and the effects of the transition."""

    state: Kip932State
    effects: tuple[Kip932Effect, ...] = ()


JOIN_STATES = (Kip932State.JOINING, Kip932State.FULL)
"""The states in which the member sends heartbeats of epoch 0."""

MEMBER_STATES = (Kip932State.UNASSIGNED, Kip932State.STABLE)
"""The states in which the coordinator knows the member."""

HEARTBEAT_STATES = (*JOIN_STATES, *MEMBER_STATES)
"""The states in which heartbeats are sent."""

_S, _E, _T = Kip932State, Kip932Event, Kip932Transition
_END, _LEAVE, _KEEP = Kip932Effect.END, Kip932Effect.LEAVE, Kip932Effect.KEEP

TABLE: Mapping[tuple[Kip932State, Kip932Event], Kip932Transition] = MappingProxyType(
    {
        (_S.OUT, _E.SUBSCRIBED): _T(_S.JOINING),
        (_S.JOINING, _E.FULL): _T(_S.FULL),
        **{
            (state, event): _T(to)
            for event, to in {_E.ASSIGNED: _S.STABLE, _E.EMPTY: _S.UNASSIGNED}.items()
            for state in HEARTBEAT_STATES
            if state is not to
        },
        **{(state, _E.FENCED): _T(_S.JOINING, (_END,)) for state in HEARTBEAT_STATES},
        **{(state, _E.WITHHELD): _T(state, (_KEEP,)) for state in MEMBER_STATES},
        # Before its first epoch the member is not in the group and does not have to leave it.
        **{(state, _E.REFUSED): _T(_S.FAILED, (_END,)) for state in JOIN_STATES},
        **{(state, _E.REFUSED): _T(_S.FAILED, (_END, _LEAVE)) for state in MEMBER_STATES},
        # The coordinator may have executed a join whose response was lost.
        **{
            (state, event): _T(to, (_END, _LEAVE))
            for event, to in {_E.UNSUBSCRIBED: _S.OUT, _E.CLOSED: _S.CLOSED}.items()
            for state in (_S.JOINING, *MEMBER_STATES)
        },
        (_S.FULL, _E.UNSUBSCRIBED): _T(_S.OUT, (_END,)),
        (_S.FULL, _E.CLOSED): _T(_S.CLOSED, (_END,)),
        (_S.OUT, _E.CLOSED): _T(_S.CLOSED),
        (_S.FAILED, _E.CLOSED): _T(_S.CLOSED),
    }
)
"""The transitions by state and event. Pairs that are not in the table change nothing."""

CODES: Mapping[int | None, Kip932Event] = MappingProxyType(
    {
        FencedMemberEpochError.code: Kip932Event.FENCED,
        UnknownMemberIdError.code: Kip932Event.FENCED,
        # The group was deleted. The member creates it again.
        GroupIdNotFoundError.code: Kip932Event.FENCED,
        GroupMaxSizeReachedError.code: Kip932Event.FULL,
        TopicAuthorizationError.code: Kip932Event.WITHHELD,
    }
)
"""The events for error codes of heartbeats."""

JOIN_CODES: Mapping[int | None, Kip932Event] = MappingProxyType(
    {
        # A join creates the group, so this says that the group has another type.
        GroupIdNotFoundError.code: Kip932Event.REFUSED,
    }
)
"""The events for error codes of a heartbeat that joins, where they differ from those of `CODES`."""


def event_of(state: Kip932State, code: int | None) -> Kip932Event | None:
    """Return the event for an error code in a state, or None if the policy decides about it."""
    own = JOIN_CODES.get(code) if state in JOIN_STATES else None
    return own or CODES.get(code)


class Kip932Member:
    """The state and the epoch of one member, and the number of its memberships that have ended.

    Only the methods of this class change its attributes.
    """

    def __init__(self, member_id: str) -> None:
        self.state = Kip932State.OUT
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self.memberships = 0
        """Number of memberships that have ended. Responses to their heartbeats are ignored."""
        self.must_leave = False
        """Whether the heartbeat by which the member leaves must still be sent."""
        self.must_keep = False
        """Whether the next heartbeat must have no topics, because they were refused."""

    def apply_event(self, event: Kip932Event) -> tuple[Kip932Effect, ...]:
        """Make the transition for an event, if the table has one, and return its effects.

        The effects on this object are executed here. The caller does the rest.
        """
        row = TABLE.get((self.state, event))
        if row is None:
            return ()
        self.state = row.state
        if Kip932Effect.END in row.effects:
            self.memberships += 1
            self.epoch = JOIN_EPOCH
            self.must_keep = False
        if Kip932Effect.LEAVE in row.effects:
            self.must_leave = True
        if Kip932Effect.KEEP in row.effects:
            self.must_keep = True
        return row.effects

    def set_epoch(self, epoch: int) -> None:
        """Store the epoch of a response."""
        self.epoch = epoch

    def mark_left(self) -> None:
        """Record that the last heartbeat is about to be sent."""
        self.must_leave = False

    def mark_kept(self) -> None:
        """Record that a heartbeat without topics was answered, or that the topics have changed."""
        self.must_keep = False

    @property
    def sends_heartbeats(self) -> bool:
        return self.state in HEARTBEAT_STATES

    @property
    def has_epoch(self) -> bool:
        """Whether the coordinator has assigned an epoch to this membership."""
        return self.epoch > JOIN_EPOCH

    @property
    def is_closed(self) -> bool:
        return self.state is Kip932State.CLOSED
