"""The requests that a connection does not write yet, and the reasons for that."""

from __future__ import annotations

from collections import deque

from aiokclient.network.sent import PendingRequest

__all__ = ["HeldRequests"]


class HeldRequests:
    """The queue of held requests, in the order of sending.

    The connection writes nothing while `paused` (the transport's buffer is full, or the client
    authenticates again) and before `throttled_until` (the broker has returned a throttle time). All
    times are on the loop's clock.
    """

    __slots__ = ("_full", "_paused_at", "paused", "requests", "suspended", "throttled_until")

    def __init__(self) -> None:
        self.requests: deque[PendingRequest] = deque()
        self.paused = False
        self.throttled_until = 0.0
        self._full = False
        self.suspended = False
        self._paused_at = 0.0

    def pause(self, now: float) -> None:
        """Write nothing until `resume`, because the transport's buffer is full."""
        self.paused = self._full = True
        self._paused_at = now

    def resume(self) -> None:
        """Continue to write, because the transport accepts requests again."""
        self._full = False
        self.paused = self.suspended

    def suspend(self, on: bool) -> None:
        """Write nothing while `on`, because the client authenticates again."""
        self.suspended = on
        self.paused = on or self._full

    def throttle(self, until: float) -> None:
        """Write nothing before this time."""
        self.throttled_until = max(self.throttled_until, until)

    def add(self, request: PendingRequest, now: float) -> float:
        """Queue a request, and return the time at which the connection must look at the queue."""
        self.requests.append(request)
        if now < self.throttled_until:
            return min(request.deadline, self.throttled_until)
        return request.deadline

    def next(self, now: float) -> PendingRequest | None:
        """Remove and return the first request if it can be written now."""
        while self.requests and not (self.paused or now < self.throttled_until):
            request = self.requests.popleft()
            if not request.over:
                return request
        return None

    def expired(self, now: float) -> list[PendingRequest]:
        """Remove and return the requests whose deadline has passed."""
        late = [request for request in self.requests if request.deadline <= now]
        for request in late:
            self.requests.remove(request)
        return late

    def is_stuck(self, request: PendingRequest) -> bool:
        """Return whether only a full transport has kept this request from being written."""
        return self._full and max(self._paused_at, self.throttled_until) <= request.since

    def wake_times(self, now: float) -> list[float]:
        """Return the times at which the connection must look at the queue."""
        times = [request.deadline for request in self.requests]
        if times and self.throttled_until > now:
            times.append(self.throttled_until)
        return times
