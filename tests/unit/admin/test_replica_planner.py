"""The planner of moves: what every plan must hold, and examples of plans that are the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokclient import TopicPartition
from aiokclient.admin import PlannedMove, ReassignmentPlan
from aiokclient.admin.replicas.planner import (
    BrokerRoom,
    PlacedPartition,
    PlanStoppedError,
    ReplicaPlacement,
    compute_plan,
)
from aiokclient.errors import InvalidReplicaAssignmentError

LOOSE = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
Partitions = dict[TopicPartition, PlacedPartition]


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


@dataclass
class Case:
    """The input of the planner."""

    partitions: Partitions
    brokers: dict[int, BrokerRoom]
    targets: list[int]
    staying: list[int]

    def plan(self, make_even: bool = True) -> ReassignmentPlan:
        return compute_plan(self.partitions, self.brokers, self.targets, self.staying, make_even)

    def find_outcome(self, make_even: bool) -> ReassignmentPlan | InvalidReplicaAssignmentError:
        """Return the plan, or the error that there is none."""
        try:
            return self.plan(make_even)
        except InvalidReplicaAssignmentError as error:
            return error

    def after(self, plan: ReassignmentPlan) -> dict[TopicPartition, tuple[int, ...]]:
        return {
            each: plan.moves[each].after if each in plan.moves else placed.replicas
            for each, placed in self.partitions.items()
        }

    def racks(self, replicas: Iterable[int]) -> set[str]:
        return {rack for each in replicas if (rack := self.brokers[each].rack) is not None}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 7))
    racks = st.sampled_from([None, "a", "b", "c"])
    usable = st.none() | st.integers(0, 60)
    brokers: dict[int, BrokerRoom] = {}
    for broker in range(1, count + 1):
        free = draw(usable)
        largest = None if free is None else draw(st.integers(0, free))
        brokers[broker] = BrokerRoom(draw(racks), free, largest)
    everyone = sorted(brokers)
    partitions: Partitions = {}
    for topic in draw(st.sampled_from(["t", "tu", "tuv"])):
        for index in range(draw(st.integers(0, 6))):
            replicas = draw(st.permutations(everyone))[: draw(st.integers(1, min(count, 4)))]
            size = draw(st.integers(0, 10))
            partitions[tp(index, topic)] = PlacedPartition(tuple(replicas), size)
    targets = draw(st.lists(st.sampled_from(everyone), unique=True, min_size=1))
    staying = draw(st.lists(st.sampled_from(everyone), unique=True))
    return Case(partitions, brokers, targets, staying)


@LOOSE
@given(cases(), st.booleans())
def test_a_plan_keeps_the_rules_or_names_a_partition(case: Case, make_even: bool) -> None:
    plan = case.find_outcome(make_even)
    if isinstance(plan, InvalidReplicaAssignmentError):
        error = plan
        assert error.topic_partition in case.partitions
        assert "may have them" in str(error) or "has room for a replica" in str(error)
        return
    allowed = {*case.targets, *case.staying}
    incoming: Counter[int] = Counter()
    for each, replicas in case.after(plan).items():
        before = case.partitions[each]
        assert len(replicas) == len(set(replicas)) == len(before.replicas)
        assert set(replicas) <= allowed
        new = set(replicas).difference(before.replicas)
        assert new <= set(case.targets)
        stay = [broker for broker in before.replicas if broker in allowed]
        candidates = set(case.targets).difference(stay)
        others = case.racks(candidates) - case.racks(stay)
        possible = len(case.racks(stay)) + min(len(before.replicas) - len(stay), len(others))
        assert len(case.racks(replicas)) >= min(len(case.racks(before.replicas)), possible)
        for broker in new:
            incoming[broker] += before.size
            largest = case.brokers[broker].largest_bytes
            assert largest is None or before.size <= largest
        if not make_even:
            # Only what must go goes, and only partitions that move change their order.
            assert set(stay) <= set(replicas)
            assert each not in plan.moves or new
    for broker, size in incoming.items():
        usable = case.brokers[broker].usable_bytes
        assert usable is None or size <= usable
    check_loads(case, plan)


def check_loads(case: Case, plan: ReassignmentPlan) -> None:
    before = {each: placed.replicas for each, placed in case.partitions.items()}
    for loads, placed in ((plan.loads_before, before), (plan.loads_after, case.after(plan))):
        for broker, load in loads.items():
            held = [each for each, replicas in placed.items() if broker in replicas]
            assert load.replica_count == len(held)
            assert load.size == sum(case.partitions[each].size for each in held)
            assert load.leader_count == sum(each[0] == broker for each in placed.values())
        assert {each for replicas in placed.values() for each in replicas} <= set(loads)


@LOOSE
@given(cases(), st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_change_the_plan(
    case: Case, make_even: bool, random: Random
) -> None:
    def shuffled(items: Iterable[object]) -> list[object]:
        found = list(items)
        random.shuffle(found)
        return found

    other = Case(
        dict(shuffled(case.partitions.items())),  # type: ignore[arg-type]
        dict(shuffled(case.brokers.items())),  # type: ignore[arg-type]
        shuffled(case.targets),  # type: ignore[arg-type]
        shuffled(case.staying),  # type: ignore[arg-type]
    )
    outcome, expected = other.find_outcome(make_even), case.find_outcome(make_even)
    assert outcome == expected or str(outcome) == str(expected)


@LOOSE
@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=40),
    st.lists(st.integers(1, 8), min_size=1, max_size=8, unique=True),
)
def test_single_replicas_become_even_with_the_fewest_moves(
    holders: list[int], targets: list[int]
) -> None:
    partitions = {tp(index): PlacedPartition((node,)) for index, node in enumerate(holders)}
    brokers = {node: BrokerRoom() for node in range(1, 9)}
    plan = compute_plan(partitions, brokers, targets)
    counts = [plan.loads_after[node].replica_count for node in targets]
    assert sum(counts) == len(holders)
    assert max(counts) - min(counts) <= 1
    # The brokers with the most replicas keep one more, as many of them as there must be.
    low, extra = divmod(len(holders), len(targets))
    held = sorted((Counter(holders)[node] for node in targets), reverse=True)
    stay = sum(min(count, low + (rank < extra)) for rank, count in enumerate(held))
    assert len(plan) == len(holders) - stay


@LOOSE
@given(cases())
def test_a_second_plan_for_the_result_moves_nothing(case: Case) -> None:
    unlimited = {node: BrokerRoom(room.rack) for node, room in case.brokers.items()}
    case = Case(case.partitions, unlimited, case.targets, case.staying)
    try:
        plan = case.plan()
    except InvalidReplicaAssignmentError:
        return
    done = {
        each: PlacedPartition(replicas, case.partitions[each].size)
        for each, replicas in case.after(plan).items()
    }
    again = Case(done, unlimited, case.targets, case.staying).plan()
    assert not again, again.moves


def even(count: int, *brokers: int, factor: int = 3) -> Partitions:
    """Return partitions whose replicas are distributed round robin."""
    ring = [*brokers, *brokers]
    return {
        tp(index): PlacedPartition(tuple(ring[index % len(brokers) :][:factor]), 100)
        for index in range(count)
    }


def rooms(racks: Mapping[int, str | None]) -> dict[int, BrokerRoom]:
    return {node: BrokerRoom(rack) for node, rack in racks.items()}


def test_new_brokers_get_their_share_of_replicas_and_leaders() -> None:
    nodes = dict.fromkeys(range(1, 6))
    plan = compute_plan(even(30, 1, 2, 3), rooms(nodes), nodes)
    assert [each.replica_count for each in plan.loads_after.values()] == [18] * 5
    assert [each.leader_count for each in plan.loads_after.values()] == [6] * 5
    assert sum(len(move.adding) for move in plan.moves.values()) == 36
    assert plan.bytes_to_copy == 3_600
    assert plan.loads_before[4].replica_count == 0


def test_even_brokers_have_an_empty_plan() -> None:
    plan = compute_plan(even(6, 1, 2, 3), rooms(dict.fromkeys((1, 2, 3))), [1, 2, 3])
    assert not plan
    assert plan.moves == {}


def test_a_drained_broker_keeps_nothing_and_its_leaders_are_shared() -> None:
    nodes = dict.fromkeys(range(1, 5))
    partitions = even(12, 1, 2, 3, 4, factor=2)
    plan = compute_plan(partitions, rooms(nodes), [1, 2, 4], [1, 2, 4], make_even=False)
    assert {each for each, placed in partitions.items() if 3 in placed.replicas} == set(plan.moves)
    assert plan.loads_after[3].replica_count == plan.loads_after[3].leader_count == 0
    assert [plan.loads_after[node].leader_count for node in (1, 2, 4)] == [4, 4, 4]
    assert [plan.loads_after[node].replica_count for node in (1, 2, 4)] == [8, 8, 8]
    for move in plan.moves.values():
        assert move.removing == (3,)
        assert len(move.adding) == 1


def test_a_replica_goes_to_the_rack_that_loses_one() -> None:
    nodes = rooms({1: "a", 2: "b", 3: "c", 4: "c", 5: "a"})
    partitions = {tp(0): PlacedPartition((3, 1, 2), 5)}
    plan = compute_plan(partitions, nodes, [1, 2, 4, 5], [], make_even=False)
    assert plan.moves == {tp(0): PlannedMove((4, 1, 2), (3, 1, 2), 5)}


def test_the_last_broker_of_a_rack_can_be_drained() -> None:
    nodes = rooms({1: "a", 2: "b", 3: "b", 4: "c"})
    partitions = {tp(0): PlacedPartition((1, 2, 4), 5)}
    plan = compute_plan(partitions, nodes, [1, 2, 3], [], make_even=False)
    assert plan.moves[tp(0)].after == (1, 2, 3)


def test_racks_are_kept_while_replicas_become_even() -> None:
    nodes = rooms({1: "a", 2: "b", 3: "b", 4: "b"})
    partitions = {tp(index): PlacedPartition((1, 2)) for index in range(6)}
    plan = compute_plan(partitions, nodes, nodes)
    counts = {node: load.replica_count for node, load in plan.loads_after.items()}
    assert counts == {1: 6, 2: 2, 3: 2, 4: 2}
    leaders = [load.leader_count for load in plan.loads_after.values()]
    assert max(leaders) - min(leaders) <= 1


def test_replicas_move_in_a_chain_where_none_can_move_directly() -> None:
    # The replicas of broker 1 must stay in its rack, where only broker 2 can get one. So another
    # one moves from 2 to 3.
    partitions = {
        **{tp(index): PlacedPartition((1, 4)) for index in range(4)},
        **{tp(index): PlacedPartition((2,)) for index in range(4, 7)},
        **{tp(index): PlacedPartition((3,)) for index in range(7, 9)},
    }
    nodes = rooms({1: "a", 2: "a", 3: "b", 4: "b"})
    plan = compute_plan(partitions, nodes, [1, 2, 3], [4])
    assert [plan.loads_after[node].replica_count for node in (1, 2, 3, 4)] == [3, 3, 3, 4]
    assert [move.adding for move in plan.moves.values() if move.adding] == [(2,), (3,)]


def test_a_large_replica_goes_where_it_fits() -> None:
    nodes = {
        1: BrokerRoom(None, 0, 0),
        2: BrokerRoom(None, 10, 10),
        3: BrokerRoom(None, 100, 60),
    }
    partitions = {
        tp(0): PlacedPartition((1,), 50),
        tp(1): PlacedPartition((1,), 10),
        tp(2): PlacedPartition((1,), 40),
    }
    plan = compute_plan(partitions, nodes, [2, 3], [], make_even=False)
    after = {each: move.after for each, move in plan.moves.items()}
    assert after == {tp(0): (3,), tp(1): (2,), tp(2): (3,)}


@pytest.mark.parametrize(
    ("nodes", "targets", "replicas", "size", "text"),
    [
        ({1: "a", 2: "b"}, [2], (1, 2), 1, "2 replicas, and only these brokers may have them: 2."),
        ({1: "a", 2: "b"}, [], (1, 2), 1, "2 replicas, and no broker may have them."),
        ({1: "a", 2: "b", 3: "c"}, [2, 3], (1, 2), 99, "No broker has room for a replica of 99"),
        ({1: "a", 2: "b", 3: "b", 4: "c"}, [2, 3, 4], (1, 2), 7, "No broker in another rack has"),
    ],
)
def test_a_plan_that_is_not_possible_names_the_partition_and_the_advice(
    nodes: dict[int, str], targets: list[int], replicas: tuple[int, ...], size: int, text: str
) -> None:
    room = {
        node: BrokerRoom(rack, 5 if rack == "c" else 50, 5 if rack == "c" else 50)
        for node, rack in nodes.items()
    }
    with pytest.raises(InvalidReplicaAssignmentError, match="for t-0") as caught:
        compute_plan({tp(0): PlacedPartition(replicas, size)}, room, targets, [], False)
    assert text in str(caught.value)
    assert caught.value.topic_partition == tp(0)


def test_the_topic_that_is_most_uneven_is_spread_first() -> None:
    partitions = {
        **{tp(index, "hot"): PlacedPartition((1,), 50) for index in range(3)},
        **{tp(index, "cold"): PlacedPartition((1,), 1) for index in range(1)},
        **{tp(index, "cold"): PlacedPartition((2,), 1) for index in range(1, 3)},
    }
    plan = compute_plan(partitions, rooms({1: None, 2: None}), [1, 2])
    assert [each.topic for each in plan.moves] == ["hot"]


def test_brokers_that_cannot_become_even_are_not_searched_again_after_each_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # All partitions have a replica in the rack of the last broker, which can give none away.
    random, last = Random(1), 30
    brokers = {node: BrokerRoom("b" if node == last else "a") for node in range(1, last + 1)}
    partitions = {
        tp(index): PlacedPartition((random.randrange(1, last), last), 10) for index in range(900)
    }
    tried: list[TopicPartition] = []
    can_move = ReplicaPlacement._can_move

    def count(self: ReplicaPlacement, tp: TopicPartition, source: int, target: int) -> bool:
        tried.append(tp)
        return can_move(self, tp, source, target)

    monkeypatch.setattr(ReplicaPlacement, "_can_move", count)
    plan = compute_plan(partitions, brokers, brokers)
    counts = [load.replica_count for load in plan.loads_after.values()]
    assert max(counts[:-1]) - min(counts[:-1]) <= 1
    moved = sum(len(move.adding) for move in plan.moves.values())
    # Each partition of the last broker is tried once for each target, not once for each move.
    assert moved > 50
    assert len(tried) < 3 * len(partitions) * len(brokers)


@pytest.mark.parametrize("make_even", [True, False])
def test_a_plan_that_nothing_waits_for_is_not_computed_to_its_end(make_even: bool) -> None:
    nodes = dict.fromkeys(range(1, 6))
    asked: list[int] = []

    def is_stopped() -> bool:
        asked.append(len(asked))
        return len(asked) == 3

    with pytest.raises(PlanStoppedError):
        compute_plan(even(30, 1, 2, 3), rooms(nodes), [3, 4, 5], [], make_even, is_stopped)
    assert len(asked) == 3
