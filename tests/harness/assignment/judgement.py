"""Measures of an assignment: its imbalance, its distance from racks, and the moved partitions."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from aiokclient import AssignmentCluster, MemberAssignment, MemberSubscription, TopicPartition
from aiokclient.consumer.assignors.assignor import uses_racks
from assignment.groups import Group, carried

Given = Mapping[str, MemberAssignment]
Assign = Callable[[AssignmentCluster, Mapping[str, MemberSubscription]], Given]


class Judgement(NamedTuple):
    """The measures of an assignment; lower is better.

    `imbalance` is the sum of the differences between all pairs of members.
    """

    imbalance: int
    far: int
    moves: int


def judged(group: Group, given: Given, before: Given) -> Judgement:
    """Return the measures of the assignment `given`, which replaces `before`."""
    loads = [len(assignment.partitions) for assignment in given.values()]
    at = {one: name for name, assignment in given.items() for one in assignment.partitions}
    was = {
        one: name
        for name, assignment in before.items()
        for one in assignment.partitions
        if name in group.members and one.topic in group.members[name].topics
    }
    return Judgement(
        imbalance=sum(abs(first - second) for first in loads for second in loads) // 2,
        far=_far(group, at),
        moves=sum(at[one] != name for one, name in was.items() if one in at),
    )


def _far(group: Group, at: Mapping[TopicPartition, str]) -> int:
    racks = {name: member.rack for name, member in group.members.items() if member.rack}
    on = {one: group.cluster.racks(one) for one in at}
    if not uses_racks(frozenset(racks.values()), list(on.values())):
        return 0
    return sum(name in racks and racks[name] not in on[one] for one, name in at.items())


def settled(assign: Assign, group: Group, before: Given, rebalances: int = 2) -> Given | None:
    """Return the final assignment of a group under the cooperative protocol.

    The assignment is final if one more rebalance does not change it. Returns None if it is not
    final after `rebalances` rebalances.
    """
    given = before
    for generation in range(1, rebalances + 2):
        holding = carried(group, given, generation, eager=False)
        following = assign(holding.cluster, holding.members)
        if _partitions(following) == _partitions(given):
            return following
        given = following
    return None


def _partitions(given: Given) -> dict[str, list[TopicPartition]]:
    return {name: sorted(assignment.partitions) for name, assignment in given.items()}
