"""The broker's side of a connection: it reads frames and sends responses, one request at a time.

A broker handles the next request of a connection only after it has answered the previous one. A
request that waits (a long poll, or an append that waits for replicas) delays all later requests on
the same connection, and so does a throttled one. Other connections are not affected.

A request has these steps, in this order. Some requests skip some of them:

    frame -> decoded -> recorded -> dropped? -> delayed -> handled -> waits -> altered -> delayed
          -> dropped? -> encoded -> answered -> muted -> the next frame

A large request must not block the other connections. It is decoded in a thread, its handler yields
to the event loop between items (`Call.iterate_items`), its response is encoded in a thread, and
both are freed in a thread.

The memory of a connection is limited. Reading stops while the request that is being handled and the
queued requests together take `_QUEUED_BYTES` or more. No request is handled while the client does
not read its responses.

The class is an `asyncio.BufferedProtocol` and does not use sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from aiokclient import threads
from aiokclient.errors import KafkaError
from aiokclient.network.transport import write_segments
from aiokclient.protocol import ApiKey
from aiokclient.protocol.framing import DecodedRequest, FrameReader, ServerFraming
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Refused
from aiokclient.testing.broker.connections.sasl import AuthenticationStep
from aiokclient.testing.broker.controllers import is_answered
from aiokclient.testing.broker.faults import Alter, Delay, Drop, Fault, Throttle
from aiokclient.testing.broker.handlers import get_handler
from aiokclient.testing.broker.security import quotas as quotas_
from aiokclient.testing.disposal import discard_messages

if TYPE_CHECKING:
    from aiokclient.protocol.fields import Buffer
    from aiokclient.protocol.schema import Response
    from aiokclient.testing.broker.node import Node
    from aiokclient.testing.broker.security.quotas import ClientQuotas
    from aiokclient.testing.broker.state import ClusterState

_log = logging.getLogger(__name__)

_MAX_FRAME = 100 << 20
"""The default of Kafka's `socket.request.max.bytes`."""

_MAX_UNKNOWN_FRAME = 1 << 20
"""The largest frame of a client that is not authenticated yet."""

_QUEUED_FRAMES = 64
"""Reading stops when this many requests of one connection are queued."""

_QUEUED_BYTES = 4 << 20
"""Reading stops when the requests of one connection take this many bytes."""

_INLINE_BYTES = 64 << 10
_INLINE_PRODUCE_BYTES = 1 << 20
"""The sizes above which frames are decoded in a thread.

The limit for Produce is higher, because records are not decoded but only referenced.
"""

_framing = ServerFraming()


class Registry(Protocol):
    """The owner of a broker's connections."""

    def on_connected(self, connection: BrokerProtocol, /) -> None: ...

    def on_disconnected(self, connection: BrokerProtocol, /) -> None: ...


