"""Each partition to several members: for replicas of an index, a cache, a materialized view.

Members that had a partition keep it, then it goes to those that have the fewest; last, single
copies move from those that have most to those that have least, as long as that helps. Where all
members subscribe to the same topics, their loads then differ by one at most: who has two copies
more than another has one of a partition that the other has not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    MemberAssignment,
    MemberSubscription,
)
from aiokclient.consumer.assignors.holdings import Holding, read_holding
from aiokclient.consumer.assignors.members import in_order, subscribers
from aiokclient.consumer.assignors.sticky import Sticky
from aiokclient.errors import ConfigError
from aiokclient.types import TopicPartition

__all__ = ["Redundant"]


class Redundant(Sticky):
    """Each partition to `copies` members, or to all where fewer subscribe to its topic.

    The number is part of the name, as members have to agree on it; to change it while the group
    lives, offer the new one before the old one for a round of restarts. Committed offsets belong
    to the group, not to a copy, so automatic commits are off unless asked for.
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
        """Each partition to distinct members, balanced, with few moves."""
        holdings = {name: read_holding(member.user_data) for name, member in members.items()}
        copies = _Copies(cluster, members, holdings)
        copies.keep(self.copies)
        copies.fill(self.copies)
        copies.level()
        return {name: MemberAssignment(tuple(sorted(copies.held[name]))) for name in members}


class _Copies:
    """Who has a copy of what, while they are dealt out."""

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
        # Whose claim is the latest comes first.
        self._claimants = sorted(order, key=lambda name: -holdings[name].generation)
        self.held: dict[str, dict[TopicPartition, None]] = {name: {} for name in order}

    def keep(self, copies: int) -> None:
        for partition in self._partitions:
            able = set(self._able[partition.topic])
            had = [name for name in self._claimants if partition in self._had[name]]
            for name in [name for name in had if name in able][:copies]:
                self.held[name][partition] = None

    def fill(self, copies: int) -> None:
        for partition in self._partitions:
            able = self._able[partition.topic]
            without = [name for name in able if partition not in self.held[name]]
            missing = min(copies, len(able)) - (len(able) - len(without))
            if missing > 0:
                for name in sorted(without, key=self._load)[:missing]:
                    self.held[name][partition] = None

    def level(self) -> None:
        order = list(self.held)
        while order:
            order.sort(key=self._load)
            if not self._give_one(order[-1], order):
                order.pop()

    def _give_one(self, source: str, order: Sequence[str]) -> bool:
        have = self.held[source]
        for target in order:
            if self._load(target) + 2 > self._load(source):
                return False
            fitting = [
                partition
                for partition in have
                if partition not in self.held[target] and target in self._able[partition.topic]
            ]
            if fitting:
                # What is new where it is had better be new elsewhere.
                moved = max(fitting, key=lambda one: (one not in self._had[source], one[::-1]))
                del have[moved]
                self.held[target][moved] = None
                return True
        return False

    def _load(self, name: str) -> int:
        return len(self.held[name])
