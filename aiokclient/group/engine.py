"""The engine of a member, for any kind of group: the coroutines that follow the table of `states`.

One task, `run`, repeatedly executes the step of the present state and then the transition in the
table. Events during a step (a response to a heartbeat, a pause) are queued. If the table has a row
for such an event, it ends the step early. Heartbeats have a task of their own (`heartbeats`).
`join` builds JoinGroup and SyncGroup, and `coordinator_connection` sends them. The small classes
before the engine have what it remembers between the steps: whether the member shall be in its
group, why it joins again, when it may, and by when its handler must have released its work.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from aiokclient.background import loop_ends
from aiokclient.cluster.metadata.snapshot import differ
from aiokclient.errors import FencedInstanceIdError
from aiokclient.group.coordinator_connection import CoordinatorConnection
from aiokclient.group.handler import GroupHandler, GroupSettings
from aiokclient.group.heartbeats import Heartbeats
from aiokclient.group.join import GroupJoin
from aiokclient.group.meters import GroupMeters
from aiokclient.group.states import TABLE, MemberEffect, MemberEvent, MemberState, Transition
from aiokclient.metrics import Labels, OwnMetrics
from aiokclient.policy import Backoff, Retry
from aiokclient.types import GroupMetadata

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.network.event_hub import EventSource

__all__ = ["GroupEngine"]

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


class Participation:
    """The decision whether the member shall be in its group.

    `reason` says why it shall not be. After `close`, the member never joins again.
    """

    __slots__ = ("_changed", "closed", "reason", "wanted")

    def __init__(self) -> None:
        self.wanted = True
        self.reason = ""
        self.closed = False
        self._changed = asyncio.Event()

    def pause(self, reason: str) -> None:
        """Keep the member out of the group until `resume`."""
        self.wanted = False
        self.reason = reason

    def resume(self) -> None:
        """Let the member join again, unless it is closed."""
        if not self.closed:
            self.wanted = True
            self._changed.set()

    def close(self) -> None:
        """Ignore `resume` from now on."""
        self.closed = True

    async def until_wanted(self) -> None:
        """Wait until the member shall be in its group."""
        while not self.wanted:
            self._changed.clear()
            await self._changed.wait()


class RejoinRequest:
    """The request of a member that joins again, with a reason, which the brokers log (KIP-800).

    `reason` is None if there is no request. `new_generation` is true if JoinGroup must lead to a
    new generation, and `reassigns` if the leader must call `assign` again.
    """

    __slots__ = ("new_generation", "reason", "reassigns")

    def __init__(self) -> None:
        self.reason: str | None = None
        self.new_generation = False
        self.reassigns = False

    def add(self, reason: str | None, *, new_generation: bool = False) -> None:
        """Request to join again. A reason that is already set remains."""
        self.reason = self.reason or reason
        self.new_generation = self.new_generation or new_generation

    def add_assignment(self, reason: str) -> None:
        """Request another assignment by the leader. A reason that is already set remains."""
        self.reason = self.reason or reason
        self.reassigns = True

    def replace_reason(self, reason: str) -> None:
        """Set the reason, and replace any earlier one."""
        self.reason = reason

    def take(self) -> tuple[str | None, bool]:
        """Remove and return the reason, and whether a new generation was requested."""
        taken = self.reason, self.new_generation
        self.reason, self.new_generation = None, False
        return taken

    def take_assignment(self) -> bool:
        """Remove the request for another assignment, and return whether there was one."""
        taken, self.reassigns = self.reassigns, False
        return taken

    def clear_reason(self) -> None:
        """Remove the reason, because the member rejoins."""
        self.reason = None


class RejoinBackoff:
    """The growing delays before the next JoinGroup. A generation that lasts resets them."""

    __slots__ = ("_not_before", "_repeated", "_retry", "_synced_at")

    def __init__(self, retry: Retry) -> None:
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
            self._retry.succeeded()
            self._synced_at = math.inf

    def delay(self) -> None:
        """Delay the next JoinGroup."""
        self._not_before = _now() + self._retry.pause_s()

    def delay_if_repeated(self) -> None:
        """Delay the next JoinGroup if the member has joined again too many times in a row."""
        self._repeated += 1
        if self._repeated > FREE:
            self.delay()

    async def wait(self) -> None:
        """Wait for the end of the delay."""
        await asyncio.sleep(self._not_before - _now())


def _now() -> float:
    return asyncio.get_running_loop().time()


class RebalanceTimes:
    """The times of a rebalance, on the loop's clock.

    `since` is when the member began to wait for the next generation, or None. `deadline` is when
    `before_rejoin` has to return, or infinity while that is not known.
    """

    __slots__ = ("_timeout_s", "deadline", "since")

    def __init__(self, timeout_ms: int) -> None:
        self.since: float | None = None
        self.deadline = math.inf
        self._timeout_s = timeout_ms / 1000

    def set_waiting(self, waiting: bool) -> None:
        """Record whether the member waits for the next generation."""
        if not waiting:
            self.since = None
        elif self.since is None:
            self.since = asyncio.get_running_loop().time()

    def began_after(self, stable_at: float) -> None:
        """Set the deadline for a rebalance that began after `stable_at`.

        A deadline that is already set and earlier remains.
        """
        self.deadline = min(self.deadline, stable_at + self._timeout_s)

    def begin_rebalance(self) -> None:
        """Set the deadline for a rebalance that begins now, unless a deadline is already set."""
        if self.deadline == math.inf:
            self.deadline = asyncio.get_running_loop().time() + self._timeout_s

    def end_rebalance(self) -> None:
        """Remove the deadline, because the next generation has begun."""
        self.deadline = math.inf


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
        self._cluster = cluster
        self._callbacks = supervisor.callbacks
        self._log = cluster.make_log("group", settings.group_id)
        self._handler = handler
        self._events = events
        self._meters = GroupMeters(own_metrics, cluster.clock)
        self._heartbeats = Heartbeats(
            cluster, settings, handler, self, callbacks=self._callbacks, meters=self._meters
        )
        supervisor.spawn(self._heartbeats.run, name="heartbeats")
        retry = Retry(math.inf, Backoff.of(cluster.config), cluster.clock)
        self._backoff = RejoinBackoff(retry)
        self._times = RebalanceTimes(settings.rebalance_timeout_ms)
        self._connection = CoordinatorConnection(cluster, settings, owner=self)
        self._group_join = GroupJoin(
            cluster,
            settings,
            handler,
            self,
            connection=self._connection,
            heartbeats=self._heartbeats,
            callbacks=self._callbacks,
            meters=self._meters,
        )
        self._participation = Participation()
        self._request = RejoinRequest()
        self._leaving_member = self._group_join.no_member
        self._cut_off: GroupMetadata | None = None
        """The identity with which `leave` must still leave the group; None if it need not.

        It is set if the end of the event loop has cancelled `run` before the member had left."""
        self._leave_is_over = False
        self._renews = False
        self._posted: list[tuple[GroupMetadata | None, MemberEvent]] = []
        self._step: anyio.CancelScope | None = None
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
    def joins(self) -> bool:
        """Whether this is a member or tries to become one. False if it is paused or was refused."""
        return self._participation.wanted and self.state is not MemberState.FENCED

    @property
    def confirmed(self) -> bool:
        """Whether the coordinator certainly keeps this member at this moment."""
        return self._heartbeats.confirmed

    @property
    def last_answer_at(self) -> float:
        """The time, on the loop's clock, at which the last request with a response was sent."""
        return self._heartbeats.last_answer_at

    @property
    def rebalancing_since(self) -> float | None:
        """The time, on the loop's clock, at which the wait for a generation began.

        None if the member does not wait.
        """
        return self._times.since

    @property
    def rebalance_deadline(self) -> float:
        """The time, on the loop's clock, by which `before_rejoin` has to return."""
        return self._times.deadline

    def rejoin(self, reason: str) -> None:
        """Request a new generation. Synchronous.

        If a generation is about to begin, another one follows it.
        """
        self._request.add(reason, new_generation=True)
        self._post_event(MemberEvent.REBALANCE, only_in=MemberState.STABLE)

    def reassign(self, reason: str) -> None:
        """On the leader, request another call of `assign`, because its input has changed.

        It happens in the same generation if the coordinator supports that. Otherwise, and on other
        members, this is the same as `rejoin`. Synchronous.
        """
        if not (self._group_join.generation.is_leader and self._connection.resyncs):
            return self.rejoin(reason)
        self._request.add_assignment(reason)
        self._post_event(MemberEvent.REBALANCE, only_in=MemberState.STABLE)

    def pause(self, reason: str) -> None:
        """Leave the group now and stay out until `resume`. Synchronous.

        A running call of the handler is cancelled, and everything that the member still owns is
        lost. A static member sends no LeaveGroup and remains in the group for the session timeout
        (KIP-345).
        """
        self._participation.pause(reason)
        self._post_event(MemberEvent.PAUSED)

    def withdraw(self, reason: str, *, at_once: bool) -> None:
        """Let the handler release its work, then leave and stay out until `resume`. Synchronous.

        If `resume` is called before the release has ended, the member does not leave, but joins
        again after the release. A JoinGroup in flight is abandoned immediately if `at_once` is
        true. Otherwise it may still be answered for a few seconds, because no commit is possible
        any more once the group has begun a generation without this member.
        """
        self._participation.pause(reason)
        if self.state is MemberState.STABLE:
            self._post_event(MemberEvent.WITHDRAWN)
        elif self.state is MemberState.JOINING and self._step is not None:
            wait_s = 0.0 if at_once and not self._asks_for_id() else ID_S
            self._step.deadline = asyncio.get_running_loop().time() + wait_s

    def renew_generation(self) -> None:
        """Let the handler begin the present generation once more. Synchronous.

        If a generation is about to begin, that is enough.
        """
        self._renews = True
        self._post_event(MemberEvent.RENEWED, only_in=MemberState.STABLE)

    def resume(self) -> None:
        """Join again after `pause`, or after the group has refused this member. Synchronous.

        After `withdraw`, a member that has not left yet stays in the group.
        """
        self._participation.resume()
        if self._step is not None and not self._posted:
            self._step.deadline = math.inf  # `withdraw` may have limited the step.

    def _observe(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        """Join as a new member if the client has moved to another cluster."""
        if differ(old.cluster_id, new.cluster_id):
            self._connection.close_join_connection()
            self._post_event(MemberEvent.UNKNOWN_MEMBER)

    async def leave(self, reason: str, timeout: float) -> None:
        """Leave the group permanently and end `run`; wait for that at most `timeout` seconds."""
        self._participation.close()
        self.pause(reason)
        try:
            with anyio.move_on_after(timeout):
                await self._idle.wait()
                if self._cut_off is not None:
                    await self._leave_group(self._cut_off, reason)
        finally:
            self._leave_is_over = True
            if self._cut_off is not None:
                self._cut_off = None
                self._connection.release()

    async def run(self) -> None:
        """Stay in the group until `leave` or fencing. Raises exceptions of the handler."""
        self._idle.clear()
        unsubscribe = self._cluster.updater.subscribe(self._callbacks.guard(self._observe))
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
            self._group_join.reset_generation(self._group_join.no_member)
            with anyio.move_on_after(LEAVING_S):
                await self._leave_group(member, "the member has failed")
            raise
        finally:
            unsubscribe()
            self._group_join.reset_generation(self._group_join.no_member)
            if self._cut_off is None:
                self._connection.release()
            self._idle.set()

    # -- executing the table ----------------------------------------------------------------

    def _has_ended(self) -> bool:
        out = self.state is MemberState.OUT and self._participation.closed
        return out or self.state is MemberState.FENCED

    async def _take_turn(self) -> None:
        """Handle the first queued event that has a row; without one, execute the state's step."""
        while self._posted:
            member, event = self._posted.pop(0)
            row = TABLE.get((self.state, event))
            if row is not None and member in (None, self._member):
                return await self._make_transition(event, row)
        ended = await self._carry_out(STEPS[self.state](self))
        if ended is not None:
            row = TABLE.get((self.state, ended)) or TABLE[self.state, MemberEvent.FAULT]
            await self._make_transition(ended, row)

    async def _carry_out(self, step: Coroutine[Any, Any, MemberEvent]) -> MemberEvent | None:
        """Execute a step and return its event, or None if a queued event has ended it early."""
        with anyio.CancelScope() as self._step:
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
        since = self._times.since
        if event is MemberEvent.SYNCED:
            self._meters.on_rebalanced(since)
        elif MemberEffect.LOSE in row.effects and since is not None:
            self._meters.count_failed_rebalance()
        self._times.set_waiting(row.state in WAITING)
        if row.state is MemberState.LEAVING and before is not MemberState.LEAVING:
            self._leaving_member = self._member
            self._group_join.reset_generation(self._group_join.no_member)
        reason = REASONS.get(event, event.value)
        if event is MemberEvent.SYNCED:
            self._cluster.metrics.counter("group.generations", group=self._id).add()
            if self._events is not None:
                self._events.emit("Rebalanced", group_id=self._id)
        if MemberEffect.LOSE in row.effects:
            self._request.replace_reason(reason)
            self._cluster.metrics.counter("group.losses", group=self._id).add()
        if event is MemberEvent.REFUSED:
            self._participation.pause(reason)
        if event is MemberEvent.FENCED:
            self._handler.report_error(FencedInstanceIdError(resource=f"group {self._id}"))
        for effect in EFFECTS:
            if effect in row.effects:
                await EFFECTS[effect](self, reason)

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
        if event is MemberEvent.PAUSED and self._asks_for_id():
            # Wait for the id, because LeaveGroup needs it. Without LeaveGroup, the next rebalance
            # would wait for this member.
            self._step.deadline = asyncio.get_running_loop().time() + ID_S
        else:
            self._step.cancel()

    def _asks_for_id(self) -> bool:
        """Return whether the coordinator may be about to send this member its id."""
        return (
            self.state is MemberState.JOINING
            and not self._member.member_id
            and self._member.group_instance_id is None
            and bool(self._connection.brokers_holding_requests())
        )

    def on_heartbeat(self, member: GroupMetadata, event: MemberEvent | None) -> None:
        """Handle the response to a heartbeat."""
        waiting = self.state in (MemberState.JOINING, MemberState.SYNCING)
        if waiting and self._connection.waits_at_former_coordinator():
            self._post_event(MemberEvent.MOVED)
        elif event is None or self.state is MemberState.JOINING:
            # While the member joins, the response to a heartbeat may be about an ended generation.
            # The response to JoinGroup shows the present state.
            return
        elif event is not MemberEvent.REBALANCE:
            self._post_event(event, member)
        elif not waiting:
            self._times.began_after(self._heartbeats.last_stable_at)
            self._request.add("the group rebalances")
            self._post_event(event, member)

    @property
    def _id(self) -> str:
        return self.settings.group_id

    @property
    def _member(self) -> GroupMetadata:
        """The identity of this member, which may have an id outside of a generation, too."""
        return self._group_join.generation.metadata

    # -- effects ----------------------------------------------------------------------------

    async def _forget_generation(self, reason: str) -> None:
        self._group_join.reset_generation(self._member._replace(generation_id=-1))

    async def _forget_id(self, reason: str) -> None:
        self._group_join.reset_generation(self._group_join.no_member)

    async def _take_id(self, reason: str) -> None:
        self._heartbeats.send_for(self._member)

    async def _lose(self, reason: str) -> None:
        await self._handler.on_lost_membership(reason)

    async def _back_off(self, reason: str) -> None:
        # The step of the next state waits for the backoff, because an event can end a step early,
        # but not an effect.
        self._backoff.delay()

    async def _back_off_repeated(self, reason: str) -> None:
        self._backoff.delay_if_repeated()

    # -- steps ------------------------------------------------------------------------------

    async def _wait_out(self) -> MemberEvent:
        await self._participation.until_wanted()
        self._request.take()
        return MemberEvent.RESUMED

    async def _join(self) -> MemberEvent:
        if not self._participation.wanted:
            return MemberEvent.WITHDRAWN
        await self._backoff.wait()
        reason, again = self._request.take()
        event = None
        try:
            event = await self._group_join.join(reason or "the member starts", again=again)
        finally:
            if event is not MemberEvent.JOINED:
                # Keep the request for the next JoinGroup.
                self._request.add(reason, new_generation=again)
        return event

    async def _sync(self) -> MemberEvent:
        event = await self._group_join.sync()
        if event in (MemberEvent.SYNCED, MemberEvent.UNASSIGNED):
            self._backoff.on_synced()
            self._times.end_rebalance()
        return event

    async def _begin_generation(self) -> MemberEvent:
        self._renews = False
        await self._handler.on_generation(self._group_join.generation)
        return MemberEvent.BEGAN

    async def _stay_in_group(self) -> MemberEvent:
        if not self._participation.wanted:
            return MemberEvent.WITHDRAWN
        if self._request.reason is not None:
            return MemberEvent.REBALANCE
        if not self._renews:
            await anyio.sleep_forever()
        return MemberEvent.RENEWED

    async def _prepare(self) -> MemberEvent:
        self._times.begin_rebalance()
        reason = self._request.reason or "the group rebalances"
        try:
            async with asyncio.timeout_at(self._times.deadline) as bound:
                await self._handler.before_rejoin(reason)
        except TimeoutError:
            if not bound.expired():
                raise
            return MemberEvent.LATE
        if not self._participation.wanted:
            return MemberEvent.RELEASED
        # Kafka's coordinators take one assignment in each generation. Others announce the feature
        # "group.resync".
        if self._request.new_generation or not self._connection.resyncs:
            return MemberEvent.PREPARED
        if self._group_join.generation.is_leader:
            if not self._request.take_assignment():
                return MemberEvent.PREPARED
            self._group_join.request_assignment()
        self._request.clear_reason()
        return MemberEvent.RESYNCING

    async def _leave(self) -> MemberEvent:
        member, self._leaving_member = self._leaving_member, self._group_join.no_member
        await self._leave_group(member, self._participation.reason)
        await self._handler.on_lost_membership(self._participation.reason)
        return MemberEvent.LEFT

    async def _leave_group(self, member: GroupMetadata, reason: str) -> None:
        # A static member keeps its partitions until its session times out, so that it can return
        # without a rebalance (KIP-345).
        if member.member_id and member.group_instance_id is None:
            await self._connection.leave(member, reason)


STEPS: Mapping[MemberState, Callable[[GroupEngine], Coroutine[Any, Any, MemberEvent]]] = {
    MemberState.OUT: GroupEngine._wait_out,
    MemberState.JOINING: GroupEngine._join,
    MemberState.SYNCING: GroupEngine._sync,
    MemberState.BEGINNING: GroupEngine._begin_generation,
    MemberState.STABLE: GroupEngine._stay_in_group,
    MemberState.PREPARING: GroupEngine._prepare,
    MemberState.LEAVING: GroupEngine._leave,
}

EFFECTS: Mapping[MemberEffect, Callable[[GroupEngine, str], Coroutine[Any, Any, None]]] = {
    MemberEffect.TAKE_ID: GroupEngine._take_id,
    MemberEffect.FORGET_GENERATION: GroupEngine._forget_generation,
    MemberEffect.FORGET_ID: GroupEngine._forget_id,
    MemberEffect.LOSE: GroupEngine._lose,
    MemberEffect.BACK_OFF: GroupEngine._back_off,
    MemberEffect.BACK_OFF_REPEATED: GroupEngine._back_off_repeated,
}

REASONS: Mapping[MemberEvent, str] = {
    MemberEvent.UNKNOWN_MEMBER: "the coordinator does not know this member any more",
    MemberEvent.OLD_GENERATION: "the group has begun a generation without this member",
    MemberEvent.FENCED: "another member has taken the group instance id",
    MemberEvent.LATE: "the member did not release its assignment within the rebalance timeout",
    MemberEvent.REFUSED: "the group refuses this member",
}
