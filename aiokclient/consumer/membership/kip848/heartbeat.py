"""The contents and the times of heartbeats of the newer consumer protocol (KIP-848).

A heartbeat contains only the fields that have changed since the previous one. A full heartbeat
contains all fields. It is sent to join the group, and after any failure, because it is then
unknown which heartbeats the coordinator has received.

Heartbeats are sent at the interval that the coordinator requests, and immediately when the member
has news for it. Of consecutive heartbeats with news, the first FREE are not delayed. Later ones are
delayed by increasing times, so that a coordinator that keeps changing the assignment does not keep
the member busy.

The brokers determine the session timeout, and responses to heartbeats do not contain it. A member
has to know it, because it stops reading when it has received no response for that time. The configs
of the group contain it. A consumer without permission to read them uses its own
`session_timeout_ms`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from aiokclient.cluster.targets import AnyBroker
from aiokclient.consumer.membership.kip848.states import JOIN_EPOCH
from aiokclient.errors import KafkaError, error_for
from aiokclient.policy import Backoff, Scope
from aiokclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from aiokclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from aiokclient.types import GroupMetadata, text_problem
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.clock import Clock
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.config.consumer import ConsumerConfig

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
        member: GroupMetadata,
        wanted: HeartbeatSubscription,
        owned: TopicIdPartitions,
        version: int = REGEX_FROM,
    ) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat. If `member.generation_id` is 0, it joins the group.

        `version` is the version of the request in which it will be sent.
        """
        config = self._config
        request = self._build_minimal(member.member_id, member.generation_id)
        if member.generation_id == JOIN_EPOCH:
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
        return self._build_minimal(member_id, LEAVE_FOR_A_WHILE if static else LEAVE)

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
    # The end of the text is \Z in Python and \z in RE2, which has no \Z.
    text = pattern.pattern.replace(r"\Z", r"\z")
    text = f"(?{letters}){text}" if letters else text
    return None if text_problem(text) else text


FREE = 5
"""Number of consecutive heartbeats with news that are sent without a delay."""

SHORTEST_S = 0.1
"""The shortest interval between heartbeats in seconds, even if the coordinator requests less."""

PATIENCE = 0.5
"""Fraction of the session timeout after which an unanswered heartbeat is sent again.

It is then sent on a new connection.
"""

GROUP = 32
"""The type of resource that KIP-848 has added for the configs of groups."""
NAME = "consumer.session.timeout.ms"
PATIENCE_S = 5.0
"""The longest time in seconds for a lookup. No records are delivered during the first lookup."""


class HeartbeatSchedule:
    """The times of one member's heartbeats, on the monotonic clock.

    `usual_s` is the interval if the coordinator requests none. `session_s` is the session timeout
    until `set_session` is called. `backoff` has the delays of heartbeats with news after the first
    FREE ones.
    """

    def __init__(self, usual_s: float, session_s: float, backoff: Backoff, clock: Clock) -> None:
        self.session_s = session_s
        self.knows_session = False
        """Whether the lookup of the session timeout has ended, with or without a result."""
        self.answered_at = -math.inf
        """The time at which the last heartbeat with a response was sent."""
        self._usual_s = usual_s
        self._backoff = backoff
        self._clock = clock
        self._due = self._not_before = -math.inf
        self._early = 0

    def set_session(self, session_s: float | None) -> None:
        """Store the session timeout of the group. None keeps the previous value."""
        self.knows_session = True
        if session_s is not None:
            self.session_s = session_s

    def find_next_time(self, *, has_news: bool) -> float:
        """Return the time of the next heartbeat. One with news does not wait for the interval."""
        return self._not_before if has_news else max(self._due, self._not_before)

    def on_send(self, *, has_news: bool) -> None:
        """Record that a heartbeat is about to be sent."""
        self._early = self._early + 1 if has_news else 0

    def find_timeout_s(self, request_s: float) -> float:
        """Return the seconds to wait for a response before the connection is closed."""
        return min(request_s, self.session_s * PATIENCE)

    def on_response(self, sent_at: float, wanted_ms: int) -> None:
        """Record the response to a heartbeat, and the interval that it requests."""
        self.answered_at = sent_at
        self._due, self._not_before = sent_at + self._limit_interval(wanted_ms), -math.inf
        if self._early > FREE:
            pause_s = self._backoff.compute_delay_s(self._early - FREE, self._clock.rng)
            self._not_before = sent_at + pause_s

    def delay_next_until(self, until: float) -> None:
        """Send nothing before the time `until`, because an attempt failed."""
        self._not_before = until

    def _limit_interval(self, wanted_ms: int) -> float:
        """Return the interval that the coordinator requests, limited to reasonable values."""
        if wanted_ms <= 0:
            return self._usual_s
        return max(min(wanted_ms / 1000, self.session_s * PATIENCE), SHORTEST_S)


async def session_timeout_ms(cluster: ClusterClient, group_id: str) -> int | None:
    """Return the session timeout of a group in ms, or None if the brokers do not return it."""
    resource = DescribeConfigsResource(
        resource_type=GROUP, resource_name=group_id, configuration_keys=[NAME]
    )
    try:
        request = DescribeConfigsRequest(resources=[resource])
        answer = await cluster.request(
            request, AnyBroker(), timeout=PATIENCE_S, scope=Scope.ADMIN, check=refusal
        )
    except KafkaError:
        return None
    values = [
        each.value
        for result in answer.results
        for each in result.configs or ()
        if each.name == NAME and each.value is not None
    ]
    return int(values[0]) if values else None


def refusal(answer: DescribeConfigsResponse) -> KafkaError | None:
    """Return the error of a response, if it has one."""
    errors = [error_for(result.error_code, result.error_message) for result in answer.results]
    return next((error for error in errors if error is not None), None)
