"""The results of the admin calls about transactions."""

from __future__ import annotations

from dataclasses import dataclass

from aiokclient.admin.cluster import BrokerDescription
from aiokclient.types import TopicPartition

__all__ = [
    "ActiveProducer",
    "FencedProducer",
    "HangingTransaction",
    "TransactionDescription",
    "TransactionListing",
]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as `list_transactions` returns it.

    `state` is Kafka's name: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort",
    "CompleteCommit", "CompleteAbort", or "PrepareEpochFence".
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: BrokerDescription


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id with its latest transaction.

    `timeout_ms` is the producer's `transaction_timeout_ms`. `start_time_ms` is in milliseconds
    since the epoch, and None if no transaction is in progress. `partitions` has the partitions to
    which the transaction writes; once it is ending, only those whose logs do not have the marker
    yet. Committed offsets count as partitions of `__consumer_offsets`.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: frozenset[TopicPartition]
    coordinator: BrokerDescription


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """An idempotent or transactional producer of which a partition's log has records.

    `last_sequence` is -1 if only a marker of the producer is known. `last_timestamp` is in
    milliseconds since the epoch. `coordinator_epoch` is that of the last marker, or None if there
    is no marker. `transaction_start_offset` is the offset of the first record of the open
    transaction, or None if no transaction is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer id and epoch that a transactional id has after its producers were fenced."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in the log of a partition, which `abort_transaction` can end.

    The first four fields identify it. For brokers older than 3.0, which cannot search for hanging
    transactions, create it from data of the log (`kafka-dump-log.sh`). The remaining fields are
    what `find_hanging_transactions` knows of it: the offset of its first record, the time of its
    last record in milliseconds since the epoch, and the transactional id. None means unknown.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None = None
    start_offset: int | None = None
    last_timestamp: int | None = None
    transactional_id: str | None = None
