"""Tests of the limits of a stream's batches."""

from hypothesis import given
from hypothesis import strategies as st

from aiokclient.spark.source.limits import TriggerDelay, available, prorate


def test_the_limit_is_divided_by_what_each_partition_has() -> None:
    assert prorate(100, {"a": 0, "b": 50}, {"a": 300, "b": 150}) == {"a": 75, "b": 75}


def test_everything_is_read_when_it_is_within_the_limit() -> None:
    assert prorate(400, {"a": 0, "b": 50}, {"a": 300, "b": 150}) == {"a": 300, "b": 150}


def test_a_partition_with_few_records_is_read_beside_one_with_many() -> None:
    assert prorate(10, {"a": 0, "b": 0}, {"a": 1_000_000, "b": 1}) == {"a": 9, "b": 1}


RANGES = st.dictionaries(
    st.integers(), st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=20
)


@given(st.integers(1, 1000), RANGES)
def test_a_batch_stays_within_its_limit_and_advances_every_partition(
    limit: int, ranges: dict[int, tuple[int, int]]
) -> None:
    starts = {key: start for key, (start, _) in ranges.items()}
    ends = {key: start + size for key, (start, size) in ranges.items()}
    batch = prorate(limit, starts, ends)
    assert batch.keys() == ends.keys()
    assert available(starts, batch) <= max(limit, 0) + len(ends)
    for key, end in ends.items():
        assert starts[key] <= batch[key] <= end
        assert batch[key] > starts[key] or end == starts[key]


def test_the_first_batch_does_not_wait() -> None:
    assert not TriggerDelay(100, 900).has_to_wait(1, 50.0)


def test_a_batch_waits_until_there_are_enough_records() -> None:
    delay = TriggerDelay(100, 900)
    delay.has_to_wait(0, 0.0)
    assert delay.has_to_wait(99, 1.0)
    assert not delay.has_to_wait(100, 2.0)
    assert delay.has_to_wait(99, 901.0)


def test_a_batch_waits_no_longer_than_the_delay_after_the_last_batch() -> None:
    delay = TriggerDelay(100, 900)
    delay.has_to_wait(0, 10.0)
    assert delay.has_to_wait(1, 909.9)
    assert not delay.has_to_wait(1, 910.0)
    assert delay.has_to_wait(1, 911.0)
