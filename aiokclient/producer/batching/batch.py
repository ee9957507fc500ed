"""A batch of records of one partition, from its first record to its outcome.

`stages` has the table of a batch's stages. Everything that changes a batch is a method here; other
modules read its attributes.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from aiokclient.cluster.requests.attempts import is_refusal
from aiokclient.errors import KafkaError
from aiokclient.log.kept_errors import bare
from aiokclient.producer.batching.sequences import BatchIdentity, advance
from aiokclient.producer.batching.stages import BEFORE, BatchStage, InLog, StageError
from aiokclient.producer.delivery import delivery
from aiokclient.record import batch as record_batch
from aiokclient.record.batch import Compression
from aiokclient.types import Headers, TopicPartition

if TYPE_CHECKING:
    from aiokclient.producer.batching.queue import PartitionQueue
    from aiokclient.producer.delivery.delivery import DeliveryBatch, DeliveryHooks

RECORD_OVERHEAD = 40
"""An upper bound of the encoded size of a record without headers, beyond its key and value, in
bytes: length, attributes, timestamp delta, offset delta, key length, value length, header count."""

FIRST_RESERVE = 1024
"""Number of bytes that an open batch first reserves beyond its first record. Each time the reserve
is used up, it grows by a factor of four."""

# Every batch passes these stages, so they are looked up only once: reading a member of an
# enumeration takes as long as a call.
_OPEN, _NOT_IN_LOG = BatchStage.OPEN, InLog.NO
_QUEUED, _BEFORE_QUEUED = BatchStage.QUEUED, BEFORE[BatchStage.QUEUED]
_IN_FLIGHT, _BEFORE_IN_FLIGHT = BatchStage.IN_FLIGHT, BEFORE[BatchStage.IN_FLIGHT]
_DONE, _BEFORE_DONE = BatchStage.DONE, BEFORE[BatchStage.DONE]
_UNCOMPRESSED = Compression.NONE

_EMPTY = record_batch.RecordBatchBuilder(limit=0)
"""An empty builder that replaces the builder of a batch that has its outcome."""


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return an upper bound of the size of a record, in bytes."""
    size = RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        # A name takes at most four bytes per character; each length at most five.
        size += 4 * len(name) + 10 + (0 if content is None else len(content))
    return size


