"""Tests of the brokers' assignors: balance, stickiness, subscriptions, and arbitrary input."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.testing.broker.groups.server_assignors import (
    SERVER_ASSIGNORS,
    PartitionId,
    Subscriber,
    assign_range,
    assign_uniform,
)

TOPICS = [uuid.UUID(int=each + 1) for each in range(5)]


def counts(result):
    return sorted(len(each) for each in result.values())


def check(members, sizes, result):
    """Check that each subscribed partition has one owner, which subscribes to its topic."""
    assert result.keys() == members.keys()
    owners = {}
    for member, partitions in result.items():
        for partition in partitions:
            assert partition.topic_id in members[member].topics
            assert partition not in owners
            owners[partition] = member
    wanted = {
        PartitionId(topic, index)
        for topic, size in sizes.items()
        if any(topic in each.topics for each in members.values())
        for index in range(size)
    }
    assert owners.keys() == wanted


sizes = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), max_size=5)
topic_sets = st.frozensets(st.sampled_from(TOPICS), max_size=5)


@st.composite
def groups(draw, alike=False):
    number = draw(st.integers(1, 7))
    same = draw(topic_sets)
    return {f"m{index}": Subscriber(same if alike else draw(topic_sets)) for index in range(number)}


def with_targets(members, result):
    return {
        name: each._replace(target=result.get(name, frozenset())) for name, each in members.items()
    }


@pytest.mark.parametrize("name", SERVER_ASSIGNORS)
@given(members=groups(), sizes=sizes)
def test_each_partition_has_one_owner(name, members, sizes):
    check(members, sizes, SERVER_ASSIGNORS[name](members, sizes))


@given(members=groups(alike=True), sizes=sizes)
def test_uniform_is_balanced_when_all_subscribe_to_the_same_topics(members, sizes):
    result = assign_uniform(members, sizes)
    assert max(counts(result)) - min(counts(result)) <= 1


@given(members=groups(), sizes=sizes)
def test_uniform_cannot_be_improved_by_a_single_move(members, sizes):
    result = assign_uniform(members, sizes)
    for member, partitions in result.items():
        for other, each in members.items():
            if any(partition.topic_id in each.topics for partition in partitions):
                assert len(partitions) <= len(result[other]) + 1, (member, other)


def test_uniform_finds_chains_of_moves():
    """Partitions move through the middle member.

    The least loaded member does not subscribe to the most loaded member's topic.
    """
    a, b = TOPICS[:2]
    members = {
        "1": Subscriber(frozenset([a]), frozenset([PartitionId(a, 0), PartitionId(a, 1)])),
        "2": Subscriber(frozenset([a, b]), frozenset([PartitionId(b, 0)])),
        "3": Subscriber(frozenset([b])),
    }
    assert counts(assign_uniform(members, {a: 2, b: 1})) == [1, 1, 1]


@given(members=groups(alike=True), sizes=sizes, data=st.data())
def test_uniform_moves_no_more_than_necessary(members, sizes, data):
    """If a member leaves, the others keep their partitions. If one joins, only its share moves."""
    before = assign_uniform(members, sizes)
    members = with_targets(members, before)
    gone = data.draw(st.sampled_from(sorted(members)))
    rest = {name: each for name, each in members.items() if name != gone}
    for name, partitions in assign_uniform(rest, sizes).items():
        assert before[name] <= partitions
    new = {**members, "new": Subscriber(members[gone].topics)}
    after = assign_uniform(new, sizes)
    check(new, sizes, after)
    for name in members:
        assert after[name] <= before[name]


@given(members=groups(), sizes=sizes)
def test_uniform_changes_nothing_when_run_again(members, sizes):
    before = assign_uniform(members, sizes)
    assert assign_uniform(with_targets(members, before), sizes) == before


@given(members=groups(), sizes=sizes, bigger=sizes)
def test_outdated_previous_assignments_are_ignored(members, sizes, bigger):
    """The topics were deleted, have fewer partitions and another id, or are not subscribed to."""
    members = with_targets(members, assign_uniform(members, bigger))
    check(members, sizes, assign_uniform(members, sizes))


@given(members=groups(alike=True), size=st.integers(1, 12))
def test_range_assigns_equal_partition_numbers_of_topics_of_one_size(members, size):
    topics = next(iter(members.values())).topics
    for partitions in assign_range(members, dict.fromkeys(TOPICS, size)).values():
        numbers = {
            topic: sorted(index for each, index in partitions if each == topic) for topic in topics
        }
        assert len({tuple(each) for each in numbers.values()}) <= 1
        for each in numbers.values():
            assert each == list(range(each[0], each[0] + len(each))) if each else True


def test_range_takes_static_members_first():
    a = TOPICS[0]
    members = {
        "a": Subscriber(frozenset([a])),
        "z": Subscriber(frozenset([a]), instance_id="2"),
        "y": Subscriber(frozenset([a]), instance_id="1"),
    }
    result = assign_range(members, {a: 4})
    assert [len(result[each]) for each in "yza"] == [2, 1, 1]
    assert result["y"] == {PartitionId(a, 0), PartitionId(a, 1)}


def test_groups_without_members_get_no_assignment():
    assert assign_uniform({}, {TOPICS[0]: 3}) == assign_range({}, {TOPICS[0]: 3}) == {}
