"""One connection to a broker, with pipelined requests and responses in the same order.

A request is either *held* or *in flight*. A held request is not written yet, because the broker has
returned a throttle time, the transport's buffer is full, or the client authenticates again. A
request in flight was written and has no response yet. There is a queue of held requests and a queue
of requests in flight, both in the order of sending. Each entry has a deadline, and a future or a
callback.

When the deadline of a held request passes, only that request fails. There is one exception: if the
transport was full all that time and there was no throttle time, the broker reads nothing, and the
connection is closed. When a held request is written, its timeout begins again, because the client
itself has caused the wait. A throttle time also postpones the deadlines of requests in flight,
because the broker reads nothing until the throttle time is over. When the deadline of a request in
flight passes, the connection is closed: responses arrive in order, so later requests could not get
their responses in time. One timer serves all deadlines, the end of a throttle time, and the closing
of an idle connection.

There is no task here: the transport, the timer, and the callers drive the connection.

Nothing is written to a transport that is closing. A transport can be closing one iteration of the
event loop before it reports that. asyncio's `writelines` would then watch the file descriptor of a
socket that is about to be closed, and break the next connection with the same descriptor.

Responses are delivered in the order of their requests. Decoding a large one, such as the metadata
of a hundred thousand partitions, would block the event loop. Therefore it is decoded in a thread,
and later responses wait for it. Responses whose size comes from records are decoded immediately,
because records are not copied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from logging import DEBUG
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from aiokclient import threads
from aiokclient._native import twin
from aiokclient.background import WakeTimer
from aiokclient.clock import get_loop_clock
from aiokclient.config.kinds import written
from aiokclient.errors import (
    ApiTimeoutError,
    DisconnectedError,
    KafkaError,
    ProtocolError,
    ResponseTooLargeError,
)
from aiokclient.log.kept_errors import bare
from aiokclient.metrics import UNCOUNTED, Metrics
from aiokclient.network.diagnosis import SetupFrames, disconnected, not_decoded
from aiokclient.network.flow import HeldRequests, ReadThreshold
from aiokclient.network.traffic import Meter, Traffic
from aiokclient.network.transport import detach_in_forks, write_segments
from aiokclient.protocol.api import negotiate
from aiokclient.protocol.framing import ClientPipeline, FrameReader, InFlight, OversizedFrameError

if TYPE_CHECKING:
    from aiokclient.protocol.fields import Buffer
    from aiokclient.protocol.produce_template import AnyRequest
    from aiokclient.protocol.schema import Request


class ConnectedBroker:
    """The broker of one connection. What it supports is known once the connection is ready.

    `node_id` is the broker id (negative for a bootstrap server), and `address` the address as
    configured or advertised. `api_versions` maps each API key that the broker supports to its
    lowest and highest version, and `features` maps the finalized features of the cluster to their
    levels. `session_lifetime_ms` is the time in milliseconds for which the broker accepts the
    authentication, or 0 for no limit.
    """

    __slots__ = ("_chosen", "address", "api_versions", "features", "node_id", "session_lifetime_ms")

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.node_id = node_id
        self.address = written((host, port))
        self.api_versions: Mapping[int, tuple[int, int]] = {}
        self.features: Mapping[str, int] = {}
        self.session_lifetime_ms = 0
        self._chosen: dict[type[Request[Any]], int] = {}
        """The version in which each request is sent."""

    def set_broker_id(self, node_id: int) -> None:
        """Set the broker id, once it is known which broker the bootstrap server is."""
        self.node_id = node_id

    def learn_support(
        self, versions: Mapping[int, tuple[int, int]], features: Mapping[str, int], lifetime_ms: int
    ) -> None:
        """Store the properties that the broker reported while the connection was set up."""
        self.api_versions = versions
        self.features = features
        self.session_lifetime_ms = lifetime_ms
        self._chosen.clear()

    def renew_session(self, session_lifetime_ms: int) -> None:
        """Store the lifetime of the session, in milliseconds, after a repeated authentication."""
        self.session_lifetime_ms = session_lifetime_ms

    def learn_levels(self, features: Mapping[str, int]) -> None:
        """Store the levels of the finalized features, which may change while the broker runs."""
        self.features = features

    def version_of(self, request: type[Request[Any]]) -> int:
        """Return the version in which a request is sent to this broker.

        Raises UnsupportedVersionError, which names the versions of both sides, if they have none
        in common.
        """
        version = self._chosen.get(request)
        if version is None:
            try:
                version = negotiate(request, self.api_versions.get(request.api_key))
            except KafkaError as error:
                error.broker = self.node_id
                raise
            self._chosen[request] = version
        return version


OnResponse = Callable[[Any, KafkaError | None], object]
"""A function that receives the response and None, or None and the error."""


@twin("ground")
class PendingRequest:
    """A request that is held or in flight. `since` and `deadline` are on the loop's clock.

    If `version` is None, the negotiated version is used. Only the first outcome counts.
    """

    __slots__ = ("deadline", "expect_response", "message", "since", "timeout_s", "version")

    def __init__(
        self, message: AnyRequest, version: int | None, since: float, timeout_s: float, expect: bool
    ) -> None:
        self.message = message
        self.version = version
        self.since = since
        self.timeout_s = timeout_s
        self.deadline = since + timeout_s
        self.expect_response = expect

    def restart_timeout(self, now: float) -> None:
        """Start the timeout of the request now."""
        self.since = now
        self.deadline = now + self.timeout_s

    @property
    def api(self) -> str:
        """The name of the request's API, such as "Fetch"."""
        return self.message.api_key.api_name

    @property
    def over(self) -> bool:
        """Whether the request has an outcome, or was cancelled."""
        raise NotImplementedError

    def deliver_response(self, response: Any) -> None:
        """Deliver the response."""
        raise NotImplementedError

    def on_written(self) -> None:
        """Complete a request that has no response, once the transport has it."""
        raise NotImplementedError

    def fail(self, error: KafkaError) -> None:
        """End the request with an error instead of a response."""
        raise NotImplementedError


