"""The interface between the engine of a group and its handler, and what the two exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from aiokclient.types import GroupMetadata
from aiokclient.types.named_tuple import NamedTuple


class MemberInfo(NamedTuple):
    """A member, as the leader receives it. `metadata` is that of the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Generation(NamedTuple):
    """One generation, as a member receives it. Only the leader receives `members`."""

    metadata: GroupMetadata
    protocol: str
    leader_id: str
    assignment: bytes
    members: tuple[MemberInfo, ...] = ()

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.metadata.member_id


class GroupSettings(NamedTuple):
    """The group that a member joins, and its timeouts in milliseconds."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000


class GroupHandler(Protocol):
    """The object that computes assignments and takes them. The engine makes one call at a time.

    If the membership is lost or the member is paused during a call, the call is cancelled, and
    `on_lost_membership` is called. An exception from any method except `offer_protocols` and
    `assign` ends the engine's task.
    """

    @property
    def protocol_type(self) -> str:
        """The type of the group, which is the same for all of its members."""
        ...

    def offer_protocols(self) -> Sequence[tuple[str, bytes]]:
        """Return the names of protocols with this member's metadata, in order of preference.

        Called at each join. If it raises, the exception is reported on this member, which tries
        again with increasing delays.
        """
        ...

    async def assign(
        self, protocol: str, leader_id: str, members: Sequence[MemberInfo]
    ) -> Mapping[str, bytes]:
        """Return the assignment of each member by its id. Called on the leader only.

        It is called once in each generation. A member without an entry gets empty bytes. If it
        raises, the exception is reported unchanged on this member and as AssignmentFailedError on
        the others. The generation does not begin, and the group tries again with increasing delays.
        """
        ...

    async def on_generation(self, generation: Generation) -> None:
        """Begin a generation. Heartbeats continue, but a rebalance waits until this returns."""
        ...

    async def before_return(self) -> None:
        """Prepare for the return of a static member, before its JoinGroup without a member id.

        The coordinator may answer it with the present generation. Then `assign` is not called, not
        even on the leader (KIP-814), and the assignment was made for the metadata of the former
        member with that instance id.
        """
        ...

    async def before_rejoin(self, reason: str) -> None:
        """Release the work that must be released before the generation ends.

        It must return by `GroupEngine.rebalance_deadline`. Otherwise, `on_lost_membership` is
        called.
        """
        ...

    async def on_lost_membership(self, reason: str) -> None:
        """Release all work without a commit, because this member no longer owns any of it."""
        ...

    def on_confirmed_changed(self, confirmed: bool) -> None:
        """Record whether the coordinator certainly keeps this member now. Synchronous."""
        ...

    def report_error(self, error: Exception) -> None:
        """Store an error for the application, which its next call raises. Synchronous.

        It is a refusal by the group, a failed assignment, or fencing.
        """
        ...


class MemberHandler(GroupHandler, Protocol):
    """A handler that is closed with its member, and remembers the last error."""

    last_error: Exception | None

    def close(self) -> None:
        """Begin no more generations, and wake the waiting tasks. Synchronous."""
        ...

    async def end_work(self) -> None:
        """End the application's present work, and wait until the application has left its body."""
        ...
