"""The session timeout of a group of the newer consumer protocol (KIP-848).

The brokers determine it, and responses to heartbeats do not contain it. A member has to know it,
because it stops reading when it has received no response for that time. The configs of the group
contain it. A consumer without permission to read them uses its own `session_timeout_ms`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import KafkaError, error_for
from aiokclient.policy import Scope
from aiokclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.consumer.membership.base import MembershipParts
    from aiokclient.consumer.membership.kip848.schedule import HeartbeatSchedule
    from aiokclient.consumer.state.wakeup import Wakeup

__all__ = ["SessionTimeoutWatch", "session_timeout_ms"]

GROUP = 32
NAME = "consumer.session.timeout.ms"
PATIENCE_S = 5.0
"""The longest time in seconds for a lookup. No records are delivered during the first lookup."""


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
            self._parts.changed()
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
