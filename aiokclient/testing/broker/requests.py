"""The last ten thousand requests that the brokers received, in bounded memory.

A request is stored as the bytes of its frame and decoded when a test reads its message, because a
decoded message may take fifty times as much memory as its frame.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from aiokclient.protocol import ApiKey
from aiokclient.protocol.framing import ServerFraming
from aiokclient.protocol.messages import ProduceRequest
from aiokclient.types import public_in

if TYPE_CHECKING:
    from aiokclient.protocol.fields import Buffer
    from aiokclient.protocol.messages.header import RequestHeader

KEPT = 10_000
KEPT_BYTES = 32 << 20
BATCH_HEADER = 61
_ENTRY = 300
"""Bytes that an entry takes in addition to its frame."""
_CACHED = 1 << 20
_STRIPPED_PARTITIONS = 1_000
_WORTH_STRIPPING = 1_000


@public_in("aiokclient.testing")
class ReceivedRequest:
    """A request that a broker received. `at` is the time, in seconds of a monotonic clock."""

    __slots__ = ("_frame", "_messages", "api", "at", "broker", "client_id", "version")

    def __init__(
        self,
        api: ApiKey,
        version: int,
        broker: int,
        client_id: str | None,
        at: float,
        frame: Buffer | None,
        messages: Messages,
    ) -> None:
        self.api = api
        self.version = version
        self.broker = broker
        self.client_id = client_id
        self.at = at
        self._frame = frame
        self._messages = messages

    def __repr__(self) -> str:
        return f"<{self.api.name} {self.version} from {self.client_id!r} to broker {self.broker}>"

    @property
    def message(self) -> Any:
        """The decoded message.

        None if its version is unknown to the broker, or if it was too large to be stored.
        """
        frame = self._frame
        return None if frame is None else self._messages.get_message(self, frame)

    @property
    def size(self) -> int:
        """The number of bytes of memory that the request takes."""
        return _ENTRY + (0 if self._frame is None else len(self._frame))

    def strip_batches(self) -> None:
        """Reduce the batches of a produce request to their headers."""
        if self._frame is not None:
            self._messages.forget_message(self)
            self._frame = _strip_batches(self._frame)

    def forget_frame(self) -> None:
        """Forget the frame. `message` is None from now on."""
        self._messages.forget_message(self)
        self._frame = None


class Messages:
    """A cache of the decoded messages that tests have read last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decoded: dict[ReceivedRequest, tuple[Any, int]] = {}
        self._bytes = 0

    def get_message(self, request: ReceivedRequest, frame: Buffer) -> Any:
        """Return the message of a request. It is the same object as long as it is cached."""
        with self._lock:
            found = self._decoded.get(request)
        if found is not None:
            return found[0]
        message = ServerFraming().decode_request(frame).request
        with self._lock:
            found = self._decoded.setdefault(request, (message, len(frame)))
            if found[0] is not message:
                return found[0]
            self._bytes += len(frame)
            while self._bytes > _CACHED and len(self._decoded) > 1:
                oldest = next(iter(self._decoded))
                self._bytes -= self._decoded.pop(oldest)[1]
            return message

    def forget_message(self, request: ReceivedRequest) -> None:
        """Release the decoded message of a request."""
        with self._lock:
            _, size = self._decoded.pop(request, (None, 0))
            self._bytes -= size


class RequestLog:
    """The last requests, in at most `KEPT_BYTES`.

    If there are more bytes, the oldest produce requests keep only the headers of their batches. If
    that is not enough, the oldest requests are forgotten.
    """

    def __init__(self) -> None:
        self._kept: deque[ReceivedRequest] = deque()
        self._whole: deque[ReceivedRequest] = deque()
        self._messages = Messages()
        self._bytes = 0
        self.total = 0

    def add_request(
        self,
        header: RequestHeader,
        message: Any,
        frame: Buffer | None,
        broker: int,
        at: float,
    ) -> None:
        """Append a request; `frame` is None if it is not to be kept."""
        self.total += 1
        entry = ReceivedRequest(
            ApiKey(header.request_api_key),
            header.request_api_version,
            broker,
            header.client_id,
            at,
            frame if message is not None else None,
            self._messages,
        )
        self._kept.append(entry)
        self._bytes += entry.size
        large = entry.size > _WORTH_STRIPPING
        if large and isinstance(message, ProduceRequest) and _can_be_stripped(message):
            self._whole.append(entry)
        if len(self._kept) > KEPT:
            self._forget_oldest()
        if self._bytes > KEPT_BYTES:
            self._shrink_requests()

    def list_requests(self) -> list[ReceivedRequest]:
        """Return the requests, the oldest first."""
        return list(self._kept)

    def clear_requests(self) -> None:
        """Forget all requests; `total` stays."""
        self._kept.clear()
        self._whole.clear()
        self._messages = Messages()
        self._bytes = 0

    def _shrink_requests(self) -> None:
        while self._bytes > KEPT_BYTES and self._whole:
            entry = self._whole.popleft()
            self._bytes -= entry.size
            entry.strip_batches()
            self._bytes += entry.size
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            self._forget_oldest()
        if self._bytes > KEPT_BYTES:
            (entry,) = self._kept
            entry.forget_frame()
            self._bytes = entry.size

    def _forget_oldest(self) -> None:
        oldest = self._kept.popleft()
        if self._whole and self._whole[0] is oldest:
            self._whole.popleft()
        self._bytes -= oldest.size
        self._messages.forget_message(oldest)


def _can_be_stripped(message: ProduceRequest) -> bool:
    """Return whether the request has so few partitions that `strip_batches` may decode it again."""
    topics = message.topic_data
    if len(topics) > _STRIPPED_PARTITIONS:
        return False
    return sum(len(topic.partition_data) for topic in topics) <= _STRIPPED_PARTITIONS


def _strip_batches(frame: Buffer) -> bytes:
    """Return a produce request's frame with only the header of each batch."""
    received = ServerFraming().decode_request(frame)
    message: Any = received.request
    version = received.header.request_api_version
    for topic in message.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None:
                partition.records = bytes(partition.records[:BATCH_HEADER])
    head = bytearray()
    received.header.encode_into(message.header_version(version), head, [])
    segments: list[Buffer] = []
    out = message.encode_into(version, head, segments)
    return b"".join([*segments, out])
