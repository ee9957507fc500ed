"""The way from a member to its coordinator: one attempt at a time, each on its own.

The member's heartbeats and commits share a connection that nothing else uses, so that nothing
holds them up. An attempt is not repeated as it is: after one that failed the member says all of
its state again.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING

from aiokclient.errors import KafkaError, UnsupportedVersionError, error_for
from aiokclient.network.pool import Purpose
from aiokclient.policy import Action, Backoff, Decision, Retry, Scope, classify
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
"""What a broker answers that knows the request, but is not to take it."""

ADVICE = (
    "the coordinator does not speak the new consumer protocol (KIP-848), which Kafka has from 4.0 "
    "on, unless it is switched off there. Use group_protocol='classic'"
)


class HeartbeatConnection:
    """`owner` owns the connection, and closes it; `group_id` says where it leads."""

    def __init__(self, cluster: ClusterClient, group_id: str, owner: Hashable) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._owner = owner
        config = cluster.config
        backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._retry = Retry(math.inf, backoff, cluster.clock)

    async def version(self) -> int:
        """The version of the heartbeat that the coordinator takes.

        Raises UnsupportedVersionError where it takes none, and what `send` raises.
        """
        connection = await self._connect()
        try:
            return connection.version_of(ConsumerGroupHeartbeatRequest)
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(ADVICE, api=API, broker=connection.node_id) from error

    async def send(
        self, request: ConsumerGroupHeartbeatRequest, timeout_s: float
    ) -> ConsumerGroupHeartbeatResponse:
        """The coordinator's answer; raises what it refuses with, and what the way there met."""
        connection = await self._connect()
        response: ConsumerGroupHeartbeatResponse = await connection.send(
            request, timeout_s=timeout_s
        )
        off = response.error_code in SWITCHED_OFF
        message = ADVICE if off else response.error_message
        error = error_for(response.error_code, message, api=API, broker=connection.node_id)
        if error is not None:
            raise error
        return response

    def succeeded(self) -> None:
        """Start to count failures anew, after an answer to a member. Synchronous.

        Not for one that joins: a member that is fenced after each join must slow down.
        """
        self._retry.succeeded()

    def pause_s(self, attempt: int) -> float:
        """Return how long to wait before a heartbeat that is one of too many."""
        return self._retry.backoff.delay(attempt, self._cluster.clock.rng)

    def failed(self, error: KafkaError) -> Action:
        """What to do about an attempt that failed; what is known of the way is put right. Plain."""
        decision = classify(error, Scope.GROUP)
        if decision is Decision.REFRESH_AND_RETRY:
            self._cluster.coordinators.forget("group", self._group_id)
        return Action(decision, self._retry.pause_s())

    async def _connect(self) -> BrokerConnection:
        node_id = await self._cluster.coordinators.locate("group", self._group_id)
        return await self._cluster.connect(node_id, Purpose.GROUP, self._owner)
