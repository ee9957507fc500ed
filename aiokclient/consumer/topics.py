"""Whole topics without a group: all their partitions, also those that appear later.

The metadata read when the consumer subscribed is the base. A partition that is not in it has
appeared since, so it is read from its first offset, whatever `auto_offset_reset` says (unless
`new_partitions="reset"`): nothing that was written to it before it was noticed is missed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata import ClusterMetadata, TopicInfo
from aiokclient.config import ConsumerConfig
from aiokclient.consumer.listener import tell
from aiokclient.consumer.positions import Withheld
from aiokclient.consumer.resets import EARLIEST, Reset
from aiokclient.consumer.signal import Signal
from aiokclient.consumer.subscription import Subscription, SubscriptionState
from aiokclient.errors import KafkaError
from aiokclient.policy import Backoff, Decision, Scope, decide
from aiokclient.types import TopicPartition

__all__ = ["TopicFollower"]

logger = logging.getLogger("aiokclient.consumer")


class TopicFollower:
    """Keeps the assigned partitions equal to those of the subscribed topics, in a task.

    `bar` forbids the task, which calls the listener, to read.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        *,
        report: Callable[[KafkaError], None],
        bar: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._subscription = subscription
        self._report = report
        self._bar = bar
        self._fresh = EARLIEST if config.new_partitions == "earliest" else subscription.reset
        self._current = Subscription()
        self._base: dict[str, tuple[UUID, int]] = {}
        self._wake = Signal()
        self.assigned = Signal()
        """Set each time the assigned partitions were compared with the metadata."""
        self.up_to_date = False
        subscription.listen(self._subscribed)

    def _subscribed(self) -> None:
        if self._subscription.subscription is not self._current:
            self.up_to_date = False
            self._wake.set()

    def observe(self) -> None:
        """To be called for each new snapshot of the metadata."""
        if self._current:
            self._wake.set()

    async def run(self) -> None:
        """Follows until it is cancelled."""
        self._bar()
        while True:
            if self._subscription.subscription is not self._current:
                await self._begin(self._subscription.subscription)
            if self._subscription.subscription is self._current:
                await self._assign(self._current, self._cluster.metadata)
                self.up_to_date = True
                self.assigned.set()
            await self._wake.wait()

    async def _begin(self, subscription: Subscription) -> None:
        self._current = subscription
        updater = self._cluster.updater
        updater.unwant(self)
        if subscription.pattern is not None:
            updater.want_all(self)
        for topic in subscription.topics:
            updater.want(topic, self, auto_create=self._config.allow_auto_create_topics)
        if not subscription:
            return
        metadata = await self._fresh_metadata(subscription)
        self._base = {
            name: (info.topic_id, len(info.partitions))
            for name, info in metadata.topics.items()
            if not info.error
        }
        for topic in subscription.topics:
            if topic not in self._base:
                logger.warning("Topic %s is not there; it is read as soon as it is", topic)

    async def _fresh_metadata(self, subscription: Subscription) -> ClusterMetadata:
        """Metadata read after the subscription was made, however long that takes."""
        clock = self._cluster.clock
        backoff = Backoff(
            self._config.retry_backoff_ms / 1000, self._config.retry_backoff_max_ms / 1000
        )
        topics = None if subscription.pattern is not None else subscription.topics
        timeout = self._config.default_api_timeout_ms / 1000
        for attempt in range(1 << 62):
            try:
                return await self._cluster.updater.refresh(topics, timeout=timeout)
            except KafkaError as error:
                action = decide(error, Scope.METADATA, attempt, math.inf, clock.rng, backoff)
                if action.decision not in (Decision.RETRY, Decision.REFRESH_AND_RETRY):
                    self._report(error)
                await asyncio.sleep(action.delay_s or backoff.maximum_s)
        raise AssertionError("unreachable")

    async def _assign(self, subscription: Subscription, metadata: ClusterMetadata) -> None:
        before = self._subscription.subscribed()
        self._report_errors(subscription)
        starts: dict[TopicPartition, Reset | None] = {}
        names = subscription.topics if subscription.pattern is None else sorted(metadata.topics)
        for name in names:
            info = metadata.topic(name)
            if info is None or not subscription.matches(name, internal=self._hidden(info)):
                continue
            topic_id, count = self._base.get(name, (None, 0))
            known = count if topic_id == info.topic_id else 0
            for index in range(len(info.partitions)):
                start = self._subscription.reset if index < known else self._fresh
                starts[TopicPartition(name, index)] = start
        if list(starts) == before:
            return
        self._subscription.assign_subscribed(starts)
        lost = [tp for tp in before if tp not in starts]
        known_before = dict.fromkeys(before)
        added = [tp for tp in starts if tp not in known_before]
        if subscription.listener is not None:
            await self._tell(subscription.listener, lost, added)

    async def _tell(
        self, listener: Any, lost: Sequence[TopicPartition], added: Sequence[TopicPartition]
    ) -> None:
        """Nothing of the new partitions is handed out before the listener has seen them."""
        states = self._subscription.chosen(added)
        self._subscription.withhold(states, Withheld.LISTENER, True)
        await tell(listener, "on_lost", lost)
        await tell(listener, "on_assigned", added)
        self._subscription.withhold(states, Withheld.LISTENER, False)

    def _hidden(self, info: TopicInfo) -> bool:
        return info.internal and self._config.exclude_internal_topics

    def _report_errors(self, subscription: Subscription) -> None:
        clock = self._cluster.clock
        for topic in subscription.topics:
            error = self._cluster.updater.errors.get(topic)
            if error is None:
                continue
            decision = decide(error, Scope.METADATA, 0, math.inf, clock.rng).decision
            if decision not in (Decision.RETRY, Decision.REFRESH_AND_RETRY):
                self._report(error)
