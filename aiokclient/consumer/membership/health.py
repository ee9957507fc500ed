"""The health of a consumer's membership: its watches, refusals by the group, and problems."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aiokclient.consumer.membership.rebalance_watch import RebalanceWatch
from aiokclient.group.loop_watch import LoopWatch

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.config.consumer import ConsumerConfig
    from aiokclient.consumer.membership.base import Membership
    from aiokclient.consumer.membership.poll_interval import PollIntervalWatch
    from aiokclient.consumer.membership.reconciler import PartitionReconciler
    from aiokclient.consumer.state.subscription import SubscriptionState

__all__ = ["MembershipHealth"]


class MembershipHealth:
    """The watches of one membership, and the last refusal by the group."""

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        membership: Membership,
        reconciler: PartitionReconciler,
        poll_watch: PollIntervalWatch,
        group_id: str,
    ) -> None:
        self._clock = cluster.clock
        self._group_id = group_id
        self._membership = membership
        self._reconciler = reconciler
        self._poll_watch = poll_watch
        self._loop_watch = LoopWatch(cluster.metrics, group_id, config.client_id)
        self._rebalance_watch = RebalanceWatch(cluster, config, subscription, membership)
        self._refusal: tuple[Exception, float] | None = None

    def start(self, supervisor: Supervisor) -> None:
        """Start the watches. Synchronous."""
        supervisor.spawn(self._poll_watch.run, name="poll interval")
        supervisor.spawn(self._loop_watch.run, name="event loop")
        supervisor.spawn(self._rebalance_watch.run, name="rebalances")

    def refuse(self, error: Exception) -> None:
        """Record that the group refuses this consumer."""
        self._refusal = error, self._clock.monotonic()

    def refused(self) -> Exception | None:
        """Return the error by which the group refuses this consumer, or None."""
        refusal = self._refusal
        if refusal is None or refusal[1] <= self._membership.answered_at:
            return None
        return refusal[0]

    def troubles(self) -> list[str]:
        """Return the problems of the membership as texts."""
        found = []
        refusal = self.refused()
        if refusal is not None:
            found.append(f"the group refuses this consumer: {refusal}")
        silence = self._clock.monotonic() - self._membership.confirmed_until
        if self._reconciler.owned() and 0 <= silence < math.inf:
            found.append(
                f"the coordinator of group {self._group_id} has not answered for the session "
                f"timeout and {silence:.0f} s more; no records of the group's partitions are "
                "delivered until it does"
            )
        mine = [self._poll_watch.trouble, *self._reconciler.troubles()]
        found += [text for text in (*mine, self._rebalance_watch.trouble) if text is not None]
        return found
