"""Membership in a group of the newer consumer protocol (KIP-848), in which brokers assign.

`states` has the table of states with its theory of operation, and the present state.
`HeartbeatBuilder` has the contents of heartbeats, and `aiokclient.group.heartbeats` their times and
their connection. Heartbeats and commits share that connection, which no other requests use, so that
nothing delays them. This module executes the effects of the table in three tasks: `run` sends
heartbeats, `Reconciliation` revokes and takes partitions, and `_watch_session` looks up the session
timeout.

A heartbeat contains only the fields that have changed since the previous one. A full heartbeat
contains all fields. It is sent to join the group, and after any failure, because it is then
unknown which heartbeats the coordinator has received.

A member has to know the session timeout, because it stops reading when it has received no response
for that time. A consumer without permission to read the configs of the group uses its own
`session_timeout_ms`.

The brokers evaluate a pattern with RE2, against the whole name, as Python's `fullmatch` does. In
two cases the client itself matches the pattern against the topics in the metadata: if the brokers
accept only names (the early access before Kafka 4.0), and if the pattern has re.VERBOSE.

`Reconciliation` has a task of its own, because a revocation may have to wait for the application
while heartbeats continue. Each of its steps depends on the state of the member, and reports its end
as an event.

The group identifies topics by id, and the consumer by name. The metadata maps ids to names. If an
id has no name, the coordinator knows a topic that this client does not know yet; the client
requests metadata until the name is found.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.background import Wakeup
from aiokclient.consumer.membership.kip848.states import (
    Kip848Effect,
    Kip848Event,
    Kip848Member,
    Kip848State,
    event_of,
)
from aiokclient.consumer.state.subscription import Subscription, SubscriptionState
from aiokclient.errors import KafkaError
from aiokclient.group.heartbeats import (
    LEAVE_EPOCH,
    PERMISSION_CODES,
    HeartbeatApi,
    HeartbeatConnection,
    HeartbeatSchedule,
    MemberHeartbeats,
    TopicIdPartition,
    TopicIdPartitions,
    find_session_timeout_ms,
    make_member_id,
    partitions_of,
)
from aiokclient.group.meters import GroupMeters
from aiokclient.log.limited_log import LimitedLog
from aiokclient.policy import Backoff, Decision, Scope
from aiokclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from aiokclient.types import GroupMetadata, TopicPartition, text_problem
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.config.consumer import ConsumerConfig
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator

LEAVE_FOR_A_WHILE = -2
REGEX_FROM = 1
"""The first version of the request in which brokers evaluate regular expressions."""

FLAGS = {re.IGNORECASE: "i", re.DOTALL: "s", re.MULTILINE: "m"}


class HeartbeatSubscription(NamedTuple):
    """The subscription of a member in a heartbeat: topic names or a regular expression."""

    topics: tuple[str, ...] = ()
    regex: str = ""


class HeartbeatBuilder:
    """A builder of one member's heartbeats, which remembers the fields that were sent last."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._wanted: HeartbeatSubscription | None = None
        self._owned: TopicIdPartitions | None = None
        self._regex_is_known = config.group_instance_id is not None
        """Whether the coordinator may know a regular expression of this member.

        It is true even if no response has confirmed one, and for a static member, because the
        member that it replaces may have sent one."""

    def forget_sent(self) -> None:
        """Make the next heartbeat a full one. Synchronous."""
        self._wanted = self._owned = None

    def has_sent(self, wanted: HeartbeatSubscription, owned: TopicIdPartitions) -> bool:
        """Return whether the last heartbeat had this subscription and these owned partitions.

        Synchronous.
        """
        return self._wanted == wanted and self._owned == owned

    def build_next(
        self,
        member: Kip848Member,
        wanted: HeartbeatSubscription,
        owned: TopicIdPartitions,
        version: int = REGEX_FROM,
    ) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat. If the member has no epoch yet, it joins the group.

        `version` is the version of the request in which it will be sent.
        """
        config = self._config
        request = self._build_minimal(member.member_id, member.epoch)
        if not member.has_epoch:
            self.forget_sent()
            owned = frozenset()
        full = self._wanted is None or self._owned is None
        before = self._wanted or HeartbeatSubscription()
        if full:
            request.rack_id = config.client_rack or None
            request.rebalance_timeout_ms = config.max_poll_interval_ms
            request.server_assignor = config.group_remote_assignor
        # Fields that have not changed are null in a heartbeat (KIP-848). The coordinator keeps
        # their last values.
        if full or wanted.topics != before.topics:
            request.subscribed_topic_names = list(wanted.topics)
        self._regex_is_known = self._regex_is_known or bool(wanted.regex)
        # Without this field, the coordinator keeps an earlier expression. An empty one cancels it.
        if version >= REGEX_FROM and (
            wanted.regex != before.regex or (full and self._regex_is_known)
        ):
            request.subscribed_topic_regex = wanted.regex
        if full or owned != self._owned:
            request.topic_partitions = by_topic(owned)
        self._wanted, self._owned = wanted, owned
        return request

    def build_last(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat by which a member leaves; a static member may join again later."""
        self.forget_sent()
        # With epoch -2, the coordinator keeps the partitions of a static member until its session
        # ends. With -1, the member is removed at once (KIP-848).
        static = self._config.group_instance_id is not None
        return self._build_minimal(member_id, LEAVE_FOR_A_WHILE if static else LEAVE_EPOCH)

    def _build_minimal(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._config.group_id or "",
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._config.group_instance_id,
        )


