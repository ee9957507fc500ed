"""The health of a consumer's membership: its watches, refusals by the group, and problems.

One of the watches is over the poll interval: whether the application still requests records. If an
application hangs, its heartbeats continue, and its partitions would never be assigned to another
member. So a member leaves when the application has not requested records for
`max_poll_interval_ms`. Time in which the application waits for records does not count. With
`tracked`, the age of the oldest outstanding record counts instead.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from aiokclient.consumer.membership.rebalance_watch import RebalanceWatch
from aiokclient.group.loop_watch import LoopWatch

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.config.consumer import ConsumerConfig
    from aiokclient.consumer.delivery.in_progress import InProgress
    from aiokclient.consumer.delivery.read_lock import ReadLock
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
    from aiokclient.consumer.state.subscription import SubscriptionState

__all__ = ["MembershipHealth", "PollIntervalWatch"]


class MembershipHealth:
    """The watches of one membership, and the last refusal by the group."""

    def __init__(
        self,
        coordinator: ConsumerCoordinator,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        in_progress: InProgress,
        read_lock: ReadLock,
    ) -> None:
        assert config.group_id is not None
        self._clock = cluster.clock
        self._group_id = config.group_id
        self._membership = coordinator.membership
        self._reconciler = coordinator.rebalancer
        self._poll_watch = PollIntervalWatch(
            coordinator, read_lock, in_progress, config.max_poll_interval_ms / 1000
        )
        self._loop_watch = LoopWatch(cluster.metrics, config.group_id, config.client_id)
        self._rebalance_watch = RebalanceWatch(
            cluster, config, subscription, coordinator.membership
        )
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


class PollIntervalWatch:
    """A task that tells the coordinator once each time that the poll interval is exceeded."""

    def __init__(
        self,
        coordinator: ConsumerCoordinator,
        read_lock: ReadLock,
        in_progress: InProgress,
        interval_s: float,
    ) -> None:
        self._coordinator = coordinator
        self._read_lock = read_lock
        self._in_progress = in_progress
        self._interval_s = interval_s
        self._told = -math.inf
        self._said = ""

    @property
    def trouble(self) -> str | None:
        """How the interval was exceeded, as text, until the application requests records again."""
        return self._said if self._since() == self._told else None

    async def run(self) -> None:
        """Watch the poll interval. Run until the task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            since = self._since()
            now = loop.time()
            due = math.inf if since is None or since == self._told else since + self._interval_s
            if now < due:
                # Sleep for at most one interval: a record that is delivered meanwhile cannot be
                # overdue before that.
                await asyncio.sleep(min(due, now + self._interval_s) - now)
                continue
            assert since is not None
            self._told = since
            self._said = self._text(now - since)
            self._coordinator.on_poll_overdue(self._said)

    def _since(self) -> float | None:
        oldest = self._in_progress.oldest()
        return self._read_lock.away_since if oldest is None else oldest

    def _text(self, seconds: float) -> str:
        oldest = self._in_progress.oldest()
        what = "requested records" if oldest is None else "finished a record"
        return (
            f"the application has not {what} for {seconds:.1f} s, longer than "
            "max_poll_interval_ms. Process less at a time, or increase the limit"
        )
