"""A member of a consumer group, and how its assignment approaches its target (KIP-848).

A member's epoch is the latest epoch of the group that the member has reached. To reach the next
epoch, it first revokes the partitions that are not in its target, and confirms this with its list
of owned partitions. Then it gets the partitions of its target that no other member owns any more:

    STABLE                 it has the target of its epoch
    UNREVOKED_PARTITIONS   it was told to revoke partitions and has not confirmed it
    UNRELEASED_PARTITIONS  it has reached the epoch, but others still own some of its target

`reconcile_member` is one such step, which each heartbeat takes. It is a pure function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from aiokclient.testing.broker.groups.server_assignors import PartitionIds

NOTHING: PartitionIds = frozenset()
LEAVING = -1
AWAY = -2
"""The epoch of a static member that has left and may return under another member id."""


class ConsumerMemberState(Enum):
    STABLE = "stable"
    UNREVOKED_PARTITIONS = "unrevoked"
    UNRELEASED_PARTITIONS = "unreleased"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSide:
    """The additional state of a member that uses the classic protocol in a KIP-848 group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member as the coordinator knows it."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: ConsumerMemberState = ConsumerMemberState.STABLE
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""
    assignor: str | None = None
    assigned: PartitionIds = NOTHING
    revoking: PartitionIds = NOTHING
    classic: ClassicSide | None = None

    @property
    def held_partitions(self) -> PartitionIds:
        """The partitions that no other member may own yet."""
        return self.assigned | self.revoking

    @property
    def subscription(self) -> tuple[frozenset[str], str]:
        return frozenset(self.topics), self.regex

    def is_settled(self, epoch: int) -> bool:
        """Return whether the member has all partitions of the target of `epoch`."""
        return self.state is ConsumerMemberState.STABLE and self.epoch == epoch


def reconcile_member(
    member: ConsumerMember,
    epoch: int,
    target: PartitionIds,
    free: Callable[[PartitionIds], PartitionIds],
    owned: PartitionIds | None,
) -> ConsumerMember:
    """Return the member one step closer to its target of `epoch`.

    `free(partitions)` returns the partitions that no other member owns. `owned` are the partitions
    that the member reports as its own, or None if it did not report them.
    """
    if member.is_settled(epoch) and member.assigned <= target:
        return member
    if member.state is ConsumerMemberState.UNREVOKED_PARTITIONS and _has_any(
        owned, member.revoking
    ):
        return member
    kept = member.assigned & target
    revoking = member.assigned - kept
    if revoking and _has_any(owned, revoking):
        state = ConsumerMemberState.UNREVOKED_PARTITIONS
        return replace(member, state=state, assigned=kept, revoking=revoking)
    wanted = target - kept
    available = free(wanted)
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.previous_epoch if epoch == member.epoch else member.epoch,
        state=(
            ConsumerMemberState.STABLE
            if available == wanted
            else ConsumerMemberState.UNRELEASED_PARTITIONS
        ),
        assigned=kept | available,
        revoking=NOTHING,
    )


def _has_any(owned: PartitionIds | None, partitions: PartitionIds) -> bool:
    return owned is None or not partitions.isdisjoint(owned)
