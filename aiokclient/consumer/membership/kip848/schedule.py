"""The times of heartbeats, and the session timeout of the group.

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
from typing import TYPE_CHECKING

from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import KafkaError, error_for
from aiokclient.policy import Backoff, Scope
from aiokclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

if TYPE_CHECKING:
    from aiokclient.clock import Clock
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.consumer.membership.base import MembershipParts
    from aiokclient.consumer.state.wakeup import Wakeup

__all__ = ["HeartbeatSchedule", "SessionTimeoutWatch", "session_timeout_ms"]

FREE = 5
"""Number of consecutive heartbeats with news that are sent without a delay."""

SHORTEST_S = 0.1
"""The shortest interval between heartbeats in seconds, even if the coordinator requests less."""

PATIENCE = 0.5
"""Fraction of the session timeout after which an unanswered heartbeat is sent again.

It is then sent on a new connection.
"""

GROUP = 32
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

    def next_at(self, *, has_news: bool) -> float:
        """Return the time of the next heartbeat. One with news does not wait for the interval."""
        return self._not_before if has_news else max(self._due, self._not_before)

    def on_send(self, *, has_news: bool) -> None:
        """Record that a heartbeat is about to be sent."""
        self._early = self._early + 1 if has_news else 0

    def attempt_timeout_s(self, request_s: float) -> float:
        """Return the seconds to wait for a response before the connection is closed."""
        return min(request_s, self.session_s * PATIENCE)

    def on_response(self, sent_at: float, wanted_ms: int) -> None:
        """Record the response to a heartbeat, and the interval that it requests."""
        self.answered_at = sent_at
        self._due, self._not_before = sent_at + self._limit_interval(wanted_ms), -math.inf
        if self._early > FREE:
            pause_s = self._backoff.delay(self._early - FREE, self._clock.rng)
            self._not_before = sent_at + pause_s

    def delay_until(self, until: float) -> None:
        """Send nothing before the time `until`, because an attempt failed."""
        self._not_before = until

    def _limit_interval(self, wanted_ms: int) -> float:
        """Return the interval that the coordinator requests, limited to reasonable values."""
        if wanted_ms <= 0:
            return self._usual_s
        return max(min(wanted_ms / 1000, self.session_s * PATIENCE), SHORTEST_S)


class SessionTimeoutWatch:
    """A task that passes the group's session timeout to the schedule of heartbeats.

    It looks the timeout up at the start, each time that `ended` is set, and, if the brokers have
    returned it, every `metadata_max_age_ms`, because the timeout may change.
    """

    def __init__(
        self, parts: MembershipParts, schedule: HeartbeatSchedule, *, ended: Wakeup
    ) -> None:
        assert parts.config.group_id is not None
        self._group_id = parts.config.group_id
        self._parts = parts
        self._schedule = schedule
        self._ended = ended
        self._stopped = False

    def stop(self) -> None:
        """End `run`. Synchronous."""
        self._stopped = True
        self._ended.set()

    async def run(self) -> None:
        """Look the session timeout up repeatedly, until `stop` is called."""
        cluster = self._parts.cluster
        max_age_s = self._parts.config.metadata_max_age_ms / 1000
        while not self._stopped:
            found_ms = await session_timeout_ms(cluster, self._group_id)
            known = found_ms is not None
            self._schedule.set_session(found_ms / 1000 if found_ms is not None else None)
            self._parts.coordinator.on_identity_changed()
            await self._ended.wait(cluster.clock.monotonic() + max_age_s if known else math.inf)


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
