"""The pushes of clients: the form of each metric, its sums, and a comparison of two clients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from kafka_harness.files import REPOSITORY
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

PREFIX = "org.apache.kafka."
OWN = ".aiokclient."
DOCS = REPOSITORY / "docs" / "telemetry-metrics.md"


class Form(NamedTuple):
    """The form of one pushed metric. `labels` and `attributes` are names, separated by spaces."""

    kind: str
    """The kind of the metric's points, such as "sum, delta, monotonic, as_double, since"."""
    attributes: str
    """The names of the resource's attributes."""
    extras: str
    """The unit, description, and scope, if pushed. Kafka's clients push none of them."""


class SeriesName(NamedTuple):
    name: str
    labels: str


class Value(NamedTuple):
    """One point of a push."""

    name: str
    labels: tuple[tuple[str, str], ...]
    attributes: dict[str, str]
    form: Form
    number: float
    start_ns: int
    time_ns: int


def values(data: bytes) -> Iterator[Value]:
    """Yield all points in a payload."""
    for resource in MetricsData.FromString(data).resource_metrics:
        attributes = _texts(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                extras = f"{metric.unit}{metric.description}{scope.scope.name}"
                yield from _points(metric, attributes, extras)


def _points(metric: Any, attributes: dict[str, str], extras: str) -> Iterator[Value]:
    field = metric.WhichOneof("data")
    data = getattr(metric, field)
    for point in data.data_points:
        kind = [field]
        if field != "gauge":
            name = AggregationTemporality.Name(data.aggregation_temporality)
            kind.append(name.removeprefix("AGGREGATION_TEMPORALITY_").lower())
        if field == "sum" and data.is_monotonic:
            kind.append("monotonic")
        number = point.sum if field == "histogram" else getattr(point, point.WhichOneof("value"))
        if field != "histogram":
            kind.append(point.WhichOneof("value"))
        if point.start_time_unix_nano:
            kind.append("since")
        yield Value(
            metric.name,
            tuple(sorted(_texts(point.attributes).items())),
            attributes,
            Form(", ".join(kind), " ".join(sorted(attributes)), extras),
            number,
            point.start_time_unix_nano,
            point.time_unix_nano,
        )


def _texts(attributes: Iterable[Any]) -> dict[str, str]:
    return {each.key: each.value.string_value for each in attributes}


Forms: TypeAlias = dict[SeriesName, Form]


def forms(payloads: Iterable[bytes]) -> Forms:
    """Return the form in which each metric was last pushed. `payloads` must be in push order."""
    return {
        SeriesName(value.name, " ".join(name for name, _ in value.labels)): value.form
        for payload in payloads
        for value in values(payload)
    }


class Totals:
    """The sums of one client by name and labels, from all its pushes in order."""

    def __init__(self, payloads: Iterable[bytes]) -> None:
        self.sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for payload in payloads:
            for value in values(payload):
                key = value.name, value.labels
                if "delta" in value.form.kind:
                    self.sums[key] = self.sums.get(key, 0.0) + value.number
                elif "cumulative" in value.form.kind:
                    self.sums[key] = value.number

    def value(self, name: str, **labels: str) -> float:
        """Return the sum with exactly these labels. It must have been pushed."""
        return self.sums[self._key(name, labels)]

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return, by the label's value, the sums with this name that have only this label."""
        return {
            labels[0][1]: number
            for (each, labels), number in self.sums.items()
            if each == PREFIX + name and len(labels) == 1 and labels[0][0] == label
        }

    def _key(self, name: str, labels: dict[str, str]) -> tuple[str, tuple[tuple[str, str], ...]]:
        key = PREFIX + name, tuple(sorted(labels.items()))
        assert key in self.sums, f"{name} with the labels {labels} was not pushed"
        return key


class Comparison(NamedTuple):
    """The differences between the metrics of a client of this library and of Kafka's."""

    missing: list[str]
    extra: list[str]
    different: list[str]
    table: list[tuple[str, ...]]
    """A row for each metric: name, labels, kind, attributes, and the verdict."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.different)


def left_out() -> set[str]:
    """Return the names that the docs list as left out, each made of a prefix and an ending."""
    section = DOCS.read_text().partition("## Left out")[2].partition("\n## ")[0]
    found: set[str] = set()
    for prefixes, endings in re.findall(r"^\| (`[^|]*) \| (`[^|]*) \|", section, re.MULTILINE):
        for prefix in re.findall("`([a-z.]+)`", prefixes):
            found |= {f"{PREFIX}{prefix}{ending}" for ending in re.findall("`([a-z.]+)`", endings)}
    return found


def compare(ours: Forms, theirs: Forms, listed: set[str]) -> Comparison:
    """Compare the metrics of two clients. `listed` are the names that may be missing."""
    made = Comparison([], [], [], [])
    for series in sorted({*ours, *theirs}):
        mine, other = ours.get(series), theirs.get(series)
        shown = f"{series.name} [{series.labels}]"
        if mine is None:
            verdict = "left out" if series.name in listed else "MISSING"
            if series.name not in listed:
                made.missing.append(shown)
        elif other is None:
            verdict = "own" if OWN in series.name else "EXTRA"
            if OWN not in series.name:
                made.extra.append(shown)
        else:
            verdict = "same" if mine == other else f"DIFFERENT: {_shown(other)} in Kafka's client"
            if mine != other:
                made.different.append(f"{shown}: {_shown(mine)}, not {_shown(other)}")
        form = _shown(mine or other)
        made.table.append((series.name.removeprefix(PREFIX), series.labels or "-", form, verdict))
    return made


def _shown(form: Form | None) -> str:
    assert form is not None
    return f"{form.kind} ({form.attributes or '-'}){form.extras}"


def printed(title: str, comparison: Comparison) -> str:
    """Return a comparison as text, the table first."""
    rows = [("name", "labels", "kind (attributes)", "verdict"), *comparison.table]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"\n{title}"]
    for row in rows:
        padded = [text.ljust(width) for text, width in zip(row[:3], widths, strict=True)]
        lines.append("  ".join([*padded, row[3]]))
    for what in ("missing", "extra", "different"):
        found = getattr(comparison, what)
        lines.append(f"{what}: {len(found)}")
        lines += [f"  {each}" for each in found]
    return "\n".join(lines)
