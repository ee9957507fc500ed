"""Metrics and the wire log of the requests and responses of all connections.

At level DEBUG, the logger `aiokclient.wire` shows each request and response: API, version, broker,
size in bytes, time in seconds, and errors. It never shows a field of a message, so that neither
records nor credentials reach a log. Metrics are counted for each response, never for each record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from logging import DEBUG
from typing import TYPE_CHECKING, Any, Final

from aiokclient._native import twin
from aiokclient.errors import ERRORS_BY_CODE
from aiokclient.log.client_log import ClientLog
from aiokclient.metrics import (
    EMPTY,
    Histogram,
    Metrics,
    Reading,
    Series,
    SeriesByKey,
    Spread,
    counted,
    gauged,
    merged,
)
from aiokclient.network.event_hub import EventHub
from aiokclient.protocol.schema import Struct
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.errors import KafkaError
    from aiokclient.network.connection import ConnectedBroker, PendingRequest
    from aiokclient.protocol.fields import Buffer

STRUCTS: Final = 2000
"""The maximum number of structs of a response that are searched for error codes."""
PREFIX: Final = 4
"""Bytes of the length before each frame."""
DROPPED: Final = 16
"""The maximum number of meters that are kept for brokers that left but may still respond."""
NAMED: Final = 5
"""The maximum number of different errors that one log line names."""


def size_of(segments: list[Buffer]) -> int:
    """Return the number of bytes of a frame."""
    return sum(s.nbytes if isinstance(s, memoryview) else len(s) for s in segments)


class MeterReading(NamedTuple):
    """The requests to one broker, and the responses to them."""

    requests: Reading
    """The sizes of the requests."""
    responses: Reading
    """The number of responses, and their bytes."""
    latencies: Reading
    """The seconds from each request to its response, except for requests that set up connections.
    """
    produce_latencies: Reading
    produce_throttles: Reading
    """The throttle times in responses to Produce. Most of them are 0."""

    def add_earlier(self, earlier: MeterReading) -> MeterReading:
        """Return the sums of this reading and an earlier one."""
        return MeterReading(*map(merged, zip(earlier, self, strict=True)))

    def drop_extremes(self) -> MeterReading:
        """Return the reading of a past time span, without its extreme values."""
        return MeterReading(*(Reading(each.number, each.total) for each in self))


UNUSED = MeterReading(EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)


@twin("ground")
class MeterState:
    """The fields of a `Meter` that each request and response changes."""

    __slots__ = ("is_logged", "known_levels", "received", "sizes", "traffic", "waits")

    traffic: Traffic
    is_logged: Callable[[int], bool]
    known_levels: dict[int, bool]
    sizes: list[int | float]
    """The sizes of the latest requests. See `Spread.uncounted`."""
    waits: dict[type, list[int | float]]
    """The seconds from the latest requests to their responses, by the class of the request."""
    received: int
    """Bytes of responses, except of those that set up a connection."""

    def count_response(
        self,
        broker: ConnectedBroker,
        sent: PendingRequest,
        response: Any,
        size: int,
        now: float,
        throttle_ms: int,
    ) -> None:
        """Count a response. `now` is on the loop's clock."""
        waits = self.waits.get(type(sent.message))
        if waits is None:
            waits = self._add_waits(sent)
        seconds = now - sent.since
        waits.append(seconds)  # See `count_latest`.
        self.received += size
        if throttle_ms > 0:
            self._count_throttle(sent, throttle_ms)
        if self.known_levels.get(DEBUG, True) and self.is_logged(DEBUG):
            version = sent.version or 0
            self.traffic.log_response(broker, sent.api, version, size, seconds, response)

    def count_latest(self) -> None:
        """Count the latest requests and responses, after a request was written."""
        raise NotImplementedError

    def _add_waits(self, sent: PendingRequest) -> list[int | float]:
        raise NotImplementedError

    def _count_throttle(self, sent: PendingRequest, throttle_ms: int) -> None:
        raise NotImplementedError


