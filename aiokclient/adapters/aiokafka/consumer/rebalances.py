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
    """The native listener of one subscription, which calls the program's, if it has one.

    aiokafka calls `on_partitions_revoked` at the begin of each rebalance, with no partitions at the
    first one, and not when the consumer is stopped. It logs what a listener raises.
    """

    def __init__(self, turns: Turns, listener: ConsumerRebalanceListener | None) -> None:
        self._turns = turns
        self._listener = listener
        self._revoked = False
        self.assigned = asyncio.Event()
        """Set once the group has assigned partitions, which may be none."""

    async def on_assigned(self, tps: Collection[TopicPartition]) -> None:
        """Call the listener of the program with the new partitions."""
        self._turns.on_assigned()
        if self._listener is not None:
            if not self._revoked:
                await self._call(self._listener.on_partitions_revoked, set())
            self._revoked = False
            await self._call(self._listener.on_partitions_assigned, set(tps))
        self.assigned.set()

    async def on_revoked(self, tps: Collection[TopicPartition]) -> None:
        """Call the listener of the program before the partitions go to other members."""
        self._revoked = True
        if self._listener is not None and not self._turns.is_closed:
            await self._call(self._listener.on_partitions_revoked, set(tps))

    async def on_lost(self, tps: Collection[TopicPartition]) -> None:
        """Call the listener of the program after the partitions went to other members."""
        await self.on_revoked(tps)

    async def _call(self, function: Any, tps: set[TopicPartition]) -> None:
        try:
            result = function(tps)
            if inspect.isawaitable(result):
                await result
        except Exception:
            log.exception("The listener %r has failed for %s.", self._listener, sorted(tps))
