"""The strategies `sticky` and `cooperative-sticky`: the best balance with the fewest moves.

Both compute the same assignment for the same owners (KIP-54; with racks KIP-881). Under the
cooperative protocol members continue to read their partitions while they join, so that moving a
partition takes two rebalances (KIP-429). The first one assigns it to no member. Its owner, whose
new assignment lacks it, revokes it and requests the second rebalance.

The assignment is optimal: it is computed as a minimum-cost flow.
Kafka's sticky classes improve an assignment by single moves for as long as a move helps. They use
two algorithms, one of them for groups whose members all subscribe to the same topics. This module
finds the optimum in all cases, by a theorem about minimum-cost flows: a solution is optimal if and
only if no cycle of changes lowers its cost. So it begins with a good solution, and applies cycles
of negative cost until there are none. The costs are those of `Placement`. Therefore the result is
as balanced as the subscriptions allow. Among such assignments, it has the fewest partitions on
members whose rack has no replica of them, and among those, it moves the fewest partitions. If the
input is the result of an earlier computation, nothing changes.

Partitions are of one kind if they may be assigned to the same members and have replicas in the same
racks. The changes are the edges of a graph, whose nodes are the members, the kinds, and one node
called the scales. An edge from a member to a kind takes a partition of that kind from the member,
and an edge from a kind to a member assigns it. An edge from one member to another returns a
partition to its previous owner. A cycle of these edges leaves all loads as they are. The scales
node stands for the loads: an edge from a member to it has the cost of one more partition on that
member, and an edge from it to a member has the saving of one fewer. So a cycle through the scales
reduces the load of one member and increases that of another. An edge from a member to a kind costs
1 more if the member owned all of its partitions of that kind before.

`Placement` has the partitions of each member while the assignment is computed. Members and kinds of
partitions are represented by their indexes.

Thousands of partitions are often alike: they may be assigned to the same members, have replicas in
the same racks, and had the same owner. Such partitions form one lot, so that the work depends on
the number of members and kinds of partitions, not on the number of partitions.

The cost of an assignment has three parts, in order of weight: the sum of the squares of the
members' loads, which is lowest for the most balanced assignment; `far` for each partition on a
member whose rack has no replica of it; and 1 for each partition that has left its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
    in_order,
    subscribers,
    uses_racks,
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
from aiokclient.types import TopicPartition
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.types import GroupMetadata

NOWHERE = -1
"""The index of the home of partitions that have no previous owner."""

Lot: TypeAlias = tuple[int, int]
"""A set of equivalent partitions, as a pair of indexes: that of their kind, and that of their home.

