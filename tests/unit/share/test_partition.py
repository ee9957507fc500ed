"""What a partition of a share session sends next: settled records, and parts of refused batches."""

from typing import Any
from uuid import UUID

from set_clock import SetClock

from aiokclient import TopicPartition
from aiokclient.share.locks import AcknowledgeType, Acquisition, LockEvent, LockState, Run
from aiokclient.share.partition import SharePartition, split_by_deadline

S, E, T = LockState, LockEvent, AcknowledgeType


def make(*ranges: tuple[int, int], deadline: float = 30.0) -> SharePartition:
    """Return a partition that has acquired these offsets, from the first to before the second."""
    clock: Any = SetClock()
    partition = SharePartition(TopicPartition("t", 0), UUID(int=1), clock)
    for first, stop in ranges:
        acquisition = Acquisition(partition, first, stop - 1, 1, deadline, 30.0)
        acquisition.apply_event(E.DELIVER, 0, stop - first)
        partition.add_acquisition(acquisition)
    return partition


def settle(partition: SharePartition, *offsets: int, kind: AcknowledgeType = T.ACCEPT) -> None:
    for offset in offsets:
        for each in partition.acquisitions:
            index = offset - each.first
            if 0 <= index < len(each.states):
                partition.settle_run(Run(each, index, index + 1), kind)


def offsets_of(runs: list[Run]) -> list[int]:
    return [offset for run in runs for offset in run.list_offsets()]


def send(partition: SharePartition, now: float = 0.0) -> list[Run]:
    """Take what is settled, as a request that is written."""
    due, _ = partition.take_settled(now)
    for run in due:
        run.apply_event(E.SEND)
    return due


def test_settled_records_are_taken_once_in_the_order_of_offsets() -> None:
    partition = make((20, 30), (0, 10))
    settle(partition, 25, 3, 4, 21)
    assert partition.has_settled
    due = send(partition)
    assert offsets_of(due) == [3, 4, 21, 25]
    assert not partition.has_settled
    assert partition.take_settled(0.0) == ([], [])


def test_settled_records_whose_locks_have_ended_are_not_sent() -> None:
    partition = make((0, 4), deadline=30.0)
    late = make((10, 14), deadline=10.0)
    (acquisition,) = late.acquisitions
    partition.add_acquisition(acquisition)
    settle(partition, 1, 11)
    due, expired = partition.take_settled(10.0)
    assert (offsets_of(due), offsets_of(expired)) == ([1], [11])


def test_records_with_deadlines_of_their_own_are_told_apart() -> None:
    partition = make((0, 6), deadline=10.0)
    (acquisition,) = partition.acquisitions
    acquisition.extend_locks(Run(acquisition, 2, 4), 40.0, 30.0)
    settle(partition, 0, 1, 2, 3, 4, 5)
    due, expired = partition.take_settled(20.0)
    assert (offsets_of(due), offsets_of(expired)) == ([2, 3], [0, 1, 4, 5])
    whole = Run(acquisition, 0, 6)
    assert [(r.start, r.stop) for r in split_by_deadline(whole, 20.0)] == [(0, 2), (2, 4), (4, 6)]
    assert list(split_by_deadline(whole, 5.0)) == [whole]
    assert list(split_by_deadline(whole, 50.0)) == [whole]


def test_a_refused_batch_is_halved_until_the_refused_record_is_alone() -> None:
    partition = make((0, 5), (5, 16))
    settle(partition, *range(16))
    bad, sent, confirmed = 11, 0, []
    while due := send(partition):
        sent += 1
        offsets = offsets_of(due)
        if bad not in offsets:
            confirmed += offsets
            for run in due:
                run.apply_event(E.CONFIRM)
        elif len(offsets) > 1:
            partition.split_runs(due)
        else:
            for run in due:
                run.apply_event(E.LOSE)
    assert sorted(confirmed) == [offset for offset in range(16) if offset != bad]
    assert sent == 9  # 16, and two halves four times.
    assert not partition.has_settled


def test_records_settled_meanwhile_are_sent_after_the_parts_of_a_refused_batch() -> None:
    partition = make((0, 6))
    settle(partition, 0, 1)
    partition.split_runs(send(partition))
    settle(partition, 4)
    taken = []
    while partition.has_settled and (due := send(partition)):
        taken.append((offsets_of(due), partition.is_split))
        for run in due:
            run.apply_event(E.CONFIRM)
    assert taken == [([0], True), ([1], True), ([4], False)]


def test_parts_of_a_refused_batch_that_expire_or_are_lost_are_not_sent() -> None:
    partition = make((0, 4))
    (acquisition,) = partition.acquisitions
    settle(partition, 0, 1, 2, 3)
    partition.split_runs(send(partition))
    acquisition.apply_event(E.LOSE, 0, 1)
    assert offsets_of(send(partition)) == [1]
    due, expired = partition.take_settled(30.0)
    assert (due, offsets_of(expired)) == ([], [2, 3])


def test_a_return_in_doubt_is_remembered() -> None:
    partition = make((0, 4))
    (acquisition,) = partition.acquisitions
    settle(partition, 0, 1)
    partition.return_runs(send(partition))
    assert acquisition.doubtful == set()
    assert partition.has_settled
    partition.return_runs(send(partition), is_certain=False)
    assert acquisition.doubtful == {0, 1}
    assert offsets_of(send(partition)) == [0, 1]


def test_open_records_are_found_among_offsets_that_are_acquired_again() -> None:
    partition = make((0, 4), (4, 8), (10, 12))
    first, *_ = partition.acquisitions
    first.apply_event(E.LOSE, 2, 3)
    assert offsets_of(partition.find_open_among(1, 5)) == [1, 3, 4, 5]
    assert partition.find_open_among(8, 9) == []
    assert offsets_of(partition.find_open_among(0, 100)) == [0, 1, 3, 4, 5, 6, 7, 10, 11]


def test_finished_acquisitions_are_forgotten() -> None:
    partition = make((0, 2), (4, 6))
    first, second = partition.acquisitions
    first.apply_event(E.LOSE, 0, 2)
    partition.remove_finished()
    assert list(partition.acquisitions) == [second]
    assert partition.has_open()
    settle(partition, 4, 5)
    for run in send(partition):
        run.apply_event(E.CONFIRM)
    partition.remove_finished()
    assert not partition.has_open()
    assert not list(partition.acquisitions)
