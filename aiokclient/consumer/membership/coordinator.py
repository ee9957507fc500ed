"""The group of one consumer: its membership, offsets, partitions, and automatic commits.

The parts of the group get the coordinator, and take from it what they work with. They call it back
when something happens that concerns others of them: an error of the group, a new identity, an
exceeded poll interval, or released partitions.

A `Membership` keeps the consumer in its group, by one of the two group protocols: it joins, sends
heartbeats, learns what the group assigns to this member, and leaves. It knows nothing of records.
The membership calls the `PartitionReconciler`, which applies the rules of revocation: it begins and
stops the reading of partitions, commits offsets, and calls the listener. The reconciler does not
depend on group protocols, and the subscription state, positions, and fetchers depend on neither.

    program ──subscribe, asks──▶ Membership ──assign, revoke, lose──▶ Reconciler ──▶ partitions
                                     │                                    │
                                coordinator                     offsets, listener, commits
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiokclient.background import Wakeup
from aiokclient.cluster.targets import Coordinator
from aiokclient.consumer.membership.classic import ClassicMembership
from aiokclient.consumer.membership.health import MembershipHealth
from aiokclient.consumer.membership.kip848.membership import Kip848Membership
from aiokclient.consumer.membership.offsets.auto_commit import AutoCommit
from aiokclient.consumer.membership.offsets.commit_forms import covered, named_topics, to_commit
from aiokclient.consumer.membership.offsets.commits import Commits
from aiokclient.consumer.membership.offsets.initial_offsets import InitialOffsets
from aiokclient.consumer.membership.offsets.released import ReleasedPartitions
from aiokclient.consumer.membership.reconciler import PartitionReconciler
from aiokclient.consumer.membership.rewind.requests import plain
from aiokclient.consumer.membership.rewind.rewind import GroupRewinder
from aiokclient.consumer.topics import SubscribedTopics
from aiokclient.errors import IllegalStateError, KafkaError, UnsupportedVersionError
from aiokclient.scopes import new_scope
from aiokclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.consumer.engine import ConsumerEngine
    from aiokclient.consumer.state.partition import PartitionState
    from aiokclient.consumer.state.subscription import Subscription
    from aiokclient.types import GroupMetadata


class Membership(Protocol):
    """The membership of one consumer in its group. Synchronous calls only notify its task."""

    @property
    def connection_owner(self) -> Hashable:
        """The owner of the connection that heartbeats and commits share (Purpose.GROUP)."""
        ...

    @property
    def metadata(self) -> GroupMetadata:
        """The member id and generation; without a membership, no id and generation -1."""
        ...

    @property
    def can_be_outdated(self) -> bool:
        """Whether the coordinator may have a newer identity than `metadata`.

        That is so while a request to join, or a heartbeat under KIP-848, is not answered.
        """
        ...

    @property
    def confirmed_until(self) -> float:
        """The time, on the monotonic clock, until which the coordinator certainly keeps the member.

        It is the time at which the last answered request was sent, plus the session timeout. After
        that time no records are delivered until the coordinator responds to a heartbeat. The value
        is -inf while this consumer is not a member.
        """
        ...

    @property
    def is_or_becomes_member(self) -> bool:
        """Whether this consumer is a member, or becomes one without a call by the application.

        False after it has left because of `max_poll_interval_ms`, and after the group refused it.
        """
        ...

    @property
    def rebalancing_since(self) -> float | None:
        """The monotonic time at which the consumer began to wait for its group.

        None if it does not wait.
        """
        ...

    @property
    def answered_at(self) -> float:
        """The time of the last request whose response confirmed the membership."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether this consumer is a member and owns its assignment, which may be empty."""
        ...

    async def run(self) -> None:
        """Keep the consumer in the group until this call is cancelled or `leave` is called.

        It waits while nothing is subscribed. Raises a fatal error, which fails the consumer.
        """
        ...

    def on_subscription_changed(self) -> None:
        """Use a new subscription. Leave the group if the subscription is empty. Synchronous."""
        ...

    def renew_partitions(self) -> None:
        """Release the partitions that the application has given up, and take them again.

        They were given up by an `unsubscribe` before a `subscribe` to the same topics, of which the
        group needs to know nothing. Synchronous.
        """
        ...

    def on_poll_overdue(self, reason: str) -> None:
        """Leave the group, because the application does not request records. Synchronous.

        All partitions that were owned are lost. The consumer stays out until
        `on_records_requested` is called.
        """
        ...

    def on_records_requested(self) -> None:
        """Join again after `on_poll_overdue`: the application requests records. Synchronous."""
        ...

    def rejoin(self, reason: str) -> None:
        """Request new assignments from the group. Synchronous."""
        ...

    def start_over(self, reason: str) -> None:
        """Lose all partitions, and join as a new member. Synchronous.

        It is called when the coordinator cannot know this member.
        """
        ...

    async def leave(self, timeout: float) -> None:
        """Leave the group permanently, within `timeout` seconds, and end `run`.

        All partitions must have been revoked before. The coordinator keeps a member with an
        instance id, because its next start replaces it.
        """
        ...


