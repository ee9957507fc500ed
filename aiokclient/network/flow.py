"""The flow control of a connection: when requests are written, and when the kernel reports reads.

`HeldRequests` is the queue of the requests that may not be written yet.

`ReadThreshold` is the number of bytes for which the kernel waits before it wakes up the event loop,
over TLS.

A broker sends a large response in TLS records of 16 KiB. If it takes longer to encrypt a record
than the client takes to decrypt one, the event loop would wake up for every record, which costs
more CPU time than the decryption. Therefore, while much of a large frame is missing, the client
lets Linux wait for THRESHOLD bytes (SO_RCVLOWAT). The end of the connection is still noticed.

The threshold must never wait for bytes that the broker does not send. The missing part of a frame
includes bytes that the TLS layer has read and cannot decrypt yet. They are part of one TLS record,
so they are fewer than MARGIN. The threshold is lowered when fewer than THRESHOLD + MARGIN bytes of
the frame are missing.

A kernel may be unable to buffer that much, and a slow network takes long to deliver it. Therefore a
threshold is lowered if nothing was read for PATIENCE_S. After that has happened in ATTEMPTS
successive frames, the connection does not raise it again.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aiokclient._native import twin
from aiokclient.background import WakeTimer

if TYPE_CHECKING:
    from aiokclient.network.connection import PendingRequest


@twin("ground")
class HeldState:
    """The fields of `HeldRequests` that each request looks at."""

    __slots__ = ("paused", "requests", "throttled_until")

    requests: deque[PendingRequest]
    paused: bool
    throttled_until: float


class HeldRequests(HeldState):
    """The queue of held requests, in the order of sending.

    The connection writes nothing while `paused` (the transport's buffer is full, or the client
    authenticates again) and before `throttled_until` (the broker has returned a throttle time). All
    times are on the loop's clock.
    """

    __slots__ = ("_full", "_paused_at", "suspended")

    def __init__(self) -> None:
        self.requests = deque()
        self.paused = False
        self.throttled_until = 0.0
        self._full = False
        self.suspended = False
        self._paused_at = 0.0

    def pause_writing(self, now: float) -> None:
        """Write nothing until `resume_writing`, because the transport's buffer is full."""
        self.paused = self._full = True
        self._paused_at = now

    def resume_writing(self) -> None:
        """Continue to write, because the transport accepts requests again."""
        self._full = False
        self.paused = self.suspended

    def set_suspended(self, on: bool) -> None:
        """Write nothing while `on`, because the client authenticates again."""
        self.suspended = on
        self.paused = on or self._full

    def hold_until(self, until: float) -> None:
        """Write nothing before this time."""
        self.throttled_until = max(self.throttled_until, until)

    def hold_request(self, request: PendingRequest, now: float) -> float:
        """Queue a request, and return the time at which the connection must look at the queue."""
        self.requests.append(request)
        if now < self.throttled_until:
            return min(request.deadline, self.throttled_until)
        return request.deadline

    def take_next(self, now: float) -> PendingRequest | None:
        """Remove and return the first request if it can be written now."""
        while self.requests and not (self.paused or now < self.throttled_until):
            request = self.requests.popleft()
            if not request.over:
                return request
        return None

    def take_expired(self, now: float) -> list[PendingRequest]:
        """Remove and return the requests whose deadline has passed."""
        late = [request for request in self.requests if request.deadline <= now]
        for request in late:
            self.requests.remove(request)
        return late

    def is_stuck(self, request: PendingRequest) -> bool:
        """Return whether only a full transport has kept this request from being written."""
        return self._full and max(self._paused_at, self.throttled_until) <= request.since

    def list_wake_times(self, now: float) -> list[float]:
        """Return the times at which the connection must look at the queue."""
        times = [request.deadline for request in self.requests]
        if times and self.throttled_until > now:
            times.append(self.throttled_until)
        return times


THRESHOLD: Final = 128 * 1024
MARGIN: Final = 32 * 1024
PATIENCE_S = 0.1
ATTEMPTS: Final = 3


class ReadThreshold:
    """The threshold of one socket."""

    __slots__ = ("_failures", "_loop", "_missing", "_raised", "_seen", "_slow", "_socket", "_timer")

    def __init__(self, sock: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._socket = sock
        self._loop = loop
        self._timer = WakeTimer(loop, self._check_progress)
        self._raised = False
        self._missing = 0
        self._seen = 0
        """The value of `_missing` at the last check."""
        self._slow = False
        """Whether the threshold of the current frame was lowered because nothing was read."""
        self._failures = 0

    @classmethod
    def of(cls, transport: asyncio.BaseTransport) -> ReadThreshold | None:
        """Return the threshold of a transport, or None without Linux, TLS, or a socket.

        Without TLS, no threshold is needed: brokers send large responses in larger parts.
        """
        # Linux alone lets epoll wait for SO_RCVLOWAT bytes.
        if sys.platform != "linux" or transport.get_extra_info("ssl_object") is None:
            return None
        sock = transport.get_extra_info("socket")
        return None if sock is None else cls(sock, asyncio.get_running_loop())

    def expect_bytes(self, missing: int) -> None:
        """Adapt the threshold after a read.

        `missing` is the number of bytes that are missing in a partly received large frame, or 0.
        """
        self._missing = missing
        if missing >= THRESHOLD + MARGIN:
            if not (self._raised or self._slow or self._failures >= ATTEMPTS):
                self._raise_threshold()
        elif self._raised:
            self._failures = 0
            self._set_threshold(1)
        elif self._slow:
            self._slow = False

    def stop_adapting(self) -> None:
        """Change nothing any more, because the connection is closed."""
        self._timer.cancel()
        self._failures = ATTEMPTS

    def _raise_threshold(self) -> None:
        if self._set_threshold(THRESHOLD):
            self._seen = 0
            self._timer.wake_at(self._loop.time() + PATIENCE_S)

    def _check_progress(self, due: float) -> None:
        if not self._raised:
            return
        if self._missing == self._seen:
            self._slow = True
            self._failures += 1
            self._set_threshold(1)
        else:
            self._seen = self._missing
            self._timer.wake_at(self._loop.time() + PATIENCE_S)

    def _set_threshold(self, count: int) -> bool:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
        except OSError:
            # The socket was closed, or the system does not have this option.
            self.stop_adapting()
            return False
        self._raised = count > 1
        return True
