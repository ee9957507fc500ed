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

import heapq
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


@dataclass(frozen=True, slots=True)
class PlanTargets:
    """The brokers of a plan: those that get replicas, and those that only keep theirs.

    Without `make_even`, only the replicas on other brokers move.
    """

    targets: Collection[int]
    staying: Collection[int]
    make_even: bool


def compute_plan(
    partitions: Mapping[TopicPartition, PlacedPartition],
    brokers: Mapping[int, BrokerRoom],
    targets: Collection[int],
    staying: Collection[int] = (),
    make_even: bool = True,
    is_stopped: Callable[[], bool] = lambda: False,
) -> ReassignmentPlan:
    """Return a plan after which replicas are only on the targets and on brokers in `staying`.

    Brokers in `staying` keep their replicas and get none. If `make_even` is false, only the
    replicas on other brokers move. `is_stopped` is called between the steps, and ends the
    computation when it returns True. Raises InvalidReplicaAssignmentError for a partition for which
    there are too few targets, or not enough room, and PlanStoppedError.
    """
    allowed = sorted(set(targets))
    placement = ReplicaPlacement(partitions, brokers, allowed, is_stopped)
    # Even counts may fill a small broker too early. Then the disks are filled evenly instead.
    for by_room in (False, True):
        try:
            placement.vacate_brokers(staying, by_room)
            break
        except NoRoomError:
            if by_room:
                raise
            placement = ReplicaPlacement(partitions, brokers, allowed, is_stopped)
    if make_even:
        placement.spread_replicas()
    placement.spread_leaders(only_moved=not make_even)
    return placement.make_plan()


class PlanStoppedError(Exception):
    """An error raised when nothing waits for the plan any more."""


class NoRoomError(InvalidReplicaAssignmentError):
    """An error raised when no broker has room for a replica."""


TopicIndex: TypeAlias = dict[str, dict[TopicPartition, None]]
"""Partitions by topic."""
EMPTY_INDEX: TopicIndex = {}


def _insert(index: TopicIndex, tp: TopicPartition) -> None:
    index.setdefault(tp.topic, {})[tp] = None


def _select(index: TopicIndex, tps: Iterable[TopicPartition]) -> TopicIndex:
    """Return the part of an index with these partitions."""
    selected: TopicIndex = {}
    for tp in tps:
        if tp in index.get(tp.topic, ()):
            _insert(selected, tp)
    return selected


def _discard(index: TopicIndex, tp: TopicPartition) -> None:
    of_topic = index.get(tp.topic)
    if of_topic is not None and tp in of_topic:
        del of_topic[tp]
        if not of_topic:
            del index[tp.topic]


