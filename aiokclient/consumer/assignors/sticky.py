"""`sticky` and `cooperative-sticky`: as balanced as can be, and then as few moves as can be.

Both give the same assignment for the same holdings (KIP-54; with racks KIP-881). Under the
cooperative protocol members go on with what they hold while they join, so that a partition that
is to move takes two rebalances (KIP-429): in the first one it is given to nobody, and its holder,
who no longer finds it in its assignment, gives it up and asks for the second one.
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
    """Keeps partitions where they were as far as balance allows; eager, as Kafka's `sticky`."""

    name = "sticky"
    version = 1

    def __init__(self) -> None:
        self._holding: Holding | None = None

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """What this member had last, in Kafka's format; None before its first assignment."""
        return None if self._holding is None else sticky_data(self._holding)

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Remember it for the next generation."""
        self._holding = Holding(assignment.partitions, metadata.generation_id)

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """The most balanced assignment with the fewest moves."""
        return _assigned(
            cluster, members, {m: read_holding(s.user_data) for m, s in members.items()}
        )


class CooperativeSticky(Assignor):
    """The same without a stop for partitions that stay, as Kafka's `cooperative-sticky`."""

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """The last generation, for leaders that read no newer subscription than version 1."""
        return generation_data(self._generation)

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Remember the generation."""
        self._generation = metadata.generation_id

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """As `Sticky`, less what another member still holds."""
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
    """The assignment without what would be taken from one member and given to another at once.

    A claim that lost against a later one counts, too: who made it holds the partition still.
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
