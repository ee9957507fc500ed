"""Reachability of the brokers, with one line in the log each time that it changes.

A connection that is lost says little: brokers, load balancers and firewalls close connections that
are idle. So the loss of the last connection counts only once every broker has refused a new one,
or none was ready within `GRACE_S`. It ends with the first broker that answers again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokclient.log import ClientLog

__all__ = ["Reachability"]

GRACE_S: Final = 2.0


class Reachability:
    """The reachability of all brokers of one client together."""

    def __init__(self, log: ClientLog) -> None:
        self.lost = False
        """Whether no broker can be reached."""
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._why = ""
        self._timer: asyncio.TimerHandle | None = None

    def missing(self, why: str, *, certain: bool) -> None:
        """Take note that no broker counts as reachable; `certain`: each has refused a connection.

        `why` is what the last one said.
        """
        if self._since is None:
            self._since = self._loop.time()
        self._why = why
        if self.lost:
            return
        if certain:
            self._lose()
        elif self._timer is None:
            self._timer = self._loop.call_later(GRACE_S, self._lose)

    def found(self, broker: str) -> None:
        """Take note that a broker answers."""
        since, self._since = self._since, None
        self.close()
        if self.lost and since is not None:
            self.lost = False
            seconds = self._loop.time() - since
            self._log.warning(
                "%s can be reached again. No broker could be reached for %.1f s.",
                broker,
                seconds,
                extra={"event": "brokers_back", "seconds": seconds},
            )

    def now(self) -> float:
        """Return the time on the loop's clock, in any thread."""
        return self._loop.time()

    def close(self) -> None:
        """Stop waiting for the end of the grace."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _lose(self) -> None:
        self.close()
        self.lost = True
        self._log.warning(
            "No broker can be reached; the client keeps trying. %s",
            self._why,
            extra={"event": "brokers_unreachable", "error": self._why},
        )
