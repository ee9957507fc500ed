"""The state of a request over all its attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokclient.cluster.targets import Target
from aiokclient.errors import KafkaError, error_for
from aiokclient.network.pool import Purpose
from aiokclient.policy import Retry, Scope

if TYPE_CHECKING:
    from aiokclient.protocol.schema import Request

__all__ = ["Attempts", "Check", "GivenUpError", "any_version", "nothing", "top_level_error"]

Check = Callable[[Any], KafkaError | None]
"""A function that returns the error in a response, or None if there is no error."""


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


def top_level_error(response: Any) -> KafkaError | None:
    """Return the top-level error of a response, or None if it has no such field or error."""
    return error_for(getattr(response, "error_code", 0), getattr(response, "error_message", None))


def any_version() -> None:
    """Return None: every version that both sides support may be sent."""


async def nothing(error: KafkaError) -> None:
    """Do nothing before a retry."""
