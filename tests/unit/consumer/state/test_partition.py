"""Tests of a partition's position: every phase with every event, and the effects of its jumps."""

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient import TopicPartition
from aiokclient.consumer.state.offset_reset import EARLIEST
from aiokclient.consumer.state.partition import (
    TRANSITIONS,
    DeliveredList,
    Event,
    PartitionState,
    Phase,
)
from aiokclient.errors import IllegalStateError, KafkaError

P, E = Phase, Event

EXPECTED = {
    (P.AWAITING, E.SEEK): P.FETCHING,
    (P.AWAITING, E.RESET): P.RESETTING,
    (P.AWAITING, E.FAIL): P.FAILED,
    (P.RESETTING, E.SEEK): P.FETCHING,
    (P.RESETTING, E.RESET): P.RESETTING,
    (P.RESETTING, E.FAIL): P.FAILED,
    (P.VALIDATING, E.SEEK): P.FETCHING,
    (P.VALIDATING, E.RESET): P.RESETTING,
    (P.VALIDATING, E.NEW_LEADER): P.VALIDATING,
    (P.VALIDATING, E.CONFIRMED): P.FETCHING,
    (P.VALIDATING, E.FAIL): P.FAILED,
    (P.FETCHING, E.SEEK): P.FETCHING,
    (P.FETCHING, E.RESET): P.RESETTING,
    (P.FETCHING, E.NEW_LEADER): P.VALIDATING,
    (P.FETCHING, E.FAIL): P.FAILED,
    (P.FAILED, E.SEEK): P.FETCHING,
    (P.FAILED, E.RESET): P.RESETTING,
    (P.FAILED, E.FAIL): P.FAILED,
    (P.AWAITING, E.AWAIT): P.AWAITING,
    (P.RESETTING, E.AWAIT): P.AWAITING,
    (P.VALIDATING, E.AWAIT): P.AWAITING,
    (P.FETCHING, E.AWAIT): P.AWAITING,
    (P.FAILED, E.AWAIT): P.AWAITING,
}


def made() -> PartitionState:
    return PartitionState(TopicPartition("t", 0))


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(Phase, Event)))
def test_the_table_has_every_transition(phase: Phase, event: Event) -> None:
    assert TRANSITIONS.get((phase, event)) is EXPECTED.get((phase, event))


def test_an_event_without_a_row_raises() -> None:
    with pytest.raises(IllegalStateError, match="CONFIRMED"):
        made().confirm_position()


def test_a_jump_voids_what_was_asked_before() -> None:
    state = made()
    state.seek(5)
    state.retry.delay_request(100.0)
    state.fetch_again(5)
    before = state.generation
    state.seek(9)
    assert state.generation != before
    assert (state.position, state.processed, state.fetch.offset) == (9, 9, 9)
    assert (state.retry.at, state.retry.attempts, state.fetch.damaged_at) == (0.0, 0, -1)


def test_the_first_leader_needs_no_validation() -> None:
    state = made()
    state.seek(5)
    assert not state.set_leader_epoch(3)
    assert state.phase is Phase.FETCHING


def test_a_new_leader_calls_for_validation_and_drops_what_is_ahead() -> None:
    state = made()
    state.set_leader_epoch(3)
    state.set_located_offset(5, 3)
    state.fetch.fetch_from(50)
    before = state.generation
    assert state.set_leader_epoch(4)
    assert state.phase is Phase.VALIDATING
    assert state.fetch.offset == 5
    assert state.generation != before
    assert state.is_located
    state.confirm_position()
    assert state.is_readable
    assert not state.set_leader_epoch(4)
    assert not state.set_leader_epoch(-1)
    assert state.leader_epoch == 4


def test_a_leader_epoch_that_goes_back_is_used_without_a_validation() -> None:
    state = made()
    state.set_leader_epoch(3)
    state.set_located_offset(5, 3)
    state.set_leader_epoch(9)
    assert state.phase is Phase.VALIDATING
    assert not state.set_leader_epoch(2)
    assert (state.leader_epoch, state.phase, state.position) == (2, Phase.FETCHING, 5)
    assert state.set_leader_epoch(4)


def test_a_seek_to_an_older_history_is_validated() -> None:
    state = made()
    state.set_leader_epoch(7)
    state.seek(5, 6)
    assert state.phase is Phase.VALIDATING
    state.seek(5, 7)
    assert state.phase is Phase.FETCHING
    state.seek(5)
    assert state.phase is Phase.FETCHING


def test_a_leader_that_changes_while_the_position_is_looked_up() -> None:
    state = made()
    state.look_up(EARLIEST)
    state.retry.delay_request(100.0)
    assert not state.set_leader_epoch(4)
    assert state.phase is Phase.RESETTING
    assert state.retry.at == 0.0
    assert not state.is_located


def test_a_failed_position_stays_failed_until_a_jump() -> None:
    state = made()
    state.seek(5)
    state.fail(KafkaError("no"))
    assert state.error is not None
    assert state.is_located
    assert not state.is_readable
    state.look_up(EARLIEST)
    assert state.error is None


def test_a_return_to_the_committed_offset_is_neither_located_nor_flowing() -> None:
    state = made()
    state.seek(5)
    state.return_to_committed(3)
    assert not state.is_located
    assert not state.is_readable
    assert state.group.fallback == 3
    state.seek(4)
    assert state.group.fallback == -1


