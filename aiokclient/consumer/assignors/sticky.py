"""The strategies `sticky` and `cooperative-sticky`: the best balance with the fewest moves.

Both compute the same assignment for the same owners (KIP-54; with racks KIP-881). Under the
cooperative protocol members continue to read their partitions while they join, so that moving a
partition takes two rebalances (KIP-429). The first one assigns it to no member. Its owner, whose
new assignment lacks it, revokes it and requests the second rebalance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
)
from aiokclient.consumer.assignors.holdings import (
    NO_GENERATION,
    Holding,
    generation_data,
    owners,
    read_generation,
    read_holding,
    sticky_data,
)
from aiokclient.consumer.assignors.optimum import optimize
from aiokclient.consumer.assignors.placement import Placement
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.types import GroupMetadata

__all__ = ["CooperativeSticky", "Sticky", "without_transfers"]


class Sticky(Assignor):
    """An eager strategy that moves as few partitions as balance allows, as Kafka's `sticky`."""

    name = "sticky"
    version = 1

    def __init__(self) -> None:
        self._holding: Holding | None = None

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """Return this member's last assignment in Kafka's format, or None before the first one."""
        return None if self._holding is None else sticky_data(self._holding)

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Store the assignment, which `user_data` sends in the next rebalance."""
        self._holding = Holding(assignment.partitions, metadata.generation_id)

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """Return the most balanced assignment with the fewest moves."""
        return _assigned(
            cluster, members, {m: read_holding(s.user_data) for m, s in members.items()}
        )


class CooperativeSticky(Assignor):
    """A cooperative form of `Sticky`, as Kafka's `cooperative-sticky`.

    Partitions that stay with their owner are read without interruption.
    """

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """Return the last generation, for leaders that read subscriptions up to version 1 only."""
        return generation_data(self._generation)

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Store the generation, which `user_data` sends in the next rebalance."""
        self._generation = metadata.generation_id

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """Return the assignment of `Sticky` without partitions that another member still owns."""
        holdings = {member: _owned(subscription) for member, subscription in members.items()}
        return without_transfers(_assigned(cluster, members, holdings), holdings)


def _owned(subscription: MemberSubscription) -> Holding:
    generation = subscription.generation_id
    if generation < 0:
        generation = read_generation(subscription.user_data)
    return Holding(subscription.owned, generation)


def _assigned(
    cluster: AssignmentCluster,
    members: Mapping[str, MemberSubscription],
    holdings: Mapping[str, Holding],
) -> dict[str, MemberAssignment]:
    placement = Placement(cluster, members, owners(holdings))
    optimize(placement)
    given = placement.result()
    return {member: MemberAssignment(tuple(given[member])) for member in members}


def without_transfers(
    given: Mapping[str, MemberAssignment], holdings: Mapping[str, Holding]
) -> dict[str, MemberAssignment]:
    """Return the assignment without partitions that would move directly between two members.

    Every member that claims a partition counts, even one whose claim is outdated, because it may
    still be reading the partition.
    """
    right = owners(holdings)
    holders: dict[TopicPartition, set[str]] = {}
    for holder, holding in holdings.items():
        for partition in holding.partitions:
            holders.setdefault(partition, set()).add(holder)

    def may_have(member: str, partition: TopicPartition) -> bool:
        return right.get(partition) == member or holders.get(partition, {member}) <= {member}

    return {
        member: assignment._replace(
            partitions=tuple(one for one in assignment.partitions if may_have(member, one))
        )
        for member, assignment in given.items()
    }
