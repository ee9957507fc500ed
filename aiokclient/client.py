"""The client that producers, consumers and admins share, and the low-level requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never, TypeVar, Unpack

from aiokclient.cluster.parent import Parent
from aiokclient.cluster.pending import PendingResponse
from aiokclient.cluster.targets import TARGETS, Target
from aiokclient.cluster.tracebacks import let_go, lets_go
from aiokclient.config.client import ClientConfig, ClientOptions
from aiokclient.config.problems import refuse_positional
from aiokclient.protocol.schema import Request
from aiokclient.types import seconds

if TYPE_CHECKING:
    from aiokclient.protocol.schema import Response

__all__ = ["Client"]

R = TypeVar("R", bound="Response")


class Client(Parent):
    """Connections and metadata that producers, consumers and admins share.

        async with Client(bootstrap_servers="localhost:9092") as client:
            async with Producer(client=client) as producer: ...
            response = await client.request(messages.ListGroupsRequest(), to=AnyBroker())

    A client can be created outside of an event loop. `async with`, `await client.start()` or
    `await client` starts it. Closing a client closes its consumers, then its producers, then its
    admins, the newest first. That takes at most `close_timeout_ms`, or the timeout given to
    `close`, plus the time that the producers need to deliver their last records. Options have the
    names of Kafka's options, with `_` in place of `.`. An invalid option raises ConfigError.
    """

    def __init__(self, *wrong: Never, **options: Unpack[ClientOptions]) -> None:
        ClientConfig.hide(options)
        refuse_positional("Client", wrong)
        super().__init__(ClientConfig.build(options))

    @lets_go
    async def request(self, message: Request[R], to: Target, *, timeout: float | None = None) -> R:
        """Send any request of the protocol and return the decoded response.

        `to` is the target: `AnyBroker()`, `Broker(id)`, `Controller()`, `Leader(topic, partition)`
        or `Coordinator(kind, key)`. The API version is negotiated with that broker. After a
        retriable error, the broker is looked up again and the request is repeated until `timeout`
        (in seconds, by default `default_api_timeout_ms`) has passed. Only a top-level error of the
        response is raised: errors of single topics or partitions are in the response.

        Raises ApiTimeoutError, whose cause is the last error; the broker's error if it is not
        retriable; UnsupportedVersionError if the broker is too old or too new; ClosedError; and
        TypeError for an invalid request, target or timeout. Cancelling it abandons the response:
        the broker may still execute the request.
        """
        self._check()
        _require(message, to, timeout)
        return await self._cluster.request(message, to, timeout=timeout)

    def send(
        self, message: Request[R], to: Target, *, timeout: float | None = None
    ) -> PendingResponse[R]:
        """Send a request as `request` does, and return an awaitable handle. Synchronous.

        The handle can be awaited any number of times. It raises ClosedError if the client is closed
        before the response arrives.
        """
        try:
            self._check()
            _require(message, to, timeout)
            return self._cluster.send(message, to, timeout=timeout)
        except BaseException as error:
            let_go(error, self)
            del self
            raise


def _require(message: Any, to: Any, timeout: Any) -> None:
    if not isinstance(message, Request):
        raise TypeError(f"{message!r} is not a request of aiokclient.protocol.messages.")
    if not isinstance(to, TARGETS):
        raise TypeError(
            f"{to!r} is not a target. Use AnyBroker(), Broker(id), Controller(), "
            "Leader(topic, partition) or Coordinator(kind, key)."
        )
    if timeout is not None:
        seconds(timeout)
