"""A connection as a broker sees it: frames in, answers out, strictly one at a time.

A broker takes the next request of a connection only when the one before it is answered. A
parked one (a long poll, an append that waits for replicas) holds back all that came after
it on the same connection, and so does a throttled one; other connections go on.

The life of a request, each arrow in turn, any of which may be left out:

    frame -> recorded -> dropped? -> delayed -> handled -> parked -> altered -> delayed
          -> dropped? -> answered -> muted -> the next frame

The class is an `asyncio.BufferedProtocol` and knows nothing of sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from aiokclient.errors import KafkaError
from aiokclient.protocol.framing import FrameReader, ReceivedRequest, ServerFraming
from aiokclient.testing.call import Call
from aiokclient.testing.faults import Alter, Delay, Drop, Fault, Throttle
from aiokclient.testing.handlers import handler_of

if TYPE_CHECKING:
    from aiokclient.protocol.fields import Buffer
    from aiokclient.protocol.schema import Response
    from aiokclient.testing.broker import Broker

_log = logging.getLogger(__name__)

_MAX_FRAME = 100 << 20
"""Kafka's `socket.request.max.bytes`."""

_WAITING_FRAMES = 64
"""So many unanswered requests are read ahead from one connection before reading stops."""


class BrokerProtocol(asyncio.BufferedProtocol):
    """One accepted connection."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._framing = ServerFraming()
        self._frames = FrameReader(_MAX_FRAME)
        self._waiting: deque[Buffer] = deque()
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._writable = True
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._parked: asyncio.Future[Any] | None = None
        self._withheld: Callable[[], None] | None = None

    # -- the transport's side --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.broker.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._waiting.extend(self._frames.received(nbytes))
        except KafkaError as error:
            _log.debug("%r closes a connection: %s", self.broker, error)
            self.abort()
            return
        self.pump()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._waiting.clear()
        self._withheld = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None
        self.broker.disconnected(self)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.pump()

    def abort(self) -> None:
        """Cut the connection: nothing that is still to be sent is sent."""
        transport = self._transport
        if transport is not None:
            self._waiting.clear()
            transport.abort()

    @property
    def client_host(self) -> str:
        """Where the client is, as Kafka tells of the members of groups."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return f"/{peer[0]}" if peer else "/127.0.0.1"

    # -- one request after the other -------------------------------------------------------

    def pump(self) -> None:
        """Take up waiting requests until one has to wait."""
        if self._withheld is not None and not self.broker.paused:
            answer, self._withheld = self._withheld, None
            self._guarded(answer)
        while self._may_take():
            self._guarded(partial(self._take, self._waiting.popleft()))
        transport = self._transport
        reading = len(self._waiting) < _WAITING_FRAMES
        if transport is not None and reading != self._reading and not transport.is_closing():
            self._reading = reading
            if reading:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _guarded(self, step: Callable[[], None]) -> None:
        """Take a step; an exception is a bug of this cluster, which says so when it ends."""
        try:
            step()
        except Exception as error:
            _log.exception("%r failed on a request", self.broker)
            self.broker.cluster.bug = self.broker.cluster.bug or error
            self.abort()

    def _may_take(self) -> bool:
        if self._transport is None or self._busy or not self._writable or self.broker.paused:
            return False
        return bool(self._waiting)

    def _take(self, frame: Buffer) -> None:
        cluster = self.broker.cluster
        try:
            received = self._framing.decode_request(frame)
        except KafkaError as error:
            # As Kafka: whoever sends what cannot be read, or was not announced, is cut off.
            _log.debug("%r closes a connection: %s", self.broker, error)
            self.abort()
            return
        if not cluster.accepts(self.broker, received):
            self.abort()
            return
        self._busy = True
        cluster.received(self.broker, received, len(frame))
        faults = cluster.faults.matching(
            received.header.request_api_key, self.broker.node_id, received.request
        )
        if not faults:
            self._handle(received, faults)
        elif not self._dropped(faults, "before"):
            self._after(_seconds(faults, "before"), lambda: self._handle(received, faults))

    def _handle(self, received: ReceivedRequest, faults: list[Fault]) -> None:
        header = received.header
        api = self.broker.cluster.api_of(header.request_api_key)
        call = Call(
            self.broker,
            api,
            header.request_api_version,
            received.request,
            header.client_id,
            self,
            faults,
        )
        reply = handler_of(api)(call)
        if isinstance(reply, asyncio.Future):
            self._parked = reply
            reply.add_done_callback(lambda future: self._unpark(future, received, faults))
        else:
            self._finish(reply, received, faults)

    def _unpark(
        self, future: asyncio.Future[Any], received: ReceivedRequest, faults: list[Fault]
    ) -> None:
        self._parked = None
        if future.cancelled() or self._transport is None:
            return
        self._guarded(lambda: self._finish(future.result(), received, faults))
        self.pump()

    def _finish(
        self, response: Response | None, received: ReceivedRequest, faults: list[Fault]
    ) -> None:
        """The request took effect: answer it, unless a fault has other plans."""
        self.broker.cluster.changed()
        if not faults:
            self._answer(response, received, faults)
            return
        for fault in faults:
            if isinstance(fault, Alter):
                fault.use()
                response = fault.change(received.request, response)
        if not self._dropped(faults, "after"):
            self._after(_seconds(faults, "after"), lambda: self._answer(response, received, faults))

    def _answer(
        self, response: Response | None, received: ReceivedRequest, faults: list[Fault]
    ) -> None:
        transport = self._transport
        # One that is closing must not be written to: see `BrokerConnection` of the client.
        if transport is None or transport.is_closing():
            return
        if self.broker.paused:
            self._withheld = lambda: self._answer(response, received, faults)
            return
        muted = 0.0
        for fault in faults:
            if isinstance(fault, Throttle) and response is not None:
                fault.use()
                muted = max(muted, fault.seconds)
                cast("Any", response).throttle_time_ms = int(fault.seconds * 1000)
        if response is not None:
            version = 0 if received.request is None else None
            transport.writelines(self._framing.encode_response(received, response, version=version))
        self._after(muted, self._done)

    def _done(self) -> None:
        self._busy = False

    def _dropped(self, faults: list[Fault], when: str) -> bool:
        for fault in faults:
            if isinstance(fault, Drop) and fault.when == when:
                fault.use()
                self.abort()
                self.broker.cluster.changed()
                return True
        return False

    def _after(self, seconds: float, then: Callable[[], None]) -> None:
        """Go on now, or after a while."""
        if seconds <= 0:
            then()
            return

        def go_on() -> None:
            self._timer = None
            self._guarded(then)
            self.pump()

        self._timer = self.broker.cluster.loop.call_later(seconds, go_on)


def _seconds(faults: list[Fault], when: str) -> float:
    """How long the delays of these faults are together; each counts as used."""
    seconds = 0.0
    for fault in faults:
        if isinstance(fault, Delay) and fault.when == when:
            fault.use()
            seconds += fault.seconds
    return seconds
