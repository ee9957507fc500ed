"""The delays before a member joins its group again."""

from __future__ import annotations

import asyncio
import math

from aiokclient.policy import Retry

__all__ = ["RejoinBackoff"]

STEADY_S = 5.0
"""Seconds after which a generation counts as successful, so that backoff starts again."""

FREE = 5
"""Number of consecutive times that a member joins again without a delay."""


class RejoinBackoff:
    """The growing delays before the next JoinGroup. A generation that lasts resets them."""

    __slots__ = ("_not_before", "_repeated", "_retry", "_synced_at")

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self._repeated = 0
        self._synced_at = math.inf
        self._not_before = 0.0

    def synced(self) -> None:
        """Record that a generation has begun."""
        self._synced_at = _now()

    def reset_if_steady(self) -> None:
        """Start with the shortest delay again if the generation has lasted long enough."""
        if _now() >= self._synced_at + STEADY_S:
            self._repeated = 0
            self._retry.succeeded()
            self._synced_at = math.inf

    def delay(self) -> None:
        """Delay the next JoinGroup."""
        self._not_before = _now() + self._retry.pause_s()

    def delay_if_repeated(self) -> None:
        """Delay the next JoinGroup if the member has joined again too many times in a row."""
        self._repeated += 1
        if self._repeated > FREE:
            self.delay()

    async def wait(self) -> None:
        """Wait for the end of the delay."""
        await asyncio.sleep(self._not_before - _now())


def _now() -> float:
    return asyncio.get_running_loop().time()
