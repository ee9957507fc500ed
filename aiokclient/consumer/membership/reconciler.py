"""Taking and releasing partitions, for both group protocols.

                   ┌─ waits for records in progress, commits, calls on_revoked ─┐
    owned ──revoke─┤                                                            ├──▶ released
                   └─ time is up, or this is no longer a member: calls on_lost ─┘

When a partition is to be revoked, no more of its records are delivered. The reconciler waits for
records that the application is processing, because the application may still be writing to other
systems. When the application has requested the next record (with `tracked`: when no record is
outstanding), the processed records are committed, the listener is called, and the partition is
released. For a lost partition there is no wait and no commit: another member may already own the
partition, and a commit would undo the commits of that member.

One such operation runs at a time. If one is in progress, `close` ends its wait for records, and
then waits for the operation to end. Later operations find nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cluster.lifecycle.ownership import Weakly
from aiokclient.consumer.membership.health import SHOWN_S, named
from aiokclient.consumer.membership.listener import tell
from aiokclient.consumer.state.partition import PartitionState, Withheld
from aiokclient.errors import KafkaError
from aiokclient.log.limited_log import LimitedLog
from aiokclient.policy import Decision, Scope, classify
from aiokclient.scopes import new_scope
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator

LOGGED = 20
"""The number of partitions that one log message names."""


class PartitionReconciler:
    """The object that takes and releases partitions for a membership.

    The membership makes one call at a time. The calls raise the errors of the listener. The
    membership must not catch these errors, because they fail the consumer.
    """

    _told_idle = Weakly()
    """The listener that was told that no partitions are owned; `self` if no listener was told."""

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        cluster, subscription = coordinator.cluster, coordinator.subscription
        self._cluster = cluster
        self._subscription = subscription
        self._in_progress = coordinator.in_progress
        self._coordinator = coordinator
        self._log = LimitedLog(subscription.client_log, cluster.clock)
        self._turn = asyncio.Lock()
        self._bound = math.inf
        self._closed = False
        self._refused = False
        self._calling: tuple[str, float] | None = None
        self._releasing: tuple[Sequence[PartitionState], float] | None = None
        self._told_idle = self
        metrics = cluster.metrics
        self._counts = {
            kind: metrics.counter(f"consumer.partitions.{kind}")
            for kind in ("assigned", "revoked", "lost")
        }

    def list_owned(self) -> list[TopicPartition]:
        """Return the partitions that the group has assigned to this consumer. Synchronous."""
        return self._subscription.list_subscribed()

    def list_delays(self) -> list[str]:
        """Return what delays a rebalance in this consumer, as texts. Safe in any thread."""
        now = self._cluster.clock.monotonic()
        found = []
        if self._calling is not None and now - self._calling[1] >= SHOWN_S:
            method, since = self._calling
            found.append(f"{method} of the listener has not returned for {now - since:.0f} s")
        if self._releasing is not None and now - self._releasing[1] >= SHOWN_S:
            states, since = self._releasing
            found.append(
                f"to be revoked for {now - since:.0f} s: {named([s.tp for s in states])}. The "
                "application is still processing their records, and has not requested others"
            )
        return found

    # -- calls by the membership

    async def revoke_partitions(self, tps: Collection[TopicPartition], *, deadline: float) -> None:
        """Release partitions after their records are processed and committed.

        None of their records are delivered after this call begins. It waits for records that are
        being processed, until `deadline` (on the monotonic clock). Then it commits the processed
        records and calls `on_revoked`, and the partitions are no longer owned. If the deadline
        passes, or the coordinator refuses the commit because this consumer is no longer a member,
        the partitions are lost, as by `lose_partitions`.
        """
        self._withhold_partitions(tps)
        async with self._turn:
            states = self._withhold_partitions(tps)
            if not states:
                return
            if not await self._wait_until_processed(states, deadline):
                if self._bound < math.inf:
                    return  # The consumer is being closed, and `close` releases them.
                await self._release_partitions(states, "lost")
                return self._coordinator.on_poll_overdue(
                    f"{len(states)} partitions are to be revoked, and the application has not "
                    "finished the records that it processes within max_poll_interval_ms"
                )
            # The group waits until the partitions are revoked. A commit that waited for the group
            # would wait for itself.
            with self._coordinator.commits.without_waiting():
                is_member = await self._commit_processed(states, deadline)
                await self._release_partitions(states, "revoked" if is_member else "lost")

    async def take_partitions(self, tps: Collection[TopicPartition]) -> None:
        """Take partitions in addition to those that are owned, and call `on_assigned`.

        Their initial offsets are looked up in the background.
        """
        async with self._turn:
            owned = dict.fromkeys(self.list_owned())
            added = [tp for tp in dict.fromkeys(tps) if tp not in owned]
            if self._closed or not added:
                return
            self._report_change("assigned", added)
            self._told_idle = self
            self._counts["assigned"].add(len(added))
            self._subscription.assign_subscribed(dict.fromkeys([*owned, *added]))
            states = self._subscription.choose_states(added)
            self._subscription.withhold(states, Withheld.LISTENER, True)
            await self._tell_listeners("on_assigned", added)
            self._subscription.withhold(states, Withheld.LISTENER, False)

    async def conclude_rebalance(self) -> None:
        """End a rebalance: call `on_assigned([])` if nothing is owned.

        It is called only once for each listener.
        """
        async with self._turn:
            listener = self._subscription.listener
            idle = self._subscription.subscription and not self.list_owned()
            if self._closed or not idle or listener is self._told_idle:
                return
            self._told_idle = listener
            await self._tell_listeners("on_assigned", [])

    async def lose_partitions(self, tps: Collection[TopicPartition]) -> None:
        """Release lost partitions without a commit, and call `on_lost`."""
        self._withhold_partitions(tps)
        async with self._turn:
            await self._release_partitions(self._withhold_partitions(tps), "lost")

    # -- closing

    async def close(self, deadline: float, busy: Callable[[PartitionState], bool]) -> None:
        """Release all partitions, and take no more.

        Processed records are committed until `deadline`, on the loop's clock. Partitions for which
        `busy(state)` returns true, because their records are still being processed, are lost. The
        others are revoked.
        """
        self._bound = -math.inf
        self._in_progress.relieved.set()
        async with self._turn:
            self._closed = True
            states = self._withhold_partitions(self.list_owned())
            self._subscription.update_positions()
            is_member = await self._commit_processed(
                list(self._subscription.partitions.values()), deadline
            )
            lost = {state: None for state in states if busy(state) or not is_member}
            await self._release_partitions(
                [state for state in states if state not in lost], "revoked"
            )
            await self._release_partitions(list(lost), "lost")

    # -- steps

    def _report_change(self, how: str, tps: Sequence[TopicPartition]) -> None:
        names = named(tps, LOGGED)
        event = f"partitions_{how}"
        text = "Partitions were %s: %s"
        self._log.write(logging.INFO, (how, names), text, how, names, extra={"event": event})
        changes = {how: frozenset(tps)}
        self._coordinator.events.emit("Rebalanced", group_id=self._coordinator.group_id, **changes)

    def _withhold_partitions(self, tps: Collection[TopicPartition]) -> list[PartitionState]:
        owned = dict.fromkeys(self.list_owned())
        partitions = self._subscription.partitions
        states = [partitions[tp] for tp in dict.fromkeys(tps) if tp in owned]
        self._subscription.withhold(states, Withheld.REVOKING, True)
        return states

    async def _wait_until_processed(self, states: Sequence[PartitionState], until: float) -> bool:
        """Wait until no record of these partitions is in progress; return False after `until`."""
        self._subscription.update_positions()
        loop = asyncio.get_running_loop()
        self._releasing = states, loop.time()
        try:
            while self._in_progress.has_records_of(states):
                bound = min(until, self._bound)
                if loop.time() >= bound:
                    return False
                await self._in_progress.relieved.wait(bound)
                self._subscription.update_positions()
        finally:
            self._releasing = None
        return True

    async def _commit_processed(self, states: Sequence[PartitionState], deadline: float) -> bool:
        """Commit processed records; return whether this consumer is still a member."""
        timeout = deadline - asyncio.get_running_loop().time()
        try:
            refused = await self._coordinator.auto_commit.commit_processed(states, timeout)
        except KafkaError as failure:
            text = "Processed records could not be committed: %s"
            key, extra = ("commit", type(failure)), {"event": "commit_failed"}
            self._log.write(logging.WARNING, key, text, failure, extra=extra)
            return False
        verdicts = [self._is_member(tp, error) for tp, error in refused.items()]
        return all(verdicts)

    def _is_member(self, tp: TopicPartition, error: KafkaError) -> bool:
        """Return whether this consumer may still be a member, although a commit was refused."""
        text = "Processed records of %s could not be committed: %s"
        key, extra = ("commit", tp, type(error)), {"event": "commit_failed", "topic": tp.topic}
        self._log.write(logging.WARNING, key, text, tp, error, extra=extra)
        decision = classify(error, Scope.OFFSET_COMMIT)
        if decision is Decision.FAIL:
            self._coordinator.reports.add_error(error)
        return decision is not Decision.RECOVER

    async def _release_partitions(self, states: Sequence[PartitionState], how: str) -> None:
        tps = [state.tp for state in states]
        if not tps:
            return
        self._report_change(how, tps)
        self._told_idle = self
        self._counts[how].add(len(tps))
        if how == "revoked":
            with self._subscription.show_partitions(tps):
                await self._tell_listeners("on_revoked", tps)
        self._subscription.update_positions()
        self._coordinator.on_partitions_released(states, lost=how == "lost")
        self._remove_partitions(states)
        if how == "lost":
            # A cancellation must not skip this call, because it is not repeated.
            with new_scope(shield=True):
                await self._tell_listeners("on_lost", tps)

    def _remove_partitions(self, states: Sequence[PartitionState]) -> None:
        gone = dict.fromkeys(state.tp for state in states)
        left = [tp for tp in self.list_owned() if tp not in gone]
        self._subscription.assign_subscribed(dict.fromkeys(left))
        # A partition that is also assigned by hand stays, and reading it continues.
        partitions = self._subscription.partitions
        kept = [state for state in states if partitions.get(state.tp) is state]
        self._subscription.withhold(kept, Withheld.REVOKING | Withheld.UNSUBSCRIBED, False)

    async def _tell_listeners(self, method: str, tps: Sequence[TopicPartition]) -> None:
        """Call the listener of the present subscription.

        An earlier listener is called for the partitions that an `unsubscribe` gave up in its time.
        """
        for listener, told in self._subscription.group_by_listener(tps):
            await self._call_listener(listener, method, told)

    async def _call_listener(
        self, listener: Any, method: str, tps: Sequence[TopicPartition]
    ) -> None:
        if self._refused or listener is None:
            return
        time = asyncio.get_running_loop().time
        self._calling = method, (began := time())
        with self._coordinator.listener_calls.enter_call():
            try:
                await tell(listener, method, tps)
            except Exception:
                # The error fails the consumer. Its close must not call the listener again.
                self._refused = True
                raise
            finally:
                self._calling = None
                self._subscription.own_metrics.spread(f"listener.{method}").observe(time() - began)