@given(st.data())
def test_consumed_is_the_lowest_record_not_done_when_records_were_returned(
    data: st.DataObject,
) -> None:
    partition = PartitionState(TopicPartition("t", 0))
    partition.seek(0)
    for _ in range(data.draw(st.integers(0, 60))):
        outstanding = [entry[0] for entry in partition.outstanding.values()]
        step = data.draw(st.sampled_from(["deliver", "done", "return"]))
        if step == "deliver":
            offset = partition.position
            partition.track_record(Delivered(offset), float(offset))
            partition.move_position(offset + 1, 0)
        elif outstanding and step == "done":
            assert partition.finish_record(data.draw(st.sampled_from(outstanding)))
        elif outstanding:
            chosen = st.lists(st.sampled_from(outstanding), max_size=3, unique=True)
            partition.return_records(data.draw(chosen))
        lowest = min((*partition.outstanding, partition.position))
        assert partition.consumed == lowest
        entry = partition.find_lowest_record()
        assert (entry is None) == (not partition.outstanding)
        if entry is not None:
            assert entry[0].offset == min(partition.outstanding)


@given(st.data())
def test_each_record_before_consumed_is_done_when_lists_are_divided_and_returned(
    data: st.DataObject,
) -> None:
    partition = PartitionState(TopicPartition("t", 0))
    partition.seek(0)
    held: list[Any] = []
    done: set[int] = set()

    def deliver(count: int) -> None:
        first = partition.position
        records = DeliveredList(Delivered(offset) for offset in range(first, first + count))
        held.append(records)
        partition.track_record(records, 0.0)
        partition.move_position(first + count, 0)

    def divide(whole: DeliveredList) -> None:
        at = data.draw(st.integers(1, len(whole)))
        ways = [(whole[:at], whole[at:]), (whole[::2], whole[1::2])]
        parts: list[Any] = [
            DeliveredList(each) for each in data.draw(st.sampled_from(ways)) if each
        ]
        if data.draw(st.booleans()):
            parts = list(whole)
        partition.divide_list(whole, parts)
        held.extend(parts)

    for _ in range(data.draw(st.integers(0, 40))):
        step = data.draw(st.sampled_from(["deliver", "done", "divide", "return"]))
        if step == "deliver" or not held:
            deliver(data.draw(st.integers(1, 5)))
            continue
        entry = held.pop(data.draw(st.integers(0, len(held) - 1)))
        if step == "done":
            partition.finish_record(entry)
            done |= offsets_of(entry)
        elif step == "divide" and isinstance(entry, DeliveredList):
            divide(entry)
        else:
            partition.return_records([entry])
        assert done.issuperset(range(partition.consumed))
        assert partition.count_outstanding() >= len(partition.outstanding)
    for entry in held:
        partition.finish_record(entry)
    assert not partition.outstanding
    assert partition.consumed == partition.position


def test_a_divided_list_leaves_what_was_delivered_again_outstanding() -> None:
    partition = PartitionState(TopicPartition("t", 0))
    partition.seek(0)
    first = DeliveredList(Delivered(offset) for offset in range(5))
    even, odd = DeliveredList(first[::2]), DeliveredList(first[1::2])
    partition.track_record(first, 0.0)
    partition.move_position(5, 0)
    partition.divide_list(first, (even, odd))
    partition.return_records([odd])
    again = DeliveredList(Delivered(offset) for offset in range(1, 7))
    odd, later = DeliveredList(again[::2]), DeliveredList(again[1::2])
    partition.track_record(again, 0.0)
    partition.move_position(7, 0)
    partition.divide_list(again, (odd, later))
    partition.divide_list(even, even)  # Its offset 2 is that of `later`, too.
    for entry in (*even, odd):
        partition.finish_record(entry)
    assert partition.consumed == 2
    assert partition.finish_record(later)
    assert partition.consumed == 7


def test_a_list_that_was_delivered_before_a_jump_is_not_outstanding() -> None:
    partition = PartitionState(TopicPartition("t", 0))
    partition.seek(0)
    former, present = (DeliveredList(Delivered(offset) for offset in range(3)) for _ in range(2))
    partition.track_record(former, 0.0)
    partition.seek(0)
    partition.track_record(present, 0.0)
    partition.move_position(3, 0)
    partition.divide_list(former, former)
    assert not partition.finish_record(former)
    assert partition.count_outstanding() == 3
    assert partition.finish_record(present)


def test_the_lowest_record_is_found_without_a_look_at_all_others() -> None:
    partition = PartitionState(TopicPartition("t", 0))
    partition.seek(0)
    records = [Delivered(offset) for offset in range(10_000)]
    for record in records:
        partition.track_record(record, 0.0)
    partition.move_position(len(records), 0)
    partition.return_records(records[:1])
    looked = CountingOffsets(partition.outstanding)
    partition.outstanding = looked
    for record in reversed(records[1:]):
        assert partition.finish_record(record)
    assert looked.iterations == 0


def offsets_of(entry: Any) -> set[int]:
    return {each.offset for each in (entry if isinstance(entry, DeliveredList) else [entry])}


class Delivered:
    """A record that was delivered."""

    leader_epoch = 0

    def __init__(self, offset: int) -> None:
        self.offset = offset


class CountingOffsets(OrderedDict[int, Any]):
    """Outstanding records that count how often something looks at all of them."""

    iterations = 0

    def __iter__(self) -> Iterator[int]:
        self.iterations += 1
        return super().__iter__()
