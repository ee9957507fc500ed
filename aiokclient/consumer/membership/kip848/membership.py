"""Membership in a group of the new consumer protocol (KIP-848), where brokers assign.

`kip848_states.py` has the states and what happens in them. Two tasks share the work. `run` sends
heartbeats: at the interval that the coordinator wants, and at once when there is something to
say. The other gives partitions up and takes them, which may have to wait for the program; the
heartbeats go on meanwhile.

A pattern is evaluated by the brokers (RE2; as a whole, as Python's `fullmatch`). Where they know
names only (the early access before Kafka 4.0), and for re.VERBOSE, it is matched with the topics in
the metadata.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.consumer.membership.kip848.assignment import PartitionAssignment
from aiokclient.consumer.membership.kip848.connection import HeartbeatConnection
from aiokclient.consumer.membership.kip848.heartbeat import (
    JOIN,
    REGEX_FROM,
    HeartbeatBuilder,
    HeartbeatSubscription,
    MemberSettings,
    expression,
    partitions_of,
)
from aiokclient.consumer.membership.kip848.session_timeout import session_timeout_ms
from aiokclient.consumer.membership.kip848.states import (
    BEATING,
    CODES,
    MEMBERS,
    Kip848Event,
    Kip848State,
    after,
    meaning,
)
from aiokclient.consumer.state.subscription import Subscription
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.errors import AuthorizationError, IllegalStateError, KafkaError
from aiokclient.limited_log import LimitedLog
from aiokclient.policy import Decision
from aiokclient.types import GroupMetadata

if TYPE_CHECKING:
    from aiokclient.cluster.metadata import ClusterMetadata
    from aiokclient.consumer.membership.base import MembershipParts
    from aiokclient.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatResponse,
    )

__all__ = ["Kip848Membership"]

FAREWELLS = 3
"""So many attempts are made to tell the coordinator that the member leaves."""

MOVING = (Kip848State.JOINING, Kip848State.RECONCILING, Kip848State.FENCED)
"""The states in which it waits for its group, or for partitions to be released or assigned."""

FREE = 5
"""So many heartbeats in a row are sent at once because there is something to say."""

SHORTEST_S = 0.1
"""The shortest interval between heartbeats, whatever the coordinator wants."""

PATIENCE = 0.5
"""Part of the session timeout after which an unanswered heartbeat is sent on a new connection."""


class Kip848Membership:
    """A `Membership`; its heartbeats share a connection with the commits."""

    def __init__(self, parts: MembershipParts) -> None:
        cluster, config = parts.cluster, parts.config
        if config.group_id is None:
            raise IllegalStateError("a membership needs a group_id")
        self.state = Kip848State.OUT
        self._parts = parts
        self._rebalances = cluster.metrics.counter("consumer.rebalances", group=config.group_id)
        self._clock = cluster.clock
        self._group_id = config.group_id
        self._instance_id = config.group_instance_id
        self._member_id = str(UUID(int=self._clock.rng.getrandbits(128), version=4))
        self._epoch = JOIN
        self._life = 0
        """Counts memberships: answers to an earlier one are void."""
        self._assignment = PartitionAssignment(
            cluster, parts.topics, hide=config.exclude_internal_topics
        )
        self._builder = HeartbeatBuilder(
            MemberSettings(
                group_id=config.group_id,
                instance_id=config.group_instance_id,
                rack=config.client_rack or None,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                assignor=config.group_remote_assignor,
            )
        )
        self._connection = HeartbeatConnection(cluster, config.group_id, parts.owner)
        self._session_s = config.session_timeout_ms / 1000
        self._knows_session = False
        self._usual_s = self._interval_s = config.heartbeat_interval_ms / 1000
        self._moving_since: float | None = None
        self._early = 0
        """Heartbeats in a row that had something to say."""
        self._plain_log = cluster.log("consumer", config.group_id)
        self._log = LimitedLog(self._plain_log, self._clock.monotonic)
        self._answered_at = -math.inf
        self._due = self._not_before = -math.inf
        self._told_at = -math.inf
        self._version = REGEX_FROM
        self._subscription = Subscription()
        self._moved = False
        self._farewell = self._ended = False
        self._lost_by = ""
        self._parting = asyncio.Lock()
        self._wake = Wakeup()
        self._work = Wakeup()
        self._forgotten = Wakeup()
        """This is no member any more: what is known of the group may be old."""

    # -- what it is ------------------------------------------------------------------------

    @property
    def metadata(self) -> GroupMetadata:
        if self._epoch <= JOIN:
            return GroupMetadata(self._group_id, group_instance_id=self._instance_id)
        return GroupMetadata(self._group_id, self._epoch, self._member_id, self._instance_id)

    @property
    def confirmed_until(self) -> float:
        certain = self._knows_session and self._epoch > JOIN
        return self._answered_at + self._session_s if certain else -math.inf

    @property
    def joins(self) -> bool:
        return not self._ended and self.state not in (Kip848State.STALE, Kip848State.FAILED)

    @property
    def rebalancing_since(self) -> float | None:
        return None if self.settled else self._moving_since

    @property
    def answered_at(self) -> float:
        return self._answered_at

    @property
    def settled(self) -> bool:
        return self.state in (Kip848State.STABLE, Kip848State.ACKNOWLEDGING)

    # -- what the consumer tells -----------------------------------------------------------

    def subscribed(self) -> None:
        current = self._parts.topics.current
        if current or self.state not in BEATING:
            # One that is about to leave goes on as before until it has.
            self._subscription = current
        self._apply(Kip848Event.SUBSCRIBED if current else Kip848Event.UNSUBSCRIBED)

    def left_behind(self, reason: str) -> None:
        if self.state in MEMBERS:
            self._farewell = True
        self._lost_by = reason
        self._apply(Kip848Event.LATE)

    def asked(self) -> None:
        if self.state is Kip848State.STALE:
            self._apply(Kip848Event.ASKED)

    def rejoin(self, reason: str) -> None:
        """Does nothing: brokers assign anew by themselves whenever there is cause."""
        self._plain_log.debug(
            "No need to rejoin under KIP-848: %s", reason, extra={"event": "group_state"}
        )

    def _apply(self, event: Kip848Event) -> None:
        before, self.state = self.state, after(self.state, event)
        if self.state not in MOVING:
            self._moving_since = None
        elif self._moving_since is None:
            self._moving_since = self._clock.monotonic()
        if self.state is not before:
            names, extra = (self.state.name, event.name), {"event": "group_state"}
            self._plain_log.debug("The member is %s after %s", *names, extra=extra)
        if before in BEATING and self.state not in BEATING:
            self._end()
        self._wake.set()
        self._work.set()

    def _end(self) -> None:
        """This is no member any more; what it owns is still to be taken from it."""
        self._life += 1
        self._epoch = JOIN
        self._subscription = self._parts.topics.current
        self._assignment.target = frozenset()
        self._builder.forget()
        self._forgotten.set()
        self._parts.changed()

    # -- heartbeats ------------------------------------------------------------------------

    async def run(self) -> None:
        parts = self._parts
        parts.spawn(self._reconcile, name="partitions of the group")
        parts.spawn(self._learn_session, name="session of the group")
        unsubscribe = parts.cluster.updater.subscribe(parts.callbacks.guard(self._observe))
        try:
            while not self._ended:
                if self.state is Kip848State.OUT and self._subscription:
                    self._apply(Kip848Event.SUBSCRIBED)
                await self._turn()
        finally:
            unsubscribe()

    async def _turn(self) -> None:
        if self._farewell:
            await self._say_farewell()
        elif self.state not in BEATING or (
            self.state is Kip848State.JOINING and self._may_not_join()
        ):
            await self._wake.wait()
        elif not await self._wake.wait(self._next_at()) and not self._ended:
            await self._beat()

    def _may_not_join(self) -> bool:
        """Whether something of before is owned, or a pattern that is matched here has no topic."""
        return bool(self._assignment.owned) or self._wanted() == HeartbeatSubscription()

    def _next_at(self) -> float:
        said = self._builder.said(self._wanted(), self._assignment.told())
        return max(self._due, self._not_before) if said else self._not_before

    def _wanted(self) -> HeartbeatSubscription:
        pattern = self._subscription.pattern
        if pattern is None:
            return HeartbeatSubscription(tuple(sorted(self._subscription.topics)))
        regex = expression(pattern)
        if self._version >= REGEX_FROM and regex is not None:
            return HeartbeatSubscription(regex=regex)
        return HeartbeatSubscription(
            tuple(self._parts.topics.matching(self._parts.cluster.metadata))
        )

    async def _beat(self) -> None:
        life = self._life
        request_s = self._parts.config.request_timeout_ms / 1000
        try:
            self._version = await self._connection.version()
            if life != self._life or self.state not in BEATING:
                return
            member = GroupMetadata(self._group_id, self._epoch, self._member_id)
            told, wanted = self._assignment.told(), self._wanted()
            self._early = 0 if self._builder.said(wanted, told) else self._early + 1
            request = self._builder.build(member, wanted, told)
            sent_at = self._clock.monotonic()
            answer = await self._connection.send(
                request, min(request_s, self._session_s * PATIENCE)
            )
        except KafkaError as error:
            self._builder.forget()
            if life == self._life:
                self._refused(error)
            return
        if life == self._life:
            self._answered(answer, sent_at)

    def _answered(self, answer: ConsumerGroupHeartbeatResponse, sent_at: float) -> None:
        if self._epoch > JOIN:
            self._connection.succeeded()
        self._epoch = answer.member_epoch
        self._interval_s = self._interval(answer.heartbeat_interval_ms)
        self._answered_at = sent_at
        self._due, self._not_before = sent_at + self._interval_s, -math.inf
        if self._early > FREE:
            self._not_before = sent_at + self._connection.pause_s(self._early - FREE)
        if answer.assignment is not None:
            target = partitions_of(answer.assignment.topic_partitions)
            if target != self._assignment.target:
                self._assignment.target, self._told_at = target, sent_at
                self._rebalances.add()
        self._apply(Kip848Event.TOLD if self._assignment.differs() else Kip848Event.SETTLED)
        self._parts.changed()

    def _interval(self, wanted_ms: int) -> float:
        """Return the seconds between two heartbeats: what the coordinator wants, within reason."""
        if wanted_ms <= 0:
            text = "The coordinator asks for a heartbeat every %d ms. Using %.1f s."
            extra = {"event": "group_interval_refused"}
            self._log.write(
                logging.WARNING, "interval", text, wanted_ms, self._usual_s, extra=extra
            )
            return self._usual_s
        return max(min(wanted_ms / 1000, self._session_s * PATIENCE), SHORTEST_S)

    def _refused(self, error: KafkaError) -> None:
        action = self._connection.failed(error)
        self._not_before = self._clock.monotonic() + action.delay_s
        event = meaning(self.state, error.code)
        if event is None and action.decision is Decision.RECOVER:
            event = Kip848Event.FENCED
        if event is Kip848Event.FENCED:
            text, extra = "The membership ended: %s", {"event": "group_left"}
            self._log.write(logging.INFO, ("over", error.code), text, error, extra=extra)
            self._lost_by = str(error)
            self._apply(event)
        elif isinstance(error, AuthorizationError):
            # It may be granted yet; until then the program is told at every request.
            self._parts.report(error)
        elif event is Kip848Event.FAILED or not action.again:
            # Refused is what it wants; its place it has, until it leaves or another takes it.
            self._farewell = event is not Kip848Event.FAILED and self._epoch > JOIN
            self._lost_by = str(error)
            self._apply(Kip848Event.FAILED)
            raise error

    async def _say_farewell(self) -> None:
        self._farewell = False
        self._apply(Kip848Event.LEFT)
        async with self._parting:
            await self._send_farewell()

    async def _send_farewell(self) -> None:
        for _ in range(FAREWELLS):
            try:
                await self._connection.send(self._builder.last(self._member_id), self._session_s)
                break
            except KafkaError as error:
                action = self._connection.failed(error)
                if error.code in CODES or not action.again:
                    # The coordinator finds out by itself when the session is over.
                    extra = {"event": "group_leave_failed"}
                    self._plain_log.info("Could not leave the group: %s", error, extra=extra)
                    break
                await asyncio.sleep(action.delay_s)

    async def leave(self, timeout: float) -> None:
        if self._ended:
            return
        member = self.state in BEATING or self._farewell
        self._ended = True
        self._end()
        self.state = Kip848State.OUT
        self._wake.set()
        self._work.set()
        try:
            async with asyncio.timeout(timeout):
                if member:
                    await self._say_farewell()
                async with self._parting:
                    pass  # `run` may be saying it.
        except TimeoutError:
            extra = {"event": "group_leave_failed"}
            self._plain_log.info("Could not leave within %.1f s", timeout, extra=extra)

    async def _learn_session(self) -> None:
        """At the start, before it joins again and, if it is told, now and then: it may change."""
        max_age_s = self._parts.config.metadata_max_age_ms / 1000
        while not self._ended:
            until = math.inf
            told = await session_timeout_ms(self._parts.cluster, self._group_id)
            if told is not None:
                self._session_s = told / 1000
                until = self._clock.monotonic() + max_age_s
            self._knows_session = True
            self._parts.changed()
            await self._forgotten.wait(until)

    # -- partitions ------------------------------------------------------------------------

    def _observe(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        # Names of topics may be known now, and a pattern may match others.
        self._work.set()
        self._wake.set()

    async def _reconcile(self) -> None:
        while not self._ended:
            until = await self._step()
            if until > self._clock.monotonic():
                await self._work.wait(until)

    async def _step(self) -> float:
        """Does the next thing there is to do; gives when to look again at the latest."""
        assignment = self._assignment
        if self.state is Kip848State.LEAVING:
            await self._give_up()
            self._farewell = self.state is Kip848State.LEAVING
            self._wake.set()
            return math.inf
        if self.state is Kip848State.RECONCILING:
            return await self._move()
        if assignment.owned and self.state not in MEMBERS[1:]:
            text, extra = "This member lost its partitions: %s", {"event": "group_lost"}
            key = ("lost", self._lost_by)
            self._log.write(logging.WARNING, key, text, self._lost_by, extra=extra)
            await self._parts.reconciler.lose(list(assignment.owned.values()))
            assignment.owned.clear()
        if self.state is Kip848State.FENCED:
            self._apply(Kip848Event.RELEASED)
        elif self.state in (Kip848State.STABLE, Kip848State.ACKNOWLEDGING):
            await self._parts.reconciler.conclude()
        self._wake.set()
        return math.inf

    async def _move(self) -> float:
        assignment = self._assignment
        if assignment.to_give_up():
            await self._give_up()
            return -math.inf
        new = assignment.to_take()
        if new:
            self._moved = True
            await self._parts.reconciler.assign(list(new.values()))
            assignment.owned.update(new)
            return -math.inf
        if self._moved or not assignment.unknown():
            self._moved = False
            self._apply(Kip848Event.RECONCILED)
            return math.inf
        self._parts.cluster.updater.request_update(reason="the id of a topic has no name yet")
        return self._clock.monotonic() + self._parts.config.retry_backoff_max_ms / 1000

    async def _give_up(self) -> None:
        assignment = self._assignment
        leaving = self.state is Kip848State.LEAVING
        gone = dict(assignment.owned) if leaving else assignment.to_give_up()
        if not gone:
            return
        begun = self._clock.monotonic() if leaving else self._told_at
        deadline = begun + self._parts.config.max_poll_interval_ms / 1000
        self._moved = True
        await self._parts.reconciler.revoke(list(gone.values()), deadline=deadline)
        for partition in gone:
            assignment.owned.pop(partition, None)