class Meter(MeterState):
    """The metrics of the requests to one broker."""

    __slots__ = (
        "_by_api",
        "_metrics",
        "_received",
        "_sent",
        "_setup_bytes",
        "_setup_responses",
        "_throttle",
        "_throttled",
        "node_id",
        "request_sizes",
    )

    def __init__(self, traffic: Traffic, metrics: Metrics, node_id: int) -> None:
        self.node_id = node_id
        self.traffic = traffic
        self.is_logged = traffic.is_logged
        self.known_levels = traffic.known_levels
        self._metrics = metrics
        self.waits = {}
        self._by_api: dict[str, Histogram] = {}
        """The histograms of `waits` by API. All request types of one API share a histogram."""
        broker = _named(node_id)
        self._sent = metrics.counter("client.sent.bytes", unit="By", broker=broker)
        self._received = metrics.counter("client.received.bytes", unit="By", broker=broker)
        self._throttle = metrics.histogram("client.throttle.seconds", unit="s", broker=broker)
        self._throttled = Spread()
        """The throttle times in responses to Produce, except those that are 0."""
        self.request_sizes = Spread()
        """The sizes of requests, also of those that set up a connection."""
        self.sizes = self.request_sizes.uncounted
        self.received = 0
        self._setup_responses = self._setup_bytes = 0

    def update_values(self) -> None:
        """Count the bytes that were sent and received."""
        self._sent.value = self.request_sizes.total
        self._received.value = self.received

    def take_reading(self, *, again: bool | None) -> MeterReading:
        """Return the measurements; see `Spread.take_reading`."""
        by_api = {api: each.take_reading(again=again) for api, each in self._by_api.items()}
        latencies, produced = merged(by_api.values()), by_api.get("Produce", EMPTY)
        count = latencies.number + self._setup_responses
        size = self.received + self._setup_bytes + PREFIX * count
        throttled = self._throttled.take_reading(again=again)
        longest = max(throttled.largest, 0.0) if math.isfinite(produced.largest) else -math.inf
        return MeterReading(
            self.request_sizes.take_reading(again=again),
            Reading(count, size),
            latencies,
            produced,
            Reading(produced.number, throttled.total, longest),
        )

    def count_setup_response(self, size: int) -> None:
        """Count the response to a request that sets up a connection."""
        self._setup_responses += 1
        self._setup_bytes += size

    def _count_throttle(self, sent: PendingRequest, throttle_ms: int) -> None:
        self._throttle.observe(throttle_ms / 1000)
        if sent.api == "Produce":
            self._throttled.observe(throttle_ms / 1000)
        self.traffic.on_throttle(self.node_id, sent.api, throttle_ms)

    def count_latest(self) -> None:
        """Count the latest requests and responses, after a request was written.

        Counting takes as long as sending. So it is never done when a response has arrived, because
        tasks wait for that, but while the broker works.
        """
        self.request_sizes.count_latest()
        for latency in self._by_api.values():
            latency.count_latest()

    def _add_waits(self, sent: PendingRequest) -> list[int | float]:
        made = self._metrics.histogram(
            "client.request.seconds", unit="s", api=sent.api, broker=_named(self.node_id)
        )
        self._by_api[sent.api] = made
        waits = self.waits[type(sent.message)] = made.uncounted
        return waits


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
        self.is_logged = self._log.logger.isEnabledFor
        """The check whether the wire log is enabled for a level."""
        self.known_levels: dict[int, bool] = getattr(self._log.logger, "_cache", {})
        """The levels for which the logger knows the answer, which saves the call if it is False.

        The module `logging` forgets the answers whenever a level changes.
        """
        self._meters: dict[int, Meter] = {}
        self._gone = (EMPTY, EMPTY)
        """The requests to brokers that left the cluster, and the responses to them."""
        self._servers: dict[int, MeterReading] = {}
        """The readings of bootstrap servers whose connections are not used any more, by id."""
        self._dropped: list[Meter] = []
        """The meters of the brokers that left last, whose responses may still arrive."""
        self.own_metrics = metrics.connections
        self._opened = self.own_metrics.counter("connections.opened")
        self._closed = self.own_metrics.counter("connections.closed")
        self.own_metrics.add_updater(self._update_values)
        self._offer_series()

    def _offer_series(self) -> None:
        """Offer the metrics that are computed from the meters of all brokers."""
        own_metrics = self.own_metrics
        for key in ("authentications", "reauthentications"):
            own_metrics.counter(key)
            own_metrics.counter(f"{key}.failed")
        own_metrics.spread("reauthentications.seconds")
        own_metrics.offer_series(self._take_series)

    def _take_series(self, again: bool | None) -> SeriesByKey:
        """Return the series of all requests and responses, and of those by broker."""
        found, gone = dict(self._servers), []
        for meter in (*self._dropped, *self._meters.values()):
            id_, taken = meter.node_id, meter.take_reading(again=again)
            if id_ >= 0 and self._meters.get(id_) is not meter:
                gone.append(taken)
            else:
                found[id_] = taken.add_earlier(found[id_]) if id_ in found else taken
        everything = [*gone, *found.values()]
        requests = merged([self._gone[0], *(each.requests for each in everything)])
        responses = merged([self._gone[1], *(each.responses for each in everything)])
        open_now = self._opened.value - self._closed.value

        def by_node(part: str) -> Series:
            return [
                ((("node_id", _node(id_)),), getattr(each, part)) for id_, each in found.items()
            ]

        def of_all(part: str) -> Series:
            return [((), merged(getattr(each, part) for each in found.values()))]

        return {
            "connections": [((), gauged(open_now))],
            "node.requests": by_node("requests"),
            "node.responses": by_node("responses"),
            "node.latencies": by_node("latencies"),
            "requests": [((), requests)],
            "responses": [((), responses)],
            "io": [((), counted(requests.number + responses.number))],
            "latencies.Produce": of_all("produce_latencies"),
            "throttles": of_all("produce_throttles"),
        }

    def _update_values(self) -> None:
        for meter in self._meters.values():
            meter.update_values()

    def count_opened(self) -> None:
        """Count a connection that was opened."""
        self._opened.add()

    def count_closed(self) -> None:
        """Count a connection that was closed."""
        self._closed.add()

    def count_authentication(self, again_s: float | None) -> None:
        """Count an authentication, which took `again_s` seconds if it repeated an earlier one."""
        if again_s is None:
            self.own_metrics.counter("authentications").add()
        else:
            self.own_metrics.counter("reauthentications").add()
            self.own_metrics.spread("reauthentications.seconds").observe(again_s)

    def count_failed_authentication(self, *, again: bool) -> None:
        """Count an authentication that failed."""
        self.own_metrics.counter(f"{'re' if again else ''}authentications.failed").add()

    def get_meter(self, node_id: int) -> Meter:
        """Return the metrics of a broker."""
        found = self._meters.get(node_id)
        if found is None:
            found = self._meters[node_id] = Meter(self, self._metrics, node_id)
        return found

    def keep_brokers(self, brokers: set[int]) -> None:
        """Drop the metrics of all brokers except these."""
        for node_id in [node_id for node_id in self._meters if node_id not in brokers]:
            self._dropped.append(self._meters.pop(node_id))
            self._metrics.remove_series(broker=_named(node_id))
        while len(self._dropped) > DROPPED:
            self._keep_sums(self._dropped.pop(0))

    def _keep_sums(self, meter: Meter) -> None:
        """Keep the sums of a meter that gets no further responses."""
        node_id = meter.node_id
        last = (
            meter.take_reading(again=True)
            .add_earlier(self._servers.get(node_id, UNUSED))
            .drop_extremes()
        )
        if node_id < 0:
            self._servers[node_id] = last
        else:
            requests, responses = self._gone
            requests = merged([requests, last.requests])
            self._gone = requests, merged([responses, last.responses])

    def on_throttle(self, node_id: int, api: str, throttle_ms: int) -> None:
        """Emit an event for a response with a throttle time."""
        if self._events is not None:
            broker = node_id if node_id >= 0 else None
            self._events.emit("Throttled", broker=broker, api=api, throttle_ms=throttle_ms)

    # -- the log

    def log_request(self, broker: ConnectedBroker, api: str, version: int, size: int) -> None:
        """Log a request that was written."""
        extra = {
            "event": "wire_request",
            "api": api,
            "version": version,
            "broker": _named(broker.node_id),
            "size": size,
        }
        self._log_exchange(broker, "to", f"request of {size} bytes", extra)

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
        extra = {
            "event": "wire_response",
            "api": api,
            "version": version,
            "broker": _named(broker.node_id),
            "size": size,
            "seconds": seconds,
            "error": error or None,
        }
        text = f"response of {size} bytes after {seconds:.3f} s{f', {error}' if error else ''}"
        self._log_exchange(broker, "from", text, extra)

    def log_failure(self, broker: ConnectedBroker, sent: PendingRequest, error: KafkaError) -> None:
        """Log a request that gets no response."""
        if self.is_logged(DEBUG):
            extra = {
                "event": "wire_failure",
                "api": sent.api,
                "version": sent.version,
                "broker": _named(broker.node_id),
                "error": type(error).__name__,
            }
            self._log_exchange(broker, "to", f"no response: {type(error).__name__}", extra)

    def _log_exchange(
        self, broker: ConnectedBroker, direction: str, text: str, extra: dict[str, Any]
    ) -> None:
        version = "?" if extra["version"] is None else extra["version"]
        args = extra["api"], version, direction, _shown(broker), text
        self._log.debug("%s v%s %s %s: %s", *args, extra=extra)


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
    """Yield the names of the error codes in the first STRUCTS structs of a response.

    Structs that are in no list have no error codes.
    """
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
                known = ERRORS_BY_CODE.get(value)
                yield f"{value}" if known is None else f"{known.name}"
            elif isinstance(value, list):
                found += [part for part in value[:STRUCTS] if isinstance(part, Struct)]
