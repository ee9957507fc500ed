"""Responses as they arrive, delivered in the order of their requests.

Decoding a large response, such as the metadata of a hundred thousand partitions, would block the
event loop. Therefore it is decoded in a thread, and later responses wait for it. Responses whose
size comes from records are decoded immediately, because records are not copied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokclient import threads
from aiokclient.errors import ProtocolError
from aiokclient.protocol.framing import ClientPipeline, InFlight

if TYPE_CHECKING:
    from aiokclient.protocol.fields import Buffer

__all__ = ["LARGE", "Arrivals"]

LARGE = 128 * 1024
"""The size in bytes from which a response is decoded in a thread, unless most of it is records,
which are not copied."""


class Arrivals:
    """The decoder of the responses of one connection. It decodes large responses in threads.

    `deliver(response, size)` is called for each response in order, with the size of its frame in
    bytes. `failed(error)` is called once if a response cannot be decoded. Nothing is delivered
    after that.
    """

    def __init__(
        self,
        pipeline: ClientPipeline,
        deliver: Callable[[Any, int], None],
        failed: Callable[[ProtocolError], None],
    ) -> None:
        self._pipeline = pipeline
        self._deliver: Callable[[Any, int], None] = deliver
        self._failed: Callable[[ProtocolError], None] = failed
        self._waiting: deque[tuple[asyncio.Future[Any], int]] = deque()

    def __len__(self) -> int:
        """Return the number of responses that have arrived and are not delivered yet."""
        return len(self._waiting)

    def frame(self, frame: Buffer) -> None:
        """Process the frame of the next response."""
        try:
            asked = self._pipeline.match(frame)
            large = len(frame) >= LARGE and not asked.request.response_class.has_records()
            if not large and not self._waiting:
                self._deliver(asked.decode(frame), len(frame))
                return
        except ProtocolError as error:
            self._failed(error)
            return
        self._later(asked, frame, large)

    def end(self) -> None:
        """Deliver nothing any more, and drop the references to `deliver` and `failed`."""
        self._waiting.clear()
        self._deliver = self._failed = _ignore

    def _later(self, asked: InFlight, frame: Buffer, large: bool) -> None:
        if large:
            work: asyncio.Future[Any] = threads.run(asked.decode, frame)
        else:
            work = asyncio.get_running_loop().create_future()
            try:
                work.set_result(asked.decode(frame))
            except ProtocolError as error:
                work.set_exception(error)
        self._waiting.append((work, len(frame)))
        work.add_done_callback(self._decoded)

    def _decoded(self, work: asyncio.Future[Any]) -> None:
        if not work.cancelled():
            work.exception()  # Mark the exception as retrieved. It is handled below, in order.
        while self._waiting and self._waiting[0][0].done():
            first, size = self._waiting.popleft()
            error = None if first.cancelled() else first.exception()
            if error is not None:
                # Later responses could no longer be matched with their requests.
                self._waiting.clear()
                self._failed(error if isinstance(error, ProtocolError) else _not_decoded(error))
            elif not first.cancelled():
                self._deliver(first.result(), size)


def _ignore(*_outcome: object) -> None:
    """Do nothing, because the connection is lost."""


def _not_decoded(error: BaseException) -> ProtocolError:
    """Return the error for a connection if decoding a response has raised an unexpected error."""
    failure = ProtocolError(f"A response could not be decoded: {error!r}.")
    failure.__cause__ = error
    return failure
