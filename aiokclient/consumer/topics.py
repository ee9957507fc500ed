"""Reading all partitions of topics without a group, including those that appear later.

A partition that did not exist when the consumer subscribed is read from its first offset,
regardless of `auto_offset_reset` (unless `new_partitions="reset"`). So the records that were
written before the consumer noticed the partition are not missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata.snapshot import ClusterMetadata
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.membership.listener import ListenerCalls, tell
from aiokclient.consumer.state.offset_reset import EARLIEST, Reset
from aiokclient.consumer.state.partition import Withheld
from aiokclient.consumer.state.subscribed_topics import SubscribedTopics
from aiokclient.consumer.state.subscription import Subscription, SubscriptionState
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.errors import KafkaError
from aiokclient.types import TopicPartition

__all__ = ["TopicFollower"]


class TopicFollower:
    """A task that assigns all partitions of the subscribed topics."""

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        *,
        report: Callable[[KafkaError], None],
        calls: ListenerCalls,
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._calls = calls
        self._fresh = EARLIEST if config.new_partitions == "earliest" else subscription.reset
        self.topics = SubscribedTopics(cluster, config, report=report)
        self._wake = Wakeup()
        self.assigned = Wakeup()
        """A flag that is set after each comparison of the assigned partitions with the metadata."""
        self.up_to_date = False
        subscription.listen(self._subscribed)

    @property
    def followed(self) -> Subscription:
        """The subscription whose topics are followed, which may be an earlier one."""
        return self.topics.current

    @property
    def confirmed_until(self) -> float:
        """Infinity, because no group can assign the partitions to another consumer."""
        return math.inf

    def cause(self) -> KafkaError | None:
        """Return why the topics are not known yet, if that is known. Synchronous."""
        return self._cluster.last_error()

    def knows_its_part(self) -> bool:
        """Return whether the partitions of the subscribed topics are assigned."""
        wanted = self._subscription.subscription
        return not wanted or (self.up_to_date and wanted is self.topics.current)

    def _subscribed(self) -> None:
        if self._subscription.subscription is not self.topics.current:
            self.up_to_date = False
            self._wake.set()

    def observe(self) -> None:
        """Handle a new snapshot of the metadata."""
        if self.topics.current:
            self._wake.set()

    async def run(self) -> None:
        """Follow the topics. Run until the task is cancelled."""
        while True:
            if self._subscription.subscription is not self.topics.current:
                await self.topics.begin(self._subscription.subscription)
            if self._subscription.subscription is self.topics.current:
                await self._assign(self.topics.current, self._cluster.metadata)
                self.up_to_date = True
                self.assigned.set()
                self._subscription.changed()
            await self._wake.wait()

    async def _assign(self, subscription: Subscription, metadata: ClusterMetadata) -> None:
        before = self._subscription.subscribed()
        self.topics.report_errors()
        resets: dict[TopicPartition, Reset | None] = {}
        for name in self.topics.matching(metadata):
            for index in range(len(metadata.topics[name].partitions)):
                tp = TopicPartition(name, index)
                appeared = self.topics.has_appeared(tp, metadata)
                resets[tp] = self._fresh if appeared else self._subscription.reset
        if list(resets) == before:
            return
        self._subscription.assign_subscribed(resets)
        lost = [tp for tp in before if tp not in resets]
        known_before = dict.fromkeys(before)
        added = [tp for tp in resets if tp not in known_before]
        if subscription.listener is not None:
            await self._tell(subscription.listener, lost, added)

    async def _tell(
        self, listener: Any, lost: Sequence[TopicPartition], added: Sequence[TopicPartition]
    ) -> None:
        """Call the listener. No records of new partitions are delivered before it returns."""
        states = self._subscription.chosen(added)
        self._subscription.withhold(states, Withheld.LISTENER, True)
        with self._calls.entered():
            if lost:
                await tell(listener, "on_lost", lost)
            if added:
                await tell(listener, "on_assigned", added)
        self._subscription.withhold(states, Withheld.LISTENER, False)
