"""A request on a connection, and whom its outcome goes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokclient.errors import KafkaError

if TYPE_CHECKING:
    from aiokclient.protocol.schema import Request

__all__ = ["Answered", "Awaited", "Called", "Sent"]

Answered = Callable[[Any, KafkaError | None], object]
"""Gets the response and None, or None and why there is none."""


class Sent:
    """A request held back or in flight. `since` and `deadline` are on the loop's clock.

    `version` None is the negotiated one. Its outcome is told once; what comes later is ignored.
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

    def begin(self, now: float) -> None:
        """Count the timeout from now on."""
        self.since = now
        self.deadline = now + self.timeout_s

    @property
    def api(self) -> str:
        """The name of its API, such as "Fetch"."""
        return self.message.api_key.api_name

    @property
    def over(self) -> bool:
        """Whether it has its outcome, or was cancelled."""
        raise NotImplementedError

    def answer(self, response: Any) -> None:
        """Deliver the response."""
        raise NotImplementedError

    def written(self) -> None:
        """End a request that has no response, once it is given to the transport."""
        raise NotImplementedError

    def fail(self, error: KafkaError) -> None:
        """End the request with an error instead of a response."""
        raise NotImplementedError


class Awaited(Sent):
    """A request with a future."""

    __slots__ = ("future",)

    def __init__(self, *request: Any) -> None:
        super().__init__(*request)
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        return self.future.done()

    def answer(self, response: Any) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def written(self) -> None:
        self.answer(None)

    def fail(self, error: KafkaError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            # Whoever sent it may have gone; the failure of a connection is reported by the
            # connection.
            self.future.exception()


class Called(Sent):
    """A request with a callback, which is called without another iteration of the loop."""

    __slots__ = ("done", "over")

    over: bool

    def __init__(self, done: Answered, *request: Any) -> None:
        super().__init__(*request)
        self.done = done
        self.over = False

    def answer(self, response: Any) -> None:
        if not self.over:
            self.over = True
            self.done(response, None)

    def written(self) -> None:
        self._later(None)

    def fail(self, error: KafkaError) -> None:
        self._later(error)

    def _later(self, error: KafkaError | None) -> None:
        # Whoever is sending, or closing, is not disturbed in the midst of it.
        if not self.over:
            self.over = True
            asyncio.get_running_loop().call_soon(self.done, None, error)
