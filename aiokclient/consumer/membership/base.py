"""The interface between a consumer and its membership in a group, for both group protocols.

A `Membership` keeps the consumer in its group: it joins, sends heartbeats, learns what the group
assigns to this member, and leaves. It knows nothing of records. It tells the `Reconciler`, which
stops and begins the reading of partitions by the rules of revocation, commits, and calls the
listener. The reconciler knows nothing of protocols, and the subscription state, positions and
fetchers know nothing of either.

    program ──subscribe, asks──▶ Membership ──assign, revoke, lose──▶ Reconciler ──▶ partitions
                                     │                                    │
                                coordinator                     offsets, listener, commits
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.background import Callbacks
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.config import ConsumerConfig
    from aiokclient.consumer.membership.rewind.rewind import GroupRewinder
    from aiokclient.consumer.state.subscribed_topics import SubscribedTopics
    from aiokclient.consumer.state.subscription import SubscriptionState
    from aiokclient.types import GroupMetadata

__all__ = ["Membership", "MembershipParts", "Reconciler"]


class Reconciler(Protocol):
    """What takes and releases partitions for a membership. Its task makes one call at a time.

    These calls raise what a listener raises. It must pass through, because it fails the consumer.
    """

    def owned(self) -> list[TopicPartition]:
        """Return the partitions that the group has assigned to this consumer. Synchronous."""
        ...

    async def revoke(self, tps: Collection[TopicPartition], *, deadline: float) -> None:
        """Release partitions in an orderly way.

        Nothing of them is delivered from the call on. It waits for records that are being
        processed, until `deadline` at most (on the monotonic clock). Then it commits what is
        processed and calls `on_revoked`, and the partitions are no longer owned. If the time runs
        out, or the coordinator refuses the commit because this is no longer a member, the
        partitions are lost, as by `lose`.
        """
        ...

    async def assign(self, tps: Collection[TopicPartition]) -> None:
        """Take partitions in addition to those that are owned, and call `on_assigned`.

        Their initial offsets are looked up in the background.
        """
        ...

    async def conclude(self) -> None:
        """End a rebalance: call `on_assigned([])`, once, if nothing is owned."""
        ...

    async def lose(self, tps: Collection[TopicPartition]) -> None:
        """Take note that these partitions are lost: call `on_lost`, without a commit."""
        ...


class Membership(Protocol):
    """What keeps one consumer in its group. Its synchronous calls only inform its task."""

    @property
    def metadata(self) -> GroupMetadata:
        """Member id and generation; -1 and no id while it is not a member."""
        ...

    @property
    def confirmed_until(self) -> float:
        """The time, on the monotonic clock, until which this certainly is a member.

        That is one session timeout after the last answered request was sent. After it nothing is
        delivered until the coordinator answers a heartbeat. -inf while this is not a member.
        """
        ...

    @property
    def joins(self) -> bool:
        """Whether this is a member, or becomes one without any call by the application.

        False after it has left because of `max_poll_interval_ms`, and after the group refused it.
        """
        ...

    @property
    def rebalancing_since(self) -> float | None:
        """The time, on the monotonic clock, since which it waits for its group; or None."""
        ...

    @property
    def answered_at(self) -> float:
        """The time of the last request whose response shows that this is a member."""
        ...

    @property
    def settled(self) -> bool:
        """Whether this is a member that has taken its assignment, which may be empty."""
        ...

    async def run(self) -> None:
        """Join, stay and rejoin, until it is cancelled or `leave` is called.

        It waits while nothing is subscribed. Raises a fatal error, which fails the consumer.
        """
        ...

    def subscribed(self) -> None:
        """Take note of a new subscription; leave the group if it is empty. Synchronous."""
        ...

    def left_behind(self, reason: str) -> None:
        """Leave the group, because the application does not request records. Synchronous.

        Everything that was owned is lost. It stays out until `asked`.
        """
        ...

    def asked(self) -> None:
        """Join again after `left_behind`, because the application requests records. Synchronous."""
        ...

    def rejoin(self, reason: str) -> None:
        """Request new assignments from the group. Synchronous."""
        ...

    async def leave(self, timeout: float) -> None:
        """Leave for good, within `timeout` seconds, and end `run`.

        Everything that is owned was revoked before. The coordinator keeps a member with an
        instance id, because its next start replaces it.
        """
        ...


@dataclass(frozen=True, slots=True)
class MembershipParts:
    """The collaborators of a membership. The callbacks are synchronous."""

    cluster: ClusterClient
    config: ConsumerConfig
    subscription: SubscriptionState
    topics: SubscribedTopics
    """What the consumer subscribes to; read when `subscribed` is called."""
    reconciler: Reconciler
    report: Callable[[Exception], None]
    """Has the next request for records raise an error, because the group refuses something."""
    changed: Callable[[], None]
    """To be called when `metadata` or `confirmed_until` have changed."""
    spawn: Callable[..., None]
    """`spawn(function, *args, name=...)` starts a background task of the consumer."""
    callbacks: Callbacks
    """Schedules callbacks in the loop; one that raises fails the consumer."""
    owner: Hashable
    """Owner of the connection that heartbeats and commits share (Purpose.GROUP)."""
    rewinder: GroupRewinder | None = None
    """Rewind requests, which only the classic protocol passes on."""
