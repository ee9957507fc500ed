"""Spans and metrics that the in-memory exporters of opentelemetry-sdk have received."""

from __future__ import annotations

from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiokclient.telemetry.otel import Instrumentation, instrument

__all__ = ["Traces", "current", "ids", "links", "parent"]


def current() -> int:
    """Return the id of the current span, or 0."""
    return trace.get_current_span().get_span_context().span_id


class Traces:
    """A tracer provider and a meter provider, and the spans and metrics that they received."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])
        self.tracer = self.provider.get_tracer("test")

    def of(self, client: Any) -> Instrumentation:
        """Instrument a client."""
        return instrument(client, self.meters, self.provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in this order."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def values(self) -> dict[str, dict[tuple[tuple[str, Any], ...], Any]]:
        """Return the values of all metrics by name and attributes."""
        found: dict[str, dict[tuple[tuple[str, Any], ...], Any]] = {}
        data = self._reader.get_metrics_data()
        for resource in [] if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    series = found.setdefault(metric.name, {})
                    for point in metric.data.data_points:
                        labels = tuple(sorted((point.attributes or {}).items()))
                        series[labels] = getattr(point, "value", None)
        return found

    def total(self, name: str) -> float:
        """Return the sum of a metric over all attributes."""
        return float(sum(self.values().get(name, {}).values()))


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]
