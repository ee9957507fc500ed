"""How long the producer may hold the event loop before it gives way."""

from __future__ import annotations

from typing import Final

__all__ = ["SLICE_S"]

SLICE_S: Final = 0.010
"""Seconds of work in one go; the library's promise is 50 ms for any callback."""