class ProducerBatch(delivery.BatchState):
    """Records for one partition, or for a topic whose partitions are not known yet."""

    __slots__ = (
        "attempt",
        "by_name",
        "compressing",
        "created",
        "due",
        "failures",
        "first_sent",
        "identity",
        "in_log",
        "last_answer",
        "last_error",
        "plain_size",
        "queue",
        "refused",
        "requests",
        "size",
        "stage",
        "whole",
    )

    def __init__(
        self,
        topic: str,
        queue: PartitionQueue,
        hooks: DeliveryHooks,
        builder: record_batch.RecordBatchBuilder,
        created: float,
        reserved: int = 0,
        in_overflow: bool = False,
        due: bool = False,
    ) -> None:
        """Open a batch, as `begin` does."""
        self.begin(topic, queue, hooks, builder, created, reserved, in_overflow, due)

    def begin(
        self,
        topic: str,
        queue: PartitionQueue,
        hooks: DeliveryHooks,
        builder: record_batch.RecordBatchBuilder,
        created: float,
        reserved: int,
        in_overflow: bool,
        due: bool,
    ) -> None:
        """Open a batch with `reserved` bytes of memory, in the overflow queue if `in_overflow`.

        Compiled modules create a batch by `__new__` and this, which pack no arguments.
        """
        partition = queue.partition
        self.attach(topic, partition, hooks, builder)
        if in_overflow:
            self.in_overflow = True
        if reserved:
            self.reserved = reserved
            self.compute_room()
        if partition is None:
            self.explicit = array("q")
        self.queue = queue
        self.stage = _OPEN
        self.created = self.first_sent = created
        """The times of the first record and of the first request, on the loop's clock."""
        self.due = due
        """Whether the linger time of the batch has passed."""
        self.compressing = False
        """Whether a thread is compressing the batch."""
        self.size = 0
        """Size on the wire in bytes; 0 until the batch is closed and, if it must be, compressed."""
        self.plain_size = 0
        """Uncompressed size in bytes; 0 until the batch is closed."""
        self.identity: BatchIdentity | None = None
        """Producer id, epoch, and first sequence; None until the batch is sent."""
        self.attempt = 0
        """The number of the last attempt. Responses to earlier attempts are ignored."""
        self.failures = 0
        """Number of attempts that failed, for the backoff."""
        self.refused = False
        """Whether the leader refused the batch because an earlier one is missing."""
        self.by_name = False
        """Whether the last request named the topic by its name, not by its id."""
        self.in_log = _NOT_IN_LOG
        """Whether an earlier request with the same identity has written the batch."""
        self.whole: list[ProducerBatch] | None = None
        """All parts of a batch that was split after an unknown outcome.

        Only the first of the parts has this list.
        """
        self.last_error: KafkaError | None = None
        self.last_answer: KafkaError | None = None
        """The last error, but silence does not replace a refusal."""
        """The error of the last attempt, if it failed."""
        self.requests = 0
        """Number of requests that use the bytes of the batch.

        The memory of the batch is released only after the last of them.
        """

    def _enter_stage(self, stage: BatchStage) -> None:
        if self.stage not in BEFORE[stage]:
            raise StageError(self.stage, stage)
        self.stage = stage

    # -- filling

    def reserve_memory(self, size: int) -> None:
        """Add `size` bytes to the memory that is reserved for the batch."""
        self.reserved += size
        self.left += size

    def trim_memory(self) -> int:
        """Remove the unused part of the reserved memory. Return its size in bytes."""
        unused = self.reserved - self.builder.size
        self.reserved -= unused
        return unused

    def free_memory(self) -> None:
        """Set the reserved memory to 0, because it is released.

        If the batch is done, its records are freed, too, so that a delivery that the application
        keeps does not hold them.
        """
        self.reserved = self.left = 0
        self.in_overflow = False
        if (self.stage is _DONE or self.done) and not self.compressing:
            self.builder = _EMPTY
            self.whole = None

    def leave_overflow(self) -> None:
        """Mark the batch as moved from the overflow queue into the buffer."""
        self.in_overflow = False

    def choose_partitions(self, partition: int, count: int = 1) -> None:
        """Store the partition that the application chose for the last `count` records.

        -1 means that it chose none.
        """
        assert self.explicit is not None
        self.explicit.extend([partition] * count)

    def backdate_timeout(self, created: float) -> None:
        """Set the start of the delivery timeout to `created` if that is earlier.

        This is called when an older record was added to the batch.
        """
        self.created = min(self.created, created)

    def end_linger(self) -> None:
        """Mark the linger time of the batch as over."""
        self.due = True

    @property
    def may_move(self) -> bool:
        """Whether its records may move to other batches: they were not sent, and are not in use."""
        unsent = self.identity is None and self.in_log is InLog.NO
        return unsent and not self.compressing and not self.done

    def has_free_records(self) -> bool:
        """Return whether some of its records can go to a partition that the library chooses."""
        if not self.may_move:
            return False
        count = self.builder.count
        if self.chosen_from == 0 and self.chosen_to == count:
            return False
        return not all(map(self.is_chosen, range(count)))

    # -- encoding

    def close_builder(self) -> int:
        """Accept no more records. Return the uncompressed size of the batch in bytes."""
        if self.stage not in _BEFORE_QUEUED:
            raise StageError(self.stage, _QUEUED)
        self.stage = _QUEUED
        builder = self.builder
        self.count = builder.count
        size = self.plain_size = builder.size
        if builder.compression is _UNCOMPRESSED:
            self.size = size
        return size

    def update_count(self) -> None:
        """Copy the number of records from the builder."""
        self.count = self.builder.count

    def compress_and_measure(self) -> None:
        """Compress the batch, and store its compressed size in bytes."""
        builder = self.builder
        builder.close()
        self.size = builder.encoded_size

    def compress_here(self) -> int:
        """Compress the batch in the calling thread. Return its compressed size in bytes."""
        self.builder.close()
        return self.builder.encoded_size

    def begin_compressing(self) -> None:
        """Mark the batch as being compressed by a thread."""
        self.compressing = True

    def end_compressing(self, size: int) -> None:
        """Store the compressed size in bytes, or 0 if the compression failed."""
        self.compressing = False
        self.size = size

    # -- sending

    def set_identity(self, identity: BatchIdentity) -> None:
        """Set the identity with which the batch is sent in this and in later attempts."""
        self.identity = identity

    def begin_attempt(self) -> None:
        """Begin an attempt to send the batch."""
        if self.stage not in _BEFORE_IN_FLIGHT:
            raise StageError(self.stage, _IN_FLIGHT)
        self.stage = _IN_FLIGHT
        self.refused = False
        self.attempt += 1

    def encode_for_request(self, now: float, by_name: bool, transactional: bool) -> memoryview:
        """Count one more request, and return its bytes, with the current identity of the batch."""
        self.requests += 1
        self.by_name = by_name
        if self.attempt == 1:
            self.first_sent = now
        identity, builder = self.identity, self.builder
        if identity is None:
            return builder.seal()
        producer_id, epoch, sequence = identity
        if transactional:
            return builder.seal(producer_id, epoch, sequence, transactional=True)
        return builder.seal(producer_id, epoch, sequence)

    def is_current_attempt(self, attempt: int) -> bool:
        """Return whether the response to an attempt counts.

        It does not if the batch has expired, or was sent again to another leader.
        """
        return attempt == self.attempt and not self.done

    def end_request(self) -> bool:
        """Count one fewer request that uses the bytes. Return whether the bytes can be released."""
        self.requests -= 1
        # Usually the outcome comes next. This saves the question for `done`, which takes longer.
        return self.stage is not _IN_FLIGHT and self.done and not self.requests

    def ignore_response(self) -> None:
        """Ignore the response to the last request, because the batch goes to another leader."""
        self.attempt += 1
        self.note_unknown()

    def note_unknown(self) -> None:
        """Store that the last request may have written the batch."""
        self.in_log = InLog.MAYBE

    def count_failure(self, error: KafkaError) -> None:
        """Count a failed attempt, for the backoff, and keep its error."""
        self.failures += 1
        self.last_error = bare(error)
        if self.last_answer is None or is_refusal(error) or not is_refusal(self.last_answer):
            self.last_answer = error

    def return_to_queue(self, *, refused: bool) -> None:
        """Enter the stage BACKING_OFF, to be sent again later.

        `refused` says that the leader refused the batch because an earlier one is missing.
        """
        self._enter_stage(BatchStage.BACKING_OFF)
        self.refused = refused

    def requeue_without_identity(self, *, unknowable: bool) -> None:
        """Discard the identity and enter the stage QUEUED. The batch will get a new identity.

        `unknowable` says that the batch may be in a log in which no leader can recognize its
        sequence as a repetition.
        """
        self._enter_stage(BatchStage.QUEUED)
        self.in_log = InLog.UNKNOWABLE if unknowable else InLog.NO
        self.identity = None
        self.refused = False
        self.whole = None

    def resume_identity(self, identity: BatchIdentity) -> None:
        """Return to an earlier identity, with which the batch may have been written."""
        self._enter_stage(BatchStage.BACKING_OFF)
        self.identity = identity
        if self.in_log is InLog.NO:
            self.in_log = InLog.MAYBE

    # -- splitting

    def split_into(self, builders: list[record_batch.RecordBatchBuilder]) -> list[ProducerBatch]:
        """Make a smaller batch from each builder, which has a part of the records.

        The deliveries are forwarded to the smaller batches.

        The batch itself enters the stage SPLIT. Its parts begin in the stage BACKING_OFF, with the
        sequences that their records had in this batch.
        """
        self._enter_stage(BatchStage.SPLIT)
        parts: list[ProducerBatch] = []
        before = 0
        for builder in builders:
            part = self._make_part(builder, before)
            self.forward_records(part.count, part, 0)
            before += part.count
            parts.append(part)
        if self.whole is not None:
            parts[0].whole = [*parts, *self.whole[1:]]
        elif self.in_log is not InLog.NO and self.identity is not None:
            # Only the response to the first part shows whether the whole batch was written.
            parts[0].whole = parts
        return parts

    def _make_part(self, builder: record_batch.RecordBatchBuilder, before: int) -> ProducerBatch:
        part = ProducerBatch(
            self.topic,
            self.queue,
            self._hooks,
            builder,
            self.created,
            reserved=builder.size,
            due=True,
        )
        part.stage = BatchStage.BACKING_OFF
        part.count = builder.count
        part.plain_size = builder.size
        part.skips_linger = self.skips_linger
        part.last_error, part.last_answer = self.last_error, self.last_answer
        part.store_timestamp(0, self.timestamp_of(before))
        part.stamps += [
            (index - before, timestamp)
            for index, timestamp in self.stamps
            if before < index < before + part.count
        ]
        if self.chosen_to:
            for index in range(part.count):
                if self.is_chosen(before + index):
                    part.mark_chosen(index)
        if self.identity is not None:
            producer_id, epoch, sequence = self.identity
            part.identity = producer_id, epoch, advance(sequence, before)
        return part

    def pass_on_whole_batch(self) -> None:
        """Let the response to the next part decide whether the whole batch was written."""
        rest = [] if self.whole is None else self.whole[1:]
        if rest:
            rest[0].whole = rest

    def mark_split(self) -> None:
        """Enter the stage SPLIT after all records have moved to other batches."""
        if self.stage is not BatchStage.SPLIT:
            self._enter_stage(BatchStage.SPLIT)
        self.on_emptied()

    # -- outcomes

    def acknowledge(self, base_offset: int, append_time: int, log_start: int = -1) -> None:
        """Complete the batch. `base_offset` is the offset of its first record, or -1 if unknown."""
        if self.stage not in _BEFORE_DONE:
            raise StageError(self.stage, _DONE)
        self.stage = _DONE
        self.succeed(base_offset, append_time, log_start)

    def is_expired(self, now: float, timeout: float) -> bool:
        """Return whether `timeout` seconds have passed since the first record of the batch."""
        return now - self.created >= timeout

    def with_partition(self, error: KafkaError) -> KafkaError:
        """Return the error with the batch's partition: the error itself, or a copy of it."""
        return with_partition(error, self.queue.topic_partition)

    def fail_records(self, error: KafkaError) -> list[DeliveryBatch]:
        """Fail the records. Return the batches that hold them afterwards.

        Usually that is only this batch. If the partitions of the topic are not known, there is one
        batch for each partition that the application chose, so that each error names the partition
        of its record.
        """
        self._enter_stage(BatchStage.DONE)
        self.update_count()
        explicit = self.explicit
        if explicit is None or self.moved or max(explicit, default=-1) < 0:
            self.fail(self.with_partition(error))
            return [self]
        parts: dict[int, FailedRecords] = {}
        for index, chosen in enumerate(explicit):
            part = parts.get(chosen)
            if part is None:
                part = parts[chosen] = FailedRecords(self.topic, chosen, self._hooks)
            self.forward_records(1, part, part.add_record(self.timestamp_of(index)))
        for chosen, part in parts.items():
            part.fail(with_partition(error, TopicPartition(self.topic, chosen)))
        self.on_emptied()
        return [*parts.values()]


def with_partition(error: KafkaError, topic_partition: TopicPartition) -> KafkaError:
    """Return the error itself if it names this partition, otherwise a copy that names it."""
    if error.topic_partition == topic_partition:
        return error
    return error.with_partition(topic_partition)


class FailedRecords(delivery.DeliveryBatch):
    """The outcome of records that failed while the partitions of their topic were unknown.

    `partition` is the one that the application chose, or -1 if it chose none.
    """

    __slots__ = ("stamps",)

    stamps: list[int]

    def __init__(self, topic: str, partition: int, hooks: DeliveryHooks) -> None:
        super().__init__(topic, partition if partition >= 0 else None, hooks)
        self.stamps = []

    def add_record(self, timestamp: int) -> int:
        """Add a record. Return its index."""
        self.stamps.append(timestamp)
        self.count += 1
        return self.count - 1

    def timestamp_of(self, index: int) -> int:
        """Return the timestamp with which a record was sent."""
        return self.stamps[index]
