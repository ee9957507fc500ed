"""The state of a request over all its attempts, and the handle of a response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Generator, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiokclient.cluster.targets import Target
from aiokclient.errors import DisconnectedError, KafkaError, WrongLoopError
from aiokclient.log.kept_errors import bare
from aiokclient.log.limited_log import LimitedLog
from aiokclient.policy import Attempts, Scope

if TYPE_CHECKING:
    from aiokclient.clock import Clock
    from aiokclient.log.client_log import ClientLog
    from aiokclient.network.pool import Purpose
    from aiokclient.protocol.api import ApiKey
    from aiokclient.protocol.schema import Request

Check = Callable[[Any], KafkaError | None]
"""A function that returns the error in a response, or None if there is no error."""
UNANSWERED_S = 2.0
"""Seconds after which a missing answer is shown."""
PERSISTENT = 5
"""Number of refusals of a call after which they are logged although retries often end them."""


def is_refusal(error: KafkaError) -> bool:
    """Return whether a broker has answered with this error."""
    # No broker sends the code of a DisconnectedError: there was no answer.
    return error.code is not None and error.code != DisconnectedError.code


def answer_in(error: KafkaError) -> KafkaError:
    """Return the refusal that an error of silence has as its cause, otherwise the error."""
    cause = error.__cause__
    if not is_refusal(error) and isinstance(cause, KafkaError) and is_refusal(cause):
        return cause
    return error


class LastAnswer:
    """The last error of the attempts of one call.

    Silence later does not replace what a broker has answered.
    """

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def note_error(self, error: KafkaError) -> None:
        """Record the error of an attempt."""
        answer = answer_in(error)
        if self.error is None or is_refusal(answer) or not is_refusal(self.error):
            self.error = answer


class CallProgress:
    """The last error of a call in progress, and for how long it has had no answer."""

    __slots__ = ("api_key", "last", "sent_to", "silent_since", "to")

    def __init__(self, to: Target, api_key: ApiKey) -> None:
        self.to = to
        self.api_key = api_key
        self.last = LastAnswer()
        self.sent_to: int | None = None
        """The broker to which the last request was sent."""
        self.silent_since: float | None = None
        """The time of the first request that was sent after the last answer; None without one."""

    def note_request(self, node_id: int, now: float) -> None:
        """Record that a request was sent to a broker."""
        self.sent_to = node_id
        if self.silent_since is None:
            self.silent_since = now

    def note_failure(self, error: KafkaError) -> None:
        """Record the error of an attempt."""
        self.last.note_error(error)
        if is_refusal(error):
            self.silent_since = None

    def note_success(self) -> None:
        """Record a successful answer to a call that is repeated."""
        self.silent_since, self.last = None, LastAnswer()


class GivenUpError(Exception):
    """A signal that no further attempt follows: the last error becomes the error of the call."""


class CallAttempts:
    """The attempts of one call. Each attempt may take `attempt_s` seconds."""

    __slots__ = (
        "attempt_s",
        "error",
        "message",
        "node_id",
        "owner",
        "progress",
        "purpose",
        "refusals",
        "retry",
        "scope",
        "to",
        "unanswered",
        "was_sent",
    )

    def __init__(
        self,
        message: Request[Any],
        to: Target,
        scope: Scope,
        purpose: Purpose,
        owner: Hashable,
        retry: Attempts,
        attempt_s: float,
        unanswered: set[asyncio.Future[Any]] | None = None,
    ) -> None:
        self.message = message
        self.to = to
        self.scope = scope
        self.purpose = purpose
        self.owner = owner
        self.retry = retry
        self.attempt_s = attempt_s
        self.unanswered = unanswered
        """If given, the responses that have not arrived yet, also abandoned ones."""
        self.node_id: int | None = None
        self.was_sent = False
        """Whether the current attempt was sent, so that a broker may execute the request."""
        self.error: KafkaError | None = None
        self.refusals = 0
        self.progress = CallProgress(to, message.api_key)

    async def await_response(self, arriving: asyncio.Future[Any]) -> Any:
        """Wait for a response, and keep it in `unanswered` until it arrives."""
        assert self.unanswered is not None
        self.unanswered.add(arriving)
        arriving.add_done_callback(partial(_forget, self.unanswered))
        await asyncio.wait([arriving])  # It does not cancel the future, as `await` would.
        return arriving.result()

    @property
    def cause(self) -> KafkaError | None:
        """The error that explains why the call did not succeed in time."""
        return self.progress.last.error

    @property
    def api(self) -> str:
        """The name of the request's API."""
        return self.message.api_key.api_name

    def record_first_error(self, error: KafkaError) -> None:
        """Record the error of a first attempt that `ClusterClient.attempt_request` has made."""
        self.node_id = error.broker if isinstance(error.broker, int) else None
        self.was_sent = True
        self.record_error(error)

    def record_error(self, error: KafkaError) -> None:
        """Record the error of the current attempt."""
        if error.api is None:
            error.api = self.api
        if error.broker is None:
            error.broker = self.node_id
        self.error = error
        self.progress.note_failure(error)
        self.refusals += is_refusal(error)


