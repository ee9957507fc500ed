"""Tests of the tables of share groups: the life of records, sessions, and assignments."""

import random
from uuid import UUID

import pytest

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.server_assignors import PartitionId, Subscriber
from aiokclient.testing.broker.share.assignor import assign_simple
from aiokclient.testing.broker.share.records import (
    Acknowledgement,
    AckType,
    Acquired,
    Limits,
    OffsetRange,
    RecordState,
    RecordTable,
    StateChange,
    Wanted,
)
from aiokclient.testing.broker.share.sessions import SessionKey, ShareSessions
from aiokclient.testing.broker.share.states import ShareState

LIMITS = Limits(deliveries=5, window=100)
KEY = SessionKey("group", "a")


def acquire(table, *batches, member="a", records=500, strict=False, deadline=1.0, limits=LIMITS):
    ranges = [OffsetRange(*each) for each in batches]
    wanted = Wanted(records, 500, strict)
    found = table.find_next_offset()
    return table.acquire(member, ranges, found, wanted, limits, deadline)


def settle(table, first, last, *types, member="a", deadline=9.0, limits=LIMITS):
    batch = Acknowledgement(first, last, types)
    settled = table.check_acknowledgements(member, [batch], deadline, can_renew=True)
    return table.apply_settlements(settled, limits)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (AckType.GAP, RecordState.ARCHIVED),
        (AckType.ACCEPT, RecordState.ACKNOWLEDGED),
        (AckType.RELEASE, RecordState.AVAILABLE),
        (AckType.REJECT, RecordState.ARCHIVED),
    ],
)
def test_settled_records_are_persisted_in_their_state(kind, state):
    table = RecordTable(0)
    acquire(table, (0, 9))
    assert settle(table, 2, 3, kind) == [StateChange(2, 2, state, 1), StateChange(3, 3, state, 1)]
    assert table.start == 0


def test_last_delivery_archives_released_records_and_buries_them():
    table = RecordTable(0)
    limits = Limits(2, 100)
    for _ in range(2):
        acquire(table, (0, 1), limits=limits)
        settle(table, 0, 1, AckType.RELEASE, limits=limits)
    assert table.start == 2
    assert [(each.offset, each.deliveries, each.is_rejected) for each in table.dead] == [
        (0, 2, False),
        (1, 2, False),
    ]


def test_renewed_locks_end_later_than_the_others():
    table = RecordTable(0)
    acquire(table, (0, 3))
    assert settle(table, 1, 1, AckType.RENEW, deadline=2.0) == []
    assert [each.first for each in table.expire_locks(1.5, LIMITS)] == [0, 2, 3]
    assert table.find_deadline() == 2.0
    assert [each.first for each in table.expire_locks(2.0, LIMITS)] == [1]
    assert table.find_deadline() is None


def test_gap_of_a_loaded_table_is_acquired_like_new_records():
    persisted = [
        StateChange(0, 1, RecordState.ACKNOWLEDGED, 1),
        StateChange(4, 5, RecordState.AVAILABLE, 2),
    ]
    table = RecordTable(0, persisted)
    assert (table.start, table.find_next_offset()) == (2, 2)
    assert acquire(table, (0, 9)) == [Acquired(2, 3, 1), Acquired(4, 5, 3), Acquired(6, 9, 1)]


def test_offsets_whose_batches_are_gone_are_skipped():
    table = RecordTable(0)
    assert acquire(table, (3, 5)) == [Acquired(3, 5, 1)]
    assert table.start == 3
    # The batches from 6 to 8 are gone as well. Released records before the gap come again.
    assert acquire(table, (9, 11)) == [Acquired(9, 11, 1)]
    settle(table, 3, 5, AckType.RELEASE)
    assert acquire(table, (4, 5), (9, 11)) == [Acquired(4, 5, 2)]
    settle(table, 4, 5, AckType.ACCEPT)
    assert (table.start, table.find_next_offset()) == (9, 12)
    settle(table, 9, 11, AckType.ACCEPT)
    assert (table.start, table.end) == (12, 11)


def test_refused_acknowledgement_changes_nothing():
    table = RecordTable(0)
    acquire(table, (0, 4))
    acquire(table, (5, 9), member="b")
    with pytest.raises(Refused) as caught:
        settle(table, 0, 5, AckType.ACCEPT)
    assert caught.value.code == Code.INVALID_RECORD_STATE
    accepted = StateChange(0, 4, RecordState.ACKNOWLEDGED, 1)
    assert settle(table, 0, 4, AckType.ACCEPT) == [accepted]


