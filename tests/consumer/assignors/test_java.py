"""Kafka's own assignors as witnesses: the same results, or better ones."""

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest
from assignment import (
    AssignorOracle,
    Judgement,
    carried,
    judged,
    random_group,
    random_regrouping,
    settled,
)

from aiokclient import AssignmentCluster, MemberAssignment, MemberSubscription
from aiokclient.consumer.assignors import BUILT_IN

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

COUNT = 600
Given = Mapping[str, MemberAssignment]


def in_order(given: Given) -> dict[str, list[object]]:
    return {name: sorted(assignment.partitions) for name, assignment in given.items()}


@pytest.mark.parametrize("racks", [False, True], ids=["plain", "racks"])
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_the_same_result(
    java_assignors: AssignorOracle, report: list[str], strategy: str, racks: bool
) -> None:
    rng = Random(f"{strategy} {racks}")
    for _ in range(COUNT):
        group = random_group(rng, racks=racks)
        ours = BUILT_IN[strategy]().assign(group.cluster, group.members)
        javas = java_assignors.assign(strategy, group.cluster, group.members)
        assert in_order(ours) == in_order(javas), group
    report.append(f"assignors: {strategy}{', racks' * racks}: {COUNT} of {COUNT} equal Java's")


@pytest.mark.parametrize("equal", [True, False], ids=["same-topics", "own-topics"])
@pytest.mark.parametrize("racks", [False, True], ids=["plain", "racks"])
def test_sticky_is_no_worse(
    java_assignors: AssignorOracle, report: list[str], racks: bool, equal: bool
) -> None:
    rng = Random(f"sticky {racks} {equal}")
    tally = Tally()
    sticky = BUILT_IN["sticky"]()
    for _ in range(COUNT):
        regrouping = random_regrouping(rng, racks=racks, equal=equal)
        # Java begins, so that what is to be kept is of its own making half of the time.
        before = first(
            java_assignors, rng, "sticky", regrouping.before.cluster, regrouping.before.members
        )
        after = carried(regrouping.after, before, 1, eager=True)
        ours = sticky.assign(after.cluster, after.members)
        javas = java_assignors.assign("sticky", after.cluster, after.members)
        tally.add(judged(after, ours, before), judged(after, javas, before), after)
    report.append(f"assignors: sticky{', racks' * racks}{', same topics' * equal}: {tally}")


@pytest.mark.parametrize("equal", [True, False], ids=["same-topics", "own-topics"])
@pytest.mark.parametrize("racks", [False, True], ids=["plain", "racks"])
def test_cooperative_sticky_is_no_worse(
    java_assignors: AssignorOracle, report: list[str], racks: bool, equal: bool
) -> None:
    name = "cooperative-sticky"
    rng = Random(f"{name} {racks} {equal}")
    tally = Tally()
    sticky = BUILT_IN[name]()
    for _ in range(COUNT // 2):
        regrouping = random_regrouping(rng, racks=racks, equal=equal)
        before = first(
            java_assignors, rng, name, regrouping.before.cluster, regrouping.before.members
        )
        group = regrouping.after
        ours = settled(sticky.assign, group, before)
        assert ours is not None, group
        javas = settled(
            lambda cluster, members: java_assignors.assign(name, cluster, members),
            group,
            before,
            rebalances=5,
        )
        if javas is None:
            tally.unsettled += 1
        else:
            tally.add(judged(group, ours, before), judged(group, javas, before), group)
    report.append(f"assignors: {name}{', racks' * racks}{', same topics' * equal}: {tally}")


def first(
    oracle: AssignorOracle,
    rng: Random,
    strategy: str,
    cluster: AssignmentCluster,
    members: Mapping[str, MemberSubscription],
) -> Given:
    """An assignment to begin with, by Java or by us."""
    if rng.random() < 0.5:
        return oracle.assign(strategy, cluster, members)
    return BUILT_IN[strategy]().assign(cluster, members)


class Tally:
    """How outcomes compare: balance first, then racks, then moves.

    At the same balance there are never more moves; a better one may take some that a worse one
    does without.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.unsettled = 0

    def add(self, ours: Judgement, javas: Judgement, about: object) -> None:
        assert ours.imbalance <= javas.imbalance, about
        assert ours <= javas, about
        alike = ours[:2] == javas[:2]
        assert ours.moves <= javas.moves or not alike, about
        self._counts["groups"] += 1
        self._counts["less imbalance"] += ours.imbalance < javas.imbalance
        self._counts["as balanced, fewer on far racks"] += (
            ours[0] == javas[0] and ours[1] < javas[1]
        )
        self._counts["alike, fewer moves"] += alike and ours.moves < javas.moves
        self._counts["better, more moves"] += ours.moves > javas.moves
        self._counts["moves"] += ours.moves
        self._counts["moves of Java's"] += javas.moves

    def __str__(self) -> str:
        parts = [f"{name}: {count}" for name, count in self._counts.items() if count]
        if self.unsettled:
            parts.append(f"besides {self.unsettled} that never settle with Java's")
        return ", ".join(parts)
