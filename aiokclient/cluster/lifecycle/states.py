"""The states of everything that is started and closed, as a table. Sans-IO.

A client goes through these phases (the first line has what `state` shows):

                         ANSWERED
    NEW ─START─▶ STARTING ─READY─▶ STARTED ───▶ RUNNING ────CLOSE───▶ ENDING ─────┐
    NEW          STARTING          RUNNING      RUNNING               RUNNING     │
     ▲              │                 │ FAILED     │ FAILED             │ FAILED   │ ENDED
     │              │                 ▼            ▼                    ▼          ▼
     │              │ START_FAILED  BROKEN ──▶ FAILED ──CLOSE──▶ ENDING_FAILED ─▶ CLOSED
     │              │ ABANDONED       │ UNANSWERED (also from STARTED)             ▲
     └───UNDONE── UNDOING ◀───────────┘                                            │
                    └─CLOSE─▶ ENDING_UNDO ─UNDONE─▶ ENDING_NEW ────────ENDED───────┘

The start and the close each run in a task of their own, which all callers share. It does not
matter which callers await it, or stop awaiting it. Four rules follow, which are rows of the table:

- A start is *answered* once it has returned in one of its callers. Before that, no caller knows
  that it must close the client. If the last caller is cancelled then (ABANDONED), the start is
  undone, even if it has just succeeded (UNANSWERED). Later, a cancelled caller changes nothing.
- A start is cancelled at most once. While it is being undone (UNDOING, ENDING_UNDO), neither a
  cancelled caller nor a close cancels it again.
- A close is decided when it is called, and begins when its task does (ENDING_BEGINS). If the work
  of a start succeeds between these two moments, the start fails nevertheless, because of the close
  (ENDING_START, READY). A close from NEW has nothing to end, but is as final as any other.
- The tasks begin after the call that creates them, even with `asyncio.eager_task_factory`
  (see `background.new_task`). So a row is applied before the work that follows from it. A task
  that is cancelled before it begins runs none of its code. UNDONE is then applied on its behalf.

A failure of a background task (FAILED) is recorded in every phase except CLOSED. It changes the
phase only if the client could be used. During a start, it makes the start fail.

An event without a row for the phase changes nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from aiokclient.types import State

__all__ = [
    "ENDING",
    "SHOWN",
    "TABLE",
    "USABLE",
    "Effect",
    "LifecycleEvent",
    "LifecyclePhase",
    "Row",
]


class LifecyclePhase(Enum):
    """A phase of a client between its creation and its end."""

    NEW = "new"
    STARTING = "starting"
    UNDOING = "undoing"
    """A start failed or was abandoned, and its tasks and connections are being closed."""
    STARTED = "started"
    """The start has succeeded, but no caller of start() knows that yet."""
    BROKEN = "broken"
    """The client failed before any caller of start() knew that it had started."""
    RUNNING = "running"
    FAILED = "failed"
    ENDING_NEW = "ending, never started"
    ENDING_START = "ending, a start in progress"
    ENDING_UNDO = "ending, a start being undone"
    ENDING = "ending"
    ENDING_FAILED = "ending, failed"
    CLOSED = "closed"


class LifecycleEvent(Enum):
    """An event in the lifecycle of a client."""

    START = "start() is called"
    READY = "the task of the start has succeeded"
    START_FAILED = "the task of the start was cancelled, or has failed"
    ANSWERED = "start() has returned in one of its callers"
    ABANDONED = "the last caller of start() is cancelled, and the task of the start runs"
    UNANSWERED = "the task of the start has ended, and its last caller is cancelled"
    UNDONE = "the tasks and connections of a start have ended"
    FAILED = "a background task has died"
    CLOSE = "close() is called, or the last reference is dropped"
    ENDING_BEGINS = "the task of the close runs"
    ENDED = "the task of the close is done"


class Effect(Enum):
    """An action that the caller of a transition must take."""

    BEGIN_START = "create the task of the start"
    CANCEL_START = "cancel the task of the start"
    REFUSE_START = "cancel the start from inside its task"
    UNDO_STARTED = "create a task that undoes a start that has succeeded"
    BEGIN_CLOSE = "create the task of the close"
    AWAIT_START = "wait until the task of the start has ended"
    SHUT_DOWN = "end the work, the tasks and the connections"


class Row(NamedTuple):
    """The next phase and the actions to take."""

    phase: LifecyclePhase
    effects: tuple[Effect, ...] = ()


_P, _E, _F, _R = LifecyclePhase, LifecycleEvent, Effect, Row

TABLE: Final[dict[tuple[LifecyclePhase, LifecycleEvent], Row]] = {
    (_P.NEW, _E.START): _R(_P.STARTING, (_F.BEGIN_START,)),
    (_P.NEW, _E.CLOSE): _R(_P.ENDING_NEW, (_F.BEGIN_CLOSE,)),
    (_P.STARTING, _E.READY): _R(_P.STARTED),
    (_P.STARTING, _E.START_FAILED): _R(_P.UNDOING),
    (_P.STARTING, _E.ABANDONED): _R(_P.UNDOING, (_F.CANCEL_START,)),
    (_P.STARTING, _E.CLOSE): _R(_P.ENDING_START, (_F.BEGIN_CLOSE,)),
    # This happens if the start suppresses its cancellation and succeeds.
    (_P.UNDOING, _E.READY): _R(_P.STARTED),
    (_P.UNDOING, _E.UNDONE): _R(_P.NEW),
    (_P.UNDOING, _E.CLOSE): _R(_P.ENDING_UNDO, (_F.BEGIN_CLOSE,)),
    (_P.STARTED, _E.START): _R(_P.RUNNING),
    (_P.STARTED, _E.ANSWERED): _R(_P.RUNNING),
    (_P.STARTED, _E.UNANSWERED): _R(_P.UNDOING, (_F.UNDO_STARTED,)),
    (_P.STARTED, _E.FAILED): _R(_P.BROKEN),
    (_P.STARTED, _E.CLOSE): _R(_P.ENDING, (_F.BEGIN_CLOSE,)),
    (_P.BROKEN, _E.START): _R(_P.FAILED),
    (_P.BROKEN, _E.ANSWERED): _R(_P.FAILED),
    (_P.BROKEN, _E.UNANSWERED): _R(_P.UNDOING, (_F.UNDO_STARTED,)),
    (_P.BROKEN, _E.CLOSE): _R(_P.ENDING_FAILED, (_F.BEGIN_CLOSE,)),
    (_P.RUNNING, _E.FAILED): _R(_P.FAILED),
    (_P.RUNNING, _E.CLOSE): _R(_P.ENDING, (_F.BEGIN_CLOSE,)),
    (_P.FAILED, _E.CLOSE): _R(_P.ENDING_FAILED, (_F.BEGIN_CLOSE,)),
    (_P.ENDING_NEW, _E.ENDED): _R(_P.CLOSED),
    (_P.ENDING_START, _E.READY): _R(_P.ENDING_START, (_F.REFUSE_START,)),
    (_P.ENDING_START, _E.START_FAILED): _R(_P.ENDING_UNDO),
    (_P.ENDING_START, _E.ENDING_BEGINS): _R(_P.ENDING_UNDO, (_F.CANCEL_START, _F.AWAIT_START)),
    (_P.ENDING_UNDO, _E.READY): _R(_P.ENDING_UNDO, (_F.REFUSE_START,)),
    (_P.ENDING_UNDO, _E.UNDONE): _R(_P.ENDING_NEW),
    (_P.ENDING_UNDO, _E.ENDING_BEGINS): _R(_P.ENDING_UNDO, (_F.AWAIT_START,)),
    (_P.ENDING_UNDO, _E.ENDED): _R(_P.CLOSED),
    (_P.ENDING, _E.FAILED): _R(_P.ENDING_FAILED),
    (_P.ENDING, _E.ENDING_BEGINS): _R(_P.ENDING, (_F.SHUT_DOWN,)),
    (_P.ENDING, _E.ENDED): _R(_P.CLOSED),
    (_P.ENDING_FAILED, _E.ENDING_BEGINS): _R(_P.ENDING_FAILED, (_F.SHUT_DOWN,)),
    (_P.ENDING_FAILED, _E.ENDED): _R(_P.CLOSED),
}
"""The transitions: from a phase and an event to the next phase and its actions."""

SHOWN: Final = {
    _P.NEW: State.NEW,
    _P.STARTING: State.STARTING,
    _P.UNDOING: State.STARTING,
    _P.STARTED: State.RUNNING,
    _P.BROKEN: State.FAILED,
    _P.RUNNING: State.RUNNING,
    _P.FAILED: State.FAILED,
    _P.ENDING_NEW: State.NEW,
    _P.ENDING_START: State.STARTING,
    _P.ENDING_UNDO: State.STARTING,
    _P.ENDING: State.RUNNING,
    _P.ENDING_FAILED: State.FAILED,
    _P.CLOSED: State.CLOSED,
}
"""The value of `state` in each phase, apart from DEGRADED."""

USABLE: Final = frozenset({_P.STARTED, _P.RUNNING})
"""Phases in which calls are accepted."""

ENDING: Final = frozenset(
    {_P.ENDING_NEW, _P.ENDING_START, _P.ENDING_UNDO, _P.ENDING, _P.ENDING_FAILED}
)
"""Phases in which a close has been requested and is not complete."""
