"""Tests of the totals of series: any order, gaps, restarts, and deltas that are pushed again."""

from __future__ import annotations

import random
from itertools import pairwise

from aiokclient.spark.telemetry.deltas import SeriesValue, add_cumulative, add_deltas


def chain(*times: int) -> list[SeriesValue]:
    """Return consecutive deltas between the times. The value of each is its duration."""
    return [SeriesValue(start, time, (float(time - start),)) for start, time in pairwise(times)]


def starts(values: list[SeriesValue]) -> set[int]:
    return {value.start for value in values}


def test_deltas_in_any_order_have_the_same_total() -> None:
    values = chain(10, 20, 30, 40, 55)
    expected = add_deltas(values, starts(values))
    assert expected.amounts == (45,)
    assert (expected.start, expected.time, expected.points) == (10, 55, 4)
    assert (expected.gaps, expected.restarts, expected.replaced) == ((), 0, 0)
    for seed in range(20):
        random.Random(seed).shuffle(values)
        assert add_deltas(values, starts(values)) == expected


def test_lost_delta_is_a_gap() -> None:
    values = chain(10, 20, 30, 40, 50)
    del values[1]
    total = add_deltas(values, starts(values))
    assert total.amounts == (30,)
    assert total.gaps == ((20, 30),)


def test_delta_pushed_again_with_the_next_differences_replaces_the_shorter_one() -> None:
    # The response to the push at 30 was lost: the next one begins at 20 again.
    values = [*chain(10, 20, 30), SeriesValue(20, 45, (25.0,)), *chain(45, 60)]
    total = add_deltas(values, starts(values))
    assert total.amounts == (50,)
    assert (total.gaps, total.restarts, total.replaced) == ((), 0, 1)


def test_series_that_begins_again_is_a_restart_and_counts_in_full() -> None:
    # A topic was deleted and created again. Its series starts from zero at the client's start.
    values = [*chain(10, 20, 30), SeriesValue(10, 50, (7.0,))]
    total = add_deltas(values, {*starts(values), 20, 30, 40})
    assert total.amounts == (27,)
    assert (total.gaps, total.restarts, total.replaced) == ((), 1, 0)


def test_deltas_without_a_start_are_all_added() -> None:
    values = [value._replace(start=0) for value in chain(10, 20, 30, 45)]
    for seed in range(5):
        random.Random(seed).shuffle(values)
        total = add_deltas([*values, values[0]], {0})
        assert total.amounts == (35 + values[0].amounts[0],)
        assert (total.start, total.time, total.points) == (0, 45, 4)
        assert (total.gaps, total.restarts, total.replaced) == ((), 0, 0)


def test_objects_that_share_a_client_are_added() -> None:
    values = [*chain(10, 20, 30), *chain(10, 20, 30)]
    total = add_deltas(values, starts(values))
    assert total.amounts == (40,)
    assert (total.points, total.restarts) == (4, 0)


def test_histograms_are_added_by_bucket() -> None:
    values = [SeriesValue(0, 1, (2.5, 3, 1, 2)), SeriesValue(1, 2, (0.5, 1, 1, 0))]
    assert add_deltas(values, {0, 1}).amounts == (3.0, 4, 2, 2)


def test_lost_cumulative_value_changes_nothing() -> None:
    values = [SeriesValue(1, 10, (5.0,)), SeriesValue(1, 30, (9.0,))]
    total = add_cumulative(reversed(values), monotonic=True)
    assert total.amounts == (9,)
    assert (total.gaps, total.restarts, total.time) == ((), 0, 30)


def test_cumulative_value_with_a_new_start_or_a_decrease_is_a_restart() -> None:
    values = [
        SeriesValue(1, 10, (5.0,)),
        SeriesValue(15, 20, (6.0,)),
        SeriesValue(15, 30, (2.0,)),
    ]
    total = add_cumulative(values, monotonic=True)
    assert total.amounts == (13,)
    assert total.restarts == 2
    assert add_cumulative(values, monotonic=False).amounts == (7,)


def test_sum_of_a_cumulative_histogram_may_decrease() -> None:
    values = [SeriesValue(1, 10, (5.0, 1, 1)), SeriesValue(1, 20, (-2.0, 2, 2))]
    total = add_cumulative(values, monotonic=True)
    assert total.amounts == (-2, 2, 2)
    assert total.restarts == 0
