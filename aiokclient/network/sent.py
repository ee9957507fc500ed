"""The requests on a connection, with a future or a callback each, and the queue of held ones."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokclient.errors import KafkaError

if TYPE_CHECKING:
    from aiokclient.protocol.schema import Request

__all__ = ["AwaitedRequest", "CallbackRequest", "HeldRequests", "OnResponse", "PendingRequest"]

OnResponse = Callable[[Any, KafkaError | None], object]
"""A function that receives the response and None, or None and the error."""


class PendingRequest:
    """A request that is held or in flight. `since` and `deadline` are on the loop's clock.

    If `version` is None, the negotiated version is used. Only the first outcome counts.
    """

    __slots__ = ("deadline", "expect_response", "message", "since", "timeout_s", "version")

    def __init__(
        self,
        message: Request[Any],
        version: int | None,
        since: float,
        timeout_s: float,
        expect: bool,
    ) -> None:
        self.message = message
        self.version = version
        self.since = since
        self.timeout_s = timeout_s
        self.deadline = since + timeout_s
        self.expect_response = expect

    def restart_timeout(self, now: float) -> None:
        """Start the timeout of the request now."""
        self.since = now
        self.deadline = now + self.timeout_s

    @property
    def api(self) -> str:
        """The name of the request's API, such as "Fetch"."""
        return self.message.api_key.api_name

    @property
    def over(self) -> bool:
        """Whether the request has an outcome, or was cancelled."""
        raise NotImplementedError

    def deliver_response(self, response: Any) -> None:
        """Deliver the response."""
        raise NotImplementedError

    def on_written(self) -> None:
        """Complete a request that has no response, once the transport has it."""
        raise NotImplementedError

    def fail(self, error: KafkaError) -> None:
        """End the request with an error instead of a response."""
        raise NotImplementedError


class AwaitedRequest(PendingRequest):
    """A request with a future."""

    __slots__ = ("future",)

    def __init__(self, *request: Any) -> None:
        super().__init__(*request)
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        return self.future.done()

    def deliver_response(self, response: Any) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def on_written(self) -> None:
        self.deliver_response(None)

    def fail(self, error: KafkaError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            # Mark the error as retrieved: the sender may no longer wait for it. The connection
            # reports its own failure.
            self.future.exception()


class CallbackRequest(PendingRequest):
    """A request with a callback, which is called without waiting for the next loop iteration."""

    __slots__ = ("done", "over")

    over: bool

    def __init__(self, done: OnResponse, *request: Any) -> None:
        super().__init__(*request)
        self.done = done
        self.over = False

    def deliver_response(self, response: Any) -> None:
        if not self.over:
            self.over = True
            self.done(response, None)

    def on_written(self) -> None:
        self._fail_later(None)

    def fail(self, error: KafkaError) -> None:
        self._fail_later(error)

    def _fail_later(self, error: KafkaError | None) -> None:
        # Call it later, because the caller may be in the middle of sending or closing.
        if not self.over:
            self.over = True
            asyncio.get_running_loop().call_soon(self.done, None, error)


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

    def hold_until(self, until: float) -> None:
        """Write nothing before this time."""
        self.throttled_until = max(self.throttled_until, until)

    def add(self, request: PendingRequest, now: float) -> float:
        """Queue a request, and return the time at which the connection must look at the queue."""
        self.requests.append(request)
        if now < self.throttled_until:
            return min(request.deadline, self.throttled_until)
        return request.deadline

    def take_next(self, now: float) -> PendingRequest | None:
        """Remove and return the first request if it can be written now."""
        while self.requests and not (self.paused or now < self.throttled_until):
            request = self.requests.popleft()
            if not request.over:
                return request
        return None

    def take_expired(self, now: float) -> list[PendingRequest]:
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
