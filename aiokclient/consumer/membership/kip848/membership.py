"""Membership in a group of the newer consumer protocol (KIP-848), in which brokers assign.

`states` has the table of states with its theory of operation, `member` has the present state, and
`schedule` has the times of heartbeats. Heartbeats and commits share a connection that no other
requests use, so that nothing delays them; one heartbeat is sent at a time. A failed heartbeat is
not repeated unchanged: the next one contains the whole state of the member. This module executes
the effects of the table in three tasks: `run` sends heartbeats, `Reconciliation` revokes and takes
partitions, and `SessionTimeoutWatch` looks up the session timeout.

The brokers evaluate a pattern with RE2, against the whole name, as Python's `fullmatch` does. In
two cases the client itself matches the pattern against the topics in the metadata: if the brokers
accept only names (the early access before Kafka 4.0), and if the pattern has re.VERBOSE.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.cluster.requests.attempts import CallProgress
from aiokclient.cluster.targets import Coordinator
from aiokclient.consumer.membership.kip848.heartbeat import (
    REGEX_FROM,
    HeartbeatBuilder,
    HeartbeatSchedule,
    HeartbeatSubscription,
    MemberSettings,
    SessionTimeoutWatch,
    expression,
    partitions_of,
)
from aiokclient.consumer.membership.kip848.member import Kip848Member
from aiokclient.consumer.membership.kip848.reconciliation import (
    PartitionAssignment,
    Reconciliation,
)
from aiokclient.consumer.membership.kip848.states import (
    CODES,
    PERMISSION_CODES,
    Kip848Effect,
    Kip848Event,
    Kip848State,
    event_of,
)
from aiokclient.consumer.state.subscription import Subscription
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.errors import IllegalStateError, KafkaError, UnsupportedVersionError, error_for
from aiokclient.group.meters import GroupMeters
from aiokclient.log.limited_log import LimitedLog
from aiokclient.network.pool import Purpose
from aiokclient.policy import Action, Backoff, Decision, Retry, Scope, classify
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aiokclient.types import GroupMetadata

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.consumer.membership.base import MembershipParts
    from aiokclient.network.connection import BrokerConnection

__all__ = ["Kip848Membership"]


UNRELEASED_SESSIONS = 1.2
"""The number of session timeouts for which an earlier membership may keep the instance id."""

UNRELEASED = (
    "The coordinator still has an earlier membership of this consumer with the instance id %s. "
    "Joining again until its session has ended, for at most %.0f s."
)

API = "ConsumerGroupHeartbeat"

SWITCHED_OFF = (UnsupportedVersionError.code,)
"""Error codes of a broker that knows the request but has the protocol disabled."""

LEAVE_ATTEMPTS = 3
"""Number of attempts to tell the coordinator that the member leaves."""

ADVICE = (
    "The coordinator does not support the newer consumer protocol (KIP-848). Kafka 4.0 and later "
    "support it unless it is switched off. Use group_protocol='classic'."
)


class Kip848Membership:
    """A `Membership` by the newer consumer protocol (KIP-848).

    Its heartbeats and the commits share one connection.
    """

    def __init__(self, parts: MembershipParts) -> None:
        cluster, config = parts.cluster, parts.config
        if config.group_id is None:
            raise IllegalStateError("A membership needs a group_id.")
        self._parts = parts
        self._clock = cluster.clock
        self._group_id = config.group_id
        self._plain_log = cluster.make_log("consumer", config.group_id)
        self._log = LimitedLog(self._plain_log, self._clock)
        self._rebalances = cluster.metrics.counter("consumer.rebalances", group=config.group_id)
        # From ConsumerGroupHeartbeat 1 on, the member makes its own id, so that a lost response to
        # the first heartbeat leaves no second member (KIP-1082).
        member_id = str(UUID(int=self._clock.rng.getrandbits(128), version=4))
        self._member = Kip848Member(config.group_id, member_id, config.group_instance_id)
        self._assignment = PartitionAssignment(
            cluster, parts.subscription, hide=config.exclude_internal_topics
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
        self._connection = HeartbeatConnection(cluster, config.group_id, parts.coordinator)
        usual_s, session_s = config.heartbeat_interval_ms / 1000, config.session_timeout_ms / 1000
        self._schedule = HeartbeatSchedule(usual_s, session_s, Backoff.of(config), self._clock)
        self._version = REGEX_FROM
        self._known_until = -math.inf
        """The time until which the coordinator may keep an earlier membership, on the clock."""
        self._subscription = Subscription()
        """The subscription in heartbeats. A member that is about to leave keeps its old one."""
        self._is_unanswered = False
        """Whether the coordinator may have executed a heartbeat of which no response has come."""
        self._leaving = asyncio.Lock()
        self._heartbeat_due = Wakeup()
        self._partitions_due = Wakeup()
        self._ended = Wakeup()
        """Set when a membership has ended."""
        self._reconciliation = Reconciliation(
            self,
            parts,
            self._member,
            self._assignment,
            wake=self._partitions_due,
            done=self._heartbeat_due,
            log=self._log,
        )
        self._meters = GroupMeters(parts.subscription.own_metrics, self._clock)
        self._session_watch = SessionTimeoutWatch(parts, self._schedule, ended=self._ended)

    # -- what it is

    @property
    def state(self) -> Kip848State:
        """The state of the member, for tests and logs."""
        return self._member.state

    @property
    def connection_owner(self) -> Hashable:
        return self._parts.coordinator

    @property
    def metadata(self) -> GroupMetadata:
        return self._member.metadata

    @property
    def can_be_outdated(self) -> bool:
        return self._is_unanswered

    @property
    def confirmed_until(self) -> float:
        certain = self._schedule.knows_session and self._member.has_epoch
        return self._schedule.answered_at + self._schedule.session_s if certain else -math.inf

    @property
    def joins(self) -> bool:
        return self._member.joins

    @property
    def rebalancing_since(self) -> float | None:
        return self._member.rebalancing_since

    @property
    def answered_at(self) -> float:
        return self._schedule.answered_at

    @property
    def settled(self) -> bool:
        return self._member.is_settled

    # -- what the consumer wants

    def on_subscription_changed(self) -> None:
        current = self._parts.topics.current
        if current or not self._member.sends_heartbeats:
            self._subscription = current
        self.apply_event(Kip848Event.SUBSCRIBED if current else Kip848Event.UNSUBSCRIBED)
        if current and self._parts.subscription.has_relinquished:
            self.renew_partitions()

    def renew_partitions(self) -> None:
        """Release what the application has given up, and take it again. Synchronous."""
        self.apply_event(Kip848Event.RENEWED)

    def on_poll_overdue(self, reason: str) -> None:
        self.apply_event(Kip848Event.OVERDUE, reason)

    def on_records_requested(self) -> None:
        if self._member.state is Kip848State.STALE:
            self.apply_event(Kip848Event.RETURNED)

    def rejoin(self, reason: str) -> None:
        """Do nothing: the coordinator computes new assignments itself when they are needed."""
        self._plain_log.debug(
            "No need to rejoin under KIP-848: %s", reason, extra={"event": "group_state"}
        )

    def start_over(self, reason: str) -> None:
        """Lose all partitions, and join as a new member. Synchronous."""
        self.apply_event(Kip848Event.FENCED, reason)

    async def leave(self, timeout: float) -> None:
        if self._member.is_closed:
            return
        self.apply_event(Kip848Event.CLOSED)
        try:
            async with asyncio.timeout(timeout):
                if self._member.must_leave:
                    await self._leave_group()
                async with self._leaving:
                    pass  # Wait until `run` has left, if it is leaving.
        except TimeoutError:
            extra = {"event": "group_leave_failed"}
            self._plain_log.info("Could not leave the group within %.1f s", timeout, extra=extra)

    # -- executing the table

    def apply_event(self, event: Kip848Event, reason: str = "") -> None:
        """Make the transition for an event, and execute its effects. Synchronous."""
        member, before = self._member, self._member.state
        since = member.rebalancing_since
        effects = member.apply_event(event, self._clock.monotonic(), reason)
        if since is not None and event is Kip848Event.FENCED:
            self._meters.count_failed_rebalance()
        elif since is not None and member.rebalancing_since is None:
            self._meters.on_rebalanced(since)
        if member.state is not before:
            names, extra = (member.state.name, event.name), {"event": "group_state"}
            self._plain_log.debug("The member is %s after %s", *names, extra=extra)
        if Kip848Effect.END in effects:
            self._end_membership()
        # LEAVE needs no action here: `must_leave` is set, and `run` sends the last heartbeat.
        self._heartbeat_due.set()
        self._partitions_due.set()

    def _end_membership(self) -> None:
        """Forget the ended membership. Its partitions are still owned and are released later."""
        self._subscription = self._parts.topics.current
        self._assignment.forget_target()
        self._builder.forget_sent()
        self._ended.set()
        self._parts.coordinator.on_identity_changed()

    # -- heartbeats

    async def run(self) -> None:
        parts = self._parts
        parts.supervisor.spawn(self._reconciliation.run, name="partitions of the group")
        parts.supervisor.spawn(self._session_watch.run, name="session of the group")
        unsubscribe = parts.cluster.updater.subscribe(
            parts.supervisor.callbacks.guard(self._observe)
        )
        try:
            with self._connection.show_call():
                while not self._member.is_closed:
                    if self._member.state is Kip848State.OUT and self._subscription:
                        self.apply_event(Kip848Event.SUBSCRIBED)
                    await self._take_step()
        finally:
            self._session_watch.stop()
            unsubscribe()

    def _observe(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        # The new metadata may have names for unknown topic ids, and topics that a pattern matches.
        self._partitions_due.set()
        self._heartbeat_due.set()

    async def _take_step(self) -> None:
        if self._member.must_leave:
            await self._leave_group()
        elif self._member.must_release and not self._must_not_join():
            await self._release_instance_id()
        elif not self._member.sends_heartbeats or self._must_not_join():
            await self._heartbeat_due.wait()
        elif not await self._heartbeat_due.wait(self._next_at()) and not self._member.is_closed:
            await self._send_heartbeat()

    def _must_not_join(self) -> bool:
        """Return whether the member must wait before it joins.

        It waits while partitions of an earlier membership are owned, or nothing is subscribed.
        """
        if self._member.state is not Kip848State.JOINING:
            return False
        return bool(self._assignment.owned) or self._make_subscription() == HeartbeatSubscription()

    def _has_news(self) -> bool:
        return not self._builder.has_sent(
            self._make_subscription(), self._assignment.report_owned()
        )

    def _next_at(self) -> float:
        return self._schedule.next_at(has_news=self._has_news())

    def _make_subscription(self) -> HeartbeatSubscription:
        pattern = self._subscription.pattern
        if pattern is None:
            return HeartbeatSubscription(tuple(sorted(self._subscription.topics)))
        regex = expression(pattern)
        if self._version >= REGEX_FROM and regex is not None:
            return HeartbeatSubscription(regex=regex)
        matching = self._parts.topics.matching(self._parts.cluster.metadata)
        return HeartbeatSubscription(tuple(matching))

    async def _send_heartbeat(self) -> None:
        member = self._member
        membership = member.memberships
        request_s = self._parts.config.request_timeout_ms / 1000
        try:
            self._version = await self._connection.find_version()
            if membership != member.memberships or not member.sends_heartbeats:
                return
            self._schedule.on_send(has_news=self._has_news())
            name = GroupMetadata(self._group_id, member.epoch, member.member_id)
            request = self._builder.build(
                name, self._make_subscription(), self._assignment.report_owned(), self._version
            )
            sent_at = self._clock.monotonic()
            self._meters.on_heartbeat_sent(sent_at)
            timeout_s = self._schedule.attempt_timeout_s(request_s)
            self._is_unanswered = True
            answer = await self._connection.send(request, timeout_s)
            self._meters.on_heartbeat_answered(sent_at)
            self._note_known()
        except KafkaError as error:
            self._builder.forget_sent()
            if not self._connection.was_answered:
                self._note_known()  # The coordinator may have executed the heartbeat.
            if membership == member.memberships:
                self._handle_error(error)
            return
        if membership == member.memberships:
            self._on_response(answer, sent_at)

    def _on_response(self, answer: ConsumerGroupHeartbeatResponse, sent_at: float) -> None:
        self._is_unanswered = False
        if self._member.has_epoch:
            self._connection.reset_failures()
        self._member.set_epoch(answer.member_epoch)
        self._schedule.on_response(sent_at, answer.heartbeat_interval_ms)
        if answer.heartbeat_interval_ms <= 0:
            text = "The coordinator asks for a heartbeat every %d ms. Using heartbeat_interval_ms."
            wanted, extra = answer.heartbeat_interval_ms, {"event": "group_interval_refused"}
            self._log.write(logging.WARNING, "interval", text, wanted, extra=extra)
        if answer.assignment is not None:
            target = partitions_of(answer.assignment.topic_partitions)
            if self._assignment.set_target(target, sent_at):
                self._rebalances.add()
                if self._assignment.must_report:
                    self._builder.forget_sent()  # A full heartbeat reports the owned partitions.
        differs = self._assignment.is_different()
        self.apply_event(Kip848Event.ASSIGNED if differs else Kip848Event.CONFIRMED)
        self._parts.coordinator.on_identity_changed()

    def _handle_error(self, error: KafkaError) -> None:
        action = self._connection.handle_failure(error)
        self._schedule.delay_until(self._clock.monotonic() + action.delay_s)
        event = event_of(self._member.state, error.code)
        if event is None and action.decision is Decision.RECOVER:
            event = Kip848Event.FENCED
        if event is Kip848Event.UNRELEASED and not self._may_be_known():
            event = Kip848Event.REFUSED
        if event is Kip848Event.FENCED:
            text, extra = "The membership ended: %s", {"event": "group_left"}
            self._log.write(logging.INFO, ("over", error.code), text, error, extra=extra)
            self.apply_event(event, str(error))
        elif event is Kip848Event.UNRELEASED:
            text, extra = UNRELEASED, {"event": "group_instance_unreleased"}
            left_s = max(self._known_until - self._clock.monotonic(), 0.0)
            instance_id = self._parts.config.group_instance_id
            self._log.write(logging.WARNING, "unreleased", text, instance_id, left_s, extra=extra)
            self.apply_event(event)
        elif error.code in PERMISSION_CODES:
            # Each request for records raises this error until the permission is granted.
            self._parts.coordinator.on_group_error(error)
        elif event is not None or not action.again:
            self.apply_event(event or Kip848Event.REFUSED, str(error))
            raise error

    def _note_known(self) -> None:
        """Record that the coordinator may have received a heartbeat until now."""
        session_s = max(self._schedule.session_s, self._parts.config.session_timeout_ms / 1000)
        self._known_until = self._clock.monotonic() + session_s * UNRELEASED_SESSIONS

    def _may_be_known(self) -> bool:
        """Return whether the coordinator may still have an earlier membership of this member."""
        return self._clock.monotonic() < self._known_until

    async def _release_instance_id(self) -> None:
        """Tell the coordinator that a membership has ended whose session may go on.

        It needs no epoch. If it is refused because the instance id belongs to a member with another
        id, this member has to end.
        """
        self._member.mark_released()
        request = self._builder.build_last(self._member.member_id)
        error = await self._connection.leave_group(request, self._schedule.session_s)
        state = self._member.state
        if error is not None and event_of(state, error.code) is Kip848Event.REPLACED:
            self.apply_event(Kip848Event.REPLACED, str(error))
            if self._member.state is Kip848State.FAILED:
                raise error

    async def _leave_group(self) -> None:
        self._member.mark_left()
        self.apply_event(Kip848Event.LEFT)
        async with self._leaving:
            request = self._builder.build_last(self._member.member_id)
            await self._connection.leave_group(request, self._schedule.session_s)


class HeartbeatConnection:
    """The heartbeats to the coordinator of `group_id`. `owner` owns and closes the connection."""

    def __init__(self, cluster: ClusterClient, group_id: str, owner: Hashable) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._owner = owner
        config = cluster.config
        backoff = Backoff.of(config)
        self._retry = Retry(math.inf, backoff, cluster.clock)
        self._log = cluster.make_log("consumer", group_id)
        target = Coordinator("group", group_id)
        self._progress = CallProgress(target, ApiKey.CONSUMER_GROUP_HEARTBEAT)
        self.was_answered = True
        """Whether no heartbeat was sent whose response is unknown, since the last `send`."""

    async def find_version(self) -> int:
        """Return the version of the heartbeat that the coordinator supports.

        Raises UnsupportedVersionError if it supports none, and the errors of connecting.
        """
        connection = await self._connect_to_coordinator()
        try:
            return connection.broker.version_of(ConsumerGroupHeartbeatRequest)
        except UnsupportedVersionError as error:
            broker = connection.broker.node_id
            raise UnsupportedVersionError(ADVICE, api=API, broker=broker) from error

    async def send(
        self, request: ConsumerGroupHeartbeatRequest, timeout_s: float
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat and return the response.

        Raises the error in the response, or the error of the connection.
        """
        connection = await self._connect_to_coordinator()
        self.was_answered = False
        self._progress.note_request(connection.broker.node_id, self._cluster.clock.monotonic())
        response: ConsumerGroupHeartbeatResponse = await connection.send(
            request, timeout_s=timeout_s
        )
        self.was_answered = True
        off = response.error_code in SWITCHED_OFF
        message = ADVICE if off else response.error_message
        error = error_for(
            response.error_code,
            message,
            api=API,
            broker=connection.broker.node_id,
            resource=f"group {request.group_id}",
        )
        if error is not None:
            raise error
        self._progress.note_success()
        return response

    @contextmanager
    def show_call(self) -> Iterator[None]:
        """Return a context manager, in whose body the heartbeats are among the client's calls."""
        self._cluster.calls.add(self._progress)
        try:
            yield
        finally:
            self._cluster.calls.remove(self._progress)

    def reset_failures(self) -> None:
        """Reset the count of failures after a response to a member. Synchronous.

        It is not called after a response to a join, because a member that is fenced after each
        join must back off.
        """
        self._retry.succeeded()

    def handle_failure(self, error: KafkaError) -> Action:
        """Return the action for a failed attempt, and forget a coordinator that has moved.

        Synchronous.
        """
        self._progress.note_failure(error)
        decision = classify(error, Scope.GROUP)
        if decision is Decision.REFRESH_AND_RETRY:
            self._cluster.coordinators.forget_coordinator("group", self._group_id)
        action = Action(decision, self._retry.pause_after_s(error, Scope.GROUP))
        if decision.again:
            self._cluster.refusals.log_refusal(error, self._retry.attempt)
        return action

    async def leave_group(
        self, request: ConsumerGroupHeartbeatRequest, timeout_s: float
    ) -> KafkaError | None:
        """Send the heartbeat that leaves the group, in at most LEAVE_ATTEMPTS attempts.

        A failure is only logged. Return the last one if no attempt has succeeded.
        """
        failure: KafkaError | None = None
        for _ in range(LEAVE_ATTEMPTS):
            try:
                await self.send(request, timeout_s)
                return None
            except KafkaError as error:
                failure = error
                action = self.handle_failure(error)
                if error.code in CODES or not action.again:
                    # The coordinator removes the member anyway when its session times out.
                    extra = {"event": "group_leave_failed"}
                    self._log.info("Could not leave the group: %s", error, extra=extra)
                    break
                await asyncio.sleep(action.delay_s)
        return failure

    async def _connect_to_coordinator(self) -> BrokerConnection:
        node_id = await self._cluster.coordinators.locate("group", self._group_id)
        return await self._cluster.connect(node_id, Purpose.GROUP, self._owner)
