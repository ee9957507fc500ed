"""Heartbeats of members of groups whose coordinator assigns (KIP-848 and KIP-932).

Members of consumer groups and of share groups send one kind of request, the heartbeat. It contains
the member's epoch: 0 in a heartbeat that joins the group, -1 in one that leaves it. The response
contains the present epoch, the interval until the next heartbeat, and the assignment if it has
changed. `HeartbeatApi` describes the two kinds of heartbeats.

A member is a table of states with a loop that executes it. The loop works with these objects:

- `HeartbeatSchedule` has the times of heartbeats. They are sent at the interval that the
  coordinator requests, and immediately when the member has news for it. Of consecutive heartbeats
  with news, the first FREE are not delayed. Later ones are delayed by increasing times, so that a
  coordinator that keeps changing the assignment does not keep the member busy. A member that
  expects an assignment soon may use a shorter interval.
- `HeartbeatConnection` sends heartbeats to the coordinator of the group, on a connection that no
  long requests use, and finds the coordinator again when it has moved. One heartbeat is sent at a
  time.

Both belong to `MemberHeartbeats`, which sends one heartbeat, and records its response or failure.
The loop decides what to do about an error: codes that concern the membership are events of its
table, and the policy decides about all others. A failed heartbeat is not repeated unchanged: it is
then unknown which heartbeats the coordinator has received, so the next one contains the whole state
of the member.

The brokers determine the session timeout, and responses to heartbeats do not contain it. The
configs of the group contain it; `find_session_timeout_ms` returns it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from uuid import UUID

from aiokclient.cluster.requests.attempts import CallProgress
from aiokclient.cluster.targets import AnyBroker, Coordinator
from aiokclient.errors import (
    ClusterAuthorizationError,
    GroupAuthorizationError,
    KafkaError,
    TopicAuthorizationError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.log.limited_log import LimitedLog
from aiokclient.network.pool import Purpose
from aiokclient.policy import Action, Attempts, Backoff, Decision, Scope, classify
from aiokclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.clock import Clock
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.group.meters import GroupMeters
    from aiokclient.network.connection import BrokerConnection
    from aiokclient.protocol.messages import consumer_group_heartbeat, share_group_heartbeat
    from aiokclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
    from aiokclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
    from aiokclient.protocol.schema import Request

JOIN_EPOCH: Final = 0
"""The epoch of heartbeats that join."""

LEAVE_EPOCH: Final = -1
"""The epoch of the heartbeat by which a member leaves for good."""

FREE: Final = 5
"""Number of consecutive heartbeats with news that are sent without a delay."""

SHORTEST_S: Final = 0.1
"""The shortest interval between heartbeats in seconds, even if the coordinator requests less."""

PATIENCE: Final = 0.5
"""Fraction of the session timeout after which an unanswered heartbeat is sent again.

