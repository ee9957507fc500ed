"""Filters of a query that narrow the ranges to read. Sans-IO, and without pyspark.

Conditions on the topic, the partition, and the offset hold for whole ranges or cut them, so that
Spark need not check them again. Of the conditions on the timestamp, only a lower bound narrows a
range: the range then starts at the first record that meets it. Spark checks the remaining records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from aiokclient.spark.source.planning import RangePartition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
NAMES = ("topic", "partition")
LOWER_BOUNDS = ("GreaterThan", "GreaterThanOrEqual", "EqualTo", "EqualNullSafe", "In")
TYPES = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "GreaterThan": lambda one, other: one > other,
    "GreaterThanOrEqual": lambda one, other: one >= other,
    "LessThan": lambda one, other: one < other,
    "LessThanOrEqual": lambda one, other: one <= other,
    "EqualTo": lambda one, other: one == other,
    "EqualNullSafe": lambda one, other: one == other,
    "In": lambda one, others: one in others,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": str.__contains__,
}
"""For each class of Spark's filters, by its name: a function of the value of a column and the value
of the filter, which returns whether the first passes the filter."""


@dataclass(slots=True)
class Pushed:
    """The conditions that were pushed down, all of which hold for the records to read."""

    conditions: list[tuple[str, str, Any, bool]] = field(default_factory=list)
    """Conditions on `topic` or `partition`: column, filter, value, and whether it is negated."""
    first: int = 0
    """The lowest offset to read."""
    end: int = (1 << 63) - 1
    """The offset after the highest offset to read."""
    timestamp: int | None = None
    """The lowest timestamp to read, in milliseconds since the epoch; None for any."""

    def push_filter(self, condition: Any) -> bool:
        """Apply a filter of Spark. Return whether Spark need not check it again."""
        kind, negated = type(condition).__name__, False
        if kind == "Not":
            condition, negated = condition.child, True
            kind = type(condition).__name__
        column = condition.attribute[0] if len(condition.attribute) == 1 else None
        if kind in ("IsNotNull", "IsNull"):
            # The topic, the partition, and the offset are never null.
            return column in TYPES and column != "timestamp" and (kind == "IsNull") is negated
        values = condition.value if kind == "In" else (condition.value,)
        if column not in TYPES or not all(type(value) is TYPES[column] for value in values):
            return False
        if column in NAMES:
            if kind not in HOLDS:
                return False
            self.conditions.append((column, kind, condition.value, negated))
            return True
        if negated:
            return False
        return self._narrow_range(column, kind, values)

    def _narrow_range(self, column: str, kind: str, values: tuple[Any, ...]) -> bool:
        """Narrow the range by a condition on the offset or the timestamp."""
        if column == "timestamp":
            if kind in LOWER_BOUNDS and values and all(value.tzinfo for value in values):
                self._raise_timestamp(min(values))
            return False
        if not values:
            self.end = 0
            return True
        low, high = min(values), max(values)
        match kind:
            case "GreaterThan":
                self.first = max(self.first, low + 1)
            case "GreaterThanOrEqual":
                self.first = max(self.first, low)
            case "LessThan":
                self.end = min(self.end, high)
            case "LessThanOrEqual":
                self.end = min(self.end, high + 1)
            case "EqualTo" | "EqualNullSafe" | "In":
                self.first, self.end = max(self.first, low), min(self.end, high + 1)
                return bool(high - low < len(set(values)))
            case _:
                return False
        return True

    def _raise_timestamp(self, value: datetime) -> None:
        # A fraction of a millisecond is rounded down: Spark checks the records again.
        timestamp = (value - EPOCH) // MILLISECOND
        # A record without a timestamp has one of -1 ms in Spark, and brokers do not find it.
        if timestamp >= 0:
            self.timestamp = max(self.timestamp or 0, timestamp)

    def may_select(self, topic: str, partition: int) -> bool:
        """Return whether records of a partition can fulfil the conditions."""
        values = {"topic": topic, "partition": partition}
        return all(
            HOLDS[kind](values[column], wanted) is not negated
            for column, kind, wanted, negated in self.conditions
        )

    def limit_ranges(self, ranges: Iterable[RangePartition]) -> list[RangePartition]:
        """Return the parts of the ranges that can have records for the query."""
        return [
            replace(one, start=max(one.start, self.first), end=min(one.end, self.end))
            for one in ranges
            if self.may_select(one.topic, one.partition)
        ]
