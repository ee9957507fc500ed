"""Requests that are held or in flight, with the receivers of their outcomes.

A connection knows when a request is late, and what its outcome is. Each class here has another
receiver: a future, or a callback. That of produce requests is `producer.sending.sender`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokclient._native import twin
from aiokclient.errors import KafkaError

if TYPE_CHECKING:
    from aiokclient.protocol.produce_template import AnyRequest

OnResponse = Callable[[Any, KafkaError | None], object]
"""A function that receives the response and None, or None and the error."""


@twin("ground")
class PendingRequest:
    """A request that is held or in flight. `since` and `deadline` are on the loop's clock.

    If `version` is None, the negotiated version is used. Only the first outcome counts.
    """

    __slots__ = ("deadline", "expect_response", "message", "since", "timeout_s", "version")

    def __init__(
        self,
        message: AnyRequest,
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
