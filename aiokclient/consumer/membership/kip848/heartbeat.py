"""The contents of heartbeats of the newer consumer protocol (KIP-848).

A heartbeat contains only the fields that have changed since the previous one. A full heartbeat
contains all fields. It is sent to join the group, and after any failure, because it is then
unknown which heartbeats the coordinator has received.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.group.heartbeats import LEAVE_EPOCH, TopicIdPartition, TopicIdPartitions
from aiokclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from aiokclient.types import text_problem
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.config.consumer import ConsumerConfig
    from aiokclient.consumer.membership.kip848.states import Kip848Member

LEAVE_FOR_A_WHILE = -2
REGEX_FROM = 1
"""The first version of the request in which brokers evaluate regular expressions."""

FLAGS = {re.IGNORECASE: "i", re.DOTALL: "s", re.MULTILINE: "m"}


class HeartbeatSubscription(NamedTuple):
    """The subscription of a member in a heartbeat: topic names or a regular expression."""

    topics: tuple[str, ...] = ()
    regex: str = ""


class HeartbeatBuilder:
    """A builder of one member's heartbeats, which remembers the fields that were sent last."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._wanted: HeartbeatSubscription | None = None
        self._owned: TopicIdPartitions | None = None
        self._regex_is_known = config.group_instance_id is not None
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

    def build_next(
        self,
        member: Kip848Member,
        wanted: HeartbeatSubscription,
        owned: TopicIdPartitions,
        version: int = REGEX_FROM,
    ) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat. If the member has no epoch yet, it joins the group.

        `version` is the version of the request in which it will be sent.
        """
        config = self._config
        request = self._build_minimal(member.member_id, member.epoch)
        if not member.has_epoch:
            self.forget_sent()
            owned = frozenset()
        full = self._wanted is None or self._owned is None
        before = self._wanted or HeartbeatSubscription()
        if full:
            request.rack_id = config.client_rack or None
            request.rebalance_timeout_ms = config.max_poll_interval_ms
            request.server_assignor = config.group_remote_assignor
        # Fields that have not changed are null in a heartbeat (KIP-848). The coordinator keeps
        # their last values.
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
        # With epoch -2, the coordinator keeps the partitions of a static member until its session
        # ends. With -1, the member is removed at once (KIP-848).
        static = self._config.group_instance_id is not None
        return self._build_minimal(member_id, LEAVE_FOR_A_WHILE if static else LEAVE_EPOCH)

    def _build_minimal(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._config.group_id or "",
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._config.group_instance_id,
        )


def by_topic(partitions: Iterable[TopicIdPartition]) -> list[TopicPartitions]:
    """Return partitions in the form of the protocol, grouped by topic id."""
    topics: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id=each, partitions=topics[each]) for each in topics]


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
    # The end of the text is \Z in Python and \z in RE2, which has no \Z.
    text = pattern.pattern.replace(r"\Z", r"\z")
    text = f"(?{letters}){text}" if letters else text
    return None if text_problem(text) else text
