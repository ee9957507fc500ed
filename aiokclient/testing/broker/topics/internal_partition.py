"""The partitions of internal topics, whose records are encoded when somebody reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from aiokclient.record.batch import RecordBatch, RecordBatchBuilder, with_offset
from aiokclient.record.control import end_transaction_batch
from aiokclient.testing.broker.topics.topics import ANYTHING, Partition

if TYPE_CHECKING:
    from aiokclient.testing.broker.topics.log import PartitionLog
    from aiokclient.testing.broker.topics.topics import BrokerTopic

Record: TypeAlias = "tuple[bytes, bytes | None]"
"""A key and a value. The value None is a tombstone."""

_MOST_WAITING = 10_000
"""Batches that wait at most. They use more memory than encoded ones do."""
_NO_LIMIT = 1 << 31


class WaitingBatch(NamedTuple):
    """A batch that is not encoded yet. Without `make_records`, it is the marker of a producer."""

    timestamp: int
    leader_epoch: int
    producer: tuple[int, int] | None
    make_records: Callable[[], list[Record]] | None
    commit: bool
    coordinator_epoch: int


class InternalPartition(Partition):
    """A partition of an internal topic. Reading its log encodes the batches that wait."""

    def __init__(self, topic: BrokerTopic, index: int, replicas: Iterable[int]) -> None:
        self._waiting: list[WaitingBatch] = []
        super().__init__(topic, index, replicas)

    @property
    def log(self) -> PartitionLog:
        """The log, with all batches so far."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                self._encode_batch(each)
        return self._log

    @log.setter
    def log(self, log: PartitionLog) -> None:
        self._waiting.clear()
        self._log = log

    def add_batch(self, batch: WaitingBatch) -> None:
        """Append a batch, and notify the watchers."""
        self._waiting.append(batch)
        if len(self._waiting) >= _MOST_WAITING:
            assert self.log is self._log
        self.notify_watchers(ANYTHING)

    def _encode_batch(self, waiting: WaitingBatch) -> None:
        producer_id, epoch = waiting.producer or (-1, -1)
        if waiting.make_records is None:
            data = end_transaction_batch(
                waiting.commit,
                producer_id,
                epoch,
                waiting.timestamp,
                coordinator_epoch=waiting.coordinator_epoch,
            )
        else:
            records = waiting.make_records()
            if not records:
                return
            builder = RecordBatchBuilder(limit=_NO_LIMIT)
            for key, value in records:
                builder.append(waiting.timestamp, key, value)
            builder.close()
            transactional = waiting.producer is not None
            data = bytes(builder.seal(producer_id, epoch, -1, transactional=transactional))
        data = with_offset(data, self._log.end_offset, waiting.leader_epoch)
        segment_bytes = self.topic.configs.read_number("segment.bytes")
        self._log.append_batch(data, RecordBatch(data), segment_bytes=segment_bytes)
