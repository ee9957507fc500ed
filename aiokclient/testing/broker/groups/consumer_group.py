"""A group of the consumer protocol (KIP-848): epochs, target assignments, and partition ownership.

The group's epoch increases when its members, their subscriptions, or the topics change. Then the
target assignment of each member is computed (`server_assignors.py`). With each heartbeat, a member
comes one step closer to its target (`consumer_member.py`): a partition is assigned to its next
member only after the previous one has revoked it. `consumer_heartbeat.py` is the protocol,
`consumer_classic.py` is for members that use the classic one, and `migration.py` converts groups.

Epochs, members, targets, and the owners of partitions are persistent, in Kafka and here. A
coordinator that takes over a group restarts its timers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.classic_wire import encode_assignment
from aiokclient.testing.broker.groups.consumer_classic import ClassicMembers
from aiokclient.testing.broker.groups.consumer_heartbeat import ConsumerGroupHeartbeats
from aiokclient.testing.broker.groups.consumer_journal import ConsumerGroupJournal
from aiokclient.testing.broker.groups.consumer_member import (
    NOTHING,
    ConsumerMember,
    ConsumerMemberState,
    reconcile_member,
)
from aiokclient.testing.broker.groups.group import Group, GroupType, GroupView, MemberView
from aiokclient.testing.broker.groups.migration import is_classic_only
from aiokclient.testing.broker.groups.regex import is_match
from aiokclient.testing.broker.groups.server_assignors import (
    SERVER_ASSIGNORS,
    PartitionIds,
    Sizes,
    Subscriber,
)
from aiokclient.testing.broker.groups.timers import Timers
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.protocol.messages import ConsumerGroupHeartbeatResponse
    from aiokclient.protocol.messages.leave_group import MemberIdentity
    from aiokclient.testing.broker.call import Call, Reply
    from aiokclient.testing.broker.state import ClusterState

_ENCODED_AS = 3
_SINCE_VERSION = 9
"""The first version of OffsetCommit that members of the consumer protocol use."""


class PartitionOwner(NamedTuple):
    """The owner of a partition, and the member epoch in which it got the partition."""

    member_id: str
    since: int


class ConsumerGroup(Group):
    """One group. `members` are in the order in which they joined."""

    kind = GroupType.CONSUMER

    def __init__(
        self,
        cluster: ClusterState,
        group_id: str,
        downgraded: Callable[[ConsumerGroup], Group],
        epoch: int = 0,
    ) -> None:
        """`downgraded` replaces this group with a classic one that has the same members."""
        super().__init__(cluster, group_id)
        self._downgraded = downgraded
        self.epoch = epoch
        self.target_epoch = epoch
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, PartitionIds] = {}
        self.timers = Timers(cluster)
        self._owners: dict[tuple[UUID, int], PartitionOwner] = {}
        self._sizes: Sizes = {}
        self._assigned_at = float("-inf")
        self._topology = -1
        self._asked: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
        """A cache of the topic ids of each subscription. It is cleared when topics change."""
        self._heartbeats = ConsumerGroupHeartbeats(self)
        self._classic = ClassicMembers(self)
        self._journal = ConsumerGroupJournal(self)

    # -- what it is ------------------------------------------------------------------------

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        settled = all(each.is_settled(self.target_epoch) for each in self.members.values())
        return "Stable" if settled else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def assignor(self) -> str:
        """The assignor that most members prefer; by default, the brokers' first one."""
        wanted = [each.assignor for each in self.members.values() if each.assignor is not None]
        return max(wanted, key=wanted.count) if wanted else self.assignors[0]

    @property
    def assignors(self) -> list[str]:
        return self.cluster.configs["group.consumer.assignors"].split(",")

    def make_view(self) -> GroupView:
        members = {
            each.member_id: MemberView(
                each.member_id,
                each.instance_id,
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
            self.assignor,
            None,
            members,
        )

    def find_static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member with this instance id."""
        if instance_id is None:
            return None
        found = (each for each in self.members.values() if each.instance_id == instance_id)
        return next(found, None)

    def is_subscribed_to(self, topic: str) -> bool:
        return any(_is_subscribed(each, topic) for each in self.members.values())

    def read_option(self, name: str) -> int:
        """Return the value of the group's option `consumer.NAME`.

        If groups have no such option, return the value of the cluster's `group.consumer.NAME`.
        """
        own = self.cluster.groups.find_configs(self.group_id, keep=False)
        if f"consumer.{name}" in own.options:
            return own.read_number(f"consumer.{name}")
        return self.cluster.configs.read_number(f"group.consumer.{name}")

    # -- members ---------------------------------------------------------------------------

    def store_member(self, member: ConsumerMember) -> None:
        """Store a member, or its new state."""
        before = self.members.get(member.member_id)
        if before != member:
            self._journal.add_change(member.member_id)
        for partition in (
            NOTHING if before is None else before.held_partitions - member.held_partitions
        ):
            self._owners.pop(partition, None)
        for partition in member.held_partitions:
            holding = self._owners.get(partition)
            if holding is None or holding.member_id != member.member_id:
                self._owners[partition] = PartitionOwner(member.member_id, member.epoch)
        self.members[member.member_id] = member
        self.cluster.notify_tests()

    def remove_member(self, member: ConsumerMember) -> None:
        """Remove a member with all its partitions. The epoch does not change."""
        known = self.members.pop(member.member_id, None)
        self._journal.add_change(member.member_id)
        if known is not None:
            for partition in known.held_partitions:
                self._owners.pop(partition, None)
        self.targets.pop(member.member_id, None)
        for kind in ("session", "rebalance", "join", "sync"):
            self.timers.cancel_timer((kind, member.member_id))
        self.cluster.notify_tests()

    def replace_member(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Replace a static member that joins under a new id. The new id keeps the partitions."""
        target = self.targets.get(old.member_id, NOTHING)
        self.remove_member(old)
        new = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        self.targets[member_id] = target
        self.store_member(new)
        return new

    def fence_member(self, member_id: str) -> None:
        """Remove a member that was silent for too long. The others divide its partitions."""
        member = self.members.get(member_id)
        if member is not None:
            self.expel_members([member])

    def expel_members(self, members: Iterable[ConsumerMember]) -> None:
        """Remove members.

        If all remaining ones use the classic protocol, the group becomes a classic group.
        """
        for member in members:
            self.remove_member(member)
        classic = self.downgrade_if_classic()
        if classic is not None:
            classic.rebalance()
            return
        self.epoch += 1
        if not self.members:
            self.target_epoch = self.epoch
        self._journal.write_changes()

    def downgrade_if_classic(self) -> Group | None:
        """Become a classic group if all members use the classic protocol."""
        return self._downgraded(self) if is_classic_only(self) else None

    # -- topics and targets ----------------------------------------------------------------

    def find_topics(self, member: ConsumerMember) -> frozenset[UUID]:
        """Return the existing topics to which a member is subscribed."""
        if self._topology != self.cluster.topology:
            self._topology = self.cluster.topology
            self._asked.clear()
        found = self._asked.get(member.subscription)
        if found is None:
            topics = self.cluster.topics.values()
            found = frozenset(each.topic_id for each in topics if _is_subscribed(member, each.name))
            self._asked[member.subscription] = found
        return found

    def increase_epoch(self, subscription_changed: bool) -> None:
        """Increase the epoch if subscriptions or their topics changed."""
        sizes = self._count_partitions()
        self.epoch = max(self.epoch, 1)
        if subscription_changed or sizes != self._sizes:
            self.epoch += 1
            self._sizes = sizes

    def take_over_members(self, epoch: int, members: Iterable[ConsumerMember]) -> None:
        """Start with the epoch and the members of a classic group."""
        self.epoch = self.target_epoch = epoch
        for member in members:
            self.targets[member.member_id] = member.assigned
            self.store_member(member)
        self._sizes = self._count_partitions()

    def _count_partitions(self) -> Sizes:
        alike = {each.subscription: each for each in self.members.values()}
        topics = self.cluster.topics_by_id
        asked = dict.fromkeys(topic for m in alike.values() for topic in self.find_topics(m))
        return {each: len(topics[each].partitions) for each in asked}

    def update_targets(self) -> None:
        """Compute the targets if there is a new epoch, and the assignment interval has passed."""
        now = self.cluster.loop.time()
        interval_s = self.read_option("assignment.interval.ms") / 1000
        if self.epoch == self.target_epoch or now < self._assigned_at + interval_s:
            return
        assign = SERVER_ASSIGNORS[self.assignor]
        subscribers = {
            each.member_id: Subscriber(
                self.find_topics(each), self.targets.get(each.member_id, NOTHING), each.instance_id
            )
            for each in self.members.values()
        }
        self.targets = assign(subscribers, self._sizes)
        self.target_epoch, self._assigned_at = self.epoch, now

    def advance_member(self, member: ConsumerMember, owned: PartitionIds | None) -> ConsumerMember:
        """Bring a member one step closer to its target, and store the result."""
        topics = self.find_topics(member)
        target = self.targets.get(member.member_id, NOTHING)
        target = frozenset(partition for partition in target if partition.topic_id in topics)

        def is_free(partitions: PartitionIds) -> PartitionIds:
            holders = {partition: self._owners.get(partition) for partition in partitions}
            mine = (None, member.member_id)
            return frozenset(
                partition
                for partition, held in holders.items()
                if (held and held.member_id) in mine
            )

        new = reconcile_member(member, self.target_epoch, target, is_free, owned)
        self.store_member(new)
        if new.state is not ConsumerMemberState.UNREVOKED_PARTITIONS or new.classic is not None:
            self.timers.cancel_timer(("rebalance", member.member_id))
        elif new != member:
            self._await_revocation(new)
        return new

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Return whether other members still own partitions of this member's target."""
        wanted = self.targets.get(member.member_id, NOTHING) - member.assigned
        return any(partition in self._owners for partition in wanted)

    # -- timers ----------------------------------------------------------------------------

    def start_timer(self, kind: str, member_id: str, ms: int) -> None:
        """Fence the member after `ms` milliseconds, unless the timer is restarted or cancelled."""
        if self.node is not None:
            self.timers.start_timer((kind, member_id), ms, lambda: self.fence_member(member_id))

    def restart_session(self, member: ConsumerMember) -> None:
        """Restart the session timeout of a member."""
        ms = self.read_option("session.timeout.ms")
        if member.classic is not None:
            ms = member.classic.session_timeout_ms
        self.start_timer("session", member.member_id, ms)

    def _await_revocation(self, member: ConsumerMember) -> None:
        self.start_timer("rebalance", member.member_id, member.rebalance_timeout_ms)

    def unload(self) -> None:
        self.timers.cancel_all()

    def load(self) -> None:
        for member in self.members.values():
            self.restart_session(member)
            if member.state is ConsumerMemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self._await_revocation(member)

    def write_deletion(self) -> None:
        self._journal.write_deletion()

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
        if epoch < 0 and not self.members:
            return Code.NONE
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return Code.NONE
        member = self.members.get(member_id)
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        if member.classic is not None:
            return Code.NONE if epoch == member.epoch else Code.ILLEGAL_GENERATION
        if version < _SINCE_VERSION and not transactional:
            return Code.UNSUPPORTED_VERSION
        return Code.NONE if epoch == member.epoch or 0 < epoch < member.epoch else _STALE

    def check_committed_partition(self, member_id: str, epoch: int, tp: TopicPartition) -> Code:
        member = self.members.get(member_id)
        if member is None or epoch == member.epoch:
            return Code.NONE
        topic = self.cluster.topics.get(tp.topic)
        holding = topic and self._owners.get((topic.topic_id, tp.partition))
        mine = holding and holding.member_id == member_id and holding.since <= epoch
        return Code.NONE if mine else _STALE

    def check_fetch(self, member_id: str | None, epoch: int) -> Code:
        if member_id is None and epoch < 0:
            return Code.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return Code.NONE
        return _STALE if member.classic is None else Code.ILLEGAL_GENERATION

    # -- requests --------------------------------------------------------------------------

    def handle_consumer_heartbeat(self, call: Call) -> ConsumerGroupHeartbeatResponse:
        """Handle a ConsumerGroupHeartbeat request. Raises Refused."""
        response = self._heartbeats.answer_heartbeat(call)
        self._journal.write_changes()
        return response

    def handle_join(self, call: Call) -> Reply:
        response = self._classic.handle_join(call)
        self._journal.write_changes()
        return response

    def handle_sync(self, call: Call) -> Reply:
        response = self._classic.handle_sync(call)
        self._journal.write_changes()
        return response

    def handle_heartbeat(self, call: Call) -> Reply:
        response = self._classic.handle_heartbeat(call)
        self._journal.write_changes()
        return response

    def handle_leave(self, call: Call, members: list[MemberIdentity]) -> Reply:
        return self._classic.handle_leave(members)


_STALE = Code.STALE_MEMBER_EPOCH


def _is_subscribed(member: ConsumerMember, topic: str) -> bool:
    if topic in member.topics:
        return True
    return bool(member.regex) and is_match(member.regex, topic)