@pytest.mark.parametrize("seed", range(8))
def test_records_are_finished_once_and_no_two_members_hold_one(seed):
    """Run random members against one table, and check it against a plain model of each record."""
    rng = random.Random(seed)
    limits = Limits(rng.randint(2, 10), 100)
    size, now, total = rng.randint(1, 12), 0.0, 300
    log = [OffsetRange(first, first + size - 1) for first in range(0, total, size)]
    table, state = RecordTable(0), ShareState(0, 0, 0)
    held: dict[int, tuple[str, float]] = {}
    counts = dict.fromkeys(range(log[-1].last + 1), 0)
    finished: set[int] = set()

    def persist(start, changes):
        state.write_changes(start, table.count_finished() + table.start - start, changes)
        for each in changes:
            for offset in range(each.first, each.last + 1):
                held.pop(offset, None)
                if each.state is not RecordState.AVAILABLE:
                    assert offset not in finished
                    finished.add(offset)

    for _ in range(2000):
        now += 0.05
        member, start = rng.choice("abc"), table.start
        step = rng.random()
        mine = sorted(offset for offset, (owner, _) in held.items() if owner == member)
        if step < 0.4:
            offset = table.find_next_offset()
            ranges = [each for each in log if each.last >= offset][:3]
            if ranges and table.can_acquire(limits.window):
                strict = rng.random() < 0.5
                wanted = Wanted(rng.randint(1, 20), 500, strict)
                acquired = table.acquire(member, ranges, offset, wanted, limits, now + 1)
                taken = [each for one in acquired for each in range(one.first, one.last + 1)]
                assert not strict or len(taken) <= wanted.records
                for one in acquired:
                    for each in range(one.first, one.last + 1):
                        assert each not in held
                        assert each not in finished
                        counts[each] += 1
                        assert counts[each] == one.deliveries <= limits.deliveries
                        held[each] = (member, now + 1)
        elif step < 0.8 and mine:
            offset = rng.choice(mine)
            kind = rng.choice([AckType.ACCEPT, AckType.RELEASE, AckType.REJECT])
            persist(start, settle(table, offset, offset, kind, member=member, limits=limits))
        elif step < 0.82:
            persist(start, table.release_member(member, limits))
        else:
            persist(start, table.expire_locks(now, limits))
        assert all(deadline > now or step < 0.82 for _, deadline in held.values())
        if rng.random() < 0.01:
            # The leader moves: what was acquired is available again, with its persisted count.
            table = RecordTable(state.start_offset, state.list_records())
            for each in held:
                counts[each] -= 1
            held.clear()
        assert state.finished == len([each for each in finished if each >= state.start_offset])
    while len(finished) < len(counts):
        now += 10
        persist(table.start, table.expire_locks(now, limits))
        ranges = [each for each in log if each.last >= table.find_next_offset()]
        for one in table.acquire(
            "z", ranges, table.find_next_offset(), Wanted(50, 500, False), limits, now + 1
        ):
            for each in range(one.first, one.last + 1):
                held[each] = ("z", now + 1)
            start = table.start
            persist(start, settle(table, *one[:2], AckType.ACCEPT, member="z", limits=limits))
    assert table.start == len(counts)


# -- sessions ----------------------------------------------------------------------------------


def test_epoch_of_a_session_begins_again_after_the_last():
    sessions = ShareSessions()
    session = sessions.open_session(KEY, "connection", 1)
    session.epoch = (1 << 31) - 1
    sessions.accept_fetch(KEY, (1 << 31) - 1)
    assert session.epoch == 1


def test_connection_ends_the_session_that_was_opened_on_it_last():
    sessions = ShareSessions()
    first = sessions.open_session(KEY, "connection", 5)
    other = sessions.open_session(SessionKey("group", "b"), "connection", 5)
    assert sessions.close_connection("connection") is other
    again = sessions.open_session(KEY, "elsewhere", 5)
    assert again is not first
    sessions.remove_session(KEY)
    assert sessions.close_connection("elsewhere") is again
    assert sessions.close_connection("elsewhere") is None
    assert len(sessions) == 1


