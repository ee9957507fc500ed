"""The engine of a member, for any kind of group: the coroutines that follow the table of `states`.

One task, `run`, repeatedly executes the step of the present state and then the transition in the
table. Events during a step (a response to a heartbeat, a pause) are queued. If the table has a row
for such an event, it ends the step early. Heartbeats have a task of their own.
`GroupJoin` sends JoinGroup and SyncGroup. `RejoinBackoff` says when the member may join again.

A heartbeat is sent `heartbeat_interval_ms` after the previous one, on a connection that only
heartbeats and commits use, so that neither a waiting JoinGroup nor the throttling of other
connections delays it. Heartbeats continue while the member joins: a response shows that the
coordinator is alive, and that it is still the broker at which the JoinGroup waits.

Each heartbeat that the coordinator receives restarts the session. So the session cannot end before
`session_timeout_ms` have passed since a heartbeat with a response was *sent*. `is_confirmed`
follows from that: a member that cannot reach its group stops before the group assigns its
partitions to another member. `is_confirmed` is computed at each call, so that it is also correct
after the process was suspended.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from aiokclient.background import loop_ends
from aiokclient.cluster.metadata.snapshot import differ
from aiokclient.cluster.targets import Coordinator
from aiokclient.errors import FencedInstanceIdError, KafkaError
from aiokclient.group import requests
from aiokclient.group.handler import GroupHandler, GroupSettings
from aiokclient.group.join import GroupJoin
from aiokclient.group.meters import GroupMeters
from aiokclient.group.states import CODES, TABLE, MemberEffect, MemberEvent, MemberState, Transition
from aiokclient.metrics import Labels, OwnMetrics
from aiokclient.network.pool import Purpose
from aiokclient.policy import Attempts, Backoff, Decision, Scope, classify
from aiokclient.scopes import new_scope, new_scope_of
from aiokclient.types import GroupMetadata

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.network.event_hub import EventSource
    from aiokclient.scopes import CancelScope

ID_S = 5.0
"""Seconds for which a member that is about to leave waits for the member id that it has requested.
Brokers send it immediately, except that brokers before Kafka 2.2 send it with the generation, after
up to 3 s."""

WAITING = (MemberState.PREPARING, MemberState.JOINING, MemberState.SYNCING)
"""The states between two generations."""

LEAVING_S = 1.0
"""Seconds for which a failed member tries to leave the group."""

STEADY_S = 5.0
"""Seconds after which a generation counts as successful, so that backoff starts again."""

FREE = 5
"""Number of consecutive times that a member joins again without a delay."""


PATIENCE = 0.5
"""Fraction of the session timeout after which an unanswered heartbeat is sent again.

