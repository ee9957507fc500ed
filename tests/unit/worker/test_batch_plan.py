"""The plan of a transactional worker: which lists it may handle while records are pending."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aiokclient import TopicPartition
from aiokclient.worker.retry import Outcome, Verdict
from aiokclient.worker.transactions import BatchPlan

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def records(*offsets: int, partition: int = 0) -> list[Any]:
    return [SimpleNamespace(topic="t", partition=partition, offset=o) for o in offsets]


def topics(due_ms: dict[int, int] | None = None) -> Any:
    """Return retry topics whose records are due then, by offset; or else at once."""
    return SimpleNamespace(
        find_due_ms=lambda record: (due_ms or {}).get(record.offset, 0),
        has_retry_topics=lambda: bool(due_ms),
    )


def test_list_with_a_pending_record_and_others_is_read_again_up_to_it() -> None:
    plan = BatchPlan()
    plan.add_pending(records(2)[0])
    assert plan.find_limits(()) == {}, "where it is is not known"
    assert not plan.may_handle(records(0, 1, 2, 3), 0, topics())
    assert plan.find_limits(()) == {T0: 2}
    assert plan.may_handle(records(0, 1), 0, topics())
    plan.on_committed(records(0, 1))
    assert plan.find_limits(()) == {T0: 0}
    assert plan.may_handle(records(2), 0, topics())
    plan.on_committed(records(2))
    assert (len(plan), plan.find_limits(())) == (0, {})


def test_an_aborted_list_is_expected_again_with_its_first_pending_records() -> None:
    plan = BatchPlan()
    others = records(7, 8, 9, partition=1)
    for record in (*records(3, 4), others[2]):
        plan.add_pending(record)
    plan.expect_list([*records(2, 3, 4), *others, *records(0, partition=2)])
    assert plan.find_limits(()) == {T0: 1, T1: 2}
    assert plan.find_limits([T0]) == {T1: 2}
    assert plan.may_handle([*records(2), *others[:2], *records(0, partition=2)], 0, topics())


def test_partition_waits_until_its_next_record_is_due() -> None:
    plan = BatchPlan()
    plan.add_pending(records(0)[0]).decide(Verdict(Outcome.AGAIN), 500)
    assert not plan.may_handle(records(0), 100, topics())
    assert plan.list_waiting(100) == {T0: 500}
    assert plan.find_limits([T0]) == {}, "the others are read without a limit"
    assert plan.may_handle(records(5, 6, partition=1), 100, topics())
    assert plan.list_waiting(500) == {}
    assert plan.may_handle(records(0), 500, topics())


def test_record_that_is_not_due_is_pending() -> None:
    plan = BatchPlan()
    assert not plan.may_handle(records(0, 1), 100, topics({0: 900, 1: 50}))
    assert plan.list_waiting(100) == {T0: 900}
    assert plan.may_handle(records(0), 900, topics({0: 900}))


def test_record_that_another_member_has_handled_is_forgotten() -> None:
    plan = BatchPlan()
    plan.add_pending(records(3)[0])
    assert plan.may_handle(records(4, 5), 0, topics())
    assert len(plan) == 0


@given(st.sets(st.integers(0, 19)), st.integers(1, 7))
def test_all_records_are_handled_in_order_and_pending_ones_alone(
    pending: set[int], most: int
) -> None:
    plan = BatchPlan()
    for offset in pending:
        plan.add_pending(records(offset)[0])
    position, handled = 0, []
    for _ in range(200):
        limit = max(plan.find_limits(()).get(T0, most), 1)
        batch = records(*range(20))[position : position + min(most, limit)]
        if not batch:
            break
        if plan.may_handle(batch, 0, topics()):
            handled.append([record.offset for record in batch])
            plan.on_committed(batch)
            position += len(batch)
    assert [offset for each in handled for offset in each] == list(range(20))
    assert all([offset] in handled for offset in pending)
