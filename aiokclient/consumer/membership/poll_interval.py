"""A watch over the poll interval: whether the application still requests records.

If an application hangs, its heartbeats continue, and its partitions would never be assigned to
another member. So a member leaves when the application has not requested records for
`max_poll_interval_ms`. Time in which the application waits for records does not count. With
`tracked`, the age of the oldest outstanding record counts instead.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokclient.consumer.delivery.in_progress import InProgress
    from aiokclient.consumer.delivery.read_lock import ReadLock

__all__ = ["PollIntervalWatch"]


class PollIntervalWatch:
    """A task that calls `overdue(text)` once each time that the poll interval is exceeded."""

    def __init__(
        self,
        read_lock: ReadLock,
        in_progress: InProgress,
        interval_s: float,
        overdue: Callable[[str], None],
    ) -> None:
        self._read_lock = read_lock
        self._in_progress = in_progress
        self._interval_s = interval_s
        self._overdue = overdue
        self._told = -math.inf
        self._said = ""

    @property
    def trouble(self) -> str | None:
        """The text of the last call of `overdue`, until the application requests records again."""
        return self._said if self._since() == self._told else None

    async def run(self) -> None:
        """Watch the poll interval. Run until the task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            since = self._since()
            now = loop.time()
            due = math.inf if since is None or since == self._told else since + self._interval_s
            if now < due:
                # Sleep for at most one interval: a record that is delivered meanwhile cannot be
                # overdue before that.
                await asyncio.sleep(min(due, now + self._interval_s) - now)
                continue
            assert since is not None
            self._told = since
            self._said = self._text(now - since)
            self._overdue(self._said)

    def _since(self) -> float | None:
        oldest = self._in_progress.oldest()
        return self._read_lock.away_since if oldest is None else oldest

    def _text(self, seconds: float) -> str:
        oldest = self._in_progress.oldest()
        what = "requested records" if oldest is None else "finished a record"
        return (
            f"the application has not {what} for {seconds:.1f} s, longer than "
            "max_poll_interval_ms. Process less at a time, or increase the limit"
        )
