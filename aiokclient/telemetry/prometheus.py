"""A collector of the metrics of clients for prometheus_client. Needs the extra `prometheus`.

    REGISTRY.register(Collector(client, producer))
    start_http_server(9100)

A scrape may happen in any thread. It gets numbers that are taken in the event loop of each client.
If a loop is blocked for more than a second, or has ended, the scrape gets the numbers that were
taken last.
The clients may be created, started, closed, or dropped at any time, and none is kept alive.

A metric is named as in `docs/metrics.md`, with "_" for "." and the prefix "aiokclient_". Counters
end with "_total". Each series has the label `client_id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate

from aiokclient.metrics import Labels
from aiokclient.telemetry.bridged import DESCRIPTIONS
from aiokclient.telemetry.points import HistogramValue
from aiokclient.telemetry.series import MeasuredClient, Series, SeriesOfClients

try:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector as CollectorBase
except ImportError as error:
    raise ImportError(
        "aiokclient.telemetry.prometheus needs the package prometheus-client. Install the extra: "
        "pip install 'aiokclient[prometheus]'."
    ) from error

__all__ = ["Collector"]

ONLY_ONE = "aiokclient_pass_all_clients_to_one_Collector"
"""The name by which a registry recognizes a second collector."""

UNITS = {"s": "seconds", "By": "bytes", "ms": "ms", "ns": "ns"}
"""The unit at the end of a metric's name in Prometheus, by the unit of the metric."""


class Collector(CollectorBase):
    """The metrics of these clients, for a registry of prometheus_client.

    A registry accepts one collector, with all clients: registering a second one raises ValueError.
    """

    def __init__(self, *clients: MeasuredClient) -> None:
        self._series = SeriesOfClients()
        for client in clients:
            self._series.add_client(client)

    def describe(self) -> Iterable[Metric]:
        """Return one metric that is never collected, so that a registry takes one collector only.

        Two collectors in one registry would export each metric twice, which Prometheus refuses.
        The registry's ValueError for the second collector contains the name of this metric.
        """
        return [Metric(ONLY_ONE, "The collector of all clients.", "untyped")]

    def collect(self) -> Iterable[Metric]:
        """Return all metrics. May be called in any thread."""
        families: dict[str, Metric] = {}
        for name, series in self._series.read_series().items():
            family = _family(name, series[0])
            if families.setdefault(family.name, family) is not family:
                continue  # A name of the application differs only in characters that are replaced.
            labelled = {_labels(each.labels): each for each in series}
            for labels, each in labelled.items():
                _add(family, dict(labels), each)
        return families.values()


def _family(name: str, series: Series) -> Metric:
    """Return a metric without samples."""
    description = DESCRIPTIONS.get(name)
    text = "A metric of the application." if description is None else description.text
    unit = UNITS.get(series.unit if description is None else description.unit, "")
    shown = _identifier(name)
    if series.kind == "counter":
        shown = shown.removesuffix("_total")
    # The package appends the unit to a name that does not end with it, so pass no unit then.
    return Metric(shown, text, series.kind, unit if shown.endswith(f"_{unit}") else "")


def _add(family: Metric, labels: dict[str, str], series: Series) -> None:
    value = series.value
    if not isinstance(value, HistogramValue):
        suffix = "_total" if series.kind == "counter" else ""
        family.add_sample(f"{family.name}{suffix}", labels, value)
        return
    bounds = [*(f"{bound!r}" for bound in value.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(value.counts), strict=True):
        family.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
    family.add_sample(f"{family.name}_count", labels, sum(value.counts))
    family.add_sample(f"{family.name}_sum", labels, value.total)


def _labels(labels: Labels) -> Labels:
    """Return labels that Prometheus accepts."""
    shown = {
        _identifier(name).replace(":", "_"): text.encode("utf-8", "replace").decode()
        for name, text in labels
    }
    return tuple(shown.items())


def _identifier(name: str) -> str:
    """Return a name with "_" for each character that Prometheus does not accept."""
    shown = re.sub(r"[^a-zA-Z0-9_:]", "_", name)
    return f"_{shown}" if not shown or shown[0].isdigit() else shown
