"""The client that producers, consumers and admins share, and the low-level requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never, TypeVar, Unpack

from aiokclient.cluster.parent import Parent
from aiokclient.cluster.pending import PendingResponse
from aiokclient.cluster.targets import TARGETS, Target
from aiokclient.cluster.tracebacks import let_go, lets_go
from aiokclient.config import ClientConfig, ClientOptions
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

    It can be made anywhere, and starts by `async with`, `await client.start()` or `await client`.
    Closing it closes its consumers, then its producers, then its admins, the youngest first; all
    of it within `close_timeout_ms`, or `close(timeout)`, and what its producers may take for their
    last records. Options are those of Kafka's clients with `_` for `.`; a bad one raises
    ConfigError.
    """

    def __init__(self, *wrong: Never, **options: Unpack[ClientOptions]) -> None:
        refuse_positional("Client", wrong)
        super().__init__(ClientConfig.build(options))

    @lets_go
    async def request(self, message: Request[R], to: Target, *, timeout: float | None = None) -> R:
        """Send any request of the protocol and return the decoded response.

        `to` is the broker that it is for: `AnyBroker()`, `Broker(id)`, `Controller()`,
        `Leader(topic, partition)` or `Coordinator(kind, key)`. The version is negotiated with that
        broker. Retriable errors are retried, with the broker looked up again, until `timeout`
        (seconds, by default `default_api_timeout_ms`). Only the top-level error of a response is
        raised: errors of single topics or partitions are in the response.

        Raises ApiTimeoutError, whose cause is the last error; the broker's error when it is not
        to be tried again; UnsupportedVersionError when the broker is too old or too new;
        ClosedError; TypeError for what is no request, target or number. Cancelling it abandons the
        response: the broker may still do what was asked.
        """
        self._check()
        _require(message, to, timeout)
        return await self._cluster.request(message, to, timeout=timeout)

    def send(
        self, message: Request[R], to: Target, *, timeout: float | None = None
    ) -> PendingResponse[R]:
        """Send a request as `request` does; return a handle to await. Synchronous.

        The handle can be awaited any number of times. When the client is closed first, it raises
        ClosedError.
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
