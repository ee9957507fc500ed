"""What a heartbeat of the new consumer protocol says: what changed since the one before. Pure.

A full one says everything. It is sent to join, and after anything went wrong, since nobody knows
then what the coordinator has heard.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias
from uuid import UUID

from aiokclient.consumer.membership.kip848.member import JOIN_EPOCH
from aiokclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from aiokclient.types import GroupMetadata

__all__ = [
    "LEAVE",
    "LEAVE_FOR_A_WHILE",
    "REGEX_FROM",
    "HeartbeatBuilder",
    "TopicIdPartition",
    "TopicIdPartitions",
    "MemberSettings",
    "HeartbeatSubscription",
    "expression",
    "partitions_of",
]

LEAVE = -1
LEAVE_FOR_A_WHILE = -2
REGEX_FROM = 1
"""The version from which brokers evaluate regular expressions."""

FLAGS = {re.IGNORECASE: "i", re.DOTALL: "s", re.MULTILINE: "m"}


class TopicIdPartition(NamedTuple):
    """A partition by the id of its topic."""

    topic_id: UUID
    partition: int


TopicIdPartitions: TypeAlias = frozenset[TopicIdPartition]


class HeartbeatSubscription(NamedTuple):
    """What a member subscribes to, as a heartbeat says it."""

    topics: tuple[str, ...] = ()
    regex: str = ""


class MemberSettings(NamedTuple):
    """What a member says of itself."""

    group_id: str
    instance_id: str | None
    rack: str | None
    rebalance_timeout_ms: int
    assignor: str | None


class HeartbeatBuilder:
    """Makes the heartbeats of one member, and remembers what they said."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._wanted: HeartbeatSubscription | None = None
        self._owned: TopicIdPartitions | None = None

    def forget(self) -> None:
        """The next heartbeat is a full one. Plain."""
        self._wanted = self._owned = None

    def said(self, wanted: HeartbeatSubscription, owned: TopicIdPartitions) -> bool:
        """Whether the coordinator has been told all of this. Plain."""
        return self._wanted == wanted and self._owned == owned

    def build(
        self, member: GroupMetadata, wanted: HeartbeatSubscription, owned: TopicIdPartitions
    ) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat of a member of this epoch; with epoch 0 it joins."""
        settings = self._settings
        request = self._bare(member.member_id, member.generation_id)
        if member.generation_id == JOIN_EPOCH:
            self.forget()
            owned = frozenset()
        full = self._wanted is None or self._owned is None
        before = self._wanted or HeartbeatSubscription()
        if full:
            request.rack_id = settings.rack
            request.rebalance_timeout_ms = settings.rebalance_timeout_ms
            request.server_assignor = settings.assignor
        if full or wanted.topics != before.topics:
            request.subscribed_topic_names = list(wanted.topics)
        # An empty one takes an expression back that was sent before.
        if wanted.regex != before.regex or (full and wanted.regex):
            request.subscribed_topic_regex = wanted.regex
        if full or owned != self._owned:
            request.topic_partitions = by_topic(owned)
        self._wanted, self._owned = wanted, owned
        return request

    def last(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        """The heartbeat with which a member leaves; a static one may come back."""
        self.forget()
        static = self._settings.instance_id is not None
        return self._bare(member_id, LEAVE_FOR_A_WHILE if static else LEAVE)

    def _bare(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._settings.instance_id,
        )


def by_topic(places: Iterable[TopicIdPartition]) -> list[TopicPartitions]:
    """Partitions as the protocol has them."""
    topics: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(places):
        topics.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id=each, partitions=topics[each]) for each in topics]


def partitions_of(topics: Iterable[TopicPartitions]) -> TopicIdPartitions:
    """The partitions that the protocol names."""
    return frozenset(
        TopicIdPartition(each.topic_id, index) for each in topics for index in each.partitions
    )


def expression(pattern: re.Pattern[str]) -> str | None:
    """The pattern as the brokers' library, RE2, takes it: its text, with its flags in front.

    None for re.VERBOSE, which RE2 has not. What else it has not (looking ahead and behind,
    references to groups) the coordinator refuses with InvalidRegularExpressionError.
    """
    extra = pattern.flags & ~re.compile(pattern.pattern).flags
    if pattern.flags & re.VERBOSE:
        return None
    letters = "".join(letter for flag, letter in FLAGS.items() if extra & flag)
    text = pattern.pattern.replace(r"\Z", r"\z")
    return f"(?{letters}){text}" if letters else text
