"""Patterns that combine clients: a single writer, work assigned to a pool, and transactions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient.patterns.pool import WorkItems, work_pool
    from aiokclient.patterns.transform_stream import TransformBatch, TransformStream, transform
    from aiokclient.patterns.writer import single_writer

__all__ = [
    "TransformBatch",
    "TransformStream",
    "WorkItems",
    "single_writer",
    "transform",
    "work_pool",
]

_MODULES = {
    "TransformBatch": "transform_stream",
    "TransformStream": "transform_stream",
    "WorkItems": "pool",
    "single_writer": "writer",
    "transform": "transform_stream",
    "work_pool": "pool",
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
