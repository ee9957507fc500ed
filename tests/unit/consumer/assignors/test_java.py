"""Tests that our assignors give the same results as Kafka's own assignors, or better ones."""

from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

import pytest
from assignment import (
    LARGE,
    SMALL,
    AssignorOracle,
    Group,
    Judgement,
    Regrouping,
    Size,
    carried,
    judged,
    random_group,
    random_regrouping,
    settled,
)

from aiokclient import AssignmentCluster, MemberAssignment, MemberSubscription
from aiokclient.consumer.assignors.strategy import BUILT_IN

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

Given = Mapping[str, MemberAssignment]


class Case(NamedTuple):
    """A number of random groups with the same properties."""

    size: Size
    count: int
    racks: bool
    equal: bool | None = None

    def __str__(self) -> str:
        parts = ("large" if self.size is LARGE else "small",) + ("racks",) * self.racks
        return " ".join((*parts, "same topics") if self.equal else parts)

    def regroupings(self, rng: Random) -> Iterator[Regrouping]:
        for _ in range(self.count):
            yield random_regrouping(rng, racks=self.racks, equal=self.equal, size=self.size)


SIZES = ((SMALL, 400), (LARGE, 20))
ANY = [Case(*size, racks) for size in SIZES for racks in (False, True)]
SPLIT = [case._replace(equal=equal) for case in ANY for equal in (True, False)]


def in_order(given: Given) -> dict[str, list[object]]:
    return {name: sorted(assignment.partitions) for name, assignment in given.items()}


@pytest.mark.parametrize("case", ANY, ids=str)
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_assignments_equal_those_of_java(
    java_assignors: AssignorOracle, report: list[str], strategy: str, case: Case
) -> None:
    rng = Random(f"{strategy} {case}")
    for _ in range(case.count):
        group = random_group(rng, racks=case.racks, size=case.size)
        ours = BUILT_IN[strategy]().assign(group.cluster, group.members)
        javas = java_assignors.assign(strategy, group.cluster, group.members)
        assert in_order(ours) == in_order(javas), group
    report.append(
        f"assignors: {strategy}, {case} groups: {case.count} of {case.count} equal Java's"
    )


@pytest.mark.parametrize("case", SPLIT, ids=str)
def test_sticky_is_at_least_as_good_as_java(
    java_assignors: AssignorOracle, report: list[str], case: Case
) -> None:
    rng = Random(f"sticky {case}")
    tally = Tally()
    sticky = BUILT_IN["sticky"]()
    for regrouping in case.regroupings(rng):
        before = first(java_assignors, rng, "sticky", regrouping.before)
        after = carried(regrouping.after, before, 1, eager=True)
        ours = sticky.assign(after.cluster, after.members)
        javas = java_assignors.assign("sticky", after.cluster, after.members)
        tally.add(judged(after, ours, before), judged(after, javas, before), after)
    report.append(f"assignors: sticky, {case}: {tally}")


@pytest.mark.parametrize("case", SPLIT, ids=str)
def test_cooperative_sticky_is_at_least_as_good_as_java(
    java_assignors: AssignorOracle, report: list[str], case: Case
) -> None:
    """The final assignments are compared, if Java's assignor is finished within five rebalances.

    Our assignor always has its final assignment after two rebalances.
    """
    name = "cooperative-sticky"
    rng = Random(f"{name} {case}")
    tally = Tally()

    def javas_assign(
        cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> Given:
        return java_assignors.assign(name, cluster, members)

    for regrouping in case._replace(count=case.count // 2).regroupings(rng):
        before, group = first(java_assignors, rng, name, regrouping.before), regrouping.after
        ours = settled(BUILT_IN[name]().assign, group, before)
        assert ours is not None, group
        javas = settled(javas_assign, group, before, rebalances=5)
        if javas is None:
            tally.unsettled += 1
        else:
            tally.add(judged(group, ours, before), judged(group, javas, before), group)
    report.append(f"assignors: {name}, {case}: {tally}")


def first(oracle: AssignorOracle, rng: Random, strategy: str, group: Group) -> Given:
    """Return an initial assignment, which Java's assignor or ours computes."""
    if rng.random() < 0.5:
        return oracle.assign(strategy, group.cluster, group.members)
    return BUILT_IN[strategy]().assign(group.cluster, group.members)


class Tally:
    """Counts of how our assignments compare with Java's: by balance, then racks, then moves.

    At the same balance, ours never move more partitions. For a better balance, they may move more.
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
            parts.append(
                f"besides {self.unsettled} that Java's has not settled after five rebalances"
            )
        return ", ".join(parts)
