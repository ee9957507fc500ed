"""Membership in a share group (KIP-932): the heartbeats, and the partitions that they assign.

`aiokclient.group.share_states` has the table of states with its theory of operation, and
`aiokclient.group.heartbeats` the times of heartbeats and their connection. This module executes the
effects of the table in one task, `ShareMembership.run`.

The group identifies topics by id, and the consumer by name. The metadata maps ids to names. If an
id has no name, the coordinator knows a topic that this client does not know yet; the client
requests metadata until the name is found. The other partitions are taken meanwhile.

Until it has partitions, a member sends a heartbeat each second, because Kafka assigns them a second
after the join, but requests one heartbeat in five seconds. The first ones after a join, or after
other topics, are sent each half second, so that none of them comes just too early.

If the user may not describe a topic, the coordinator refuses heartbeats with topics, and goes on
with the topics from before. So the member sends heartbeats without topics, each followed by an
attempt with topics, until they are permitted. Meanwhile, requests for records raise the error.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from aiokclient.background import Wakeup
from aiokclient.errors import KafkaError, UnknownTopicOrPartitionError
from aiokclient.group.heartbeats import (
    LEAVE_EPOCH,
    HeartbeatApi,
    HeartbeatConnection,
    HeartbeatSchedule,
    MemberHeartbeats,
    TopicIdPartitions,
    partitions_of,
)
from aiokclient.group.meters import GroupMeters
from aiokclient.group.share_states import (
    Kip932Effect,
    Kip932Event,
    Kip932Member,
    Kip932State,
    event_of,
)
from aiokclient.log.limited_log import LimitedLog
from aiokclient.policy import Backoff, Decision, Scope, refuses_permission
from aiokclient.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.share.engine import ShareEngine

USUAL_S: Final = 5.0
"""Seconds between heartbeats if the coordinator requests no interval: Kafka's default."""

SESSION_S: Final = 45.0
"""Kafka's session timeout. Half of it is the longest wait for the response to a heartbeat."""

EARLY_S: Final = 1.0
"""The longest interval between heartbeats, in seconds, while the member waits for partitions."""

FIRST_S: Final = 0.5
"""The longest interval of the first heartbeats after a join or other topics, in seconds."""

FIRST_HEARTBEATS: Final = 4
"""Number of heartbeats at that interval."""

SHARE_HEARTBEAT: Final = HeartbeatApi(
    ShareGroupHeartbeatRequest,
    "ShareGroupHeartbeat",
    Scope.GROUP,
    log_part="share",
    advice="Share groups are not available. They need Kafka 4.1 or later, and the feature "
    "share.version of the cluster must be 1 or higher, as Admin.update_features can set it.",
)


class ShareAssignment:
    """The assignment of one member, by topic id as the coordinator has sent it, and by name."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._target: TopicIdPartitions = frozenset()
        self._basis: tuple[object, ...] = ()
        self.partitions: Mapping[TopicPartition, UUID] = {}
        """The partitions of subscribed topics whose names are known, with the ids of the topics."""
        self.has_unknown = False
        """Whether there are topic ids in the assignment whose names are not known."""

    @property
    def is_empty(self) -> bool:
        """Whether the coordinator has assigned nothing."""
        return not self._target

    def set_target(self, target: TopicIdPartitions) -> bool:
        """Store the assignment of a response; return whether it differs from the one before."""
        changed = target != self._target
        self._target = target
        return changed

    def name_partitions(self, topics: frozenset[str]) -> bool:
        """Compute `partitions` for these subscribed topics; return whether they have changed."""
        metadata = self._cluster.metadata
        basis = (self._target, metadata.version, topics)
        if basis == self._basis:
            return False
        self._basis = basis
        # A deleted topic keeps its name until the coordinator removes it from the assignment.
        former = {topic_id: tp.topic for tp, topic_id in self.partitions.items()}
        named: dict[TopicPartition, UUID] = {}
        self.has_unknown = False
        for topic_id, partition in sorted(self._target):
            name = metadata.names.get(topic_id) or former.get(topic_id)
            if name is None:
                self.has_unknown = True
            elif name in topics:
                named[TopicPartition(name, partition)] = topic_id
        changed = named != self.partitions
        self.partitions = named
        return changed


class ShareMembership:
    """The membership of one share consumer. Its heartbeats have a connection of their own."""

    def __init__(self, engine: ShareEngine) -> None:
        cluster, config = engine.cluster, engine.config
        self._engine = engine
        self._cluster = cluster
        self._clock = cluster.clock
        self._group_id = engine.group_id
        self._log = LimitedLog(engine.log, self._clock)
        self.member = Kip932Member(engine.member_id)
        self._assignment = ShareAssignment(cluster)
        self.assigned = asyncio.Event()
        """Set when a start need not wait for partitions any longer. It stays set.

        The member has partitions, was refused, or waits for topics that do not exist.
        """
        self._connection: HeartbeatConnection[ShareGroupHeartbeatResponse] = HeartbeatConnection(
            cluster, engine.group_id, engine, SHARE_HEARTBEAT
        )
        self._schedule = HeartbeatSchedule(USUAL_S, SESSION_S, Backoff.of(config), self._clock)
        self._meters = GroupMeters(engine.meters.own_metrics, self._clock)
        self._heartbeats = MemberHeartbeats(
            self._connection,
            self._schedule,
            self._meters,
            self._clock,
            self._log,
            config.request_timeout_ms / 1000,
        )
        self._sent: frozenset[str] | None = None
        """The topics that the coordinator knows, or None if that is not certain."""
        self._first_left = 0
        """Number of next heartbeats at the interval of the first ones."""
        self._names_due = math.inf
        """The time of the next request for the names of topics."""
        self._due = Wakeup()
        self._leaving = asyncio.Lock()
        self._missing: frozenset[str] = frozenset()
        """The subscribed topics of which was logged that they do not exist."""
        self._refusal: KafkaError | None = None
        self._read_error: KafkaError | None = None
        self._failure: KafkaError | None = None
        """The error of the last heartbeat; None after a response without one."""

    # -- what it is

    @property
    def assignment(self) -> Mapping[TopicPartition, UUID]:
        """The partitions that the consumer fetches, with the ids of their topics."""
        return self._assignment.partitions

    async def wait_until_assigned(self, timeout: float) -> None:
        """Wait until `assigned` is set, for `timeout` seconds at most."""
        try:
            async with asyncio.timeout(timeout) as patience:
                await self.assigned.wait()
        except TimeoutError:
            if not patience.expired():
                raise

    def find_refusal(self) -> KafkaError | None:
        """Return the error by which the group refuses this consumer for good, or None."""
        return self._refusal

    def find_read_error(self) -> KafkaError | None:
        """Return the error that a request for records must raise now, or None.

        The user lacks a permission, which may be granted later.
        """
        return self._refusal or self._read_error

    def list_troubles(self) -> list[str]:
        """Return why the consumer has no partitions, as texts."""
        state, topics = self.member.state, self._engine.topics
        error = self.find_read_error()
        if error is not None:
            return [f"the group refuses this consumer: {error}"]
        if state is Kip932State.FULL:
            return [
                f"group is full: {self._group_id} has group.share.max.size members. This consumer "
                "joins when one of them leaves"
            ]
        if not topics or self.assignment or state is Kip932State.CLOSED:
            return []
        if missing := self._find_missing():
            return [f"no assignment: there is no topic {', '.join(sorted(missing))}"]
        why = "" if self._failure is None else f". The last heartbeat failed: {self._failure.brief}"
        return [f"no assignment: group {self._group_id} has assigned no partitions yet{why}"]

    # -- what the consumer wants

    def on_subscription_changed(self) -> None:
        """Follow the topics that the consumer is subscribed to now. Synchronous."""
        topics = self._engine.topics
        self._read_error = None
        self._missing &= topics
        self.member.mark_kept()
        if not topics:
            self.assigned.set()
        self._apply_event(Kip932Event.SUBSCRIBED if topics else Kip932Event.UNSUBSCRIBED)
        self._update_assignment()

    async def leave(self, timeout: float) -> None:
        """Leave the group for good, in `timeout` seconds at most. Idempotent.

        A failure is only logged: the coordinator removes the member when its session ends. After a
        cancellation, the member may still be in the group until then.
        """
        if self.member.is_closed:
            return
        self._apply_event(Kip932Event.CLOSED)
        try:
            async with asyncio.timeout(timeout) as patience:
                if self.member.must_leave:
                    await self._leave_group()
                async with self._leaving:
                    pass  # Wait until `run` has left, if it is leaving.
        except TimeoutError:
            if not patience.expired():
                raise
            extra = {"event": "group_leave_failed"}
            self._engine.log.info("Could not leave the group within %.1f s", timeout, extra=extra)

    # -- executing the table

    def _apply_event(self, event: Kip932Event) -> None:
        """Make the transition for an event, and execute its effects. Synchronous."""
        member, before = self.member, self.member.state
        effects = member.apply_event(event)
        if member.state is not before:
            names, extra = (member.state.name, event.name), {"event": "group_state"}
            self._engine.log.debug("The member is %s after %s", *names, extra=extra)
        if Kip932Effect.END in effects:
            self._sent = None
        if member.state is Kip932State.OUT:
            self._assignment.set_target(frozenset())
        # LEAVE needs no action here: `must_leave` is set, and `run` sends the last heartbeat.
        self._due.set()

    def _update_assignment(self) -> None:
        """Tell the consumer of partitions that were added or removed. Synchronous."""
        before = self.assignment
        if self._assignment.name_partitions(self._engine.topics):
            now = self.assignment
            added = frozenset(tp for tp, id_ in now.items() if before.get(tp) != id_)
            removed = frozenset(tp for tp, id_ in before.items() if now.get(tp) != id_)
            self._engine.events.emit("Assigned", added=added, removed=removed)
            for event, text, changed in (
                ("partitions_assigned", "Assigned: %s", added),
                ("partitions_revoked", "No longer assigned: %s", removed),
            ):
                if changed:
                    names = ", ".join(map(str, sorted(changed)))
                    self._engine.log.info(text, names, extra={"event": event})
            self._engine.on_assignment(now)
        if self.assignment:
            self.assigned.set()
        if not self._assignment.has_unknown:
            self._names_due = math.inf
        elif self._names_due == math.inf:
            self._request_names()

    def _request_names(self) -> None:
        """Request metadata, because the assignment has topic ids without a name. Synchronous."""
        self._cluster.updater.request_update()
        self._names_due = self._clock.monotonic() + self._engine.config.retry_backoff_max_ms / 1000

    def _on_metadata(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        self._update_assignment()
        self._due.set()

    # -- topics that do not exist

    def _find_missing(self) -> frozenset[str]:
        """Return the subscribed topics that do not exist, by the latest metadata."""
        errors, code = self._cluster.updater.errors, UnknownTopicOrPartitionError.code
        return frozenset(
            topic
            for topic in self._engine.topics
            if (error := errors.get(topic)) is not None and error.code == code
        )

    def _check_topics(self) -> None:
        """Log the topics that do not exist, once. If none exists, let the start end."""
        missing = self._find_missing()
        for topic in sorted(missing - self._missing):
            self._engine.log.warning(
                "The topic %s does not exist. It is read as soon as it exists.",
                topic,
                extra={"event": "topic_missing", "topic": topic},
            )
        self._missing |= missing
        if missing == self._engine.topics:
            self.assigned.set()

    # -- heartbeats

    async def run(self) -> None:
        """Send heartbeats until the member has left for good, or the task is cancelled."""
        guard = self._engine.supervisor.callbacks.guard_function
        unsubscribe = self._cluster.updater.add_listener(guard(self._on_metadata))
        self._cluster.calls.add_call(self._connection.progress)
        try:
            self.on_subscription_changed()
            while not self.member.is_closed:
                await self._take_step()
        finally:
            self._cluster.calls.remove_call(self._connection.progress)
            unsubscribe()

    async def _take_step(self) -> None:
        if self.member.must_leave:
            await self._leave_group()
            return
        beat_at = math.inf
        if self.member.sends_heartbeats:
            has_news = self._sent != self._engine.topics
            beat_at = self._schedule.find_next_time(has_news=has_news)
        if await self._due.wait(min(beat_at, self._names_due)) or self.member.is_closed:
            return
        if self._names_due < beat_at:
            self._request_names()
        else:
            await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        member = self.member
        membership = member.memberships
        try:
            await self._connection.find_version()
            if membership != member.memberships or not member.sends_heartbeats:
                return
            topics, keeps = self._engine.topics, member.must_keep
            has_news = self._sent != topics
            self._schedule.on_send(has_news=has_news)
            request = self._build_heartbeat(topics if has_news and not keeps else None)
            answer, sent_at = await self._heartbeats.send(request)
        except KafkaError as error:
            if membership == member.memberships:
                self._sent = None  # It is unknown whether the coordinator has received the topics.
                self._handle_error(error)
            return
        if membership == member.memberships:
            if request.subscribed_topic_names is not None:
                self._on_topics_accepted(topics)
            self._on_response(answer, sent_at)
            if keeps and self._sent is None:
                member.mark_kept()  # The schedule delays attempts that follow each other.

    def _build_heartbeat(self, topics: frozenset[str] | None) -> ShareGroupHeartbeatRequest:
        """Return a heartbeat. Topics that have not changed are null."""
        return ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member.member_id,
            member_epoch=self.member.epoch,
            rack_id=None if topics is None else self._engine.config.client_rack or None,
            subscribed_topic_names=None if topics is None else sorted(topics),
        )

    def _on_topics_accepted(self, topics: frozenset[str]) -> None:
        self._sent = topics
        self._first_left = FIRST_HEARTBEATS
        self._read_error = None

    def _on_response(self, answer: ShareGroupHeartbeatResponse, sent_at: float) -> None:
        joined = not self.member.has_epoch
        self._failure = None
        self.member.set_epoch(answer.member_epoch)
        if answer.assignment is not None and self._assignment.set_target(
            partitions_of(answer.assignment.topic_partitions)
        ):
            self._meters.on_rebalanced(None)
        self._apply_event(Kip932Event.EMPTY if self._assignment.is_empty else Kip932Event.ASSIGNED)
        self._heartbeats.on_response(
            answer, sent_at, joined=joined, longest_s=self._find_longest_interval()
        )
        self._update_assignment()
        if self._assignment.is_empty:
            self._check_topics()

    def _find_longest_interval(self) -> float:
        """Return the seconds until the next heartbeat at most, and count this one."""
        if self._first_left:
            self._first_left -= 1
            return FIRST_S
        return EARLY_S if self.member.state is Kip932State.UNASSIGNED else math.inf

    def _handle_error(self, error: KafkaError) -> None:
        action = self._heartbeats.on_failure(error)
        self._failure = error
        event = event_of(self.member.state, error.code)
        if event is None and action.decision is Decision.RECOVER:
            event = Kip932Event.FENCED
        elif event is None and not action.again:
            event = Kip932Event.REFUSED
        if event is Kip932Event.FENCED:
            text, extra = "The membership ended: %s", {"event": "group_left"}
            self._log.write(logging.INFO, ("over", error.code), text, error, extra=extra)
        elif event is Kip932Event.FULL:
            text, extra = (
                "The group is full. Joining as soon as possible: %s",
                {"event": "share_group_full"},
            )
            self._log.write(logging.WARNING, "full", text, error, extra=extra)
        elif event is Kip932Event.WITHHELD:
            self._on_topics_refused(error)
        if event is not None:
            self._apply_event(event)
        if self.member.state is Kip932State.FAILED and self._refusal is None:
            self._refusal = error
            self.assigned.set()
            self._engine.on_member_failed(error)

    def _on_topics_refused(self, error: KafkaError) -> None:
        """Let requests for records raise this error, with the topics if the metadata tells them."""
        errors = self._cluster.updater.errors
        refused = sorted(
            each for each in self._engine.topics if refuses_permission(errors.get(each))
        )
        if refused:
            error.resource = f"{error.resource}: {', '.join(refused)}"
        self._read_error = error
        self.assigned.set()
        text, extra = (
            "Topics of the subscription are refused: %s",
            {"event": "share_topics_refused"},
        )
        self._log.write(logging.WARNING, "refused", text, error, extra=extra)

    async def _leave_group(self) -> None:
        self.member.mark_left()
        async with self._leaving:
            request = ShareGroupHeartbeatRequest(
                group_id=self._group_id, member_id=self.member.member_id, member_epoch=LEAVE_EPOCH
            )
            timeout_s = self._schedule.find_timeout_s(self._engine.config.request_timeout_ms / 1000)
            await self._connection.leave_group(request, timeout_s)
