"""A member of a group, for any kind of group: the coroutines around the table of `states`.

One task, `run`, carries out the step that belongs to the state, then what the table says, and so
on. Whatever happens meanwhile (an answer to a heartbeat, a pause) is posted: where the table has a
row for it, it cuts the step short. Heartbeats have a task of their own (`heart`).

A coordinator gives a generation that it has again to a follower that joins with what it joined
with before. A follower that asks for a new one therefore offers one protocol more, of a name that
nobody else has and that can never be chosen.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from aiokclient.errors import FencedInstanceIdError, KafkaError
from aiokclient.group import wire
from aiokclient.group.failure import failure_in, failure_payload
from aiokclient.group.handler import Generation, GroupHandler, GroupSettings, MemberInfo
from aiokclient.group.heart import Heart
from aiokclient.group.link import Link
from aiokclient.group.refusal import explain
from aiokclient.group.states import CODES, TABLE, Effect, Event, MemberState, Row
from aiokclient.network.pool import Spawn
from aiokclient.policy import Backoff, Decision, Scope, decide
from aiokclient.types import GroupMetadata

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

__all__ = ["GroupEngine"]

logger = logging.getLogger("aiokclient.group")

AGAIN = "again-"
"""How the name of a protocol begins that is only there to be new."""

FAILED_ASSIGNMENTS = 10
"""So many times `retry_backoff_max_ms` at most lie between two tries of an assignment that fails:
each costs the whole group a rebalance."""


class GroupEngine:
    """Joins, stays and leaves. Made in the loop; `run` is spawned once; all else is for others.

    `report(error)` hears what the program has to see: why the group refuses the member, failed
    assignments, fencing. `confirmed_changed(confirmed)` is called when `confirmed` has changed.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        settings: GroupSettings,
        handler: GroupHandler,
        *,
        spawn: Spawn,
        report: Callable[[Exception], None],
        confirmed_changed: Callable[[bool], None] = lambda confirmed: None,
    ) -> None:
        self.settings = settings
        self.state = MemberState.OUT
        self.rebalance_deadline = math.inf
        """Until when, on the loop's clock, `before_rejoin` has to be done."""
        self._cluster = cluster
        self._handler = handler
        self._report = report
        self._heart = Heart(
            cluster,
            settings,
            owner=self,
            told=self._told,
            report=report,
            changed=lambda: confirmed_changed(self._heart.confirmed),
        )
        spawn(self._heart.run, name="heartbeats")
        config = cluster.config
        first_s, longest_s = config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000
        self._backoff = Backoff(first_s, longest_s)
        self._assign_backoff = Backoff(first_s, longest_s * FAILED_ASSIGNMENTS)
        self._attempt = 0
        self._not_before = 0.0
        self._failed_assignments = 0
        self._retry: asyncio.TimerHandle | None = None
        self._link = Link(cluster, settings, owner=self)
        self._generation = Generation(self.nobody, "", "", b"")
        self._assignments: dict[str, bytes] | None = None
        self._wanted_in = True
        self._rejoin_reason: str | None = None
        self._asked = False
        self._assigns_anew = False
        self._offered: list[tuple[str, bytes]] = []
        self._out_reason = ""
        self._leaver = self.nobody
        self._posted: list[tuple[GroupMetadata | None, Event]] = []
        self._step: anyio.CancelScope | None = None
        self._changed = asyncio.Event()
        self._closing = False
        self._running = False
        self._ended = asyncio.Event()

    # -- for whoever stands on it -----------------------------------------------------------

    @property
    def nobody(self) -> GroupMetadata:
        return GroupMetadata(
            self.settings.group_id, group_instance_id=self.settings.group_instance_id
        )

    @property
    def metadata(self) -> GroupMetadata:
        """Who this member is, in which generation: what its commits carry. Plain."""
        member = self._generation.metadata
        return member if member.generation_id >= 0 else self.nobody

    @property
    def confirmed(self) -> bool:
        """The coordinator is sure to count this member in; computed at each look. Plain."""
        return self._heart.confirmed

    @property
    def last_answer_at(self) -> float:
        """When the last request was sent that the coordinator answered, on the loop's clock."""
        return self._heart.last_answer_at

    def rejoin(self, reason: str) -> None:
        """Has the group make a new generation, once the present one has begun. Plain."""
        self._rejoin_reason = self._rejoin_reason or reason
        self._asked = True
        self._post(Event.REBALANCE, only_in=MemberState.STABLE)

    def reassign(self, reason: str) -> None:
        """On the leader: has `assign` run again, as what it goes by has changed. Plain.

        In the same generation where the coordinator can do that, else it is `rejoin`.
        """
        if not (self._generation.is_leader and self._link.resyncs):
            return self.rejoin(reason)
        self._rejoin_reason = self._rejoin_reason or reason
        self._assigns_anew = True
        self._post(Event.REBALANCE, only_in=MemberState.STABLE)

    def pause(self, reason: str) -> None:
        """Leaves the group now and stays out until `resume`. Plain.

        What the handler is doing is cancelled, and what it still holds is lost. A static member
        sends no LeaveGroup: its place is kept for the session timeout (KIP-345).
        """
        self._wanted_in = False
        self._out_reason = reason
        self._post(Event.PAUSED)

    def resume(self) -> None:
        """Joins again after `pause`, or after the group has refused this member. Plain."""
        if not self._closing:
            self._wanted_in = True
            self._changed.set()

    async def leave(self, reason: str, timeout: float) -> None:
        """As `pause`, for good: `run` ends. Waits for that, at most `timeout` seconds."""
        self._closing = True
        self.pause(reason)
        if self._running:
            with anyio.move_on_after(timeout):
                await self._ended.wait()

    async def run(self) -> None:
        """The member's life, until `leave`, fencing, or what the handler raises."""
        self._running = True
        try:
            while not self._is_over():
                await self._turn()
        finally:
            self._forget(self.nobody)
            self._link.release()
            self._running = False
            self._ended.set()

    # -- the table at work ------------------------------------------------------------------

    def _is_over(self) -> bool:
        out = self.state is MemberState.OUT and self._closing
        return out or self.state is MemberState.FENCED

    async def _turn(self) -> None:
        """What was posted first, else the step of the state."""
        while self._posted:
            member, event = self._posted.pop(0)
            row = TABLE.get((self.state, event))
            if row is not None and member in (None, self._generation.metadata):
                return await self._go(event, row)
        ended = await self._carry_out(STEPS[self.state](self))
        if ended is not None:
            row = TABLE.get((self.state, ended)) or TABLE[self.state, Event.FAULT]
            await self._go(ended, row)

    async def _carry_out(self, step: Coroutine[Any, Any, Event]) -> Event | None:
        """The step's event; None if something that was posted has cut it short."""
        with anyio.CancelScope() as self._step:
            try:
                return await step
            finally:
                self._step = None
        return None

    async def _go(self, event: Event, row: Row) -> None:
        before, self.state = self.state, row.state
        logger.debug("group %s: %s, %s -> %s", self._id, event.value, before.value, row.state.value)
        if row.state is MemberState.LEAVING and before is not MemberState.LEAVING:
            self._leaver = self._generation.metadata
            self._forget(self.nobody)
        reason = REASONS.get(event, event.value)
        if row.state is MemberState.BEGINNING:
            self._cluster.metrics.counter("group.generations", group=self._id).add()
        if Effect.LOSE in row.effects:
            self._rejoin_reason = reason
            self._cluster.metrics.counter("group.losses", group=self._id).add()
        if event is Event.FENCED:
            self._report(FencedInstanceIdError(resource=f"group {self._id}"))
        for effect in EFFECTS:
            if effect in row.effects:
                await EFFECTS[effect](self, reason)

    def _post(
        self,
        event: Event,
        member: GroupMetadata | None = None,
        only_in: MemberState | None = None,
    ) -> None:
        """Something has happened that is not the end of the step. Plain."""
        if only_in not in (None, self.state) or (self.state, event) not in TABLE:
            return
        self._posted.append((member, event))
        if self._step is not None:
            self._step.cancel()

    def _told(self, member: GroupMetadata, event: Event | None) -> None:
        """What a heartbeat was answered."""
        parked = self.state in (MemberState.JOINING, MemberState.SYNCING)
        if parked and self._link.parks_elsewhere():
            self._post(Event.MOVED)
        elif event is None or self.state is MemberState.JOINING:
            # The generation that it was sent for may be over by now: JoinGroup tells.
            return
        elif event is not Event.REBALANCE:
            self._post(event, member)
        elif not parked:
            timeout_s = self.settings.rebalance_timeout_ms / 1000
            self.rebalance_deadline = min(
                self.rebalance_deadline, self._heart.last_calm_at + timeout_s
            )
            self._rejoin_reason = self._rejoin_reason or "the group rebalances"
            self._post(event, member)

    @property
    def _id(self) -> str:
        return self.settings.group_id

    # -- effects ----------------------------------------------------------------------------

    def _forget(self, member: GroupMetadata) -> None:
        self._generation = Generation(member, "", "", b"")
        self._assignments = None
        self._cancel_retry()
        self._heart.beat_for(member)

    async def _forget_generation(self, reason: str) -> None:
        self._forget(self._generation.metadata._replace(generation_id=-1))

    async def _forget_id(self, reason: str) -> None:
        self._forget(self.nobody)

    async def _take_id(self, reason: str) -> None:
        self._heart.beat_for(self._generation.metadata)

    async def _lose(self, reason: str) -> None:
        await self._handler.lost(reason)

    async def _back_off(self, reason: str) -> None:
        delay_s = self._backoff.delay(self._attempt, self._cluster.clock.rng)
        self._attempt += 1
        # Not slept here, where nothing could cut it short.
        self._not_before = asyncio.get_running_loop().time() + delay_s

    # -- steps ------------------------------------------------------------------------------

    async def _wait_out(self) -> Event:
        while not self._wanted_in:
            self._changed.clear()
            await self._changed.wait()
        self._rejoin_reason, self._asked = None, False
        return Event.RESUMED

    async def _join(self) -> Event:
        await asyncio.sleep(self._not_before - asyncio.get_running_loop().time())
        request, asked = self._call(), self._asked
        reason, self._rejoin_reason, self._asked = self._rejoin_reason, None, False
        event = None
        try:
            sent_at = self._cluster.clock.monotonic()
            answer = await self._park(request)
            event = answer if isinstance(answer, Event) else CODES.get(answer.error_code)
            event = event or self._joined(answer, sent_at, request)
        finally:
            if event is not Event.JOINED:
                # The next JoinGroup asks for the same.
                self._rejoin_reason = self._rejoin_reason or reason
                self._asked = self._asked or asked
        if event is Event.MEMBER_ID_REQUIRED:
            member = self.nobody._replace(member_id=answer.member_id)
            self._generation = Generation(member, "", "", b"")
        return event

    def _call(self) -> JoinGroupRequest:
        protocols = list(self._handler.protocols())
        if self._asked and not self._generation.is_leader and protocols == self._offered:
            protocols.append((f"{AGAIN}{self._cluster.clock.rng.getrandbits(64):x}", b""))
        return wire.join(
            self.settings,
            self._generation.metadata.member_id,
            self._handler.protocol_type,
            protocols,
            self._rejoin_reason or "the member starts",
        )

    def _joined(
        self, answer: JoinGroupResponse, sent_at: float, request: JoinGroupRequest
    ) -> Event:
        error = wire.mismatch(answer, self._handler.protocol_type, None)
        if error is not None:
            return self._refused(error)
        member = self.nobody._replace(
            generation_id=answer.generation_id, member_id=answer.member_id
        )
        members = tuple(
            MemberInfo(m.member_id, m.group_instance_id, m.metadata) for m in answer.members
        )
        protocol = answer.protocol_name or ""
        self._generation = Generation(member, protocol, answer.leader, b"", members)
        self._offered = [(protocol.name, protocol.metadata) for protocol in request.protocols]
        leads = self._generation.is_leader and not answer.skip_assignment
        self._assignments = None if leads else {}
        self._cancel_retry()
        self._heart.beat_for(member, sent_at)
        return Event.JOINED

    async def _sync(self) -> Event:
        generation = self._generation
        if self._assignments is None:
            self._assigns_anew = False
            self._assignments = await self._assign(generation)
        protocol_type = self._handler.protocol_type
        sent_at = self._cluster.clock.monotonic()
        answer = await self._park(
            wire.sync(generation.metadata, protocol_type, generation.protocol, self._assignments)
        )
        if isinstance(answer, Event):
            return answer
        event = CODES.get(answer.error_code)
        if event is not None:
            return event
        error = wire.mismatch(answer, protocol_type, generation.protocol)
        if error is not None:
            return self._refused(error)
        self._link.end_parking()
        self._heart.answered(sent_at)
        self._attempt = 0
        self.rebalance_deadline = math.inf
        failure = failure_in(protocol_type, bytes(answer.assignment))
        if failure is not None:
            # The leader has reported the error itself.
            if not generation.is_leader:
                self._report(failure)
            return Event.UNASSIGNED
        self._failed_assignments = 0
        self._generation = generation._replace(assignment=bytes(answer.assignment))
        return Event.SYNCED

    async def _assign(self, generation: Generation) -> dict[str, bytes]:
        """What the leader sends; what it sends instead when the handler fails."""
        try:
            assigned = await self._handler.assign(
                generation.protocol, generation.leader_id, generation.members
            )
            return wire.checked(assigned, generation.members)
        except Exception as error:
            # The handler's, whatever it is: the program sees it, and all members are told.
            self._report(error)
            logger.warning("group %s: the assignment failed: %r", self._id, error)
            self._retry_later()
            payload = failure_payload(self._handler.protocol_type, error)
            return {member.member_id: payload for member in generation.members}

    async def _begin(self) -> Event:
        await self._handler.began(self._generation)
        return Event.BEGAN

    async def _stay(self) -> Event:
        if self._rejoin_reason is None:
            await anyio.sleep_forever()
        return Event.REBALANCE

    async def _prepare(self) -> Event:
        if self.rebalance_deadline == math.inf:
            timeout_s = self.settings.rebalance_timeout_ms / 1000
            self.rebalance_deadline = asyncio.get_running_loop().time() + timeout_s
        reason = self._rejoin_reason or "the group rebalances"
        try:
            async with asyncio.timeout_at(self.rebalance_deadline) as bound:
                await self._handler.before_rejoin(reason)
        except TimeoutError:
            if not bound.expired():
                raise
            return Event.LATE
        if self._asked or not self._link.resyncs:
            return Event.PREPARED
        if self._generation.is_leader:
            if not self._assigns_anew:
                return Event.PREPARED
            self._assignments = None
        self._rejoin_reason = None
        return Event.RESYNCING

    async def _leave(self) -> Event:
        member, self._leaver = self._leaver, self.nobody
        if member.member_id and member.group_instance_id is None:
            await self._link.leave(member, self._out_reason)
        await self._handler.lost(self._out_reason)
        return Event.LEFT

    async def _park(self, request: Any) -> Any:
        """The answer, or the event that stands for a failure."""
        try:
            return await self._link.park(request)
        except KafkaError as error:
            action = decide(error, Scope.GROUP, 0, 1.0, self._cluster.clock.rng)
            if action.decision is Decision.FAIL:
                await explain(self._cluster, request, error)
                return self._refused(error)
            logger.info("group %s: joining failed: %s", self._id, error)
            return Event.FAULT

    def _refused(self, error: KafkaError) -> Event:
        self._wanted_in = False
        self._report(error)
        return Event.REFUSED

    # -- failed assignments -----------------------------------------------------------------

    def _retry_later(self) -> None:
        delay_s = self._assign_backoff.delay(self._failed_assignments, self._cluster.clock.rng)
        self._failed_assignments += 1
        self._cancel_retry()
        loop = asyncio.get_running_loop()
        self._retry = loop.call_later(delay_s, self.rejoin, "the last assignment failed")

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None


