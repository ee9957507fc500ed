"""The optimal sticky assignment, computed as a minimum-cost flow.

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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from aiokclient.consumer.assignors.placement import NOWHERE, Lot, Placement

__all__ = ["optimize"]

Edges: TypeAlias = list[list[tuple[int, int]]]
"""The edges out of each node, as pairs of the target node and the cost."""


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
            placement.put(home, lot, [partition])
    homeless = [
        (lot, partition)
        for lot, partition in placement.loose
        if lot[1] == NOWHERE or kinds[lot[0]].far[lot[1]]
    ]
    # Partitions with the fewest preferred members come first.
    for lot, partition in sorted(homeless, key=lambda one: len(kinds[one[0][0]].near)):
        placement.put(min(kinds[lot[0]].near, key=load.__getitem__), lot, [partition])


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
            lot = min(lots, key=lambda one: placement.cost(one, source, target))
            placement.put(target, lot, placement.take(source, lot, 1))
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
            cost = placement.cost(lot, member, home)
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
    taken = [(lot, target, placement.take(source, lot, count)) for source, lot, target in moves]
    for lot, target, partitions in taken:
        placement.put(target, lot, partitions)


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
    return min(lots, key=lambda lot: placement.cost(lot, source, target))
