"""The reachability of the brokers, with one log line for each change.

A lost connection alone means little: brokers, load balancers, and firewalls close idle connections.
After the loss of the last connection, the brokers count as unreachable only once each of them has
refused a new connection, or no connection was ready within `GRACE_S`. They count as reachable again
as soon as one of them responds.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokclient.log.client_log import ClientLog

__all__ = ["Reachability"]

GRACE_S: Final = 2.0


class Reachability:
    """The reachability of the brokers of one client, taken together."""

    def __init__(self, log: ClientLog) -> None:
        self.lost = False
        """Whether no broker can be reached."""
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._why = ""
        self._timer: asyncio.TimerHandle | None = None

    def missing(self, why: str, *, certain: bool) -> None:
        """Record that no broker is reachable. `why` is the last error.

        `certain` means that each broker has refused a connection.
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
        """Record that a broker has responded."""
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
        """Cancel the timer of the grace period."""
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