class Holdings:
    """The partitions that each broker holds, or is preferred leader of, by topic."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.changes: dict[int, list[TopicPartition]] = {}
        """The partitions that each broker has got, and those of its own that have changed."""
        self.topics: dict[int, TopicIndex] = {}
        self._topic_counts: dict[int, dict[str, int]] = {}

    def add_partition(self, tp: TopicPartition, broker: int) -> None:
        _insert(self.topics.setdefault(broker, {}), tp)
        counts = self._topic_counts.setdefault(broker, {})
        counts[tp.topic] = counts.get(tp.topic, 0) + 1
        self.counts[broker] += 1
        self.note_change(tp, broker)

    def note_change(self, tp: TopicPartition, broker: int) -> None:
        self.changes.setdefault(broker, []).append(tp)

    def move_partition(self, tp: TopicPartition, source: int, target: int) -> None:
        _discard(self.topics[source], tp)
        counts = self._topic_counts[source]
        counts[tp.topic] -= 1
        if not counts[tp.topic]:
            del counts[tp.topic]
        self.counts[source] -= 1
        self.add_partition(tp, target)

    def iterate_topics(
        self, candidates: TopicIndex, source: int, target: int
    ) -> Iterator[Iterable[TopicPartition]]:
        """Yield the candidates on `source` by topic, those most missing on `target` first."""
        held = self._topic_counts.get(source, {})
        others = self._topic_counts.get(target, {})
        # Usually, a partition of the first topic is chosen: to sort all of them would be a waste.
        order = [(others.get(name, 0) - held[name], name) for name in candidates]
        heapq.heapify(order)
        while order:
            yield candidates[heapq.heappop(order)[1]]


ChainStep: TypeAlias = tuple[int, int, TopicPartition]
"""A source, a target, and the partition that moves from one to the other."""

ListCandidates: TypeAlias = Callable[[int, int], TopicIndex]
"""A function from a source and a target to the partitions among which one may move."""

FindMovable: TypeAlias = Callable[[int, int, Collection[TopicPartition]], TopicPartition | None]
"""A function from a source, a target, and partitions that move already to one that can move."""


class ReplicaPlacement:
    """The replicas of all partitions while a plan is computed, and what they use of each broker."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PlacedPartition],
        brokers: Mapping[int, BrokerRoom],
        targets: Sequence[int],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._is_stopped = is_stopped
        self._before = dict(sorted(partitions.items()))
        self._brokers, self._targets = brokers, targets
        self._rack_of = {node: room.rack for node, room in brokers.items()}
        self._replicas = {tp: list(each.replicas) for tp, each in self._before.items()}
        self._least_racks = {
            tp: self._count_racks(each.replicas) for tp, each in self._before.items()
        }
        self._incoming: Counter[int] = Counter()
        self._releases: Counter[int] = Counter()
        """The number of times that the room of each broker has grown."""
        self._blocked: dict[tuple[int, int], tuple[int, int]] = {}
        """Pairs of brokers between which nothing could move, with the number of the changes of the
        first one and that of the releases of the second one at that time.

        Only what has changed since can move, unless there is more room. Without this, a plan for a
        hundred brokers takes minutes.
        """
        self._held, self._led = Holdings(), Holdings()
        self._added: dict[int, TopicIndex] = {}
        """The replicas that each broker has got, which can move again without another copy."""
        self._may_lead: dict[tuple[int, int], TopicIndex] = {}
        """The partitions of each preferred leader and each of their other brokers."""
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

    def _is_new(self, tp: TopicPartition, broker: int) -> bool:
        return broker not in self._before[tp].replicas

    def _move_replica(self, tp: TopicPartition, source: int, target: int) -> None:
        replicas, size = self._replicas[tp], self._before[tp].size
        replicas[replicas.index(source)] = target
        self._held.move_partition(tp, source, target)
        for broker in replicas:
            self._held.note_change(tp, broker)
        if self._is_new(tp, target):
            self._incoming[target] += size
            _insert(self._added.setdefault(target, {}), tp)
        if self._is_new(tp, source):
            self._incoming[source] -= size
            self._releases[source] += 1
            _discard(self._added[source], tp)

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
            self._require_wanted()
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
        self._level_counts(self._held, self._list_added, self._can_move, self._move_replica)
        self._level_counts(self._held, self._list_held, self._can_move, self._move_replica)

    def _list_added(self, source: int, target: int) -> TopicIndex:
        return self._added.get(source, EMPTY_INDEX)

    def _list_held(self, source: int, target: int) -> TopicIndex:
        return self._held.topics.get(source, EMPTY_INDEX)

    def spread_leaders(self, only_moved: bool) -> None:
        """Change orders of replicas until the targets are preferred leaders equally often.

        With `only_moved`, only partitions change whose preferred leader has moved.
        """
        for tp, replicas in self._replicas.items():
            self._led.add_partition(tp, replicas[0])
            if self._is_moved_leader(tp) or not only_moved:
                self._list_followers(tp)

        def list_shared(source: int, target: int) -> TopicIndex:
            return self._may_lead.get((source, target), EMPTY_INDEX)

        def can_lead(tp: TopicPartition, source: int, target: int) -> bool:
            return True

        self._level_counts(self._led, list_shared, can_lead, self._move_leader)

    def _list_followers(self, tp: TopicPartition) -> None:
        leader, *followers = self._replicas[tp]
        for follower in followers:
            _insert(self._may_lead.setdefault((leader, follower), {}), tp)

    def _is_moved_leader(self, tp: TopicPartition) -> bool:
        return self._before[tp].replicas[0] not in self._replicas[tp]

    def _move_leader(self, tp: TopicPartition, source: int, target: int) -> None:
        replicas = self._replicas[tp]
        for follower in replicas[1:]:
            _discard(self._may_lead[source, follower], tp)
        replicas.remove(target)
        replicas.insert(0, target)
        self._list_followers(tp)
        self._led.move_partition(tp, source, target)

    def _require_wanted(self) -> None:
        if self._is_stopped():
            raise PlanStoppedError

    def _level_counts(
        self,
        holdings: Holdings,
        list_candidates: ListCandidates,
        can_move: Callable[[TopicPartition, int, int], bool],
        move: Callable[[TopicPartition, int, int], None],
    ) -> None:
        self._blocked = {}

        def find_movable(
            source: int, target: int, used: Collection[TopicPartition]
        ) -> TopicPartition | None:
            changes, releases = holdings.changes.get(source, ()), self._releases[target]
            candidates = list_candidates(source, target)
            seen, former_releases = self._blocked.get((source, target), (0, -1))
            if former_releases == releases:
                if seen == len(changes):
                    return None
                candidates = _select(candidates, changes[seen:])
            topics = holdings.iterate_topics(candidates, source, target)
            found = self._choose_movable(topics, source, target, used, can_move)
            if found is None and all(source not in self._replicas[tp] for tp in used):
                self._blocked[source, target] = len(changes), releases
            return found

        # A chain moves several replicas where one would do for another broker.
        while chain := (
            self._find_best_chain(holdings.counts, find_movable, longest=1)
            or self._find_best_chain(holdings.counts, find_movable, longest=len(self._targets))
        ):
            # From its end, so that each broker gives a replica before it gets another one.
            for source, target, tp in reversed(chain):
                move(tp, source, target)

    def _find_best_chain(
        self, counts: Counter[int], find_movable: FindMovable, longest: int
    ) -> list[ChainStep]:
        """Return a chain from the broker with the most that has one, or an empty list."""
        useless: set[int] = set()
        # Sorting is stable, also in reverse: of equal counts, the lower id comes first.
        targets = sorted(self._targets, key=counts.__getitem__)
        for source in sorted(self._targets, key=counts.__getitem__, reverse=True):
            # What an earlier source reaches has no more, and leads to no other brokers.
            if source in useless and longest > 1:
                continue
            if counts[targets[0]] > counts[source] - 2:
                break
            chain, reached = self._find_chain(counts, targets, source, find_movable, longest)
            if chain:
                return chain
            useless.update(reached)
        return []

    def _find_chain(
        self,
        counts: Counter[int],
        targets: Sequence[int],
        source: int,
        find_movable: FindMovable,
        longest: int,
    ) -> tuple[list[ChainStep], Collection[int]]:
        """Return the shortest chain to a broker that has at least two less, and what it reached."""
        chains: dict[int, list[ChainStep]] = {source: []}
        queue = deque([source])
        while queue:
            self._require_wanted()
            broker = queue.popleft()
            used = {tp for _, _, tp in chains[broker]}
            for target in targets:
                is_end = counts[target] <= counts[source] - 2
                if len(used) + 1 == longest and not is_end:
                    break  # Those after it have as many or more.
                if target in chains:
                    continue
                tp = find_movable(broker, target, used)
                if tp is None:
                    continue
                chains[target] = [*chains[broker], (broker, target, tp)]
                if is_end:
                    return chains[target], ()
                queue.append(target)
        return [], chains.keys()

    def _choose_movable(
        self,
        topics: Iterable[Iterable[TopicPartition]],
        source: int,
        target: int,
        used: Collection[TopicPartition],
        can_move: Callable[[TopicPartition, int, int], bool],
    ) -> TopicPartition | None:
        for partitions in topics:
            movable = [tp for tp in partitions if tp not in used and can_move(tp, source, target)]
            if movable:
                return min(
                    movable,
                    key=lambda tp: (not self._is_new(tp, source), self._before[tp].size, tp),
                )
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
