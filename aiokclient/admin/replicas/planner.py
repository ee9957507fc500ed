"""The computation of plans that move replicas. It is pure, and the same for the same input.

A plan is made in up to three steps:

1. Replicas on brokers that may not keep them go to the target with the fewest replicas, the large
   ones first: to a broker in a rack that has none of the partition's replicas, if there is one.
2. If the replicas are to be even, replicas move from targets with many to targets with few. Where
   none can move directly, several move in a chain: one from a to b, and another one from b to c.
   Each chain makes the sum of the squares of the counts smaller, so this ends, and then no other
   chain makes the counts more even. Where there is a choice, the topic that is distributed most
   unevenly between the two brokers comes first, then the smallest replica.
3. The preferred leaders become even in the same way, by the order of the replicas alone. Without
   step 2, only partitions that have lost their preferred leader are considered.

Each step keeps three rules. No broker has two replicas of a partition. The replicas of a partition
are in as many racks as before, as far as the targets have other racks. The new replicas of a broker
fit into its free bytes, although other replicas leave it, because those are deleted later.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from aiokclient.admin.replicas.plan import BrokerLoad, PlannedMove, ReassignmentPlan
from aiokclient.errors import InvalidReplicaAssignmentError
from aiokclient.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """A partition before a plan: its brokers, the preferred leader first, and its bytes."""

    replicas: tuple[int, ...]
    size: int = 0


@dataclass(frozen=True, slots=True)
class BrokerRoom:
    """The room of a broker for new replicas.

    `usable_bytes` are the free bytes of all its directories, and `largest_bytes` those of the
    emptiest one, in which a single replica must fit. They are None if they are unknown.
    """

    rack: str | None = None
    usable_bytes: int | None = None
    largest_bytes: int | None = None


def compute_plan(
    partitions: Mapping[TopicPartition, PlacedPartition],
    brokers: Mapping[int, BrokerRoom],
    targets: Collection[int],
    staying: Collection[int] = (),
    make_even: bool = True,
) -> ReassignmentPlan:
    """Return a plan after which replicas are only on the targets and on brokers in `staying`.

    Brokers in `staying` keep their replicas and get none. If `make_even` is false, only the
    replicas on other brokers move. Raises InvalidReplicaAssignmentError for a partition for which
    there are too few targets, or not enough room.
    """
    allowed = sorted(set(targets))
    placement = ReplicaPlacement(partitions, brokers, allowed)
    # Even counts may fill a small broker too early. Then the disks are filled evenly instead.
    for by_room in (False, True):
        try:
            placement.vacate_brokers(staying, by_room)
            break
        except NoRoomError:
            if by_room:
                raise
            placement = ReplicaPlacement(partitions, brokers, allowed)
    if make_even:
        placement.spread_replicas()
    placement.spread_leaders(only_moved=not make_even)
    return placement.make_plan()


class NoRoomError(InvalidReplicaAssignmentError):
    """An error raised when no broker has room for a replica."""


class Holdings:
    """The partitions that each broker holds, or is preferred leader of, by topic."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.gains: Counter[int] = Counter()
        """The number of times that each broker has got a partition, or one of its own changed."""
        self.departures: Counter[int] = Counter()
        """The number of times that each broker has lost a partition, which may leave room."""
        self._topics: dict[int, dict[str, dict[TopicPartition, None]]] = {}

    def add_partition(self, tp: TopicPartition, broker: int) -> None:
        topics = self._topics.setdefault(broker, {})
        topics.setdefault(tp.topic, {})[tp] = None
        self.counts[broker] += 1
        self.gains[broker] += 1

    def move_partition(self, tp: TopicPartition, source: int, target: int) -> None:
        topics = self._topics[source]
        del topics[tp.topic][tp]
        if not topics[tp.topic]:
            del topics[tp.topic]
        self.counts[source] -= 1
        self.departures[source] += 1
        self.add_partition(tp, target)

    def iterate_topics(self, source: int, target: int) -> Iterator[Iterable[TopicPartition]]:
        """Yield the partitions of each topic on `source`, those most missing on `target` first."""
        held, others = self._topics.get(source, {}), self._topics.get(target, {})
        surplus = {name: len(held[name]) - len(others.get(name, ())) for name in held}
        for name in sorted(held, key=lambda name: (-surplus[name], name)):
            yield held[name]