The home is the member that owned them before.
"""

Edges: TypeAlias = list[list[tuple[int, int]]]
"""The edges out of each node, as pairs of the target node and the cost."""


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
    given = placement.list_assigned()
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


class PartitionKind(NamedTuple):
    """The properties that the partitions of one kind share.

    `far` has each member that may be assigned these partitions. The value is `Placement.far` if the
    member's rack has no replica, otherwise 0.
    """

    far: Mapping[int, int]
    near: Sequence[int]
    """The preferred members: those in the rack of a replica, or all members if there are none."""


class Placement:
    """The partitions and the load of each member. Only its methods change them."""

    def __init__(
        self,
        cluster: AssignmentCluster,
        members: Mapping[str, MemberSubscription],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        self.names = in_order(members)
        self.load = [0] * len(members)
        self.held: list[dict[Lot, list[TopicPartition]]] = [{} for _ in members]
        self.kinds: list[PartitionKind] = []
        topics = subscribers(cluster, members)
        partitions = [one for topic in topics for one in cluster.partitions(topic)]
        self.far = len(partitions) + 1
        self.heavy = self.far * self.far
        """The weight of the loads, which is more than any sum of the two other costs."""
        self._fill_loose(partitions, topics, _racks(cluster, members, partitions), members, owners)

    def _fill_loose(
        self,
        partitions: Iterable[TopicPartition],
        topics: Mapping[str, list[str]],
        racks: Mapping[TopicPartition, frozenset[str]],
        members: Mapping[str, MemberSubscription],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        """Determine the lot of each partition and fill `loose`, sorted by topic and partition."""
        number = {name: index for index, name in enumerate(self.names)}
        rack = [members[name].rack or None for name in self.names]
        able = {topic: tuple(number[name] for name in names) for topic, names in topics.items()}
        known: dict[tuple[tuple[int, ...], frozenset[str] | None], int] = {}
        self.loose: list[tuple[Lot, TopicPartition]] = []
        for partition in partitions:
            key = able[partition.topic], racks.get(partition)
            if (kind := known.get(key)) is None:
                kind = known[key] = len(self.kinds)
                self.kinds.append(self._make_kind(*key, rack))
            home = number.get(owners.get(partition, ""), NOWHERE)
            # An owner that no longer subscribes to the topic cannot be assigned the partition.
            lot = kind, home if home in self.kinds[kind].far else NOWHERE
            self.loose.append((lot, partition))

    def _make_kind(
        self, able: tuple[int, ...], on: frozenset[str] | None, rack: Sequence[str | None]
    ) -> PartitionKind:
        far = {
            member: 0 if on is None or rack[member] is None or rack[member] in on else self.far
            for member in able
        }
        return PartitionKind(far, [member for member in able if not far[member]] or able)

    def add_partitions(self, member: int, lot: Lot, partitions: Iterable[TopicPartition]) -> None:
        have = self.held[member].setdefault(lot, [])
        before = len(have)
        have.extend(partitions)
        self.load[member] += len(have) - before

    def take_partitions(self, member: int, lot: Lot, count: int) -> list[TopicPartition]:
        """Remove the last `count` partitions of a lot from a member, and return them."""
        have = self.held[member][lot]
        taken = have[len(have) - count :]
        del have[len(have) - count :]
        if not have:
            del self.held[member][lot]
        self.load[member] -= count
        return taken

    def compute_move_cost(self, lot: Lot, source: int, target: int) -> int:
        """Return the cost of moving one partition of the lot, without the cost of the loads."""
        kind, home = lot
        far = self.kinds[kind].far
        moved = 0 if home == NOWHERE else (home != target) - (home != source)
        return far[target] - far[source] + moved

    def list_assigned(self) -> dict[str, list[TopicPartition]]:
        """Return the sorted partitions of each member, by member id."""
        return {
            name: sorted(partition for have in lots.values() for partition in have)
            for name, lots in zip(self.names, self.held, strict=True)
        }


def _racks(
    cluster: AssignmentCluster,
    members: Mapping[str, MemberSubscription],
    partitions: Sequence[TopicPartition],
) -> dict[TopicPartition, frozenset[str]]:
    """Return the racks of each partition, limited to racks of members.

    The result is empty if racks make no difference to the assignment.
    """
    on = frozenset(member.rack for member in members.values() if member.rack)
    racks = {partition: cluster.racks(partition) for partition in partitions}
    if not on or not uses_racks(on, list(racks.values())):
        return {}
    return {partition: found & on for partition, found in racks.items()}


def optimize(placement: Placement) -> None:
    """Assign all partitions in `placement.loose`, at the lowest cost."""
    _begin(placement)
    _level(placement)
    edges = _edges(placement)
    # The distances are kept between searches, so that the next search only visits what changed.
    distance = [0] * len(edges)
    while cycles := _negative_cycles(edges, distance):
        for cycle in cycles:
            _turn(placement, cycle)
            for node in cycle:
                if node < len(placement.load):
                    edges[node] = _from_member(placement, node)
        edges[-1] = _from_scales(placement)


def _begin(placement: Placement) -> None:
    """Build the first solution, which the later steps improve.

    Partitions stay with their previous owner if it is in a rack with a replica. The others are
    assigned to the members with the lowest load.
    """
    kinds, load = placement.kinds, placement.load
    # The order by partition number makes an overloaded member lose its highest numbers, evenly
    # over all topics.
    for lot, partition in sorted(placement.loose, key=lambda one: one[1][::-1]):
        kind, home = lot
        if home != NOWHERE and not kinds[kind].far[home]:
            placement.add_partitions(home, lot, [partition])
    homeless = [
        (lot, partition)
        for lot, partition in placement.loose
        if lot[1] == NOWHERE or kinds[lot[0]].far[lot[1]]
    ]
    # Partitions with the fewest preferred members come first.
    for lot, partition in sorted(homeless, key=lambda one: len(kinds[one[0][0]].near)):
        placement.add_partitions(min(kinds[lot[0]].near, key=load.__getitem__), lot, [partition])


def _level(placement: Placement) -> None:
    """Move single partitions from the highest to the lowest loads, as long as that helps.

    The search for cycles would find the same result without this step, at a much higher cost.
    """
    load = placement.load
    order = list(range(len(load)))
    while order:
        order.sort(key=load.__getitem__)
        if not _give_one(placement, order[-1], order):
            order.pop()


def _give_one(placement: Placement, source: int, order: Sequence[int]) -> bool:
    for target in order:
        if placement.load[target] + 2 > placement.load[source]:
            return False
        lots = [lot for lot in placement.held[source] if target in placement.kinds[lot[0]].far]
        if lots:
            lot = min(lots, key=lambda one: placement.compute_move_cost(one, source, target))
            placement.add_partitions(target, lot, placement.take_partitions(source, lot, 1))
            return True
    return False


def _edges(placement: Placement) -> Edges:
    """Return the edges of the graph. The nodes are the members, then the kinds, then the scales."""
    edges = [_from_member(placement, member) for member in range(len(placement.load))]
    edges += [list(kind.far.items()) for kind in placement.kinds]
    return [*edges, _from_scales(placement)]


def _from_member(placement: Placement, member: int) -> list[tuple[int, int]]:
    members, kinds = len(placement.load), placement.kinds
    cheapest: dict[int, int] = {}
    for lot in placement.held[member]:
        kind, home = lot
        node, cost = members + kind, (home == member) - kinds[kind].far[member]
        cheapest[node] = min(cost, cheapest.get(node, cost))
        if home not in (member, NOWHERE):
            cost = placement.compute_move_cost(lot, member, home)
            cheapest[home] = min(cost, cheapest.get(home, cost))
    scales = members + len(kinds)
    return [*cheapest.items(), (scales, placement.heavy * (2 * placement.load[member] + 1))]


def _from_scales(placement: Placement) -> list[tuple[int, int]]:
    heavy = placement.heavy
    return [(member, heavy * (1 - 2 * have)) for member, have in enumerate(placement.load) if have]


def _negative_cycles(edges: Edges, distance: list[int]) -> list[list[int]]:
    """Return some cycles of negative cost that share no nodes, found by Bellman-Ford.

    The list is empty only if the graph has no cycle of negative cost.
    """
    before = [-1] * len(edges)
    changed: list[int] = list(range(len(edges)))
    while changed:
        found: dict[int, None] = {}
        for node in changed:
            here = distance[node]
            for target, cost in edges[node]:
                if here + cost < distance[target]:
                    distance[target] = here + cost
                    before[target] = node
                    found[target] = None
        if cycles := list(_cycles(before)):
            return cycles
        changed = list(found)
    return []


def _cycles(before: Sequence[int]) -> Iterator[list[int]]:
    """Yield the cycles of a graph in which each node has at most one predecessor.

    The nodes of each cycle are in the direction of its edges.
    """
    seen = [-1] * len(before)
    for start in range(len(before)):
        node = start
        while node >= 0 and seen[node] < 0:
            seen[node] = start
            node = before[node]
        if node >= 0 and seen[node] == start:
            cycle = [node]
            while (following := before[cycle[-1]]) != node:
                cycle.append(following)
            yield cycle[::-1]
            # Mark the cycle as found, so that it is yielded only once.
            seen[node] = len(before)


def _turn(placement: Placement, cycle: list[int]) -> None:
    """Apply all changes of a cycle, as many times as that lowers the cost."""
    moves = list(_moves(placement, cycle))
    count = min(len(placement.held[source][lot]) for source, lot, _ in moves)
    scales = len(placement.load) + len(placement.kinds)
    if scales in cycle:
        at = cycle.index(scales)
        lighter, heavier = cycle[(at + 1) % len(cycle)], cycle[at - 1]
        count = min(count, max(1, (placement.load[lighter] - placement.load[heavier]) // 2))
    taken = [
        (lot, target, placement.take_partitions(source, lot, count))
        for source, lot, target in moves
    ]
    for lot, target, partitions in taken:
        placement.add_partitions(target, lot, partitions)


def _moves(placement: Placement, cycle: list[int]) -> Iterator[tuple[int, Lot, int]]:
    """Yield the moves of a cycle as tuples of source member, lot, and target member."""
    members, scales = len(placement.load), len(placement.load) + len(placement.kinds)
    around = [*cycle, *cycle[:2]]
    for (source, through), target in zip(pairwise(around), around[2:], strict=False):
        if source >= members or through == scales:
            continue
        if through < members:
            lots = [lot for lot in placement.held[source] if lot[1] == through]
            yield source, _cheapest(placement, lots, source, through), through
        else:
            lots = [lot for lot in placement.held[source] if lot[0] == through - members]
            yield source, _cheapest(placement, lots, source, target), target


def _cheapest(placement: Placement, lots: list[Lot], source: int, target: int) -> Lot:
    return min(lots, key=lambda lot: placement.compute_move_cost(lot, source, target))
