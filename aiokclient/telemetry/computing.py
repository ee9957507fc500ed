"""How the value of a metric is computed from two readings, and the time span between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from aiokclient.measures import EMPTY, Measures, Reading
from aiokclient.metrics import Labels
from aiokclient.telemetry.table import Row, Way

__all__ = ["NOTHING", "Change", "Span", "compute"]

HOUR_S = 3600.0


class Change(NamedTuple):
    """What was observed in total (`now`), and in the present time span."""

    now: Reading
    number: float
    total: float
    largest: float
    smallest: float


def _quotient(dividend: float, divisor: float) -> float:
    """Return the quotient, or NaN without observations, as Kafka's clients do."""
    return dividend / divisor if divisor else math.nan


def _bounded(value: float) -> float:
    """Return a largest or smallest value, or NaN without observations."""
    return value if math.isfinite(value) else math.nan


WAYS: Mapping[Way, Callable[[Change, Change, float], float]] = MappingProxyType(
    {
        Way.TOTAL: lambda change, other, seconds: change.now.number,
        Way.SUM: lambda change, other, seconds: change.now.total,
        Way.RATE: lambda change, other, seconds: change.number / seconds,
        Way.SUM_RATE: lambda change, other, seconds: change.total / seconds,
        Way.PER_HOUR: lambda change, other, seconds: change.number / seconds * HOUR_S,
        Way.AVERAGE: lambda change, other, seconds: _quotient(change.total, change.number),
        Way.MAXIMUM: lambda change, other, seconds: _bounded(change.largest),
        Way.MINIMUM: lambda change, other, seconds: _bounded(change.smallest),
        Way.GAUGE: lambda change, other, seconds: change.now.total,
        Way.INT: lambda change, other, seconds: change.now.total,
        Way.RATIO: lambda change, other, seconds: _quotient(change.total, other.total),
        Way.EACH: lambda change, other, seconds: _quotient(change.number, other.number),
    }
)

NOTHING = Change(EMPTY, 0, 0, -math.inf, math.inf)


def compute(row: Row, change: Change, other: Change | None, seconds: float) -> float:
    """Return the value of a row. `other` is the change of the row's divisor."""
    value = WAYS[row.way](change, other or NOTHING, seconds)
    return int(value) if row.way is Way.INT else float(value) * row.scale


class Span:
    """The present time span: what was read at its beginning, and the extreme values since then."""

    def __init__(self, now: float) -> None:
        self.seconds = 0.0
        self._began = self._read_at = now
        self._first: dict[tuple[Measures, str], dict[Labels, Reading]] = {}
        self._last: dict[tuple[Measures, str], dict[Labels, Reading]] = {}
        self._extremes: dict[tuple[Measures, str], dict[Labels, tuple[float, float]]] = {}
        self._changes: dict[tuple[Measures, str], list[tuple[Labels, Change]]] = {}

    def begin_reading(self, now: float) -> None:
        """Read everything again from now on, once."""
        self._read_at = now
        self.seconds = max(now - self._began, 1e-3)
        self._last, self._changes = {}, {}

    def read(self, measures: Measures, key: str) -> list[tuple[Labels, Change]]:
        """Return the changes of a key by labels."""
        family = measures, key
        found = self._changes.get(family)
        if found is None:
            readings = measures.read(key)
            self._last[family] = dict(readings)
            found = self._changes[family] = [
                (labels, self._change(family, labels, reading)) for labels, reading in readings
            ]
        return found

    def _change(self, family: tuple[Measures, str], labels: Labels, reading: Reading) -> Change:
        first = self._first.get(family, {}).get(labels, EMPTY)
        if first.number > reading.number:
            first = EMPTY  # A topic was forgotten, and has returned.
        largest, smallest = reading.largest, reading.smallest
        extremes = self._extremes.setdefault(family, {})
        if labels in extremes:
            largest = max(largest, extremes[labels][0])
            smallest = min(smallest, extremes[labels][1])
        extremes[labels] = largest, smallest
        number, total = reading.number - first.number, reading.total - first.total
        return Change(reading, number, total, largest, smallest)

    def restart(self) -> None:
        """Begin a new time span at the last `begin_reading`."""
        self._began = self._read_at
        self._first, self._extremes = self._last, {}
