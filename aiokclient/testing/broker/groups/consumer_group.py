"""A group of the new consumer protocol (KIP-848): epochs, targets, who has which partition.

The group's epoch rises when its members, what they subscribe to or the topics change. Then the
target of each member is worked out (`server_assignors.py`), and at each heartbeat a member comes
one step nearer to its own (`consumer_member.py`): a partition goes to its next member only when
the one before has given it up. `consumer_heartbeat.py` is the protocol, `consumer_classic.py`
that of members which speak the classic one, `migration.py` how a group changes its kind.

All of it is persistent, in Kafka and here: a coordinator that takes over starts the timers anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.classic_wire import assignment_bytes
from aiokclient.testing.broker.groups.consumer_classic import ClassicMembers
from aiokclient.testing.broker.groups.consumer_heartbeat import Heartbeats
from aiokclient.testing.broker.groups.consumer_member import (
    NOTHING,
    Member,
    MemberState,
    reconciled,
)
from aiokclient.testing.broker.groups.group import Group, GroupType, GroupView, MemberView
from aiokclient.testing.broker.groups.migration import classic_only
from aiokclient.testing.broker.groups.regex import matches
from aiokclient.testing.broker.groups.server_assignors import (
    SERVER_ASSIGNORS,
    Places,
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
"""Members of the new protocol commit with this version of OffsetCommit, or a later one."""


class Holding(NamedTuple):
    """Who has a partition, and in which of its epochs it got it."""

    member_id: str
    since: int


class ConsumerGroup(Group):
    """One group; `members` in the order in which they joined."""

    kind = GroupType.CONSUMER

    def __init__(
        self,
        cluster: ClusterState,
        group_id: str,
        downgraded: Callable[[ConsumerGroup], Group],
        epoch: int = 0,
    ) -> None:
        """`downgraded` puts a classic group with the same members in the place of this one."""
        super().__init__(cluster, group_id)
        self._downgraded = downgraded
        self.epoch = epoch
        self.target_epoch = epoch
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Places] = {}
        self.timers = Timers(cluster)
        self._holdings: dict[tuple[UUID, int], Holding] = {}
        self._sizes: Sizes = {}
        self._assigned_at = float("-inf")
        self._topology = -1
        self._asked: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
        """The topics behind each subscription, as of that topology."""
        self._heartbeats = Heartbeats(self)
        self._classic = ClassicMembers(self)

    # -- what it is ------------------------------------------------------------------------

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        settled = all(each.settled(self.target_epoch) for each in self.members.values())
        return "Stable" if settled else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def assignor(self) -> str:
        """The assignor that most members want, by default the first that brokers have."""
        wanted = [each.assignor for each in self.members.values() if each.assignor is not None]
        return max(wanted, key=wanted.count) if wanted else self.assignors[0]

    @property
    def assignors(self) -> list[str]:
        return self.cluster.configs["group.consumer.assignors"].split(",")

    def view(self) -> GroupView:
        members = {
            each.member_id: MemberView(
                each.member_id,
                each.instance_id,
                each.client_id,
                assignment=assignment_bytes(self.cluster, each.assigned, _ENCODED_AS),
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

    def static(self, instance_id: str | None) -> Member | None:
        """The member with this instance id."""
        if instance_id is None:
            return None
        found = (each for each in self.members.values() if each.instance_id == instance_id)
        return next(found, None)

    def subscribed(self, topic: str) -> bool:
        return any(_asks_for(each, topic) for each in self.members.values())

    def option(self, name: str) -> int:
        """The group's number for `consumer.` and the name, or the cluster's."""
        own = self.cluster.groups.configs_of(self.group_id, keep=False)
        if f"consumer.{name}" in own.options:
            return own.number(f"consumer.{name}")
        return self.cluster.configs.number(f"group.consumer.{name}")

    # -- members ---------------------------------------------------------------------------

    def put(self, member: Member) -> None:
        """Take a member in, or its new state."""
        before = self.members.get(member.member_id)
        for place in NOTHING if before is None else before.has - member.has:
            self._holdings.pop(place, None)
        for place in member.has:
            holding = self._holdings.get(place)
            if holding is None or holding.member_id != member.member_id:
                self._holdings[place] = Holding(member.member_id, member.epoch)
        self.members[member.member_id] = member
        self.cluster.changed()

    def remove(self, member: Member) -> None:
        """A member is gone, with all that it had; the epoch stays."""
        known = self.members.pop(member.member_id, None)
        if known is not None:
            for place in known.has:
                self._holdings.pop(place, None)
        self.targets.pop(member.member_id, None)
        for kind in ("session", "rebalance", "join", "sync"):
            self.timers.cancel((kind, member.member_id))
        self.cluster.changed()

    def replace(self, old: Member, member_id: str) -> Member:
        """A static member comes back under another id: it takes over what the old one had."""
        target = self.targets.get(old.member_id, NOTHING)
        self.remove(old)
        new = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        self.targets[member_id] = target
        self.put(new)
        return new

    def fence(self, member_id: str) -> None:
        """Remove a member for its silence; the others share what it had."""
        member = self.members.get(member_id)
        if member is not None:
            self.expel([member])

    def expel(self, members: Iterable[Member]) -> None:
        """Members leave. If all that remain speak the classic protocol, so does the group."""
        for member in members:
            self.remove(member)
        classic = self.maybe_downgrade()
        if classic is not None:
            classic.rebalance()
            return
        self.epoch += 1
        if not self.members:
            self.target_epoch = self.epoch

    def maybe_downgrade(self) -> Group | None:
        """Become a classic group, if all members speak the classic protocol."""
        return self._downgraded(self) if classic_only(self) else None

    # -- topics and targets ----------------------------------------------------------------

    def topics_of(self, member: Member) -> frozenset[UUID]:
        """The topics that exist of those that a member asks for."""
        if self._topology != self.cluster.topology:
            self._topology = self.cluster.topology
            self._asked.clear()
        found = self._asked.get(member.subscription)
        if found is None:
            topics = self.cluster.topics.values()
            found = frozenset(each.topic_id for each in topics if _asks_for(member, each.name))
            self._asked[member.subscription] = found
        return found

    def bump(self, subscription_changed: bool) -> None:
        """Raise the epoch if subscriptions or the topics behind them are others than before."""
        sizes = self._subscribed_sizes()
        self.epoch = max(self.epoch, 1)
        if subscription_changed or sizes != self._sizes:
            self.epoch += 1
            self._sizes = sizes

    def begin(self, epoch: int, members: Iterable[Member]) -> None:
        """Go on from what a classic group has come to."""
        self.epoch = self.target_epoch = epoch
        for member in members:
            self.targets[member.member_id] = member.assigned
            self.put(member)
        self._sizes = self._subscribed_sizes()

    def _subscribed_sizes(self) -> Sizes:
        alike = {each.subscription: each for each in self.members.values()}
        topics = self.cluster.topics_by_id
        asked = dict.fromkeys(topic for m in alike.values() for topic in self.topics_of(m))
        return {each: len(topics[each].partitions) for each in asked}

    def retarget(self) -> None:
        """Work out the targets of a new epoch, at most once in the assignment interval."""
        now = self.cluster.loop.time()
        interval_s = self.option("assignment.interval.ms") / 1000
        if self.epoch == self.target_epoch or now < self._assigned_at + interval_s:
            return
        assign = SERVER_ASSIGNORS[self.assignor]
        subscribers = {
            each.member_id: Subscriber(
                self.topics_of(each), self.targets.get(each.member_id, NOTHING), each.instance_id
            )
            for each in self.members.values()
        }
        self.targets = assign(subscribers, self._sizes)
        self.target_epoch, self._assigned_at = self.epoch, now

    def step(self, member: Member, owned: Places | None) -> Member:
        """Bring a member one step nearer to its target, and keep it so."""
        topics = self.topics_of(member)
        target = self.targets.get(member.member_id, NOTHING)
        target = frozenset(place for place in target if place.topic_id in topics)

        def free(places: Places) -> Places:
            holders = {place: self._holdings.get(place) for place in places}
            mine = (None, member.member_id)
            return frozenset(
                place for place, held in holders.items() if (held and held.member_id) in mine
            )

        new = reconciled(member, self.target_epoch, target, free, owned)
        self.put(new)
        if new.state is not MemberState.UNREVOKED_PARTITIONS or new.classic is not None:
            self.timers.cancel(("rebalance", member.member_id))
        elif new != member:
            self._await_revocation(new)
        return new

    def waits_for_others(self, member: Member) -> bool:
        """Whether others still have some of what a member is to get."""
        wanted = self.targets.get(member.member_id, NOTHING) - member.assigned
        return any(place in self._holdings for place in wanted)

    # -- timers ----------------------------------------------------------------------------

    def start_timer(self, kind: str, member_id: str, ms: int) -> None:
        """Fence the member unless the timer is put off or cancelled in time."""
        if self.node is not None:
            self.timers.start((kind, member_id), ms, lambda: self.fence(member_id))

    def keep(self, member: Member) -> None:
        """A sign of life."""
        ms = self.option("session.timeout.ms")
        if member.classic is not None:
            ms = member.classic.session_timeout_ms
        self.start_timer("session", member.member_id, ms)

    def _await_revocation(self, member: Member) -> None:
        self.start_timer("rebalance", member.member_id, member.rebalance_timeout_ms)

    def unload(self) -> None:
        self.timers.clear()

    def load(self) -> None:
        for member in self.members.values():
            self.keep(member)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self._await_revocation(member)

    def rebalance(self) -> None:
        self.epoch += 1

    # -- offsets ---------------------------------------------------------------------------

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None, version: int
    ) -> Code:
        if epoch < 0 and not self.members:
            return Code.NONE
        member = self.members.get(member_id)
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        if member.classic is not None:
            return Code.NONE if epoch == member.epoch else Code.ILLEGAL_GENERATION
        if version < _SINCE_VERSION:
            return Code.UNSUPPORTED_VERSION
        return Code.NONE if epoch == member.epoch or 0 < epoch < member.epoch else _STALE

    def check_commit_of(self, member_id: str, epoch: int, place: TopicPartition) -> Code:
        member = self.members.get(member_id)
        if member is None or epoch == member.epoch:
            return Code.NONE
        topic = self.cluster.topics.get(place.topic)
        holding = topic and self._holdings.get((topic.topic_id, place.partition))
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

    def consumer_heartbeat(self, call: Call) -> ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat; raises Refused."""
        return self._heartbeats.answer(call)

    def join(self, call: Call) -> Reply:
        return self._classic.join(call)

    def sync(self, call: Call) -> Reply:
        return self._classic.sync(call)

    def heartbeat(self, call: Call) -> Reply:
        return self._classic.heartbeat(call)

    def leave(self, call: Call, members: list[MemberIdentity]) -> Reply:
        return self._classic.leave(members)


_STALE = Code.STALE_MEMBER_EPOCH


def _asks_for(member: Member, topic: str) -> bool:
    if topic in member.topics:
        return True
    return bool(member.regex) and matches(member.regex, topic)
