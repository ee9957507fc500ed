"""Membership by the classic protocol, in which a member of the group computes the assignment.

The engine of `aiokclient.group` joins, syncs, and sends heartbeats. This module is the engine's
handler for consumers. A member sends its subscription as metadata, once for each assignment
strategy that it offers. The leader runs a strategy that all members offer, and SyncGroup
distributes the assignments.

In an eager rebalance a member revokes all partitions before it joins, and then takes its new
assignment. In a cooperative rebalance (KIP-429) it keeps its partitions while it joins. Then it
revokes those that are not in its new assignment and joins again, and only this second rebalance
assigns them to other members. A member uses the cooperative protocol if all of its strategies
support it.

`TopicWatch` detects changes to the group's topics since they were assigned. Each member watches its
subscription, because a pattern may match new topics. The leader also watches the partition counts
of all topics that the group reads, because no other member knows them all. Several changes cause
one rebalance: it begins when nothing has changed for QUIET_S, and at most LONGEST_S after the first
change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from aiokclient import threads
from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
    rebalance_protocol,
)
from aiokclient.consumer.assignors.strategy import BUILT_IN, make_assignors
from aiokclient.consumer.assignors.validation import validate
from aiokclient.consumer.assignors.wire import (
    decode_assignment,
    decode_members,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from aiokclient.consumer.membership.rewind import requests as rewind_requests
from aiokclient.errors import (
    AssignmentFailedError,
    ClosedError,
    FencedInstanceIdError,
    KafkaError,
    ProtocolError,
)
from aiokclient.group.engine import GroupEngine
from aiokclient.group.handler import Generation, GroupSettings, MemberInfo
from aiokclient.group.join import describe_group
from aiokclient.group.states import MemberState
from aiokclient.log.limited_log import LimitedLog
from aiokclient.policy import Decision, Scope, classify
from aiokclient.types import TopicPartition
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.consumer.assignors.assignor import Assignor
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
    from aiokclient.protocol.messages.describe_groups import DescribedGroup
    from aiokclient.types import GroupMetadata

T = TypeVar("T")

LOOK_S: Final = 3.0
"""Seconds for which a rebalance waits for new metadata before it uses the old metadata."""
AT_ONCE: Final = 10_000
"""The largest number of pairs of member and partition for which an assignor runs in the event loop.
Above it the assignor runs in a thread, because it could block the loop for milliseconds."""
MARGIN_S: Final = 0.25
"""Seconds before the end of the rebalance timeout at which unreleased partitions are lost."""

QUIET_S: Final = 0.5
LONGEST_S: Final = 5.0

Layout: TypeAlias = "dict[str, tuple[UUID, int] | None]"


class ClassicMembership:
    """A `Membership` by the classic protocol, and the handler of its group engine."""

    protocol_type = "consumer"

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        cluster, config = coordinator.cluster, coordinator.config
        group_id = coordinator.group_id
        self._coordinator = coordinator
        self._cluster = cluster
        self._rebalances = cluster.metrics.counter("consumer.rebalances", group=group_id)
        self._reconciler = coordinator.rebalancer
        self._rewinder = coordinator.rewinder
        self._subscription = coordinator.subscription
        self._session_s = config.session_timeout_ms / 1000
        self._rebalance_s = config.max_poll_interval_ms / 1000
        given: list[Any] = [
            each.get() if isinstance(each, Anchor) else each
            for each in config.partition_assignment_strategy
        ]
        assignors = make_assignors(given)
        self._assignors = {assignor.name: Anchor(assignor) for assignor in assignors}
        for assignor in assignors:
            # Keep references only to assignors that were made here. The application keeps
            # references to those that it has passed.
            if not any(assignor is each for each in given):
                self._assignors[assignor.name].hold_object(assignor)
        self._protocol = rebalance_protocol(assignors)
        settings = GroupSettings(
            group_id,
            config.group_instance_id,
            config.session_timeout_ms,
            config.max_poll_interval_ms,
            config.heartbeat_interval_ms,
        )
        self._engine = GroupEngine(
            cluster,
            settings,
            self,
            coordinator.supervisor,
            own_metrics=coordinator.subscription.own_metrics,
        )
        self._watch = TopicWatch(self, coordinator)
        self._log = LimitedLog(cluster.make_log("consumer", group_id), cluster.clock)
        self._owned_in = -1
        self._begun: Generation | None = None
        self._asked: tuple[str, ...] = ()
        """The topics of the last JoinGroup."""
        self._former: FormerMember | None = None
        self._has_assigned = False
        self._fits = True
        """Whether the assignment that a static member finds was made for its topics."""
        self._ready = False
        self._engine.leave_until_resume("nothing is subscribed to")

    # -- for the consumer

    @property
    def connection_owner(self) -> Hashable:
        """The owner of the connection that heartbeats and commits share."""
        return self._engine

    @property
    def metadata(self) -> GroupMetadata:
        """The member id and generation."""
        return self._engine.metadata

    @property
    def can_be_outdated(self) -> bool:
        """Whether the coordinator may have a newer identity than `metadata`."""
        return self._engine.state is MemberState.JOINING

    @property
    def confirmed_until(self) -> float:
        """The time until which the coordinator certainly keeps this member."""
        return self._engine.heartbeats.last_answer_at + self._session_s

    @property
    def is_or_becomes_member(self) -> bool:
        """Whether this consumer is a member, or becomes one without a call by the application."""
        return self._engine.is_or_becomes_member or not self._ready

    @property
    def rebalancing_since(self) -> float | None:
        """The time at which the consumer began to wait for its group; None if it does not wait."""
        return self._engine.rebalancing_since

    @property
    def answered_at(self) -> float:
        """The time of the last request whose response confirmed the membership."""
        return self._engine.heartbeats.last_answer_at

    @property
    def is_settled(self) -> bool:
        """Whether this consumer is a member and owns its assignment."""
        return self._engine.state is MemberState.STABLE

    async def run(self) -> None:
        """Keep the consumer in the group until it leaves.

        Raises FencedInstanceIdError if another member replaces this one.
        """
        try:
            await self._engine.run()
        finally:
            self._watch.stop()
        if self._engine.state is MemberState.FENCED:
            raise FencedInstanceIdError(resource=f"group {self._coordinator.group_id}")

    def on_subscription_changed(self) -> None:
        """Use a new subscription. Synchronous."""
        self._ready = bool(self._subscription.subscription)
        if self._ready:
            self._engine.resume()
            self._engine.rejoin("the subscription has changed")
        else:
            owns = bool(self._reconciler.list_owned())
            self._engine.release_until_resume("the consumer has unsubscribed", at_once=not owns)

    def renew_partitions(self) -> None:
        """Release what the application has given up, and take it again. Synchronous."""
        self._engine.renew_generation()

    def on_poll_overdue(self, reason: str) -> None:
        """Leave, because the application does not request records. Synchronous."""
        if self._ready:
            self._engine.leave_until_resume(reason)

    def on_records_requested(self) -> None:
        """Join again, because the application requests records. Synchronous."""
        if self._ready:
            # Resume in every state: no later call would resume an engine that is just leaving.
            self._engine.resume()

    def rejoin(self, reason: str) -> None:
        """Request new assignments from the group. Synchronous."""
        self._engine.rejoin(reason)

    def start_over(self, reason: str) -> None:
        """Do nothing: the engine itself notices that the cluster was replaced."""

    def on_topics_changed(self, *, subscribed: bool) -> None:
        """Request new assignments, because topics or partitions have changed. Synchronous.

        `subscribed` means that this member now subscribes to other topics. Otherwise it is the
        leader and has to assign again.
        """
        reason = "the subscribed topics have changed"
        if subscribed:
            self._engine.rejoin(reason)
        else:
            self._engine.request_reassignment(reason)

    async def leave(self, timeout: float) -> None:
        """Leave the group permanently, within `timeout` seconds."""
        await self._engine.leave("the consumer is being closed", timeout)

    # -- for the engine

    def offer_protocols(self) -> Sequence[tuple[str, bytes]]:
        """Return the subscription of this member, for each strategy."""
        topics = self._asked = tuple(self._watch.find_topics())
        owned = tuple(self._reconciler.list_owned())
        offered = []
        for name in self._assignors:
            wish = MemberSubscription(
                topics,
                self._find_assignor(name).user_data(topics),
                owned,
                # The leader ignores partitions of an older generation, which another member may own
                # by now (KIP-792).
                self._owned_in if owned else -1,
                # For assignors that place partitions near their replicas (KIP-881).
                self._coordinator.config.client_rack,
            )
            data = encode_subscription(wish)
            offered.append((name, rewind_requests.append(data, self._rewinder.wanted)))
        return offered

    async def before_return(self) -> None:
        """Find out what the coordinator knows of the former member with this instance id.

        The coordinator lets this member take its place without a rebalance, even if the former
        member subscribed to other topics.
        """
        settings, asked = self._engine.settings, frozenset(self._watch.find_topics())
        self._has_assigned = False
        try:
            group = await describe_group(self._cluster, settings.group_id)
        except KafkaError as error:
            if classify(error, Scope.ADMIN) is not Decision.FAIL:
                self._fits = False  # Nothing is known, so that the group must assign anew.
            return
        former = FormerMember.find_member(group, settings.group_instance_id)
        if former is not None:
            self._former = former
            await self._refresh_metadata(sorted(former.group_topics | asked))
            # This is never set to True here: after the first JoinGroup, whose response may be lost,
            # the coordinator knows only the new topics.
            self._fits = self._fits and former.topics == asked

    async def before_rejoin(self, reason: str) -> None:
        """Release partitions before the next JoinGroup.

        The eager protocol releases all partitions. The cooperative protocol releases only those
        that the application has given up or no longer subscribes to.
        """
        eager = self._protocol is not RebalanceProtocol.COOPERATIVE
        deadline = self._engine.rebalance_deadline - MARGIN_S
        await self._release_partitions(lambda tp: eager or not self._is_wanted(tp), deadline)
        if self._subscription.subscription.pattern is not None:
            # Look for new topics now. If members found them later, at different times, each member
            # would cause another rebalance.
            await self._refresh_metadata(None)

    async def assign(
        self, protocol: str, leader_id: str, members: Sequence[MemberInfo]
    ) -> Mapping[str, bytes]:
        """Compute the assignment, as the leader."""
        wishes = decode_members(members)
        topics = sorted({topic for wish in wishes.values() for topic in wish.topics})
        await self._refresh_metadata(topics)
        cluster = assignable(self._cluster.metadata, topics)
        self._has_assigned = True
        self._watch.on_leading(topics)
        wanted = rewind_requests.merged(member.metadata for member in members)

        assignor = self._find_assignor(protocol)

        def compute() -> Mapping[str, bytes]:
            given = assignor.assign(cluster, wishes)
            checked = validate(assignor, given, cluster, wishes, self._protocol)
            return {member: assignment_with(one, wanted) for member, one in checked.items()}

        pairs = sum(cluster.count(topic) for wish in wishes.values() for topic in wish.topics)
        if pairs <= AT_ONCE:
            return compute()
        # An assignor of the application could occupy the library's own threads, in which other
        # clients compress and decode.
        if BUILT_IN.get(protocol) is type(assignor):
            return await threads.run(compute)
        return await self._run_in_executor(protocol, threads.Job(compute))

    async def _run_in_executor(self, protocol: str, job: threads.Job[T]) -> T:
        """Run the application's assignor in the loop's default executor.

        Raises AssignmentFailedError if it has not returned before the rebalance timeout.
        """
        limit_s = self._rebalance_s - MARGIN_S
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_s):
                return await loop.run_in_executor(None, job)
        except TimeoutError as error:
            if job.begun:
                why = f"The assignor {protocol} did not return within {limit_s:.1f} s."
            else:
                why = (
                    f"The assignor {protocol} waited {limit_s:.1f} s for a thread of the event "
                    "loop's default executor. The program occupies all of them: give it more "
                    "threads with loop.set_default_executor, or occupy them for less time."
                )
            raise AssignmentFailedError(why) from error

    async def on_generation(self, generation: Generation) -> None:
        """Release partitions that are no longer assigned, and take those that are new."""
        assignment = decode_assignment(generation.assignment)
        is_new, self._begun = generation is not self._begun, generation
        if is_new:
            self._rebalances.add()
            self._watch_topics(generation)
            assignor = self._find_assignor(generation.protocol)
            assignor.on_assignment(assignment, generation.metadata)
            self._coordinator.on_identity_changed()
        assigned = dict.fromkeys(assignment.partitions)
        deadline = asyncio.get_running_loop().time() + self._rebalance_s - MARGIN_S
        revoked = await self._release_partitions(
            lambda tp: tp not in assigned or not self._is_wanted(tp), deadline
        )
        gone = [tp for tp in revoked if tp not in assigned]
        if gone:
            # The next generation gives them to their new owners. No partition has two owners
            # (KIP-429).
            self._engine.rejoin("the revoked partitions are released")
        self._owned_in = generation.metadata.generation_id
        await self._reconciler.take_partitions([tp for tp in assigned if self._is_wanted(tp)])
        if not gone:
            await self._reconciler.conclude_rebalance()
        if is_new and not self._fits:
            self._fits = True
            self._engine.rejoin("the assignment was made for other topics or partitions")
        if is_new:
            self._rewinder.execute_requests(rewind_requests.read(generation.assignment))

    async def on_lost_membership(self, reason: str) -> None:
        """Lose all partitions that this member owns."""
        self._coordinator.on_identity_changed()
        if owned := self._reconciler.list_owned():
            text, extra = "This member lost its partitions: %s", {"event": "group_lost"}
            self._log.write(logging.WARNING, ("lost", reason), text, reason, extra=extra)
            await self._reconciler.lose_partitions(owned)

    def on_confirmed_changed(self, confirmed: bool) -> None:
        """Check again until when records may be delivered. Synchronous."""
        self._coordinator.on_identity_changed()

    def report_error(self, error: Exception) -> None:
        """Make the next request for records raise an error of the group. Synchronous."""
        self._coordinator.on_group_error(error)

    # -- steps

    def _watch_topics(self, generation: Generation) -> None:
        """Watch the topics of the group as its leader, or stop watching them.

        A static member that returns has a generation in which it did not assign, even as the leader
        (KIP-814). The assignment does not fit if it omits partitions that exist now. Coordinators
        before Kafka 3.2 return the id of the former member as that of the leader.
        """
        former, self._former = self._former, None
        has_assigned, self._has_assigned = self._has_assigned, False
        if has_assigned and generation.is_leader:
            self._fits = True
            return
        led = former is not None and former.member_id == generation.leader_id
        topics = frozenset(self._asked)
        if not generation.is_leader and not led:
            self._watch.on_following()
        else:
            topics |= former.group_topics if former is not None else frozenset()
            self._watch.on_leading(sorted(topics))
        if former is not None:
            cluster = assignable(self._cluster.metadata, sorted(topics))
            existing = {tp for topic in topics for tp in cluster.partitions(topic)}
            self._fits = self._fits and existing <= former.group_owns

    async def _release_partitions(
        self, must_go: Callable[[TopicPartition], bool], deadline: float
    ) -> list[TopicPartition]:
        """Revoke the owned partitions for which `must_go` is true, or which were given up.

        The subscription may change while they are revoked, so the owned partitions are compared
        again until nothing is left to revoke. Return all that were revoked.
        """
        released: dict[TopicPartition, None] = {}
        relinquished = self._subscription.is_relinquished
        while owned := [
            tp for tp in self._reconciler.list_owned() if relinquished(tp) or must_go(tp)
        ]:
            if all(tp in released for tp in owned):
                break  # The consumer is being closed, which releases them.
            released.update(dict.fromkeys(owned))
            await self._reconciler.revoke_partitions(owned, deadline=deadline)
        return list(released)

    def _find_assignor(self, name: str) -> Assignor:
        assignor = self._assignors[name].get()
        if assignor is None:
            raise ClosedError("This Consumer was dropped without close().")
        return assignor

    def _is_wanted(self, tp: TopicPartition) -> bool:
        return self._subscription.is_wanted(tp)

    async def _refresh_metadata(self, topics: Sequence[str] | None) -> None:
        """Refresh the metadata of topics (None for all); if that fails, use the old metadata."""
        try:
            await self._cluster.updater.refresh(topics, timeout=LOOK_S)
        except Exception as error:  # The other members wait, even if this client has failed.
            text, extra = "A rebalance uses older metadata: %s", {"event": "metadata_outdated"}
            self._log.write(logging.INFO, "look", text, error, extra=extra)


class TopicWatch:
    """A watch that tells the membership when the group needs new assignments."""

    def __init__(self, membership: ClassicMembership, coordinator: ConsumerCoordinator) -> None:
        self._membership = membership
        self._cluster = coordinator.cluster
        self._topics = coordinator.topics
        self._callbacks = coordinator.supervisor.callbacks
        self._matched: list[str] | None = None
        self._assigned: Layout | None = None
        self._seen: tuple[object, object] | None = None
        self._first = 0.0
        self._timer: asyncio.TimerHandle | None = None
        observe = self._callbacks.guard_function(self._on_metadata)
        self._unsubscribe = self._cluster.updater.add_listener(observe)

    def stop(self) -> None:
        """Stop watching. Synchronous."""
        self._unsubscribe()
        self._cluster.updater.unwant_topics(self)
        self._cancel_report()

    def find_topics(self) -> list[str]:
        """Return the topics for this member's subscription, and watch them from now on."""
        self._cancel_report()
        subscription = self._topics.current
        matching = self._topics.find_matching(self._cluster.metadata)
        self._matched = matching if subscription.pattern is not None else None
        return matching if subscription.pattern is not None else list(subscription.topics)

    def on_following(self) -> None:
        """Stop watching the partitions, because another member leads. Synchronous."""
        self._assigned = None
        self._cluster.updater.unwant_topics(self)

    def on_leading(self, topics: Iterable[str]) -> None:
        """Watch these topics, which this member has just assigned. Synchronous."""
        names = list(topics)
        self._cluster.updater.unwant_topics(self)
        for name in names:
            self._cluster.updater.want_topic(name, self)
        self._assigned = layout(self._cluster.metadata, names)

    def _on_metadata(self, old: ClusterMetadata, metadata: ClusterMetadata) -> None:
        picture = self._read_layout(metadata)
        if picture == (self._matched, self._assigned):
            self._cancel_report()
        elif picture != self._seen:
            self._seen = picture
            now = asyncio.get_running_loop().time()
            if self._timer is None:
                self._first = now
            else:
                self._timer.cancel()
            when = min(now + QUIET_S, self._first + LONGEST_S)
            self._timer = self._callbacks.call_at(when, self._report_change)

    def _read_layout(self, metadata: ClusterMetadata) -> tuple[object, object]:
        """Return the matched topics and the partitions of assigned ones, in this metadata."""
        matched = None if self._matched is None else self._topics.find_matching(metadata)
        return matched, None if self._assigned is None else layout(metadata, self._assigned)

    def _report_change(self) -> None:
        self._cancel_report()
        matched, _ = self._read_layout(self._cluster.metadata)
        self._membership.on_topics_changed(subscribed=matched != self._matched)

    def _cancel_report(self) -> None:
        self._seen = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class FormerMember(NamedTuple):
    """The coordinator's view of the former member with an instance id, and of its group."""

    member_id: str
    topics: frozenset[str] | None
    """The topics for which the leader has assigned. None if that is unknown."""
    group_topics: frozenset[str]
    group_owns: frozenset[TopicPartition]

    @classmethod
    def find_member(cls, group: DescribedGroup, instance_id: str | None) -> FormerMember | None:
        """Return the former member, or None if the group has none with this instance id."""
        mine = next((m for m in group.members if m.group_instance_id == instance_id), None)
        if mine is None:
            return None
        nothing = cls(mine.member_id, None, frozenset(), frozenset())
        if not group.protocol_data:
            return nothing  # The group rebalances, and does not return metadata.
        try:
            read = {m.member_id: decode_subscription(m.member_metadata) for m in group.members}
            assigned = [decode_assignment(m.member_assignment) for m in group.members]
        except ProtocolError:
            return nothing
        return cls(
            mine.member_id,
            frozenset(read[mine.member_id].topics),
            frozenset(topic for member in read.values() for topic in member.topics),
            frozenset(tp for each in assigned for tp in each.partitions),
        )


def assignment_with(given: MemberAssignment, wanted: rewind_requests.RewindRequests) -> bytes:
    """Return the assignment of a member as bytes, with the rewind requests for its partitions."""
    data = encode_assignment(given)
    has = dict.fromkeys(given.partitions)
    parts = {
        request_id: part
        for request_id, offsets in wanted.items()
        if (part := {tp: offset for tp, offset in offsets.items() if tp in has})
    }
    return rewind_requests.append(data, parts) if parts else data


def layout(metadata: ClusterMetadata, topics: Iterable[str]) -> Layout:
    """Return the id and the partition count of each topic, or None if the topic does not exist."""
    found: Layout = {}
    for name in topics:
        info = metadata.find_topic(name)
        gone = info is None or metadata.lacks_partition(name, 0)
        found[name] = None if info is None or gone else (info.topic_id, len(info.partitions))
    return found


def assignable(metadata: ClusterMetadata, topics: Iterable[str]) -> AssignmentCluster:
    """Return the topics that can be assigned, without those that were deleted."""
    return AssignmentCluster.of(metadata, [t for t in topics if not metadata.lacks_partition(t, 0)])
