"""The group of one consumer: its membership, offsets, partitions, and automatic commits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from aiokclient.cluster.targets import Coordinator
from aiokclient.consumer.membership.base import Membership, MembershipParts
from aiokclient.consumer.membership.classic import ClassicMembership
from aiokclient.consumer.membership.health import MembershipHealth
from aiokclient.consumer.membership.initial_offsets import InitialOffsets
from aiokclient.consumer.membership.kip848.membership import Kip848Membership
from aiokclient.consumer.membership.offsets.auto_commit import AutoCommit
from aiokclient.consumer.membership.offsets.commits import Commits
from aiokclient.consumer.membership.offsets.released import ReleasedOffsets
from aiokclient.consumer.membership.poll_interval import PollIntervalWatch
from aiokclient.consumer.membership.reconciler import PartitionReconciler
from aiokclient.consumer.membership.rewind.rewind import Bounds, GroupRewinder
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.consumer.topics import SubscribedTopics
from aiokclient.errors import IllegalStateError, KafkaError, UnsupportedVersionError
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.config.consumer import ConsumerConfig
    from aiokclient.consumer.delivery.in_progress import InProgress
    from aiokclient.consumer.delivery.read_lock import ReadLock
    from aiokclient.consumer.membership.listener import ListenerCalls
    from aiokclient.consumer.state.partition import PartitionState
    from aiokclient.consumer.state.subscription import Subscription, SubscriptionState

__all__ = ["MEMBERSHIPS", "ConsumerCoordinator"]

MEMBERSHIPS: dict[str, Callable[[MembershipParts], Membership]] = {
    "classic": ClassicMembership,
    "consumer": Kip848Membership,
}
"""The membership class for each value of `group_protocol`."""

LEAVE_SHARE: Final = 0.2
"""The share of the timeout of `close` that is reserved for leaving the group."""
COMMIT_SHARE: Final = 0.2
"""The share of the timeout of `close` that is reserved for the last commit.

