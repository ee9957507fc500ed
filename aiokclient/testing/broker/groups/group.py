"""The base class of all kinds of groups: a state, members, offsets, and a coordinating broker.

A group has its state in memory, and a persisted copy of a part of this state. When a broker takes
over, or loads the group again, the group is first unloaded: waiting requests are answered with
NOT_COORDINATOR, and timers are cancelled. Then it is loaded from what was persisted.

Every kind of group has methods for the requests of the classic protocol. A kind that does not
support this protocol inherits methods from here that refuse the requests. The methods for the
requests of another protocol exist only in the kind of group that supports that protocol.
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
    """The kinds of groups, with their names in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class MemberView(NamedTuple):
    """A member as a test sees it.

    `metadata` is the member's metadata for the chosen protocol, and `assignment` is its assignment,
    both as the members encode them. Under KIP-848, the assignment is encoded as a leader of a
    classic group would encode it.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    metadata: bytes = b""
    assignment: bytes = b""


class GroupView(NamedTuple):
    """A group as a test sees it. Under KIP-848, `generation` is the group's epoch."""

    group_id: str
    kind: GroupType
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str | None
    members: Mapping[str, MemberView]


class Group:
    """One group. `node` is the broker that has loaded it, or None.

    Each kind of group overrides the methods without a body.
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
        """The state, under Kafka's name."""
        raise NotImplementedError

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, so that it may be deleted or change its kind."""
        raise NotImplementedError

    @property
    def protocol_type(self) -> str:
        """The protocol type with which its members joined, or "" if no member has joined."""
        raise NotImplementedError

    def make_view(self) -> GroupView:
        """Return a copy of the current state."""
        raise NotImplementedError

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members read this topic, as far as the broker knows."""
        raise NotImplementedError

    # -- loading and unloading ---------------------------------------------------------------

    def unload(self) -> None:
        """Cancel timers, and answer waiting requests with NOT_COORDINATOR."""
        raise NotImplementedError

    def load(self) -> None:
        """Load what was persisted, and restart the timers."""
        raise NotImplementedError

    def write_deletion(self) -> None:
        """Write to `__consumer_offsets` that the group, apart from its offsets, was deleted."""
        raise NotImplementedError

    def rebalance(self) -> None:
        """Make the members rebalance, at the request of a test."""
        raise NotImplementedError

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
        """Return the error code if a member may not commit offsets now, or NONE.

        An empty id with epoch -1 stands for a client that is not a member, which may commit in a
        transaction at any time. `epoch` is the generation or the member epoch, and `version` is
        that of OffsetCommit.
        """
        raise NotImplementedError

    def check_committed_partition(self, member_id: str, epoch: int, tp: TopicPartition) -> Code:
        """Return the error code if an accepted commit may not include this partition, or NONE."""
        return Code.NONE

    def on_commit(self, member_id: str) -> None:
        """Handle an accepted commit of a member, which may count as a heartbeat."""

    def check_fetch(self, member_id: str | None, epoch: int) -> Code:
        """Return the error code if a member may not read offsets, or NONE.

        Epoch -1 stands for a client that does not say that it is a member.
        """
        return Code.NONE

    def check_delete_offsets(self) -> Code:
        """Return the error code if no offsets of the group may be deleted, or NONE."""
        return Code.NONE

    # -- the classic protocol --------------------------------------------------------------

    def handle_join(self, call: Call) -> Reply:
        """Handle a JoinGroup request whose session timeout and group id are valid."""
        return JoinGroupResponse(error_code=Code.INCONSISTENT_GROUP_PROTOCOL)

    def handle_sync(self, call: Call) -> Reply:
        """Handle a SyncGroup request."""
        return SyncGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID)

    def handle_heartbeat(self, call: Call) -> Reply:
        """Handle a Heartbeat request."""
        return HeartbeatResponse(error_code=Code.UNKNOWN_MEMBER_ID)

    def handle_leave(self, call: Call, members: list[MemberIdentity]) -> Reply:
        """Handle a LeaveGroup request for `members`, whatever its version."""
        return refuse_unknown_members(members)

    def describe(self) -> DescribedGroup | None:
        """Return the result of DescribeGroups, or None if this is not a classic group."""
        return None


def refuse_unknown_members(members: list[MemberIdentity]) -> LeaveGroupResponse:
    """Return the response to a LeaveGroup request if none of its members is known."""
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
