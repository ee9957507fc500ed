"""A member of a group of the new consumer protocol, as a table of states and events (KIP-848).

The member sends one kind of request, the heartbeat. It carries the member's epoch, which is 0 to
join, and -1 or, for a static member that may come back, -2 to leave; the answer carries the epoch
that the member has now and, when it changed, all that the member is to have. The member gives up
what it is not to have, then takes what it is to have in addition, then says with a heartbeat what
it owns now: until then the coordinator gives nobody what this member gave up.

    OUT             nothing is subscribed
    JOINING         heartbeats of epoch 0 are sent, once nothing of an earlier membership is owned
    STABLE          owns what it is to have
    RECONCILING     gives up or takes partitions, or waits for the names of topics
    ACKNOWLEDGING   what it owns is told at once
    FENCED          no member any more: what it owned is being lost, then it joins anew
    STALE           has left, as the program does not come back; it joins when that does
    LEAVING         gives up all it owns, then sends its last heartbeat
    FAILED          the coordinator wants something that only a person can mend

Heartbeats go on in all states from JOINING to ACKNOWLEDGING, and in LEAVING until the last one.
Answers that come in other states are to requests of an earlier membership, and void. What an
error code means here `CODES` says; what is not in it is left to the policy: tried again, joined
anew (`FENCED`), or raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from aiokclient.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    UnknownMemberIdError,
)

__all__ = [
    "BEATING",
    "CODES",
    "JOIN_CODES",
    "MEMBERS",
    "TRANSITIONS",
    "Kip848Event",
    "Kip848State",
    "after",
    "meaning",
]


class Kip848State(Enum):
    OUT = auto()
    JOINING = auto()
    STABLE = auto()
    RECONCILING = auto()
    ACKNOWLEDGING = auto()
    FENCED = auto()
    STALE = auto()
    LEAVING = auto()
    FAILED = auto()


class Kip848Event(Enum):
    SUBSCRIBED = auto()  # there is something to read
    UNSUBSCRIBED = auto()  # there is nothing any more
    TOLD = auto()  # an answer, and what is owned differs from what is to be owned
    SETTLED = auto()  # an answer, and it does not; what is owned was told
    RECONCILED = auto()  # what is owned has changed
    FENCED = auto()  # the coordinator does not know this member, or this epoch of it
    RELEASED = auto()  # nothing is owned any more
    LATE = auto()  # the program did not come back for records
    ASKED = auto()  # the program asks for records
    LEFT = auto()  # the last heartbeat was sent
    FAILED = auto()


MEMBERS = (
    Kip848State.JOINING,
    Kip848State.STABLE,
    Kip848State.RECONCILING,
    Kip848State.ACKNOWLEDGING,
)
"""The states in which what is answered is carried out."""

BEATING = (*MEMBERS, Kip848State.LEAVING)
"""The states in which heartbeats are sent; leaving another of them ends the membership."""

S, E = Kip848State, Kip848Event

_EVERY_MEMBER = {
    E.TOLD: S.RECONCILING,
    E.FENCED: S.FENCED,
    E.LATE: S.STALE,
    E.UNSUBSCRIBED: S.LEAVING,
    E.FAILED: S.FAILED,
}

TRANSITIONS: Mapping[tuple[Kip848State, Kip848Event], Kip848State] = MappingProxyType(
    {
        **{(state, event): to for state in MEMBERS for event, to in _EVERY_MEMBER.items()},
        **{(state, E.SETTLED): S.STABLE for state in MEMBERS if state is not S.RECONCILING},
        **{(state, E.RECONCILED): S.ACKNOWLEDGING for state in MEMBERS if state is not S.JOINING},
        **{(state, E.SUBSCRIBED): state for state in Kip848State if state is not S.OUT},
        **{(state, E.ASKED): state for state in Kip848State if state is not S.STALE},
        **{(state, E.UNSUBSCRIBED): state for state in (S.OUT, S.LEAVING, S.FAILED)},
        (S.OUT, E.SUBSCRIBED): S.JOINING,
        (S.FENCED, E.RELEASED): S.JOINING,
        (S.FENCED, E.LATE): S.STALE,
        (S.FENCED, E.UNSUBSCRIBED): S.OUT,
        (S.STALE, E.ASKED): S.JOINING,
        (S.STALE, E.UNSUBSCRIBED): S.OUT,
        (S.LEAVING, E.LEFT): S.OUT,
        (S.LEAVING, E.FENCED): S.OUT,
        (S.LEAVING, E.FAILED): S.FAILED,
    }
)
"""(state, event) to the next state. What is not here has no meaning there, and changes nothing:
an answer that comes too late, a step of reconciliation that was overtaken."""

CODES = MappingProxyType(
    {
        FencedMemberEpochError.code: Kip848Event.FENCED,
        UnknownMemberIdError.code: Kip848Event.FENCED,
        GroupIdNotFoundError.code: Kip848Event.FENCED,
        # Another has the instance id: to come back would take it from that one.
        FencedInstanceIdError.code: Kip848Event.FAILED,
    }
)
"""Error codes of a heartbeat that are events."""

JOIN_CODES = MappingProxyType({GroupIdNotFoundError.code: Kip848Event.FAILED})
"""Likewise, of the heartbeat that joins: the group is of another kind, and does not change it."""


def meaning(state: Kip848State, code: int | None) -> Kip848Event | None:
    """The event that an error code is in a state; None for one that the policy decides."""
    own = JOIN_CODES.get(code) if state is Kip848State.JOINING else None
    return own or CODES.get(code)


def after(state: Kip848State, event: Kip848Event) -> Kip848State:
    """The state after an event."""
    return TRANSITIONS.get((state, event), state)
