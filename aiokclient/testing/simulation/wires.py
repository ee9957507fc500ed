"""The two ends of a connection that exists in memory only, and the bytes in transit.

Each direction is a `Wire`. Written data waits there by reference, not as a copy, until it is
delivered. So if a writer reuses a buffer too early, it corrupts its own bytes, as with a transport
of asyncio. The network determines when bytes arrive, and into which pieces they are split. The
bytes of one wire always arrive in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, Final, Protocol

IN_FLIGHT: Final = 256 * 1024
"""Maximum number of bytes of a writer that are in transit: the buffers of the simulated system."""


class Conditions(Protocol):
    """The interface by which connections ask the network for decisions, and record events."""

    def find_latency(self, connection: Connection, /) -> float:
        """Return the seconds until a write arrives."""
        ...

    def draw_byte_to_cut(self, length: int, /) -> int | None:
        """Return the number of bytes of a write after which the connection is reset, or None."""
        ...

    def draw_piece(self, available: int, /) -> int:
        """Return how many bytes the next read returns, if `available` bytes have arrived."""
        ...

    def is_parted(self, connection: Connection, /) -> bool:
        """Return whether a partition of the network separates the ends."""
        ...

    def on_write(self, connection: Connection, wire: Wire, data: memoryview, /) -> memoryview:
        """Return the bytes to send when an end writes `data`."""
        ...

    def forget_connection(self, connection: Connection, /) -> None:
        """Record that both ends are closed."""

    def find_address(self, connection: Connection, server: bool, /) -> tuple[str, int]:
        """Return the address of an end."""
        ...


class Connection:
    """A connection with its two wires.

    ``client`` and ``server`` are the names of its ends, and ``ends`` is the number of ends that are
    still open.
    """

    def __init__(self, network: Conditions, client: str, server: str, number: int) -> None:
        self.network, self.client, self.server, self.number = network, client, server, number
        self.requests, self.responses = Wire(self), Wire(self)
        self.ends = 2

    def join_ends(
        self,
        client: asyncio.BaseProtocol,
        server: asyncio.BaseProtocol,
        client_context: Context,
        server_context: Context,
    ) -> tuple[VirtualTransport, VirtualTransport]:
        """Create the transports and return them, the client's first.

        Neither protocol has been notified yet. Each is called in the context of its own program, so
        that a task that it creates belongs to that program.
        """
        near = VirtualTransport(self, client, self.requests, self.responses, client_context)
        far = VirtualTransport(self, server, self.responses, self.requests, server_context)
        self.requests.receiver, self.responses.receiver = far, near
        self.requests.sender, self.responses.sender = near, far
        return near, far

    def cut(self) -> None:
        """Reset the connection: both ends are notified, and bytes in transit are lost."""
        for wire in (self.requests, self.responses):
            wire.discard_data()
            wire.sender.end_connection(ConnectionResetError("the simulated connection was reset"))

    def deliver_delayed(self) -> None:
        """Deliver what was delayed, after a network partition healed."""
        self.requests.schedule_delivery()
        self.responses.schedule_delivery()


class Wire:
    """One direction of a connection.

    If ``cut_at`` is set, the connection is reset after this many of the wire's bytes were
    delivered.
    """

    sender: VirtualTransport
    receiver: VirtualTransport

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.cut_at: int | None = None
        self.written = self.delivered = 0
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, memoryview]] = deque()
        self._last_arrival = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ending: Callable[[], None] | None = None

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that were written and not delivered yet."""
        return self.written - self.delivered

    def write_data(self, data: memoryview) -> None:
        network = self.connection.network
        if (cut := network.draw_byte_to_cut(len(data))) is not None and self.cut_at is None:
            self.cut_at = self.written + cut
        self.written += len(data)
        self._waiting.append((self._find_arrival(), data))
        self.schedule_delivery()

    def call_when_arrived(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` when all written data has arrived and the latency has passed."""
        self._ending = tell
        self._waiting.append((self._find_arrival(), memoryview(b"")))
        self.schedule_delivery()

    def discard_data(self) -> None:
        self._waiting.clear()
        self.written = self.delivered
        self._ending = None

    def schedule_delivery(self) -> None:
        """Set the timer for the next bytes, unless the receiver or the network holds them."""
        if self._timer is None and self._waiting and not self._is_held():
            self._set_timer(self._waiting[0][0])

    def _find_arrival(self) -> float:
        latency = self.connection.network.find_latency(self.connection)
        self._last_arrival = max(self._last_arrival, self._loop.time() + latency)
        return self._last_arrival

    def _is_held(self) -> bool:
        return self.receiver.paused or self.connection.network.is_parted(self.connection)

    def _on_arrival(self) -> None:
        self._timer = None
        if self._is_held():
            return
        available = sum(len(data) for when, data in self._waiting if when <= self._loop.time())
        size = self.connection.network.draw_piece(available)
        if self.cut_at is not None and self.delivered + size >= self.cut_at:
            self._deliver_data(self.cut_at - self.delivered)
            self.connection.cut()
            return
        self._deliver_data(size)
        if size < available:  # The rest of the data arrives without a further write.
            self._set_timer(self._loop.time() + 1e-6)
            return
        if self._waiting and not self._waiting[0][1] and self._waiting[0][0] <= self._loop.time():
            self._waiting.popleft()
            if self._ending is not None:
                tell, self._ending = self._ending, None
                tell()
        self.schedule_delivery()

    def _set_timer(self, when: float) -> None:
        if self._timer is None:  # The protocol may have set the timer when it received data.
            context = self.receiver.context
            self._timer = self._loop.call_at(when, self._on_arrival, context=context)

    def _deliver_data(self, size: int) -> None:
        while size > 0 and self._waiting and not self.receiver.paused:
            taken = self.receiver.pass_data(self._take_pieces, size)
            size -= taken
            self.delivered += taken
        self.sender.on_drained()

    def _take_pieces(self, limit: int) -> Iterable[memoryview]:
        """Remove and yield pieces of waiting data, in order, at most ``limit`` bytes in all."""
        while limit > 0 and self._waiting:
            when, data = self._waiting.popleft()
            if len(data) > limit:
                self._waiting.appendleft((when, data[limit:]))
                data = data[:limit]
            limit -= len(data)
            yield data


class VirtualTransport(asyncio.Transport):
    """The transport of one end of a simulated connection, for buffered and other protocols."""

    def __init__(
        self,
        connection: Connection,
        protocol: asyncio.BaseProtocol,
        out: Wire,
        into: Wire,
        context: Context,
    ) -> None:
        super().__init__(
            {
                "peername": connection.network.find_address(
                    connection, into is connection.responses
                ),
                "sockname": connection.network.find_address(
                    connection, into is connection.requests
                ),
            }
        )
        self.connection = connection
        self.context = context
        self.paused = False
        self._protocol = protocol
        self._out, self._into = out, into
        self._loop = asyncio.get_running_loop()
        self._closing = self._lost = self._eof_written = self._told_to_pause = False
        self._high, self._low = 64 * 1024, 16 * 1024

    def begin_protocol(self) -> None:
        self.context.run(self._protocol.connection_made, self)

    # -- called by the wire

    def pass_data(self, take: Callable[[int], Iterable[memoryview]], limit: int) -> int:
        """Pass at most ``limit`` bytes to the protocol, and return their number."""
        if self._closing or self._lost:
            return sum(len(data) for data in take(limit))
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            whole = b"".join(take(limit))
            self._call_guarded(self._protocol.data_received, whole)  # type: ignore[attr-defined]
            return len(whole)
        buffer = memoryview(self._protocol.get_buffer(-1)).cast("B")
        if not len(buffer):
            self.end_connection(RuntimeError("get_buffer() returned an empty buffer"))
            return 0
        filled = 0
        for data in take(min(limit, len(buffer))):
            buffer[filled : filled + len(data)] = data
            filled += len(data)
        self._call_guarded(self._protocol.buffer_updated, filled)
        return filled

    def on_drained(self) -> None:
        """Resume the protocol's writing, or finish closing, after written data has arrived."""
        buffered = self.get_write_buffer_size()
        if self._told_to_pause and buffered <= self._low and not self._lost:
            self._told_to_pause = False
            self._call_guarded(self._protocol.resume_writing)
        if self._closing and not buffered:
            self.end_connection(None)

    def on_end(self) -> None:
        """Tell the protocol that the other end will write nothing more."""
        if self._closing or self._lost:
            return
        keep_open = self._protocol.eof_received()  # type: ignore[attr-defined]
        if not keep_open:
            self.close()

    def end_connection(self, error: Exception | None) -> None:
        """Notify the protocol, once, that the connection is lost."""
        if self._lost:
            return
        self._lost = self._closing = True
        self.connection.ends -= 1
        if not self.connection.ends:
            self.connection.network.forget_connection(self.connection)
        self._loop.call_soon(self._protocol.connection_lost, error, context=self.context)

    def _call_guarded(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call a method of the protocol; if it raises, report that and abort the connection.

        The transports of asyncio do the same.
        """
        try:
            call(*arguments)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            context = {"message": "a protocol raised", "exception": error, "transport": self}
            self._loop.call_exception_handler(context)
            self.abort()

    # -- called by the protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        if self._lost or not len(view):
            return
        if self._eof_written:
            raise RuntimeError("cannot write after write_eof() or close()")
        self._out.write_data(self.connection.network.on_write(self.connection, self._out, view))
        if not self._told_to_pause and self.get_write_buffer_size() > self._high:
            self._told_to_pause = True
            self._call_guarded(self._protocol.pause_writing)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def write_eof(self) -> None:
        if not self._eof_written and not self._lost:
            self._eof_written = True
            self._out.call_when_arrived(self._out.receiver.on_end)

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        """Send what was written, notify the other end, and then notify the protocol."""
        if self._closing:
            return
        self._closing = True
        self.paused = False  # Incoming data is discarded from now on.
        self._into.schedule_delivery()
        self.write_eof()
        if not self.get_write_buffer_size():
            self.end_connection(None)

    def abort(self) -> None:
        """Discard unsent data. After one latency, the other end is notified of a reset."""
        if self._lost:
            return
        self.end_connection(None)
        reset = ConnectionResetError("the other end reset the simulated connection")
        self._out.discard_data()
        self._out.call_when_arrived(lambda: self._out.receiver.end_connection(reset))

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return max(0, self._out.pending_bytes - IN_FLIGHT)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        self._into.schedule_delivery()

    def is_reading(self) -> bool:
        return not self.paused and not self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol
