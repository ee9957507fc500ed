"""The interface between a consumer and its membership in a group, for both group protocols.

A `Membership` keeps the consumer in its group: it joins, sends heartbeats, learns what the group
assigns to this member, and leaves. It knows nothing of records. The membership calls the
`PartitionReconciler`, which applies the rules of revocation: it begins and stops the reading of
partitions, commits offsets, and calls the listener. The reconciler does not depend on group
protocols, and the subscription state, positions, and fetchers depend on neither.

    program ──subscribe, asks──▶ Membership ──assign, revoke, lose──▶ Reconciler ──▶ partitions
                                     │                                    │
                                coordinator                     offsets, listener, commits
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.config.consumer import ConsumerConfig
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
    from aiokclient.consumer.membership.reconciler import PartitionReconciler
    from aiokclient.consumer.membership.rewind.rewind import GroupRewinder
    from aiokclient.consumer.state.subscription import SubscriptionState
    from aiokclient.consumer.topics import SubscribedTopics
    from aiokclient.types import GroupMetadata

__all__ = ["Membership", "MembershipParts"]


class Membership(Protocol):
    """The membership of one consumer in its group. Synchronous calls only notify its task."""

    @property
    def connection_owner(self) -> Hashable:
        """The owner of the connection that heartbeats and commits share (Purpose.GROUP)."""
        ...

    @property
    def metadata(self) -> GroupMetadata:
        """The member id and generation; without a membership, no id and generation -1."""
        ...

    @property
    def can_be_outdated(self) -> bool:
        """Whether the coordinator may have a newer identity than `metadata`.

        That is so while a request to join, or a heartbeat under KIP-848, is not answered.
        """
        ...

    @property
    def confirmed_until(self) -> float:
        """The time, on the monotonic clock, until which the coordinator certainly keeps the member.

        It is the time at which the last answered request was sent, plus the session timeout. After
        that time no records are delivered until the coordinator responds to a heartbeat. The value
        is -inf while this consumer is not a member.
        """
        ...

    @property
    def joins(self) -> bool:
        """Whether this consumer is a member, or becomes one without a call by the application.

        False after it has left because of `max_poll_interval_ms`, and after the group refused it.
        """
        ...

    @property
    def rebalancing_since(self) -> float | None:
        """The monotonic time at which the consumer began to wait for its group.

        None if it does not wait.
        """
        ...

    @property
    def answered_at(self) -> float:
        """The time of the last request whose response confirmed the membership."""
        ...

    @property
    def settled(self) -> bool:
        """Whether this consumer is a member and owns its assignment, which may be empty."""
        ...

    async def run(self) -> None:
        """Keep the consumer in the group until this call is cancelled or `leave` is called.

        It waits while nothing is subscribed. Raises a fatal error, which fails the consumer.
        """
        ...

    def on_subscription_changed(self) -> None:
        """Use a new subscription. Leave the group if the subscription is empty. Synchronous."""
        ...

    def renew_partitions(self) -> None:
        """Release the partitions that the application has given up, and take them again.

        They were given up by an `unsubscribe` before a `subscribe` to the same topics, of which the
        group needs to know nothing. Synchronous.
        """
        ...

    def on_poll_overdue(self, reason: str) -> None:
        """Leave the group, because the application does not request records. Synchronous.

        All partitions that were owned are lost. The consumer stays out until
        `on_records_requested` is called.
        """
        ...

    def on_records_requested(self) -> None:
        """Join again after `on_poll_overdue`: the application requests records. Synchronous."""
        ...

    def rejoin(self, reason: str) -> None:
        """Request new assignments from the group. Synchronous."""
        ...

    def start_over(self, reason: str) -> None:
        """Lose all partitions, and join as a new member. Synchronous.

        It is called when the coordinator cannot know this member.
        """
        ...

    async def leave(self, timeout: float) -> None:
        """Leave the group permanently, within `timeout` seconds, and end `run`.

        All partitions must have been revoked before. The coordinator keeps a member with an
        instance id, because its next start replaces it.
        """
        ...


class MembershipParts(NamedTuple):
    """The collaborators of a membership."""

    cluster: ClusterClient
    config: ConsumerConfig
    subscription: SubscriptionState
    topics: SubscribedTopics
    """The topics that the consumer subscribes to, which `on_subscription_changed` reads."""
    reconciler: PartitionReconciler
    coordinator: ConsumerCoordinator
    """The owner of the membership, which hears of errors of the group and of a new identity."""
    supervisor: Supervisor
    """The owner of the background tasks and callbacks. If one raises, the consumer fails."""
    rewinder: GroupRewinder | None = None
    """The rewind requests, which only the classic protocol supports."""
