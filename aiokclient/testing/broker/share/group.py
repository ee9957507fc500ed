"""A share group: its members, its epoch, and the assignments (KIP-932).

Members only share partitions: nobody waits for a partition, so a member takes its target in one
step, with its next heartbeat. The state of the share partitions of a subscribed topic is created
after the heartbeat that names the topic. Only then can they be assigned, in the epoch that begins
with the next heartbeat. So the response to the first join has an empty assignment. Targets are
computed with a heartbeat, at most once in `share.assignment.interval.ms`.

A member joins, or asks for its whole assignment, with epoch 0. It leaves with -1. Any other epoch
must be the current or the previous one of the member. Leaving, and the end of a session, change
assignments only: the locks of records belong to the sessions with leaders.

Epochs, members, and targets are persistent, as in Kafka. A coordinator that takes over a group
restarts the timers. A group without members stays until it is deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aiokclient.protocol.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from aiokclient.protocol.messages.share_group_heartbeat import Assignment, TopicPartitions
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.classic_wire import encode_assignment
from aiokclient.testing.broker.groups.group import Group, GroupType, GroupView, MemberView
from aiokclient.testing.broker.groups.server_assignors import PartitionIds, Subscriber
from aiokclient.testing.broker.groups.timers import Timers
from aiokclient.testing.broker.internal.share_records import write_deleted_share_group
from aiokclient.testing.broker.share.assignor import assign_simple
from aiokclient.testing.broker.share.members import NO_PARTITIONS, ShareGroupJournal, ShareMember
from aiokclient.testing.broker.share.sessions import SharePartitionKey
from aiokclient.testing.broker.share.states import UNKNOWN_OFFSET

if TYPE_CHECKING:
    from aiokclient.testing.broker.call import Call
    from aiokclient.testing.broker.state import ClusterState

ASSIGNOR = "simple"
LEAVING = -1
_LONGEST_ID = 36
_ENCODED_AS = 3


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raise Refused if a request is invalid for any group."""
    blank = not request.member_id.strip() or not request.group_id.strip()
    blank_rack = request.rack_id is not None and not request.rack_id.strip()
    joins_without_topics = request.member_epoch == 0 and not request.subscribed_topic_names
    if (
        blank
        or blank_rack
        or len(request.member_id) > _LONGEST_ID
        or request.member_epoch < LEAVING
        or joins_without_topics
    ):
        raise Refused(Code.INVALID_REQUEST, "")


class _TopicSize(NamedTuple):
    """The number of partitions of a topic, and the number of those that have a state."""

    partitions: int
    ready: int


