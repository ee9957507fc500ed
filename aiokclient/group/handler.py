"""The interface between the engine of a group and the handler that uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from aiokclient.types import GroupMetadata

__all__ = ["Generation", "GroupHandler", "GroupSettings", "MemberInfo"]


class MemberInfo(NamedTuple):
    """A member as the leader sees it; `metadata` belongs to the protocol that was chosen."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Generation(NamedTuple):
    """One generation as a member sees it; only the leader gets `members`."""

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
    """The group that a member joins, and its timeouts in milliseconds."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000


class GroupHandler(Protocol):
    """What assigns work and takes it over. The engine's task makes one call at a time.

    A call is cancelled when the membership is lost meanwhile or the member is paused; then `lost`
    follows. What it raises ends the engine's task, except for `assign`.
    """

    @property
    def protocol_type(self) -> str:
        """The kind of the group. All members of a group have the same."""
        ...

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        """Return names with this member's metadata, the preferred first. Called at each join."""
        ...

    async def assign(
        self, protocol: str, leader_id: str, members: Sequence[MemberInfo]
    ) -> Mapping[str, bytes]:
        """Return the assignment of each member by its id. Called on the leader only.

        A member that is left out gets nothing. It is called once in a generation. What it raises
        is reported here as it is and to the other members as AssignmentFailedError; the generation
        does not begin, and the group tries again, after a longer delay each time.
        """
        ...

    async def began(self, generation: Generation) -> None:
        """Begin a generation. Heartbeats go on, but no rebalance is joined meanwhile."""
        ...

    async def before_rejoin(self, reason: str) -> None:
        """Release what has to be released before the generation ends.

        It has to return by `GroupEngine.rebalance_deadline`; otherwise, `lost` follows.
        """
        ...

    async def lost(self, reason: str) -> None:
        """Take note that nothing belongs to this member any more. Nothing may be committed."""
        ...
