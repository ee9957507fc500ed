"""Metrics and the wire log of the requests and responses of all connections.

At level DEBUG, the logger `aiokclient.wire` shows each request and response: API, version, broker,
size in bytes, time in seconds, and errors. It never shows a field of a message, so that neither
records nor credentials reach a log. Metrics are counted for each response, never for each record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from logging import DEBUG
from typing import TYPE_CHECKING, Any, Final

from aiokclient.errors import error_for
from aiokclient.event_hub import EventHub
from aiokclient.log import ClientLog
from aiokclient.measures import EMPTY, Measures, Reading, Spread, counted, merged, observed
from aiokclient.metrics import Histogram, Labels, Metrics
from aiokclient.protocol.schema import Struct

if TYPE_CHECKING:
    from aiokclient.errors import KafkaError
    from aiokclient.network.connected_broker import ConnectedBroker
    from aiokclient.network.sent import PendingRequest
    from aiokclient.protocol.fields import Buffer

__all__ = ["Meter", "Traffic", "size_of"]

STRUCTS: Final = 2000
"""The maximum number of structs of a response that are searched for error codes."""
PREFIX: Final = 4
"""Bytes of the length before each frame."""
NAMED: Final = 5
"""The maximum number of different errors that one log line names."""


def size_of(segments: list[Buffer]) -> int:
    """Return the number of bytes of a frame."""
    return sum(s.nbytes if isinstance(s, memoryview) else len(s) for s in segments)


class Meter:
    """The metrics of the requests to one broker."""

    __slots__ = (
        "_by_api",
        "_enabled",
        "_latencies",
        "_metrics",
        "_received",
        "_sent",
        "_setup_bytes",
        "_setup_responses",
        "_sizes",
        "_throttle",
        "_throttled",
        "node_id",
        "traffic",
    )

    def __init__(self, traffic: Traffic, metrics: Metrics, node_id: int) -> None:
        self.node_id = node_id
        self.traffic = traffic
        self._enabled = traffic.enabled
        self._metrics = metrics
        self._latencies: dict[type, Histogram] = {}
        self._by_api: dict[str, Histogram] = {}
        """The same histograms. An API may have several types of requests."""
        broker = _named(node_id)
        self._sent = metrics.counter("client.sent.bytes", unit="By", broker=broker)
        self._received = metrics.counter("client.received.bytes", unit="By", broker=broker)
        self._throttle = metrics.histogram("client.throttle.seconds", unit="s", broker=broker)
        self._throttled: dict[str, Spread] = {}
        self._sizes = Spread()
        """The sizes of requests, also of those that set up a connection."""
        self._setup_responses = self._setup_bytes = 0

    def update(self) -> None:
        """Count the bytes that were sent."""
        self._sent.value = self.requests.total

    @property
    def requests(self) -> Reading:
        """The sizes of the requests."""
        return self._sizes.reading()

    @property
    def responses(self) -> Reading:
        """The number of responses, and their bytes."""
        count = sum(latency.count for latency in self._by_api.values()) + self._setup_responses
        return Reading(count, self._received.value + self._setup_bytes + PREFIX * count)

    def latencies(self, api: str | None = None) -> Reading:
        """Return the times until responses to one API or all of them."""
        if api is not None:
            return observed(self._by_api[api]) if api in self._by_api else EMPTY
        return merged(map(observed, self._by_api.values()))

    def throttles(self, api: str) -> Reading:
        """Return the throttle times in the responses to one API, which are 0 in most of them."""
        answered = self.latencies(api)
        found = self._throttled[api].reading() if api in self._throttled else EMPTY
        largest = max(found.largest, 0.0) if math.isfinite(answered.largest) else found.largest
        return Reading(answered.number, found.total, largest)

    def restart(self) -> None:
        """Begin a new time span for largest values."""
        self._sizes.restart()
        for throttled in self._throttled.values():
            throttled.restart()
        for latency in self._by_api.values():
            latency.restart()

    def setup_written(self, size: int) -> None:
        """Count a request that sets up a connection."""
        self._sizes.observe(size)

    def setup_answered(self, size: int) -> None:
        """Count the response to a request that sets up a connection."""
        self._setup_responses += 1
        self._setup_bytes += size

    def written(self, broker: ConnectedBroker, sent: PendingRequest, size: int) -> None:
        """Count a request that was passed to the transport."""
        self._sizes.observe(size)
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
            self._throttled.setdefault(sent.api, Spread()).observe(throttle_ms / 1000)
            self.traffic.throttled(self.node_id, sent.api, throttle_ms)
        if self._enabled(DEBUG):
            version = sent.version or 0
            self.traffic.log_response(broker, sent.api, version, size, seconds, response)

    def _latency(self, sent: PendingRequest) -> Histogram:
        made = self._latencies[type(sent.message)] = self._metrics.histogram(
            "client.request.seconds", unit="s", api=sent.api, broker=_named(self.node_id)
        )
        self._by_api[sent.api] = made
        return made


class Traffic:
    """The metrics and the wire log of all connections of one client."""

    def __init__(
        self,
        metrics: Metrics,
        client_id: str,
        group_id: str | None = None,
        events: EventHub | None = None,
        measures: Measures | None = None,
    ) -> None:
        self._metrics = metrics
        self._events = events
        self._log = ClientLog("aiokclient.wire", client_id, group_id)
        self.enabled = self._log.logger.isEnabledFor
        """The check whether the wire log is enabled for a level."""
        self._meters: dict[int, Meter] = {}
        self._gone = (EMPTY, EMPTY)
        """The requests to brokers that left the cluster, and their responses."""
        self._servers: dict[int, tuple[Reading, Reading, Reading]] = {}
        """The requests to former bootstrap servers, their responses, and the latencies, by id."""
        self.measures = Measures() if measures is None else measures
        self._opened = self.measures.quantity("connections.opened")
        self._closed = self.measures.quantity("connections.closed")
        metrics.before_reading(self._update)
        self._offer()

    def _offer(self) -> None:
        """Offer what is computed from the numbers of all brokers."""
        measures, meters = self.measures, self._meters
        for key in ("authentications", "reauthentications"):
            measures.quantity(key)
            measures.quantity(f"{key}.failed")
        measures.spread("reauthentications.seconds")

        def by_node(
            part: int, read: Callable[[Meter], Reading]
        ) -> Callable[[], list[tuple[Labels, Reading]]]:
            def compute() -> list[tuple[Labels, Reading]]:
                found = {node_id: [parts[part]] for node_id, parts in self._servers.items()}
                for meter in meters.values():
                    found.setdefault(meter.node_id, []).append(read(meter))
                return [((("node_id", _node(one)),), merged(each)) for one, each in found.items()]

            return compute

        measures.present("connections", lambda: self._opened.value - self._closed.value)
        measures.compute("node.requests", by_node(0, lambda meter: meter.requests))
        measures.compute("node.responses", by_node(1, lambda meter: meter.responses))
        measures.compute("node.latencies", by_node(2, lambda meter: meter.latencies()))
        measures.compute("requests", lambda: [((), self._sum(0))])
        measures.compute("responses", lambda: [((), self._sum(1))])
        measures.compute("io", lambda: [((), counted(self._sum(0).number + self._sum(1).number))])
        measures.compute("latencies.Produce", partial(self._of_all, Meter.latencies))
        measures.compute("throttles", partial(self._of_all, Meter.throttles))
        measures.at_restart(self._restart)

    def _of_all(self, read: Callable[[Meter, str], Reading]) -> list[tuple[Labels, Reading]]:
        return [((), merged(read(meter, "Produce") for meter in self._meters.values()))]

    def _sum(self, part: int) -> Reading:
        meters = self._meters.values()
        now = [meter.responses if part else meter.requests for meter in meters]
        former = [parts[part] for parts in self._servers.values()]
        return merged([self._gone[part], *former, *now])

    def _restart(self) -> None:
        requests, responses = self._gone
        self._gone = _past(requests), _past(responses)
        for node_id, (requests, responses, latencies) in self._servers.items():
            self._servers[node_id] = _past(requests), _past(responses), _past(latencies)
        for meter in self._meters.values():
            meter.restart()

    def _update(self) -> None:
        for meter in self._meters.values():
            meter.update()

    def opened(self) -> None:
        """Count a connection that was opened."""
        self._opened.add()

    def closed(self) -> None:
        """Count a connection that was closed."""
        self._closed.add()

    def authenticated(self, again_s: float | None) -> None:
        """Count an authentication. `again_s` is how long it took if it repeated an earlier one."""
        if again_s is None:
            self.measures.quantity("authentications").add()
        else:
            self.measures.quantity("reauthentications").add()
            self.measures.spread("reauthentications.seconds").observe(again_s)

    def authentication_failed(self, *, again: bool) -> None:
        """Count an authentication that failed."""
        self.measures.quantity(f"{'re' if again else ''}authentications.failed").add()

    def meter(self, node_id: int) -> Meter:
        """Return the metrics of a broker."""
        found = self._meters.get(node_id)
        if found is None:
            found = self._meters[node_id] = Meter(self, self._metrics, node_id)
        return found

    def keep(self, brokers: set[int]) -> None:
        """Drop the metrics of all other brokers."""
        for node_id in [node_id for node_id in self._meters if node_id not in brokers]:
            meter = self._meters.pop(node_id)
            if node_id < 0:
                now = meter.requests, meter.responses, meter.latencies()
                before = self._servers.get(node_id, (EMPTY, EMPTY, EMPTY))
                requests, responses, latencies = map(merged, zip(before, now, strict=True))
                self._servers[node_id] = requests, responses, latencies
            else:
                requests, responses = self._gone
                self._gone = (
                    merged([requests, meter.requests]),
                    merged([responses, meter.responses]),
                )
            self._metrics.remove(broker=_named(node_id))

    def throttled(self, node_id: int, api: str, throttle_ms: int) -> None:
        """Emit an event for a response that tells of a quota."""
        if self._events is not None:
            broker = node_id if node_id >= 0 else None
            self._events.emit("Throttled", broker=broker, api=api, throttle_ms=throttle_ms)

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


def _past(reading: Reading) -> Reading:
    """Return a reading of a past time span, without its largest and smallest value."""
    return Reading(reading.number, reading.total)


def _named(node_id: int) -> str:
    """Return the name of a broker in logs. A bootstrap server has no broker id yet."""
    return "bootstrap" if node_id < 0 else str(node_id)


def _node(node_id: int) -> str:
    """Return the name of a broker as Kafka's clients write it in labels."""
    return f"node-{node_id}"


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
