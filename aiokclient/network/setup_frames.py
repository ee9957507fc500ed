"""The frames that a client and a broker exchange while a connection is set up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokclient.errors import DisconnectedError, KafkaError, ProtocolError
from aiokclient.network.diagnosis import not_kafka

if TYPE_CHECKING:
    from aiokclient.errors import ConnectionSetupError
    from aiokclient.protocol.fields import Buffer

__all__ = ["SetupFrames"]

HEAD = 16
"""The number of first bytes that are kept, to recognize another protocol on the port."""


class SetupFrames:
    """The frames of a setup: one from the client, then one from the broker, and so on."""

    __slots__ = ("_address", "_frame", "_head")

    def __init__(self, address: str) -> None:
        self._address = address
        self._head = b""
        self._frame: asyncio.Future[Buffer] | None = None

    def expect(self) -> asyncio.Future[Buffer]:
        """Return a future of the next received frame."""
        self._frame = asyncio.get_running_loop().create_future()
        return self._frame

    def bytes_received(self, data: memoryview) -> None:
        """Store the first bytes from the broker."""
        if len(self._head) < HEAD:
            self._head += bytes(data[:HEAD])

    def frame_received(self, frame: Buffer) -> None:
        """Complete the future of `expect`. Raises ProtocolError if no frame is expected."""
        if self._frame is None or self._frame.done():
            raise ProtocolError(
                "The broker sent a response that matches no request. The connection was closed.",
                broker=self._address,
            )
        self._frame.set_result(frame)

    def not_a_frame(self) -> ConnectionSetupError:
        """Return the error for bytes that are not a frame of Kafka."""
        return not_kafka(self._address, self._head)

    def end(self, reason: KafkaError | None) -> None:
        """Fail the future of `expect`, because the connection is closed."""
        if self._frame is not None and not self._frame.done():
            closed = f"The connection to {self._address} was closed."
            self._frame.set_exception(reason or DisconnectedError(closed))
            # Mark the error as retrieved: the setup may have been cancelled.
            self._frame.exception()
