"""Retry topics: records that run again later, without making others wait.

A failed record is written to a retry topic with the time at which it is due. The same worker reads
these topics, as a member of the consumer's group, and keeps a record in `DueRecords` until it is
due. Records of a partition run in the order of their due times, which need not be that of their
offsets: delays grow with the failures of a record, and a handler may choose one. While as many
records of a partition wait as may be kept, nothing more is read from it, as if it were paused. So
no handler sleeps, and a restart changes nothing: the due time is in the record, and what is kept
is not committed.

Due times are those of the clocks of the processes. Clocks that differ shift them.

Retry topics are read from their first record if the group has committed nothing there, whatever
`auto_offset_reset` says: what is there has failed and is still to be handled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final, cast

from aiokclient.admin import Admin, NewTopic
from aiokclient.config.client import ClientConfig
from aiokclient.consumer.state.partition import DeliveredList
from aiokclient.errors import IllegalStateError, KafkaError, UnknownTopicOrPartitionError
from aiokclient.types import ConsumerRecord, TopicPartition, size_of
from aiokclient.worker.dead_letters import RawRecord, attempts_of, due_ms_of
from aiokclient.worker.lanes import BatchLanes, Lanes

if TYPE_CHECKING:
    from aiokclient.clock import Clock
    from aiokclient.consumer import Consumer
    from aiokclient.share.share_consumer import ShareConsumer
    from aiokclient.worker.dead_letters import DeadLetter
    from aiokclient.worker.options import WorkerOptions
    from aiokclient.worker.retry import Retry

KEPT_RECORDS: Final = 1000
"""The records of a partition that are kept until they are due, at most."""
KEPT_BYTES: Final = 16 * 1024 * 1024
"""The size of the kept records of a worker from which on a partition keeps no more than one."""


class DueRecords:
    """The records of retry topics that were read and are not due. Pure."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, int, Any, RawRecord]] = []
        """Due time, number, partition, and record: a heap."""
        self._entered = 0
        self._counts: dict[Any, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def count_room(self, partition: Any) -> int:
        """Return how many more records of a partition may be kept."""
        most = 1 if self._bytes >= KEPT_BYTES else KEPT_RECORDS
        return max(most - self._counts.get(partition, 0), 0)

    def keep_record(self, partition: Any, record: RawRecord, due: float) -> None:
        """Keep a record until it is due."""
        self._entered += 1
        heappush(self._kept, (due, self._entered, partition, record))
        self._counts[partition] = self._counts.get(partition, 0) + 1
        self._bytes += _size(record)

    def take_due(self, now: float) -> list[tuple[Any, RawRecord]]:
        """Return the records that are due, with their partitions, the earliest first."""
        due: list[tuple[Any, RawRecord]] = []
        while self._kept and self._kept[0][0] <= now:
            _, _, partition, record = heappop(self._kept)
            self._forget_record(partition, record)
            due.append((partition, record))
        return due

    def find_next_due(self) -> float | None:
        """Return the time at which the next record is due, or None."""
        return self._kept[0][0] if self._kept else None

    def list_partitions(self) -> list[Any]:
        """Return the partitions of the kept records."""
        return list(self._counts)

    def drop_partition(self, partition: Any) -> list[RawRecord]:
        """Remove the records of a partition, and return them."""
        if partition not in self._counts:
            return []
        dropped = [each[3] for each in self._kept if each[2] is partition]
        self._kept = [each for each in self._kept if each[2] is not partition]
        heapify(self._kept)
        for record in dropped:
            self._forget_record(partition, record)
        return dropped

    def _forget_record(self, partition: Any, record: RawRecord) -> None:
        self._bytes -= _size(record)
        self._counts[partition] -= 1
        if not self._counts[partition]:
            del self._counts[partition]


class DueLanes(Lanes):
    """Lanes which records of retry topics enter when they are due.

    It comes before another class of lanes among the bases of a class.
    """

    _topics: WorkerTopics
    _clock: Clock
    _due: DueRecords

    def watch_topics(self, topics: WorkerTopics, clock: Clock) -> None:
        """Keep the records of these retry topics until they are due."""
        self._topics, self._clock = topics, clock
        self._due = DueRecords()

    def count_room(self, partition: Any) -> int:
        room = super().count_room(partition)
        if room <= 0 or not self._topics.is_retry_topic(partition.tp.topic):
            return room
        return self._due.count_room(partition)

    def add_records(self, partition: Any, records: Iterable[Any], now: float) -> None:
        if not self._topics.is_retry_topic(partition.tp.topic):
            super().add_records(partition, records, now)
            return
        if isinstance(records, DeliveredList):  # They are due apart.
            partition.divide_list(records, records)
        now_ms = self._clock.time_ms()
        for record in records:
            left_s = (self._topics.find_due_ms(record) - now_ms) / 1000
            if left_s <= 0:
                super().add_records(partition, [record], now)
            else:
                self._due.keep_record(partition, record, now + left_s)
                self.held += 1

    def release_due(self, now: float) -> None:
        super().release_due(now)
        for partition, record in self._due.take_due(now):
            self.held -= 1
            super().add_records(partition, [record], now)

    def find_next_due(self) -> float | None:
        dues = (super().find_next_due(), self._due.find_next_due())
        return min((due for due in dues if due is not None), default=None)

    def list_partitions(self) -> list[Any]:
        return list(dict.fromkeys([*super().list_partitions(), *self._due.list_partitions()]))

    def drop_partition(self, partition: Any) -> list[Any]:
        dropped = self._due.drop_partition(partition)
        self.held -= len(dropped)
        return [*super().drop_partition(partition), *dropped]

    def has_records(self) -> bool:
        return len(self._due) > 0 or super().has_records()


class DueRecordLanes(DueLanes, Lanes):
    """The lanes of a worker with retry topics whose handler takes single records."""


class DueBatchLanes(DueLanes, BatchLanes):
    """The lanes of a worker with retry topics whose handler takes lists of records."""


def make_lanes(options: WorkerOptions, topics: WorkerTopics, clock: Clock) -> Lanes:
    """Return the lanes of a worker."""
    order, concurrency, batch = options.order, options.concurrency, options.batch
    if not options.retry.topics:
        if batch is None:
            return Lanes(order, concurrency)
        return BatchLanes(order, concurrency, batch.max_records, batch.max_wait)
    lanes: DueLanes
    if batch is None:
        lanes = DueRecordLanes(order, concurrency)
    else:
        lanes = DueBatchLanes(order, concurrency, batch.max_records, batch.max_wait)
    lanes.watch_topics(topics, clock)
    return lanes


def _size(record: RawRecord) -> int:
    return max(size_of(record.key), 0) + max(size_of(record.value), 0)


class WorkerTopics:
    """The retry topics and the topic for dead letters of one run of a worker."""

    def __init__(
        self,
        consumer: Consumer[Any, Any] | ShareConsumer[Any, Any],
        retry: Retry,
        dead_letter: DeadLetter | None,
    ) -> None:
        self._consumer = consumer
        self._retry = retry
        self._dead_letter = dead_letter
        self._names = frozenset(retry.topics)
        self._former: tuple[re.Pattern[str] | list[str], Any] | None = None
        """The topics and the listener before retry topics were added."""

    async def open(self) -> None:
        """Check or create the topics, and add the retry topics to the subscription.

        Raises IllegalStateError without a group, and if the worker would read its dead letters;
        UnknownTopicOrPartitionError for a topic that does not exist and is not to be created.
        """
        if self._names and self._consumer._config.group_id is None:
            raise IllegalStateError(
                "Retry topics need a group, whose offsets say what is still to be handled. Give "
                "the consumer a group_id, or retry in place, without Retry(topic=...)."
            )
        letters = self._dead_letter
        if not self._names and letters is None:
            return
        if letters is not None:
            read = self._list_main_topics() | self._names
            if letters.topic in read:
                raise IllegalStateError(
                    f"The worker reads {letters.topic}, to which it would write its dead letters. "
                    "Name another topic, or subscribe to a pattern that does not match it."
                )
        await self._find_topics()
        if self._names:
            self._add_retry_topics()

    def close(self) -> None:
        """Restore the subscription of the consumer. Synchronous."""
        if self._former is None:
            return
        (topics, listener), self._former = self._former, None
        consumer = cast("Consumer[Any, Any]", self._consumer)
        consumer._subscription.read_whole_topics(())
        if consumer._usable:  # Not `state`, which is that of before during a close.
            consumer.subscribe(topics, listener)

    # -- records

    def has_retry_topics(self) -> bool:
        """Return whether this worker has retry topics."""
        return bool(self._names)

    def is_retry_topic(self, topic: str) -> bool:
        """Return whether a topic is a retry topic of this worker."""
        return topic in self._names

    def find_due_ms(self, record: ConsumerRecord[Any, Any]) -> int:
        """Return when a record is due, in milliseconds since the epoch; 0 for one that has no time.

        Only records of retry topics have one.
        """
        return due_ms_of(record) or 0 if record.topic in self._names else 0

    def count_attempts(self, record: ConsumerRecord[Any, Any]) -> int:
        """Return the number of runs that a record had before it was written to a retry topic."""
        if record.topic in self._names and due_ms_of(record) is not None:
            return attempts_of(record)
        return 0

    # -- topics

    def _list_main_topics(self) -> set[str]:
        """Return the topics that the consumer reads besides the retry topics."""
        read = self._consumer.subscription() | {tp.topic for tp in self._consumer.assignment()}
        return read - self._names

    async def _find_topics(self) -> None:
        """Find the partitions of the topics, and create those that are missing, if asked for."""
        names = [*self._retry.topics, *([self._dead_letter.topic] if self._dead_letter else [])]
        async with self._make_admin() as admin:
            described = await admin.describe_topics(names)
            known = {each.name: each for each in described.succeeded.values()}
            missing = [name for name in names if name not in known]
            for name in missing:
                error = described.errors[name]
                if error.code != UnknownTopicOrPartitionError.code:
                    raise error
                if not self._may_create(name):
                    raise _missing_error(name, self._describe_use(name)) from error
            if missing:
                await self._create_topics(admin, missing)

    async def _create_topics(self, admin: Admin, missing: Sequence[str]) -> None:
        """Create topics with as many partitions and replicas as the topics that are read."""
        main = self._list_main_topics()
        described = await admin.describe_topics(main)
        partitions = [
            each for topic in described.raise_for_errors().values() for each in topic.partitions
        ]
        if not partitions:
            raise _missing_error(", ".join(missing), "topic")
        count = max(each.index for each in partitions) + 1
        replicas = max(len(each.replicas) for each in partitions)
        # Another worker may create them at the same time.
        ensured = await admin.ensure_topics([NewTopic(name, count, replicas) for name in missing])
        ensured.raise_for_errors()

    def _make_admin(self) -> Admin:
        consumer = self._consumer
        if consumer._client is not None:
            return Admin(client=consumer._client)
        given = consumer._config.given_options()
        return Admin(**{name: given[name] for name in ClientConfig.declarations if name in given})

    def _may_create(self, name: str) -> bool:
        if name in self._names:
            return self._retry.create
        return self._dead_letter is not None and self._dead_letter.create

    def _describe_use(self, name: str) -> str:
        return "retry topic" if name in self._names else "topic for dead letters"

    def _add_retry_topics(self) -> None:
        """Subscribe to the retry topics, too."""
        consumer = cast("Consumer[Any, Any]", self._consumer)
        present = consumer._subscription.subscription
        listener = consumer._listener
        consumer._subscription.read_whole_topics(self._names)
        names = [name for name in self._retry.topics if name not in present.topics]
        if present.pattern is not None:
            self._former = present.pattern, listener
            escaped = "|".join(map(re.escape, self._retry.topics))
            pattern = f"(?:{present.pattern.pattern})|{escaped}"
            consumer.subscribe(re.compile(pattern, present.pattern.flags), listener)
        else:
            self._former = list(present.topics), listener
            consumer.subscribe([*present.topics, *names], listener)


def _missing_error(name: str, use: str) -> KafkaError:
    return UnknownTopicOrPartitionError(
        f"The {use} {name} does not exist. Create it, or let the worker do so by create=True.",
        topic_partition=TopicPartition(name, -1),
    )
