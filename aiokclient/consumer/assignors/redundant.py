"""Assignment of each partition to several members, for replicas of an index or a cache.

Members keep the partitions that they had. Missing copies are assigned to the members with the
lowest load. Finally, single copies move from the highest to the lowest loads, as long as that
helps. If all members subscribe to the same topics, their loads then differ by at most one: if a
member has two copies more than another member, one of its copies can always move to that member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    MemberAssignment,
    MemberSubscription,
    in_order,
    subscribers,
)
from aiokclient.consumer.assignors.holdings import Holding, read_holding
from aiokclient.consumer.assignors.sticky import Sticky
from aiokclient.errors import ConfigError
from aiokclient.types import TopicPartition, public_in


@public_in("aiokclient")
class Redundant(Sticky):
    """A strategy that assigns each partition to `copies` members.

        Consumer("cache", group_id="g", partition_assignment_strategy=Redundant(3), ...)

    `partition_assignment_strategy="redundant"` is the same as `Redundant()`: two copies.
    If fewer members subscribe to a topic, all of them are assigned its partitions. The number of
    copies is part of the strategy's name, because all members must use the same number. To change
    it in a running group, offer the strategy with the new number first and the old one second
    during a rolling restart. Committed offsets belong to the group, not to a copy, so automatic
    commits are off unless `enable_auto_commit` is set.
    """

    name = "redundant"
    overlapping = True

    def __init__(self, copies: int = 2) -> None:
        super().__init__()
        if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
            raise ConfigError(f"copies: {copies!r} is not allowed. It must be an integer from 1.")
        self.copies = copies
        self.name = f"redundant-{copies}"

    def __repr__(self) -> str:
        return f"Redundant({self.copies})"

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """Return a balanced assignment with `copies` members per partition and few moves."""
        holdings = {name: read_holding(member.user_data) for name, member in members.items()}
        copies = _Copies(cluster, members, holdings)
        copies.keep_copies(self.copies)
        copies.fill_copies(self.copies)
        copies.balance_loads()
        return {name: MemberAssignment(tuple(sorted(copies.held[name]))) for name in members}


class _Copies:
    """The copies of each member while an assignment is computed."""

    def __init__(
        self,
        cluster: AssignmentCluster,
        members: Mapping[str, MemberSubscription],
        holdings: Mapping[str, Holding],
    ) -> None:
        self._able = subscribers(cluster, members)
        self._partitions = [one for topic in self._able for one in cluster.partitions(topic)]
        self._had = {name: set(holding.partitions) for name, holding in holdings.items()}
        order = in_order(members)
        # Members with the latest generation come first.
        self._claimants = sorted(order, key=lambda name: -holdings[name].generation)
        self.held: dict[str, dict[TopicPartition, None]] = {name: {} for name in order}

    def keep_copies(self, copies: int) -> None:
        for partition in self._partitions:
            able = set(self._able[partition.topic])
            had = [name for name in self._claimants if partition in self._had[name]]
            for name in [name for name in had if name in able][:copies]:
                self.held[name][partition] = None

    def fill_copies(self, copies: int) -> None:
        for partition in self._partitions:
            able = self._able[partition.topic]
            without = [name for name in able if partition not in self.held[name]]
            missing = min(copies, len(able)) - (len(able) - len(without))
            if missing > 0:
                for name in sorted(without, key=self._count_load)[:missing]:
                    self.held[name][partition] = None

    def balance_loads(self) -> None:
        order = list(self.held)
        while order:
            order.sort(key=self._count_load)
            if not self._move_copy(order[-1], order):
                order.pop()

    def _move_copy(self, source: str, order: Sequence[str]) -> bool:
        have = self.held[source]
        for target in order:
            if self._count_load(target) + 2 > self._count_load(source):
                return False
            fitting = [
                partition
                for partition in have
                if partition not in self.held[target] and target in self._able[partition.topic]
            ]
            if fitting:
                # Prefer a partition that the source did not have before, because the source has not
                # loaded such a partition yet.
                moved = max(fitting, key=lambda one: (one not in self._had[source], one[::-1]))
                del have[moved]
                self.held[target][moved] = None
                return True
        return False

    def _count_load(self, name: str) -> int:
        return len(self.held[name])
