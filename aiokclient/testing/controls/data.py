"""Controls of the embedded cluster that act on topics and their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from aiokclient.record.batch import (
    Compression,
    RecordBatch,
    RecordBatchBuilder,
    walk,
)
from aiokclient.testing.broker.state import Refused
from aiokclient.testing.broker.topics.compaction import CompactionTimes
from aiokclient.testing.broker.topics.topics import NO_LEADER, Partition
from aiokclient.testing.controls.base import Controls
from aiokclient.types import ConsumerRecord, ProducerRecord, RecordMetadata

Value: TypeAlias = "bytes | tuple[bytes | None, bytes | None] | ProducerRecord | None"
"""A value, a (key, value) pair, a complete ProducerRecord, or None for a tombstone."""

_NO_LIMIT = 1 << 31


class DataControls(Controls):
    """Controls that create and delete topics, and that read and write records without a client."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication: int | None = None,
        configs: Mapping[str, str | int] = {},
    ) -> UUID:
        """Create a topic and return its id. Raises ValueError where a broker would refuse."""

        def create_in_loop() -> UUID:
            try:
                assignment = self._state.assign_replicas(partitions, replication or -1)
                values = {key: str(value) for key, value in configs.items()}
                return self._state.create_topic(name, assignment, values).topic_id
            except Refused as refused:
                raise ValueError(refused.message) from None

        return self._runner.call_in_loop(create_in_loop)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        self._runner.call_in_loop(lambda: self._state.delete_topic(self.find_topic(name)))

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions of a topic to `total`."""

        def add_in_loop() -> None:
            topic = self.find_topic(name)
            have = len(topic.partitions)
            if total > have:
                replication = len(topic.partitions[0].replicas)
                new = self._state.assign_replicas(total - have, replication, have)
                self._state.add_partitions(topic, new)

        self._runner.call_in_loop(add_in_loop)

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by topic name, without internal topics."""
        return self._runner.call_in_loop(
            lambda: {
                name: len(topic.partitions)
                for name, topic in self._state.topics.items()
                if not topic.internal
            }
        )

    def topic_id(self, name: str) -> UUID:
        """Return the id of a topic. It changes when the topic is deleted and created again."""
        return self._runner.call_in_loop(lambda: self.find_topic(name).topic_id)

    def produce(
        self,
        topic: str,
        values: Iterable[Value],
        partition: int = 0,
        *,
        compression: str = "none",
        producer_id: int = -1,
        producer_epoch: int = 0,
        base_sequence: int = 0,
        transactional: bool = False,
        timestamp: int | None = None,
    ) -> list[RecordMetadata]:
        """Append values, (key, value) pairs, or ProducerRecords, as one batch for each partition.

        `partition` applies to the values that do not name a partition. With a producer id and
        `transactional`, the batches belong to a transaction, which `end_transaction` ends. Raises
        ValueError where a broker would refuse.
        """
        now_ms = self._state.clock.time_ms() if timestamp is None else timestamp
        batches: dict[int, RecordBatchBuilder] = {}
        positions: list[tuple[int, int, int]] = []
        for each in values:
            record = _make_record(topic, each)
            index = partition if record.partition is None else record.partition
            if index not in batches:
                codec = Compression[compression.upper()]
                batches[index] = RecordBatchBuilder(compression=codec, limit=_NO_LIMIT)
            stamp = now_ms if record.timestamp is None else record.timestamp
            at = batches[index].append(stamp, record.key, record.value, record.headers)
            positions.append((index, at, stamp))
        bases: dict[int, int] = {}
        for index, builder in batches.items():
            builder.close()
            sequence = base_sequence if producer_id >= 0 else -1
            epoch = producer_epoch if producer_id >= 0 else -1
            data = builder.seal(producer_id, epoch, sequence, transactional=transactional)
            bases[index] = self.append(topic, index, data)
        return [
            RecordMetadata(topic, index, bases[index] + at, stamp) for index, at, stamp in positions
        ]

    def append(self, topic: str, partition: int, batch: bytes | memoryview) -> int:
        """Append one record batch as it is, and return its base offset.

        Nothing is checked except the producer's sequence. Raises ValueError for a sequence that is
        out of order, and while the partition has no leader.
        """

        def append_batches() -> int:
            found = self.find_partition(topic, partition)
            if found.leader == NO_LEADER:
                raise ValueError(f"{found!r} has no leader, so no broker accepts a batch.")
            result = found.append_batch(RecordBatch(batch), self._state.clock.time_ms())
            if result.code:
                raise ValueError(f"{found!r} refused the batch: {result.code.name}.")
            self._state.notify_tests()
            return result.base_offset

        return self._runner.call_in_loop(append_batches)

    def end_transaction(
        self,
        topic: str,
        partition: int = 0,
        *,
        producer_id: int,
        producer_epoch: int = 0,
        commit: bool = True,
    ) -> int:
        """Write the marker that ends a producer's transaction in a partition; return its offset."""

        def write_marker() -> int:
            found = self.find_partition(topic, partition)
            now_ms = self._state.clock.time_ms()
            offset = found.end_transaction(commit, producer_id, producer_epoch, now_ms)
            self._state.notify_tests()
            return offset

        return self._runner.call_in_loop(write_marker)

    def records(
        self, topic: str, partition: int | None = None, *, start: int = 0
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """Return the records of a partition, or of all partitions in order, from `start` on.

        The log is read up to its end. Only control records are left out, so that the result
        includes the records of aborted transactions.
        """
        batches = self._runner.call_in_loop(lambda: self._read_batches(topic, partition, start))
        found: list[ConsumerRecord[bytes, bytes]] = []
        for index, data, first in batches:
            for batch in walk(data):
                if not batch.is_control:
                    found.extend(batch.records(topic, index, first))
        return found

    def batches(self, topic: str) -> list[tuple[int, list[memoryview]]]:
        """Return the record batches of a topic as bytes, with control batches, by partition."""
        found: dict[int, list[memoryview]] = {}
        for index, data, _ in self._runner.call_in_loop(lambda: self._read_batches(topic, None, 0)):
            found.setdefault(index, []).append(data)
        return list(found.items())

    def _read_batches(
        self, topic: str, partition: int | None, start: int
    ) -> list[tuple[int, memoryview, int]]:
        all_of_them = self.find_topic(topic).partitions
        chosen = all_of_them if partition is None else [self.find_partition(topic, partition)]
        return [
            (each.index, batch.buffer, max(start, each.log.start_offset))
            for each in chosen
            for batch in each.log.read_batches(start)
        ]

    def compact(self, topic: str, partition: int | None = None) -> None:
        """Compact a partition, or all partitions, as the log cleaner of Kafka does once.

        For each key, the last record stays. Offsets stay, so the log has gaps. The last batch of
        each partition stays as it is, because Kafka does not clean the active segment, and so do
        the records of open transactions and all records after them. Aborted records and records
        without a key are removed. The last batch of a producer whose records are removed becomes an
        empty batch. Tombstones, and markers of transactions without records, are removed by the
        first compaction after `delete.retention.ms` since the one that met them first.

        `min.compaction.lag.ms` has no effect. Raises ValueError if `cleanup.policy` of the topic
        does not include "compact".
        """

        def compact_in_loop() -> None:
            found = self.find_topic(topic)
            if "compact" not in found.configs["cleanup.policy"]:
                raise ValueError(f"Topic {topic!r} is not compacted. Set cleanup.policy=compact.")
            chosen = found.partitions
            if partition is not None:
                chosen = [self.find_partition(topic, partition)]
            retention_ms = found.configs.read_number("delete.retention.ms")
            times = CompactionTimes(self._state.clock.time_ms(), retention_ms)
            for each in chosen:
                each.compact(times)
            self._state.notify_tests()

        self._runner.call_in_loop(compact_in_loop)

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Return the log start offset and the high watermark of a partition."""

        def find_offsets() -> tuple[int, int]:
            found: Partition = self.find_partition(topic, partition)
            return found.log.start_offset, found.high_watermark

        return self._runner.call_in_loop(find_offsets)

    def forget_producers(self, topic: str, partition: int = 0) -> None:
        """Forget producers' sequences, as Kafka does after `producer.id.expiration.ms`."""
        self._runner.call_in_loop(
            lambda: self.find_partition(topic, partition).log.producers.forget_all()
        )


def _make_record(topic: str, value: Any) -> ProducerRecord:
    if isinstance(value, ProducerRecord):
        return value
    if isinstance(value, tuple):
        key, value = value
        return ProducerRecord(topic, value, key)
    return ProducerRecord(topic, value)
