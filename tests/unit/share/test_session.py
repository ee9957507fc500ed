"""The requests of a share session: epochs, the partitions in it, and acknowledgements."""

from typing import Any
from uuid import UUID

import pytest
from set_clock import SetClock

from aiokclient import TopicPartition
from aiokclient.share.locks import AcknowledgeType, Acquisition, LockEvent, Run
from aiokclient.share.partition import SharePartition
from aiokclient.share.session import NOTHING, FetchSize, ShareSession

T = AcknowledgeType
SIZE = FetchSize(100, 500, 1, 50_000_000, 1)
A, B = UUID(int=1), UUID(int=2)


def make_partition(topic_id: UUID = A, number: int = 0) -> SharePartition:
    clock: Any = SetClock()
    return SharePartition(TopicPartition("t", number), topic_id, clock)


def acquire(partition: SharePartition, first: int, count: int) -> Acquisition:
    acquisition = Acquisition(partition, first, first + count - 1, 1, 30.0, 30.0)
    partition.add_acquisition(acquisition)
    return acquisition


def open_session(*partitions: SharePartition) -> ShareSession:
    session = ShareSession("g", "m")
    session.make_fetch(partitions, {}, SIZE)
    session.count_request()
    return session


def topics_of(request: Any) -> dict[tuple[UUID, int], list[tuple[int, int, list[int]]]]:
    """Return the partitions in a request, with their batches of acknowledgements."""
    return {
        (topic.topic_id, each.partition_index): [
            (batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in each.acknowledgement_batches
        ]
        for topic in request.topics
        for each in topic.partitions
    }


def forgotten_by(request: Any) -> list[tuple[UUID, int]]:
    return [
        (topic.topic_id, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]


def test_a_session_is_opened_by_a_fetch_of_all_partitions() -> None:
    partitions = [make_partition(A, 0), make_partition(B, 0), make_partition(A, 1)]
    session = ShareSession("g", "m")
    assert not session.is_open
    request = session.make_fetch(partitions, {}, SIZE)
    assert (request.group_id, request.member_id, request.share_session_epoch) == ("g", "m", 0)
    assert (request.max_records, request.max_wait_ms, request.batch_size) == (100, 500, 100)
    assert (request.min_bytes, request.max_bytes) == (1, 50_000_000)
    assert request.share_acquire_mode == 1
    assert topics_of(request) == {(A, 0): [], (A, 1): [], (B, 0): []}
    assert [topic.topic_id for topic in request.topics] == [A, B]
    assert forgotten_by(request) == []
    session.count_request()
    assert session.is_open
    assert session.epoch == 1


def test_a_fetch_of_epoch_0_cannot_acknowledge() -> None:
    partition = make_partition()
    session = ShareSession("g", "m")
    with pytest.raises(AssertionError):
        session.make_fetch([partition], {partition: [Run(acquire(partition, 0, 1), 0, 1)]}, SIZE)


def test_epochs_count_requests_and_begin_again_after_the_largest() -> None:
    session = open_session(make_partition())
    assert session.make_acknowledgement({}).share_session_epoch == 1
    session.count_request()
    assert session.make_renewal({}).share_session_epoch == 2
    session.epoch = 2147483646
    session.count_request()
    assert session.epoch == 2147483647
    assert session.make_fetch([], {}, NOTHING).share_session_epoch == 2147483647
    session.count_request()
    assert session.epoch == 1
    assert session.make_last({}).share_session_epoch == -1
    session.reset()
    assert session.epoch == 0
    assert not session.is_open


def test_later_fetches_list_only_what_changes() -> None:
    first, second, third = (make_partition(A, number) for number in range(3))
    session = open_session(first, second)
    assert topics_of(session.make_fetch([first, second], {}, SIZE)) == {}
    request = session.make_fetch([second, third], {}, SIZE)
    assert topics_of(request) == {(A, 2): []}
    assert forgotten_by(request) == [(A, 0)]
    assert [session.has_partition(each) for each in (first, second, third)] == [False, True, True]
    assert session.find_partition(A, 2) is third
    assert session.find_partition(A, 0) is None
    # A partition that comes back is listed again.
    request = session.make_fetch([first, second, third], {}, SIZE)
    assert topics_of(request) == {(A, 0): []}


def test_a_recreated_topic_is_another_partition() -> None:
    old, new = make_partition(A), make_partition(B)
    session = open_session(old)
    request = session.make_fetch([new], {}, SIZE)
    assert topics_of(request) == {(B, 0): []}
    assert forgotten_by(request) == [(A, 0)]


def test_a_new_session_lists_everything_again() -> None:
    first, second = make_partition(A, 0), make_partition(A, 1)
    session = open_session(first, second)
    session.reset()
    assert not session.has_partition(first)
    request = session.make_fetch([first, second], {}, SIZE)
    assert topics_of(request) == {(A, 0): [], (A, 1): []}
    assert forgotten_by(request) == []


def test_batches_ascend_and_neighbors_of_one_type_are_one() -> None:
    partition = make_partition()
    session = open_session(partition)
    first, second = acquire(partition, 0, 5), acquire(partition, 5, 5)
    partition.settle_run(Run(first, 0, 5), T.ACCEPT)
    partition.settle_run(Run(second, 0, 2), T.ACCEPT)
    partition.settle_run(Run(second, 3, 5), T.REJECT)
    due, _ = partition.take_settled(0.0)
    request = session.make_fetch([partition], {partition: due}, SIZE)
    assert topics_of(request) == {(A, 0): [(0, 6, [1]), (8, 9, [3])]}


def test_a_run_of_several_types_has_one_for_each_offset() -> None:
    partition = make_partition()
    session = open_session(partition)
    acquisition = acquire(partition, 10, 5)
    for index, kind in enumerate((T.ACCEPT, T.RELEASE, T.REJECT, T.GAP, T.ACCEPT)):
        partition.settle_run(Run(acquisition, index, index + 1), kind)
    due, _ = partition.take_settled(0.0)
    for run in due:
        run.apply_event(LockEvent.SEND)
    request = session.make_acknowledgement({partition: due})
    assert topics_of(request) == {(A, 0): [(10, 14, [1, 2, 3, 0, 1])]}
    assert not request.is_renew_ack


def test_a_renewal_has_type_4_for_all_records_whatever_their_state() -> None:
    partition = make_partition()
    session = open_session(partition)
    first, second = acquire(partition, 0, 3), acquire(partition, 3, 3)
    request = session.make_renewal({partition: [Run(first, 1, 3), Run(second, 0, 1)]})
    assert request.is_renew_ack
    assert topics_of(request) == {(A, 0): [(1, 3, [4])]}


def test_acknowledgements_of_a_forgotten_partition_leave_the_session_as_it_is() -> None:
    kept, gone = make_partition(A, 0), make_partition(A, 1)
    session = open_session(kept, gone)
    session.make_fetch([kept], {}, SIZE)
    acquisition = acquire(gone, 0, 1)
    gone.settle_run(Run(acquisition, 0, 1), T.ACCEPT)
    request = session.make_acknowledgement({gone: [Run(acquisition, 0, 1)]})
    assert topics_of(request) == {(A, 1): [(0, 0, [1])]}
    assert not session.has_partition(gone)


def test_a_fetch_that_acquires_nothing_is_answered_immediately() -> None:
    partition = make_partition()
    request = open_session(partition).make_fetch([partition], {}, NOTHING)
    assert (request.max_records, request.max_wait_ms) == (0, 0)
    assert (request.min_bytes, request.max_bytes) == (0, 0)
    assert request.batch_size == 1
