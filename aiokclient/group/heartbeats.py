"""Heartbeats, and the time until which the coordinator certainly counts this member in.

A heartbeat is sent `heartbeat_interval_ms` after the one before it, on the connection that the
member shares with its commits only; so neither a waiting JoinGroup nor the throttling of other
connections delays it. They go on while the member joins: an answer shows that the coordinator
lives, and that it is still the one to which the request is waiting.

The coordinator restarts the session with each heartbeat that it receives, so that it cannot end
before `session_timeout_ms` after an answered one was *sent*. `confirmed` follows from that: a
member that cannot reach its group stops before the group assigns its partitions to another. It is
computed at each call, so that it is right after a suspension of the process, too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from aiokclient.background import Callbacks
from aiokclient.cluster.targets import Coordinator
from aiokclient.errors import KafkaError
from aiokclient.group import requests
from aiokclient.group.handler import GroupSettings
from aiokclient.group.states import CODES, MemberEvent
from aiokclient.network.pool import Purpose
from aiokclient.policy import Decision, Scope, classify
from aiokclient.types import GroupMetadata

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient

__all__ = ["Heartbeats"]

PATIENCE = 0.5
"""Part of the session timeout after which an unanswered heartbeat is sent on a new connection."""


class Heartbeats:
    """The heartbeats of a member; `on_answer(member, event)` is called for each response.

    `report(error)` gets what the application has to see; `changed()` is called when `confirmed`
    has changed.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        settings: GroupSettings,
        *,
        owner: Hashable,
        on_answer: Callable[[GroupMetadata, MemberEvent | None], None],
        report: Callable[[Exception], None],
        changed: Callable[[], None],
        callbacks: Callbacks,
    ) -> None:
        self.member = GroupMetadata(settings.group_id)
        self.last_answer_at = -math.inf
        """The time of the last request whose response shows that this is a member."""
        self.last_stable_at = -math.inf
        """The same, of those whose response shows that no rebalance was in progress."""
        self._cluster = cluster
        self._settings = settings
        self._owner = owner
        self._on_answer = on_answer
        self._report = report
        self._changed = changed
        self._callbacks = callbacks
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._session_s = settings.session_timeout_ms / 1000
        self._due = asyncio.Event()
        self._was_confirmed = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def confirmed(self) -> bool:
        """Whether the coordinator certainly counts this member in at this moment."""
        if self.member.generation_id < 0:
            return False
        return self._cluster.clock.monotonic() < self.last_answer_at + self._session_s

    def send_for(self, member: GroupMetadata, sent_at: float | None = None) -> None:
        """Send the heartbeats of this member from now on, the first at once. Synchronous.

        None are sent while it has no member id. With `sent_at`, a request that was sent at that
        time has shown that the coordinator has taken the member into its generation.
        """
        if sent_at is None or member.member_id != self.member.member_id:
            self.last_answer_at = self.last_stable_at = -math.inf
        self.member = member
        self._due.set()
        if sent_at is None:
            self._update_confirmed()
        else:
            self.answered(sent_at)

    def answered(self, sent_at: float, *, stable: bool = True) -> None:
        """Record that the coordinator has answered a request of that time. Synchronous."""
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
            when = self.last_answer_at + self._session_s
            self._timer = self._callbacks.at(when, self._update_confirmed)
        if confirmed is not self._was_confirmed:
            self._was_confirmed = confirmed
            self._changed()

    async def run(self) -> None:
        """Send heartbeats until it is cancelled."""
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
        try:
            response = await self._cluster.request(
                requests.heartbeat(member),
                Coordinator("group", member.group_id),
                # An attempt tells when the heartbeat was sent only if it is the only one.
                timeout=self._session_s,
                attempt_timeout=self._session_s * PATIENCE,
                scope=Scope.GROUP,
                check=requests.unexpected,
                purpose=Purpose.GROUP,
                owner=self._owner,
            )
        except KafkaError as error:
            if member == self.member and self._is_final(error):
                self._report(error)
            return
        if member != self.member:
            return
        event = CODES.get(response.error_code)
        if event in (None, MemberEvent.REBALANCE):
            self.answered(sent_at, stable=event is None)
        self._on_answer(member, event)

    def _is_final(self, error: KafkaError) -> bool:
        """Return whether only the application can fix it; any other error may pass."""
        return classify(error, Scope.GROUP) is Decision.FAIL
