"""When the next heartbeat is due, and until when the coordinator counts the member in. Without IO.

Heartbeats are sent at the interval that the coordinator asks for, and at once when there is
something to tell. The first FREE of such a row are not delayed; later ones wait, longer each time,
so that a coordinator that asks for something without end does not keep the member busy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["HeartbeatSchedule"]

FREE = 5
"""Number of heartbeats in a row that are sent at once because there is something to tell."""

SHORTEST_S = 0.1
"""The shortest interval between heartbeats, whatever the coordinator asks for."""

PATIENCE = 0.5
"""Part of the session timeout after which an unanswered heartbeat is sent on a new connection."""


class HeartbeatSchedule:
    """The times of one member's heartbeats, on the monotonic clock.

    `usual_s` is the interval for a coordinator that asks for none, `session_s` the session timeout
    until `set_session` is called. `pause_s(n)` gives the delay of the nth heartbeat after FREE.
    """

    def __init__(self, usual_s: float, session_s: float, pause_s: Callable[[int], float]) -> None:
        self.session_s = session_s
        self.knows_session = False
        """Whether the session timeout was asked for, and answered or refused."""
        self.answered_at = -math.inf
        """The time at which the last heartbeat was sent that was answered."""
        self._usual_s = usual_s
        self._pause_s = pause_s
        self._due = self._not_before = -math.inf
        self._early = 0

    def set_session(self, session_s: float | None) -> None:
        """Take the session timeout that the group has; None if it is not known."""
        self.knows_session = True
        if session_s is not None:
            self.session_s = session_s

    def next_at(self, *, has_news: bool) -> float:
        """Return when the next heartbeat is due; with news it does not wait for the interval."""
        return self._not_before if has_news else max(self._due, self._not_before)

    def sending(self, *, has_news: bool) -> None:
        """Record that a heartbeat is about to be sent."""
        self._early = self._early + 1 if has_news else 0

    def attempt_timeout_s(self, request_s: float) -> float:
        """Return how long to wait for a response before the connection is given up."""
        return min(request_s, self.session_s * PATIENCE)

    def answered(self, sent_at: float, wanted_ms: int) -> None:
        """Record the response to a heartbeat, and the interval that it asks for."""
        self.answered_at = sent_at
        self._due, self._not_before = sent_at + self._interval_s(wanted_ms), -math.inf
        if self._early > FREE:
            self._not_before = sent_at + self._pause_s(self._early - FREE)

    def failed(self, until: float) -> None:
        """Record that nothing is to be sent until then, because an attempt failed."""
        self._not_before = until

    def _interval_s(self, wanted_ms: int) -> float:
        """Return the interval that the coordinator asks for, within reason."""
        if wanted_ms <= 0:
            return self._usual_s
        return max(min(wanted_ms / 1000, self.session_s * PATIENCE), SHORTEST_S)
