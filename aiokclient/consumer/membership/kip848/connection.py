"""The connection of a member to its coordinator, on which it sends one heartbeat at a time.

Heartbeats and commits share a connection that no other requests use, so that nothing delays them.
A failed heartbeat is not repeated unchanged: the next one contains the whole state of the member.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiokclient.cluster.requests.attempts import CallProgress
from aiokclient.cluster.targets import Coordinator
from aiokclient.consumer.membership.kip848.states import CODES
from aiokclient.errors import KafkaError, UnsupportedVersionError, error_for
from aiokclient.network.pool import Purpose
from aiokclient.policy import Action, Backoff, Decision, Retry, Scope, classify
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.network.connection import BrokerConnection

__all__ = ["HeartbeatConnection"]

API = "ConsumerGroupHeartbeat"

SWITCHED_OFF = (UnsupportedVersionError.code,)
"""Error codes of a broker that knows the request but has the protocol disabled."""

LEAVE_ATTEMPTS = 3
"""Number of attempts to tell the coordinator that the member leaves."""

ADVICE = (
    "The coordinator does not support the newer consumer protocol (KIP-848). Kafka 4.0 and later "
    "support it unless it is switched off. Use group_protocol='classic'."
)


class HeartbeatConnection:
    """The heartbeats to the coordinator of `group_id`. `owner` owns and closes the connection."""

    def __init__(self, cluster: ClusterClient, group_id: str, owner: Hashable) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._owner = owner
        config = cluster.config
        backoff = Backoff.of(config)
        self._retry = Retry(math.inf, backoff, cluster.clock)
        self._log = cluster.log("consumer", group_id)
        target = Coordinator("group", group_id)
        self._progress = CallProgress(target, ApiKey.CONSUMER_GROUP_HEARTBEAT)
        self.was_answered = True
        """Whether no heartbeat was sent whose response is unknown, since the last `send`."""

    async def version(self) -> int:
        """Return the version of the heartbeat that the coordinator supports.

        Raises UnsupportedVersionError if it supports none, and the errors of connecting.
        """
        connection = await self._connect()
        try:
            return connection.broker.version_of(ConsumerGroupHeartbeatRequest)
        except UnsupportedVersionError as error:
            broker = connection.broker.node_id
            raise UnsupportedVersionError(ADVICE, api=API, broker=broker) from error

    async def send(
        self, request: ConsumerGroupHeartbeatRequest, timeout_s: float
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat and return the response.

        Raises the error in the response, or the error of the connection.
        """
        connection = await self._connect()
        self.was_answered = False
        self._progress.sent(connection.broker.node_id, self._cluster.clock.monotonic())
        response: ConsumerGroupHeartbeatResponse = await connection.send(
            request, timeout_s=timeout_s
        )
        self.was_answered = True
        off = response.error_code in SWITCHED_OFF
        message = ADVICE if off else response.error_message
        error = error_for(
            response.error_code,
            message,
            api=API,
            broker=connection.broker.node_id,
            resource=f"group {request.group_id}",
        )
        if error is not None:
            raise error
        self._progress.succeeded()
        return response

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Return a context manager, in whose body the heartbeats are among the client's calls."""
        self._cluster.calls.add(self._progress)
        try:
            yield
        finally:
            self._cluster.calls.remove(self._progress)

    def succeeded(self) -> None:
        """Reset the count of failures after a response to a member. Synchronous.

        It is not called after a response to a join, because a member that is fenced after each
        join must back off.
        """
        self._retry.succeeded()

    def failed(self, error: KafkaError) -> Action:
        """Return the action for a failed attempt, and forget a coordinator that has moved.

        Synchronous.
        """
        self._progress.failed(error)
        decision = classify(error, Scope.GROUP)
        if decision is Decision.REFRESH_AND_RETRY:
            self._cluster.coordinators.forget("group", self._group_id)
        action = Action(decision, self._retry.pause_after_s(error, Scope.GROUP))
        if decision.again:
            self._cluster.refusals.note(error, self._retry.attempt)
        return action

    async def leave(
        self, request: ConsumerGroupHeartbeatRequest, timeout_s: float
    ) -> KafkaError | None:
        """Send the heartbeat that leaves the group, in at most LEAVE_ATTEMPTS attempts.

        A failure is only logged. Return the last one if no attempt has succeeded.
        """
        failure: KafkaError | None = None
        for _ in range(LEAVE_ATTEMPTS):
            try:
                await self.send(request, timeout_s)
                return None
            except KafkaError as error:
                failure = error
                action = self.failed(error)
                if error.code in CODES or not action.again:
                    # The coordinator removes the member anyway when its session times out.
                    extra = {"event": "group_leave_failed"}
                    self._log.info("Could not leave the group: %s", error, extra=extra)
                    break
                await asyncio.sleep(action.delay_s)
        return failure

    async def _connect(self) -> BrokerConnection:
        node_id = await self._cluster.coordinators.locate("group", self._group_id)
        return await self._cluster.connect(node_id, Purpose.GROUP, self._owner)
