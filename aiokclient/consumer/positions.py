"""Waiting for the partitions and positions of a consumer, which background tasks find."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.delivery.reports import Reports
from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
from aiokclient.consumer.state.partition import PartitionState, Phase, Withheld
from aiokclient.consumer.state.subscription import PartitionSource, SubscriptionState
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.consumer.topics import TopicFollower
from aiokclient.errors import ClosedError, KafkaError
from aiokclient.types import TopicPartition

__all__ = ["PositionWaits"]

SETTLE_S = 3.0
"""Longest time, in seconds, that a start waits until brokers have returned all positions."""

SEARCHING = (Phase.AWAITING, Phase.RESETTING)


class PositionWaits:
    """The calls of one consumer that wait for partitions or positions.

    `died` returns the error with which the consumer has failed, or None. Times are on the loop's
    clock.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        source: PartitionSource,
        reports: Reports,
        died: Callable[..., BaseException | None],
        config: ConsumerConfig,
    ) -> None:
        self._subscription = subscription
        self._source = source
        self._reports = reports
        self._died = died
        self._over: ClosedError | None = None
        self._moved = Wakeup()
        # This is at most half of `default_api_timeout_ms`, so that a start does not time out.
        self._settle_s = min(SETTLE_S, config.default_api_timeout_ms / 2000)

    def changed(self) -> None:
        """Wake the waiting calls after a change of partitions or positions, or after a failure.

        Synchronous.
        """
        self._moved.set()

    def abandon(self, error: ClosedError) -> None:
        """Raise this error in the calls that still wait for a position. Synchronous."""
        self._over = error
        self._moved.set()

    async def located(self, tp: TopicPartition, until: float = math.inf) -> bool:
        """Wait for a position; return False if `until` passes first.

        Raises the error of the consumer or partition if the position will never be known.
        """
        while not self._subscription[tp].located:
            if (ended := self._over or self._died(raised=True)) is not None:
                raise ended.with_traceback(None)
            state = self._subscription[tp]
            if state.error is not None:
                raise state.error.with_traceback(None)
            if not await self._moved.wait(until):
                return False
        return True

    async def relocated(self, states: Sequence[PartitionState], until: float) -> None:
        """Wait until the committed offsets of these partitions are found, at most until `until`.

        Return early if the consumer ends. Do not wait for partitions that are no longer owned.
        """
        partitions = self._subscription.partitions
        while any(
            state.phase is Phase.AWAITING and partitions.get(state.tp) is state for state in states
        ):
            if self._over or self._died() or not await self._moved.wait(until):
                return

    async def knows_its_part(self, until: float) -> bool:
        """Wait until the subscribed partitions are known; return False if `until` passes first."""
        while not (self._died() or self._reports.errors or self._source.knows_its_part()):
            if not await self._moved.wait(until):
                return False
        return True

    def cause(self) -> KafkaError | None:
        """Return why the subscribed partitions are not known yet, if that is known."""
        return self._source.cause()

    async def followed(self, follower: TopicFollower) -> None:
        """Wait until the subscribed topics were looked up once."""
        while self._subscription.subscription and not (follower.up_to_date or self._died()):
            await follower.assigned.wait()

    async def settled(self, group: ConsumerCoordinator | None) -> None:
        """Wait, for a few seconds at most, until no further position is likely to be found soon."""
        until = asyncio.get_running_loop().time() + self._settle_s
        while not (self._is_settled(group) or self._died()) and await self._moved.wait(until):
            pass

    def _is_settled(self, group: ConsumerCoordinator | None) -> bool:
        if self._reports.errors:
            return True
        if group is not None and not group.settled():
            return False
        states = self._subscription.partitions.values()
        return all(
            state.phase not in SEARCHING and not state.withheld & Withheld.INITIAL_OFFSET
            for state in states
        )
