"""The collector of a client's metrics for its reporter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from aiokclient.metrics import Metrics
from aiokclient.telemetry.points import Collector, Point, PointKind

__all__ = ["MeasuredClient", "collector_of"]

PREFIX = "org.apache.kafka"


class MeasuredClient(Protocol):
    """The client whose metrics are collected."""

    @property
    def metrics(self) -> Metrics: ...

    @property
    def config(self) -> Any: ...


def collector_of(client: MeasuredClient) -> Collector:
    """Return the source of the points that the client's reporter pushes."""
    return CounterCollector(client.metrics, client.config.kind().lower())


class CounterCollector:
    """The counters of `metrics()`, under names of their own."""

    def __init__(self, metrics: Metrics, kind: str) -> None:
        self._metrics = metrics
        self._prefix = f"{PREFIX}.{kind}.aiokclient."

    def collect(self, wanted: Callable[[str], bool]) -> list[Point]:
        return [
            Point(name, PointKind.SUM, value.value, tuple(sorted(value.labels.items())))
            for value in self._metrics.values()
            if value.kind == "counter" and isinstance(value.value, int | float)
            if wanted(name := self._prefix + value.name)
        ]

    def restart(self) -> None:
        """Do nothing, because counters have no rates."""
