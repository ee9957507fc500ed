"""The computation of the value of a metric from two readings, and the time span between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from aiokclient.metrics import EMPTY, Labels, Reading, Sample
from aiokclient.telemetry.table import Row, Way

__all__ = ["NOTHING", "Change", "changes", "compute"]

HOUR_S = 3600.0


class Change(NamedTuple):
    """All observations (`now`), and the number and the sum of those in the present time span."""

    now: Reading
    number: float
    total: float


def _quotient(dividend: float, divisor: float) -> float:
    """Return the quotient, or NaN if the divisor is 0, as Kafka's clients do."""
    return dividend / divisor if divisor else math.nan


def _bounded(value: float) -> float:
    """Return an extreme value, or NaN if it is infinite because there were no observations."""
    return value if math.isfinite(value) else math.nan


WAYS: Mapping[Way, Callable[[Change, Change, float], float]] = MappingProxyType(
    {
        Way.TOTAL: lambda change, other, seconds: change.now.number,
        Way.SUM: lambda change, other, seconds: change.now.total,
        Way.RATE: lambda change, other, seconds: change.number / seconds,
        Way.SUM_RATE: lambda change, other, seconds: change.total / seconds,
        Way.PER_HOUR: lambda change, other, seconds: change.number / seconds * HOUR_S,
        Way.AVERAGE: lambda change, other, seconds: _quotient(change.total, change.number),
        Way.MAXIMUM: lambda change, other, seconds: _bounded(change.now.largest),
        Way.MINIMUM: lambda change, other, seconds: _bounded(change.now.smallest),
        Way.GAUGE: lambda change, other, seconds: change.now.total,
        Way.INT: lambda change, other, seconds: change.now.total,
        Way.RATIO: lambda change, other, seconds: _quotient(change.total, other.total),
        Way.EACH: lambda change, other, seconds: _quotient(change.number, other.number),
    }
)

NOTHING = Change(EMPTY, 0, 0)


def compute(row: Row, change: Change, other: Change | None, seconds: float) -> float:
    """Return the value of a row. `other` is the change of the row's divisor."""
    value = WAYS[row.way](change, other or NOTHING, seconds)
    return int(value) if row.way is Way.INT else float(value) * row.scale


def changes(sample: Sample, before: Sample | None, key: str) -> list[tuple[Labels, Change]]:
    """Return the changes since an earlier sample of the same object, by labels."""
    earlier = {} if before is None else before.read(key)
    return [
        (labels, _change(reading, earlier.get(labels, EMPTY)))
        for labels, reading in sample.read(key).items()
    ]


def _change(now: Reading, before: Reading) -> Change:
    if before.number > now.number:
        before = EMPTY  # The count began again, because a forgotten topic has returned.
    return Change(now, now.number - before.number, now.total - before.total)
