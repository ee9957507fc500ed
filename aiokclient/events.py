"""The events of a client, which `x.events()` yields.

    async for event in client.events():
        match event:
            case LeaderMoved(topic=topic, partition=partition, broker=broker): ...
            case Disconnected(broker=broker, cause=cause): ...

Each event has the `time` in milliseconds since the epoch, the id of the `broker` that it concerns
(None if there is none, or if it is a bootstrap server whose id is not known yet), and the `cause`,
an exception or None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiokclient.types import ConsumerRecord, TopicPartition

__all__ = [
    "Assigned",
    "Authenticated",
    "ClusterChanged",
    "Connected",
    "Disconnected",
    "Event",
    "Failed",
    "LeaderMoved",
    "LockExpiring",
    "LockLost",
    "Rebalanced",
    "Rebootstrapped",
    "RegistryOutage",
    "SessionReset",
    "Throttled",
    "TokenRefreshed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The base class of all events."""

    time: int
    """Milliseconds since the epoch."""
    broker: int | None = None
    """The id of the broker that the event concerns, or None."""
    cause: BaseException | None = None
    """The error that led to the event, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected(Event):
    """A connection is ready for requests."""

    address: str
    """The host and port of the broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected(Event):
    """A connection ended, or an attempt to connect failed.

    The `cause` says why. It is None if the client closed the connection, for example because it
    was idle.
    """

    address: str
    """The host and port of the broker."""
    connected: bool
    """Whether there was a connection. Otherwise, an attempt to connect failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated(Event):
    """A broker has accepted the credentials of the client on one connection."""

    mechanism: str
    """The SASL mechanism, such as SCRAM-SHA-512."""
    again: bool
    """Whether this was a re-authentication of an open connection (KIP-368)."""
    lifetime_ms: int
    """Milliseconds until the next re-authentication is required, or 0 for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRefreshed(Event):
    """The token provider has returned a token, or has failed, in which case `cause` says why."""

    expires_at_ms: int | None
    """The expiry of the token that is in use now, in milliseconds since the epoch.

    None means that there is no token.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderMoved(Event):
    """A partition has another leader. `broker` is the new leader, or None without a leader."""

    topic: str
    partition: int
    old_broker: int | None
    """The id of the previous leader, or None if there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebootstrapped(Event):
    """The client has begun to find its cluster again, from its bootstrap servers (KIP-899)."""

    trigger: str
    """The reason: "unavailable", "timeout", or "required" (KIP-1102)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChanged(Event):
    """The bootstrap servers lead to a cluster with another id."""

    old_cluster_id: str
    new_cluster_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalanced(Event):
    """The partitions of a consumer, or the generation of a group member, have changed."""

    group_id: str
    assigned: frozenset[TopicPartition] = frozenset()
    """The partitions that were added. Empty for a `GroupMember`."""
    revoked: frozenset[TopicPartition] = frozenset()
    """The partitions that were taken away after the application could commit."""
    lost: frozenset[TopicPartition] = frozenset()
    """The partitions that were taken away without a commit. Other members may own them already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(Event):
    """The partitions of a share consumer have changed. The records that it holds stay locked."""

    added: frozenset[TopicPartition]
    removed: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockLost(Event):
    """A share consumer has lost the lock of a record, which may be delivered to another member."""

    record: ConsumerRecord[Any, Any]
    reason: str
    """The reason, as in `LockLostError.reason`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockExpiring(Event):
    """A quarter of the lock of a record is left, and the share consumer does not renew it."""

    record: ConsumerRecord[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReset(Event):
    """A share consumer opens a new share session with a broker in place of the one before."""

    reason: str
    """The reason: the name of the broker's error, or "disconnected"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOutage(Event):
    """A URL of a schema registry gave no answer to a request, which is sent again if time is left.

    `SchemaRegistry.events()` yields it. `broker` is None.
    """

    url: str
    """The URL, without a user and a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled(Event):
    """A broker has slowed down the client, which has exceeded a quota."""

    api: str
    """The API of the request, such as Produce."""
    throttle_ms: int
    """Milliseconds for which the broker delays the next response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """The client has failed: its state is FAILED, and each call raises the `cause`."""
