"""The module of aiokafka in which its types are. Importing one from here says where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__: list[str] = []

if not TYPE_CHECKING:  # With it, type checkers would accept any name.

    def __getattr__(name: str) -> Any:
        from aiokclient.log.hints.names import STRUCTS

        if name not in STRUCTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # An AttributeError would lose its text in `from aiokclient.structs import ...`.
        raise ImportError(f"{name} is in another module here. {STRUCTS[name]}", name=__name__)
