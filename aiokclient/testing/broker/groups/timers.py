"""The timers of groups and of transactional ids, in the cluster's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from aiokclient.testing.broker.state import ClusterState

Key: TypeAlias = tuple[str, str]
"""The purpose of the timer, and the id that it is for: a member id, or a transactional id."""


class Timers:
    """Timers, at most one for each key. A timer that is started again replaces the earlier one."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._running: dict[Key, asyncio.TimerHandle] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._running

    def start_timer(self, key: Key, ms: int, step: Callable[[], None]) -> None:
        """Call `step` in `ms` milliseconds, unless the timer is cancelled or restarted."""
        self.cancel_timer(key)

        def run() -> None:
            self._running.pop(key, None)
            self._cluster.call_guarded(step)
            self._cluster.notify_tests()

        self._running[key] = self._cluster.loop.call_later(ms / 1000, run)

    def cancel_timer(self, key: Key) -> None:
        timer = self._running.pop(key, None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        for key in list(self._running):
            self.cancel_timer(key)