STEPS: Mapping[MemberState, Callable[[GroupEngine], Coroutine[Any, Any, Event]]] = {
    MemberState.OUT: GroupEngine._wait_out,
    MemberState.JOINING: GroupEngine._join,
    MemberState.SYNCING: GroupEngine._sync,
    MemberState.BEGINNING: GroupEngine._begin,
    MemberState.STABLE: GroupEngine._stay,
    MemberState.PREPARING: GroupEngine._prepare,
    MemberState.LEAVING: GroupEngine._leave,
}

EFFECTS: Mapping[Effect, Callable[[GroupEngine, str], Coroutine[Any, Any, None]]] = {
    Effect.TAKE_ID: GroupEngine._take_id,
    Effect.FORGET_GENERATION: GroupEngine._forget_generation,
    Effect.FORGET_ID: GroupEngine._forget_id,
    Effect.LOSE: GroupEngine._lose,
    Effect.BACK_OFF: GroupEngine._back_off,
}

REASONS: Mapping[Event, str] = {
    Event.UNKNOWN_MEMBER: "the coordinator does not know this member any more",
    Event.OLD_GENERATION: "the group has gone on to a generation without this member",
    Event.FENCED: "another member has taken the group instance id",
    Event.LATE: "what was to be given up was not given up within the rebalance timeout",
    Event.REFUSED: "the group refuses this member",
}
