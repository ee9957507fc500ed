"""The present series of clients, readable in every thread, while they run and after their end.

The numbers of a client belong to its event loop. For a tool that reads them in another thread, a
callback in that loop takes them, and the tool waits at most `WAIT_S`. If the loop is blocked, or
has ended, the tool gets the values that were taken last. Sums of objects that were closed are kept,
so that no sum decreases. Nothing here keeps a client alive.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from asyncio import _get_running_loop
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiokclient.errors.local import ArgumentTypeError
from aiokclient.metrics import Labels, Metrics, MetricValue, OwnMetrics
from aiokclient.telemetry.bridged import NAMESPACE, PUSHED, largest_counts
from aiokclient.telemetry.points import HistogramValue, PointKind
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.telemetry.collector import ClientCollector
    from aiokclient.telemetry.otel.metrics import MetricBridge

CLIENT_ID: Final = "client_id"
"""The label that every series has. Its value says to which client the series belongs."""

WAIT_S: Final = 1.0
"""Maximum number of seconds that another thread waits for the event loops of all clients."""

KINDS: Final = {
    PointKind.SUM: "counter",
    PointKind.GAUGE: "gauge",
    PointKind.GAUGE_INT: "gauge",
    PointKind.HISTOGRAM: "histogram",
}

Value = float | HistogramValue


class MeasuredClient(Protocol):
    """A producer, consumer, admin, member of a group, or client."""

    _loop: asyncio.AbstractEventLoop | None
    _thread: int

    def metric_values(self, prefix: str = "") -> list[MetricValue]: ...
    def _add_observer(self, observe: Callable[[Any], None]) -> None: ...


class Series(NamedTuple):
    """One series at one moment. `kind` is "counter", "gauge", or "histogram"."""

    name: str
    kind: str
    labels: Labels
    value: Value
    unit: str = ""


class ClientSeries:
    """The series of one client. Objects that share a client have the same series.

    `bridge` hears of each metric that the application registers with one of these objects.
    """

    def __init__(self, client: MeasuredClient, bridge: MetricBridge | None = None) -> None:
        if isinstance(client, type) or not callable(getattr(client, "_add_observer", None)):
            raise ArgumentTypeError(
                f"{client!r} has no metrics. Pass a Client, Producer, Consumer, or Admin."
            )
        self._client = weakref.ref(client)
        self._bridge = bridge
        self._unwatch: Callable[[], None] | None = None
        self._cluster: tuple[Metrics, ClientCollector] | None = None
        self.client_id = ""
        self._known: dict[OwnMetrics, None] = {}
        """The objects that were measured last time."""
        self._ended: dict[tuple[str, Labels], float] = {}
        """The sums of objects that were measured before, and have ended."""
        self.last: list[Series] = []
        """The series that `take_series` has taken last, without the label `client_id`."""
        # After the end of the loop, any thread may take series. No call waits for this lock: taking
        # calls functions of the application, which may read the series themselves.
        self._taking = threading.Lock()
        client._add_observer(self._on_cluster)

    @property
    def is_gone(self) -> bool:
        """Whether the client no longer exists."""
        return self._client() is None

    @property
    def source(self) -> object:
        """The source of the series, or None before the client is started.

        All objects that share a client have the same source.
        """
        return self._cluster and self._cluster[0]

    def take_series(self) -> threading.Event | None:
        """Take the series. If the event loop runs in another thread, let that thread take them.

        In the latter case, return an event that is set when they are taken. Otherwise, return None.
        """
        client = self._client()
        loop = None if client is None else client._loop
        if client is None or loop is None:
            return None
        if _get_running_loop() is loop:
            self._take_series(in_loop=True)
        elif loop.is_running() and threading.get_ident() != client._thread:
            return self._take_in_loop(loop)
        elif threading.get_ident() == client._thread or loop.is_closed():
            self._take_series(in_loop=False)
        return None

    def _take_in_loop(self, loop: asyncio.AbstractEventLoop) -> threading.Event | None:
        """Let the event loop take the series."""
        taken = threading.Event()

        def take() -> None:
            try:
                self._take_series(in_loop=True)
            finally:
                taken.set()

        try:
            loop.call_soon_threadsafe(take)
        except RuntimeError:
            return None  # The loop was closed in the meantime.
        return taken

    def _take_series(self, *, in_loop: bool) -> None:
        if not self._taking.acquire(blocking=False):
            return  # The reader gets the series that were taken last.
        try:
            if self._cluster is not None:
                self.last = self._read_series(*self._cluster, in_loop=in_loop)
        except Exception:  # A client that is failing or closing may not be able to measure.
            return
        finally:
            self._taking.release()

    def _on_cluster(self, cluster: Any) -> None:
        """Read the metrics of this `ClusterClient` from now on, even after it is closed.

        Several producers, consumers, and admins may share it.
        """
        self._cluster = cluster.metrics, cluster.make_collector()
        self.client_id = cluster.config.client_id
        self._known, self._ended = {}, {}
        if self._bridge is not None:
            on_registered = partial(self._bridge.on_registered, cluster.make_log("telemetry"))
            self._unwatch = cluster.application_metrics.watch_metrics(on_registered)

    def end_watch(self) -> None:
        """Stop following the metrics of the application. Synchronous, idempotent."""
        self._bridge = None
        if self._unwatch is not None:
            self._unwatch()

    def _read_series(
        self,
        metrics: Metrics,
        collector: ClientCollector,
        *,
        in_loop: bool,
    ) -> list[Series]:
        if in_loop:
            collector.watch_loop()
        series = [_own(value) for value in metrics.collect_values()]
        series += self._read_pushed(collector, metrics)
        for point in collector.read_application():
            labels = tuple(sorted((*point.resource, *point.labels)))
            series.append(Series(point.name, KINDS[point.kind], labels, point.value, point.unit))
        return series

    def _read_pushed(self, collector: ClientCollector, metrics: Metrics) -> list[Series]:
        """Return the series of the metrics that only pushes have."""
        present = dict.fromkeys((metrics.connections, *metrics.owners))
        for gone in [one for one in self._known if one not in present]:
            for name, kind, labels, value, _ in _of(collector, gone):
                if kind == "counter" and not isinstance(value, HistogramValue):
                    self._ended[name, labels] = self._ended.get((name, labels), 0.0) + value
        self._known = present
        found: dict[tuple[str, Labels], Series] = {
            key: Series(key[0], "counter", key[1], value) for key, value in self._ended.items()
        }
        for one in present:
            for each in _of(collector, one):
                key = each.name, each.labels
                found[key] = _merged(found[key], each) if key in found else each
        return list(found.values())


def _own(value: MetricValue) -> Series:
    labels = tuple(sorted(value.labels.items()))
    number: Value
    if isinstance(value.value, dict):
        buckets = value.value["buckets"]
        bounds = tuple(float(bound) for bound in buckets if bound != "+Inf")
        number = HistogramValue(bounds, tuple(buckets.values()), value.value["sum"])
    else:
        number = value.value
    return Series(f"{NAMESPACE}{value.name}", value.kind, labels, number, value.unit)


def _of(collector: ClientCollector, own: OwnMetrics) -> Iterable[Series]:
    rows = PUSHED[own.kind]
    if not rows:
        return
    resource = own.resource
    for row, labels, value in collector.read_rows(own, rows):
        kind = "gauge" if row.way.name in ("GAUGE", "INT") else "counter"
        if isinstance(value, HistogramValue):
            kind = "histogram"
        together = tuple(sorted((*resource, *labels)))
        yield Series(f"{NAMESPACE}{row.name}", kind, together, value)


def _merged(one: Series, other: Series) -> Series:
    """Return one series for two objects with the same labels: their sum or their largest value.

    Of histograms, return the second one.
    """
    if isinstance(one.value, HistogramValue) or isinstance(other.value, HistogramValue):
        return other
    largest = largest_counts(one.name)
    value = max(one.value, other.value) if largest else one.value + other.value
    return one._replace(value=value)


class SeriesOfClients:
    """The series of several clients, each with the label `client_id`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[ClientSeries, None] = {}
        self._names: dict[ClientSeries, tuple[str, int]] = {}

    def add_client(
        self, client: MeasuredClient, bridge: MetricBridge | None = None
    ) -> ClientSeries:
        """Read the series of this client from now on. See `ClientSeries` for `bridge`."""
        series = ClientSeries(client, bridge)
        with self._lock:
            self._clients[series] = None
        return series

    def remove_series(self, series: ClientSeries) -> None:
        """Stop reading these series."""
        series.end_watch()
        with self._lock:
            self._clients.pop(series, None)
            self._names.pop(series, None)

    def read_series(self) -> dict[str, list[Series]]:
        """Return the series by name. A client that no longer exists is included one last time."""
        with self._lock:
            clients = {client: client.is_gone for client in self._clients}
        until = time.monotonic() + WAIT_S
        for taken in [client.take_series() for client in clients]:
            if taken is not None:
                taken.wait(max(until - time.monotonic(), 0.0))
        found: dict[str, list[Series]] = {}
        seen: dict[int, None] = {}
        for client, is_gone in clients.items():
            read = client.last
            if read and id(client.source) not in seen:
                seen[id(client.source)] = None
                label = (CLIENT_ID, self._find_label(client))
                for each in read:
                    labels = tuple(sorted((*each.labels, label)))
                    found.setdefault(each.name, []).append(each._replace(labels=labels))
            if is_gone:
                self.remove_series(client)
        return found

    def _find_label(self, client: ClientSeries) -> str:
        """Return the label of a client, which stays the same.

        It is the client id. If other clients have the same id, a number follows, as in "name-2".
        """
        with self._lock:
            name, number = self._names.get(client, ("", 0))
            if name != client.client_id or not number:
                name, number = client.client_id, 1
                while (name, number) in self._names.values():
                    number += 1
                self._names[client] = name, number
        return name if number == 1 else f"{name}-{number}"
