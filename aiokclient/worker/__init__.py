"""Handlers of records: retries, dead letters, draining, and health."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient.worker.dead_letters import DeadLetter, DeadLetterInfo
    from aiokclient.worker.failure import Failure
    from aiokclient.worker.replays import ReplayReport, replay

__all__ = [
    "DeadLetter",
    "DeadLetterInfo",
    "Failure",
    "ReplayReport",
    "replay",
]

_MODULES = {
    "DeadLetter": "dead_letters",
    "DeadLetterInfo": "dead_letters",
    "Failure": "failure",
    "ReplayReport": "replays",
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
