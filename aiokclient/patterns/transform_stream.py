"""Consume, transform, and produce, exactly once: one transaction for each batch of records.

The stream reads a batch, begins a transaction, and delivers the batch to the application, which
sends its results in the transaction. The request for the next batch commits the transaction,
together with the offsets of the batch.

`policy.classify` decides about an error of a transaction. After an abortable one, the transaction
is aborted; after an application-recoverable one, the producer restarts. In both cases the consumer
then continues at the offsets that its group has committed. Because the offsets of a batch are part
of its transaction, this is right even if the commit of the transaction got no response: if the
commit was executed, the consumer continues after the batch, otherwise the batch is delivered again.
Any other error is raised.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from aiokclient.consumer.arguments import require_count
from aiokclient.errors import IllegalStateError, KafkaError
from aiokclient.errors.local import ArgumentTypeError, refuse_loop
from aiokclient.log.client_log import ClientLog
from aiokclient.policy import Attempts, Backoff, Decision, Scope, classify
from aiokclient.producer.delivery.delivery import failed_delivery
from aiokclient.producer.transaction.status import TransactionOutcome
from aiokclient.types import ConsumerRecord, Headers, public_in, seconds

if TYPE_CHECKING:
    from aiokclient.consumer import Consumer, Records
    from aiokclient.consumer.delivery.iterators import RecordBatches
    from aiokclient.producer import Delivery, Producer
    from aiokclient.producer.transaction.transaction import Transaction

K = TypeVar("K")
V = TypeVar("V")


class Step(Enum):
    """The call that makes the producer usable again after an error."""

    ABORT = auto()
    RESTART = auto()


STEPS: Mapping[Decision, Step] = {
    # A retriable error is raised only after the timeout of the call, so the transaction is aborted.
    Decision.RETRY: Step.ABORT,
    Decision.REFRESH_AND_RETRY: Step.ABORT,
    Decision.ABORT: Step.ABORT,
    Decision.RECOVER: Step.RESTART,
}
"""The step after an error, by the decision of the policy. Errors without a step are raised."""


@public_in("aiokclient.patterns")
class TransformBatch(Generic[K, V]):
    """The records of one transaction, to be iterated over, with a `send` for the results."""

    def __init__(self, records: Records[K, V], transaction: Transaction) -> None:
        self.records = records
        """The records, as a list."""
        self._transaction = transaction

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"<TransformBatch of {len(self)} records>"

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Send a record in the transaction of this batch. Synchronous.

        The delivery need not be awaited, because the commit waits for it. If the transaction has
        already failed, the delivery has failed, too, and nothing is raised here: the batch is
        delivered again. In all other respects it is like `Producer.send`. Raises IllegalStateError
        after the next batch was requested.
        """
        failure = self._transaction.failure
        if failure is not None:
            return failed_delivery(topic, partition, failure)
        return self._transaction.send(topic, value, key, partition, timestamp, headers)


