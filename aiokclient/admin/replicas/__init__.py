"""The admin calls that move replicas and leaders: single partitions, plans, and their throttle."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient.admin.replicas import moves as moves
    from aiokclient.admin.replicas import partitions as partitions
    from aiokclient.admin.replicas import planning as planning
    from aiokclient.admin.replicas import throttle as throttle
else:  # With it, type checkers would accept any name.

    def __getattr__(name: str) -> Any:
        """Import a module of calls, which `Admin` uses first."""
        if not name.startswith("_"):
            try:
                return import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