class BrokerProtocol(asyncio.BufferedProtocol):
    """One accepted connection."""

    __slots__ = (
        "__weakref__",
        "_awaited",
        "_busy",
        "_call",
        "_closes",
        "_cluster",
        "_current",
        "_frames",
        "_handling",
        "_queued",
        "_reading",
        "_registry",
        "_spent",
        "_throttle_s",
        "_timer",
        "_transport",
        "_waiting",
        "_withheld",
        "_writable",
        "authentication",
        "broker",
        "client_software",
        "listener",
    )

    def __init__(
        self, broker: Node, cluster: ClusterState, registry: Registry, listener: str
    ) -> None:
        self.broker = broker
        self.listener = listener
        self.client_software = ("unknown", "unknown")
        self._registry = registry
        self._cluster = cluster
        self.authentication = cluster.security.make_authentication(listener)
        known = self.authentication.step is AuthenticationStep.DONE
        self._frames = FrameReader(_MAX_FRAME if known else _MAX_UNKNOWN_FRAME, kept=0)
        self._closes = False
        """Whether the connection ends with the response to the request being handled."""
        self._throttle_s = 0.0
        """The seconds for which the request being handled throttles the client."""
        self._waiting: deque[Buffer] = deque()
        self._queued = 0
        self._current = 0
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._writable = True
        self._busy = False
        self._timer: asyncio.Handle | None = None
        self._awaited: asyncio.Future[Any] | None = None
        self._handling: Coroutine[Any, Any, Any] | None = None
        self._call: Call | None = None
        """The request whose handler waits."""
        self._spent: list[Any] = []
        """The large messages of the request being handled, which are freed after it."""
        self._withheld: Callable[[], None] | None = None

    # -- called by the transport ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        certificate = transport.get_extra_info("peercert")
        if certificate and self.authentication.step is AuthenticationStep.DONE:
            self.authentication.use_certificate(_find_common_name(certificate))
        self._registry.on_connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._frames.take_frames(nbytes)
        except KafkaError as error:
            _log.debug("%r closes a connection: %s", self.broker, error)
            self.abort()
            return
        if frames:
            self._waiting.extend(frames)
            self._queued += sum(map(len, frames))
            self.handle_queued()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._withheld = None
        call = self._call
        if call is not None and call.outlives_connection and self.broker.alive:
            # Like Kafka, which does not read from a connection while it handles a request of it.
            self._waiting.clear()
        else:
            self._end_connection()

    def _end_connection(self) -> None:
        """Discard all requests, and end what depends on the connection."""
        self._discard_requests()
        self._registry.on_disconnected(self)

    @property
    def _is_outlived(self) -> bool:
        """Whether the connection is lost, and the request being handled goes on."""
        return self._transport is None and self._call is not None

    def _discard_requests(self) -> None:
        """Discard the queued requests and the one being handled."""
        self._waiting.clear()
        self._queued = self._current = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None
        if self._handling is not None:
            self._handling.close()
            self._handling = self._call = None
        self._free_messages()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.handle_queued()

    def abort(self) -> None:
        """Cut the connection without sending anything more."""
        transport = self._transport
        if self._is_outlived:
            self._end_connection()
        if transport is not None:
            self._waiting.clear()
            self._queued = 0
            transport.abort()

    def on_authenticated(self) -> None:
        """Accept frames of up to `_MAX_FRAME` bytes from now on. Called after authentication."""
        self._frames.max_frame = _MAX_FRAME

    def throttle_client(self, seconds: float) -> None:
        """Throttle the client for at least `seconds` after the request that is being handled."""
        self._throttle_s = max(self._throttle_s, seconds)

    def close_after_response(self) -> None:
        """Close the connection when the request being handled has been answered."""
        self._closes = True

    @property
    def client_host(self) -> str:
        """The client's address, in the form that Kafka uses for the members of groups."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return f"/{peer[0]}" if peer else "/127.0.0.1"

    @property
    def client_port(self) -> int | None:
        """The client's port, if it is known."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return peer[1] if peer else None

    # -- handling one request after another ----------------------------------------------------

    def handle_queued(self) -> None:
        """Handle queued requests until one has to wait."""
        if self._withheld is not None and not self.broker.paused:
            answer, self._withheld = self._withheld, None
            self._call_guarded(answer)
        while self._can_take_request() and self._cluster.turns.take_turn(self):
            self._call_guarded(partial(self._take_frame, self._waiting.popleft()))
        transport = self._transport
        full = len(self._waiting) >= _QUEUED_FRAMES or self._queued + self._current >= _QUEUED_BYTES
        if transport is not None and full is self._reading and not transport.is_closing():
            self._reading = not full
            if full:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _call_guarded(self, step: Callable[[], None]) -> None:
        """Call a function, and report an exception from it as a bug in the embedded cluster.

        The cluster raises the report when it ends.
        """
        try:
            step()
        except Exception as error:
            _log.exception("%r failed on a request.", self.broker)
            self._cluster.bug = self._cluster.bug or error
            self.abort()

    def _can_take_request(self) -> bool:
        if self._transport is None or self._busy or not self._writable or self.broker.paused:
            return False
        return bool(self._waiting)

    def _take_frame(self, frame: Buffer) -> None:
        self._busy = True
        self._current = len(frame)
        self._queued -= self._current
        if self.authentication.raw:
            self._take_token(frame)
        elif self._current <= _INLINE_BYTES or (
            self._current <= _INLINE_PRODUCE_BYTES and _is_produce(frame)
        ):
            self._on_decoded(frame, _decode_request(frame))
        else:
            self._continue_after(
                threads.run(_decode_request, frame), partial(self._on_decoded, frame)
            )

    def _take_token(self, frame: Buffer) -> None:
        """Handle a SASL message without a request header, after version 0 of SaslHandshake."""
        authentication = self.authentication
        try:
            message = authentication.answer_message(bytes(frame))
        except Refused as refused:
            _log.debug("%r closes a connection: %s", self.broker, refused)
            self.abort()
            return
        if authentication.step is AuthenticationStep.DONE:
            self.on_authenticated()
        self._write_segments([len(message).to_bytes(4, "big") + message], 0.0)

    def _on_decoded(self, frame: Buffer, received: DecodedRequest | KafkaError) -> None:
        cluster = self._cluster
        if isinstance(received, KafkaError):
            # Like Kafka, cut off a client whose request cannot be read or has a version that was
            # not announced.
            _log.debug("%r closes a connection: %s", self.broker, received)
            self.abort()
            return
        if self._current > _INLINE_BYTES and received.request is not None:
            self._spent.append(received.request)
        if not (
            cluster.versions.is_accepted(self.broker.node_id, received)
            and self._is_allowed(received)
        ):
            self.abort()
            return
        cluster.store_request(self.broker, received, frame)
        faults = cluster.faults.find_matching(
            received.header.request_api_key, self.broker.node_id, received.request
        )
        if not faults:
            self._handle_request(received, faults)
        elif not self._is_dropped(faults, "before"):
            self._call_after(
                _use_delays(faults, "before"), lambda: self._handle_request(received, faults)
            )

    def _is_allowed(self, received: DecodedRequest) -> bool:
        """Return whether the listener and the client's authentication allow this request."""
        api = ApiKey(received.header.request_api_key)
        return is_answered(self.listener, api) and self.authentication.is_allowed(api)

    def _handle_request(self, received: DecodedRequest, faults: list[Fault]) -> None:
        header = received.header
        api = ApiKey(header.request_api_key)
        call = Call(
            self._cluster,
            self.broker,
            api,
            header.request_api_version,
            received.request,
            header.client_id,
            self,
            faults,
        )
        reply = get_handler(api)(call)
        if isinstance(reply, Coroutine):
            self._continue_handler(reply, call, received, faults)
        else:
            self._on_reply(reply, received, faults)

    def _continue_handler(
        self,
        handling: Coroutine[Any, Any, Answer],
        call: Call,
        received: DecodedRequest,
        faults: list[Fault],
    ) -> None:
        """Continue a handler until it yields, waits, or ends."""
        try:
            awaited = handling.send(None)
        except StopIteration as done:
            answer: Answer = done.value
        else:
            self._handling, self._call = handling, call
            then = partial(self._continue_handler, handling, call, received, faults)
            if awaited is None:
                self._timer = self._cluster.loop.call_soon(self._on_delay_end, then)
            else:
                self._continue_after(awaited, lambda _: then())
            return
        outlived = self._is_outlived
        self._handling = self._call = None
        if outlived:
            self._cluster.notify_tests()
            self._end_connection()
            return
        self._on_reply(answer, received, faults, large=call.yielded)

    def _on_reply(
        self,
        answer: Answer,
        received: DecodedRequest,
        faults: list[Fault],
        *,
        large: bool = False,
    ) -> None:
        if isinstance(answer, asyncio.Future):
            self._continue_after(
                answer, lambda response: self._finish_request(response, received, faults, large)
            )
        else:
            self._finish_request(answer, received, faults, large)

    def _continue_after(self, future: asyncio.Future[Any], then: Callable[[Any], None]) -> None:
        """Continue with the result of a future, unless the connection is lost first."""
        self._awaited = future
        future.add_done_callback(partial(self._on_awaited, then))

    def _on_awaited(self, then: Callable[[Any], None], future: asyncio.Future[Any]) -> None:
        self._awaited = None
        if future.cancelled() or (self._transport is None and not self._is_outlived):
            return
        self._call_guarded(lambda: then(future.result()))
        self.handle_queued()

    def _finish_request(
        self,
        response: Response | None,
        received: DecodedRequest,
        faults: list[Fault],
        large: bool,
    ) -> None:
        """Answer a request that was executed, unless a fault prevents it."""
        self._cluster.notify_tests()
        quotas = self._cluster.security.quotas
        if quotas.has_any:
            self._charge_quotas(quotas, received, response)
        if not faults:
            self._answer_request(response, received, faults, large)
            return
        for fault in faults:
            if isinstance(fault, Alter):
                fault.count_use()
                response = fault.change(received.request, response)
        if not self._is_dropped(faults, "after"):
            seconds = _use_delays(faults, "after")
            self._call_after(
                seconds, lambda: self._answer_request(response, received, faults, large)
            )

    def _charge_quotas(
        self, quotas: ClientQuotas, received: DecodedRequest, response: Response | None
    ) -> None:
        """Charge a request to the client's quotas, and throttle the client if it exceeds them."""
        api, header = received.header.request_api_key, received.header
        user, client_id = self.authentication.principal.name, header.client_id or ""
        if response is not None and not hasattr(response, "throttle_time_ms"):
            return  # Login requests do not count toward a quota.
        costs = {quotas_.REQUESTS: quotas_.REQUEST_COST}
        if api == ApiKey.PRODUCE:
            costs[quotas_.PRODUCER] = float(self._current)
        elif api in (ApiKey.FETCH, ApiKey.SHARE_FETCH):
            costs[quotas_.CONSUMER] = float(_count_fetched_bytes(response))
        for key, amount in costs.items():
            self.throttle_client(quotas.record_usage(key, user, client_id, amount))
        if api == ApiKey.SHARE_FETCH and self._throttle_s and response is not None:
            # Kafka throttles it after the records were acquired, and sends none of them.
            cast("Any", response).responses = []

    def _answer_request(
        self,
        response: Response | None,
        received: DecodedRequest,
        faults: list[Fault],
        large: bool,
    ) -> None:
        if self._transport is None:
            return
        if self.broker.paused:
            self._withheld = lambda: self._answer_request(response, received, faults, large)
            return
        muted, self._throttle_s = self._throttle_s, 0.0
        for fault in faults:
            if isinstance(fault, Throttle) and response is not None:
                fault.count_use()
                muted = max(muted, fault.seconds)
        if muted and response is not None:
            # As in Kafka, the response has the throttle time in whole milliseconds.
            cast("Any", response).throttle_time_ms = int(muted * 1000)
        if response is None:
            self._call_after(muted, self._end_request)
        elif large:
            self._spent.append(response)
            encoding = threads.run(_encode_response, received, response)
            self._continue_after(encoding, lambda segments: self._write_segments(segments, muted))
        else:
            self._write_segments(_encode_response(received, response), muted)

    def _write_segments(self, segments: list[Buffer], muted: float) -> None:
        transport = self._transport
        # A closing transport must not be written to: see `BrokerConnection` of the client.
        if transport is None or transport.is_closing():
            return
        if self.broker.paused:
            self._withheld = lambda: self._write_segments(segments, muted)
            return
        write_segments(transport, segments, sum(map(len, segments)))
        if self._closes:
            self._waiting.clear()
            transport.close()
        self._call_after(muted, self._end_request)

    def _end_request(self) -> None:
        self._busy = False
        self._current = 0
        self._free_messages()

    def _free_messages(self) -> None:
        """Free large messages in the next iteration of the event loop.

        By then, nothing else in this class refers to them.
        """
        if self._spent:
            spent, self._spent = self._spent, []
            self._cluster.loop.call_soon(discard_messages, spent)

    def _is_dropped(self, faults: list[Fault], when: str) -> bool:
        for fault in faults:
            if isinstance(fault, Drop) and fault.when == when:
                fault.count_use()
                self.abort()
                self._cluster.notify_tests()
                return True
        return False

    def _call_after(self, seconds: float, then: Callable[[], None]) -> None:
        """Call a function, immediately or after a delay."""
        if seconds <= 0:
            then()
            return

        loop = self._cluster.loop
        self._timer = loop.call_later(seconds, self._on_delay_end, then)

    def _on_delay_end(self, step: Callable[[], None]) -> None:
        """Call a function that was delayed, and then handle the queued requests."""
        self._timer = None
        self._call_guarded(step)
        self.handle_queued()


