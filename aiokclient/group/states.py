"""The states of a member of a group, as a table. Without IO.

A member enters a generation by two requests that may wait at the coordinator, JoinGroup and
SyncGroup. It stays in the generation until the next rebalance:

                      ┌────────────── rebalance ──────────────┐
                      ▼                                       │
    OUT ─resumed─▶ JOINING ─joined─▶ SYNCING ─synced─▶ BEGINNING ─began─▶ STABLE
     ▲             JoinGroup         SyncGroup         the handler ◀renewed─  heartbeats
     │                ▲              (the leader       takes its          │
     │                │               assigns first)   assignment         │ rebalance, rejoin,
     │                │                                                   │ withdrawn
     │                └───────────────────────── prepared ── PREPARING ◀──┘
     │                                                       the handler releases what it must
     └─left── LEAVING ◀─ released ────────────────────────── │
              ◀─ paused, from anywhere

Heartbeats are sent in all of these states once there is a member id. The responses to heartbeats,
to JoinGroup, and to SyncGroup are events. An event is one of these:

- progress: the step of the state has succeeded;
- an error code about the membership (`CODES`). All other codes are about the request (the
  coordinator is loading, has moved, or cannot be reached): the coordinator is looked up again, the
  same request is sent again, and the state stays. So SyncGroup survives a failover of the
  coordinator within its generation;
- a request of the application: pausing, resuming, and the two of the next paragraph;
- a fault: the coordinator has moved while the former one holds a request (MOVED), a request has
  failed with an error that joining again may resolve (FAULT) or not (REFUSED), or the application
  did not release its assignment in time (LATE).

An application that ends its subscription withdraws (WITHDRAWN): the handler releases everything in
PREPARING, and then the member leaves (RELEASED). If the application subscribes again before that,
the same release leads to JOINING (PREPARED). So no earlier release drops what JoinGroup reports as
owned. If the application subscribes to the same again at once, the member keeps its generation, and
the handler begins it once more (RENEWED).

A rebalance is ignored while the handler begins a generation (BEGINNING). After that, the response
to the next heartbeat reports the rebalance again. An event without a row for the present state is
dropped, for example a late response.

If the coordinator accepts a second assignment in one generation (Kafka's does not), a leader that
only needs to assign again goes from PREPARING directly to SYNCING. Followers cannot distinguish
this from an ordinary rebalance, so they also send SyncGroup first. If the rebalance is an ordinary
one, the response to SyncGroup says that a rebalance is in progress, and the followers join.

An error that a coordinator repeats endlessly must not keep the member busy. So a transition with
BACK_OFF_REPEATED happens at once only the first few times, and waits for the backoff after that.
When a generation has lasted for some time, the count begins again.

A member that is *lost* (unknown to the coordinator, in an old generation, or fenced) owns nothing
any more, and LOSE tells the handler. Then the member joins again, unless it is fenced. In a
rebalance, a member stays in the group. In PREPARING, it releases only what it must release.
"""

from __future__ import annotations

from enum import Enum

from aiokclient.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokclient.types.named_tuple import NamedTuple


class MemberState(Enum):
    """The state of a member."""

    OUT = "out"
    """The member is not in the group and does not try to join: it is paused or was refused."""
    JOINING = "joining"
    SYNCING = "syncing"
    BEGINNING = "beginning"
    STABLE = "stable"
    PREPARING = "preparing"
    LEAVING = "leaving"
    FENCED = "fenced"
    """Another member has taken its instance id. No event leads to another state."""


class MemberEvent(Enum):
    """An event of a member."""

    RESUMED = "resumed"
    JOINED = "joined"
    SYNCED = "synced"
    UNASSIGNED = "unassigned"
    """SyncGroup was answered, but the leader could not compute an assignment."""
    BEGAN = "began"
    PREPARED = "prepared"
    RESYNCING = "resyncing"
    """The same as PREPARED, but the coordinator accepts a new assignment in the same generation."""
    RELEASED = "released"
    """The same as PREPARED, but the application has withdrawn, and everything is released."""
    LEFT = "left"

    MEMBER_ID_REQUIRED = "member id required"
    REBALANCE = "rebalance"
    """Another member, or this one, has requested a new generation."""
    UNKNOWN_MEMBER = "unknown member"
    OLD_GENERATION = "old generation"
    FENCED = "fenced"

    PAUSED = "paused"
    WITHDRAWN = "withdrawn"
    """The application wants nothing any more. What the member owns is released first."""
    RENEWED = "renewed"
    """The application wants the same as before, but as if it had been assigned anew."""
    MOVED = "moved"
    FAULT = "fault"
    REFUSED = "refused"
    LATE = "late"


