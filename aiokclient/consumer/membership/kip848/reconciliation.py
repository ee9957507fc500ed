"""The steps by which a member under KIP-848 comes to own its target: revoke, take, acknowledge.

They run in a task of their own, because a revocation may have to wait for the application while
heartbeats continue. Each step depends on the state of the member, and reports its end as an event.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aiokclient.consumer.membership.kip848.states import Kip848Event, Kip848State
from aiokclient.consumer.state.wakeup import Wakeup

if TYPE_CHECKING:
    from aiokclient.consumer.membership.base import MembershipParts
    from aiokclient.consumer.membership.kip848.assignment import PartitionAssignment
    from aiokclient.consumer.membership.kip848.heartbeat import TopicIdPartition
    from aiokclient.consumer.membership.kip848.member import Kip848Member
    from aiokclient.log.limited_log import LimitedLog
    from aiokclient.types import TopicPartition

__all__ = ["Reconciliation"]

OWNING = (Kip848State.STABLE, Kip848State.RECONCILING, Kip848State.ACKNOWLEDGING)
"""The states in which the member keeps its partitions. In LEAVING it revokes them."""


class Reconciliation:
    """A task that revokes, loses, and takes partitions for one member.

    It reports events by `apply(event)`. Other objects set `wake` when there may be a step to do,
    and the task sets `done` after each step.
    """

    def __init__(
        self,
        parts: MembershipParts,
        member: Kip848Member,
        assignment: PartitionAssignment,
        *,
        apply: Callable[[Kip848Event], None],
        wake: Wakeup,
        done: Wakeup,
        log: LimitedLog,
    ) -> None:
        self._parts = parts
        self._member = member
        self._assignment = assignment
        self._apply = apply
        self._wake = wake
        self._done = done
        self._log = log
        self._clock = parts.cluster.clock
        self._moved = False
        """Whether partitions were revoked or taken since the last acknowledgment."""

    async def run(self) -> None:
        """Execute steps until the member is closed."""
        while not self._member.is_closed:
            until = await self._step()
            if until > self._clock.monotonic():
                await self._wake.wait(until)

    async def _step(self) -> float:
        """Execute the next step; return the time by which to check for another one."""
        state = self._member.state
        if state is Kip848State.RECONCILING:
            return await self._move()
        if state is Kip848State.LEAVING:
            await self._revoke_all()
        elif state not in OWNING:
            await self._lose_all()
        else:
            await self._parts.reconciler.conclude()
        self._done.set()
        return math.inf

    async def _move(self) -> float:
        assignment = self._assignment
        if revoked := assignment.to_revoke():
            await self._revoke(revoked, assignment.assigned_at)
            return -math.inf
        if added := assignment.to_take():
            self._moved = True
            await self._parts.reconciler.assign(list(added.values()))
            assignment.take(added)
            return -math.inf
        if self._moved or not assignment.has_unknown_topics():
            self._moved = False
            self._apply(Kip848Event.RECONCILED)
            return math.inf
        self._parts.cluster.updater.request_update()
        return self._clock.monotonic() + self._parts.config.retry_backoff_max_ms / 1000

    async def _revoke_all(self) -> None:
        """Revoke all partitions, so that the member can leave."""
        if self._assignment.owned:
            await self._revoke(dict(self._assignment.owned), self._clock.monotonic())
        if not self._member.must_leave:
            self._apply(Kip848Event.RELEASED)

    async def _lose_all(self) -> None:
        """Lose the partitions of an earlier membership, so that a fenced member can join again."""
        assignment, reason = self._assignment, self._member.lost_by
        if assignment.owned:
            text, extra = "This member lost its partitions: %s", {"event": "group_lost"}
            self._log.write(logging.WARNING, ("lost", reason), text, reason, extra=extra)
            await self._parts.reconciler.lose(list(assignment.owned.values()))
            assignment.drop(list(assignment.owned))
        if self._member.state is Kip848State.FENCED:
            self._apply(Kip848Event.RELEASED)
        elif self._member.is_settled:
            await self._parts.reconciler.conclude()

    async def _revoke(self, gone: Mapping[TopicIdPartition, TopicPartition], since: float) -> None:
        deadline = since + self._parts.config.max_poll_interval_ms / 1000
        self._moved = True
        await self._parts.reconciler.revoke(list(gone.values()), deadline=deadline)
        self._assignment.drop(gone)
