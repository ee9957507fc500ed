"""The times of heartbeats, and the session timeout of the member. Without IO.

Heartbeats are sent at the interval that the coordinator requests, and immediately when the member
has news for it. Of consecutive heartbeats with news, the first FREE are not delayed. Later ones are
delayed by increasing times, so that a coordinator that keeps changing the assignment does not keep
the member busy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["HeartbeatSchedule"]

FREE = 5
"""Number of consecutive heartbeats with news that are sent without a delay."""

SHORTEST_S = 0.1
"""The shortest interval between heartbeats in seconds, even if the coordinator requests less."""

PATIENCE = 0.5
"""Fraction of the session timeout after which an unanswered heartbeat is sent again.

It is then sent on a new connection.
"""


class HeartbeatSchedule:
    """The times of one member's heartbeats, on the monotonic clock.

    `usual_s` is the interval if the coordinator requests none. `session_s` is the session timeout
    until `set_session` is called. `pause_s(n)` returns the delay in seconds of the nth heartbeat
    with news after the first FREE ones.
    """

    def __init__(self, usual_s: float, session_s: float, pause_s: Callable[[int], float]) -> None:
        self.session_s = session_s
        self.knows_session = False
        """Whether the lookup of the session timeout has ended, with or without a result."""
        self.answered_at = -math.inf
        """The time at which the last heartbeat with a response was sent."""
        self._usual_s = usual_s
        self._pause_s = pause_s
        self._due = self._not_before = -math.inf
        self._early = 0

    def set_session(self, session_s: float | None) -> None:
        """Store the session timeout of the group. None keeps the previous value."""
        self.knows_session = True
        if session_s is not None:
            self.session_s = session_s

    def next_at(self, *, has_news: bool) -> float:
        """Return the time of the next heartbeat. One with news does not wait for the interval."""
        return self._not_before if has_news else max(self._due, self._not_before)

    def sending(self, *, has_news: bool) -> None:
        """Record that a heartbeat is about to be sent."""
        self._early = self._early + 1 if has_news else 0

    def attempt_timeout_s(self, request_s: float) -> float:
        """Return the seconds to wait for a response before the connection is closed."""
        return min(request_s, self.session_s * PATIENCE)

    def answered(self, sent_at: float, wanted_ms: int) -> None:
        """Record the response to a heartbeat, and the interval that it requests."""
        self.answered_at = sent_at
        self._due, self._not_before = sent_at + self._interval_s(wanted_ms), -math.inf
        if self._early > FREE:
            self._not_before = sent_at + self._pause_s(self._early - FREE)

    def failed(self, until: float) -> None:
        """Send nothing before the time `until`, because an attempt failed."""
        self._not_before = until

    def _interval_s(self, wanted_ms: int) -> float:
        """Return the interval that the coordinator requests, limited to reasonable values."""
        if wanted_ms <= 0:
            return self._usual_s
        return max(min(wanted_ms / 1000, self.session_s * PATIENCE), SHORTEST_S)