class MemberEffect(Enum):
    """An action of a transition. Effects are executed in the order of their definition."""

    TAKE_ID = "take the member id that the coordinator gave"
    FORGET_GENERATION = "forget the generation, keep the member id"
    FORGET_ID = "forget the member id and the generation"
    LOSE = "tell the handler that all it held is lost"
    BACK_OFF = "wait before the next step, longer each time"
    BACK_OFF_REPEATED = "the same, once it has happened several times in a row"


class Transition(NamedTuple):
    """The next state, and the effects of the transition."""

    state: MemberState
    effects: tuple[MemberEffect, ...] = ()


CODES: dict[int | None, MemberEvent] = {
    MemberIdRequiredError.code: MemberEvent.MEMBER_ID_REQUIRED,
    RebalanceInProgressError.code: MemberEvent.REBALANCE,
    UnknownMemberIdError.code: MemberEvent.UNKNOWN_MEMBER,
    IllegalGenerationError.code: MemberEvent.OLD_GENERATION,
    FencedInstanceIdError.code: MemberEvent.FENCED,
}
"""The events for error codes about the membership. The policy decides about all other codes."""

_S, _E, _F = MemberState, MemberEvent, MemberEffect

_GONE = {
    _E.UNKNOWN_MEMBER: Transition(_S.JOINING, (_F.FORGET_ID, _F.LOSE, _F.BACK_OFF)),
    _E.OLD_GENERATION: Transition(_S.JOINING, (_F.FORGET_GENERATION, _F.LOSE, _F.BACK_OFF)),
    _E.FENCED: Transition(_S.FENCED, (_F.FORGET_ID, _F.LOSE)),
    _E.PAUSED: Transition(_S.LEAVING),
}
"""The transitions by which the membership ends. They are the same in every state of a member."""

TABLE: dict[tuple[MemberState, MemberEvent], Transition] = {
    (_S.OUT, _E.RESUMED): Transition(_S.JOINING),
    (_S.OUT, _E.PAUSED): Transition(_S.OUT),
    **{(_S.JOINING, event): row for event, row in _GONE.items()},
    (_S.JOINING, _E.MEMBER_ID_REQUIRED): Transition(_S.JOINING, (_F.TAKE_ID, _F.BACK_OFF_REPEATED)),
    (_S.JOINING, _E.JOINED): Transition(_S.SYNCING),
    (_S.JOINING, _E.REBALANCE): Transition(_S.JOINING, (_F.BACK_OFF,)),
    (_S.JOINING, _E.WITHDRAWN): Transition(_S.PREPARING),
    (_S.JOINING, _E.MOVED): Transition(_S.JOINING),
    (_S.JOINING, _E.FAULT): Transition(_S.JOINING, (_F.BACK_OFF,)),
    (_S.JOINING, _E.REFUSED): Transition(_S.LEAVING, (_F.BACK_OFF_REPEATED,)),
    **{(_S.SYNCING, event): row for event, row in _GONE.items()},
    (_S.SYNCING, _E.SYNCED): Transition(_S.BEGINNING),
    (_S.SYNCING, _E.UNASSIGNED): Transition(_S.STABLE),
    # The member owns nothing: it released its assignment before it joined, and has no new one yet.
    (_S.SYNCING, _E.REBALANCE): Transition(_S.JOINING, (_F.BACK_OFF_REPEATED,)),
    (_S.SYNCING, _E.MOVED): Transition(_S.SYNCING),
    (_S.SYNCING, _E.FAULT): Transition(_S.JOINING, (_F.BACK_OFF,)),
    (_S.SYNCING, _E.REFUSED): Transition(_S.LEAVING, (_F.BACK_OFF_REPEATED,)),
    **{(_S.BEGINNING, event): row for event, row in _GONE.items()},
    (_S.BEGINNING, _E.BEGAN): Transition(_S.STABLE),
    **{(_S.STABLE, event): row for event, row in _GONE.items()},
    (_S.STABLE, _E.REBALANCE): Transition(_S.PREPARING, (_F.BACK_OFF_REPEATED,)),
    (_S.STABLE, _E.WITHDRAWN): Transition(_S.PREPARING),
    (_S.STABLE, _E.RENEWED): Transition(_S.BEGINNING),
    **{(_S.PREPARING, event): row for event, row in _GONE.items()},
    (_S.PREPARING, _E.PREPARED): Transition(_S.JOINING),
    (_S.PREPARING, _E.RELEASED): Transition(_S.LEAVING),
    (_S.PREPARING, _E.RESYNCING): Transition(_S.SYNCING),
    (_S.PREPARING, _E.LATE): Transition(_S.JOINING, (_F.LOSE,)),
    (_S.LEAVING, _E.LEFT): Transition(_S.OUT),
}
"""The transitions by state and event. Pairs that are not in the table change nothing."""
