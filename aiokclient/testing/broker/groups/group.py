"""What every kind of group has: a state, members, offsets, and a broker that coordinates it.

A group lives in memory, and apart from that as what was persisted of it. When another broker
takes over, or the same one anew, the group is unloaded (whoever waits is told NOT_COORDINATOR,
timers end) and then loaded from what was persisted.

The requests of the classic protocol reach a group whatever its kind is; a kind that does not
speak it refuses them as here. Requests of its own protocol it takes by methods of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from aiokclient.protocol.messages import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from aiokclient.protocol.messages.leave_group import MemberIdentity, MemberResponse
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.offsets import GroupOffsets

if TYPE_CHECKING:
    from aiokclient.protocol.messages.describe_groups import DescribedGroup
    from aiokclient.testing.broker.call import Call, Reply
    from aiokclient.testing.broker.state import ClusterState
    from aiokclient.types import TopicPartition


class GroupType(Enum):
    """The kinds of groups, as ListGroups names them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class MemberView(NamedTuple):
    """A member as a test sees it.

    `metadata` is what it joined with for the chosen protocol, `assignment` what it was given;
    both as the members encode them. Under KIP-848 the assignment is as a leader of a classic
    group would encode it.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    metadata: bytes = b""
    assignment: bytes = b""


class GroupView(NamedTuple):
    """A group as a test sees it; `generation` is the group's epoch under KIP-848."""

    group_id: str
    kind: GroupType
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str | None
    members: Mapping[str, MemberView]


class Group:
    """One group. `node` is the broker that has it loaded, None while none has.

    A kind of group overrides what stands here without a body of its own.
    """

    kind: GroupType

    def __init__(self, cluster: ClusterState, group_id: str) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.offsets = GroupOffsets()
        self.node: int | None = None

    def __repr__(self) -> str:
        return f"<{self.kind.value} group {self.group_id!r} on {self.node}: {self.state}>"

    # -- what it is ------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The state by Kafka's name."""
        raise NotImplementedError

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted or become another kind."""
        raise NotImplementedError

    @property
    def protocol_type(self) -> str:
        """Return the protocol type with which its members joined, or "" if it had none."""
        raise NotImplementedError

    def view(self) -> GroupView:
        """A picture of it as it is now."""
        raise NotImplementedError

    def subscribed(self, topic: str) -> bool:
        """Whether members read this topic, as far as the broker can know."""
        raise NotImplementedError

    # -- coming and going ------------------------------------------------------------------

    def unload(self) -> None:
        """End timers, and answer whoever waits with NOT_COORDINATOR."""
        raise NotImplementedError

    def load(self) -> None:
        """Begin anew from what was persisted; timers start over."""
        raise NotImplementedError

    def rebalance(self) -> None:
        """Make the members go through a rebalance, for no reason but a test's."""
        raise NotImplementedError

    # -- offsets ---------------------------------------------------------------------------

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None, version: int
    ) -> Code:
        """Whether a member (or an empty id and epoch -1: nobody) may commit offsets now.

        `epoch` is the generation or the member epoch, `version` that of OffsetCommit.
        """
        raise NotImplementedError

    def check_commit_of(self, member_id: str, epoch: int, place: TopicPartition) -> Code:
        """Whether a commit that is taken as such may be for this partition."""
        return Code.NONE

    def committed(self, member_id: str) -> None:
        """A member's commit was taken: that may count as a sign of life."""

    def check_fetch(self, member_id: str | None, epoch: int) -> Code:
        """Whether offsets may be read by a member that says so (epoch -1: that does not)."""
        return Code.NONE

    def check_delete_offsets(self) -> Code:
        """Whether offsets of topics that are not subscribed to may be deleted."""
        return Code.NONE

    # -- the classic protocol --------------------------------------------------------------

    def join(self, call: Call) -> Reply:
        """JoinGroup; session timeout and group id have been checked."""
        return JoinGroupResponse(error_code=Code.INCONSISTENT_GROUP_PROTOCOL)

    def sync(self, call: Call) -> Reply:
        """SyncGroup."""
        return SyncGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID)

    def heartbeat(self, call: Call) -> Reply:
        """Heartbeat."""
        return HeartbeatResponse(error_code=Code.UNKNOWN_MEMBER_ID)

    def leave(self, call: Call, members: list[MemberIdentity]) -> Reply:
        """LeaveGroup: `members` are those of the request, whatever its version."""
        return left_unknown(members)

    def describe(self) -> DescribedGroup | None:
        """What DescribeGroups says of it; None: that it is no classic group."""
        return None


def left_unknown(members: list[MemberIdentity]) -> LeaveGroupResponse:
    """The answer to a LeaveGroup where none of the members is known."""
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=Code.UNKNOWN_MEMBER_ID,
            )
            for each in members
        ]
    )
