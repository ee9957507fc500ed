"""What the engine of a group and whoever stands on it say to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from aiokclient.types import GroupMetadata

__all__ = ["Generation", "GroupHandler", "GroupSettings", "MemberInfo"]


class MemberInfo(NamedTuple):
    """A member as the leader sees it; `metadata` is that for the protocol that was chosen."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Generation(NamedTuple):
    """One generation as a member sees it; `members` are told to the leader alone."""

    metadata: GroupMetadata
    protocol: str
    leader_id: str
    assignment: bytes
    members: tuple[MemberInfo, ...] = ()

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.metadata.member_id


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Which group, and its times in milliseconds."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000


class GroupHandler(Protocol):
    """What gives a group its meaning. The engine calls it from its own task, one call at a time.

    A call is cancelled when the membership is lost meanwhile or the member is paused (then `lost`
    follows). What it raises ends the engine's task, but for `assign`, see there.
    """

    @property
    def protocol_type(self) -> str:
        """Which kind of group it is: members of different kinds cannot be in one."""
        ...

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        """Names with this member's metadata, the preferred one first. Asked at each join."""
        ...

    async def assign(
        self, protocol: str, leader_id: str, members: Sequence[MemberInfo]
    ) -> Mapping[str, bytes]:
        """What each member gets, by member id; who is left out gets nothing. On the leader only.

        Once in a generation. What it raises is reported here as it is and to the other members as
        AssignmentFailedError, the generation begins for nobody, and the group tries again, later
        each time.
        """
        ...

    async def began(self, generation: Generation) -> None:
        """A generation has begun. Heartbeats go on, but no rebalance is taken up meanwhile."""
        ...

    async def before_rejoin(self, reason: str) -> None:
        """The generation is about to end: give up what has to be, within the rebalance timeout.

        `GroupEngine.rebalance_deadline` says until when. Past it `lost` follows.
        """
        ...

    async def lost(self, reason: str) -> None:
        """Nothing is this member's any more, and nothing may be committed for it."""
        ...
