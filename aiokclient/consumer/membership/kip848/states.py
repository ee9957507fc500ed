"""A member of a group of the newer consumer protocol, as a table of states and events (KIP-848).

Theory of operation. The member sends one kind of request, the heartbeat. It carries the member's
epoch, which is 0 to join, and -1 or, for a static member that may come back, -2 to leave. The
response carries the epoch that the member has now and, when it changed, the target: all partitions
that the member should own. The member revokes what is not in the target, then takes what is new in
it, then acknowledges with a heartbeat what it owns now. Until then the coordinator assigns the
revoked partitions to nobody else.

    OUT             nothing is subscribed
    JOINING         heartbeats of epoch 0 are sent, once nothing of an earlier membership is owned
    STABLE          owns the target
    RECONCILING     revokes or takes partitions, or waits for the names of topics
    ACKNOWLEDGING   what it owns is sent at once
    FENCED          no longer a member: what it owned is being lost, then it joins again
    STALE           has left because the application does not return for records; joins when it does
    LEAVING         revokes all that it owns, then sends its last heartbeat
    FAILED          the coordinator refuses the member for a reason that only a person can fix
    CLOSED          has left for good

Heartbeats go on in all states from JOINING to ACKNOWLEDGING, and in LEAVING until the last one.
Whoever enters another state from one of these ends the membership (END): the epoch is 0 again, and
responses to heartbeats of that membership are void. Where the coordinator may still count the
member in, it is told (LEAVE).

An event is one of these:

- what the application wants: SUBSCRIBED, UNSUBSCRIBED, OVERDUE and its opposite RETURNED, CLOSED;
- what a heartbeat was answered: ASSIGNED, CONFIRMED, or an error code that means something to a
  member (`CODES`). Every other code is the policy's to judge: the heartbeat is sent again, the
  member joins again (FENCED), or it fails (REFUSED);
- progress with partitions: RECONCILED, RELEASED; and LEFT when the last heartbeat is being sent.

An event without a row for the state means nothing there and changes nothing: a response that comes
too late, a step of reconciliation that was overtaken.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from aiokclient.errors import (
    ClusterAuthorizationError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationError,
    GroupIdNotFoundError,
    TopicAuthorizationError,
    UnknownMemberIdError,
)

__all__ = [
    "CODES",
    "HEARTBEAT_STATES",
    "JOIN_CODES",
    "PERMISSION_CODES",
    "MEMBER_STATES",
    "TABLE",
    "Kip848Effect",
    "Kip848Event",
    "Kip848State",
    "Kip848Transition",
    "event_of",
]


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
    """What may happen to a member."""

    SUBSCRIBED = "subscribed"
    """There is something to read, or something else than before."""
    UNSUBSCRIBED = "unsubscribed"
    OVERDUE = "overdue"
    """The application has not returned for records within `max_poll_interval_ms`."""
    RETURNED = "returned"
    """The application requests records."""
    CLOSED = "closed"
    """The member is to leave for good."""

    ASSIGNED = "assigned"
    """A heartbeat was answered, and the target differs from what is owned."""
    CONFIRMED = "confirmed"
    """A heartbeat was answered, the target is owned, and the coordinator knows that."""
    FENCED = "fenced"
    """The coordinator does not know this member, or not with this epoch."""
    REPLACED = "replaced"
    """Another member has the instance id, or the group is one of another kind."""
    REFUSED = "refused"
    """The coordinator refuses what the member asks for, and would refuse it again."""

    RECONCILED = "reconciled"
    """What is owned has become the target, and the coordinator does not know that yet."""
    RELEASED = "released"
    """Nothing is owned any more."""
    LEFT = "left"
    """The last heartbeat is on its way."""


class Kip848Effect(Enum):
    """What is done on the way to the next state, in this order."""

    END = "end the membership: forget the epoch, the target and what the coordinator was told"
    LEAVE = "tell the coordinator that the member leaves"


class Kip848Transition(NamedTuple):
    """The next state, and what is done on the way there."""

    state: Kip848State
    effects: tuple[Kip848Effect, ...] = ()


MEMBER_STATES = (
    Kip848State.JOINING,
    Kip848State.STABLE,
    Kip848State.RECONCILING,
    Kip848State.ACKNOWLEDGING,
)
"""The states in which the member carries out what heartbeats are answered."""

HEARTBEAT_STATES = (*MEMBER_STATES, Kip848State.LEAVING)
"""The states in which heartbeats are sent."""

_S, _E, _T = Kip848State, Kip848Event, Kip848Transition
_END, _LEAVE = Kip848Effect.END, Kip848Effect.LEAVE

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
        # Before its first epoch there is nothing that the member could leave.
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
"""(state, event) to what comes of it; what is not here changes nothing."""

CODES: Mapping[int | None, Kip848Event] = MappingProxyType(
    {
        FencedMemberEpochError.code: Kip848Event.FENCED,
        UnknownMemberIdError.code: Kip848Event.FENCED,
        GroupIdNotFoundError.code: Kip848Event.FENCED,
        # If it came back, it would take the instance id from the member that has it.
        FencedInstanceIdError.code: Kip848Event.REPLACED,
    }
)
"""Error codes of a heartbeat that are events."""

JOIN_CODES: Mapping[int | None, Kip848Event] = MappingProxyType(
    {GroupIdNotFoundError.code: Kip848Event.REPLACED}
)
"""Those of the heartbeat that joins: the group is of another kind, and does not change it."""

PERMISSION_CODES: frozenset[int | None] = frozenset(
    {
        TopicAuthorizationError.code,
        GroupAuthorizationError.code,
        ClusterAuthorizationError.code,
    }
)
"""Codes of a permission that is missing: the member tries again, since it may be granted later."""


def event_of(state: Kip848State, code: int | None) -> Kip848Event | None:
    """Return the event that an error code is in a state; None for one that the policy judges."""
    own = JOIN_CODES.get(code) if state is Kip848State.JOINING else None
    return own or CODES.get(code)
