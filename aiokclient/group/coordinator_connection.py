"""The connections of a member to its coordinator, and the requests that the coordinator may hold.

JoinGroup and SyncGroup have a connection of their own. It is closed when such a request is
abandoned, because the broker would answer later requests only after that one. It is also closed
when the generation begins, because it is not needed until the next rebalance.
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
from aiokclient.log.limited_log import LimitedLog
from aiokclient.network.pool import Purpose
from aiokclient.policy import Scope
from aiokclient.types import GroupMetadata

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient

__all__ = ["CoordinatorConnection"]

RESYNC = "group.resync"
"""The feature by which the embedded cluster announces that it accepts a second assignment in one
generation. Kafka has no such feature."""

MARGIN_S = 5.0
"""Seconds after the rebalance timeout until a response to JoinGroup counts as lost."""


class CoordinatorConnection:
    """The requests of one member. `owner` owns the connection of its heartbeats and commits."""

    def __init__(self, cluster: ClusterClient, settings: GroupSettings, *, owner: Hashable) -> None:
        self._cluster = cluster
        self._settings = settings
        self._owner = owner
        self._target = Coordinator("group", settings.group_id)
        self._request_s = cluster.config.request_timeout_ms / 1000
        self._log = LimitedLog(cluster.make_log("group", settings.group_id), cluster.clock)

    async def join(self, request: Any) -> Any:
        """Send JoinGroup and return the response, which may take as long as a whole rebalance.

        Errors and cancellation are those of `_send_long`.
        """
        timeout_s = self._settings.rebalance_timeout_ms / 1000 + MARGIN_S
        return await self._send_long(request, max(timeout_s, self._request_s))

    async def sync(self, request: Any) -> Any:
        """Send SyncGroup and return the response, which waits only for the leader's assignment.

        The request is sent again after the request timeout, so that a response that is lost on an
        open connection costs no more time than that. Errors and cancellation are those of
        `_send_long`.
        """
        return await self._send_long(request, self._request_s)

    async def _send_long(self, request: Any, timeout_s: float) -> Any:
        """Send a request, repeat it after retriable errors, and return the response.

        Raises errors that the policy does not retry. A cancellation closes the connection.
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
            # The broker may hold the request until the rebalance ends, and reads nothing after it
            # on this connection before that.
            if not answered:
                self.close_join_connection()

    @property
    def resyncs(self) -> bool:
        """Whether the coordinator accepts several assignments by the leader in one generation."""
        known = self._cluster.coordinators.find_cached("group", self._settings.group_id)
        if known is None:
            return False
        connection = self._cluster.connected(known, Purpose.GROUP, self._owner)
        return connection is not None and connection.broker.features.get(RESYNC, 0) > 0

    def waits_at_former_coordinator(self) -> bool:
        """Return whether a request waits at a broker that is no longer the coordinator."""
        known = self._cluster.coordinators.find_cached("group", self._settings.group_id)
        holding = self.brokers_holding_requests()
        return known is not None and bool(holding) and known not in holding

    def brokers_holding_requests(self) -> list[int]:
        """Return the brokers that have not yet answered a JoinGroup or SyncGroup."""
        return [
            node_id
            for node_id in self._cluster.metadata.brokers
            if (connection := self._cluster.connected(node_id, Purpose.JOIN, self))
            and connection.in_flight
        ]

    async def leave(self, member: GroupMetadata, reason: str) -> None:
        """Send LeaveGroup for a member. A failure is only logged."""
        request_ms = self._cluster.config.request_timeout_ms
        # Brokers before 2.4 do not know a list of members to remove (LeaveGroup 3, KIP-345).
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
                # Leaving is optional: the session timeout removes the member anyway.
                text, extra = "Could not leave the group: %s", {"event": "group_leave_failed"}
                self._log.write(logging.INFO, "leave", text, error, extra=extra)
                return

    def close_join_connection(self) -> None:
        """Close the connection of JoinGroup and SyncGroup. Synchronous."""
        self._cluster.release(self)

    def release(self) -> None:
        """Close both connections. Synchronous."""
        self.close_join_connection()
        self._cluster.release(self._owner)