def test_connection_of_a_replaced_session_ends_nothing():
    sessions = ShareSessions()
    sessions.open_session(KEY, "connection", 5)
    sessions.open_session(KEY, "elsewhere", 5)
    assert sessions.close_connection("connection") is None


def test_full_broker_opens_no_session_except_for_the_same_member():
    sessions = ShareSessions()
    assert sessions.open_session(KEY, 1, 1)
    assert sessions.open_session(KEY, 2, 1)
    assert sessions.open_session(SessionKey("group", "b"), 3, 1) is None


def test_partitions_of_a_session_take_turns():
    session = ShareSessions().open_session(KEY, 1, 1)
    session.update_partitions("xyz", [])
    first = session.list_rotated()
    session.accept_epoch(1)
    assert session.list_rotated() == first[1:] + first[:1]
    session.update_partitions("w", "x")
    assert sorted(session.list_rotated()) == ["w", "y", "z"]


# -- assignments -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_simple_assignor_balances_members_and_partitions(seed):
    rng = random.Random(seed)
    topic = UUID(int=1)
    sizes = {topic: rng.randint(1, 8)}
    members: dict[str, Subscriber] = {}
    for step in range(12):
        if rng.random() < 0.6 or not members:
            members[f"m{step}"] = Subscriber(frozenset([topic]))
        else:
            del members[rng.choice(list(members))]
        if not members:
            continue
        given = assign_simple(members, sizes)
        holders = [
            sum(PartitionId(topic, index) in each for each in given.values())
            for index in range(sizes[topic])
        ]
        loads = [len(each) for each in given.values()]
        assert len(set(holders)) == 1
        assert min(loads) >= 1
        assert max(loads) - min(loads) <= 1
        members = {each: Subscriber(frozenset([topic]), given[each]) for each in members}


def test_members_get_partitions_of_their_own_topics_only():
    a, b, missing = (UUID(int=each) for each in (1, 2, 3))
    members = {
        "x": Subscriber(frozenset([a, missing])),
        "y": Subscriber(frozenset([b])),
        "z": Subscriber(frozenset([missing])),
    }
    given = assign_simple(members, {a: 1, b: 2})
    assert given == {
        "x": {PartitionId(a, 0)},
        "y": {PartitionId(b, 0), PartitionId(b, 1)},
        "z": frozenset(),
    }


def test_settling_records_keep_their_locks_until_they_are_applied_or_given_up():
    table = RecordTable(0)
    acquire(table, (0, 9))
    accepted = Acknowledgement(2, 5, [AckType.ACCEPT])
    settled = table.check_acknowledgements("a", [accepted], 9.0, can_renew=True)
    for again in (AckType.ACCEPT, AckType.RENEW):
        with pytest.raises(Refused, match="The offset is not acquired"):
            settle(table, 4, 4, again)
    assert [each[:2] for each in table.expire_locks(2.0, LIMITS)] == [
        (each, each) for each in (0, 1, 6, 7, 8, 9)
    ]
    assert table.find_deadline() is None
    table.give_up(settled)
    assert table.find_deadline() == 1.0
    assert settle(table, 4, 4, AckType.ACCEPT) == [StateChange(4, 4, RecordState.ACKNOWLEDGED, 1)]


def test_whole_range_that_is_settling_is_not_settled_again_in_parts():
    table = RecordTable(0)
    acquire(table, (0, 9))
    whole = Acknowledgement(0, 9, [AckType.ACCEPT])
    settled = table.check_acknowledgements("a", [whole], 9.0, can_renew=True)
    for first, last in ((0, 9), (3, 4)):
        with pytest.raises(Refused, match="not in the acquired state"):
            settle(table, first, last, AckType.RELEASE)
    assert table.apply_settlements(settled, LIMITS) == [
        StateChange(0, 9, RecordState.ACKNOWLEDGED, 1)
    ]
    assert table.start == 10


def test_refused_acknowledgement_leaves_nothing_settling():
    table = RecordTable(0)
    acquire(table, (0, 9))
    batches = [Acknowledgement(0, 1, [AckType.ACCEPT]), Acknowledgement(8, 12, [AckType.ACCEPT])]
    with pytest.raises(Refused, match="past acquired records"):
        table.check_acknowledgements("a", batches, 9.0, can_renew=True)
    assert len(settle(table, 0, 9, AckType.ACCEPT)) == 10
