"""The times of a member's rebalance: when it began, and by when the handler must have returned."""

from __future__ import annotations

import asyncio
import math

__all__ = ["RebalanceTimes"]


class RebalanceTimes:
    """The times of a rebalance, on the loop's clock.

    `since` is when the member began to wait for the next generation, or None. `deadline` is when
    `before_rejoin` has to return, or infinity while that is not known.
    """

    __slots__ = ("_timeout_s", "deadline", "since")

    def __init__(self, timeout_ms: int) -> None:
        self.since: float | None = None
        self.deadline = math.inf
        self._timeout_s = timeout_ms / 1000

    def waits(self, waiting: bool) -> None:
        """Record whether the member waits for the next generation."""
        if not waiting:
            self.since = None
        elif self.since is None:
            self.since = asyncio.get_running_loop().time()

    def began_after(self, stable_at: float) -> None:
        """Set the deadline for a rebalance that began after `stable_at`.

        A deadline that is already set and earlier remains.
        """
        self.deadline = min(self.deadline, stable_at + self._timeout_s)

    def begins(self) -> None:
        """Set the deadline for a rebalance that begins now, unless a deadline is already set."""
        if self.deadline == math.inf:
            self.deadline = asyncio.get_running_loop().time() + self._timeout_s

    def synced(self) -> None:
        """Remove the deadline, because the next generation has begun."""
        self.deadline = math.inf
