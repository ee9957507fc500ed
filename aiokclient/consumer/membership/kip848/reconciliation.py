"""The steps by which a member under KIP-848 comes to own its target: revoke, take, acknowledge.

They run in a task of their own, because a revocation may have to wait for the application while
heartbeats continue. Each step depends on the state of the member, and reports its end as an event.

The group identifies topics by id, and the consumer by name. The metadata maps ids to names. If an
id has no name, the coordinator knows a topic that this client does not know yet; the client
requests metadata until the name is found.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from aiokclient.consumer.membership.kip848.heartbeat import TopicIdPartition, TopicIdPartitions
from aiokclient.consumer.membership.kip848.states import Kip848Event, Kip848State
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.consumer.membership.base import MembershipParts
    from aiokclient.consumer.membership.kip848.member import Kip848Member
    from aiokclient.consumer.membership.kip848.membership import Kip848Membership
    from aiokclient.consumer.state.subscription import SubscriptionState
    from aiokclient.log.limited_log import LimitedLog

__all__ = ["PartitionAssignment", "Reconciliation"]

OWNING = (Kip848State.STABLE, Kip848State.RECONCILING, Kip848State.ACKNOWLEDGING)
"""The states in which the member keeps its partitions. In LEAVING it revokes them."""


class PartitionAssignment:
    """The target that the coordinator has set for a member, and the partitions that are owned."""

    def __init__(
        self, cluster: ClusterClient, subscription: SubscriptionState, *, hide: bool
    ) -> None:
        self._target: TopicIdPartitions = frozenset()
        self._owned: dict[TopicIdPartition, TopicPartition] = {}
        self.assigned_at = -math.inf
        """The send time of the heartbeat whose response contained the target."""
        self.must_report = False
        """Whether partitions that were never owned have left the target.

        The coordinator waits for a report without them before it assigns others, but releasing
        them changes nothing in what is owned.
        """
        self._cluster = cluster
        self._subscription = subscription
        self._hide = hide
        self._basis: tuple[object, ...] = ()
        self._found: tuple[dict[TopicIdPartition, TopicPartition], list[TopicIdPartition]] = (
            {},
            [],
        )

    @property
    def owned(self) -> Mapping[TopicIdPartition, TopicPartition]:
        return self._owned

    def set_target(self, target: TopicIdPartitions, sent_at: float) -> bool:
        """Store the target of a response; return whether it differs from the previous one."""
        if target == self._target:
            return False
        self.must_report = not self._owned.keys() >= self._target - target
        self._target, self.assigned_at = target, sent_at
        return True

    def forget_target(self) -> None:
        """Reset the target to no partitions, because the membership has ended."""
        self._target = frozenset()

    def add_partitions(self, added: Mapping[TopicIdPartition, TopicPartition]) -> None:
        """Record that these partitions are owned."""
        self._owned.update(added)

    def remove_partitions(self, gone: Iterable[TopicIdPartition]) -> None:
        """Record that these partitions are no longer owned."""
        for partition in gone:
            self._owned.pop(partition, None)

    def report_owned(self) -> TopicIdPartitions:
        """Return the owned partitions for a heartbeat."""
        return frozenset(self._owned)

    def is_different(self) -> bool:
        """Return whether there are partitions to revoke or to take."""
        known, unknown = self._find_wanted()
        return bool(unknown or self.to_revoke()) or known.keys() != self._owned.keys()

    def to_revoke(self) -> dict[TopicIdPartition, TopicPartition]:
        """Return the owned partitions that are not in the target or that were given up."""
        known, _ = self._find_wanted()
        relinquished = self._subscription.is_relinquished
        return {
            each: tp for each, tp in self._owned.items() if each not in known or relinquished(tp)
        }

    def to_take(self) -> dict[TopicIdPartition, TopicPartition]:
        """Return the partitions that are in the target and not owned, if their names are known."""
        known, _ = self._find_wanted()
        # If a topic was deleted and created again, partitions of its old id are revoked first.
        have = set(self._owned.values())
        return {
            each: tp for each, tp in known.items() if each not in self._owned and tp not in have
        }

    def has_unknown_topics(self) -> bool:
        """Return whether the target has topic ids whose names are not known."""
        return bool(self._find_wanted()[1])

    def _find_wanted(self) -> tuple[dict[TopicIdPartition, TopicPartition], list[TopicIdPartition]]:
        """Return the target by name, and the partitions in it whose topics have no known name.

        The target may belong to an earlier subscription, so this method omits the partitions of
        topics that are no longer subscribed to. Brokers match a pattern against internal topics as
        well. Unless the application wants internal topics, this method omits their partitions, as
        the client does when it matches the pattern itself. For the coordinator, they remain
        assigned to this member.
        """
        metadata, wanted = self._cluster.metadata, self._subscription.subscription
        basis = (self._target, metadata.version, wanted, len(self._owned))
        if basis != self._basis:
            # The result is cached between heartbeats, because there may be very many partitions.
            self._basis = basis
            self._found = self._name_partitions(metadata, self._hide and wanted.pattern is not None)
        return self._found

    def _name_partitions(
        self, metadata: ClusterMetadata, hide: bool
    ) -> tuple[dict[TopicIdPartition, TopicPartition], list[TopicIdPartition]]:
        known: dict[TopicIdPartition, TopicPartition] = {}
        unknown: list[TopicIdPartition] = []
        for partition in sorted(self._target):
            name = metadata.names.get(partition.topic_id)
            info = None if name is None else metadata.topic(name)
            if name is None or info is None:
                # A deleted topic is owned until the coordinator removes it from the target.
                owned = self._owned.get(partition)
                if owned is None:
                    unknown.append(partition)
                elif not self._subscription.subscription or self._subscription.is_wanted(owned):
                    known[partition] = owned
            elif not (hide and info.internal):
                tp = TopicPartition(name, partition.partition)
                # Without any subscription the member leaves, and revokes everything.
                if not self._subscription.subscription or self._subscription.is_wanted(tp):
                    known[partition] = tp
        return known, unknown


class Reconciliation:
    """A task that revokes, loses, and takes partitions for one member.

    It reports events to the membership. Other objects set `wake` when there may be a step to do,
    and the task sets `done` after each step.
    """

    def __init__(
        self,
        membership: Kip848Membership,
        parts: MembershipParts,
        member: Kip848Member,
        assignment: PartitionAssignment,
        *,
        wake: Wakeup,
        done: Wakeup,
        log: LimitedLog,
    ) -> None:
        self._membership = membership
        self._parts = parts
        self._member = member
        self._assignment = assignment
        self._wake = wake
        self._done = done
        self._log = log
        self._clock = parts.cluster.clock
        self._moved = False
        """Whether partitions were revoked or taken since the last acknowledgment."""

    async def run(self) -> None:
        """Execute steps until the member is closed."""
        while not self._member.is_closed:
            until = await self._take_step()
            if until > self._clock.monotonic():
                await self._wake.wait(until)

    async def _take_step(self) -> float:
        """Execute the next step; return the time by which to check for another one."""
        state = self._member.state
        if state is Kip848State.RECONCILING:
            return await self._move_partitions()
        if state is Kip848State.LEAVING:
            await self._revoke_all()
        elif state not in OWNING:
            await self._lose_all()
        else:
            await self._parts.reconciler.conclude_rebalance()
        self._done.set()
        return math.inf

    async def _move_partitions(self) -> float:
        assignment = self._assignment
        if revoked := assignment.to_revoke():
            await self._revoke_partitions(revoked, assignment.assigned_at)
            return -math.inf
        if added := assignment.to_take():
            self._moved = True
            await self._parts.reconciler.take_partitions(list(added.values()))
            assignment.add_partitions(added)
            return -math.inf
        if self._moved or not assignment.has_unknown_topics():
            self._moved = False
            self._membership.apply_event(Kip848Event.RECONCILED)
            return math.inf
        self._parts.cluster.updater.request_update()
        return self._clock.monotonic() + self._parts.config.retry_backoff_max_ms / 1000

    async def _revoke_all(self) -> None:
        """Revoke all partitions, so that the member can leave."""
        if self._assignment.owned:
            await self._revoke_partitions(dict(self._assignment.owned), self._clock.monotonic())
        if not self._member.must_leave:
            self._membership.apply_event(Kip848Event.RELEASED)

    async def _lose_all(self) -> None:
        """Lose the partitions of an earlier membership, so that a fenced member can join again."""
        assignment, reason = self._assignment, self._member.lost_by
        if assignment.owned:
            text, extra = "This member lost its partitions: %s", {"event": "group_lost"}
            self._log.write(logging.WARNING, ("lost", reason), text, reason, extra=extra)
            await self._parts.reconciler.lose_partitions(list(assignment.owned.values()))
            assignment.remove_partitions(list(assignment.owned))
        if self._member.state is Kip848State.FENCED:
            self._membership.apply_event(Kip848Event.RELEASED)
        elif self._member.is_settled:
            await self._parts.reconciler.conclude_rebalance()

    async def _revoke_partitions(
        self, gone: Mapping[TopicIdPartition, TopicPartition], since: float
    ) -> None:
        deadline = since + self._parts.config.max_poll_interval_ms / 1000
        self._moved = True
        await self._parts.reconciler.revoke_partitions(list(gone.values()), deadline=deadline)
        self._assignment.remove_partitions(gone)
