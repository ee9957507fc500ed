"""One connection to a broker, with pipelined requests and responses in the same order.

Theory of operation. A request is either *held* or *in flight*. A held request is not written yet,
because the broker has returned a throttle time or the transport's buffer is full. A request in
flight was written and has no response yet. There is a queue for each of the two, in the order of
sending. Each entry has a deadline, and a future or a callback.

When the deadline of a held request passes, only that request fails. The exception is a transport
that was full all that time without a throttle time: then the broker reads nothing, and the
connection is closed. A request that is written gets its whole timeout again, because the client
itself has caused the wait before. A throttle time also postpones the deadlines of requests in
flight, because the broker reads nothing until it is over. When the deadline of a request in flight
passes, the connection is closed: responses arrive in order, so later requests could not get their
responses in time. One timer serves all deadlines, the end of a throttle time, and the closing of an
idle connection.

There is no task here: the transport, the timer, and the callers drive the connection.

Nothing is written to a transport that is closing. A transport can be closing one iteration of the
event loop before it reports that. asyncio's `writelines` would then watch the file descriptor of a
socket that is about to be closed, and break the next connection with the same descriptor.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from aiokclient.errors import (
    ApiTimeoutError,
    DisconnectedError,
    KafkaError,
    ProtocolError,
)
from aiokclient.metrics import Metrics
from aiokclient.network.arrivals import Arrivals
from aiokclient.network.diagnosis import not_kafka
from aiokclient.network.sent import Answered, Awaited, Called, Sent
from aiokclient.network.traffic import Traffic
from aiokclient.protocol.api import negotiate
from aiokclient.protocol.framing import ClientPipeline, FrameReader
from aiokclient.segments import JOINED, write_segments

if TYPE_CHECKING:
    from aiokclient.protocol.fields import Buffer
    from aiokclient.protocol.schema import Request

__all__ = ["BrokerConnection"]

SETUP_FRAME_LIMIT = 1024 * 1024
"""The largest frame accepted until the connection is ready."""

HEAD = 16
"""The number of first bytes that are kept, to recognize another protocol on the port."""

LONGEST_PAUSE_S = 600.0
"""The longest throttle time by which deadlines of requests in flight are postponed."""

STALL_S = 0.5
GRACE_S = 0.1
"""Seconds by which deadlines are postponed after the event loop was blocked for over STALL_S.
Responses may already be in the socket then."""


class BrokerConnection(asyncio.BufferedProtocol):
    """A connection that is open when it is created, and never reopened.

    `node_id` is the broker id (negative for a bootstrap server), `host` and `port` are the address
    as configured or advertised, and `api_versions` maps each API key that the broker supports to
    its lowest and highest version.
    """

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        *,
        client_id: str,
        idle_s: float | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.api_versions: Mapping[int, tuple[int, int]] = {}
        self.features: Mapping[str, int] = {}
        """The finalized features of the cluster and their levels, as this broker returned them."""
        self.session_lifetime_ms = 0
        """Milliseconds for which the broker accepts the authentication; 0 for no limit."""
        self.throttled_until = 0.0
        self.closed = False
        self.traffic = Traffic(Metrics(), client_id) if traffic is None else traffic
        self._meter = self.traffic.meter(node_id)
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._pipeline = ClientPipeline(client_id)
        self._arrivals = Arrivals(self._pipeline, self._on_response, self.close)
        self._reader = FrameReader(SETUP_FRAME_LIMIT)
        self._buffer = self._reader.get_buffer()
        self._handle: Callable[[Buffer], None] = self._on_setup_frame
        self._head = b""
        self._setup: asyncio.Future[Buffer] | None = None
        self._transport: asyncio.Transport | None = None
        self._held: deque[Sent] = deque()
        self._in_flight: deque[Sent] = deque()
        self._versions: dict[type[Request[Any]], int] = {}
        self._paused = False
        self._paused_at = 0.0
        self._draining = False
        self._one_way = False
        """Whether a request was written to which the broker sends no response (acks=0)."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """The time of `_timer`. The handles of uvloop do not provide it for short delays."""
        self._idle_s = idle_s
        self._last_used = self._now()
        self._close_callbacks: list[Callable[[BrokerConnection, KafkaError | None], None]] = []
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._reason: KafkaError | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.in_flight} in flight"
        return f"<BrokerConnection to {self.place} (node {self.node_id}), {state}>"

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"

    def rename(self, node_id: int) -> None:
        """Set the broker id, once it is known which broker the bootstrap server is."""
        self.node_id = node_id
        self._meter = self.traffic.meter(node_id)

    @property
    def connected(self) -> bool:
        """Whether the transport is connected. The other side may not have answered yet."""
        return self._transport is not None

    @property
    def in_flight(self) -> int:
        """The number of requests without an outcome, including held ones."""
        return len(self._in_flight) + len(self._held)

    @property
    def reason(self) -> KafkaError | None:
        """The error that closed the connection, or None if it is open or was closed on purpose."""
        return self._reason

    def unanswered_for(self) -> float:
        """Return the seconds since the oldest unanswered request was sent, or 0.0."""
        arrived = len(self._arrivals)
        unanswered = len(self._in_flight) > arrived
        return self._now() - self._in_flight[arrived].since if unanswered else 0.0

    def arrives(self, outcome: asyncio.Future[Any]) -> bool:
        """Return whether the response of a request is being received or decoded.

        `outcome` is the future that `send` returned. Both can take a while for a large response.
        """
        count = len(self._arrivals) + self._reader.in_large_frame
        arriving = islice(self._in_flight, count)
        return any(isinstance(sent, Awaited) and sent.future is outcome for sent in arriving)

    # -- requests ---------------------------------------------------------------------------

    def version_of(self, request: type[Request[Any]]) -> int:
        """Return the version in which a request is sent to this broker.

        Raises UnsupportedVersionError, which names the versions of both sides, if they have none
        in common.
        """
        version = self._versions.get(request)
        if version is None:
            try:
                version = negotiate(request, self.api_versions.get(request.api_key))
            except KafkaError as error:
                error.broker = self.node_id
                raise
            self._versions[request] = version
        return version

    def send(
        self,
        message: Request[Any],
        *,
        timeout_s: float,
        version: int | None = None,
        expect_response: bool = True,
    ) -> asyncio.Future[Any]:
        """Send a request, and return a future of its response.

        The future fails with ApiTimeoutError if the request was not written within `timeout_s`
        seconds, or if there was no response within another `timeout_s` seconds. In the second
        case, the connection is closed. Throttle times of the broker extend that time. The future
        fails with DisconnectedError if the connection closes first, with ProtocolError if the
        response cannot be decoded, and with UnsupportedVersionError. Cancelling it abandons the
        response, not the request. With `expect_response=False`, its result is None as soon as the
        transport has the request. `version` defaults to the negotiated one.
        """
        now = self._now()
        sent = Awaited(message, version, now, timeout_s, expect_response)
        self._start(sent, now)
        return sent.future

    def call(
        self,
        message: Request[Any],
        done: Answered,
        *,
        timeout_s: float,
        version: int | None = None,
        expect_response: bool = True,
        now: float | None = None,
    ) -> None:
        """Send a request as `send` does, and call `done(response, error)` with the outcome.

        `done` is called once: with a response immediately when it was decoded, with an error in
        a later callback of the event loop. It must not raise. `now` is the time on the loop's
        clock, if the caller has just read it.
        """
        if now is None:
            now = self._now()
        self._start(Called(done, message, version, now, timeout_s, expect_response), now)

    def _start(self, sent: Sent, now: float) -> None:
        if self.closed:
            sent.fail(self._disconnected(sent))
            return
        if sent.version is None:
            try:
                sent.version = self.version_of(type(sent.message))
            except KafkaError as error:
                sent.fail(error)
                return
        self._last_used = now
        if self._held or self._paused or now < self.throttled_until:
            self._held.append(sent)
            throttled = now < self.throttled_until
            self._wake_at(min(sent.deadline, self.throttled_until) if throttled else sent.deadline)
        else:
            self._write(sent)
            self._wake_at(sent.deadline)

    def _write(self, sent: Sent) -> None:
        transport = self._transport
        assert transport is not None
        assert sent.version is not None
        if transport.is_closing():
            sent.fail(self._disconnected(sent))
            return
        try:
            _, segments = self._pipeline.send(
                sent.message, sent.version, expect_response=sent.expect_response
            )
        except KafkaError as error:
            error.broker = self.node_id
            sent.fail(error)
            return
        if sent.expect_response:
            self._in_flight.append(sent)
        else:
            self._one_way = True
            sent.written()
        size = sum(map(len, segments))
        self._meter.written(self, sent, size)
        if size <= JOINED:  # The same as `write_segments` does, without a function call.
            transport.write(b"".join(segments))
        else:
            write_segments(transport, segments, size)

    def _write_held(self, now: float) -> None:
        while self._held and not (self._paused or self.closed or now < self.throttled_until):
            sent = self._held.popleft()
            if not sent.over:
                # The time for which the client held the request does not count.
                sent.begin(now)
                self._write(sent)
        if self._draining and not self.in_flight:
            self.close()

    def _on_response(self, response: Any, size: int) -> None:
        if self.closed:
            return
        sent = self._in_flight.popleft()
        self._last_used = now = self._now()
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._throttle(now, throttle_ms / 1000)
        self._meter.answered(self, sent, response, size, now, throttle_ms)
        # Throttle before delivering the response, because its receiver may send a request.
        if self._draining and not self.in_flight:
            self.close()
        sent.answer(response)

    def _throttle(self, now: float, seconds: float) -> None:
        self.throttled_until = max(self.throttled_until, now + seconds)
        until = now + min(seconds, LONGEST_PAUSE_S)
        for sent in self._in_flight:
            sent.deadline = max(sent.deadline, until + sent.timeout_s)

    # -- setting up -------------------------------------------------------------------------

    def exchange(self, segments: list[Any]) -> asyncio.Future[Buffer]:
        """Write one frame during the setup, and return a future of the next received frame.

        It fails with DisconnectedError or ConnectionSetupError. Only one exchange at a time.
        """
        assert self._transport is not None
        self._setup = self._loop.create_future()
        if self.closed or self._transport.is_closing():
            self._end_setup()
        else:
            write_segments(self._transport, segments, sum(map(len, segments)))
        return self._setup

    def ready(self, api_versions: Mapping[int, tuple[int, int]], frame_limit: int) -> None:
        """End the setup. From now on, `send` is allowed."""
        self.api_versions = api_versions
        self._versions.clear()
        self._reader.max_frame = frame_limit
        self._handle = self._arrivals.frame
        self._wake_at(self._idle_at())

    def _on_setup_frame(self, frame: Buffer) -> None:
        if self._setup is None or self._setup.done():
            self.close(
                ProtocolError("The broker sent a frame that answers no request.", broker=self.place)
            )
        else:
            self._setup.set_result(frame)

    def _end_setup(self) -> None:
        if self._setup is not None and not self._setup.done():
            self._setup.set_exception(
                self._reason or DisconnectedError(f"The connection to {self.place} was closed.")
            )
            self._setup.exception()

    # -- the transport's side ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance check: uvloop's TLS transport is not a subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = self._reader.get_buffer()
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if len(self._head) < HEAD:
            self._head += bytes(self._buffer[:nbytes][:HEAD])
        try:
            frames = self._reader.received(nbytes)
        except ProtocolError as error:
            self.close(error if self.api_versions else not_kafka(self.place, self._head))
            return
        for frame in frames:
            if self.closed:
                return
            self._handle(frame)

    def eof_received(self) -> None:
        self.close(DisconnectedError("The broker closed the connection.", broker=self.node_id))

    def connection_lost(self, exc: Exception | None) -> None:
        why = f"The connection broke: {exc}." if exc else "The connection was closed."
        error = DisconnectedError(why, broker=self.node_id)
        error.__cause__ = exc
        self.close(error)
        if not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        self._paused = True
        self._paused_at = self._now()

    def resume_writing(self) -> None:
        self._paused = False
        self._write_held(self._now())

    # -- time -------------------------------------------------------------------------------

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            if self._due <= when:
                return
            self._timer.cancel()
        self._due = when
        self._timer = self._loop.call_at(when, self._on_timer, when)

    def _on_timer(self, due: float) -> None:
        self._timer = None
        now = self._now()
        if now - due > STALL_S:
            self._wake_at(now + GRACE_S)
            return
        self._expire(now)
        self._write_held(now)
        if self.closed:
            return
        if not self.in_flight and self._idle_s is not None and now >= self._idle_at():
            self.close()
            return
        self._wake_at(self._next_wake(now))

    def _next_wake(self, now: float) -> float:
        wakes = [sent.deadline for sent in self._unanswered()]
        wakes += [sent.deadline for sent in self._held]
        if self._held and self.throttled_until > now:
            wakes.append(self.throttled_until)
        return min(wakes) if wakes else max(self._idle_at(), now + GRACE_S)

    def _idle_at(self) -> float:
        # Without an idle limit, the timer is set far in the future, to avoid a special case.
        return self._last_used + (self._idle_s if self._idle_s is not None else 3600.0)

    def _unanswered(self) -> Iterable[Sent]:
        """Return the requests in flight whose responses are not being decoded."""
        return islice(self._in_flight, len(self._arrivals), None)

    def _expire(self, now: float) -> None:
        stuck: Sent | None = None
        for sent in [sent for sent in self._held if sent.deadline <= now]:
            self._held.remove(sent)
            if self._paused and max(self._paused_at, self.throttled_until) <= sent.since:
                stuck = sent
                self._fail(
                    sent, "The broker took in nothing for {:.1f} s, and the connection was closed."
                )
            else:
                self._fail(
                    sent, "The request was held back for {:.1f} s by the broker's throttle time."
                )
        late = [sent for sent in self._unanswered() if sent.deadline <= now]
        for sent in late:
            self._fail(
                sent, "The broker did not answer within {:.1f} s, and the connection was closed."
            )
        if late:
            after = f"The broker did not answer {late[0].api} within {now - late[0].since:.1f} s."
            self.close(DisconnectedError(after, broker=self.node_id))
        elif stuck is not None:
            after = f"The broker took in nothing for {now - stuck.since:.1f} s."
            self.close(DisconnectedError(after, broker=self.node_id))

    def _fail(self, sent: Sent, why: str) -> None:
        text = why.format(self._now() - sent.since)
        error = ApiTimeoutError(text, api=sent.api, broker=self.node_id)
        self.traffic.failed(self, sent, error)
        sent.fail(error)

    # -- the end ----------------------------------------------------------------------------

    def on_close(
        self, callback: Callable[[BrokerConnection, KafkaError | None], None]
    ) -> Callable[[], None]:
        """Call `callback(connection, reason)` once the connection is closed.

        `reason` is None if it was closed on purpose. Returns a function that removes the callback.
        """
        callbacks = self._close_callbacks
        callbacks.append(callback)
        return lambda: callbacks.remove(callback) if callback in callbacks else None

    def close(self, error: KafkaError | None = None) -> None:
        """Close the connection. Requests without an outcome fail with DisconnectedError.

        Without an error, the transport still writes its buffer. Synchronous, idempotent.
        """
        if self.closed:
            return
        self.closed = True
        self._reason = error
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            # A TLS transport does not count the buffer of the transport below it.
            unwritten = self._one_way or self._transport.get_write_buffer_size()
            self._transport.close() if error is None and unwritten else self._transport.abort()
        self._end_setup()
        for queue in (self._in_flight, self._held):
            while queue:
                sent = queue.popleft()
                lost = self._disconnected(sent)
                self.traffic.failed(self, sent, lost)
                sent.fail(lost)
        for callback in list(self._close_callbacks):
            callback(self, error)

    def close_when_idle(self) -> None:
        """Close the connection as soon as no request is in flight. Synchronous."""
        self._draining = True
        if not self.in_flight:
            self.close()

    def abort(self) -> None:
        """Close the connection without writing the rest of the buffer."""
        self.close()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the transport has released the socket and every buffer."""
        if self._transport is not None:
            await asyncio.shield(self._lost)

    def _disconnected(self, sent: Sent) -> KafkaError:
        reason = self._reason
        why = reason.message if reason is not None else "The connection is closed."
        lost = DisconnectedError(why, api=sent.api, broker=self.node_id)
        lost.__cause__ = None if isinstance(reason, DisconnectedError) else reason
        return lost
