"""Tests of filters that are pushed down: every record that matches them must be read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.spark.source.filters import HOLDS, Pushed
from aiokclient.spark.source.planning import RangePartition

RANGES = [RangePartition(topic, None, p, 0, 10) for topic in ("a", "ab") for p in (0, 1)]


@dataclass(frozen=True)
class Condition:
    attribute: tuple[str, ...]
    value: Any = None


@dataclass(frozen=True)
class Not:
    child: Any


def condition(kind: str, column: str, value: object = None) -> Any:
    return type(kind, (Condition,), {})((column,), value)


def rows(ranges: list[RangePartition]) -> set[tuple[str, int, int]]:
    return {(r.topic, r.partition, n) for r in ranges for n in range(r.start, r.end)}


CHOICES = st.one_of(
    st.tuples(st.just("offset"), st.integers(-2, 12)),
    st.tuples(st.just("partition"), st.integers(-1, 3)),
    st.tuples(st.just("topic"), st.sampled_from(["a", "ab", "b", ""])),
)
COMPARISONS = [kind for kind in HOLDS if not kind.startswith("String") and kind != "In"]


@given(st.lists(st.tuples(st.sampled_from(COMPARISONS), CHOICES, st.booleans()), max_size=4))
def test_pushed_filters_keep_every_row_and_supported_ones_keep_no_other(
    given: list[tuple[str, tuple[str, Any], bool]],
) -> None:
    pushed, supported = Pushed(), []
    for kind, (column, value), negated in given:
        one = condition(kind, column, value)
        supported.append(pushed.push_filter(Not(one) if negated else one))

    def holds(row: tuple[str, int, int], conditions: Any) -> bool:
        values = dict(zip(("topic", "partition", "offset"), row, strict=True))
        return all(
            HOLDS[kind](values[column], value) is not negated
            for kind, (column, value), negated in conditions
        )

    found = rows(pushed.limit_ranges(RANGES))
    assert {row for row in rows(RANGES) if holds(row, given)} <= found
    checked = [each for each, whole in zip(given, supported, strict=True) if whole]
    assert all(holds(row, checked) for row in found)


def test_in_of_offsets_narrows_but_is_checked_again() -> None:
    pushed = Pushed()
    assert not pushed.push_filter(condition("In", "offset", (3, 7)))
    assert (pushed.first, pushed.end) == (3, 8)
    assert Pushed().push_filter(condition("In", "offset", (3, 4)))
    assert Pushed().push_filter(condition("In", "partition", (0, 7)))


def test_strings_of_topics() -> None:
    pushed = Pushed()
    assert pushed.push_filter(condition("StringStartsWith", "topic", "ab"))
    assert {one.topic for one in pushed.limit_ranges(RANGES)} == {"ab"}
    assert not Pushed().push_filter(condition("StringContains", "value", "ab"))


def test_timestamp_narrows_from_below_and_is_checked_again() -> None:
    pushed = Pushed()
    moment = datetime(1970, 1, 1, 0, 0, 1, 999, tzinfo=UTC)
    assert not pushed.push_filter(condition("GreaterThan", "timestamp", moment))
    assert pushed.timestamp == 1000
    assert not pushed.push_filter(condition("LessThan", "timestamp", moment))
    assert not pushed.push_filter(Not(condition("GreaterThan", "timestamp", datetime.max)))
    assert pushed.timestamp == 1000


def test_records_without_a_timestamp_are_kept_by_a_bound_before_1970() -> None:
    # Spark shows such records with a time of -1 ms. Brokers do not find these records by a time.
    pushed = Pushed()
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert not pushed.push_filter(condition("GreaterThanOrEqual", "timestamp", moment))
    assert pushed.timestamp is None


@pytest.mark.parametrize("column", ["topic", "partition", "offset"])
def test_not_null_is_always_true(column: str) -> None:
    assert Pushed().push_filter(condition("IsNotNull", column))
    assert Pushed().push_filter(Not(condition("IsNull", column)))
    assert not Pushed().push_filter(condition("IsNull", column))


def test_values_of_other_types_are_left_to_spark() -> None:
    assert not Pushed().push_filter(condition("EqualTo", "partition", 1.0))
    assert not Pushed().push_filter(condition("EqualTo", "value", b"1"))
    assert not Pushed().push_filter(condition("In", "partition", (1, None)))
