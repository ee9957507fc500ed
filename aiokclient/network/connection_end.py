"""The end of a connection: its reason, the callbacks for it, and the release of the socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from aiokclient.errors import DisconnectedError, KafkaError

__all__ = ["ConnectionEnd"]

C = TypeVar("C")


class ConnectionEnd(Generic[C]):
    """The reason why a connection was closed, and the callbacks that are then called.

    `reason` is None while the connection is open, and if it was closed on purpose.
    """

    __slots__ = ("_callbacks", "_released", "reason")

    def __init__(self) -> None:
        self.reason: KafkaError | None = None
        self._callbacks: list[Callable[[C, KafkaError | None], None]] = []
        self._released: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_close(self, callback: Callable[[C, KafkaError | None], None]) -> Callable[[], None]:
        """Add a callback, and return a function that removes it."""
        callbacks = self._callbacks
        callbacks.append(callback)
        return lambda: callbacks.remove(callback) if callback in callbacks else None

    def because(self, reason: KafkaError | None) -> None:
        """Store why the connection is being closed."""
        self.reason = reason

    def report(self, connection: C) -> None:
        """Call the callbacks."""
        for callback in list(self._callbacks):
            callback(connection, self.reason)

    def released(self) -> None:
        """Record that the transport has released the socket and every buffer."""
        if not self._released.done():
            self._released.set_result(None)

    async def wait(self) -> None:
        """Wait until the transport has released the socket and every buffer."""
        await asyncio.shield(self._released)

    def failure(self, api: str, node_id: int) -> DisconnectedError:
        """Return the error of a request that gets no response."""
        reason = self.reason
        why = reason.message if reason is not None else "The connection is closed."
        failure = DisconnectedError(why, api=api, broker=node_id)
        failure.__cause__ = None if isinstance(reason, DisconnectedError) else reason
        return failure
