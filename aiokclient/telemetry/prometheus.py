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

from collections.abc import Iterable

from aiokclient.telemetry.exposition import Family, expose
from aiokclient.telemetry.series import MeasuredClient, SeriesOfClients

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
        return list(map(_as_metric, expose(self._series.read_series())))


def _as_metric(family: Family) -> Metric:
    # The package appends the unit to a name that does not end with it; such a family has none.
    metric = Metric(family.name, family.text, family.kind, family.unit)
    for name, labels, value in family.samples:
        metric.add_sample(name, dict(labels), value)
    return metric
