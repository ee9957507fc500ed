"""The bytes of responses, and a transport without a network."""

import asyncio
import struct
from typing import Any

from aiokclient.protocol.framing import DecodedRequest, ServerFraming
from aiokclient.protocol.messages.header import RequestHeader


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def response_frame(correlation_id: int, response: Any, version: int) -> bytes:
    """Return the bytes of a response, including its length and header."""
    header = RequestHeader(
        request_api_key=response.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id="",
    )
    segments = ServerFraming().encode_response(DecodedRequest(header, None), response)
    return b"".join(bytes(segment) for segment in segments)


class MemoryTransport(asyncio.Transport):
    """A transport that stores what is written. The test supplies what is read."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.written: list[Any] = []
        self.closing = False
        self.unwritten = 0
        self._loop = asyncio.get_running_loop()
        protocol.connection_made(self)

    @property
    def sent(self) -> bytes:
        return b"".join(bytes(data) for data in self.written)

    def write(self, data: Any) -> None:
        assert not self.closing
        self.written.append(data)

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def feed(self, data: bytes, piece: int | None = None) -> None:
        """Pass bytes to the protocol, in pieces of at most `piece` bytes that fit its buffer."""
        while data and not self.closing:
            buffer = self.protocol.get_buffer(-1)
            assert len(buffer) > 0
            size = min(len(data), len(buffer), piece or len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self.protocol.buffer_updated(size)

    def get_write_buffer_size(self) -> int:
        return self.unwritten

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self._end()

    def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        if not self.closing:
            self.closing = True
            self._loop.call_soon(self.protocol.connection_lost, None)
