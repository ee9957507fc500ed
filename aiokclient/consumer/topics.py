"""The topics of a subscription, and the task that reads all their partitions without a group.

`SubscribedTopics` keeps the topics in the metadata. The metadata that was read when the consumer
subscribed is stored as the base. A partition that is not in the base has appeared later.

`TopicFollower` assigns all partitions of the topics to a consumer that has no group, including
those that appear later. A partition that did not exist when the consumer subscribed is read from
its first offset, regardless of `auto_offset_reset` (unless `new_partitions="reset"`). So the
records that were written before the consumer noticed the partition are not missed.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aiokclient.background import Wakeup
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata.snapshot import ClusterMetadata
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.membership.listener import tell
from aiokclient.consumer.state.offset_reset import EARLIEST, Reset
from aiokclient.consumer.state.partition import Withheld
from aiokclient.consumer.state.subscription import Reports, Subscription
from aiokclient.errors import KafkaError, error_for
from aiokclient.policy import Attempts, Backoff, Scope, classify
from aiokclient.types import TopicPartition, shortened

if TYPE_CHECKING:
    from aiokclient.consumer.engine import ConsumerEngine


class SubscribedTopics:
    """The topics of one subscription at a time."""

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        reports: Reports,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._reports = reports
        self._log = cluster.make_log("consumer", config.group_id)
        self._base: dict[str, tuple[UUID, int]] = {}
        self.current = Subscription()
        """The subscription of the last call of `follow_topics`."""
        self.read = False
        """Whether the metadata of the present subscription was read."""

    async def follow_topics(self, subscription: Subscription) -> None:
        """Keep the topics of a subscription in the metadata, instead of earlier ones.

        Return when their metadata is read. For a pattern, the metadata of all topics is read.
        """
        self.current, self.read = subscription, False
        updater = self._cluster.updater
        updater.unwant_topics(self)
        if subscription.pattern is not None:
            updater.want_all(self, self._make_topic_filter(subscription.pattern))
        for topic in subscription.topics:
            updater.want_topic(topic, self, auto_create=self._config.allow_auto_create_topics)
        metadata = await self._request_metadata(subscription) if subscription else ClusterMetadata()
        self._base = _base(metadata)
        for topic in subscription.topics:
            if topic not in self._base:
                self._warn_unreadable(topic, metadata)
        self.read = True

    def _warn_unreadable(self, topic: str, metadata: ClusterMetadata) -> None:
        """Log that a topic does not exist, or the error of the brokers if they say otherwise."""
        info = metadata.find_topic(topic)
        if info is None or not metadata.has_topic(topic):
            self._log.warning(
                "The topic %s does not exist. It is read as soon as it exists.",
                topic,
                extra={"event": "topic_missing", "topic": topic},
            )
            return
        error = error_for(info.error, api="Metadata", resource=topic)
        self._log.warning(
            "The topic %s cannot be read: %s",
            topic,
            error,
            extra={"event": "topic_unreadable", "topic": topic, "error": str(error)},
        )

    def _make_topic_filter(self, pattern: re.Pattern[str]) -> Callable[[str], bool] | None:
        """Return a predicate for the topics to keep in the metadata, or None to keep all of them.

        With KIP-848 all topics are kept, because the brokers match the pattern, and their regular
        expressions differ from Python's.
        """
        if self._config.group_protocol == "consumer":
            return None
        return lambda name: pattern.fullmatch(name) is not None

    def find_matching(self, metadata: ClusterMetadata) -> list[str]:
        """Return the names of the existing topics of the subscription. Synchronous."""
        return self.current.find_matching(metadata, self._config.exclude_internal_topics)

    def describe_trouble(self) -> str | None:
        """Return, as a text, that the pattern of the subscription matches nothing, or None.

        With KIP-848 the brokers match it, so the text is wrong if the consumer owns partitions.
        Synchronous.
        """
        pattern, metadata = self.current.pattern, self._cluster.metadata
        if pattern is None or not self.read or self.find_matching(metadata):
            return None
        text = (
            f"no topic that the user may describe matches the pattern {shortened(pattern.pattern)}"
        )
        if any(pattern.fullmatch(topic) is not None for topic in metadata.topics):
            text += " except internal ones, and exclude_internal_topics is set"
        return text

    def has_appeared(self, tp: TopicPartition, metadata: ClusterMetadata) -> bool:
        """Return whether the partition did not exist when the consumer subscribed."""
        info = metadata.find_topic(tp.topic)
        topic_id, count = self._base.get(tp.topic, (None, 0))
        return info is None or topic_id != info.topic_id or tp.partition >= count

    def on_cluster_replaced(self, metadata: ClusterMetadata) -> None:
        """Use this metadata of another cluster as the base from now on. Synchronous."""
        if self.read:
            self._base = _base(metadata)

    def report_errors(self) -> None:
        """Report lasting errors of topics that the application subscribed to. Synchronous."""
        for topic in self.current.topics:
            error = self._cluster.updater.errors.get(topic)
            if error is not None and not classify(error, Scope.METADATA).again:
                self._reports.add_error(error)

    async def _request_metadata(self, subscription: Subscription) -> ClusterMetadata:
        """Return the metadata of the topics of a new subscription; retry without a time limit."""
        config = self._config
        backoff = Backoff.of(config)
        topics = None if subscription.pattern is not None else subscription.topics
        timeout = config.default_api_timeout_ms / 1000
        retry = Attempts(math.inf, backoff, self._cluster.clock)
        while True:
            try:
                return await self._cluster.updater.refresh(topics, timeout=timeout)
            except KafkaError as error:
                action = retry.count_failure(error, Scope.METADATA)
                if not action.again:
                    self._reports.add_error(error)
                await asyncio.sleep(action.delay_s or backoff.maximum_s)


def _base(metadata: ClusterMetadata) -> dict[str, tuple[UUID, int]]:
    return {
        name: (info.topic_id, len(info.partitions))
        for name, info in metadata.topics.items()
        if not info.error
    }


class TopicFollower:
    """A task that assigns all partitions of the subscribed topics."""

    def __init__(self, engine: ConsumerEngine) -> None:
        config, subscription = engine.config, engine.subscription
        self._cluster = engine.cluster
        self._subscription = subscription
        self._calls = engine.listener_calls
        self._fresh = EARLIEST if config.new_partitions == "earliest" else subscription.reset
        self.topics = SubscribedTopics(engine.cluster, config, engine.reports)
        self._wake = Wakeup()
        self.assigned = Wakeup()
        """A flag that is set after each comparison of the assigned partitions with the metadata."""
        self.up_to_date = False
        subscription.add_change_listener(self._on_subscription_changed)

    @property
    def followed_subscription(self) -> Subscription:
        """The subscription whose topics are followed, which may be an earlier one."""
        return self.topics.current

    @property
    def confirmed_until(self) -> float:
        """Infinity, because no group can assign the partitions to another consumer."""
        return math.inf

    def find_cause(self) -> KafkaError | None:
        """Return why the topics are not known yet, if that is known. Synchronous."""
        return self._cluster.find_last_error()

    def knows_its_partitions(self) -> bool:
        """Return whether the partitions of the subscribed topics are assigned."""
        wanted = self._subscription.subscription
        return not wanted or (self.up_to_date and wanted is self.topics.current)

    def _on_subscription_changed(self) -> None:
        if self._subscription.subscription is not self.topics.current:
            self.up_to_date = False
            self._wake.set()

    def on_metadata(self) -> None:
        """Handle a new snapshot of the metadata."""
        if self.topics.current:
            self._wake.set()

    async def run(self) -> None:
        """Follow the topics. Run until the task is cancelled."""
        while True:
            if self._subscription.subscription is not self.topics.current:
                await self.topics.follow_topics(self._subscription.subscription)
            if self._subscription.subscription is self.topics.current:
                await self._assign_partitions(self.topics.current, self._cluster.metadata)
                self.up_to_date = True
                self.assigned.set()
                self._subscription.report_change()
            await self._wake.wait()

    async def _assign_partitions(
        self, subscription: Subscription, metadata: ClusterMetadata
    ) -> None:
        before = self._subscription.list_subscribed()
        self.topics.report_errors()
        resets: dict[TopicPartition, Reset | None] = {}
        for name in self.topics.find_matching(metadata):
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
            await self._call_listener(subscription.listener, lost, added)

    async def _call_listener(
        self, listener: Any, lost: Sequence[TopicPartition], added: Sequence[TopicPartition]
    ) -> None:
        """Call the listener. No records of new partitions are delivered before it returns."""
        states = self._subscription.choose_states(added)
        self._subscription.withhold(states, Withheld.LISTENER, True)
        with self._calls.enter_call():
            if lost:
                await tell(listener, "on_lost", lost)
            if added:
                await tell(listener, "on_assigned", added)
        self._subscription.withhold(states, Withheld.LISTENER, False)