It is then sent on a new connection.
"""


class RejoinBackoff:
    """The growing delays before the next JoinGroup. A generation that lasts resets them."""

    __slots__ = ("_not_before", "_repeated", "_retry", "_synced_at")

    def __init__(self, retry: Attempts) -> None:
        self._retry = retry
        self._repeated = 0
        self._synced_at = math.inf
        self._not_before = 0.0

    def on_synced(self) -> None:
        """Record that a generation has begun."""
        self._synced_at = _now()

    def reset_if_steady(self) -> None:
        """Start with the shortest delay again if the generation has lasted long enough."""
        if _now() >= self._synced_at + STEADY_S:
            self._repeated = 0
            self._retry.start_over()
            self._synced_at = math.inf

    def delay_join(self) -> None:
        """Delay the next JoinGroup."""
        self._not_before = _now() + self._retry.take_pause_s()

    def delay_if_repeated(self) -> None:
        """Delay the next JoinGroup if the member has joined again too many times in a row."""
        self._repeated += 1
        if self._repeated > FREE:
            self.delay_join()

    async def wait_for_end(self) -> None:
        """Wait for the end of the delay."""
        await asyncio.sleep(self._not_before - _now())


def _now() -> float:
    return asyncio.get_running_loop().time()


class Heartbeats:
    """The heartbeats of a member. The engine owns their connection and hears of each response."""

    def __init__(self, engine: GroupEngine) -> None:
        settings = engine.settings
        self.member = GroupMetadata(settings.group_id)
        self.last_answer_at = -math.inf
        """The time of the last request whose response confirmed the membership."""
        self.last_stable_at = -math.inf
        """The time of the last request that confirmed the membership outside of a rebalance."""
        self._engine = engine
        self._cluster = engine.cluster
        self._handler = engine.handler
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._session_s = settings.session_timeout_ms / 1000
        self._due = asyncio.Event()
        self._was_confirmed = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_confirmed(self) -> bool:
        """Whether the coordinator certainly keeps this member at this moment."""
        if self.member.generation_id < 0:
            return False
        return self._cluster.clock.monotonic() < self.last_answer_at + self._session_s

    def set_member(self, member: GroupMetadata, sent_at: float | None = None) -> None:
        """Send the heartbeats of this member from now on, the first one immediately. Synchronous.

        No heartbeats are sent for a member without an id. `sent_at` is the time at which the
        JoinGroup of the member's generation was sent, or None for a member without a generation.
        """
        if sent_at is None or member.member_id != self.member.member_id:
            self.last_answer_at = self.last_stable_at = -math.inf
        self.member = member
        self._due.set()
        if sent_at is None:
            self._update_confirmed()
        else:
            self.on_answer(sent_at)

    def on_answer(self, sent_at: float, *, stable: bool = True) -> None:
        """Record that the coordinator has answered a request sent at that time. Synchronous."""
        self.last_answer_at = max(self.last_answer_at, sent_at)
        if stable:
            self.last_stable_at = max(self.last_stable_at, sent_at)
        self._update_confirmed()

    def _update_confirmed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        confirmed = self.is_confirmed
        if confirmed:
            # The coordinator's session begins when the request arrives, which is not before it was
            # sent.
            when = self.last_answer_at + self._session_s
            self._timer = self._engine.callbacks.call_at(when, self._update_confirmed)
        if confirmed is not self._was_confirmed:
            self._was_confirmed = confirmed
            self._handler.on_confirmed_changed(confirmed)

    async def run(self) -> None:
        """Send heartbeats. Run until the task is cancelled."""
        clock = self._cluster.clock
        while True:
            self._due.clear()
            if not self.member.member_id:
                await self._due.wait()
                continue
            sent_at, member = clock.monotonic(), self.member
            await self._send_heartbeat(member, sent_at)
            if member == self.member:
                await self._wait_until(sent_at + self._interval_s)

    async def _wait_until(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._due.wait()
        except TimeoutError:
            return

    async def _send_heartbeat(self, member: GroupMetadata, sent_at: float) -> None:
        self._engine.meters.on_heartbeat_sent(sent_at)
        try:
            response = await self._cluster.request(
                requests.heartbeat(member),
                Coordinator("group", member.group_id),
                # `sent_at` precedes all attempts. So a response after the session timeout would
                # confirm nothing.
                timeout=self._session_s,
                attempt_timeout=self._session_s * PATIENCE,
                scope=Scope.GROUP,
                check=requests.unexpected,
                purpose=Purpose.GROUP,
                owner=self._engine,
            )
        except KafkaError as error:
            # What the policy does not retry lasts until the application resolves its cause.
            if member == self.member and classify(error, Scope.GROUP) is Decision.FAIL:
                self._handler.report_error(error)
            return
        self._engine.meters.on_heartbeat_answered(sent_at)
        if member != self.member:
            return
        event = CODES.get(response.error_code)
        # REBALANCE_IN_PROGRESS extends the session as well: the coordinator has the member.
        if event in (None, MemberEvent.REBALANCE):
            self.on_answer(sent_at, stable=event is None)
        self._engine.on_heartbeat(member, event)


class GroupEngine:
    """A member that joins its group, stays in it, and leaves. `run` is started once.

    With `events`, the application is told about each generation.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        settings: GroupSettings,
        handler: GroupHandler,
        supervisor: Supervisor,
        *,
        own_metrics: OwnMetrics,
        events: EventSource | None = None,
    ) -> None:
        self.settings = settings
        self.state = MemberState.OUT
        self.cluster = cluster
        self.callbacks = supervisor.callbacks
        self.handler = handler
        self.meters = GroupMeters(own_metrics, cluster.clock)
        self.rebalancing_since: float | None = None
        """The time, on the loop's clock, at which the wait for a generation began.

        None if the member does not wait."""
        self.rebalance_deadline = math.inf
        """The time, on the loop's clock, by which `before_rejoin` has to return."""
        self._log = cluster.make_log("group", settings.group_id)
        self._events = events
        self.heartbeats = Heartbeats(self)
        supervisor.spawn(self.heartbeats.run, name="heartbeats")
        self._backoff = RejoinBackoff(Attempts(math.inf, Backoff.of(cluster.config), cluster.clock))
        self._group_join = GroupJoin(self)
        self._wanted = asyncio.Event()
        """An event that is set while the member shall be in its group."""
        self._wanted.set()
        self._absence_reason = ""
        """The reason why the member shall not be in its group."""
        self._is_closed = False
        """Whether the member never joins again."""
        self._rejoin_reason: str | None = None
        """The reason for joining again, which the brokers log (KIP-800). None: no need to join."""
        self._needs_generation = False
        """Whether JoinGroup must lead to a new generation."""
        self._reassigns = False
        """Whether the leader must call `assign` again."""
        self._leaving_member = self._group_join.no_member
        self._cut_off: GroupMetadata | None = None
        """The identity with which `leave` must still leave the group; None if it need not.

        It is set if the end of the event loop has cancelled `run` before the member had left."""
        self._leave_is_over = False
        self._renews = False
        self._posted: list[tuple[GroupMetadata | None, MemberEvent]] = []
        self._step: CancelScope | None = None
        self._task: asyncio.Task[Any] | None = None
        self._idle = asyncio.Event()
        """An event that is set while `run` is not running."""
        self._idle.set()

    # -- for the consumer or the GroupMember -------------------------------------------------

    @property
    def metric_attributes(self) -> Labels:
        """The attribute by which an operator recognizes this member in pushed metrics."""
        member_id = self.metadata.member_id
        return (("group_member_id", member_id),) if member_id else ()

    @property
    def metadata(self) -> GroupMetadata:
        """The member id and generation for commits."""
        member = self._group_join.generation.metadata
        return member if member.generation_id >= 0 else self._group_join.no_member

    @property
    def is_or_becomes_member(self) -> bool:
        """Whether this is a member or tries to become one. False if it is paused or was refused."""
        return self._wanted.is_set() and self.state is not MemberState.FENCED

    def rejoin(self, reason: str) -> None:
        """Request a new generation. Synchronous.

        If a generation is about to begin, another one follows it.
        """
        self._rejoin_reason = self._rejoin_reason or reason
        self._needs_generation = True
        self._post_event(MemberEvent.REBALANCE, only_in=MemberState.STABLE)

    def request_reassignment(self, reason: str) -> None:
        """On the leader, request another call of `assign`, because its input has changed.

        It happens in the same generation if the coordinator supports that. Otherwise, and on other
        members, this is the same as `rejoin`. Synchronous.
        """
        if not (self._group_join.generation.is_leader and self._group_join.can_resync):
            return self.rejoin(reason)
        self._rejoin_reason = self._rejoin_reason or reason
        self._reassigns = True
        self._post_event(MemberEvent.REBALANCE, only_in=MemberState.STABLE)

    def leave_until_resume(self, reason: str) -> None:
        """Leave the group now and stay out until `resume`. Synchronous.

        A running call of the handler is cancelled, and everything that the member still owns is
        lost. A static member sends no LeaveGroup and remains in the group for the session timeout
        (KIP-345).
        """
        self._withhold_member(reason)
        self._post_event(MemberEvent.PAUSED)

    def release_until_resume(self, reason: str, *, at_once: bool) -> None:
        """Let the handler release its work, then leave and stay out until `resume`. Synchronous.

        If `resume` is called before the release has ended, the member does not leave, but joins
        again after the release. A JoinGroup in flight is abandoned immediately if `at_once` is
        true. Otherwise it may still be answered for a few seconds, because no commit is possible
        any more once the group has begun a generation without this member.
        """
        self._withhold_member(reason)
        if self.state is MemberState.STABLE:
            self._post_event(MemberEvent.WITHDRAWN)
        elif self.state is MemberState.JOINING and self._step is not None:
            wait_s = 0.0 if at_once and not self._may_get_id() else ID_S
            self._step.deadline = _now() + wait_s

    def renew_generation(self) -> None:
        """Let the handler begin the present generation once more. Synchronous.

        If a generation is about to begin, that is enough.
        """
        self._renews = True
        self._post_event(MemberEvent.RENEWED, only_in=MemberState.STABLE)

    def resume(self) -> None:
        """Join again after a pause, or after the group has refused this member.

        After `release_until_resume`, a member that has not left yet stays. Synchronous.
        """
        if not self._is_closed:
            self._wanted.set()
        if self._step is not None and not self._posted:
            self._step.deadline = math.inf  # `release_until_resume` may have limited the step.

    def is_current_task(self) -> bool:
        """Return whether the current task is the one of `run`."""
        return self._task is not None and asyncio.current_task() is self._task

    def _withhold_member(self, reason: str) -> None:
        """Keep the member out of the group until `resume`."""
        self._wanted.clear()
        self._absence_reason = reason

    def _on_metadata(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        """Join as a new member if the client has moved to another cluster."""
        if differ(old.cluster_id, new.cluster_id):
            self._group_join.close_connection()
            self._post_event(MemberEvent.UNKNOWN_MEMBER)

    async def leave(self, reason: str, timeout: float) -> None:
        """Leave the group permanently and end `run`; wait for that at most `timeout` seconds."""
        self._is_closed = True
        self.leave_until_resume(reason)
        try:
            with new_scope_of(timeout):
                await self._idle.wait()
                if self._cut_off is not None:
                    await self._leave_group(self._cut_off, reason)
        finally:
            self._leave_is_over = True
            if self._cut_off is not None:
                self._cut_off = None
                self._group_join.close_connections()

    async def run(self) -> None:
        """Stay in the group until `leave` or fencing. Raises exceptions of the handler."""
        self._task = asyncio.current_task()
        self._idle.clear()
        unsubscribe = self.cluster.updater.add_listener(
            self.callbacks.guard_function(self._on_metadata)
        )
        try:
            while not self._has_ended():
                await self._take_turn()
        except asyncio.CancelledError:
            if loop_ends(asyncio.get_running_loop()) and not self._leave_is_over:
                # All tasks are being cancelled. A task of the application may still call `leave`.
                self._cut_off = self._member
            raise
        except Exception:
            # The handler has failed, and the client fails with it. The group must not wait for it.
            member = self._member
            self._group_join.reset_generation()
            with new_scope_of(LEAVING_S):
                await self._leave_group(member, "the member has failed")
            raise
        finally:
            unsubscribe()
            self._group_join.reset_generation()
            if self._cut_off is None:
                self._group_join.close_connections()
            self._idle.set()

    # -- executing the table ----------------------------------------------------------------

    def _has_ended(self) -> bool:
        out = self.state is MemberState.OUT and self._is_closed
        return out or self.state is MemberState.FENCED

    async def _take_turn(self) -> None:
        """Handle the first queued event that has a row; without one, execute the state's step."""
        while self._posted:
            member, event = self._posted.pop(0)
            row = TABLE.get((self.state, event))
            if row is not None and member in (None, self._member):
                return await self._make_transition(event, row)
        ended = await self._execute_step(STEPS[self.state](self))
        if ended is not None:
            row = TABLE.get((self.state, ended)) or TABLE[self.state, MemberEvent.FAULT]
            await self._make_transition(ended, row)

    async def _execute_step(self, step: Coroutine[Any, Any, MemberEvent]) -> MemberEvent | None:
        """Execute a step and return its event, or None if a queued event has ended it early."""
        with new_scope() as self._step:
            try:
                return await step
            finally:
                self._step = None
        return None

    async def _make_transition(self, event: MemberEvent, row: Transition) -> None:
        before, self.state = self.state, row.state
        self._backoff.reset_if_steady()
        self._log.debug(
            "%s: %s -> %s",
            event.value,
            before.value,
            row.state.value,
            extra={"event": "group_state"},
        )
        effects, since = row.effects, self.rebalancing_since
        if row.state not in WAITING:
            self.rebalancing_since = None
        elif since is None:
            self.rebalancing_since = _now()
        if row.state is MemberState.LEAVING and before is not MemberState.LEAVING:
            self._leaving_member = self._member
            self._group_join.reset_generation()
        group_id, reason = self.settings.group_id, REASONS.get(event, event.value)
        if event is MemberEvent.SYNCED:
            self.meters.on_rebalanced(since)
            self.cluster.metrics.counter("group.generations", group=group_id).add()
            if self._events is not None:
                self._events.emit("Rebalanced", group_id=group_id)
        elif MemberEffect.LOSE in effects:
            if since is not None:
                self.meters.count_failed_rebalance()
            self._rejoin_reason = reason
            self.cluster.metrics.counter("group.losses", group=group_id).add()
        if event is MemberEvent.REFUSED:
            self._withhold_member(reason)
        if event is MemberEvent.FENCED:
            self.handler.report_error(FencedInstanceIdError(resource=f"group {group_id}"))
        if MemberEffect.TAKE_ID in effects:
            self.heartbeats.set_member(self._member)
        if MemberEffect.FORGET_GENERATION in effects:
            self._group_join.reset_generation(self._member._replace(generation_id=-1))
        if MemberEffect.FORGET_ID in effects:
            self._group_join.reset_generation()
        if MemberEffect.LOSE in effects:
            await self.handler.on_lost_membership(reason)
        # The step of the next state waits for the backoff, because an event can end a step early,
        # but not an effect.
        if MemberEffect.BACK_OFF in effects:
            self._backoff.delay_join()
        if MemberEffect.BACK_OFF_REPEATED in effects:
            self._backoff.delay_if_repeated()

    def _post_event(
        self,
        event: MemberEvent,
        member: GroupMetadata | None = None,
        only_in: MemberState | None = None,
    ) -> None:
        """Queue an event that occurred during a step. Synchronous."""
        if only_in not in (None, self.state) or (self.state, event) not in TABLE:
            return
        self._posted.append((member, event))
        if self._step is None:
            return
        if event is MemberEvent.PAUSED and self._may_get_id():
            # Wait for the id, because LeaveGroup needs it. Without LeaveGroup, the next rebalance
            # would wait for this member.
            self._step.deadline = _now() + ID_S
        else:
            self._step.cancel()

    def _may_get_id(self) -> bool:
        """Return whether the coordinator may be about to send this member its id."""
        return (
            self.state is MemberState.JOINING
            and not self._member.member_id
            and self._member.group_instance_id is None
            and bool(self._group_join.list_holding_brokers())
        )

    def on_heartbeat(self, member: GroupMetadata, event: MemberEvent | None) -> None:
        """Handle the response to a heartbeat."""
        waiting = self.state in (MemberState.JOINING, MemberState.SYNCING)
        if waiting and self._group_join.waits_at_former_coordinator():
            self._post_event(MemberEvent.MOVED)
        elif event is None or self.state is MemberState.JOINING:
            # While the member joins, the response to a heartbeat may be about an ended generation.
            # The response to JoinGroup shows the present state.
            return
        elif event is not MemberEvent.REBALANCE:
            self._post_event(event, member)
        elif not waiting:
            self._set_rebalance_deadline(self.heartbeats.last_stable_at)
            self._rejoin_reason = self._rejoin_reason or "the group rebalances"
            self._post_event(event, member)

    def _set_rebalance_deadline(self, since: float) -> None:
        """Set the deadline of a rebalance that began after `since`, unless it is set already."""
        deadline = since + self.settings.rebalance_timeout_ms / 1000
        self.rebalance_deadline = min(self.rebalance_deadline, deadline)

    @property
    def _member(self) -> GroupMetadata:
        """The identity of this member, which may have an id outside of a generation, too."""
        return self._group_join.generation.metadata

    # -- steps ------------------------------------------------------------------------------

    async def _wait_for_resume(self) -> MemberEvent:
        while not self._wanted.is_set():
            await self._wanted.wait()
        self._rejoin_reason, self._needs_generation = None, False
        return MemberEvent.RESUMED

    async def _join_group(self) -> MemberEvent:
        if not self._wanted.is_set():
            return MemberEvent.WITHDRAWN
        await self._backoff.wait_for_end()
        reason, again = self._rejoin_reason, self._needs_generation
        self._rejoin_reason, self._needs_generation = None, False
        event = None
        try:
            event = await self._group_join.send_join(reason or "the member starts", again=again)
        finally:
            if event is not MemberEvent.JOINED:
                # Keep the request for the next JoinGroup.
                self._rejoin_reason = self._rejoin_reason or reason
                self._needs_generation = self._needs_generation or again
        return event

    async def _request_assignment(self) -> MemberEvent:
        event = await self._group_join.send_sync()
        if event in (MemberEvent.SYNCED, MemberEvent.UNASSIGNED):
            self._backoff.on_synced()
            self.rebalance_deadline = math.inf
        return event

    async def _begin_generation(self) -> MemberEvent:
        self._renews = False
        await self.handler.on_generation(self._group_join.generation)
        return MemberEvent.BEGAN

    async def _stay_in_group(self) -> MemberEvent:
        if not self._wanted.is_set():
            return MemberEvent.WITHDRAWN
        if self._rejoin_reason is not None:
            return MemberEvent.REBALANCE
        if not self._renews:
            await anyio.sleep_forever()
        return MemberEvent.RENEWED

    async def _prepare_rejoin(self) -> MemberEvent:
        self._set_rebalance_deadline(_now())
        reason = self._rejoin_reason or "the group rebalances"
        try:
            async with asyncio.timeout_at(self.rebalance_deadline) as bound:
                await self.handler.before_rejoin(reason)
        except TimeoutError:
            if not bound.expired():
                raise
            return MemberEvent.LATE
        if not self._wanted.is_set():
            return MemberEvent.RELEASED
        # Kafka's coordinators take one assignment in each generation. Others announce the feature
        # "group.resync".
        if self._needs_generation or not self._group_join.can_resync:
            return MemberEvent.PREPARED
        if self._group_join.generation.is_leader:
            reassigns, self._reassigns = self._reassigns, False
            if not reassigns:
                return MemberEvent.PREPARED
            self._group_join.request_assignment()
        self._rejoin_reason = None
        return MemberEvent.RESYNCING

    async def _end_membership(self) -> MemberEvent:
        member, self._leaving_member = self._leaving_member, self._group_join.no_member
        await self._leave_group(member, self._absence_reason)
        await self.handler.on_lost_membership(self._absence_reason)
        return MemberEvent.LEFT

    async def _leave_group(self, member: GroupMetadata, reason: str) -> None:
        # A static member keeps its partitions until its session times out, so that it can return
        # without a rebalance (KIP-345).
        if member.member_id and member.group_instance_id is None:
            await self._group_join.send_leave(member, reason)


STEPS: Mapping[MemberState, Callable[[GroupEngine], Coroutine[Any, Any, MemberEvent]]] = {
    MemberState.OUT: GroupEngine._wait_for_resume,
    MemberState.JOINING: GroupEngine._join_group,
    MemberState.SYNCING: GroupEngine._request_assignment,
    MemberState.BEGINNING: GroupEngine._begin_generation,
    MemberState.STABLE: GroupEngine._stay_in_group,
    MemberState.PREPARING: GroupEngine._prepare_rejoin,
    MemberState.LEAVING: GroupEngine._end_membership,
}

REASONS: Mapping[MemberEvent, str] = {
    MemberEvent.UNKNOWN_MEMBER: "the coordinator does not know this member any more",
    MemberEvent.OLD_GENERATION: "the group has begun a generation without this member",
    MemberEvent.FENCED: "another member has taken the group instance id",
    MemberEvent.LATE: "the member did not release its assignment within the rebalance timeout",
    MemberEvent.REFUSED: "the group refuses this member",
}
