"""The heartbeats, and the time until which the coordinator certainly keeps this member.

A heartbeat is sent `heartbeat_interval_ms` after the previous one, on a connection that only
heartbeats and commits use, so that neither a waiting JoinGroup nor the throttling of other
connections delays it. Heartbeats continue while the member joins: a response shows that the
coordinator is alive, and that it is still the broker at which the JoinGroup waits.

Each heartbeat that the coordinator receives restarts the session. So the session cannot end before
`session_timeout_ms` have passed since a heartbeat with a response was *sent*. `confirmed` follows
from that: a member that cannot reach its group stops before the group assigns its partitions to
another member. `confirmed` is computed at each call, so that it is also correct after the process
was suspended.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from aiokclient.cluster.lifecycle.supervisor import Callbacks
from aiokclient.cluster.targets import Coordinator
from aiokclient.errors import KafkaError
from aiokclient.group import requests
from aiokclient.group.handler import GroupHandler, GroupSettings
from aiokclient.group.meters import GroupMeters
from aiokclient.group.states import CODES, MemberEvent
from aiokclient.network.pool import Purpose
from aiokclient.policy import Decision, Scope, classify
from aiokclient.types import GroupMetadata

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.group.engine import GroupEngine

__all__ = ["Heartbeats"]

PATIENCE = 0.5
"""Fraction of the session timeout after which an unanswered heartbeat is sent again.

It is then sent on a new connection.
"""


class Heartbeats:
    """The heartbeats of a member. The engine owns their connection and hears of each response."""

    def __init__(
        self,
        cluster: ClusterClient,
        settings: GroupSettings,
        handler: GroupHandler,
        engine: GroupEngine,
        *,
        callbacks: Callbacks,
        meters: GroupMeters,
    ) -> None:
        self.member = GroupMetadata(settings.group_id)
        self.last_answer_at = -math.inf
        """The time of the last request whose response confirmed the membership."""
        self.last_stable_at = -math.inf
        """The time of the last request that confirmed the membership outside of a rebalance."""
        self._cluster = cluster
        self._settings = settings
        self._handler = handler
        self._engine = engine
        self._callbacks = callbacks
        self._meters = meters
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._session_s = settings.session_timeout_ms / 1000
        self._due = asyncio.Event()
        self._was_confirmed = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def confirmed(self) -> bool:
        """Whether the coordinator certainly keeps this member at this moment."""
        if self.member.generation_id < 0:
            return False
        return self._cluster.clock.monotonic() < self.last_answer_at + self._session_s

    def send_for(self, member: GroupMetadata, sent_at: float | None = None) -> None:
        """Send the heartbeats of this member from now on, the first one immediately. Synchronous.

        No heartbeats are sent for a member without an id. `sent_at` is the time at which the
        JoinGroup of the member's generation was sent, or None for a member without a generation.
        """
        if sent_at is None or member.member_id != self.member.member_id:
            self.last_answer_at = self.last_stable_at = -math.inf
        self.member = member
        self._due.set()
        if sent_at is None:
            self._update_confirmed()
        else:
            self.on_answer(sent_at)

    def on_answer(self, sent_at: float, *, stable: bool = True) -> None:
        """Record that the coordinator has answered a request sent at that time. Synchronous."""
        self.last_answer_at = max(self.last_answer_at, sent_at)
        if stable:
            self.last_stable_at = max(self.last_stable_at, sent_at)
        self._update_confirmed()

    def _update_confirmed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        confirmed = self.confirmed
        if confirmed:
            # The coordinator's session begins when the request arrives, which is not before it was
            # sent.
            when = self.last_answer_at + self._session_s
            self._timer = self._callbacks.at(when, self._update_confirmed)
        if confirmed is not self._was_confirmed:
            self._was_confirmed = confirmed
            self._handler.on_confirmed_changed(confirmed)

    async def run(self) -> None:
        """Send heartbeats. Run until the task is cancelled."""
        clock = self._cluster.clock
        while True:
            self._due.clear()
            if not self.member.member_id:
                await self._due.wait()
                continue
            sent_at, member = clock.monotonic(), self.member
            await self._send(member, sent_at)
            if member == self.member:
                await self._pause(sent_at + self._interval_s)

    async def _pause(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._due.wait()
        except TimeoutError:
            return

    async def _send(self, member: GroupMetadata, sent_at: float) -> None:
        self._meters.on_heartbeat_sent(sent_at)
        try:
            response = await self._cluster.request(
                requests.heartbeat(member),
                Coordinator("group", member.group_id),
                # `sent_at` precedes all attempts. So a response after the session timeout would
                # confirm nothing.
                timeout=self._session_s,
                attempt_timeout=self._session_s * PATIENCE,
                scope=Scope.GROUP,
                check=requests.unexpected,
                purpose=Purpose.GROUP,
                owner=self._engine,
            )
        except KafkaError as error:
            if member == self.member and self._is_final(error):
                self._handler.report_error(error)
            return
        self._meters.on_heartbeat_answered(sent_at)
        if member != self.member:
            return
        event = CODES.get(response.error_code)
        # REBALANCE_IN_PROGRESS extends the session as well: the coordinator has the member.
        if event in (None, MemberEvent.REBALANCE):
            self.on_answer(sent_at, stable=event is None)
        self._engine.on_heartbeat(member, event)

    def _is_final(self, error: KafkaError) -> bool:
        """Return whether the error lasts until the application resolves its cause."""
        return classify(error, Scope.GROUP) is Decision.FAIL
