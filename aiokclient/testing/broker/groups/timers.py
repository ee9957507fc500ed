"""The timers of a group's members, in the loop of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from aiokclient.testing.broker.state import ClusterState

Key: TypeAlias = tuple[str, str]
"""What it is for, and the member's id."""


class Timers:
    """Each key has one timer at most; starting it again puts it off."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._running: dict[Key, asyncio.TimerHandle] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._running

    def start(self, key: Key, ms: int, step: Callable[[], None]) -> None:
        """Take a step in `ms` milliseconds, unless it is cancelled or started again."""
        self.cancel(key)

        def run() -> None:
            self._running.pop(key, None)
            self._cluster.guarded(step)
            self._cluster.changed()

        self._running[key] = self._cluster.loop.call_later(ms / 1000, run)

    def cancel(self, key: Key) -> None:
        timer = self._running.pop(key, None)
        if timer is not None:
            timer.cancel()

    def clear(self) -> None:
        for key in list(self._running):
            self.cancel(key)
