"""Tests that `sticky` and `cooperative-sticky` balance well with the fewest moves."""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from random import Random

import pytest
from assignment import Group, carried, judged, random_group, random_regrouping, settled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokclient import AssignmentCluster, MemberAssignment, MemberSubscription, TopicPartition
from aiokclient.consumer.assignors.assignor import RebalanceProtocol
from aiokclient.consumer.assignors.holdings import (
    Holding,
    generation_data,
    owners,
    read_generation,
    read_holding,
    sticky_data,
)
from aiokclient.consumer.assignors.sticky import CooperativeSticky, Sticky
from aiokclient.consumer.assignors.validation import validate
from aiokclient.types import GroupMetadata

RANDOM = st.randoms(use_true_random=False)
RACKS = st.booleans()
LOOSE = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
Given = dict[str, MemberAssignment]


def tp(topic: str, *indexes: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, index) for index in indexes)


def sticky(group: Group) -> Given:
    return Sticky().assign(group.cluster, group.members)


def cooperative(group: Group) -> Given:
    given = CooperativeSticky().assign(group.cluster, group.members)
    protocol = RebalanceProtocol.COOPERATIVE
    assert validate(CooperativeSticky(), given, *parts(group), protocol) == given
    return given


def parts(group: Group) -> tuple[AssignmentCluster, dict[str, MemberSubscription]]:
    return group.cluster, dict(group.members)


def wanted(group: Group) -> set[TopicPartition]:
    topics = {topic for member in group.members.values() for topic in member.topics}
    return {one for topic in topics for one in group.cluster.partitions(topic)}


def given_of(assignments: Given) -> Counter[TopicPartition]:
    return Counter(one for given in assignments.values() for one in given.partitions)


@LOOSE
@given(rng=RANDOM, racks=RACKS)
def test_everything_is_given_once_to_subscribers(rng: Random, racks: bool) -> None:
    group = random_group(rng, racks=racks)
    found = sticky(group)
    assert validate(Sticky(), found, *parts(group)) == found
    assert given_of(found) == Counter(wanted(group))


@LOOSE
@given(rng=RANDOM, racks=RACKS)
def test_members_with_the_same_topics_differ_by_one_at_most(rng: Random, racks: bool) -> None:
    regrouping = random_regrouping(rng, racks=racks, equal=True)
    after = carried(regrouping.after, sticky(regrouping.before), 1, eager=True)
    loads = [len(given.partitions) for given in sticky(after).values()]
    assert max(loads) - min(loads) <= 1


@LOOSE
@given(rng=RANDOM, racks=RACKS)
def test_a_repeated_assignment_changes_nothing(rng: Random, racks: bool) -> None:
    regrouping = random_regrouping(rng, racks=racks)
    first = sticky(carried(regrouping.after, sticky(regrouping.before), 1, eager=True))
    assert sticky(carried(regrouping.after, first, 2, eager=True)) == first
    assert cooperative(carried(regrouping.after, first, 2, eager=False)) == first


@LOOSE
@given(rng=RANDOM, racks=RACKS)
def test_a_group_that_cooperates_gets_there_in_two_rebalances(rng: Random, racks: bool) -> None:
    regrouping = random_regrouping(rng, racks=racks)
    before = sticky(regrouping.before)
    at_once = sticky(carried(regrouping.after, before, 1, eager=True))
    found = settled(lambda *asked: cooperative(Group(*asked)), regrouping.after, before)
    assert found is not None
    assert given_of(dict(found)) == Counter(wanted(regrouping.after))
    group = regrouping.after
    assert judged(group, found, before) == judged(group, at_once, before)


@LOOSE
@given(rng=RANDOM, racks=RACKS)
def test_nobody_gets_at_once_what_another_holds(rng: Random, racks: bool) -> None:
    regrouping = random_regrouping(rng, racks=racks)
    held = carried(regrouping.after, sticky(regrouping.before), 1, eager=False)
    holder = {one: name for name, member in held.members.items() for one in member.owned}
    found = cooperative(held)
    for name, assignment in found.items():
        assert all(holder.get(one, name) == name for one in assignment.partitions)
    missing = wanted(held) - given_of(found).keys()
    assert missing <= holder.keys(), (
        "a partition has no new owner only while its old owner must revoke it"
    )


@LOOSE
@given(rng=RANDOM, racks=RACKS)
def test_contradictory_claims_are_resolved_by_generation(rng: Random, racks: bool) -> None:
    """Each member claims random partitions for a random generation."""
    group = random_group(rng, racks=racks)
    every = sorted(wanted(group)) + list(tp("absent", -1, 0))
    claims = {
        name: Holding(rng.sample(every, rng.randrange(len(every))), rng.randrange(-1, 3))
        for name in group.members
    }
    told = {n: m._replace(user_data=sticky_data(claims[n])) for n, m in group.members.items()}
    assert given_of(sticky(Group(group.cluster, told))) == Counter(wanted(group))
    owning = {
        n: m._replace(owned=tuple(claims[n].partitions), generation_id=claims[n].generation)
        for n, m in group.members.items()
    }
    right = owners(claims)
    for name, assignment in cooperative(Group(group.cluster, owning)).items():
        for one in assignment.partitions:
            others = [n for n, claim in claims.items() if one in claim.partitions and n != name]
            assert right.get(one) == name or not others