ChainStep: TypeAlias = tuple[int, int, TopicPartition]
"""A source, a target, and the partition that moves from one to the other."""


class ReplicaPlacement:
    """The replicas of all partitions while a plan is computed, and what they use of each broker."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PlacedPartition],
        brokers: Mapping[int, BrokerRoom],
        targets: Sequence[int],
    ) -> None:
        self._before = dict(sorted(partitions.items()))
        self._brokers, self._targets = brokers, targets
        self._rack_of = {node: room.rack for node, room in brokers.items()}
        self._replicas = {tp: list(each.replicas) for tp, each in self._before.items()}
        self._least_racks = {
            tp: self._count_racks(each.replicas) for tp, each in self._before.items()
        }
        self._incoming: Counter[int] = Counter()
        self._blocked: dict[tuple[int, int], tuple[int, int]] = {}
        """Pairs of brokers between which nothing can move, until one of their numbers changes.

        Without this, a plan for a hundred brokers takes minutes.
        """
        self._held, self._led = Holdings(), Holdings()
        for tp, replicas in self._replicas.items():
            for broker in replicas:
                self._held.add_partition(tp, broker)

    # -- the rules ----------------------------------------------------------------------------

    def _count_racks(self, replicas: Iterable[int]) -> int:
        return len(self._list_racks(replicas))

    def _list_racks(self, replicas: Iterable[int]) -> set[str]:
        return {rack for each in replicas if (rack := self._rack_of.get(each)) is not None}

    def _find_free_bytes(self, broker: int) -> int | None:
        usable = self._brokers[broker].usable_bytes
        return None if usable is None else usable - self._incoming[broker]

    def _has_room(self, tp: TopicPartition, broker: int) -> bool:
        size, free = self._before[tp].size, self._find_free_bytes(broker)
        largest = self._brokers[broker].largest_bytes
        if broker in self._before[tp].replicas:
            return True  # It is there already.
        return (free is None or size <= free) and (largest is None or size <= largest)

    def _can_move(self, tp: TopicPartition, source: int, target: int) -> bool:
        # This is called for each replica of a broker, for each of its moves.
        replicas, rack_of = self._replicas[tp], self._rack_of
        if target in replicas:
            return False
        if rack_of[source] != rack_of[target]:
            racks = {rack_of.get(each) for each in replicas if each != source}
            racks.add(rack_of[target])
            racks.discard(None)
            if len(racks) < self._least_racks[tp]:
                return False
        return self._has_room(tp, target)

    def _can_move_again(self, tp: TopicPartition, source: int, target: int) -> bool:
        return self._is_new(tp, source) and self._can_move(tp, source, target)

    def _is_new(self, tp: TopicPartition, broker: int) -> bool:
        return broker not in self._before[tp].replicas

    def _move_replica(self, tp: TopicPartition, source: int, target: int) -> None:
        replicas, size = self._replicas[tp], self._before[tp].size
        replicas[replicas.index(source)] = target
        self._held.move_partition(tp, source, target)
        self._held.gains.update(replicas)
        self._incoming[target] += size * self._is_new(tp, target)
        self._incoming[source] -= size * self._is_new(tp, source)

    # -- step 1 -------------------------------------------------------------------------------

    def vacate_brokers(self, staying: Collection[int], by_room: bool) -> None:
        """Move the replicas on brokers that are neither targets nor in `staying`.

        They go to the brokers with the fewest replicas, or if `by_room`, with the most free bytes.
        """
        kept = {*self._targets, *staying}
        for tp in sorted(self._before, key=lambda tp: (-self._before[tp].size, tp)):
            leaving = [each for each in self._replicas[tp] if each not in kept]
            if not leaving:
                continue
            remaining = [each for each in self._replicas[tp] if each in kept]
            candidates = [each for each in self._targets if each not in remaining]
            if len(candidates) < len(leaving):
                raise self._make_too_few_error(tp)
            racks = self._list_racks(remaining)
            others = self._list_racks(candidates) - racks
            possible = len(racks) + min(len(leaving), len(others))
            self._least_racks[tp] = min(self._least_racks[tp], possible)
            for source in leaving:
                target = self._choose_target(tp, candidates, racks, by_room)
                candidates.remove(target)
                racks |= self._list_racks([target])
                self._move_replica(tp, source, target)
            if len(racks) < self._least_racks[tp]:
                raise self._make_room_error(tp, " in another rack")

    def _choose_target(
        self,
        tp: TopicPartition,
        candidates: Iterable[int],
        racks: Collection[str],
        by_room: bool,
    ) -> int:
        possible = [each for each in candidates if self._has_room(tp, each)]
        if not possible:
            raise self._make_room_error(tp, "")

        def rank(broker: int) -> tuple[bool, float, float, int]:
            rack, free = self._brokers[broker].rack, self._find_free_bytes(broker)
            count = float(self._held.counts[broker])
            room = float("-inf") if free is None else -float(free)
            order = (room, count) if by_room else (count, float(self._incoming[broker]))
            return (rack is None or rack in racks, *order, broker)

        return min(possible, key=rank)

    def _make_too_few_error(self, tp: TopicPartition) -> InvalidReplicaAssignmentError:
        count = len(self._replicas[tp])
        error = InvalidReplicaAssignmentError(topic_partition=tp)
        named = f"only these brokers may have them: {', '.join(map(str, self._targets))}"
        error.what = (
            f"The partition has {count} replicas, and "
            f"{named if self._targets else 'no broker may have them'}."
        )
        error.hint = "Allow or start more brokers, or give the topic fewer replicas first."
        return error

    def _make_room_error(self, tp: TopicPartition, where: str) -> InvalidReplicaAssignmentError:
        error = NoRoomError(topic_partition=tp)
        error.what = f"No broker{where} has room for a replica of {self._before[tp].size} bytes."
        error.hint = (
            "Add disks or brokers, shorten the retention of topics, or move fewer topics at once."
        )
        return error

    # -- steps 2 and 3 ------------------------------------------------------------------------

    def spread_replicas(self) -> None:
        """Move replicas until the targets have as many as each other, as far as possible."""
        # To move a replica again that moves anyway costs nothing.
        self._level_counts(self._held, self._can_move_again, self._move_replica)
        self._level_counts(self._held, self._can_move, self._move_replica)

    def spread_leaders(self, only_moved: bool) -> None:
        """Change orders of replicas until the targets are preferred leaders equally often.

        With `only_moved`, only partitions change whose preferred leader has moved.
        """
        for tp, replicas in self._replicas.items():
            self._led.add_partition(tp, replicas[0])

        def can_lead(tp: TopicPartition, source: int, target: int) -> bool:
            has_moved = self._is_moved_leader(tp)
            return target in self._replicas[tp] and (has_moved or not only_moved)

        self._level_counts(self._led, can_lead, self._move_leader)

    def _is_moved_leader(self, tp: TopicPartition) -> bool:
        return self._before[tp].replicas[0] not in self._replicas[tp]

    def _move_leader(self, tp: TopicPartition, source: int, target: int) -> None:
        replicas = self._replicas[tp]
        replicas.remove(target)
        replicas.insert(0, target)
        self._led.move_partition(tp, source, target)

    def _level_counts(
        self,
        holdings: Holdings,
        can_move: Callable[[TopicPartition, int, int], bool],
        move: Callable[[TopicPartition, int, int], None],
    ) -> None:
        self._blocked = {}
        # A chain moves several replicas where one would do for another broker.
        while chain := (
            self._find_best_chain(holdings, can_move, longest=1)
            or self._find_best_chain(holdings, can_move, longest=len(self._targets))
        ):
            # From its end, so that each broker gives a replica before it gets another one.
            for source, target, tp in reversed(chain):
                move(tp, source, target)

    def _find_best_chain(
        self,
        holdings: Holdings,
        can_move: Callable[[TopicPartition, int, int], bool],
        longest: int,
    ) -> list[ChainStep]:
        """Return a chain from the broker with the most that has one, or an empty list."""
        counts = holdings.counts
        useless: set[int] = set()
        for source in sorted(self._targets, key=lambda each: (-counts[each], each)):
            # What an earlier source reaches has no more, and leads to no other brokers.
            if source in useless and longest > 1:
                continue
            chain, reached = self._find_chain(holdings, source, can_move, longest)
            if chain:
                return chain
            useless.update(reached)
        return []

    def _find_chain(
        self,
        holdings: Holdings,
        source: int,
        can_move: Callable[[TopicPartition, int, int], bool],
        longest: int,
    ) -> tuple[list[ChainStep], Collection[int]]:
        """Return the shortest chain to a broker that has at least two less, and what it reached."""
        counts = holdings.counts
        targets = sorted(self._targets, key=lambda each: (counts[each], each))
        if counts[targets[0]] > counts[source] - 2:
            return [], ()
        chains: dict[int, list[ChainStep]] = {source: []}
        queue = deque([source])
        while queue:
            broker = queue.popleft()
            used = {tp for _, _, tp in chains[broker]}
            for target in targets:
                is_end = counts[target] <= counts[source] - 2
                if target in chains or (len(used) + 1 == longest and not is_end):
                    continue
                tp = self._find_movable(holdings, broker, target, used, can_move)
                if tp is None:
                    continue
                chains[target] = [*chains[broker], (broker, target, tp)]
                if is_end:
                    return chains[target], ()
                queue.append(target)
        return [], chains.keys()

    def _find_movable(
        self,
        holdings: Holdings,
        source: int,
        target: int,
        used: Collection[TopicPartition],
        can_move: Callable[[TopicPartition, int, int], bool],
    ) -> TopicPartition | None:
        numbers = holdings.gains[source], holdings.departures[target]
        if self._blocked.get((source, target)) == numbers:
            return None
        for partitions in holdings.iterate_topics(source, target):
            movable = [tp for tp in partitions if tp not in used and can_move(tp, source, target)]
            if movable:
                return min(
                    movable,
                    key=lambda tp: (not self._is_new(tp, source), self._before[tp].size, tp),
                )
        if all(source not in self._replicas[tp] for tp in used):
            self._blocked[source, target] = numbers
        return None

    # -- the result ---------------------------------------------------------------------------

    def make_plan(self) -> ReassignmentPlan:
        """Return the plan, with the partitions that change."""
        after = {
            tp: PlacedPartition(tuple(replicas), self._before[tp].size)
            for tp, replicas in self._replicas.items()
        }
        moves = {
            tp: PlannedMove(after[tp].replicas, each.replicas, each.size)
            for tp, each in self._before.items()
            if after[tp].replicas != each.replicas
        }
        return ReassignmentPlan(moves, self._sum_loads(self._before), self._sum_loads(after))

    def _sum_loads(
        self, partitions: Mapping[TopicPartition, PlacedPartition]
    ) -> dict[int, BrokerLoad]:
        replicas: Counter[int] = Counter()
        leaders: Counter[int] = Counter()
        sizes: Counter[int] = Counter()
        for each in partitions.values():
            leaders[each.replicas[0]] += 1
            for broker in each.replicas:
                replicas[broker] += 1
                sizes[broker] += each.size
        everyone = {*self._targets, *self._brokers, *replicas}
        return {
            broker: BrokerLoad(replicas[broker], leaders[broker], sizes[broker])
            for broker in sorted(everyone)
        }
