"""The bridge from a native listener to aiokafka's."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Collection
from typing import Any

from aiokclient import TopicPartition
from aiokclient.adapters.aiokafka.abc import ConsumerRebalanceListener
from aiokclient.adapters.aiokafka.consumer.turns import Turns

log = logging.getLogger(__name__)


class Rebalances:
    """The native listener of a consumer, which calls that of the present subscription.

    aiokafka calls `on_partitions_revoked` at the begin of each rebalance, with no partitions at the
    first one, and not when the consumer is stopped. At the end of a subscription it calls no
    listener: the one of the next subscription is told of the partitions. It logs what a listener
    raises.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._listener: ConsumerRebalanceListener | None = None
        self._previous: set[TopicPartition] = set()
        """The partitions of an earlier subscription whose revocation no listener was told of."""
        self._revoked = False
        """Whether the listener was told of a revocation since the last assignment."""
        self.is_subscribed = False
        self.assigned = asyncio.Event()
        """Set once the group has assigned partitions of the subscription, which may be none."""
        self.next_assigned = asyncio.Event()
        """Set at the next assignment, which replaces it by another one."""

    def begin_subscription(self, listener: ConsumerRebalanceListener | None) -> None:
        """Call this listener, if there is one, from now on."""
        self.is_subscribed, self._listener, self._revoked = True, listener, False
        self.assigned = asyncio.Event()

    def end_subscription(self) -> None:
        """Call no listener until the next subscription."""
        self.is_subscribed, self._listener = False, None
        self.assigned = asyncio.Event()

    async def on_assigned(self, tps: Collection[TopicPartition]) -> None:
        """Call the listener of the program with the new partitions."""
        self._turns.on_assigned()
        listener, assigned = self._listener, self.assigned
        if not self._revoked:
            previous, self._previous = self._previous, set()
            await self._tell_revoked(listener, previous)
        self._revoked = False
        if listener is not None:
            await self._call(listener, listener.on_partitions_assigned, set(tps))
        assigned.set()
        next_assigned, self.next_assigned = self.next_assigned, asyncio.Event()
        next_assigned.set()

    async def on_revoked(self, tps: Collection[TopicPartition]) -> None:
        """Call the listener of the program before the partitions go to other members."""
        if not self.is_subscribed:
            self._previous.update(tps)
            return
        self._revoked = True
        previous, self._previous = self._previous, set()
        await self._tell_revoked(self._listener, previous.union(tps))

    async def on_lost(self, tps: Collection[TopicPartition]) -> None:
        """Call the listener of the program after the partitions went to other members."""
        await self.on_revoked(tps)

    async def _tell_revoked(
        self, listener: ConsumerRebalanceListener | None, tps: set[TopicPartition]
    ) -> None:
        if listener is not None and not self._turns.is_closed:
            await self._call(listener, listener.on_partitions_revoked, tps)

    async def _call(
        self, listener: ConsumerRebalanceListener, function: Any, tps: set[TopicPartition]
    ) -> None:
        try:
            result = function(tps)
            if inspect.isawaitable(result):
                await result
        except Exception:
            log.exception("The listener %r has failed for %s.", listener, sorted(tps))
