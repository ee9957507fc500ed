"""The assignment of each queue to the sender of its leader, as the metadata changes.

Records for a topic that is not known yet wait in the topic's undesignated queue, so that a missing
topic does not delay other topics. When the partitions are known, the records move to the queues of
their partitions, in order, for 10 ms at a time; records that are sent in the meantime come after
them. When a partition has a new leader, batches in flight to the old leader are immediately sent to
the new one if sequences make that safe. A topic that was deleted and created again is another
topic: the remaining batches are sent there with new sequences.

A partition that the metadata does not list is absent. Its batches wait at most `max_block_ms` for
the partition to appear, while the metadata is requested again and again. A partition that the
metadata no longer lists keeps its queue and its sequences permanently. Records whose partition the
application did not choose go to other partitions then, if they were not sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.background import SLICE_S
from aiokclient.cluster.metadata.snapshot import differ
from aiokclient.errors import KafkaError, UnknownTopicOrPartitionError, error_for
from aiokclient.policy import ABSENT_PARTITION_S, REFUSED_TOPIC_S, Scope, classify
from aiokclient.producer.batching.batch import FailedRecords, ProducerBatch, record_size
from aiokclient.producer.batching.partitioner import Partitioner
from aiokclient.producer.batching.queue import PartitionQueue, Topic
from aiokclient.producer.delivery.delivery import DeliveryBatch
from aiokclient.types import Headers, TopicPartition

if TYPE_CHECKING:
    import asyncio

    from aiokclient.cluster.metadata.snapshot import ClusterMetadata, PartitionInfo, TopicInfo
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.producer.engine import Engine

SHOWN_S = 1.0
"""Seconds for which records must have waited before health shows why they cannot be written."""
TROUBLES = 20
"""The largest number of partitions that `describe_troubles()` names. Others are only counted."""


def no_such_partition(topic_partition: TopicPartition, count: int) -> KafkaError:
    """Return the error for a partition that a topic of `count` partitions does not have."""
    text = f"The topic has {count} partitions, numbered from 0."
    return UnknownTopicOrPartitionError(text, topic_partition=topic_partition)


class Leaders:
    """The topics that the producer uses, and the sender to the leader of each partition."""

    def __init__(self, config: ProducerConfig, engine: Engine) -> None:
        clock = engine.cluster.clock
        self.topics: dict[str, Topic] = {}
        self.partitioner = Partitioner(config, clock.rng, engine.producer, engine.accumulator)
        self._config = config
        self._clock = clock
        self._accumulator = engine.accumulator
        self._engine = engine
        self._updater = engine.cluster.updater
        self._cluster_id: str | None = None
        self._refused: set[str] = set()
        """The topics whose metadata was refused, for example because of a missing permission."""
        self._reconsidered: set[str] = set()
        """The refused topics whose metadata is being requested again."""
        self._search: asyncio.TimerHandle | None = None
        self._stopped = False

    def stop_searches(self) -> None:
        """Stop all searches. May be called again."""
        self._stopped = True
        if self._search is not None:
            self._search.cancel()
            self._search = None

    def find_topic(self, name: str, metadata: ClusterMetadata) -> Topic:
        """Return the topic with this name, and start to follow its metadata."""
        topic = self.topics.get(name)
        if topic is None:
            config = self._config
            # At most an eighth of the buffer, because batches move in when a quarter is free.
            limit = min(config.batch_size, config.max_request_size, config.buffer_memory // 8)
            topic = self.topics[name] = Topic(name, max(limit, 1))
            self._accumulator.memory.set_unsendable(topic.undesignated, True)
            self._cluster_id = metadata.cluster_id
            info = metadata.find_topic(name)
            if info is not None:
                self._learn_topic(topic, info)
            self._updater.want_topic(name, self._engine, auto_create=True)
        return topic

    def queue_of(self, topic: Topic, partition: int) -> PartitionQueue:
        """Return the queue of a partition of a known topic, even if the metadata lacks it."""
        if partition < len(topic.queues):
            return topic.queues[partition]
        queue = topic.absent.get(partition)
        if queue is None:
            had_absent = bool(topic.absent)
            queue = topic.add_absent_partition(partition, self._clock.monotonic())
            self._accumulator.memory.set_unsendable(queue, True)
            if not had_absent:
                self._accumulator.callbacks.call_later(
                    ABSENT_PARTITION_S, self._search_absent_partitions, topic
                )
        if queue.oldest_batch() is None:  # The partition may have been created in the meantime.
            self._updater.request_update((topic.name,))
        return queue

    def has_sent(self, name: str) -> bool:
        """Return whether the topic has batches that were sent and have no outcome."""
        return any(queue.sent for queue in self.topics[name].all_queues())

    def on_metadata(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        """Update topics and leaders from a new snapshot of the metadata."""
        moved = differ(old.cluster_id, new.cluster_id)
        self._cluster_id = new.cluster_id
        if moved:
            self._engine.on_cluster_replaced()
        for topic in self.topics.values():
            info = new.topics.get(topic.name)
            if info is not None and (moved or info is not topic.status.info):
                self._learn_topic(topic, info)

    def describe_troubles(self) -> list[str]:
        """Return the partitions to which no records can be written, as texts. Synchronous.

        Only those count for which records have waited for a second.
        """
        now = self._clock.monotonic()
        found = []
        for topic in list(self.topics.values()):
            for queue in topic.all_queues():
                oldest = queue.oldest_batch()
                if oldest is None or not (queue.unsendable or oldest.failures):
                    continue
                if oldest.is_expired(now, SHOWN_S):
                    reason = _reason(queue) if queue.unsendable else _refusal(oldest)
                    found.append(f"{_described(queue)} cannot be written: {reason}")
        return found[:TROUBLES] + [f"and {len(found) - TROUBLES} more"] * (len(found) > TROUBLES)

    # -- the metadata of a topic

    def _learn_topic(self, topic: Topic, info: TopicInfo) -> None:
        changed = self._store_identity(topic, info)
        if info == topic.status.info and not changed:
            return
        if topic.status.store_metadata(info, self._clock.monotonic()):
            self._accumulator.schedule_expiry()
        self._refused.discard(topic.name)
        if info.error:
            self._on_topic_error(topic, info.error)
        self._resize_topic(topic, len(info.partitions))
        if not topic.queues or (changed and topic.leave_absent_partitions()):
            topic.become_unknown()
        for queue, partition in zip(topic.queues, info.partitions, strict=True):
            queue.note_listed()
            self._set_leader(queue, partition)
            if changed:
                queue.notify_sender()
        self.partitioner.on_leaders_changed(topic)
        if topic.queues and not topic.known and not topic.status.moving:
            self._designate_records(topic)

    def _store_identity(self, topic: Topic, info: TopicInfo) -> bool:
        """Store the identity of the topic. Return whether it is a different topic than before."""
        status = topic.status
        before = status.incarnation
        changed = status.store_identity(info.topic_id, self._cluster_id)
        if changed:
            # In a cluster that was wiped, the id may now belong to another producer.
            self._engine.ids.expire_ids()
        for queue in topic.all_queues() if status.incarnation != before else ():
            if changed:
                queue.change_incarnation(status.incarnation)
            else:
                queue.rename_incarnation(status.incarnation)
        return changed

    def _on_topic_error(self, topic: Topic, code: int) -> None:
        error = error_for(code, api="Metadata", resource=topic.name)
        assert error is not None
        if not classify(error, Scope.METADATA).again:
            for queue in topic.all_queues():
                for batch in list(queue.all_batches()):
                    self._accumulator.fail_batch(batch, error)
            self._refused.add(topic.name)
            self._schedule_search()

    # -- records for topics whose metadata was refused

    def _schedule_search(self) -> None:
        if self._search is None and self._refused and not self._stopped:
            self._search = self._accumulator.callbacks.call_later(
                REFUSED_TOPIC_S, self._search_refused_topics
            )

    def _search_refused_topics(self) -> None:
        """Request the metadata of refused topics for which records wait.

        The metadata updater does not repeat a refused request. But a missing permission may have
        been granted in the meantime.
        """
        self._search = None
        waiting = {b.queue.topic.name for b in self._accumulator.pending if b.partition is None}
        for name in (waiting & self._refused) - self._reconsidered:
            self._reconsidered.add(name)
            self._engine.supervisor.spawn(
                self._refresh_refused_topic, name, name=f"metadata of {name}"
            )
        self._schedule_search()

    async def _refresh_refused_topic(self, name: str) -> None:
        """Request the metadata of a topic, and fail its waiting records if it is still refused."""
        timeout = self._config.default_api_timeout_ms / 1000
        try:
            await self._updater.refresh((name,), timeout=timeout)
        except KafkaError:
            pass  # The records wait for the next attempt, up to their own deadline.
        self._reconsidered.discard(name)
        info = self.topics[name].status.info
        if info is not None and info.error:
            self._on_topic_error(self.topics[name], info.error)

    def _resize_topic(self, topic: Topic, count: int) -> None:
        while len(topic.queues) < count:
            queue = topic.add_partition()
            self._accumulator.memory.set_unsendable(queue, True)
        had_absent = bool(topic.absent)
        dropped = topic.drop_partitions(count, self._clock.monotonic())
        if dropped and not had_absent:
            self._accumulator.callbacks.call_later(
                ABSENT_PARTITION_S, self._search_absent_partitions, topic
            )
        for queue in dropped:
            self._accumulator.set_unsendable(queue, True)
            self._accumulator.schedule_expiry()

    def _search_absent_partitions(self, topic: Topic) -> None:
        """Request metadata while records wait for partitions that the metadata does not list."""
        topic.forget_unseen_partitions()
        if not topic.absent or self._stopped:
            return
        if topic.known and topic.leave_absent_partitions():
            topic.become_unknown()
            self._designate_records(topic)
        if any(queue.oldest_batch() is not None for queue in topic.absent.values()):
            self._updater.request_update((topic.name,))
        self._accumulator.callbacks.call_later(
            ABSENT_PARTITION_S, self._search_absent_partitions, topic
        )

    def _set_leader(self, queue: PartitionQueue, partition: PartitionInfo) -> None:
        sender = self._engine.find_sender(partition.leader) if partition.leader >= 0 else None
        moved = sender is not queue.sender
        queue.set_leader(sender, partition.leader_epoch)
        if not moved:
            return
        if sender is None:
            self._accumulator.set_unsendable(queue, True)
            return
        if queue.in_flight:
            # The new leader recognizes by their sequences what the old one has written, so the
            # batches can be sent to it at once. Without sequences, they would be written twice.
            if queue.sequences.producer_id >= 0 and not queue.changing:
                queue.ignore_responses()
            else:
                queue.pause_until_drained()
        sender.gain_queue(queue)

    # -- records that waited for the partitions

    def _designate_records(self, topic: Topic) -> None:
        """Move waiting records to their partitions, over several loop iterations if necessary."""
        until = self._clock.monotonic() + SLICE_S
        while topic.queues and (batch := topic.next_waiting()) is not None:
            self._move_batch(topic, batch)
            if self._clock.monotonic() >= until:
                topic.status.begin_moving()
                self._accumulator.callbacks.call_soon(self._designate_records, topic)
                return
        if not topic.queues:  # The topic was deleted in the meantime.
            topic.status.end_moving()
            return
        topic.become_known()
        self._accumulator.on_room()

    def _move_batch(self, topic: Topic, batch: ProducerBatch) -> None:
        queue = batch.queue
        queue.remove_batch(batch)
        batch.update_count()
        explicit, own = batch.explicit, queue.partition
        # The memory of the batch is released first, so that its records find room in their queues.
        self._accumulator.release_memory(batch)
        for index, record in enumerate(batch.builder.records()):
            if explicit is not None:
                partition = explicit[index]
            else:  # The records of an absent partition.
                partition = -1 if own is None or not batch.is_chosen(index) else own
            target, at = self._append_record(topic, partition, batch, record)
            batch.forward_records(1, target, at)
            if batch.skips_linger:
                target.skip_linger()
        self._engine.failures.on_records_moved(batch)
        batch.mark_split()
        self._accumulator.forget_batch(batch)

    def _append_record(
        self,
        topic: Topic,
        partition: int,
        batch: ProducerBatch,
        record: tuple[int, bytes | None, bytes | None, Headers],
    ) -> tuple[DeliveryBatch, int]:
        timestamp, key, value, headers = record
        size = record_size(key, value, headers)
        known = partition < len(topic.queues) or batch.queue.partition is not None
        if not known:
            error = self._make_no_such_partition_error(topic.name, partition, len(topic.queues))
            return self._make_failed_record(topic, partition, timestamp, error), 0
        try:
            if partition >= 0:
                queue = self.queue_of(topic, partition)
            else:
                queue = self.partitioner.choose_queue(topic, key, size)
        except KafkaError as error:
            return self._make_failed_record(topic, None, timestamp, error), 0
        target, at = self._accumulator.append_record(
            queue, timestamp, key, value, headers, size, forced=True
        )
        if partition >= 0:
            target.mark_chosen(at)
        # The delivery timeout of a record starts with its send, not with this move.
        target.backdate_timeout(batch.created)
        return target, at

    def _make_failed_record(
        self, topic: Topic, partition: int | None, timestamp: int, error: KafkaError
    ) -> DeliveryBatch:
        single = FailedRecords(
            topic.name, -1 if partition is None else partition, self._accumulator
        )
        single.add_record(timestamp)
        single.fail(self._accumulator.categorize_error(error))
        self._accumulator.report_failure(single)
        return single

    def _make_no_such_partition_error(
        self, topic: str, partition: int | None, count: int
    ) -> KafkaError:
        missing = TopicPartition(topic, -1 if partition is None else partition)
        return no_such_partition(missing, count)


def _described(queue: PartitionQueue) -> str:
    return f"topic {queue.topic.name}" if queue.partition is None else str(queue.topic_partition)


def _refusal(batch: ProducerBatch) -> str:
    """Return why the attempts to write a batch have failed, although its leader is reachable."""
    error = batch.last_error
    last = "" if error is None else f": {error.brief.rstrip('.')}"
    return f"{batch.failures} attempt(s) to write its oldest records have failed{last}"


def _reason(queue: PartitionQueue) -> str:
    if queue.partition is None:
        return "its partitions are not known"
    if queue.sender is None:
        return "it has no leader"
    leader = f"broker {queue.sender.node_id}, its leader,"
    seconds = queue.sender.measure_unanswered_s()
    if seconds > 0:
        return f"{leader} has not answered for {seconds:.0f} s"
    return f"{leader} cannot be reached"
