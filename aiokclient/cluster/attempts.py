"""The state of a request over all its attempts."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokclient.cluster.targets import Target
from aiokclient.errors import DisconnectedError, KafkaError, error_for
from aiokclient.limited_log import LimitedLog
from aiokclient.network.pool import Purpose
from aiokclient.policy import Retry, Scope

if TYPE_CHECKING:
    from aiokclient.clock import Clock
    from aiokclient.log import ClientLog
    from aiokclient.protocol.schema import Request

__all__ = [
    "Attempts",
    "Check",
    "GivenUpError",
    "RefusalLog",
    "any_version",
    "is_refusal",
    "nothing",
    "top_level_error",
]

Check = Callable[[Any], KafkaError | None]
"""A function that returns the error in a response, or None if there is no error."""
UNANSWERED = frozenset({DisconnectedError.code})
"""Codes of errors that no broker sends: there was no answer."""
PERSISTENT = 5
"""Number of refusals of a call after which they are logged although retries often end them."""


def is_refusal(error: KafkaError) -> bool:
    """Return whether a broker has answered with this error."""
    return error.code is not None and error.code not in UNANSWERED


class GivenUpError(Exception):
    """A signal that no further attempt follows: the last error becomes the error of the call."""


@dataclass(slots=True)
class Attempts:
    """The attempts of one call. Each attempt may take `attempt_s` seconds."""

    message: Request[Any]
    to: Target
    scope: Scope
    check: Check
    purpose: Purpose
    owner: Hashable
    retry: Retry
    attempt_s: float
    highest: Callable[[], int | None]
    """A function that returns the highest version in which to send the request.

    It returns None if every version may be sent.
    """
    before_retry: Callable[[KafkaError], Awaitable[None]]
    """A function that is awaited before each retry, with the error of the last attempt."""
    node_id: int | None = None
    sent: bool = False
    """Whether the current attempt was sent, so that a broker may execute the request."""
    error: KafkaError | None = None
    refusal: KafkaError | None = None
    """The last error that a broker has answered, which later silence does not replace."""
    refusals: int = 0

    @property
    def cause(self) -> KafkaError | None:
        """The error that explains why the call did not succeed in time."""
        error = self.error
        is_answer = error is not None and is_refusal(error)
        return error if is_answer or self.refusal is None else self.refusal

    @property
    def api(self) -> str:
        """The name of the request's API."""
        return self.message.api_key.api_name

    def adopt(self, error: KafkaError) -> None:
        """Record the error of a first attempt that `ClusterClient.attempt` has made."""
        self.node_id = error.broker if isinstance(error.broker, int) else None
        self.sent = True
        self.met(error)

    def met(self, error: KafkaError) -> None:
        """Record the error of the current attempt."""
        if error.api is None:
            error.api = self.api
        if error.broker is None:
            error.broker = self.node_id
        self.error = error
        if is_refusal(error):
            self.refusal = error
            self.refusals += 1
        elif isinstance(error.__cause__, KafkaError) and is_refusal(error.__cause__):
            self.refusal = error.__cause__


class RefusalLog:
    """A log of refusals after which requests are repeated, with one line for each kind of refusal.

    Refusals that usually end by themselves at once, such as by a former leader, are logged if they
    persist.
    """

    def __init__(self, log: ClientLog, clock: Clock) -> None:
        self._log = LimitedLog(log, clock.monotonic)

    def note(self, error: KafkaError | None, times: int = PERSISTENT) -> None:
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


def top_level_error(response: Any) -> KafkaError | None:
    """Return the top-level error of a response, or None if it has no such field or error."""
    return error_for(getattr(response, "error_code", 0), getattr(response, "error_message", None))


def any_version() -> None:
    """Return None: every version that both sides support may be sent."""


async def nothing(error: KafkaError) -> None:
    """Do nothing before a retry."""
