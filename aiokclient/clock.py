"""The source of time and randomness, which a simulation replaces.

A client uses its clock instead of `time.time()` and the functions of the module `random`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds for deadlines, wall-clock milliseconds for records, and randomness."""

    @property
    def rng(self) -> random.Random:
        """The only source of randomness: jitter, sampling, random identifiers."""
        ...

    def monotonic(self) -> float:
        """Return seconds on the clock of the running loop, comparable with `loop.time()`."""
        ...

    def time_ms(self) -> int:
        """Return milliseconds since the epoch."""
        ...


def get_loop_clock() -> Callable[[], float]:
    """Return a function that returns the running loop's time, in seconds.

    For asyncio's own loops it is `time.monotonic`, which `loop.time()` calls. That saves a call in
    Python where time is read for each batch.
    """
    clock = asyncio.get_running_loop().time
    own = getattr(clock, "__func__", None) is asyncio.BaseEventLoop.time
    return time.monotonic if own else clock


class SystemClock:
    """The machine's clocks, and a generator seeded by the operating system."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.rng = random.Random() if rng is None else rng

    def monotonic(self) -> float:
        """Return the running loop's time, or `time.monotonic()` outside of a loop."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return time.monotonic()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000