MEMBERSHIPS: dict[str, Callable[[ConsumerCoordinator], Membership]] = {
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

    def __init__(self, engine: ConsumerEngine) -> None:
        self.cluster = cluster = engine.cluster
        self.config = config = engine.config
        assert config.group_id is not None
        self.group_id: str = config.group_id
        self.subscription = engine.subscription
        self.in_progress, self.read_lock = engine.in_progress, engine.read_lock
        self.reports = engine.reports
        self.listener_calls = engine.listener_calls
        self.supervisor = engine.supervisor
        self.events = engine.events
        self._closed = False
        self._changes = Wakeup()
        self._poll_is_overdue = False
        self.topics = SubscribedTopics(cluster, config, self.reports)
        self.released = ReleasedPartitions(self)
        self.commits = Commits(self)
        self.auto_commit = AutoCommit(self)
        self._initial_offsets = InitialOffsets(self)
        self.rebalancer = PartitionReconciler(self)
        self.rewinder = GroupRewinder(self)
        self.membership = MEMBERSHIPS[config.group_protocol](self)
        self.health = MembershipHealth(self)

    def on_group_error(self, error: Exception) -> None:
        """Record that the group refuses this consumer, and report the error. Synchronous."""
        self.health.keep_refusal(error)
        self.reports.add_error(error)

    def start(self) -> None:
        """Start the background tasks. Synchronous."""
        self.subscription.assign_subscribed({})  # A cancelled start may have assigned some.
        self.subscription.withhold_unconfirmed()
        self.subscription.add_change_listener(self._on_subscription_changed)
        supervisor = self.supervisor
        supervisor.spawn(self._follow_subscription, name="subscription")
        supervisor.spawn(self._run_membership, name="membership")
        supervisor.spawn(self._initial_offsets.run, name="initial offsets")
        supervisor.spawn(self.auto_commit.run, name="automatic commits")
        self.health.start_watches(supervisor)

    async def _run_membership(self) -> None:
        try:
            await self.membership.run()
        finally:
            self.commits.end_membership()

    @property
    def followed_subscription(self) -> Subscription:
        """The subscription that the group uses, which may be older than the present one."""
        return self.topics.current

    @property
    def confirmed_until(self) -> float:
        """The time, on the loop's clock, until which the coordinator certainly keeps the member."""
        return self.membership.confirmed_until

    def can_become_member(self) -> bool:
        """Return whether this is a member, or becomes one without a call by the application.

        Synchronous.
        """
        return self.membership.is_or_becomes_member and not self._poll_is_overdue

    def owns_assignment(self) -> bool:
        """Return whether the consumer owns the group's assignment. Synchronous."""
        if self.subscription.subscription is not self.topics.current:
            return False
        return not self.subscription.subscription or self.membership.is_settled

    def knows_its_partitions(self) -> bool:
        """Return whether this consumer owns its assignment or a part of it. Synchronous."""
        wanted = self.subscription.subscription
        if wanted is not self.topics.current:
            return False
        owned = self.rebalancer.list_owned()
        return self.owns_assignment() or any(
            wanted.matches(tp.topic, internal=False) for tp in owned
        )

    def find_cause(self) -> KafkaError | None:
        """Return why the group has assigned no partitions yet, if that is known. Synchronous."""
        if not self.cluster.reached:
            return self.cluster.find_last_error()
        target = Coordinator("group", self.group_id)
        return self.cluster.calls.find_cause(target) or self.cluster.find_last_error()

    def list_troubles(self) -> list[str]:
        """Return the problems of the membership as texts. Synchronous."""
        found = self.commits.list_refusals()
        return [*found, *self.health.list_troubles()] if self.subscription.subscription else found

    # -- calls of the application; `Consumer` documents them

    async def commit_offsets(self, what: Any, timeout: float) -> None:
        """Commit offsets to the group, within `timeout` seconds."""
        if isinstance(what, Iterator):
            what = list(what)  # It is read several times.
        consumed = self.subscription.find_consumed()
        offsets, nothing = to_commit(what, consumed)
        known = {tp.topic for tp in [*consumed, *self.subscription.partitions]}
        for topic in named_topics(what):
            if topic not in known and not self.commits.may_have_topic(topic):
                raise IllegalStateError(
                    f"The topic {topic!r} cannot be committed: it is neither subscribed nor "
                    "assigned. Check its name, or commit offsets as {partition: offset}."
                )
        gone = [tp for tp in nothing if tp not in self.subscription]
        if gone:
            raise self.commits.make_not_assigned_error(gone)
        with self.subscription.own_metrics.time_block("commit.seconds", self.cluster.clock):
            await self.commits.commit_offsets(offsets, timeout, covered(what))

    async def fetch_committed(
        self, tps: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition, or None if there is none."""
        with self.subscription.own_metrics.time_block("committed.seconds", self.cluster.clock):
            stored = await self.commits.fetch_committed(tps, timeout)
        return {tp: _without_notes(stored[tp]) for tp in tps}

    async def rewind_group(
        self, offsets: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, int]:
        """Make all owners of these partitions seek to the offsets; see `rewind_group`."""
        if not isinstance(self.membership, ClassicMembership):
            raise UnsupportedVersionError(
                "rewind_group() needs group_protocol='classic', because members of the newer "
                "protocol cannot pass the request on. Stop the group and set its offsets instead."
            )
        if not self.subscription.subscription:
            raise IllegalStateError(
                "Only a member of the group can call rewind_group(). Call subscribe() first."
            )
        # Without this, a task that calls this while it processes a record would wait for
        # itself.
        aside = (
            self.in_progress.ignore_held_records() if self.read_lock.is_reader() else nullcontext()
        )
        with aside:
            return await self.rewinder.request_rewind(offsets, timeout)

    # -- the subscription

    def _on_subscription_changed(self) -> None:
        changed = self.subscription.subscription is not self.topics.current
        if changed or self.subscription.has_relinquished:
            self._changes.set()

    async def _follow_subscription(self) -> None:
        while True:
            subscription = self.subscription.subscription
            if subscription is not self.topics.current or not self.topics.read:
                await self.topics.follow_topics(subscription)
                self.subscription.report_change()
                self.membership.on_subscription_changed()
                continue
            if subscription and self.subscription.has_relinquished:
                self.membership.renew_partitions()
            self.topics.report_errors()
            await self._changes.wait()

    def on_poll_overdue(self, text: str) -> None:
        """Leave the group, because the application does not request records. Synchronous."""
        if self._poll_is_overdue or not self.subscription.subscription:
            return  # No other member waits for partitions that are assigned by hand.
        self._poll_is_overdue = True
        # A commit must not wait for a membership that waits for the commit.
        self.commits.wake_commits()
        self.subscription.client_log.error(
            "%s: the consumer leaves its group, and joins again when the application requests "
            "records",
            text,
            extra={"event": "poll_interval_exceeded"},
        )
        self.membership.on_poll_overdue(text)
        if self.read_lock.has_waiting_request():
            # One of several handlers is late, but the program already waits for more records. So
            # the member joins again.
            self.on_records_requested()

    def on_partitions_released(self, states: Sequence[PartitionState], *, lost: bool) -> None:
        """Record that the group takes partitions, before they are removed. Synchronous."""
        self.released.add_partitions(states, lost=lost)
        self.commits.wake_commits()

    def on_records_requested(self) -> None:
        """Record that the application requests records. Synchronous."""
        if self._closed:
            return
        self._poll_is_overdue = False
        self.released.on_records_requested()
        self.membership.on_records_requested()

    def on_cluster_replaced(self, metadata: ClusterMetadata) -> None:
        """Become a new member, because another cluster does not know this one. Synchronous."""
        self.subscription.update_positions()
        self.released.on_cluster_replaced()
        self.commits.wake_commits()
        self.topics.on_cluster_replaced(metadata)
        self.rewinder.on_cluster_replaced()
        self.membership.start_over("the cluster is another one")

    def on_identity_changed(self) -> None:
        """Use a new identity, or a later end of the certain membership. Synchronous."""
        self.released.set_member(self.membership.metadata)
        self.commits.wake_commits()
        self.subscription.withhold_unconfirmed()
        self.subscription.report_change()

    # -- the end

    async def close(
        self, timeout: float, closers: Collection[asyncio.Task[Any] | None] | None
    ) -> None:
        """Commit processed records, release all partitions, and leave the group.

        It waits for records in progress as long as the application may still request records, for
        at most a part of `timeout` seconds. The tasks in `closers` request no more records; with
        None, no task does.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        bounded_s = timeout if timeout < math.inf else 0.0  # An infinite timeout needs no reserve.
        leave_by = deadline - bounded_s * LEAVE_SHARE
        wait_until = leave_by - bounded_s * COMMIT_SHARE
        in_progress = self.in_progress
        try:
            await self._wait_until_processed(wait_until, closers)
            with new_scope(deadline=leave_by):
                busy = partial(in_progress.may_be_busy, asks=self._can_request_more(closers))
                await self.rebalancer.close(leave_by, busy)
        finally:
            await self.membership.leave(max(deadline - loop.time(), 0.0))

    def _can_request_more(self, closers: Collection[asyncio.Task[Any] | None] | None) -> bool:
        return closers is not None and self.read_lock.can_request_more(closers)

    async def _wait_until_processed(
        self, until: float, closers: Collection[asyncio.Task[Any] | None] | None
    ) -> None:
        loop = asyncio.get_running_loop()
        in_progress = self.in_progress
        self.subscription.update_positions()
        while in_progress and self._can_request_more(closers) and loop.time() < until:
            await in_progress.relieved.wait(until)

    def release_connections(self) -> None:
        """Close the group's connections and stop requesting its metadata. Synchronous."""
        self._closed = True
        self.cluster.updater.unwant_topics(self.topics)
        self.cluster.release_owner(self)


def _without_notes(stored: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
    """Remove the library's own notes from the metadata of a committed offset."""
    return None if stored is None else stored._replace(metadata=plain(stored.metadata))
