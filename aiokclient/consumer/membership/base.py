"""What a consumer and its membership in a group ask of each other, whichever protocol is spoken.

A `Membership` keeps the consumer in its group: it joins, sends heartbeats, learns what the group
assigns to this member, and leaves. It knows nothing of records. What it learns it tells the
`Reconciler`, which stops and begins the reading of partitions as the rules of revocation say,
commits, and calls the listener. The reconciler knows nothing of protocols, and the subscription
state, positions and fetchers know of neither.

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
    """What a membership has done about partitions. One call at a time, from the membership's task.

    What a listener raises comes out of these calls; it is to be let through, as it fails the
    consumer.
    """

    def owned(self) -> list[TopicPartition]:
        """The partitions that the group has given to this consumer. Plain."""
        ...

    async def revoke(self, tps: Collection[TopicPartition], *, deadline: float) -> None:
        """Gives partitions up in an orderly way.

        Nothing of them is handed out from the call on. What is in hand is waited for, until
        `deadline` at most (on the monotonic clock); then what is processed is committed,
        `on_revoked` called, and the partitions are no longer owned. If the time runs out, or the
        coordinator refuses the commit because this is no member any more, it is as `lose`.
        """
        ...

    async def assign(self, tps: Collection[TopicPartition]) -> None:
        """Takes partitions in addition to those that are owned; calls `on_assigned`.

        Where to begin in them is looked up in the background; nothing waits for it.
        """
        ...

    async def conclude(self) -> None:
        """A rebalance has ended: calls `on_assigned([])`, once, if nothing is owned."""
        ...

    async def lose(self, tps: Collection[TopicPartition]) -> None:
        """The partitions are gone without asking: no commit; calls `on_lost`."""
        ...


class Membership(Protocol):
    """Keeps one consumer in its group. Runs in the background; the plain calls only tell it."""

    @property
    def metadata(self) -> GroupMetadata:
        """Who this member is at present; generation -1 and no member id while it is none."""
        ...

    @property
    def confirmed_until(self) -> float:
        """Until when, on the monotonic clock, this is a member for certain.

        That is when the last answer's request was sent, and the session timeout. After it nothing
        is handed out until the coordinator answers a heartbeat. -inf while this is no member.
        """
        ...

    @property
    def joins(self) -> bool:
        """Whether this is a member, or becomes one without the application's doing.

        False after it has left because of `max_poll_interval_ms`, and after the group refused it.
        """
        ...

    @property
    def rebalancing_since(self) -> float | None:
        """Since when, on the monotonic clock, this member waits for its group; None if not."""
        ...

    @property
    def answered_at(self) -> float:
        """The time at which the last request was sent that shows that the group has this member."""
        ...

    @property
    def settled(self) -> bool:
        """Whether this is a member and has taken over what the group gave it, be it nothing."""
        ...

    async def run(self) -> None:
        """Joins, stays, rejoins, until it is cancelled or `leave` is called.

        While nothing is subscribed it waits. An error that lets nothing go on is raised, and fails
        the consumer.
        """
        ...

    def subscribed(self) -> None:
        """The subscription is another one; if it is empty now, the group is to be left. Plain."""
        ...

    def left_behind(self, reason: str) -> None:
        """The program does not come back for records: leaves the group, without waiting for it.

        What was owned is lost. It stays out until `asked`. Plain.
        """
        ...

    def asked(self) -> None:
        """The program asks for records: joins again if it was left behind. Plain."""
        ...

    def rejoin(self, reason: str) -> None:
        """Has the group agree on assignments anew. Plain."""
        ...

    async def leave(self, timeout: float) -> None:
        """Leaves for good, within `timeout` seconds; `run` ends.

        What is owned was revoked before. A member with an instance id stays known to the
        coordinator, as its next start takes its place.
        """
        ...


@dataclass(frozen=True, slots=True)
class MembershipParts:
    """What a membership is made from. The callbacks are plain."""

    cluster: ClusterClient
    config: ConsumerConfig
    subscription: SubscriptionState
    topics: SubscribedTopics
    """What is subscribed to; read when `subscribed` is called."""
    reconciler: Reconciler
    report: Callable[[Exception], None]
    """The group refuses something: raises an error at the next request for records, once."""
    changed: Callable[[], None]
    """`metadata` or `confirmed_until` are different: commits and the reader look again."""
    spawn: Callable[..., None]
    """`spawn(function, *args, name=...)`: a background task of the consumer."""
    callbacks: Callbacks
    """Callbacks in the loop; one that raises fails the consumer."""
    owner: Hashable
    """Owns the connections: heartbeats and commits share one (Purpose.GROUP)."""
    rewinder: GroupRewinder | None = None
    """Orders to rewind the group, which only the classic protocol passes on."""
