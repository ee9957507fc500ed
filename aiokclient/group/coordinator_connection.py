"""The connections of a member to its coordinator, and the requests that may park there.

JoinGroup and SyncGroup go over a connection of their own. It is closed when such a request is given
up, because the broker would answer the next one only after it, and when the generation begins, as
it is not needed until the next.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from aiokclient.cluster.targets import Coordinator
from aiokclient.errors import UnsupportedVersionError
from aiokclient.group import requests
from aiokclient.group.handler import GroupSettings
from aiokclient.limited_log import LimitedLog
from aiokclient.network.pool import Purpose
from aiokclient.policy import Scope
from aiokclient.types import GroupMetadata

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient

__all__ = ["CoordinatorConnection"]

RESYNC = "group.resync"
"""The feature by which the embedded cluster says so; Kafka has none."""

MARGIN_S = 5.0
"""How much longer than a rebalance may take the answer to a waiting request is waited for."""


class CoordinatorConnection:
    """`owner` owns the connection of heartbeats and commits; that for parking is the link's."""

    def __init__(self, cluster: ClusterClient, settings: GroupSettings, *, owner: Hashable) -> None:
        self._cluster = cluster
        self._settings = settings
        self._owner = owner
        self._target = Coordinator("group", settings.group_id)
        self._request_s = cluster.config.request_timeout_ms / 1000
        self._log = LimitedLog(cluster.log("group", settings.group_id), cluster.clock.monotonic)

    async def join(self, request: Any) -> Any:
        """Return the response to JoinGroup, for which the coordinator may wait a whole rebalance.

        As `_send_long`.
        """
        timeout_s = self._settings.rebalance_timeout_ms / 1000 + MARGIN_S
        return await self._send_long(request, max(timeout_s, self._request_s))

    async def sync(self, request: Any) -> Any:
        """Return the response to SyncGroup, for which only the leader's assignment is awaited.

        It is sent again after the request timeout: a response that is lost on an open connection
        must not cost more than that. As `_send_long`.
        """
        return await self._send_long(request, self._request_s)

    async def _send_long(self, request: Any, timeout_s: float) -> Any:
        """Return the coordinator's response; send the request again while that may help.

        Raises what the policy does not retry. Cancelled, it closes the connection.
        """
        answered = False
        try:
            answer = await self._cluster.request(
                request,
                self._target,
                timeout=math.inf,
                attempt_timeout=timeout_s,
                scope=Scope.GROUP,
                check=requests.unexpected,
                purpose=Purpose.JOIN,
                owner=self,
            )
            answered = True
            return answer
        finally:
            if not answered:
                self.close_join_connection()

    @property
    def resyncs(self) -> bool:
        """The coordinator takes the leader's SyncGroup again in one generation. Plain."""
        known = self._cluster.coordinators.cached("group", self._settings.group_id)
        if known is None:
            return False
        connection = self._cluster.connected(known, Purpose.GROUP, self._owner)
        return connection is not None and connection.features.get(RESYNC, 0) > 0

    def waits_at_former_coordinator(self) -> bool:
        """Whether a request is waiting at a broker that is not the coordinator any more. Plain."""
        known = self._cluster.coordinators.cached("group", self._settings.group_id)
        holding = self.brokers_holding_requests()
        return known is not None and bool(holding) and known not in holding

    def brokers_holding_requests(self) -> list[int]:
        """The brokers that have not answered a JoinGroup or SyncGroup yet. Plain."""
        return [
            node_id
            for node_id in self._cluster.metadata.brokers
            if (connection := self._cluster.connected(node_id, Purpose.JOIN, self))
            and connection.in_flight
        ]

    async def leave(self, member: GroupMetadata, reason: str) -> None:
        """Tells the coordinator that the member has gone, if it can be told in time."""
        request_ms = self._cluster.config.request_timeout_ms
        for batched in (True, False):
            try:
                await self._cluster.request(
                    requests.leave(member, reason, batched=batched),
                    self._target,
                    timeout=min(self._settings.session_timeout_ms, request_ms) / 1000,
                    scope=Scope.GROUP,
                    check=requests.left,
                    purpose=Purpose.GROUP,
                    owner=self._owner,
                )
                return
            except UnsupportedVersionError:
                continue
            except Exception as error:
                # Also what has failed the client. The coordinator finds out when the session ends.
                text, extra = "Could not leave the group: %s", {"event": "group_leave_failed"}
                self._log.write(logging.INFO, "leave", text, error, extra=extra)
                return

    def close_join_connection(self) -> None:
        """Closes the connection for parking. Plain."""
        self._cluster.release(self)

    def release(self) -> None:
        """Closes both connections. Plain."""
        self.close_join_connection()
        self._cluster.release(self._owner)
