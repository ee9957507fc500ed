"""Tests of the records that `read_committed` skips."""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.consumer.fetching.buffer import visible
from aiokclient.errors import CorruptRecordError
from aiokclient.record.batch import RecordBatch


class Batch(NamedTuple):
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False
    kind: int = -1

    def control_type(self) -> int:
        if self.kind < 0:
            raise CorruptRecordError("no type")
        return self.kind


def data(offset: int, producer_id: int) -> Batch:
    return Batch(offset, producer_id, is_transactional=True)


def marker(offset: int, producer_id: int, kind: int) -> Batch:
    return Batch(offset, producer_id, is_transactional=True, is_control=True, kind=kind)


def shown(log: Sequence[Batch], aborted: Iterable[tuple[int, int]] = ()) -> list[bool]:
    return visible(cast("Sequence[RecordBatch]", log), aborted)


ABORT, COMMIT = 0, 1


def test_without_transactions_all_but_markers_is_visible() -> None:
    assert shown([Batch(0), marker(1, 5, COMMIT), Batch(2)]) == [True, False, True]


def test_an_aborted_transaction_is_left_out_up_to_its_marker() -> None:
    log = [data(0, 1), data(1, 2), marker(2, 1, ABORT), data(3, 1), Batch(4, 1)]
    assert shown(log, [(1, 0)]) == [False, True, False, True, True]


def test_two_aborted_transactions_of_one_producer() -> None:
    log = [data(0, 1), marker(1, 1, ABORT), data(2, 1), marker(3, 1, COMMIT), data(4, 1)]
    assert shown(log, [(1, 0), (1, 4)]) == [False, False, True, False, False]


def test_a_transaction_that_began_before_the_fetch() -> None:
    assert shown([data(9, 1), marker(10, 1, ABORT), data(11, 1)], [(1, 2)]) == [
        False,
        False,
        True,
    ]


def test_a_marker_that_cannot_be_read_ends_nothing() -> None:
    assert shown([data(0, 1), marker(1, 1, -1), data(2, 1)], [(1, 0)]) == [False, False, False]


@pytest.mark.fault(52)
def test_aborted_transactions_may_be_listed_out_of_order() -> None:
    log = [data(0, 1), data(1, 2), marker(2, 2, ABORT), marker(3, 1, ABORT), data(4, 2)]
    for aborted in ([(1, 0), (2, 1)], [(2, 1), (1, 0)]):
        assert shown(log, aborted) == [False, False, False, False, True]


@pytest.mark.fault(52)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["data", "abort", "commit"])), max_size=40
    ),
    st.randoms(use_true_random=False),
)
def test_exactly_what_was_committed_is_visible(
    steps: list[tuple[int, str]], rng: random.Random
) -> None:
    """The log has random interleaved transactions. The list of aborted ones has a random order."""
    log: list[Batch] = []
    first: dict[int, int] = {}
    open_batches: dict[int, list[int]] = {}
    expected: dict[int, bool] = {}
    aborted: list[tuple[int, int]] = []
    for producer, step in [*steps, *((producer, "commit") for producer in range(1, 5))]:
        offset = len(log)
        if step == "data":
            log.append(data(offset, producer))
            first.setdefault(producer, offset)
            open_batches.setdefault(producer, []).append(offset)
            continue
        if producer not in first:
            continue
        log.append(marker(offset, producer, ABORT if step == "abort" else COMMIT))
        expected[offset] = False
        expected |= dict.fromkeys(open_batches.pop(producer), step == "commit")
        began = first.pop(producer)
        if step == "abort":
            aborted.append((producer, began))
    rng.shuffle(aborted)
    assert shown(log, aborted) == [expected[offset] for offset in range(len(log))]
