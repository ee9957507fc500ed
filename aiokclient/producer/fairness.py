"""The time for which the producer works before it yields to the event loop."""

from __future__ import annotations

from typing import Final

__all__ = ["SLICE_S"]

SLICE_S: Final = 0.010
"""Seconds of work between two yields. The library promises at most 50 ms for any callback."""