def every_assignment(group: Group) -> Iterator[Given]:
    partitions = sorted(wanted(group))
    able = [[n for n, m in group.members.items() if p.topic in m.topics] for p in partitions]
    for choice in product(*able):
        found: dict[str, list[TopicPartition]] = {name: [] for name in group.members}
        for one, name in zip(partitions, choice, strict=True):
            found[name].append(one)
        yield {name: MemberAssignment(tuple(have)) for name, have in found.items()}


@LOOSE
@given(rng=RANDOM, racks=RACKS)
def test_no_assignment_is_better(rng: Random, racks: bool) -> None:
    """No other assignment is better by imbalance, then by distance from racks, then by moves.

    The test compares all possible assignments of small groups.
    """
    regrouping = random_regrouping(rng, racks=racks)
    after = regrouping.after
    names = list(after.members)[:3]
    cluster = AssignmentCluster(
        {
            t: [after.cluster.racks(one) for one in after.cluster.partitions(t)][:3]
            for t in after.cluster.topics[:2]
        }
    )
    small = Group(cluster, {name: after.members[name] for name in names})
    before = {
        name: assignment._replace(
            partitions=tuple(p for p in assignment.partitions if p in cluster)
        )
        for name, assignment in sticky(regrouping.before).items()
    }
    ours = judged(small, sticky(carried(small, before, 1, eager=True)), before)
    assert ours == min(judged(small, one, before) for one in every_assignment(small))


def test_a_chain_of_moves_where_no_single_one_helps() -> None:
    """Moves from first to second and from second to third turn 5, 4, 3 partitions into 4, 4, 4."""
    cluster = AssignmentCluster({"left": 5, "right": 7})
    before = {
        "a": MemberAssignment(tp("left", 0, 1, 2, 3, 4)),
        "b": MemberAssignment(tp("right", 0, 1, 2, 3)),
        "c": MemberAssignment(tp("right", 4, 5, 6)),
    }
    topics = {"a": ("left",), "b": ("left", "right"), "c": ("right",)}
    members = {name: MemberSubscription(topics[name]) for name in topics}
    found = sticky(carried(Group(cluster, members), before, 1, eager=True))
    assert [len(assignment.partitions) for assignment in found.values()] == [4, 4, 4]


def test_few_partitions_move_when_members_leave_and_join() -> None:
    cluster = AssignmentCluster({"orders": 6})
    three = Group(cluster, {name: MemberSubscription(("orders",)) for name in "abc"})
    first = sticky(three)
    assert first["a"].partitions == tp("orders", 0, 3)
    two = Group(cluster, {name: MemberSubscription(("orders",)) for name in "ab"})
    second = sticky(carried(two, first, 1, eager=True))
    assert set(first["a"].partitions) < set(second["a"].partitions)
    third = sticky(carried(three, second, 2, eager=True))
    # A member that has too many partitions keeps the first ones.
    assert third["a"].partitions == second["a"].partitions[:2]


def test_racks_come_before_stickiness() -> None:
    cluster = AssignmentCluster({"orders": [{"x"}, {"y"}]})
    members = {
        "a": MemberSubscription(("orders",), rack="x"),
        "b": MemberSubscription(("orders",), rack="y"),
    }
    before = {"a": MemberAssignment(tp("orders", 1)), "b": MemberAssignment(tp("orders", 0))}
    found = sticky(carried(Group(cluster, members), before, 1, eager=True))
    assert found["a"].partitions == tp("orders", 0)


def test_members_send_their_last_assignment() -> None:
    assignor = Sticky()
    assert assignor.user_data(["orders"]) is None
    assignor.on_assignment(MemberAssignment(tp("orders", 2, 5)), GroupMetadata("g", 7, "m"))
    assert read_holding(assignor.user_data(["orders"])) == Holding(list(tp("orders", 2, 5)), 7)
    cooperating = CooperativeSticky()
    assert read_generation(cooperating.user_data([])) == -1
    cooperating.on_assignment(MemberAssignment(), GroupMetadata("g", 7, "m"))
    assert read_generation(cooperating.user_data([])) == 7


def test_the_generation_may_be_in_the_user_data() -> None:
    """Clients that support only version 1 of the subscription send it in the user data."""
    cluster = AssignmentCluster({"orders": 2})
    late = MemberSubscription(("orders",), generation_data(4), tp("orders", 0, 1))
    members = {"old": late, "new": late._replace(user_data=generation_data(5))}
    found = CooperativeSticky().assign(cluster, members)
    assert found["new"].partitions == tp("orders", 0)
    assert found["old"].partitions == ()


@pytest.mark.parametrize("data", [None, b"", b"\x00", b"\x7f\xff\xff\xff", b"\xff" * 40])
def test_damaged_user_data_is_ignored(data: bytes | None) -> None:
    assert read_holding(data) == Holding()
    assert read_generation(data if data and len(data) < 4 else None) == -1


@LOOSE
@given(data=st.binary(max_size=60))
def test_user_data_of_any_bytes_is_read(data: bytes) -> None:
    assert read_holding(data).generation >= -1
    assert read_generation(data) >= -1


def test_user_data_without_a_generation_is_read() -> None:
    newer = sticky_data(Holding(tp("orders", 3), 9))
    assert read_holding(newer[:-4]) == Holding(list(tp("orders", 3)), -1)
