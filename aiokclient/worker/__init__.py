"""Handlers of records: retries, dead letters, draining, and health."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient.worker.dead_letters import DeadLetter, DeadLetterInfo
    from aiokclient.worker.health import OldestRecord, WorkerHealth
    from aiokclient.worker.replays import ReplayReport, replay
    from aiokclient.worker.retry import (
        Batch,
        BatchError,
        Exponential,
        Failure,
        Reject,
        Retry,
        RetryLater,
    )
    from aiokclient.worker.serving.asgi import asgi
    from aiokclient.worker.serving.lifespan import lifespan
    from aiokclient.worker.worker import Worker

__all__ = [
    "Batch",
    "BatchError",
    "DeadLetter",
    "DeadLetterInfo",
    "Exponential",
    "Failure",
    "OldestRecord",
    "Reject",
    "ReplayReport",
    "Retry",
    "RetryLater",
    "Worker",
    "WorkerHealth",
    "asgi",
    "lifespan",
    "replay",
]

_MODULES = {
    "Batch": "retry",
    "BatchError": "retry",
    "DeadLetter": "dead_letters",
    "DeadLetterInfo": "dead_letters",
    "Exponential": "retry",
    "Failure": "retry",
    "OldestRecord": "health",
    "Reject": "retry",
    "ReplayReport": "replays",
    "Retry": "retry",
    "RetryLater": "retry",
    "Worker": "worker",
    "WorkerHealth": "health",
    "asgi": "serving.asgi",
    "lifespan": "serving.lifespan",
    "replay": "replays",
}
"""The module of each public name. `.ci/write-names` writes it from the imports above."""


if not TYPE_CHECKING:  # If type checkers saw the function, they would accept any name.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
