"""Metrics and the wire log of the requests and responses of all connections.

At level DEBUG, the logger `aiokclient.wire` shows each request and response: API, version, broker,
size in bytes, time in seconds, and errors. It never shows a field of a message, so that neither
records nor credentials reach a log. Metrics are counted for each response, never for each record.
"""

from __future__ import annotations

from collections.abc import Iterator
from logging import DEBUG
from typing import TYPE_CHECKING, Any, Final

from aiokclient.errors import error_for
from aiokclient.event_hub import EventHub
from aiokclient.events import Throttled
from aiokclient.log import ClientLog
from aiokclient.metrics import Histogram, Metrics
from aiokclient.protocol.schema import Struct

if TYPE_CHECKING:
    from aiokclient.errors import KafkaError
    from aiokclient.network.connected_broker import ConnectedBroker
    from aiokclient.network.sent import PendingRequest
    from aiokclient.protocol.fields import Buffer

__all__ = ["Meter", "Traffic", "size_of"]

STRUCTS: Final = 2000
"""The maximum number of structs of a response that are searched for error codes."""
NAMED: Final = 5
"""The maximum number of different errors that one log line names."""


def size_of(segments: list[Buffer]) -> int:
    """Return the number of bytes of a frame."""
    return sum(s.nbytes if isinstance(s, memoryview) else len(s) for s in segments)


class Meter:
    """The metrics of the requests to one broker."""

    __slots__ = (
        "_enabled",
        "_latencies",
        "_metrics",
        "_received",
        "_sent",
        "_throttle",
        "node_id",
        "traffic",
    )

    def __init__(self, traffic: Traffic, metrics: Metrics, node_id: int) -> None:
        self.node_id = node_id
        self.traffic = traffic
        self._enabled = traffic.enabled
        self._metrics = metrics
        self._latencies: dict[type, Histogram] = {}
        broker = _named(node_id)
        self._sent = metrics.counter("client.sent.bytes", unit="By", broker=broker)
        self._received = metrics.counter("client.received.bytes", unit="By", broker=broker)
        self._throttle = metrics.histogram("client.throttle.seconds", unit="s", broker=broker)

    def written(self, broker: ConnectedBroker, sent: PendingRequest, size: int) -> None:
        """Count a request that was passed to the transport."""
        self._sent.value += size
        if self._enabled(DEBUG):
            self.traffic.log_request(broker, sent.api, sent.version or 0, size)

    def answered(
        self,
        broker: ConnectedBroker,
        sent: PendingRequest,
        response: Any,
        size: int,
        now: float,
        throttle_ms: int,
    ) -> None:
        """Count a response. `now` is on the loop's clock."""
        latency = self._latencies.get(type(sent.message))
        if latency is None:
            latency = self._latency(sent)
        seconds = now - sent.since
        latency.observe(seconds)
        self._received.value += size
        if throttle_ms > 0:
            self._throttle.observe(throttle_ms / 1000)
            self.traffic.throttled(self.node_id, sent.api, throttle_ms)
        if self._enabled(DEBUG):
            version = sent.version or 0
            self.traffic.log_response(broker, sent.api, version, size, seconds, response)

    def _latency(self, sent: PendingRequest) -> Histogram:
        made = self._latencies[type(sent.message)] = self._metrics.histogram(
            "client.request.seconds", unit="s", api=sent.api, broker=_named(self.node_id)
        )
        return made


class Traffic:
    """The metrics and the wire log of all connections of one client."""

    def __init__(
        self,
        metrics: Metrics,
        client_id: str,
        group_id: str | None = None,
        events: EventHub | None = None,
    ) -> None:
        self._metrics = metrics
        self._events = events
        self._log = ClientLog("aiokclient.wire", client_id, group_id)
        self.enabled = self._log.logger.isEnabledFor
        """The check whether the wire log is enabled for a level."""
        self._meters: dict[int, Meter] = {}

    def meter(self, node_id: int) -> Meter:
        """Return the metrics of a broker."""
        found = self._meters.get(node_id)
        if found is None:
            found = self._meters[node_id] = Meter(self, self._metrics, node_id)
        return found

    def keep(self, brokers: set[int]) -> None:
        """Drop the metrics of all other brokers."""
        for node_id in [node_id for node_id in self._meters if node_id not in brokers]:
            del self._meters[node_id]
            self._metrics.remove(broker=_named(node_id))

    def throttled(self, node_id: int, api: str, throttle_ms: int) -> None:
        """Emit an event for a response that tells of a quota."""
        if self._events is not None:
            broker = node_id if node_id >= 0 else None
            self._events.emit(Throttled, broker=broker, api=api, throttle_ms=throttle_ms)

    # -- the log

    def log_request(self, broker: ConnectedBroker, api: str, version: int, size: int) -> None:
        """Log a request that was written."""
        self._log.debug(
            "%s v%d to %s: request of %d bytes",
            api,
            version,
            _shown(broker),
            size,
            extra={
                "event": "wire_request",
                "api": api,
                "version": version,
                "broker": _named(broker.node_id),
                "size": size,
            },
        )

    def log_response(
        self,
        broker: ConnectedBroker,
        api: str,
        version: int,
        size: int,
        seconds: float,
        response: Any,
    ) -> None:
        """Log a response, with the names of the errors in it."""
        names = list(dict.fromkeys(_errors(response)))
        error = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
        self._log.debug(
            "%s v%d from %s: response of %d bytes after %.3f s%s",
            api,
            version,
            _shown(broker),
            size,
            seconds,
            f", {error}" if error else "",
            extra={
                "event": "wire_response",
                "api": api,
                "version": version,
                "broker": _named(broker.node_id),
                "size": size,
                "seconds": seconds,
                "error": error or None,
            },
        )

    def failed(self, broker: ConnectedBroker, sent: PendingRequest, error: KafkaError) -> None:
        """Log a request that gets no response."""
        if not self.enabled(DEBUG):
            return
        self._log.debug(
            "%s v%s to %s: no response: %s",
            sent.api,
            "?" if sent.version is None else sent.version,
            _shown(broker),
            type(error).__name__,
            extra={
                "event": "wire_failure",
                "api": sent.api,
                "version": sent.version,
                "broker": _named(broker.node_id),
                "error": type(error).__name__,
            },
        )


def _named(node_id: int) -> str:
    """Return the name of a broker in logs. A bootstrap server has no broker id yet."""
    return "bootstrap" if node_id < 0 else str(node_id)


def _shown(broker: ConnectedBroker) -> str:
    if broker.node_id < 0:
        return f"bootstrap server {broker.address}"
    return f"broker {broker.node_id} ({broker.address})"


def _errors(response: Any) -> Iterator[str]:
    """Yield the names of the error codes in the first STRUCTS structs of a response."""
    found = [response]
    looked_at = 0
    while found and looked_at < STRUCTS:
        item = found.pop()
        if not isinstance(item, Struct):
            continue
        looked_at += 1
        for field in type(item)._fields:
            value = getattr(item, field.name)
            if field.name == "error_code" and value:
                error = error_for(value)
                yield f"{value}" if error is None or error.name is None else error.name
            elif isinstance(value, list):
                found += [part for part in value[:STRUCTS] if isinstance(part, Struct)]
            elif isinstance(value, Struct):
                found.append(value)