It is then sent on a new connection.
"""

LEAVE_ATTEMPTS: Final = 3
"""Number of attempts to tell the coordinator that the member leaves."""

SWITCHED_OFF: Final = (UnsupportedVersionError.code,)
"""Error codes of a broker that knows the request but has the protocol disabled."""

PERMISSION_CODES: Final[frozenset[int | None]] = frozenset(
    {
        TopicAuthorizationError.code,
        GroupAuthorizationError.code,
        ClusterAuthorizationError.code,
    }
)
"""Error codes of a missing permission. The member tries again, because it may be granted later."""

GROUP: Final = 32
"""The type of resource that KIP-848 has added for the configs of groups."""
PATIENCE_S: Final = 5.0
"""The longest time in seconds for a lookup. No records are delivered during the first lookup."""


class TopicIdPartition(NamedTuple):
    """A partition, identified by its topic id and number."""

    topic_id: UUID
    partition: int


TopicIdPartitions: TypeAlias = frozenset[TopicIdPartition]


def partitions_of(
    topics: Iterable[consumer_group_heartbeat.TopicPartitions]
    | Iterable[share_group_heartbeat.TopicPartitions],
) -> TopicIdPartitions:
    """Return the partitions of a list in the form of the protocol."""
    return frozenset(
        TopicIdPartition(each.topic_id, index) for each in topics for index in each.partitions
    )


def make_member_id(clock: Clock) -> str:
    """Return a new member id.

    The member makes its own id, so that a lost response to the first heartbeat leaves no second
    member in the group (KIP-1082).
    """
    return str(UUID(int=clock.rng.getrandbits(128), version=4))


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
        self.usual_s = usual_s
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

    def on_response(self, sent_at: float, wanted_ms: int, longest_s: float = math.inf) -> None:
        """Record the response to a heartbeat, and the interval that it requests.

        The next heartbeat is due after `longest_s` seconds at the latest. A member that waits for
        an assignment may give less than the coordinator requests.
        """
        self.answered_at = sent_at
        interval_s = min(self._limit_interval(wanted_ms), longest_s)
        self._due, self._not_before = sent_at + interval_s, -math.inf
        if self._early > FREE:
            pause_s = self._backoff.compute_delay_s(self._early - FREE, self._clock.rng)
            self._not_before = sent_at + pause_s

    def delay_next_until(self, until: float) -> None:
        """Send nothing before the time `until`, because an attempt failed."""
        self._not_before = until

    def _limit_interval(self, wanted_ms: int) -> float:
        """Return the interval that the coordinator requests, limited to reasonable values."""
        if wanted_ms <= 0:
            return self.usual_s
        return max(min(wanted_ms / 1000, self.session_s * PATIENCE), SHORTEST_S)


R = TypeVar("R", bound="ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse")
"""The response to a kind of heartbeat."""


class HeartbeatApi(NamedTuple):
    """A kind of heartbeat: that of consumer groups, or that of share groups."""

    request: type[Request[Any]]
    name: str
    """The name of the request in errors."""
    scope: Scope
    log_part: str
    """The last part of the logger's name."""
    advice: str
    """The message of the error if the coordinator does not support it, or has it disabled."""