def by_topic(partitions: Iterable[TopicIdPartition]) -> list[TopicPartitions]:
    """Return partitions in the form of the protocol, grouped by topic id."""
    topics: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id=each, partitions=topics[each]) for each in topics]


def expression(pattern: re.Pattern[str]) -> str | None:
    """Return a pattern in the syntax of RE2, the brokers' library: its flags, then its text.

    Return None for a pattern with re.VERBOSE, which RE2 does not support, and for a text that no
    request could contain. The coordinator refuses
    other unsupported features (lookahead, lookbehind, backreferences) with
    InvalidRegularExpressionError.
    """
    extra = pattern.flags & ~re.compile(pattern.pattern).flags
    if pattern.flags & re.VERBOSE:
        return None
    letters = "".join(letter for flag, letter in FLAGS.items() if extra & flag)
    # The end of the text is \Z in Python and \z in RE2, which has no \Z.
    text = pattern.pattern.replace(r"\Z", r"\z")
    text = f"(?{letters}){text}" if letters else text
    return None if text_problem(text) else text


UNRELEASED_SESSIONS = 1.2
"""The number of session timeouts for which an earlier membership may keep the instance id."""

UNRELEASED = (
    "The coordinator still has an earlier membership of this consumer with the instance id %s. "
    "Joining again until its session has ended, for at most %.0f s."
)

CONSUMER_HEARTBEAT = HeartbeatApi(
    ConsumerGroupHeartbeatRequest,
    "ConsumerGroupHeartbeat",
    Scope.GROUP,
    log_part="consumer",
    advice="The coordinator does not support the newer consumer protocol (KIP-848). Kafka 4.0 and "
    "later support it unless it is switched off. Use group_protocol='classic'.",
)

SESSION_TIMEOUT = "consumer.session.timeout.ms"
"""The config of a consumer group that contains its session timeout."""

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

    def differs_from_owned(self) -> bool:
        """Return whether there are partitions to revoke or to take."""
        known, unknown = self._find_wanted()
        return bool(unknown or self.find_to_revoke()) or known.keys() != self._owned.keys()

    def find_to_revoke(self) -> dict[TopicIdPartition, TopicPartition]:
        """Return the owned partitions that are not in the target or that were given up."""
        known, _ = self._find_wanted()
        relinquished = self._subscription.is_relinquished
        return {
            each: tp for each, tp in self._owned.items() if each not in known or relinquished(tp)
        }

    def find_to_take(self) -> dict[TopicIdPartition, TopicPartition]:
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
            info = None if name is None else metadata.find_topic(name)
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


