"""Responses as they arrive, delivered in the order of their requests.

A response that is large and not just records around a few fields, such as the metadata of a
hundred thousand partitions, would block the loop while it is decoded: it is decoded in a thread,
and the responses after it wait for it.
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
"""Responses of this many bytes are decoded in a thread, unless records make them large, which are
not copied."""


class Arrivals:
    """The decoding of responses, large ones in threads.

    `deliver(response, size)` is called for each, in their order, with the bytes of its frame.
    `failed(error)` is called once if one cannot be read; nothing is delivered after that.
    """

    def __init__(
        self,
        pipeline: ClientPipeline,
        deliver: Callable[[Any, int], None],
        failed: Callable[[ProtocolError], None],
    ) -> None:
        self._pipeline = pipeline
        self._deliver = deliver
        self._failed = failed
        self._waiting: deque[tuple[asyncio.Future[Any], int]] = deque()

    def __len__(self) -> int:
        """Return how many responses have arrived and are not delivered yet."""
        return len(self._waiting)

    def frame(self, frame: Buffer) -> None:
        """Take the next response."""
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
            work.exception()  # Looked at when it is its turn.
        while self._waiting and self._waiting[0][0].done():
            first, size = self._waiting.popleft()
            error = None if first.cancelled() else first.exception()
            if error is not None:
                # Without this response the next one would be taken for it.
                self._waiting.clear()
                self._failed(error if isinstance(error, ProtocolError) else _not_decoded(error))
            elif not first.cancelled():
                self._deliver(first.result(), size)


def _not_decoded(error: BaseException) -> ProtocolError:
    """Return the error of a connection whose response met a bug, or too little memory."""
    failure = ProtocolError(f"A response could not be decoded: {error!r}.")
    failure.__cause__ = error
    return failure