class HeartbeatConnection(Generic[R]):
    """The heartbeats to the coordinator of `group_id`. `owner` owns and closes the connection.

    Commits of the same owner use this connection as well.
    """

    def __init__(
        self, cluster: ClusterClient, group_id: str, owner: Hashable, api: HeartbeatApi
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._owner = owner
        self._api = api
        self._retry = Attempts(math.inf, Backoff.of(cluster.config), cluster.clock)
        self._log = cluster.make_log(api.log_part, group_id)
        self.progress = CallProgress(Coordinator("group", group_id), api.request.api_key)
        self.was_answered = True
        """Whether the last call of `send_heartbeat` has sent nothing, or got a response."""

    async def find_version(self) -> int:
        """Return the version of the heartbeat that the coordinator supports.

        Raises UnsupportedVersionError if it supports none, and the errors of connecting.
        """
        connection = await self._connect_to_coordinator()
        try:
            return connection.broker.version_of(self._api.request)
        except UnsupportedVersionError as error:
            broker = connection.broker.node_id
            raise UnsupportedVersionError(
                self._api.advice, api=self._api.name, broker=broker
            ) from error

    async def send_heartbeat(self, request: Request[R], timeout_s: float) -> R:
        """Send a heartbeat and return the response.

        Raises the error in the response, or the error of the connection.
        """
        connection = await self._connect_to_coordinator()
        self.was_answered = False
        self.progress.note_request(connection.broker.node_id, self._cluster.clock.monotonic())
        response: R = await connection.send(request, timeout_s=timeout_s)
        self.was_answered = True
        off = response.error_code in SWITCHED_OFF
        message = self._api.advice if off else response.error_message
        error = error_for(
            response.error_code,
            message,
            api=self._api.name,
            broker=connection.broker.node_id,
            resource=f"group {self._group_id}",
        )
        if error is not None:
            raise error
        self.progress.note_success()
        return response

    def reset_failures(self) -> None:
        """Reset the count of failures after a response to a member. Synchronous.

        It is not called after a response to a join, because a member that is fenced after each
        join must back off.
        """
        self._retry.start_over()

    def handle_failure(self, error: KafkaError) -> Action:
        """Return the action for a failed attempt, and forget a coordinator that has moved.

        Synchronous.
        """
        self.progress.note_failure(error)
        scope = self._api.scope
        decision = classify(error, scope)
        if decision is Decision.REFRESH_AND_RETRY:
            self._cluster.coordinators.forget_coordinator("group", self._group_id)
        action = Action(decision, self._retry.take_pause_after_s(error, scope))
        if decision.again:
            self._cluster.refusals.log_refusal(error, self._retry.attempt)
        return action

    async def leave_group(self, request: Request[R], timeout_s: float) -> KafkaError | None:
        """Send the heartbeat that leaves the group, in at most LEAVE_ATTEMPTS attempts.

        A failure is only logged. Return the last one if no attempt has succeeded.
        """
        failure: KafkaError | None = None
        for _ in range(LEAVE_ATTEMPTS):
            try:
                await self.send_heartbeat(request, timeout_s)
                return None
            except KafkaError as error:
                failure = error
                action = self.handle_failure(error)
                if not action.again:
                    # The coordinator removes the member anyway when its session times out.
                    extra = {"event": "group_leave_failed"}
                    self._log.info("Could not leave the group: %s", error, extra=extra)
                    break
                await asyncio.sleep(action.delay_s)
        return failure

    async def _connect_to_coordinator(self) -> BrokerConnection:
        node_id = await self._cluster.coordinators.locate_coordinator("group", self._group_id)
        return await self._cluster.connect(node_id, Purpose.GROUP, self._owner)


class MemberHeartbeats(Generic[R]):
    """One member's heartbeats, with their schedule, connection, and metrics.

    `send` sends one. Then the member calls `on_response` or `on_failure`, unless the membership for
    which it was sent has ended in the meantime.
    """

    def __init__(
        self,
        connection: HeartbeatConnection[R],
        schedule: HeartbeatSchedule,
        meters: GroupMeters,
        clock: Clock,
        log: LimitedLog,
        request_s: float,
    ) -> None:
        self.connection = connection
        self.schedule = schedule
        self.is_unanswered = False
        """Whether the coordinator may have executed a heartbeat of which no response has come."""
        self._meters = meters
        self._clock = clock
        self._log = log
        self._request_s = request_s

    async def send(self, request: Request[R]) -> tuple[R, float]:
        """Send a heartbeat; return the response, and the monotonic time of sending.

        Raises the error in the response, or the error of the connection.
        """
        sent_at = self._clock.monotonic()
        self._meters.on_heartbeat_sent(sent_at)
        timeout_s = self.schedule.find_timeout_s(self._request_s)
        self.is_unanswered = True
        response = await self.connection.send_heartbeat(request, timeout_s)
        self._meters.on_heartbeat_answered(sent_at)
        return response, sent_at

    def on_response(
        self, response: R, sent_at: float, *, joined: bool, longest_s: float = math.inf
    ) -> None:
        """Record a response, which determines the time of the next heartbeat. Synchronous.

        `joined` says that the heartbeat has joined the group. `longest_s` is that of the schedule.
        """
        self.is_unanswered = False
        if not joined:
            self.connection.reset_failures()
        wanted_ms = response.heartbeat_interval_ms
        self.schedule.on_response(sent_at, wanted_ms, longest_s)
        if wanted_ms <= 0:
            text = "The coordinator asks for a heartbeat every %d ms. Sending one every %g s."
            usual_s, extra = self.schedule.usual_s, {"event": "group_interval_refused"}
            self._log.write(logging.WARNING, "interval", text, wanted_ms, usual_s, extra=extra)

    def on_failure(self, error: KafkaError) -> Action:
        """Return the action for a failed heartbeat, and delay the next one. Synchronous."""
        action = self.connection.handle_failure(error)
        self.schedule.delay_next_until(self._clock.monotonic() + action.delay_s)
        return action


async def find_session_timeout_ms(
    cluster: ClusterClient, group_id: str, config_name: str
) -> int | None:
    """Return the session timeout of a group in ms, or None if the brokers do not return it.

    `config_name` is the name of the group's config that contains it.
    """
    resource = DescribeConfigsResource(
        resource_type=GROUP, resource_name=group_id, configuration_keys=[config_name]
    )
    try:
        request = DescribeConfigsRequest(resources=[resource])
        answer = await cluster.request(
            request, AnyBroker(), timeout=PATIENCE_S, scope=Scope.ADMIN, check=_find_refusal
        )
    except KafkaError:
        return None
    values = [
        each.value
        for result in answer.results
        for each in result.configs or ()
        if each.name == config_name and each.value is not None
    ]
    return int(values[0]) if values else None


def _find_refusal(answer: DescribeConfigsResponse) -> KafkaError | None:
    """Return the error of a response, if it has one."""
    errors = [error_for(result.error_code, result.error_message) for result in answer.results]
    return next((error for error in errors if error is not None), None)
