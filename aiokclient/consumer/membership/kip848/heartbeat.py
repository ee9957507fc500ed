"""The contents of heartbeats of the newer consumer protocol (KIP-848). Without IO.

A heartbeat contains only the fields that have changed since the previous one. A full heartbeat
contains all fields. It is sent to join the group, and after any failure, because it is then
unknown which heartbeats the coordinator has received.
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
from aiokclient.types import GroupMetadata, text_problem

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
"""The first version of the request in which brokers evaluate regular expressions."""

FLAGS = {re.IGNORECASE: "i", re.DOTALL: "s", re.MULTILINE: "m"}


class TopicIdPartition(NamedTuple):
    """A partition, identified by its topic id and number."""

    topic_id: UUID
    partition: int


TopicIdPartitions: TypeAlias = frozenset[TopicIdPartition]


class HeartbeatSubscription(NamedTuple):
    """The subscription of a member in a heartbeat: topic names or a regular expression."""

    topics: tuple[str, ...] = ()
    regex: str = ""


class MemberSettings(NamedTuple):
    """The properties of a member that never change."""

    group_id: str
    instance_id: str | None
    rack: str | None
    rebalance_timeout_ms: int
    assignor: str | None


class HeartbeatBuilder:
    """A builder of one member's heartbeats, which remembers the fields that were sent last."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._wanted: HeartbeatSubscription | None = None
        self._owned: TopicIdPartitions | None = None
        self._regex_is_known = settings.instance_id is not None
        """Whether the coordinator may know a regular expression of this member.

        It is true even if no response has confirmed one, and for a static member, because the
        member that it replaces may have sent one."""

    def forget_sent(self) -> None:
        """Make the next heartbeat a full one. Synchronous."""
        self._wanted = self._owned = None

    def has_sent(self, wanted: HeartbeatSubscription, owned: TopicIdPartitions) -> bool:
        """Return whether the last heartbeat had this subscription and these owned partitions.

        Synchronous.
        """
        return self._wanted == wanted and self._owned == owned

    def build(
        self,
        member: GroupMetadata,
        wanted: HeartbeatSubscription,
        owned: TopicIdPartitions,
        version: int = REGEX_FROM,
    ) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat. If `member.generation_id` is 0, it joins the group.

        `version` is the version of the request in which it will be sent.
        """
        settings = self._settings
        request = self._build_bare(member.member_id, member.generation_id)
        if member.generation_id == JOIN_EPOCH:
            self.forget_sent()
            owned = frozenset()
        full = self._wanted is None or self._owned is None
        before = self._wanted or HeartbeatSubscription()
        if full:
            request.rack_id = settings.rack
            request.rebalance_timeout_ms = settings.rebalance_timeout_ms
            request.server_assignor = settings.assignor
        if full or wanted.topics != before.topics:
            request.subscribed_topic_names = list(wanted.topics)
        self._regex_is_known = self._regex_is_known or bool(wanted.regex)
        # Without this field, the coordinator keeps an earlier expression. An empty one cancels it.
        if version >= REGEX_FROM and (
            wanted.regex != before.regex or (full and self._regex_is_known)
        ):
            request.subscribed_topic_regex = wanted.regex
        if full or owned != self._owned:
            request.topic_partitions = by_topic(owned)
        self._wanted, self._owned = wanted, owned
        return request

    def build_last(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat by which a member leaves; a static member may join again later."""
        self.forget_sent()
        static = self._settings.instance_id is not None
        return self._build_bare(member_id, LEAVE_FOR_A_WHILE if static else LEAVE)

    def _build_bare(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._settings.instance_id,
        )


def by_topic(partitions: Iterable[TopicIdPartition]) -> list[TopicPartitions]:
    """Return partitions in the form of the protocol, grouped by topic id."""
    topics: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id=each, partitions=topics[each]) for each in topics]


def partitions_of(topics: Iterable[TopicPartitions]) -> TopicIdPartitions:
    """Return the partitions of a list in the form of the protocol."""
    return frozenset(
        TopicIdPartition(each.topic_id, index) for each in topics for index in each.partitions
    )


def expression(pattern: re.Pattern[str]) -> str | None:
    """Return a pattern in the syntax of RE2, the brokers' library: its flags, then its text.

    Return None for a pattern with re.VERBOSE, which RE2 does not support, and for a text that no
    request could contain. The coordinator refuses
    other unsupported features (lookahead, lookbehind, backreferences) with
    InvalidRegularExpressionError.
    """
    extra = pattern.flags & ~re.compile(pattern.pattern).flags
    if pattern.flags & re.VERBOSE:
        return None
    letters = "".join(letter for flag, letter in FLAGS.items() if extra & flag)
    text = pattern.pattern.replace(r"\Z", r"\z")
    text = f"(?{letters}){text}" if letters else text
    return None if text_problem(text) else text
