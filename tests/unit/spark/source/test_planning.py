"""Tests of how ranges of offsets are split."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient import TopicPartition
from aiokclient.spark.source.planning import RangePartition, split


def ranges(*sizes: int) -> list[RangePartition]:
    return [RangePartition("a", None, index, 10, 10 + size) for index, size in enumerate(sizes)]


def parts(found: list[RangePartition]) -> list[int]:
    """Return the number of parts of each partition."""
    counts = Counter(one.partition for one in found)
    return [counts[partition] for partition in sorted(counts)]


def test_a_partition_is_one_range_by_default() -> None:
    assert split(ranges(5, 0, 7)) == [ranges(5, 0, 7)[0], ranges(5, 0, 7)[2]]


def test_max_records_splits_alone() -> None:
    found = split(ranges(10, 3), max_records=4)
    assert [one.size for one in found] == [3, 3, 4, 3]


def test_min_partitions_splits_the_largest() -> None:
    assert parts(split(ranges(100, 100, 800), min_partitions=10)) == [1, 1, 8]
    assert parts(split(ranges(100, 100), min_partitions=1)) == [1, 1]


def test_both_limits_hold() -> None:
    assert parts(split(ranges(100, 20), min_partitions=10, max_records=20)) == [8, 2]


def test_bytes_decide_where_they_are_known() -> None:
    sizes = {TopicPartition("a", 0): 1_000.0, TopicPartition("a", 1): 10.0}
    assert parts(split(ranges(100, 100), min_partitions=10, bytes_per_offset=sizes)) == [9, 1]


def test_no_range_is_empty_where_there_are_too_few_records() -> None:
    assert [one.size for one in split(ranges(2, 1), min_partitions=10)] == [1, 1, 1]


@given(
    st.lists(st.integers(0, 1_000), max_size=8),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 400),
)
def test_parts_cover_each_range_once_and_in_order(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    found = split(ranges(*sizes), min_partitions=least, max_records=most)
    read = [(one.partition, offset) for one in found for offset in range(one.start, one.end)]
    assert read == [(one.partition, n) for one in ranges(*sizes) for n in range(one.start, one.end)]
    assert all(0 < one.size <= (most or one.size) for one in found)
    assert len(found) >= min(least or 0, sum(sizes))


@pytest.mark.parametrize("size", [1, 7, 1 << 62])
def test_parts_of_large_ranges_have_about_the_same_size(size: int) -> None:
    sizes = {one.size for one in split(ranges(size), min_partitions=7)}
    assert max(sizes) - min(sizes) <= 1
