"""Tests of assignors that give a partition several owners, or keep several topics together."""

from collections import Counter
from itertools import combinations
from random import Random

import pytest
from assignment import Group, carried, random_group, random_regrouping
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokclient import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
    TopicPartition,
    errors,
)
from aiokclient.consumer.assignors.assignor import RebalanceProtocol
from aiokclient.consumer.assignors.co_partitioned import CoPartitioned
from aiokclient.consumer.assignors.redundant import Redundant
from aiokclient.consumer.assignors.sticky import CooperativeSticky, Sticky
from aiokclient.consumer.assignors.strategy import Range, RoundRobin
from aiokclient.consumer.assignors.validation import validate
from aiokclient.types import GroupMetadata

RANDOM = st.randoms(use_true_random=False)
LOOSE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
Given = dict[str, MemberAssignment]


def assigned(assignor: Assignor, group: Group, cooperative: bool = False) -> Given:
    members = dict(group.members)
    found = assignor.assign(group.cluster, members)
    return validate(assignor, found, group.cluster, members, RebalanceProtocol(cooperative))


def subscribed(group: Group, topic: str) -> int:
    return sum(topic in member.topics for member in group.members.values())


@LOOSE
@given(rng=RANDOM, copies=st.integers(1, 4))
def test_each_partition_goes_to_so_many_members(rng: Random, copies: int) -> None:
    group = random_group(rng)
    found = assigned(Redundant(copies), group)
    given = Counter(one for assignment in found.values() for one in assignment.partitions)
    for topic in group.cluster.topics:
        for one in group.cluster.partitions(topic):
            assert given[one] == min(copies, subscribed(group, topic))


@LOOSE
@given(rng=RANDOM, copies=st.integers(1, 4))
def test_copies_are_balanced_and_stay(rng: Random, copies: int) -> None:
    regrouping = random_regrouping(rng, equal=True)
    assignor = Redundant(copies)
    before = assigned(assignor, regrouping.before)
    first = assigned(assignor, carried(regrouping.after, before, 1, eager=True))
    loads = [len(assignment.partitions) for assignment in first.values()]
    assert max(loads) - min(loads) <= 1
    assert assigned(assignor, carried(regrouping.after, first, 2, eager=True)) == first


def test_a_copy_of_a_member_that_left_is_made_elsewhere() -> None:
    cluster = AssignmentCluster({"index": 6})
    members = {name: MemberSubscription(("index",)) for name in "abcd"}
    before = assigned(Redundant(2), Group(cluster, members))
    del members["d"]
    after = assigned(Redundant(2), carried(Group(cluster, members), before, 1, eager=True))
    kept = [set(before[name].partitions) & set(after[name].partitions) for name in members]
    assert sum(map(len, kept)) >= 8, "at least 8 of the 9 copies on the remaining members stay"
    assert {len(assignment.partitions) for assignment in after.values()} == {4}


def test_the_number_of_copies_is_part_of_the_name() -> None:
    assert (Redundant().name, Redundant(3).name) == ("redundant-2", "redundant-3")
    assert repr(Redundant(3)) == "Redundant(3)"
    for wrong in (0, True, "2"):
        with pytest.raises(errors.ConfigError, match="copies"):
            Redundant(wrong)  # type: ignore[arg-type]


@LOOSE
@given(rng=RANDOM, by=st.sampled_from([Range, RoundRobin, Sticky, CooperativeSticky]))
def test_topics_with_the_same_subscribers_stay_together(rng: Random, by: type[Assignor]) -> None:
    group = random_group(rng)
    found = assigned(CoPartitioned(by=by()), group)
    at = {one: name for name, assignment in found.items() for one in assignment.partitions}
    for first, second in combinations(sorted(at), 2):
        alike = all(
            (first.topic in m.topics) == (second.topic in m.topics) for m in group.members.values()
        )
        if alike and first.partition == second.partition:
            assert at[first] == at[second]
    every = {
        one
        for topic in group.cluster.topics
        if subscribed(group, topic)
        for one in group.cluster.partitions(topic)
    }
    assert at.keys() == every


@LOOSE
@given(rng=RANDOM)
def test_co_partitioned_topics_move_cooperatively(rng: Random) -> None:
    """This also holds when the previous assignment did not keep the topics together."""
    regrouping = random_regrouping(rng)
    given = CooperativeSticky().assign(regrouping.before.cluster, dict(regrouping.before.members))
    for generation in range(1, 4):
        group = carried(regrouping.after, given, generation, eager=False)
        following = assigned(CoPartitioned(), group, cooperative=True)
        if following == given:
            break
        given = following
    at_once = assigned(CoPartitioned(), carried(regrouping.after, given, 9, eager=False))
    assert at_once == given


NAMED = CoPartitioned("orders", "payments", by=RoundRobin())


def test_named_topics_are_together_and_others_are_not() -> None:
    cluster = AssignmentCluster({"clicks": 3, "orders": 4, "payments": 2})
    both = MemberSubscription(("orders", "payments", "clicks"))
    members = {"a": both, "b": both, "c": MemberSubscription(("orders", "clicks"))}
    found = assigned(NAMED, Group(cluster, members))
    at = {one: name for name, assignment in found.items() for one in assignment.partitions}
    assert len(at) == 9
    for index in range(2):
        assert at[TopicPartition("orders", index)] == at[TopicPartition("payments", index)]
    # The member subscribes to only one of the two topics, so it is assigned neither.
    assert {one.topic for one in found["c"].partitions} == {"clicks"}


def test_named_topics_that_nobody_has_together() -> None:
    cluster = AssignmentCluster({"orders": 4, "payments": 4})
    members = {"a": MemberSubscription(("orders",)), "b": MemberSubscription(("payments",))}
    with pytest.raises(errors.AssignmentFailedError, match="orders, payments, but no member"):
        assigned(NAMED, Group(cluster, members))


def test_racks_are_those_that_have_all_of_them() -> None:
    cluster = AssignmentCluster(
        {"orders": [{"x", "y"}, {"y", "z"}], "payments": [{"x", "z"}, {"y", "x"}]}
    )
    topics = ("orders", "payments")
    members = {"a": MemberSubscription(topics, rack="y"), "b": MemberSubscription(topics, rack="x")}
    found = assigned(CoPartitioned(by=Sticky()), Group(cluster, members))
    assert {one.partition for one in found["a"].partitions} == {1}
    assert {one.partition for one in found["b"].partitions} == {0}


def test_the_wrapped_assignor_hears_of_everything() -> None:
    inner = Sticky()
    assignor = CoPartitioned("orders", "payments", by=inner)
    assert (assignor.name, assignor.cooperative) == ("co-partitioned-sticky", False)
    assert repr(NAMED).startswith("CoPartitioned('orders', 'payments', by=")
    given = MemberAssignment((TopicPartition("orders", 1), TopicPartition("payments", 1)))
    assignor.on_assignment(given, GroupMetadata("g", 3, "m"))
    data = assignor.user_data(["orders", "payments"])
    assert data is not None
    assert data == inner.user_data([])
    cluster = AssignmentCluster({"orders": 2, "payments": 2})
    topics = ("orders", "payments")
    members = {"z": MemberSubscription(topics, data), "a": MemberSubscription(topics)}
    assert assigned(assignor, Group(cluster, members))["z"].partitions == given.partitions
