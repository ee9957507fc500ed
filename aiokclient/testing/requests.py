"""The requests that the brokers received: the last ten thousand, in bounded memory."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import ProduceRequest

KEPT = 10_000
KEPT_BYTES = 32 << 20
BATCH_HEADER = 61


class ReceivedRequest(NamedTuple):
    """One request. `at` is the brokers' monotonic clock in seconds."""

    api: ApiKey
    version: int
    broker: int
    message: Any
    client_id: str | None
    at: float


class RequestLog:
    """Keeps requests whole up to `KEPT_BYTES`; older produced batches keep their header only."""

    def __init__(self) -> None:
        self._kept: deque[ReceivedRequest] = deque()
        self._heavy: deque[tuple[ReceivedRequest, int]] = deque()
        self._bytes = 0
        self.total = 0

    def add(self, request: ReceivedRequest, size: int) -> None:
        self.total += 1
        self._kept.append(request)
        if len(self._kept) > KEPT:
            oldest = self._kept.popleft()
            if self._heavy and self._heavy[0][0] is oldest:
                self._bytes -= self._heavy.popleft()[1]
        if isinstance(request.message, ProduceRequest):
            self._heavy.append((request, size))
            self._bytes += size
            while self._bytes > KEPT_BYTES and len(self._heavy) > 1:
                old, freed = self._heavy.popleft()
                self._bytes -= freed
                _strip(old.message)

    def list(self) -> list[ReceivedRequest]:
        return list(self._kept)

    def clear(self) -> None:
        self._kept.clear()
        self._heavy.clear()
        self._bytes = 0


def _strip(message: ProduceRequest) -> None:
    for topic in message.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None:
                partition.records = bytes(partition.records[:BATCH_HEADER])
