"""Tests of properties that hold for every assignor of the library."""

import subprocess
import sys
from collections.abc import Callable
from random import Random

import pytest
from assignment import carried, random_group, random_regrouping
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokclient import AssignmentCluster, Assignor, MemberSubscription
from aiokclient.consumer.assignors.co_partitioned import CoPartitioned
from aiokclient.consumer.assignors.redundant import Redundant
from aiokclient.consumer.assignors.strategy import BUILT_IN
from aiokclient.consumer.assignors.validation import validate

RANDOM = st.randoms(use_true_random=False)
LOOSE = settings(
    deadline=None,
    max_examples=40,  # This is the number of examples for each assignor.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
EVERY = [*BUILT_IN, "redundant", "co-partitioned"]


@pytest.fixture(params=EVERY)
def assignor(request: pytest.FixtureRequest) -> Assignor:
    kinds: dict[str, Callable[[], Assignor]] = {
        **BUILT_IN,
        "redundant": Redundant,
        "co-partitioned": CoPartitioned,
    }
    made = kinds[request.param]()
    return made


@LOOSE
@given(rng=RANDOM, racks=st.booleans())
def test_every_partition_is_assigned_to_a_subscriber(
    assignor: Assignor, rng: Random, racks: bool
) -> None:
    group = random_group(rng, racks=racks)
    members = dict(group.members)
    found = validate(assignor, assignor.assign(group.cluster, members), group.cluster, members)
    assert list(found) == list(members)
    topics = {topic for member in members.values() for topic in member.topics}
    wanted = {one for topic in topics for one in group.cluster.partitions(topic)}
    assert {one for assignment in found.values() for one in assignment.partitions} == wanted


@LOOSE
@given(rng=RANDOM, racks=st.booleans())
def test_the_order_of_members_plays_no_part(assignor: Assignor, rng: Random, racks: bool) -> None:
    regrouping = random_regrouping(rng, racks=racks)
    before = assignor.assign(regrouping.before.cluster, dict(regrouping.before.members))
    after = carried(regrouping.after, before, 1, eager=not assignor.cooperative)
    shuffled = rng.sample(sorted(after.members), len(after.members))
    first = assignor.assign(after.cluster, dict(after.members))
    assert assignor.assign(after.cluster, {n: after.members[n] for n in shuffled}) == first


def test_groups_without_members_or_topics_get_no_assignment(assignor: Assignor) -> None:
    assert assignor.assign(AssignmentCluster({"orders": 3}), {}) == {}
    members = {"a": MemberSubscription(()), "b": MemberSubscription(("absent", "empty"))}
    found = assignor.assign(AssignmentCluster({"empty": 0}), members)
    assert all(not assignment.partitions for assignment in found.values())
    assert validate(assignor, found, AssignmentCluster({}), members).keys() == members.keys()


HASHED = """
from aiokclient import AssignmentCluster, CoPartitioned, MemberSubscription, Redundant
from aiokclient.consumer.assignors.strategy import BUILT_IN, make_assignors
topics = {f"t-{n}": [{"a", "b"}, {"b", "c"}, {"c", "a"}] for n in range(5)}
cluster = AssignmentCluster(topics)
members = {f"m-{n}": MemberSubscription(tuple(topics)[n % 3:], rack="abc"[n % 3]) for n in range(7)}
for assignor in (*make_assignors(BUILT_IN), Redundant(2), CoPartitioned()):
    print(assignor.assign(cluster, members))
"""


def test_assignments_do_not_depend_on_the_hash_seed() -> None:
    """Simulations with the same seed must run identically in every process."""
    found = {
        subprocess.run(
            [sys.executable, "-c", HASHED],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(found) == 1
    assert next(iter(found)).count(b"MemberAssignment") == 6 * 7
