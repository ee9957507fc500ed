"""The states of a member of a group, as a table. Without IO.

Theory of operation. A member alternates between two requests that may wait at the coordinator and
the time in which its generation lasts:

                      ┌────────────── rebalance ──────────────┐
                      ▼                                       │
    OUT ─resumed─▶ JOINING ─joined─▶ SYNCING ─synced─▶ BEGINNING ─began─▶ STABLE
     ▲             JoinGroup         SyncGroup         the handler        heartbeats
     │                ▲              (the leader       takes its          │
     │                │               assigns first)   assignment         │ rebalance, rejoin
     │                └───────────────────────── prepared ── PREPARING ◀──┘
     └─left── LEAVING ◀─ paused, from anywhere               the handler releases what it must

Heartbeats run beside all of it from the moment that there is a member id. Their responses are
events, as are those of the two requests. An event is one of these:

- progress: the step that belongs to the state has ended well;
- a broker's code that means something to a member (`CODES`). Every other code is not about the
  membership but about the request (the coordinator is loading, has moved, is out of reach): the
  same request is sent again, to the coordinator as found anew, and the state stays. So SyncGroup
  survives a failover in its generation;
- what the application asks for: pausing, resuming;
- a disturbance: the coordinator has moved while a request waits at the former one (MOVED), a
  request failed for a reason that starting over may fix (FAULT) or not (REFUSED), the application
  did not release its part in time (LATE).

A rebalance is *not* taken up while the handler begins with its generation: that is ended first,
and the rebalance is heard of again, as the coordinator answers every heartbeat with it. An event
without a row for the state means nothing there and is dropped: an answer may always be late.

Where the coordinator takes a second assignment in one generation (Kafka's does not), a leader that
only wants to assign anew goes from PREPARING straight to SYNCING. Followers cannot tell that from
any other rebalance and go the same way: if it was another, the response to SyncGroup is that a
rebalance is in progress, and they join.

What a coordinator repeats without end must not keep the member busy without end: what starts over
without waiting the first times waits when it happens again and again (BACK_OFF_REPEATED), and only
a generation that has lasted for a while ends that.

A member that is *lost* (unknown to the coordinator, of an old generation, fenced) owns nothing any
more: LOSE tells the handler, and all but the fenced one join again. A rebalance keeps the member
and what it owns: only PREPARING may release some of it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from aiokclient.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

__all__ = ["CODES", "TABLE", "MemberEffect", "MemberEvent", "MemberState", "Transition"]


class MemberState(Enum):
    """The state of a member."""

    OUT = "out"
    """Not in the group, and not trying: paused, not resumed yet, or refused."""
    JOINING = "joining"
    SYNCING = "syncing"
    BEGINNING = "beginning"
    STABLE = "stable"
    PREPARING = "preparing"
    LEAVING = "leaving"
    FENCED = "fenced"
    """Another member has taken its instance id. No event leads to another state."""


class MemberEvent(Enum):
    """What may happen to a member."""

    RESUMED = "resumed"
    JOINED = "joined"
    SYNCED = "synced"
    UNASSIGNED = "unassigned"
    """SyncGroup was answered, but the leader had failed to assign."""
    BEGAN = "began"
    PREPARED = "prepared"
    RESYNCING = "resyncing"
    """Prepared, and the coordinator accepts a new assignment in the same generation."""
    LEFT = "left"

    MEMBER_ID_REQUIRED = "member id required"
    REBALANCE = "rebalance"
    """Another member, or this one, asks for a new generation."""
    UNKNOWN_MEMBER = "unknown member"
    OLD_GENERATION = "old generation"
    FENCED = "fenced"

    PAUSED = "paused"
    MOVED = "moved"
    FAULT = "fault"
    REFUSED = "refused"
    LATE = "late"


class MemberEffect(Enum):
    """What is done on the way to the next state, in this order."""

    TAKE_ID = "take the member id that the coordinator gave"
    FORGET_GENERATION = "forget the generation, keep the member id"
    FORGET_ID = "forget the member id and the generation"
    LOSE = "tell the handler that all it held is lost"
    BACK_OFF = "wait before the next step, longer each time"
    BACK_OFF_REPEATED = "the same, once it has happened several times in a row"


class Transition(NamedTuple):
    """The next state and what is done on the way there."""

    state: MemberState
    effects: tuple[MemberEffect, ...] = ()


CODES: dict[int | None, MemberEvent] = {
    MemberIdRequiredError.code: MemberEvent.MEMBER_ID_REQUIRED,
    RebalanceInProgressError.code: MemberEvent.REBALANCE,
    UnknownMemberIdError.code: MemberEvent.UNKNOWN_MEMBER,
    IllegalGenerationError.code: MemberEvent.OLD_GENERATION,
    FencedInstanceIdError.code: MemberEvent.FENCED,
}
"""The codes that are events; the policy decides about all others."""

_S, _E, _F = MemberState, MemberEvent, MemberEffect

_GONE = {
    _E.UNKNOWN_MEMBER: Transition(_S.JOINING, (_F.FORGET_ID, _F.LOSE, _F.BACK_OFF)),
    _E.OLD_GENERATION: Transition(_S.JOINING, (_F.FORGET_GENERATION, _F.LOSE, _F.BACK_OFF)),
    _E.FENCED: Transition(_S.FENCED, (_F.FORGET_ID, _F.LOSE)),
    _E.PAUSED: Transition(_S.LEAVING),
}
"""Rows of every state of a member, by which it is no longer one."""

TABLE: dict[tuple[MemberState, MemberEvent], Transition] = {
    (_S.OUT, _E.RESUMED): Transition(_S.JOINING),
    (_S.OUT, _E.PAUSED): Transition(_S.OUT),
    **{(_S.JOINING, event): row for event, row in _GONE.items()},
    (_S.JOINING, _E.MEMBER_ID_REQUIRED): Transition(_S.JOINING, (_F.TAKE_ID, _F.BACK_OFF_REPEATED)),
    (_S.JOINING, _E.JOINED): Transition(_S.SYNCING),
    (_S.JOINING, _E.REBALANCE): Transition(_S.JOINING, (_F.BACK_OFF,)),
    (_S.JOINING, _E.MOVED): Transition(_S.JOINING),
    (_S.JOINING, _E.FAULT): Transition(_S.JOINING, (_F.BACK_OFF,)),
    (_S.JOINING, _E.REFUSED): Transition(_S.LEAVING, (_F.BACK_OFF_REPEATED,)),
    **{(_S.SYNCING, event): row for event, row in _GONE.items()},
    (_S.SYNCING, _E.SYNCED): Transition(_S.BEGINNING),
    (_S.SYNCING, _E.UNASSIGNED): Transition(_S.STABLE),
    # Its part was given up before it joined, and a new one it has not got.
    (_S.SYNCING, _E.REBALANCE): Transition(_S.JOINING, (_F.BACK_OFF_REPEATED,)),
    (_S.SYNCING, _E.MOVED): Transition(_S.SYNCING),
    (_S.SYNCING, _E.FAULT): Transition(_S.JOINING, (_F.BACK_OFF,)),
    (_S.SYNCING, _E.REFUSED): Transition(_S.LEAVING, (_F.BACK_OFF_REPEATED,)),
    **{(_S.BEGINNING, event): row for event, row in _GONE.items()},
    (_S.BEGINNING, _E.BEGAN): Transition(_S.STABLE),
    **{(_S.STABLE, event): row for event, row in _GONE.items()},
    (_S.STABLE, _E.REBALANCE): Transition(_S.PREPARING, (_F.BACK_OFF_REPEATED,)),
    **{(_S.PREPARING, event): row for event, row in _GONE.items()},
    (_S.PREPARING, _E.PREPARED): Transition(_S.JOINING),
    (_S.PREPARING, _E.RESYNCING): Transition(_S.SYNCING),
    (_S.PREPARING, _E.LATE): Transition(_S.JOINING, (_F.LOSE,)),
    (_S.LEAVING, _E.LEFT): Transition(_S.OUT),
}
"""(state, event) to what comes of it; what is not here changes nothing."""