@public_in("aiokclient.patterns")
class TransformStream(Generic[K, V]):
    """An iterator over batches, each in a transaction of its own. See `transform`."""

    def __init__(
        self,
        consumer: Consumer[K, V],
        producer: Producer[Any, Any],
        max_records: int,
        max_wait: float,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._max_records = max_records
        self._max_wait = max_wait
        self._is_entered = False
        self._loop: TransformLoop[K, V] | None = None
        """The iterator for calls of `anext` on the stream itself."""
        self._transaction: Transaction | None = None
        """The transaction of the last batch, until its end."""
        self._error: KafkaError | None = None
        """The error from which the stream has not recovered yet."""
        self._must_restart = False
        self._abort_limit_s: float | None = None
        """The most seconds for the abort of an open transaction at the end of the block.

        None means `close_timeout_ms`.
        """
        config = producer._config
        backoff = Backoff.of(config)
        self._retry = Attempts(math.inf, backoff, producer._clock)
        self._log = ClientLog.of("aiokclient.patterns", config)

    async def __aenter__(self) -> Self:
        self._producer.transaction()  # Raises IllegalStateError without a transactional id.
        self._consumer._for_transaction()
        last = self._producer.last_transaction
        if last is not None and last.is_ending_alone:
            # Its outcome decides where the consumer continues.
            self._transaction = last
        self._is_entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_entered = False
        self._loop = None
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        if transaction.outcome is TransactionOutcome.COMMITTED:
            transaction.on_committed()  # The call that committed the transaction was cancelled.
            return
        worse = await transaction.abort_shielded(self._abort_limit_s)
        if worse is not None and error is None:
            raise worse

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    def __aiter__(self) -> TransformLoop[K, V]:
        return TransformLoop(self)

    async def __anext__(self) -> TransformBatch[K, V]:
        if self._loop is None:
            self._loop = TransformLoop(self)
        return await anext(self._loop)

    def _open_batches(self) -> RecordBatches[K, V]:
        """Return an iterator over the lists of records for one loop."""
        if not self._is_entered:
            raise IllegalStateError("Enter the stream first: async with transform(...) as stream.")
        return self._consumer.batches(self._max_records, self._max_wait)

    async def _next_batch(self, batches: RecordBatches[K, V]) -> TransformBatch[K, V]:
        """Commit the last batch, and return the next one, which `batches` reads."""
        if not self._is_entered:
            raise IllegalStateError("Enter the stream first: async with transform(...) as stream.")
        while True:
            try:
                await self._commit_last_batch()
            except KafkaError as error:
                await self._recover_from(error)
                continue
            records = await self._read_records(batches)
            try:
                transaction = await self._begin_transaction()
            except KafkaError as error:
                await self._recover_from(error)
                continue
            return TransformBatch(records, transaction)

    async def _read_records(self, batches: RecordBatches[K, V]) -> Records[K, V]:
        """Return the records of the next transaction."""
        return await anext(batches)

    async def _begin_transaction(self) -> Transaction:
        """Begin the transaction of the records that were just read."""
        try:
            await self._producer.begin_transaction()
        except BaseException:
            # The records must be read again. With timeout 0, no cancellation can interrupt this.
            await self._consumer._for_transaction().rewind_and_wait(0.0)
            raise
        transaction = self._transaction = self._producer.last_transaction
        assert transaction is not None
        transaction.add(self._consumer)
        return transaction

    async def _commit_last_batch(self) -> None:
        """Commit the transaction of the last batch, or finish what a cancellation interrupted."""
        if self._error is not None:
            raise self._error
        transaction = self._transaction
        if transaction is None:
            return
        await transaction.wait_for_end()
        if transaction.outcome is TransactionOutcome.COMMITTED:
            transaction.on_committed()
        elif transaction.was_aborted:
            transaction.require_producer()
        else:
            await self._producer.commit_transaction()
        self._transaction = None
        self._retry.start_over()

    async def _recover_from(self, error: KafkaError) -> None:
        """Make the producer usable after an error. Raise an error that the stream cannot handle."""
        self._error, attempts = error, 0
        while self._error is not None:
            step = STEPS.get(classify(self._error, Scope.TRANSACTION))
            if step is None or (self._consumer._stopped and attempts):
                raised, self._error = self._error, None
                raise raised
            self._must_restart = self._must_restart or step is Step.RESTART
            text, extra = "A batch is repeated: %s", {"event": "transaction_repeated"}
            self._log.info(text, self._error, extra=extra)
            await asyncio.sleep(self._retry.take_pause_s())
            attempts += 1
            try:
                await (
                    self._restart_producer() if self._must_restart else self._abort_transaction()
                )
            except KafkaError as following:
                self._error = following
            else:
                self._error = None

    async def _abort_transaction(self) -> None:
        if self._transaction is not None:
            await self._producer.abort_transaction()
            if not self._transaction.is_ending_alone:
                self._transaction = None

    async def _restart_producer(self) -> None:
        await self._producer.restart()
        self._must_restart = False
        self._transaction = None


class TransformLoop(Generic[K, V]):
    """The iterator of one loop over a stream. It has its own iterator over the consumer.

    So when the loop is left, the consumer's iterator is dropped with it, and the consumer notices
    that the loop has ended.
    """

    __slots__ = ("_batches", "_stream")

    def __init__(self, stream: TransformStream[K, V]) -> None:
        self._stream = stream
        self._batches: RecordBatches[K, V] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TransformBatch[K, V]:
        if self._batches is None:
            self._batches = self._stream._open_batches()
        return await self._stream._next_batch(self._batches)


def transform(
    consumer: Consumer[K, V],
    producer: Producer[Any, Any],
    max_records: int = 500,
    max_wait: float = 0.0,
) -> TransformStream[K, V]:
    """Return a stream of batches, each processed exactly once in a transaction of its own.

        async with transform(consumer, producer) as stream:
            async for batch in stream:
                for record in batch:
                    batch.send("out", handle(record.value))

    The request for the next batch commits the results of the last one together with its offsets.
    Consumers with `isolation_level="read_committed"` see all results of a batch or none. A batch
    has up to `max_records` records, and is delivered at most `max_wait` seconds after its first
    record was available.

    After an AbortableError the transaction is aborted; after an ApplicationRecoverableError the
    producer restarts. Then the stream continues at the group's committed offsets, so the batch is
    delivered again unless it was committed. If errors repeat, the stream waits longer each time, up
    to `retry_backoff_max_ms`. All other errors are raised, and so are those of reading. The body
    need not await deliveries. If it does, and a delivery raises an error, the loop ends.

    Leaving the loop by break, by an exception, or by a cancellation aborts the open transaction,
    within `close_timeout_ms`. `consumer.stop()` ends the loop after the current transaction.

    Both clients must be started. Entering raises IllegalStateError if the producer has no
    `transactional_id`, or if the consumer has no group or commits automatically. Arguments of a
    wrong type raise TypeError.
    """
    # These imports cost nothing, because a program that has these clients has imported the modules.
    from aiokclient.consumer import Consumer
    from aiokclient.producer import Producer

    for client, expected in ((consumer, Consumer), (producer, Producer)):
        if not isinstance(client, expected):
            name = type(client).__name__
            raise ArgumentTypeError(f"transform() takes a {expected.__name__} here, not {name}.")
    require_count("max_records", max_records)
    if seconds(max_wait, "max_wait") < 0:
        raise IllegalStateError(f"max_wait must be at least 0 seconds, not {max_wait}.")
    return TransformStream(consumer, producer, max_records, max_wait)