def _count_fetched_bytes(response: Any) -> int:
    return sum(
        sum(map(len, part.records)) if isinstance(part.records, list) else len(part.records or b"")
        for each in response.responses
        for part in each.partitions
    )


def _find_common_name(certificate: Mapping[str, Any]) -> str:
    """Return the common name of a client's certificate, or "" if it has none."""
    names = [pair for part in certificate["subject"] for pair in part]
    return next((value for kind, value in names if kind == "commonName"), "")


def _is_produce(frame: Buffer) -> bool:
    return bytes(frame[:2]) == b"\0\0"


def _decode_request(frame: Buffer) -> DecodedRequest | KafkaError:
    """Decode a request. The error of a request that cannot be read is returned, not raised."""
    try:
        return _framing.decode_request(frame)
    except KafkaError as error:
        return error


def _encode_response(received: DecodedRequest, response: Response) -> list[Buffer]:
    version = 0 if received.request is None else None
    return _framing.encode_response(received, response, version=version)


def _use_delays(faults: list[Fault], when: str) -> float:
    """Return the total delay of these faults, in seconds, and count each as used."""
    seconds = 0.0
    for fault in faults:
        if isinstance(fault, Delay) and fault.when == when:
            fault.count_use()
            seconds += fault.seconds
    return seconds
