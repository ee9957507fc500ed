"""The states of everything that is started and closed, as a table. Sans-IO.

    NEW ──START──▶ STARTING ──READY──▶ RUNNING ──FAILED──▶ FAILED
     ▲                │ ▲                 │                  │
     └────UNDONE──────┘ └───ABANDONED─────┴──────────────────┘

    any of them ──CLOSE──▶ ENDING ──ENDED──▶ CLOSED

The start and the close each run in a task of their own, which all callers share. It does not
matter which callers await it, or stop awaiting it. Three rules follow:

- A start that fails, or whose last caller is cancelled, is undone: all its tasks and connections
  end. The phase is STARTING until then, so that later callers wait, and then start anew. The undo
  is a task, too, and no cancellation reaches it.
- A start is *answered* once it has returned in one of its callers. Before that, no caller knows
  that it must close the client. If the last caller is cancelled then, even a start that has just
  succeeded is undone (ABANDONED). Later, a cancelled caller changes nothing.
- A close is decided when it is called. A start that succeeds afterwards is undone nevertheless
  (READY has no row in ENDING). A close from NEW has nothing to end, but is as final as any other.

The tasks begin after the call that creates them, even with `asyncio.eager_task_factory`
(see `background.new_task`). So a row is applied before the work that follows from it.

A failure of a background task is recorded in every phase except CLOSED. During a start, it makes
the start fail. An event without a row for the phase changes nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from aiokclient.types import State

__all__ = ["ENDED", "SHOWN", "TABLE", "LifecycleEvent", "LifecyclePhase"]


class LifecyclePhase(Enum):
    """A phase of a client between its creation and its end."""

    NEW = "new"
    STARTING = "starting, or ending what a start has left"
    RUNNING = "running"
    FAILED = "failed"
    ENDING = "ending"
    CLOSED = "closed"


class LifecycleEvent(Enum):
    """An event in the lifecycle of a client."""

    START = "start() is called"
    READY = "the task of the start has succeeded"
    ABANDONED = "the start has succeeded, and its last caller was cancelled"
    UNDONE = "the tasks and connections of a start have ended"
    FAILED = "a background task has died"
    CLOSE = "close() is called, or the last reference is dropped"
    ENDED = "the task of the close is done"


_P, _E = LifecyclePhase, LifecycleEvent

TABLE: Final[dict[tuple[LifecyclePhase, LifecycleEvent], LifecyclePhase]] = {
    (_P.NEW, _E.START): _P.STARTING,
    (_P.NEW, _E.CLOSE): _P.ENDING,
    (_P.STARTING, _E.READY): _P.RUNNING,
    (_P.STARTING, _E.UNDONE): _P.NEW,
    (_P.STARTING, _E.CLOSE): _P.ENDING,
    (_P.RUNNING, _E.ABANDONED): _P.STARTING,
    (_P.RUNNING, _E.FAILED): _P.FAILED,
    (_P.RUNNING, _E.CLOSE): _P.ENDING,
    (_P.FAILED, _E.ABANDONED): _P.STARTING,
    (_P.FAILED, _E.CLOSE): _P.ENDING,
    (_P.ENDING, _E.ENDED): _P.CLOSED,
}
"""The transitions: from a phase and an event to the next phase."""

SHOWN: Final = {
    _P.NEW: State.NEW,
    _P.STARTING: State.STARTING,
    _P.RUNNING: State.RUNNING,
    _P.FAILED: State.FAILED,
    _P.CLOSED: State.CLOSED,
}
"""The value of `state` in each phase, apart from DEGRADED. ENDING shows the state before it."""

ENDED: Final = frozenset({_P.ENDING, _P.CLOSED})
"""Phases in which a close was requested."""
