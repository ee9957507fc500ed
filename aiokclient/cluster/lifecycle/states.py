"""The states of everything that is started and closed, as a table. Sans-IO.

    NEW ──START──▶ STARTING ──READY──▶ RUNNING ──FAILED──▶ FAILED
     ▲                │
     └────UNDONE──────┘

    any of them ──CLOSE──▶ ENDING ──ENDED──▶ CLOSED

A start runs in the task of its first caller. If it fails or is cancelled, it is undone: all its
tasks and connections end, in a task that no cancellation reaches. The phase is STARTING until then,
so that other callers wait. They return or raise as the first one does, except after a cancellation:
then one of them starts anew.

A close runs in a task of its own, which all its callers share. It is decided when it is called. It
ends a start in progress, and a start that succeeds afterwards is undone nevertheless. A close from
NEW has nothing to end, but is as final as any other. The task begins after the call that creates
it, even with `asyncio.eager_task_factory` (see `background.new_task`), so the row is applied before
the work that follows from it.

A failure of a background task is recorded in every phase except CLOSED. During a start, it makes
the start fail. An event without a row for the phase changes nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from aiokclient.types import State


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
    READY = "the start has succeeded"
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
    (_P.RUNNING, _E.FAILED): _P.FAILED,
    (_P.RUNNING, _E.CLOSE): _P.ENDING,
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