class CallsInProgress:
    """The calls of one client that have not ended, for the texts of errors and of the health.

    A call in the background knows why it has not succeeded; the one that waits for it does not.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[CallProgress, None] = {}

    def add_call(self, call: CallProgress) -> None:
        """Record that a call has begun."""
        self._calls[call] = None

    def remove_call(self, call: CallProgress) -> None:
        """Record that a call has ended."""
        del self._calls[call]

    def find_cause(self, target: Target) -> KafkaError | None:
        """Return why the calls to a target have not succeeded so far, or None if that is unknown.

        A refusal takes precedence over a missing answer.
        """
        last = LastAnswer()
        for call in self._calls:
            if call.to == target and call.last.error is not None:
                last.note_error(call.last.error)
        return None if last.error is None else bare(last.error)

    def find_trouble(self, target: Target, apis: Container[ApiKey]) -> str | None:
        """Return, as a text, which request of one of the APIs to a target does not succeed.

        Either it has had no answer for UNANSWERED_S, or the text has its last error. Return None
        if there is no such request.
        """
        for call in self._calls:
            if call.to != target or call.api_key not in apis:
                continue
            name = call.api_key.api_name
            since = call.silent_since
            waited_s = 0.0 if since is None else self._clock.monotonic() - since
            if waited_s >= UNANSWERED_S:
                return f"broker {call.sent_to} has not answered {name} for {waited_s:.0f} s"
            if call.last.error is not None:
                return f"the last error of {name}: {call.last.error.brief.rstrip('.')}"
        return None


class RefusalLog:
    """A log of refusals after which requests are repeated, with one line for each kind of refusal.

    Refusals that usually end by themselves at once, such as by a former leader, are logged if they
    persist.
    """

    def __init__(self, log: ClientLog, clock: Clock) -> None:
        self._log = LimitedLog(log, clock)

    def log_refusal(self, error: KafkaError | None, times: int = PERSISTENT) -> None:
        """Log an error if a broker has answered it. `times` counts the refusals of this call."""
        if error is None or not is_refusal(error) or times < PERSISTENT:
            return
        self._log.write(
            logging.WARNING,
            ("refused", error.api, error.name),
            "A broker refuses %s requests, which are repeated until their deadlines: %s",
            error.api,
            error.brief,
            extra={"event": "request_refused", "error": error.name},
        )


def any_version() -> None:
    """Return None: every version that both sides support may be sent."""


async def nothing(error: KafkaError) -> None:
    """Do nothing before a retry."""


def _forget(unanswered: set[asyncio.Future[Any]], arrived: asyncio.Future[Any]) -> None:
    unanswered.discard(arrived)
    if not arrived.cancelled():
        arrived.exception()  # Marks the error as retrieved: maybe no call waits for it any more.


T_co = TypeVar("T_co", covariant=True)


class PendingResponse(Generic[T_co]):
    """A handle of a response that has not arrived yet.

    It can be awaited any number of times, in any number of tasks. Awaiting it returns the response
    or raises the error of the request. Cancelling a task that awaits it does not cancel the
    request. `result()` and `exception()` raise `asyncio.InvalidStateError` before it is done.
    """

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, T_co]:
        return self._wait_for_result().__await__()

    async def _wait_for_result(self) -> T_co:
        if not self._future.done():
            if asyncio.get_running_loop() is not self._future.get_loop():
                raise WrongLoopError(
                    "This response belongs to a client that was started in another event loop. "
                    "Await it there, or use asyncio.run_coroutine_threadsafe with that loop."
                )
            await asyncio.wait([self._future])
        return self.result()

    def done(self) -> bool:
        """Return whether the response has arrived or the request has failed."""
        return self._future.done()

    def result(self) -> T_co:
        """Return the response, or raise the error of the request."""
        response: T_co = self._future.result()
        return response

    def exception(self) -> BaseException | None:
        """Return the error of the request, or None if it has succeeded."""
        return self._future.exception()

    def add_done_callback(self, callback: Callable[[PendingResponse[T_co]], object]) -> None:
        """Call `callback(self)` in the event loop after the response or an error has arrived."""
        if not callable(callback):
            raise TypeError(
                f"add_done_callback() takes a function of one response, not {callback!r}."
            )
        self._future.add_done_callback(_Call(self, callback))

    def remove_done_callback(self, callback: Callable[[PendingResponse[T_co]], object]) -> int:
        """Remove all occurrences of a callback, and return their number."""
        return self._future.remove_done_callback(_Call(self, callback))

    def cancelled(self) -> bool:
        """Return False: a request cannot be cancelled."""
        return False


class _Call(Generic[T_co]):
    """A callback of the application, which gets the handle instead of the future.

    Two callbacks with the same handle and function are equal, so that the future can remove them.
    """

    __slots__ = ("callback", "response")

    def __init__(
        self, response: PendingResponse[T_co], callback: Callable[[PendingResponse[T_co]], object]
    ) -> None:
        self.response = response
        self.callback = callback

    def __call__(self, _: asyncio.Future[Any]) -> None:
        self.callback(self.response)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Call):
            return NotImplemented
        return self.response is other.response and bool(self.callback == other.callback)

    __hash__ = None  # type: ignore[assignment]
