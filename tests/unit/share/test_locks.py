"""The states of acquired records: every state with every event, runs, reasons, and deadlines."""

import math
from typing import Any, cast
from uuid import UUID

import pytest
from set_clock import SetClock

from aiokclient import TopicPartition
from aiokclient.share.locks import (
    TABLE,
    AcknowledgeType,
    Acquisition,
    LockEvent,
    LockState,
    Run,
    acknowledge_types,
)
from aiokclient.share.partition import SharePartition

S, E, T = LockState, LockEvent, AcknowledgeType
TYPES = (T.GAP, T.ACCEPT, T.RELEASE, T.REJECT)

NEXT = {
    #            DELIVER  SETTLE     SEND    CONFIRM     RETURN     LOSE    REFUSE
    S.WAITING: (S.HELD, S.SETTLED, None, None, None, S.LOST, None),
    S.HELD: (None, S.SETTLED, None, None, None, S.LOST, None),
    S.SETTLED: (None, None, S.SENT, None, None, S.LOST, None),
    S.SENT: (None, None, None, S.FINISHED, S.SETTLED, S.LOST, S.REFUSED),
    S.FINISHED: (None,) * 7,
    S.LOST: (None,) * 7,
    S.REFUSED: (None,) * 7,
}
"""The next state by state, for the events in their order. None stands for no change."""


def acquire(count: int = 10, first: int = 100, deadline: float = 30.0) -> Acquisition:
    partition: Any = SharePartition(TopicPartition("t", 0), UUID(int=1), cast(Any, SetClock()))
    return Acquisition(partition, first, first + count - 1, 1, deadline, 30.0)


def put(acquisition: Acquisition, state: LockState, kind: AcknowledgeType = T.GAP) -> None:
    """Bring all records into a state by events, with a type if it has one."""
    stop = len(acquisition.states)
    steps: dict[LockState, list[LockEvent]] = {
        S.WAITING: [],
        S.HELD: [E.DELIVER],
        S.SETTLED: [E.SETTLE],
        S.SENT: [E.SETTLE, E.SEND],
        S.FINISHED: [E.SETTLE, E.SEND, E.CONFIRM],
        S.LOST: [E.LOSE],
        S.REFUSED: [E.SETTLE, E.SEND, E.REFUSE],
    }
    for event in steps[state]:
        if event is E.SETTLE:
            acquisition.settle_run(kind, 0, stop)
        else:
            acquisition.apply_event(event, 0, stop)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("event", LockEvent)
@pytest.mark.parametrize("state", LockState)
def test_each_state_has_one_answer_to_each_event(
    state: LockState, event: LockEvent, kind: AcknowledgeType
) -> None:
    acquisition = acquire(3)
    put(acquisition, state, kind)
    assert acquisition.get_state(101) is state
    before = bytes(acquisition.states)
    if event is E.SETTLE:
        acquisition.settle_run(kind, 1, 2)
    else:
        acquisition.apply_event(event, 1, 2)
    expected = NEXT[state][list(LockEvent).index(event)]
    assert TABLE.get((state, event)) is expected
    assert acquisition.get_state(101) is (state if expected is None else expected)
    if expected is None:
        assert acquisition.states == before
    # The others stay as they are, and the type stays with a settlement until its outcome.
    assert (acquisition.states[0], acquisition.states[2]) == (before[0], before[2])
    if acquisition.get_state(101) in (S.SETTLED, S.SENT):
        assert acquisition.states[1] & 0x0F == kind


def test_a_settlement_keeps_the_one_before() -> None:
    acquisition = acquire(4)
    acquisition.settle_run(T.RELEASE, 1, 2)
    acquisition.settle_run(T.ACCEPT, 0, 4)
    assert acknowledge_types(Run(acquisition, 0, 4)) == [1, 2, 1, 1]
    assert acknowledge_types(Run(acquisition, 2, 4)) == [1]


def test_runs_are_found_by_state() -> None:
    acquisition = acquire(10)
    acquisition.apply_event(E.DELIVER, 2, 8)
    acquisition.settle_run(T.ACCEPT, 3, 5)
    acquisition.apply_event(E.SEND, 4, 5)
    acquisition.apply_event(E.LOSE, 7, 8)

    def find(state: LockState) -> list[tuple[int, int]]:
        return [(run.start, run.stop) for run in acquisition.find_runs(state)]

    assert find(S.WAITING) == [(0, 2), (8, 10)]
    assert find(S.HELD) == [(2, 3), (5, 7)]
    assert find(S.SETTLED) == [(3, 4)]
    assert find(S.SENT) == [(4, 5)]
    assert [(run.start, run.stop) for run in acquisition.find_open_runs()] == [(0, 7), (8, 10)]
    assert acquisition.count_state(S.WAITING) == 4
    assert [acquisition.has_state(state) for state in (S.WAITING, S.HELD, S.SETTLED, S.SENT)] == (
        [True] * 4
    )
    assert acquisition.has_open()
    acquisition.apply_event(E.LOSE, 0, 10)
    assert not acquisition.has_open()
    assert not list(acquisition.find_open_runs())


def test_the_reasons_of_many_losses_take_little_memory() -> None:
    acquisition = acquire(1000)
    for index in range(1000):
        reason: Any = "expired" if index < 600 else "refused"
        acquisition.note_reason(Run(acquisition, index, index + 1), reason)
    assert len(acquisition._reasons) == 2
    assert acquisition.find_reason(100) == acquisition.find_reason(699) == "expired"
    assert acquisition.find_reason(700) == acquisition.find_reason(1099) == "refused"
    assert acquire().find_reason(100) == "expired"


def test_a_record_is_lost_at_its_deadline_unless_it_is_settled() -> None:
    acquisition = acquire(3)
    acquisition.apply_event(E.DELIVER, 0, 2)
    acquisition.settle_run(T.ACCEPT, 1, 2)
    clock: Any = acquisition.partition.clock
    assert not any(acquisition.is_lost(offset) for offset in (100, 101, 102))
    clock.now = 30.0
    assert [acquisition.is_lost(offset) for offset in (100, 101, 102)] == [True, False, True]
    acquisition.apply_event(E.LOSE, 1, 2)
    clock.now = 0.0
    assert [acquisition.is_lost(offset) for offset in (100, 101, 102)] == [False, True, False]


def test_renewed_records_have_deadlines_of_their_own() -> None:
    acquisition = acquire(4)
    acquisition.apply_event(E.DELIVER, 0, 4)
    acquisition.extend_locks(Run(acquisition, 1, 3), 45.0, 20.0)
    assert acquisition.has_own_deadlines()
    assert [acquisition.find_deadline(100 + i) for i in range(4)] == [30.0, 45.0, 45.0, 30.0]
    assert acquisition.lock_s == 20.0
    assert acquisition.find_first_deadline(S.HELD) == 30.0
    assert acquisition.find_first_deadline(S.SENT) == math.inf
    acquisition.settle_run(T.ACCEPT, 0, 1)
    acquisition.apply_event(E.LOSE, 3, 4)
    assert acquisition.find_first_deadline(S.HELD) == 45.0
    assert acquisition.find_first_deadline(S.SETTLED) == 30.0
    # Once all open records are renewed together, they have one deadline again.
    acquisition.apply_event(E.LOSE, 0, 1)
    acquisition.extend_locks(Run(acquisition, 1, 3), 60.0, 20.0)
    assert not acquisition.has_own_deadlines()
    assert acquisition.deadline == 60.0
