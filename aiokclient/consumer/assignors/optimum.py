"""The best assignment there is, at the least number of moves: a minimum cost flow.

Kafka's sticky classes improve an assignment by single moves as long as one helps, in two
algorithms, one of them for members that all subscribe to the same. This one finds the optimum in
all cases, by the theorem of minimum cost flows: a solution is the best one if and only if there is
no cycle of changes, one after the other, that lowers the cost. So it begins with a good solution
and turns cycles until there is none. As the costs are those of `Placement`, the result is as
balanced as the subscriptions allow; among such ones it crosses racks least; and among those it
moves the fewest partitions. Asked again with its own result, it changes nothing.

The changes are the edges of a graph. A member gives a partition to a kind, a kind to a member
that may get it; a partition that comes home goes directly. A cycle of these leaves all loads as
they are. The scales node stands for the loads: an edge into it is the cost of one partition more,
one out of it what one less saves, so that a cycle through it makes one member lighter and another
one heavier. Edges out of a member cost 1 more if only partitions that were its own are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from aiokclient.consumer.assignors.placement import NOWHERE, Lot, Placement

__all__ = ["optimize"]

Edges: TypeAlias = list[list[tuple[int, int]]]
"""For each node where its edges lead, and what they cost."""


def optimize(placement: Placement) -> None:
    """Place all that is loose, at the least cost."""
    _begin(placement)
    _level(placement)
    edges = _edges(placement)
    # Kept from one search to the next, which then has to look at changes only.
    distance = [0] * len(edges)
    while cycles := _negative_cycles(edges, distance):
        for cycle in cycles:
            _turn(placement, cycle)
            for node in cycle:
                if node < len(placement.load):
                    edges[node] = _from_member(placement, node)
        edges[-1] = _from_scales(placement)


def _begin(placement: Placement) -> None:
    """Leave partitions where they were, if that is not far; the others to who has the least."""
    kinds, load = placement.kinds, placement.load
    # A member that has to give some away gives those with the highest numbers, of all topics.
    for lot, partition in sorted(placement.loose, key=lambda one: one[1][::-1]):
        kind, home = lot
        if home != NOWHERE and not kinds[kind].far[home]:
            placement.put(home, lot, [partition])
    homeless = [
        (lot, partition)
        for lot, partition in placement.loose
        if lot[1] == NOWHERE or kinds[lot[0]].far[lot[1]]
    ]
    # What few can take comes first.
    for lot, partition in sorted(homeless, key=lambda one: len(kinds[one[0][0]].near)):
        placement.put(min(kinds[lot[0]].near, key=load.__getitem__), lot, [partition])


def _level(placement: Placement) -> None:
    """Single moves from the one that has most to those that have least, while that helps.

    Not needed for the result, but much cheaper than cycles.
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
    """The changes that are possible: members first, then kinds, then the scales."""
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
    """Some cycles of negative cost without a common node; none if there is none. Bellman-Ford."""
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
    """The cycles of a graph in which each node has at most one before it, in their direction."""
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
            # Not to be found again from here.
            seen[node] = len(before)


def _turn(placement: Placement, cycle: list[int]) -> None:
    """Make all changes of a cycle, as often as it lowers the cost."""
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
    """From whom, which and to whom: the moves that a cycle stands for."""
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