class ShareGroup(Group):
    """One group. `members` are in the order in which they joined."""

    kind = GroupType.SHARE

    def __init__(self, cluster: ClusterState, group_id: str) -> None:
        super().__init__(cluster, group_id)
        self.epoch = 1
        self.target_epoch = 1
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, PartitionIds] = {}
        self.timers = Timers(cluster)
        self._topics: dict[UUID, _TopicSize] = {}
        """The topics of the current epoch."""
        self._assigned_at = float("-inf")
        self._journal = ShareGroupJournal(self)

    # -- what it is ------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def protocol_type(self) -> str:
        return "share"

    def make_view(self) -> GroupView:
        members = {
            each.member_id: MemberView(
                each.member_id,
                None,
                each.client_id,
                assignment=encode_assignment(self.cluster, each.assigned, _ENCODED_AS),
            )
            for each in self.members.values()
        }
        return GroupView(
            self.group_id,
            self.kind,
            self.state,
            self.epoch,
            self.protocol_type,
            ASSIGNOR,
            None,
            members,
        )

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in each.topics for each in self.members.values())

    def read_option(self, name: str) -> int:
        """Return the value of the group's option `share.NAME`."""
        own = self.cluster.groups.find_configs(self.group_id, keep=False)
        return own.read_number(f"share.{name}")

    # -- heartbeats --------------------------------------------------------------------------

    def answer_heartbeat(self, call: Call) -> ShareGroupHeartbeatResponse:
        """Return the response to a heartbeat. Raises Refused."""
        request: ShareGroupHeartbeatRequest = call.request
        if request.member_epoch == LEAVING:
            self.remove_members([self._require_member(request.member_id)])
            return ShareGroupHeartbeatResponse(
                member_id=request.member_id, member_epoch=request.member_epoch
            )
        self._check_room(request.member_id)
        before = self._find_member(request)
        names = request.subscribed_topic_names
        member = replace(
            before,
            rack=request.rack_id or before.rack,
            topics=before.topics if names is None else tuple(sorted(set(names))),
            client_id=call.client_id or "",
            client_host=call.owner.client_host,
        )
        self.members[member.member_id] = member
        self._increase_epoch(member.topics != before.topics)
        self._update_targets()
        member = self._advance_member(member)
        self._restart_session(member)
        self._journal.write_changes()
        self.cluster.loop.call_soon(self.cluster.call_guarded, self._create_states)
        self.cluster.notify_tests()
        is_full = request.member_epoch == 0 or names is not None
        return ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.read_option("heartbeat.interval.ms"),
            assignment=Assignment(topic_partitions=_write_partitions(member.assigned))
            if is_full or member.assigned != before.assigned
            else None,
        )

    def _check_room(self, member_id: str) -> None:
        most = self.cluster.configs.read_number("group.share.max.size")
        if member_id not in self.members and len(self.members) >= most:
            raise Refused(
                Code.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {most} members.",
            )

    def _find_member(self, request: ShareGroupHeartbeatRequest) -> ShareMember:
        if request.member_epoch == 0:
            member_id = request.member_id
            return self.members.get(member_id) or ShareMember(member_id=member_id)
        member = self._require_member(request.member_id)
        epoch = request.member_epoch
        if epoch not in (member.epoch, member.previous_epoch):
            how = "greater" if epoch > member.epoch else "smaller"
            raise Refused(
                Code.FENCED_MEMBER_EPOCH,
                f"The share group member has a {how} member epoch ({epoch}) than the one known by "
                f"the group coordinator ({member.epoch}). The member must abandon all its "
                "partitions and rejoin.",
            )
        return member

    def _require_member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise Refused(Code.UNKNOWN_MEMBER_ID, text)
        return member

    def _advance_member(self, member: ShareMember) -> ShareMember:
        """Give a member its target, and store the result."""
        target = self.targets.get(member.member_id, NO_PARTITIONS)
        existing = self.cluster.topics_by_id
        target = frozenset(
            each
            for each in target
            if each.topic_id in existing and existing[each.topic_id].name in member.topics
        )
        if member.epoch != self.target_epoch:
            member = replace(member, epoch=self.target_epoch, previous_epoch=member.epoch)
        member = replace(member, assigned=target)
        self.members[member.member_id] = member
        return member

    def remove_members(self, members: Iterable[ShareMember]) -> None:
        """Remove members that leave, or that were silent for too long."""
        for member in members:
            del self.members[member.member_id]
            self.targets.pop(member.member_id, None)
            self.timers.cancel_timer(("session", member.member_id))
        self.epoch += 1
        if not self.members:
            self.target_epoch = self.epoch
        self._journal.write_changes()
        self.cluster.notify_tests()

    def _restart_session(self, member: ShareMember) -> None:
        if self.node is None:
            return
        member_id = member.member_id

        def expire_session() -> None:
            if member_id in self.members:
                self.remove_members([self.members[member_id]])

        ms = self.read_option("session.timeout.ms")
        self.timers.start_timer(("session", member_id), ms, expire_session)

    # -- topics and targets ----------------------------------------------------------------

    def _find_topics(self) -> dict[UUID, _TopicSize]:
        """Return the subscribed topics that exist."""
        topics = self.cluster.topics
        states = self.cluster.share_states.list_states(self.group_id)
        ready = Counter(key.topic_id for key in states)
        names = dict.fromkeys(name for each in self.members.values() for name in each.topics)
        found = [topics[name] for name in names if name in topics]
        return {
            each.topic_id: _TopicSize(len(each.partitions), ready[each.topic_id]) for each in found
        }

    def _increase_epoch(self, subscription_changed: bool) -> None:
        """Increase the epoch if subscriptions, their topics, or the states of these changed."""
        topics = self._find_topics()
        if subscription_changed or topics != self._topics:
            self.epoch += 1
            self._topics = topics

    def _create_states(self) -> None:
        """Create the states of subscribed partitions that have none.

        Partitions that were added to a topic are read from their first record (KAFKA-20742).
        """
        if self.node is None:
            return
        states = self.cluster.share_states
        known = {key.topic_id for key in states.list_states(self.group_id)}
        starts = {}
        for topic_id, size in self._find_topics().items():
            for index in range(size.partitions):
                key = SharePartitionKey(topic_id, index)
                if states.find_state(self.group_id, key) is None:
                    starts[key] = 0 if topic_id in known else UNKNOWN_OFFSET
        if starts:
            states.create_states(self.group_id, starts, self.epoch)

    def _update_targets(self) -> None:
        """Compute the targets if there is a new epoch, and the assignment interval has passed."""
        now = self.cluster.loop.time()
        interval_s = self.read_option("assignment.interval.ms") / 1000
        if self.epoch == self.target_epoch or now < self._assigned_at + interval_s:
            return
        topics = self.cluster.topics
        sizes = {each: size.ready for each, size in self._find_topics().items() if size.ready}
        subscribers = {
            each.member_id: Subscriber(
                frozenset(topics[name].topic_id for name in each.topics if name in topics),
                self.targets.get(each.member_id, NO_PARTITIONS),
            )
            for each in self.members.values()
        }
        self.targets = assign_simple(subscribers, sizes)
        self.target_epoch, self._assigned_at = self.epoch, now

    def set_offsets(self, starts: Mapping[SharePartitionKey, int]) -> None:
        """Set the start offsets of share partitions, as an administrator may."""
        self._journal.write_changes()
        if starts:
            self.cluster.share_states.create_states(self.group_id, starts, self.epoch)

    # -- loading and unloading ---------------------------------------------------------------

    def unload(self) -> None:
        self.timers.cancel_all()

    def load(self) -> None:
        for member in self.members.values():
            self._restart_session(member)

    def write_deletion(self) -> None:
        self.cluster.share_states.delete_states(self.group_id)
        write_deleted_share_group(self.cluster, self.group_id)

    def rebalance(self) -> None:
        self.epoch += 1
        self._journal.write_changes()

    # -- offsets ---------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        instance_id: str | None,
        version: int,
        *,
        transactional: bool = False,
    ) -> Code:
        return Code.GROUP_ID_NOT_FOUND


def require_empty(group: Group | None, group_id: str) -> None:
    """Raise Refused if this is not a share group, or if it has members."""
    if group is None:
        raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ShareGroup):
        raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    if not group.is_empty:
        raise Refused(Code.NON_EMPTY_GROUP, "The group is not empty.")


def _write_partitions(partitions: PartitionIds) -> list[TopicPartitions]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return [TopicPartitions(topic_id=each, partitions=topics[each]) for each in topics]
