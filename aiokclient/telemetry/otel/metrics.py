"""The bridge of metrics to a MeterProvider, by observable instruments.

There is one bridge for each provider, because a provider has only one instrument of each name.
All instruments are made before they are read: a callback must not make any. All callbacks of one
collection share the snapshot that was read for the first of them, so that their numbers belong
together.

The API has no observable histogram. A histogram is three counters, as in Prometheus: `.bucket`
with the attribute `le`, `.count`, and `.sum`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate
from typing import Final

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from aiokclient.log.client_log import ClientLog
from aiokclient.metrics import Counter, Gauge, Histogram
from aiokclient.telemetry.application import ApplicationMetric
from aiokclient.telemetry.bridged import DESCRIPTIONS, Description
from aiokclient.telemetry.points import HistogramValue
from aiokclient.telemetry.series import CLIENT_ID, MeasuredClient, Series, SeriesOfClients

SCOPE: Final = "aiokclient"
ATTRIBUTES: Final = {CLIENT_ID: "messaging.client.id"}
"""The names of the attributes that have another name than their label, by the label's name."""

Part = Callable[[Series], Iterator[Observation]]


class MetricBridge:
    """The instruments of one provider."""

    def __init__(self, provider: MeterProvider) -> None:
        self._meter = provider.get_meter(SCOPE)
        self._series = SeriesOfClients()
        self._making = threading.Lock()
        self._made: set[str] = set()
        # This lock is not held while series are read: reading waits for event loops, and calls
        # functions of the application, which may start a collection themselves.
        self._reading = threading.Lock()
        self._snapshot: dict[str, list[Series]] = {}
        self._answered: set[str] | None = None
        """The instruments that have received the snapshot. None means that there is no snapshot.

        If one of them is read again, a new collection has begun.
        """

    def add_client(self, client: MeasuredClient) -> Callable[[], None]:
        """Observe the metrics of a client from now on. Return a function that ends that."""
        for name, description in DESCRIPTIONS.items():
            self._make_instruments(name, description)
        series = self._series.add_client(client, self)
        return partial(self._series.remove_series, series)

    def on_registered(self, log: ClientLog, metric: ApplicationMetric) -> None:
        """Make the instruments of an application's metric. Log a warning if the SDK refuses it."""
        try:
            self._make_instruments(metric.name, _described(metric))
        except Exception as error:
            text = "OpenTelemetry refuses the metric %s: %s"
            extra = {"event": "telemetry_metric_left_out", "metric": metric.name}
            log.warning(text, metric.name, error, extra=extra)

    def _make_instruments(self, name: str, description: Description) -> None:
        """Make the instruments of a metric unless they exist."""
        with self._making:
            if name in self._made:
                return
            self._made.add(name)
        if description.kind != "histogram":
            create = (
                self._meter.create_observable_counter
                if description.kind == "counter"
                else self._meter.create_observable_gauge
            )
            create(name, [partial(self._observe_part, name, name, _value)], *description[1:])
            return
        parts: tuple[tuple[str, Part, str], ...] = (
            (f"{name}.bucket", _buckets, ""),
            (f"{name}.count", _count, ""),
            (f"{name}.sum", _sum, description.unit),
        )
        for instrument, part, unit in parts:
            callback = partial(self._observe_part, instrument, name, part)
            self._meter.create_observable_counter(instrument, [callback], unit, description.text)

    def _observe_part(
        self, instrument: str, name: str, part: Part, options: CallbackOptions
    ) -> Iterable[Observation]:
        with self._reading:
            begins = self._answered is None or instrument in self._answered
            if self._answered is None or begins:
                self._answered = set()
            self._answered.add(instrument)
            snapshot = self._snapshot
        if begins:
            snapshot = self._series.read_series()
            with self._reading:
                self._snapshot = snapshot
        series = snapshot.get(name, [])
        return [observation for each in series for observation in part(each)]


def _attributes(series: Series) -> dict[str, str]:
    return {ATTRIBUTES.get(label, label): text for label, text in series.labels}


def _value(series: Series) -> Iterator[Observation]:
    if not isinstance(series.value, HistogramValue):
        yield Observation(series.value, _attributes(series))


def _buckets(series: Series) -> Iterator[Observation]:
    if isinstance(series.value, HistogramValue):
        attributes = _attributes(series)
        bounds = [*(f"{bound!r}" for bound in series.value.bounds), "+Inf"]
        for bound, count in zip(bounds, accumulate(series.value.counts), strict=True):
            yield Observation(count, {**attributes, "le": bound})


def _count(series: Series) -> Iterator[Observation]:
    if isinstance(series.value, HistogramValue):
        yield Observation(sum(series.value.counts), _attributes(series))


def _sum(series: Series) -> Iterator[Observation]:
    if isinstance(series.value, HistogramValue):
        yield Observation(series.value.total, _attributes(series))


def _described(metric: ApplicationMetric) -> Description:
    kinds = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}
    kind = next((kind for cls, kind in kinds.items() if isinstance(metric.source, cls)), "gauge")
    return Description(kind, metric.unit, "A metric of the application.")


_bridges: weakref.WeakKeyDictionary[MeterProvider, MetricBridge] = weakref.WeakKeyDictionary()


def bridge_to(provider: MeterProvider) -> MetricBridge:
    """Return the bridge to a provider."""
    found = _bridges.get(provider)
    if found is None:
        found = _bridges[provider] = MetricBridge(provider)
    return found