The time that is left by both shares is for records in progress.
"""


class ConsumerCoordinator:
    """The parts of a started consumer that belong to its group."""

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        in_progress: InProgress,
        read_lock: ReadLock,
        *,
        report: Callable[[Exception], None],
        listener_calls: ListenerCalls,
        bounds: Bounds,
        supervisor: Supervisor,
        emit: Callable[..., None],
    ) -> None:
        self._subscription = subscription
        self._in_progress, self._read_lock = in_progress, read_lock
        self._report_error = report
        self._supervisor = supervisor
        self._closed = False
        self._changes = Wakeup()
        self._poll_is_overdue = False
        self._cluster = cluster
        self.topics = SubscribedTopics(cluster, config, report=self._report)
        self.commits = Commits(
            cluster,
            config,
            subscription,
            member=lambda: self.membership.metadata,
            joins=lambda: self.membership.joins and not self._poll_is_overdue,
            in_listener=listener_calls.is_inside,
            owner=self._owner,
            check=supervisor.check,
        )
        interval_s = config.max_poll_interval_ms / 1000
        time = cluster.clock.monotonic
        self.released = ReleasedOffsets(self.commits.group_id, in_progress.holds, time)
        self._auto_commit = AutoCommit(config, subscription, self.commits, time)
        self._initial_offsets = InitialOffsets(
            cluster,
            config,
            subscription,
            self.commits,
            self.topics,
            commits_first=config.enable_auto_commit,
            report=self._report,
        )
        self.rebalancer = PartitionReconciler(
            cluster,
            subscription,
            in_progress,
            self._auto_commit,
            calls=listener_calls,
            released=self._released,
            report=self._report,
            overdue=self._overdue,
            rebalanced=partial(emit, "Rebalanced", group_id=config.group_id),
        )
        self._rewinder = self._make_rewinder(bounds, interval_s)
        parts = self._membership_parts(config)
        self.membership = MEMBERSHIPS[config.group_protocol](parts)
        self._health = self._make_health(config, interval_s)

    def _make_health(self, config: ConsumerConfig, interval_s: float) -> MembershipHealth:
        return MembershipHealth(
            self._cluster,
            config,
            self._subscription,
            self.membership,
            self.rebalancer,
            PollIntervalWatch(self._read_lock, self._in_progress, interval_s, self._overdue),
            self.commits.group_id,
        )

    def _make_rewinder(self, bounds: Bounds, patience_s: float) -> GroupRewinder:
        return GroupRewinder(
            self._cluster,
            self._subscription,
            self.commits,
            self._in_progress,
            bounds=bounds,
            patience_s=patience_s,
            supervisor=self._supervisor,
        )

    def _membership_parts(self, config: ConsumerConfig) -> MembershipParts:
        return MembershipParts(
            self._cluster,
            config,
            self._subscription,
            self.topics,
            reconciler=self.rebalancer,
            report=self._membership_refused,
            changed=self._renamed,
            supervisor=self._supervisor,
            owner=self,
            rewinder=self._rewinder,
        )

    def _membership_refused(self, error: Exception) -> None:
        self._health.refuse(error)
        self._report(error)

    def _report(self, error: Exception) -> None:
        self._report_error(error)
        self._subscription.changed()  # If `start()` waits for the group, it raises the error now.

    def start(self) -> None:
        """Start the background tasks. Synchronous."""
        self._subscription.assign_subscribed({})  # A cancelled start may have assigned some.
        self._subscription.confirm()
        self._subscription.listen(self._subscribed)
        supervisor = self._supervisor
        supervisor.spawn(self._follow, name="subscription")
        supervisor.spawn(self._live, name="membership")
        supervisor.spawn(self._initial_offsets.run, name="initial offsets")
        supervisor.spawn(self._auto_commit.run, name="automatic commits")
        self._health.start(supervisor)

    def _owner(self) -> Hashable:
        """Return the owner of the connection that commits share with heartbeats."""
        membership = self.membership
        return membership.owner if isinstance(membership, ClassicMembership) else self

    async def _live(self) -> None:
        try:
            await self.membership.run()
        finally:
            self.commits.end()

    def wake(self) -> None:
        """Make waiting commits raise the error with which the consumer failed. Synchronous."""
        self.commits.wake()

    @property
    def followed(self) -> Subscription:
        """The subscription that the group uses, which may be older than the present one."""
        return self.topics.current

    @property
    def confirmed_until(self) -> float:
        """The time, on the loop's clock, until which the coordinator certainly keeps the member."""
        return self.membership.confirmed_until

    def settled(self) -> bool:
        """Return whether the consumer owns the group's assignment. Synchronous."""
        if self._subscription.subscription is not self.topics.current:
            return False
        return not self._subscription.subscription or self.membership.settled

    def knows_its_part(self) -> bool:
        """Return whether this consumer owns its assignment or a part of it. Synchronous."""
        wanted = self._subscription.subscription
        if wanted is not self.topics.current:
            return False
        owned = self.rebalancer.owned()
        return self.settled() or any(wanted.matches(tp.topic, internal=False) for tp in owned)

    def cause(self) -> KafkaError | None:
        """Return why the group has assigned no partitions yet, if that is known. Synchronous."""
        if not self._cluster.reached:
            return self._cluster.last_error()
        target = Coordinator("group", self.commits.group_id)
        return self._cluster.calls.cause_to(target) or self._cluster.last_error()

    def troubles(self) -> list[str]:
        """Return the problems of the membership as texts. Synchronous."""
        found = self.commits.troubles()
        return [*found, *self._health.troubles()] if self._subscription.subscription else found

    def refused(self) -> Exception | None:
        """Return the error by which the group refuses this consumer, or None. Synchronous."""
        return self._health.refused()

    async def rewind(
        self, offsets: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, int]:
        """Make all owners of these partitions seek to the offsets; see `rewind_group`."""
        if not isinstance(self.membership, ClassicMembership):
            raise UnsupportedVersionError(
                "rewind_group() needs group_protocol='classic', because members of the newer "
                "protocol cannot pass the request on. Stop the group and set its offsets instead."
            )
        if not self._subscription.subscription:
            raise IllegalStateError(
                "Only a member of the group can call rewind_group(). Call subscribe() first."
            )
        # Without `set_aside`, a task that calls this while it processes a record would wait for
        # itself.
        aside = self._in_progress.set_aside() if self._read_lock.is_reader() else nullcontext()
        with aside:
            return await self._rewinder.request(offsets, timeout, self.membership.rejoin)

    # -- the subscription

    def _subscribed(self) -> None:
        changed = self._subscription.subscription is not self.topics.current
        if changed or self._subscription.has_relinquished:
            self._changes.set()

    async def _follow(self) -> None:
        while True:
            subscription = self._subscription.subscription
            if subscription is not self.topics.current or not self.topics.read:
                await self.topics.begin(subscription)
                self._subscription.changed()
                self.membership.subscribed()
                continue
            if subscription and self._subscription.has_relinquished:
                self.membership.renewed()
            self.topics.report_errors()
            await self._changes.wait()

    def _overdue(self, text: str) -> None:
        if self._poll_is_overdue or not self._subscription.subscription:
            return  # No other member waits for partitions that are assigned by hand.
        self._poll_is_overdue = True
        self.commits.wake()  # A commit must not wait for a membership that waits for the commit.
        self._subscription.client_log.error(
            "%s: the consumer leaves its group, and joins again when the application requests "
            "records",
            text,
            extra={"event": "poll_interval_exceeded"},
        )
        self.membership.poll_overdue(text)
        if self._read_lock.is_asked():
            # One of several handlers is late, but the program already waits for more records. So
            # the member joins again.
            self.requested()

    def _released(self, states: Sequence[PartitionState], lost: bool) -> None:
        self.released.release(states)
        self.commits.release(states, lost=lost)

    def requested(self) -> None:
        """Record that the application requests records. Synchronous."""
        if self._closed:
            return
        self._poll_is_overdue = False
        self.commits.requested()
        self.released.requested()
        self.membership.asked()

    def cluster_replaced(self, metadata: ClusterMetadata) -> None:
        """Become a new member, because another cluster does not know this one. Synchronous."""
        self._subscription.settle()
        self.commits.cluster_replaced()
        self.topics.rebase(metadata)
        self._rewinder.cluster_replaced()
        self.membership.start_over("the cluster is another one")

    def _renamed(self) -> None:
        self.released.renamed(self.membership.metadata)
        self.commits.wake()
        self._subscription.confirm()
        self._subscription.changed()

    # -- the end

    async def close(self, timeout: float, may_ask: Callable[[], bool]) -> None:
        """Commit processed records, release all partitions, and leave the group.

        It waits for records in progress as long as `may_ask()` returns true (the application may
        still request records), for at most a part of `timeout` seconds.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        bounded_s = timeout if timeout < math.inf else 0.0  # An infinite timeout needs no reserve.
        leave_by = deadline - bounded_s * LEAVE_SHARE
        wait_until = leave_by - bounded_s * COMMIT_SHARE
        in_progress = self._in_progress
        try:
            await self._put_down(wait_until, may_ask)
            with anyio.CancelScope(deadline=leave_by):
                busy = partial(in_progress.is_busy, asks=may_ask())
                await self.rebalancer.close(leave_by, busy)
        finally:
            await self.membership.leave(max(deadline - loop.time(), 0.0))

    async def _put_down(self, until: float, may_ask: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        in_progress = self._in_progress
        self._subscription.settle()
        while in_progress and may_ask() and loop.time() < until:
            await in_progress.relieved.wait(until)

    def release(self) -> None:
        """Close the group's connections and stop requesting its metadata. Synchronous."""
        self._closed = True
        self._cluster.updater.unwant(self.topics)
        self._cluster.release(self)
