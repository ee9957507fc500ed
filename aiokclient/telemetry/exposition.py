"""Metrics in the form that Prometheus scrapes: families of samples, and their text.

A metric is named as in `docs/metrics.md`, with "_" for "." and the prefix "aiokclient_". Counters
end with "_total". The text is that of the exposition format 0.0.4, which every version of
Prometheus reads. `prometheus.py` gives the same families to prometheus_client.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from aiokclient.metrics import Labels
from aiokclient.telemetry.bridged import DESCRIPTIONS
from aiokclient.telemetry.points import HistogramValue
from aiokclient.telemetry.series import Series
from aiokclient.types.named_tuple import NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

UNITS: Final = {"s": "seconds", "By": "bytes", "ms": "ms", "ns": "ns"}
"""The unit at the end of a metric's name in Prometheus, by the unit of the metric."""


class ExposedSample(NamedTuple):
    """One line of the text."""

    name: str
    labels: Labels
    value: float


@dataclasses.dataclass(slots=True)
class Family:
    """The samples of one metric. The name of a counter is without "_total"."""

    name: str
    kind: str
    text: str
    unit: str
    samples: list[ExposedSample]


def expose(series_by_name: Mapping[str, Iterable[Series]]) -> list[Family]:
    """Return the families of these series. Of series with the same labels, the last one counts."""
    families: dict[str, Family] = {}
    for name, series in series_by_name.items():
        labelled = {_labels(each.labels): each for each in series}
        if not labelled:
            continue
        family = _family(name, next(iter(labelled.values())))
        if families.setdefault(family.name, family) is not family:
            continue  # A name of the application differs only in characters that are replaced.
        for labels, each in labelled.items():
            family.samples += _samples(family, labels, each)
    return list(families.values())


def _family(name: str, series: Series) -> Family:
    """Return a family without samples."""
    description = DESCRIPTIONS.get(name)
    text = "A metric of the application." if description is None else description.text
    unit = UNITS.get(series.unit if description is None else description.unit, "")
    shown = _identifier(name)
    if series.kind == "counter":
        shown = shown.removesuffix("_total")
    return Family(shown, series.kind, text, unit if shown.endswith(f"_{unit}") else "", [])


def _samples(family: Family, labels: Labels, series: Series) -> Iterator[ExposedSample]:
    value = series.value
    if not isinstance(value, HistogramValue):
        suffix = "_total" if series.kind == "counter" else ""
        yield ExposedSample(f"{family.name}{suffix}", labels, value)
        return
    bounds = [*(f"{bound!r}" for bound in value.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(value.counts), strict=True):
        yield ExposedSample(f"{family.name}_bucket", (*labels, ("le", bound)), count)
    yield ExposedSample(f"{family.name}_count", labels, sum(value.counts))
    yield ExposedSample(f"{family.name}_sum", labels, value.total)


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


# -- the text


def write_text(families: Iterable[Family]) -> str:
    """Return the families in the exposition format 0.0.4."""
    lines: list[str] = []
    for family in families:
        shown = f"{family.name}_total" if family.kind == "counter" else family.name
        lines.append(f"# HELP {shown} {_escape(family.text)}")
        lines.append(f"# TYPE {shown} {family.kind}")
        lines += map(_line, family.samples)
    return "".join(f"{line}\n" for line in lines)


def _line(sample: ExposedSample) -> str:
    labels = ",".join(f'{name}="{_escape(text, quotes=True)}"' for name, text in sample.labels)
    return f"{sample.name}{f'{{{labels}}}' if labels else ''} {_number(sample.value)}"


def _escape(text: str, *, quotes: bool = False) -> str:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    return escaped.replace('"', r"\"") if quotes else escaped


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