class Kip848Membership:
    """A `Membership` by the newer consumer protocol (KIP-848).

    Its heartbeats and the commits share one connection.
    """

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        cluster, config = coordinator.cluster, coordinator.config
        subscription, group_id = coordinator.subscription, coordinator.group_id
        self.coordinator = coordinator
        self._clock = cluster.clock
        self._group_id = group_id
        self._plain_log = cluster.make_log("consumer", group_id)
        self._log = LimitedLog(self._plain_log, self._clock)
        self._rebalances = cluster.metrics.counter("consumer.rebalances", group=group_id)
        self.member = Kip848Member(group_id, make_member_id(self._clock), config.group_instance_id)
        self.assignment = PartitionAssignment(
            cluster, subscription, hide=config.exclude_internal_topics
        )
        self._builder = HeartbeatBuilder(config)
        self._connection: HeartbeatConnection[ConsumerGroupHeartbeatResponse] = HeartbeatConnection(
            cluster, group_id, coordinator, CONSUMER_HEARTBEAT
        )
        usual_s, session_s = config.heartbeat_interval_ms / 1000, config.session_timeout_ms / 1000
        self._schedule = HeartbeatSchedule(usual_s, session_s, Backoff.of(config), self._clock)
        self._version = REGEX_FROM
        self._known_until = -math.inf
        """The time until which the coordinator may keep an earlier membership, on the clock."""
        self._subscription = Subscription()
        """The subscription in heartbeats. A member that is about to leave keeps its old one."""
        self._has_ended = False
        self._leaving = asyncio.Lock()
        self.heartbeat_due = Wakeup()
        self.partitions_due = Wakeup()
        self._session_due = Wakeup()
        """Set when a membership has ended, so that the session timeout is looked up again."""
        self._reconciliation = Reconciliation(self)
        self._meters = GroupMeters(subscription.own_metrics, self._clock)
        self._heartbeats = MemberHeartbeats(
            self._connection,
            self._schedule,
            self._meters,
            self._clock,
            self._log,
            config.request_timeout_ms / 1000,
        )

    # -- what it is

    @property
    def connection_owner(self) -> Hashable:
        return self.coordinator

    @property
    def metadata(self) -> GroupMetadata:
        return self.member.metadata

    @property
    def can_be_outdated(self) -> bool:
        return self._heartbeats.is_unanswered

    @property
    def confirmed_until(self) -> float:
        certain = self._schedule.knows_session and self.member.has_epoch
        return self._schedule.answered_at + self._schedule.session_s if certain else -math.inf

    @property
    def is_or_becomes_member(self) -> bool:
        return self.member.is_or_becomes_member

    @property
    def rebalancing_since(self) -> float | None:
        return self.member.rebalancing_since

    @property
    def answered_at(self) -> float:
        return self._schedule.answered_at

    @property
    def is_settled(self) -> bool:
        return self.member.is_settled

    # -- what the consumer wants

    def on_subscription_changed(self) -> None:
        current = self.coordinator.topics.current
        if current or not self.member.sends_heartbeats:
            self._subscription = current
        self.apply_event(Kip848Event.SUBSCRIBED if current else Kip848Event.UNSUBSCRIBED)
        if current and self.coordinator.subscription.has_relinquished:
            self.renew_partitions()

    def renew_partitions(self) -> None:
        """Release what the application has given up, and take it again. Synchronous."""
        self.apply_event(Kip848Event.RENEWED)

    def on_poll_overdue(self, reason: str) -> None:
        self.apply_event(Kip848Event.OVERDUE, reason)

    def on_records_requested(self) -> None:
        if self.member.state is Kip848State.STALE:
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
        if self.member.is_closed:
            return
        self.apply_event(Kip848Event.CLOSED)
        try:
            async with asyncio.timeout(timeout):
                if self.member.must_leave:
                    await self._leave_group()
                async with self._leaving:
                    pass  # Wait until `run` has left, if it is leaving.
        except TimeoutError:
            extra = {"event": "group_leave_failed"}
            self._plain_log.info("Could not leave the group within %.1f s", timeout, extra=extra)

    # -- executing the table

    def apply_event(self, event: Kip848Event, reason: str = "") -> None:
        """Make the transition for an event, and execute its effects. Synchronous."""
        member, before = self.member, self.member.state
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
        self.heartbeat_due.set()
        self.partitions_due.set()

    def _end_membership(self) -> None:
        """Forget the ended membership. Its partitions are still owned and are released later."""
        self._subscription = self.coordinator.topics.current
        self.assignment.forget_target()
        self._builder.forget_sent()
        self._session_due.set()
        self.coordinator.on_identity_changed()

    # -- heartbeats

    async def run(self) -> None:
        supervisor = self.coordinator.supervisor
        supervisor.spawn(self._reconciliation.run, name="partitions of the group")
        supervisor.spawn(self._watch_session, name="session of the group")
        unsubscribe = self.coordinator.cluster.updater.add_listener(
            supervisor.callbacks.guard_function(self._on_metadata)
        )
        calls = self.coordinator.cluster.calls
        calls.add_call(self._connection.progress)
        try:
            while not self.member.is_closed:
                if self.member.state is Kip848State.OUT and self._subscription:
                    self.apply_event(Kip848Event.SUBSCRIBED)
                await self._take_step()
        finally:
            calls.remove_call(self._connection.progress)
            self._has_ended = True
            self._session_due.set()
            unsubscribe()

    async def _watch_session(self) -> None:
        """Look the session timeout of the group up, until `run` ends.

        It is looked up at the start, each time that a membership has ended, and, if the brokers
        have returned it, every `metadata_max_age_ms`, because the timeout may change.
        """
        cluster, config = self.coordinator.cluster, self.coordinator.config
        while not self._has_ended:
            found_ms = await find_session_timeout_ms(cluster, self._group_id, SESSION_TIMEOUT)
            self._schedule.set_session(None if found_ms is None else found_ms / 1000)
            self.coordinator.on_identity_changed()
            age_s = math.inf if found_ms is None else config.metadata_max_age_ms / 1000
            await self._session_due.wait(self._clock.monotonic() + age_s)

    def _on_metadata(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        # The new metadata may have names for unknown topic ids, and topics that a pattern matches.
        self.partitions_due.set()
        self.heartbeat_due.set()

    async def _take_step(self) -> None:
        if self.member.must_leave:
            await self._leave_group()
        elif self.member.must_release and not self._must_not_join():
            await self._release_instance_id()
        elif not self.member.sends_heartbeats or self._must_not_join():
            await self.heartbeat_due.wait()
        else:
            next_at = self._schedule.find_next_time(has_news=self._has_news())
            if not await self.heartbeat_due.wait(next_at) and not self.member.is_closed:
                await self._send_heartbeat()

    def _must_not_join(self) -> bool:
        """Return whether the member must wait before it joins.

        It waits while partitions of an earlier membership are owned, or nothing is subscribed.
        """
        if self.member.state is not Kip848State.JOINING:
            return False
        return bool(self.assignment.owned) or self._make_subscription() == HeartbeatSubscription()

    def _has_news(self) -> bool:
        return not self._builder.has_sent(self._make_subscription(), self.assignment.report_owned())

    def _make_subscription(self) -> HeartbeatSubscription:
        pattern = self._subscription.pattern
        if pattern is None:
            return HeartbeatSubscription(tuple(sorted(self._subscription.topics)))
        regex = expression(pattern)
        if self._version >= REGEX_FROM and regex is not None:
            return HeartbeatSubscription(regex=regex)
        matching = self.coordinator.topics.find_matching(self.coordinator.cluster.metadata)
        return HeartbeatSubscription(tuple(matching))

    async def _send_heartbeat(self) -> None:
        member = self.member
        membership = member.memberships
        try:
            self._version = await self._connection.find_version()
            if membership != member.memberships or not member.sends_heartbeats:
                return
            self._schedule.on_send(has_news=self._has_news())
            request = self._builder.build_next(
                member, self._make_subscription(), self.assignment.report_owned(), self._version
            )
            answer, sent_at = await self._heartbeats.send(request)
            self._extend_known_until()
        except KafkaError as error:
            self._builder.forget_sent()
            if not self._connection.was_answered:
                self._extend_known_until()  # The coordinator may have executed the heartbeat.
            if membership == member.memberships:
                self._handle_error(error)
            return
        if membership == member.memberships:
            self._on_response(answer, sent_at)

    def _on_response(self, answer: ConsumerGroupHeartbeatResponse, sent_at: float) -> None:
        self._heartbeats.on_response(answer, sent_at, joined=not self.member.has_epoch)
        self.member.set_epoch(answer.member_epoch)
        if answer.assignment is not None:
            target = partitions_of(answer.assignment.topic_partitions)
            if self.assignment.set_target(target, sent_at):
                self._rebalances.add()
                if self.assignment.must_report:
                    self._builder.forget_sent()  # A full heartbeat reports the owned partitions.
        differs = self.assignment.differs_from_owned()
        self.apply_event(Kip848Event.ASSIGNED if differs else Kip848Event.CONFIRMED)
        self.coordinator.on_identity_changed()

    def _handle_error(self, error: KafkaError) -> None:
        action = self._heartbeats.on_failure(error)
        event = event_of(self.member.state, error.code)
        if event is None and action.decision is Decision.RECOVER:
            event = Kip848Event.FENCED
        if event is Kip848Event.UNRELEASED and self._clock.monotonic() >= self._known_until:
            event = Kip848Event.REFUSED
        if event is Kip848Event.FENCED:
            text, extra = "The membership ended: %s", {"event": "group_left"}
            self._log.write(logging.INFO, ("over", error.code), text, error, extra=extra)
            self.apply_event(event, str(error))
        elif event is Kip848Event.UNRELEASED:
            text, extra = UNRELEASED, {"event": "group_instance_unreleased"}
            left_s = max(self._known_until - self._clock.monotonic(), 0.0)
            instance_id = self.coordinator.config.group_instance_id
            self._log.write(logging.WARNING, "unreleased", text, instance_id, left_s, extra=extra)
            self.apply_event(event)
        elif error.code in PERMISSION_CODES:
            # Each request for records raises this error until the permission is granted.
            self.coordinator.on_group_error(error)
        elif event is not None or not action.again:
            self.apply_event(event or Kip848Event.REFUSED, str(error))
            raise error

    def _extend_known_until(self) -> None:
        """Record that the coordinator may have received a heartbeat until now."""
        session_s = max(self._schedule.session_s, self.coordinator.config.session_timeout_ms / 1000)
        self._known_until = self._clock.monotonic() + session_s * UNRELEASED_SESSIONS

    async def _release_instance_id(self) -> None:
        """Tell the coordinator that a membership has ended whose session may go on.

        It needs no epoch. If it is refused because the instance id belongs to a member with another
        id, this member has to end.
        """
        self.member.mark_released()
        request = self._builder.build_last(self.member.member_id)
        error = await self._connection.leave_group(request, self._schedule.session_s)
        state = self.member.state
        if error is not None and event_of(state, error.code) is Kip848Event.REPLACED:
            self.apply_event(Kip848Event.REPLACED, str(error))
            if self.member.state is Kip848State.FAILED:
                raise error

    async def _leave_group(self) -> None:
        self.member.mark_left()
        self.apply_event(Kip848Event.LEFT)
        async with self._leaving:
            request = self._builder.build_last(self.member.member_id)
            await self._connection.leave_group(request, self._schedule.session_s)


class Reconciliation:
    """A task that revokes, loses, and takes partitions for one member.

    It reports events to the membership. Other objects set `partitions_due` of the membership when
    there may be a step to do, and the task sets `heartbeat_due` after each step.
    """

    def __init__(self, membership: Kip848Membership) -> None:
        self._membership = membership
        self._coordinator = membership.coordinator
        self._reconciler = membership.coordinator.rebalancer
        self._config = membership.coordinator.config
        self._member = membership.member
        self._assignment = membership.assignment
        self._wake = membership.partitions_due
        self._done = membership.heartbeat_due
        self._log = LimitedLog(
            self._coordinator.cluster.make_log("consumer", self._coordinator.group_id),
            self._coordinator.cluster.clock,
        )
        self._clock = membership.coordinator.cluster.clock
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
            await self._reconciler.conclude_rebalance()
        self._done.set()
        return math.inf

    async def _move_partitions(self) -> float:
        assignment = self._assignment
        if revoked := assignment.find_to_revoke():
            await self._revoke_partitions(revoked, assignment.assigned_at)
            return -math.inf
        if added := assignment.find_to_take():
            self._moved = True
            await self._reconciler.take_partitions(list(added.values()))
            assignment.add_partitions(added)
            return -math.inf
        if self._moved or not assignment.has_unknown_topics():
            self._moved = False
            self._membership.apply_event(Kip848Event.RECONCILED)
            return math.inf
        self._coordinator.cluster.updater.request_update()
        return self._clock.monotonic() + self._config.retry_backoff_max_ms / 1000

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
            await self._reconciler.lose_partitions(list(assignment.owned.values()))
            assignment.remove_partitions(list(assignment.owned))
        if self._member.state is Kip848State.FENCED:
            self._membership.apply_event(Kip848Event.RELEASED)
        elif self._member.is_settled:
            await self._reconciler.conclude_rebalance()

    async def _revoke_partitions(
        self, gone: Mapping[TopicIdPartition, TopicPartition], since: float
    ) -> None:
        deadline = since + self._config.max_poll_interval_ms / 1000
        self._moved = True
        await self._reconciler.revoke_partitions(list(gone.values()), deadline=deadline)
        self._assignment.remove_partitions(gone)
