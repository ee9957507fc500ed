"""The log lines of a consumer that waits for records and gets none, for a known reason.

A consumer without new records is nothing special, and neither is an election that takes a second.
So the log has a line only if requests for records wait in vain and `list_stall_reasons()`, which
are those of `health()`, are not empty, both for `STALLED_S`. When records are delivered again, or
the reasons are gone, there is another line. The watch looks once in `LOOK_S`, and only while
requests wait.

To let the log name another reason for which a consumer gets no records, add the reason to the texts
that `ConsumerEngine.list_troubles` returns, or to those of a part that it asks, such as the group.
Then health and log name it, and nothing else is to be done. If these have no reason, the log names
those of the whole client, for example that no broker can be reached.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiokclient.consumer.engine import ConsumerEngine

STALLED_S: Final = 5.0
"""Seconds without records and with a reason after which the log says so."""
LOOK_S: Final = 1.0
NAMED: Final = 3
"""The largest number of reasons in a log line."""


class StallWatch:
    """The watch of one consumer's requests for records. All times are on the loop's clock."""

    def __init__(self, engine: ConsumerEngine) -> None:
        self._time = asyncio.get_running_loop().time
        self._engine = engine
        self._waiting_since: float | None = None
        """`Reader.waiting_since` as of the last look."""
        self._reason_since: float | None = None
        """The time at which this wait was first seen to have a reason."""
        self._looked_at = 0.0
        self._told_at: float | None = None
        """The beginning of the stall that the log has named, or None."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def begin_watch(self, now: float) -> None:
        """Watch from now on, because a request for records must wait."""
        self._looked_at = now
        if self._timer is None and not self._closed:
            self._timer = self._engine.supervisor.callbacks.call_later(
                LOOK_S, self._examine_reasons
            )

    def end_watch(self) -> None:
        """End the watch."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _examine_reasons(self) -> None:
        self._timer = None
        now, waiting_since = self._time(), self._engine.reader.waiting_since
        if waiting_since != self._waiting_since:  # Records were delivered meanwhile.
            self._waiting_since, self._reason_since = waiting_since, None
        reasons = self._engine.list_stall_reasons() if waiting_since is not None else []
        if not reasons:
            self._end_stall(now)
        if waiting_since is None or self._closed:
            return
        if reasons and self._reason_since is None:
            self._reason_since = max(waiting_since, self._looked_at)
        since, away_since = self._reason_since, self._engine.read_lock.away_since
        # A program that requests no records at present misses none.
        is_asked = away_since is None or away_since >= self._looked_at
        self._looked_at = now
        if is_asked and since is not None and now - since >= STALLED_S and self._told_at is None:
            self._told_at = since
            more = len(reasons) - NAMED
            self._engine.log.warning(
                "No records could be read for %.0f s: %s%s.",
                now - since,
                "; ".join(reason.rstrip(".") for reason in reasons[:NAMED]),
                f"; and {more} more reasons" if more > 0 else "",
                extra={"event": "reading_stalled", "seconds": now - since, "reasons": reasons},
            )
        self._timer = self._engine.supervisor.callbacks.call_later(LOOK_S, self._examine_reasons)

    def _end_stall(self, now: float) -> None:
        self._reason_since = None
        since, self._told_at = self._told_at, None
        if since is not None:
            self._engine.log.warning(
                "Records can be read again. None could be read for %.0f s.",
                now - since,
                extra={"event": "reading_continues", "seconds": now - since},
            )