class AwaitedRequest(PendingRequest):
    """A request with a future."""

    __slots__ = ("future",)

    def __init__(self, *request: Any) -> None:
        super().__init__(*request)
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        return self.future.done()

    def deliver_response(self, response: Any) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def on_written(self) -> None:
        self.deliver_response(None)

    def fail(self, error: KafkaError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            # Mark the error as retrieved: the sender may no longer wait for it. The connection
            # reports its own failure.
            self.future.exception()


class CallbackRequest(PendingRequest):
    """A request with a callback, which is called without waiting for the next loop iteration."""

    __slots__ = ("done", "over")

    over: bool

    def __init__(self, done: OnResponse, *request: Any) -> None:
        super().__init__(*request)
        self.done = done
        self.over = False

    def deliver_response(self, response: Any) -> None:
        if not self.over:
            self.over = True
            self.done(response, None)

    def on_written(self) -> None:
        self._fail_later(None)

    def fail(self, error: KafkaError) -> None:
        self._fail_later(error)

    def _fail_later(self, error: KafkaError | None) -> None:
        # Call it later, because the caller may be in the middle of sending or closing.
        if not self.over:
            self.over = True
            asyncio.get_running_loop().call_soon(self.done, None, error)


LARGE = 128 * 1024
"""The size in bytes from which a response is decoded in a thread, unless most of it is records,
which are not copied."""


SETUP_FRAME_LIMIT = 1024 * 1024
"""The largest frame accepted until the connection is ready."""

LONGEST_PAUSE_S = 600.0
"""The longest throttle time by which deadlines of requests in flight are postponed."""

STALL_S = 0.5
GRACE_S = 0.1
"""Seconds by which deadlines are postponed after the event loop was blocked for over STALL_S.
Responses may already be in the socket then."""


@twin("ground")
class ConnectionState:
    """The way of each usual request and response through a connection.

    Subclasses have all else, which the methods of this class call when a request cannot be written
    at once, or when a response is not decoded at once.
    """

    broker: ConnectedBroker
    closed: bool
    _open_transport: asyncio.Transport | None
    """The transport, or None if it is not connected or the connection is closed."""
    _setup: SetupFrames | None
    """The state of the setup, or None after it."""
    _threshold: ReadThreshold | None
    _timer: WakeTimer
    _now: Callable[[], float]
    _buffer: memoryview
    """The memory of the latest read."""
    _in_flight: deque[PendingRequest]
    _decoding: deque[tuple[asyncio.Future[Any], int]]
    """The responses that are decoded in threads, and later ones, with the sizes of their
    frames. They are those to the oldest requests in flight."""
    _pipeline: ClientPipeline
    _reader: FrameReader
    _held: HeldRequests
    _meter: Meter
    _last_used: float
    _draining: bool
    _one_way: bool
    """Whether any request without a response (Produce with acks=0) was written."""
    _after_read: list[Callable[[], object]] | None = None
    """The functions that are called once all frames of a read are handled, during that."""

    # Methods of the subclass.
    close: Callable[[KafkaError | None], None]
    _fail_unwritten: Callable[[PendingRequest], None]
    _write_segments: Callable[[asyncio.Transport, list[Any]], int]
    _read_setup: Callable[[SetupFrames, int], None]
    _read_unusual: Callable[[Buffer], None]
    _close_oversized: Callable[[OversizedFrameError], None]
    _apply_throttle: Callable[[float, float], None]

    def start_request(self, sent: PendingRequest, now: float) -> None:
        """Send a request that the caller has made. `now` is the time on the loop's clock."""
        if self._open_transport is None:
            self._fail_unwritten(sent)
            return
        if sent.version is None:
            try:
                sent.version = self.broker.version_of(cast("Any", type(sent.message)))
            except KafkaError as error:
                sent.fail(error)
                return
        self._last_used = now
        held = self._held
        if held.requests or held.paused or now < held.throttled_until:
            self._timer.wake_at(held.hold_request(sent, now))
            return
        self._write_request(sent)
        if sent.deadline < self._timer.due:  # Usually, an earlier request has set the timer.
            self._timer.wake_at(sent.deadline)

    def _write_request(self, sent: PendingRequest) -> None:
        transport = self._open_transport
        if transport is None or transport.is_closing():
            self._fail_unwritten(sent)
            return
        assert sent.version is not None
        try:
            _, segments = self._pipeline.encode_request(
                sent.message, sent.version, sent.expect_response
            )
        except KafkaError as error:
            error.broker = self.broker.node_id
            sent.fail(error)
            return
        if sent.expect_response:
            self._in_flight.append(sent)
        else:
            self._one_way = True
            sent.on_written()
        if len(segments) == 1:  # As in `_write_segments`, without a function call.
            size = len(segments[0])
            transport.write(segments[0])
        else:
            size = self._write_segments(transport, segments)
        # This comes after the write: it takes no time from the response, for which a task may wait.
        meter = self._meter
        meter.sizes.append(size)
        if len(meter.sizes) >= UNCOUNTED:
            meter.count_latest()
        if meter.known_levels.get(DEBUG, True) and meter.is_logged(DEBUG):
            meter.traffic.log_request(self.broker, sent.api, sent.version, size)

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = self._reader.get_buffer()
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._setup is not None:
            self._read_setup(self._setup, nbytes)
            return
        try:
            frames = self._reader.take_frames(nbytes)
        except OversizedFrameError as error:
            self._close_oversized(error)
            return
        if self._threshold is not None:
            self._threshold.expect_bytes(self._reader.missing)
        self._after_read = []
        try:
            for frame in frames:
                if self._open_transport is None:
                    return
                size = len(frame)
                if size >= LARGE or self._decoding:
                    self._read_unusual(frame)
                    continue
                try:
                    response = self._pipeline.read_response(frame)
                except ProtocolError as error:
                    self.close(error)
                    return
                self.on_response(response, size)
        finally:
            called, self._after_read = self._after_read, None
            while called:
                called.pop()()

    def call_after_read(self, function: Callable[[], object]) -> bool:
        """Call a function once all frames of the present read are handled. It must not raise.

        Return False, and do not call it, if no read is being handled: a large response is decoded
        in a thread, for example.
        """
        if self._after_read is None:
            return False
        self._after_read.append(function)
        return True

    def on_response(self, response: Any, size: int) -> None:
        """Complete the oldest request in flight. `size` is that of the response's frame."""
        if self._open_transport is None:
            return
        sent = self._in_flight.popleft()
        self._last_used = now = self._now()
        # A list tells that all batches were written. It comes from a response without a throttle.
        throttle_ms: int = 0 if type(response) is list else getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._apply_throttle(now, throttle_ms / 1000)
        self._meter.count_response(self.broker, sent, response, size, now, throttle_ms)
        # Throttle before delivering the response, because its receiver may send a request.
        if self._draining and not (self._in_flight or self._held.requests):
            self.close(None)
        sent.deliver_response(response)


# Compiled modules call these in C; see connection.pxd.
start_request = ConnectionState.start_request
call_after_read = ConnectionState.call_after_read


class BrokerConnection(ConnectionState, asyncio.BufferedProtocol):
    """A connection that is open when it is created, and never reopened.

    `broker` is the broker at the other end. Its `node_id` is negative for a bootstrap server.
    `host` and `port` are the address as configured or advertised.
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
        self.broker = ConnectedBroker(node_id, host, port)
        self.closed = False
        traffic = Traffic(Metrics(), client_id) if traffic is None else traffic
        self._meter = traffic.get_meter(node_id)
        loop = asyncio.get_running_loop()
        self._now = get_loop_clock()
        self._pipeline = ClientPipeline(client_id)
        self._reader = FrameReader(SETUP_FRAME_LIMIT)
        self._buffer = self._reader.get_buffer()
        self._setup = SetupFrames(self.broker.address)
        self._transport: asyncio.Transport | None = None
        self._open_transport = None
        self._threshold = None
        self._held = HeldRequests()
        self._in_flight = deque()
        self._decoding = deque()
        self._draining = False
        self._one_way = False
        self._timer = WakeTimer(loop, self._on_timer)
        self._idle_s = idle_s
        self._last_used = self._used_before = loop.time()
        self.reason: KafkaError | None = None
        """The error that closed the connection, or None if it is open or was closed on purpose."""
        self._close_listeners: list[Callable[[BrokerConnection, KafkaError | None], None]] = []
        self._released: asyncio.Future[None] = loop.create_future()
        """A future that is done when the transport has released the socket and every buffer."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.in_flight} in flight"
        broker = self.broker
        return f"<BrokerConnection to {broker.address} (node {broker.node_id}), {state}>"

    @property
    def traffic(self) -> Traffic:
        """The metrics and the wire log of the client's connections."""
        return self._meter.traffic

    def set_broker_id(self, node_id: int) -> None:
        """Set the broker id, once it is known which broker the bootstrap server is."""
        self.broker.set_broker_id(node_id)
        self._meter = self.traffic.get_meter(node_id)

    @property
    def connected(self) -> bool:
        """Whether the transport is connected. The other side may not have answered yet."""
        return self._transport is not None

    def read_info(self, name: str) -> Any:
        """Return what the transport knows by this name, or None. See `get_extra_info`."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    @property
    def in_flight(self) -> int:
        """The number of requests without an outcome, including held ones."""
        return len(self._in_flight) + len(self._held.requests)

    @property
    def never_answered(self) -> bool:
        """Whether no response has arrived since the connection was ready."""
        return len(self._pipeline) == self._pipeline.sent

    @property
    def has_answered(self) -> bool:
        """Whether a response has arrived since the connection was ready."""
        return len(self._pipeline) < self._pipeline.sent and not self._one_way

    @property
    def awaited(self) -> str:
        """The API of the oldest unanswered request, or an empty text."""
        arrived = len(self._decoding)
        return self._in_flight[arrived].api if len(self._in_flight) > arrived else ""

    @property
    def is_busy(self) -> bool:
        """Whether a large response is being received, or the client may not send a request yet."""
        return self._reader.in_large_frame or bool(self._decoding) or bool(self._held.requests)

    def measure_unanswered_s(self) -> float:
        """Return the seconds since the oldest unanswered request was sent, or 0.0."""
        arrived = len(self._decoding)
        unanswered = len(self._in_flight) > arrived
        return self._now() - self._in_flight[arrived].since if unanswered else 0.0

    def is_arriving(self, outcome: asyncio.Future[Any]) -> bool:
        """Return whether the response of a request is being received or decoded.

        `outcome` is the future that `send` returned. Receiving or decoding a large response can
        take a while.
        """
        arriving = islice(self._in_flight, len(self._decoding) + self._reader.in_large_frame)
        return any(isinstance(sent, AwaitedRequest) and sent.future is outcome for sent in arriving)

    # -- requests ---------------------------------------------------------------------------

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
        response cannot be decoded, with ResponseTooLargeError if it is larger than permitted, and
        with UnsupportedVersionError if client and broker have no version in common. Cancelling the
        future abandons the response, not the request. With `expect_response=False`, its result is
        None as soon as the transport has the request. `version` defaults to the negotiated one.
        """
        now = self._now()
        sent = AwaitedRequest(message, version, now, timeout_s, expect_response)
        self.start_request(sent, now)
        return sent.future

    def send_with_callback(
        self,
        message: Request[Any],
        done: OnResponse,
        *,
        timeout_s: float,
        version: int | None = None,
        expect_response: bool = True,
    ) -> None:
        """Send a request as `send` does, and call `done(response, error)` with the outcome.

        `done` is called once: with a response immediately when it was decoded, with an error in
        a later callback of the event loop. It must not raise.
        """
        now = self._now()
        sent = CallbackRequest(done, message, version, now, timeout_s, expect_response)
        self.start_request(sent, now)

    def send_first(
        self, message: Request[Any], *, version: int, timeout_s: float
    ) -> asyncio.Future[Any]:
        """Send a request as `send` does, before all held ones, even while those are suspended.

        Its timeout is extended by the time until the last deadline of the requests in flight, or
        until the end of a throttle time, whichever is later, because the broker reads this request
        only after that.
        """
        now = self._now()
        latest = max((sent.deadline for sent in self._in_flight), default=now)
        ahead_s = max(latest, self._held.throttled_until) - now
        sent = AwaitedRequest(message, version, now, timeout_s + max(ahead_s, 0.0), True)
        if self.closed:
            self._fail_unwritten(sent)
        else:
            self._write_request(sent)
            self._timer.wake_at(sent.deadline)
        return sent.future

    def hold_requests(self) -> None:
        """Hold all requests except those of `send_first`, until `release_requests`."""
        self._held.set_suspended(True)
        self._used_before = self._last_used

    @property
    def is_suspended(self) -> bool:
        """Whether requests are held until `release_requests`."""
        return self._held.suspended

    def release_requests(self) -> None:
        """Write the requests that were held since `hold_requests`."""
        self._held.set_suspended(False)
        if not self.in_flight:
            # The authentication alone must not keep an idle connection open.
            self._last_used = self._used_before
        self._write_held(self._now())

    def _fail_unwritten(self, sent: PendingRequest) -> None:
        sent.fail(disconnected(self.broker.node_id, sent.api, self.reason))

    def _write_segments(self, transport: asyncio.Transport, segments: list[Any]) -> int:
        """Write a frame of several segments, and return its size in bytes."""
        size = sum(map(len, segments))
        write_segments(transport, segments, size)
        return size

    def _write_held(self, now: float) -> None:
        while not self.closed and (sent := self._held.take_next(now)) is not None:
            # The time for which the client held the request does not count towards its timeout.
            sent.restart_timeout(now)
            self._write_request(sent)
        if self._draining and not self.in_flight:
            self.close()

    def _apply_throttle(self, now: float, seconds: float) -> None:
        # Brokers from 2.0 on answer at once, and read nothing more from this connection until the
        # throttle time has passed (KIP-219).
        self._held.hold_until(now + seconds)
        until = now + min(seconds, LONGEST_PAUSE_S)
        for sent in self._in_flight:
            sent.deadline = max(sent.deadline, until + sent.timeout_s)

    # -- setting up -------------------------------------------------------------------------

    def exchange_frame(self, segments: list[Any]) -> asyncio.Future[Buffer]:
        """Write one frame during the setup, and return a future of the next received frame.

        The future fails with DisconnectedError or ConnectionSetupError. Only one such future may be
        pending at a time.
        """
        setup, transport = self._setup, self._transport
        assert setup is not None
        frame = setup.expect_frame()
        if self.closed or transport is None or transport.is_closing():
            setup.fail_expected_frame(self.reason)
        else:
            size = sum(map(len, segments))
            self._meter.request_sizes.observe(size)
            write_segments(transport, segments, size)
        return frame

    def end_setup(
        self,
        api_versions: Mapping[int, tuple[int, int]],
        frame_limit: int,
        *,
        features: Mapping[str, int] = MappingProxyType({}),
        session_lifetime_ms: int = 0,
    ) -> None:
        """End the setup. From now on, `send` is allowed.

        The versions, features, and session lifetime are those that the broker reported.
        `frame_limit` is the size limit of a response in bytes.
        """
        self.broker.learn_support(api_versions, features, session_lifetime_ms)
        self._reader.max_frame = frame_limit
        self._setup = None
        self._timer.wake_at(self._find_idle_deadline())

    # -- the transport's side ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance check: uvloop's TLS transport is not a subclass of asyncio's.
        self._transport = self._open_transport = cast(asyncio.Transport, transport)
        self.traffic.count_opened()
        detach_in_forks(self)
        self._threshold = ReadThreshold.of(transport)

    def _read_setup(self, setup: SetupFrames, nbytes: int) -> None:
        """Handle bytes that were received before the connection is ready."""
        setup.on_bytes(self._buffer[:nbytes])
        try:
            frames = self._reader.take_frames(nbytes)
        except OversizedFrameError:
            self.close(setup.make_frame_error())
            return
        if self._threshold is not None:
            self._threshold.expect_bytes(self._reader.missing)
        for frame in frames:
            if self.closed:
                return
            self._meter.count_setup_response(len(frame))
            try:
                setup.on_frame(frame)
            except ProtocolError as error:
                self.close(error)

    def _read_unusual(self, frame: Buffer) -> None:
        """Handle a large response, or one that must wait for an earlier one.

        Brokers answer in the order of the requests, and so callers see the answers.
        """
        size = len(frame)
        try:
            asked = self._pipeline.match_response(frame)
            large = size >= LARGE and not asked.request.response_class.has_records()
            if large or self._decoding:
                self._decode_later(asked, frame, large)
                return
            response = asked.decode(frame)
        except ProtocolError as error:
            self.close(error)
            return
        self.on_response(response, size)

    def _decode_later(self, asked: InFlight, frame: Buffer, large: bool) -> None:
        """Decode a large response in a thread, or one that must wait for an earlier one."""
        if large:
            work: asyncio.Future[Any] = threads.run(asked.decode, frame)
        else:
            work = asyncio.get_running_loop().create_future()
            try:
                work.set_result(asked.decode(frame))
            except ProtocolError as error:
                work.set_exception(error)
        self._decoding.append((work, len(frame)))
        work.add_done_callback(self._on_decoded)

    def _on_decoded(self, work: asyncio.Future[Any]) -> None:
        if not work.cancelled():
            work.exception()  # Mark the exception as retrieved. It is handled below, in order.
        while not self.closed and self._decoding and self._decoding[0][0].done():
            first, size = self._decoding.popleft()
            error = None if first.cancelled() else first.exception()
            if error is not None:
                # Later responses could no longer be matched with their requests.
                self.close(error if isinstance(error, ProtocolError) else not_decoded(error))
            elif not first.cancelled():
                self.on_response(first.result(), size)

    def _close_oversized(self, frame: OversizedFrameError) -> None:
        """Fail the request whose response is too large, and close the connection.

        A frame that is not the next response shows that the broker does not follow the protocol.
        """
        if frame.size < 0 or not self._pipeline.expects_response(frame.correlation_id):
            self.close(frame)
            return
        arrived = len(self._decoding)
        sent = self._in_flight[arrived]
        del self._in_flight[arrived]
        error = ResponseTooLargeError(
            api=sent.api, broker=self.broker.node_id, size=frame.size, limit=frame.limit
        )
        self.traffic.log_failure(self.broker, sent, error)
        sent.fail(error)
        self.close(error)

    def eof_received(self) -> None:
        self.close(
            DisconnectedError("The broker closed the connection.", broker=self.broker.node_id)
        )

    def connection_lost(self, exc: Exception | None) -> None:
        why = f"The connection failed: {exc}." if exc else "The connection was closed."
        error = DisconnectedError(why, broker=self.broker.node_id)
        # The traceback of a failed write refers to the transport, and the error is kept for longer.
        error.__cause__ = None if exc is None else bare(exc)
        self.close(error)
        self._transport = None
        self.traffic.count_closed()
        if not self._released.done():
            self._released.set_result(None)

    def pause_writing(self) -> None:
        self._held.pause_writing(self._now())

    def resume_writing(self) -> None:
        self._held.resume_writing()
        self._write_held(self._now())

    # -- time -------------------------------------------------------------------------------

    def _on_timer(self, due: float) -> None:
        now = self._now()
        # The event loop stood still. Responses that have arrived meanwhile are read before requests
        # count as late.
        if now - due > STALL_S:
            self._timer.wake_at(now + GRACE_S)
            return
        self._expire_requests(now)
        self._write_held(now)
        if self.closed:
            return
        if not self.in_flight and self._idle_s is not None and now >= self._find_idle_deadline():
            self.close()
            return
        self._timer.wake_at(self._find_next_wake(now))

    def _find_next_wake(self, now: float) -> float:
        wakes = [sent.deadline for sent in self._list_unanswered()]
        wakes += self._held.list_wake_times(now)
        return min(wakes) if wakes else max(self._find_idle_deadline(), now + GRACE_S)

    def _find_idle_deadline(self) -> float:
        # Without an idle limit, the timer is set far in the future, to avoid a special case.
        return self._last_used + (self._idle_s if self._idle_s is not None else 3600.0)

    def _list_unanswered(self) -> Iterable[PendingRequest]:
        """Return the requests in flight whose responses are not being decoded."""
        return islice(self._in_flight, len(self._decoding), None)

    def _expire_requests(self, now: float) -> None:
        stuck: PendingRequest | None = None
        for sent in self._held.take_expired(now):
            if self._held.is_stuck(sent):
                stuck = sent
                self._fail_overdue_request(
                    sent, "The broker read nothing for {:.1f} s, and the connection was closed."
                )
            elif self._held.suspended:
                self._fail_overdue_request(
                    sent, "A repeated SASL authentication did not end within {:.1f} s."
                )
            else:
                self._fail_overdue_request(
                    sent, "The broker's throttle time kept the client from sending for {:.1f} s."
                )
        late = [sent for sent in self._list_unanswered() if sent.deadline <= now]
        for sent in late:
            why = f"The broker did not answer {sent.api} within {{:.1f}} s, "
            self._fail_overdue_request(sent, f"{why}and the connection was closed.")
        if late:
            after = f"The broker did not answer {late[0].api} within {now - late[0].since:.1f} s."
            self.close(DisconnectedError(after, broker=self.broker.node_id))
        elif stuck is not None:
            after = f"The broker read nothing for {now - stuck.since:.1f} s."
            self.close(DisconnectedError(after, broker=self.broker.node_id))

    def _fail_overdue_request(self, sent: PendingRequest, why: str) -> None:
        text = why.format(self._now() - sent.since)
        error = ApiTimeoutError(text, api=sent.api, broker=self.broker.node_id)
        self.traffic.log_failure(self.broker, sent, error)
        sent.fail(error)

    # -- the end ----------------------------------------------------------------------------

    def on_close(
        self, callback: Callable[[BrokerConnection, KafkaError | None], None]
    ) -> Callable[[], None]:
        """Call `callback(connection, reason)` once the connection is closed.

        `reason` is None if it was closed on purpose. Returns a function that removes the callback.
        """
        listeners = self._close_listeners
        listeners.append(callback)
        return lambda: listeners.remove(callback) if callback in listeners else None

    def close(self, error: KafkaError | None = None) -> None:
        """Close the connection. Requests without an outcome fail with DisconnectedError.

        Without an error, the transport still writes its buffer. Synchronous, idempotent.
        """
        if self.closed:
            return
        self.closed = True
        self._open_transport = None
        self.reason = error
        self._timer.cancel()
        if self._threshold is not None:
            self._threshold.stop_adapting()
        if self._transport is not None:
            # A TLS transport does not count the buffer of the transport below it. So assume that a
            # request without a response is still in that buffer.
            unwritten = self._one_way or self._transport.get_write_buffer_size()
            self._transport.close() if error is None and unwritten else self._transport.abort()
        if self._setup is not None:
            self._setup.fail_expected_frame(error)
        self._decoding.clear()
        for queue in (self._in_flight, self._held.requests):
            while queue:
                sent = queue.popleft()
                lost = disconnected(self.broker.node_id, sent.api, error)
                self.traffic.log_failure(self.broker, sent, lost)
                sent.fail(lost)
        for listener in list(self._close_listeners):
            listener(self, error)

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
            await asyncio.shield(self._released)
