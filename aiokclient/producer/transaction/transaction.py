"""One transaction, as the application sees it."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from aiokclient.background import ended, new_task
from aiokclient.cluster.requests.read_order import read_order
from aiokclient.errors import ClosedError, IllegalStateError, KafkaError
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.producer.transaction.offsets import ConsumerReads
from aiokclient.producer.transaction.states import TransactionState
from aiokclient.producer.transaction.status import (
    CurrentTransaction,
    TransactionOutcome,
    abortable,
)
from aiokclient.types import GroupMetadata, Headers, public_in, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokclient.producer._pure.delivery import Delivery
    from aiokclient.producer.producer import Producer
    from aiokclient.producer.transaction.detached import DetachedTransaction
    from aiokclient.producer.transaction.manager import TransactionManager

UNWINDING_S = 1.0
"""Seconds by which an abort may exceed its time limit."""
ABORTED_FROM = frozenset(
    {
        TransactionState.IN_TRANSACTION,
        TransactionState.COMMITTING,
        TransactionState.ABORTABLE_ERROR,
        TransactionState.ABORTING,
    }
)


ENDED = frozenset({TransactionState.READY, TransactionState.ABORTING})
"""The states in which the transaction was ended before the end of `async with`."""


class TransactionalConsumer(Protocol):
    """A consumer that can be added to a transaction."""

    def _for_transaction(
        self, began: float | None = None, number: int | None = None
    ) -> ConsumerReads:
        """Begin to observe what is read. Raise IllegalStateError if offsets cannot be committed.

        `began` is the time at which the transaction began, on the monotonic clock, and `number` its
        number in the order of transactions. It raises IllegalStateError if records were requested
        since then.
        """


@public_in("aiokclient")
class Transaction:
    """One transaction of a producer; `producer.transaction()` returns it.

    `outcome` is None while it is open, and then a `TransactionOutcome`.
    """

    def __init__(self, producer: Producer[Any, Any], manager: TransactionManager) -> None:
        # The producer refers to its last transaction, so a strong reference would be a cycle.
        self._owner = weakref.ref(producer)
        self._manager = manager
        self._current: CurrentTransaction | None = None
        self._number = 0
        """The number in the order of transactions and reads; see `ReadOrder`."""
        self._consumers: list[tuple[TransactionalConsumer, ConsumerReads]] = []
        """The added consumers, with what each has read."""
        self._ended_reads: list[ConsumerReads] = []
        """The consumers that a restart or a close has moved back, until the program notices it.

        Another task may have restarted the producer while the program was still reading."""
        self._is_end_requested = False
        """Whether the application has aborted it by `abort_transaction`, or detached it."""

    def __repr__(self) -> str:
        outcome = "open" if self.outcome is None else self.outcome.value
        return f"<Transaction of {self._manager.status.transactional_id!r}, {outcome}>"

    @property
    def outcome(self) -> TransactionOutcome | None:
        """COMMITTED, ABORTED or UNKNOWN; None while the transaction is open."""
        return None if self._current is None else self._current.outcome

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Send a record in this transaction. Synchronous; the same as `Producer.send`.

        Raises IllegalStateError after the end of the transaction. RecordTooLargeError,
        BufferExhaustedError, and UnknownTopicOrPartitionError add nothing to the transaction and do
        not fail it. Here, they are AbortableErrors, too.
        """
        self._require_open("send()")
        return self._producer.send(topic, value, key, partition, timestamp, headers)

    def send_arrow(self, topic: str | None, batch: Any) -> Sequence[Delivery]:
        """Send all rows of an Arrow record batch in this transaction, or none. Synchronous.

        The same as `Producer.send_arrow`. Raises IllegalStateError after the end of the
        transaction.
        """
        self._require_open("send_arrow()")
        return self._producer.send_arrow(topic, batch)

    @property
    def _producer(self) -> Producer[Any, Any]:
        producer = self._owner()
        if producer is None:
            raise ClosedError("The producer of this transaction was dropped.")
        return producer

    def add(self, consumer: TransactionalConsumer) -> None:
        """Commit what the consumer has read, `consumer.consumed()`, with this transaction.

        Synchronous. Call it before the first read in the transaction: it raises IllegalStateError
        if records were requested from the consumer since the transaction began. Records that were
        delivered before that, and are not committed, belong to the transaction, too.

        The offsets are fixed when the commit begins. If the transaction has read from a partition,
        and a rebalance revokes the partition before the commit, the commit fails with the error of
        the group. If the transaction is aborted, the consumer goes back to its committed offsets
        or, without them, to where it was when the transaction began. Raises IllegalStateError also
        for a consumer that has no group or commits automatically (set `enable_auto_commit=False`),
        and TypeError for anything but a consumer.
        """
        self._require_open("add()")
        if not hasattr(consumer, "_for_transaction"):
            raise ArgumentTypeError(f"add() takes a Consumer, not {type(consumer).__name__}.")
        if any(added is consumer for added, _ in self._consumers):
            return
        assert self._current is not None
        reads = consumer._for_transaction(self._current.begun_at, self._number)
        self._consumers.append((consumer, reads))

    async def send_offsets(
        self, offsets: Any, group_metadata: GroupMetadata, timeout: float | None = None
    ) -> None:
        """Commit offsets with this transaction.

        Errors, and the state after a cancellation, are those of
        `Producer.send_offsets_to_transaction`.
        """
        self._require_open("send_offsets()")
        await self._producer.send_offsets_to_transaction(offsets, group_metadata, timeout)

    async def detach(self, timeout: float | None = None) -> DetachedTransaction:
        """Leave the open transaction to another process, and return its handle.

            handle = await tx.detach()  # Can be pickled.
            outcome = await client.end_transaction(handle)  # In any process.

        It waits for the outcome of every record, within the limits of a commit, and raises what
        the commit would raise. The transaction stays open until `Client.end_transaction` ends it,
        or until the coordinator aborts it, `transaction_timeout_ms` after its first record.
        `outcome` stays None. Afterwards, the producer can only be closed, which leaves the
        transaction open, or restarted, which aborts the transaction unless it has ended, and then
        sets `outcome`. The end of `async with` does nothing more.

        Raises IllegalStateError if consumers were added with `add()`, because only the process that
        ends the transaction knows what becomes of their offsets; use `send_offsets()`. `timeout` is
        in seconds. If `detach` is cancelled, the transaction is open as before.
        """
        self._require_open("detach()")
        if self._consumers:
            raise IllegalStateError(
                "detach() is not possible for a transaction with consumers that were added by "
                "add(). Use send_offsets() instead of add()."
            )
        handle = await self._manager.ends.detach(None if timeout is None else seconds(timeout))
        self._is_end_requested = True
        return handle

    async def __aenter__(self) -> Self:
        await self._begin_transaction()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            await self.abort_shielded()
        elif self._is_latest:
            await self._commit_at_exit()
        else:
            self._require_explicit_end()

    async def _commit_at_exit(self) -> None:
        """Commit the transaction, unless the body has ended or detached it."""
        state = self._manager.status.state
        if state is TransactionState.DETACHED:
            return
        try:
            if state in ENDED:
                self._require_explicit_end()
                return
            await self._manager.ends.commit(None, self)
        except KafkaError:
            worse = await self.abort_shielded()
            if worse is not None:
                raise worse from None
            if self.outcome is not TransactionOutcome.COMMITTED:
                raise
        except asyncio.CancelledError:
            await self.abort_shielded()
            raise
        self.on_committed()

    def _require_explicit_end(self) -> None:
        """Raise an error unless the application has committed, aborted, or detached it."""
        if self.outcome is not TransactionOutcome.COMMITTED and not self._is_end_requested:
            self._rewind_later_reads()
        self.require_producer()
        if self.outcome is TransactionOutcome.COMMITTED or self._is_end_requested:
            return
        known = self.outcome is TransactionOutcome.ABORTED
        raise abortable(
            "The transaction ended before the end of `async with`, because the producer was "
            "restarted or a commit was given up. "
            + (
                "Nothing of it was committed. Repeat its work in a new transaction."
                if known
                else "Whether it was committed is not known."
            )
        )

    # -- what the producer calls

    def on_abort_requested(self) -> None:
        """Store that the application aborts the transaction, unless it has ended."""
        if self._current is not None and self._current.is_open:
            self._is_end_requested = True
        self._rewind_later_reads()

    async def _begin_transaction(self) -> None:
        if self._current is not None:
            raise IllegalStateError("This transaction has ended. Begin another one.")
        await self._manager.ends.wait_for_previous()
        previous = self._producer.last_transaction
        if previous is not None and previous.settle_consumers():
            raise abortable(
                "The begin found that the previous transaction was aborted. Its consumers have "
                "gone back to their committed offsets. Begin again."
            )
        self._current = await self._manager.begin_transaction()
        self._number = read_order().begin_transaction()
        self._producer._on_transaction_begun(self)

    def fix_offsets(self) -> list[ConsumerReads]:
        """Fix what the added consumers have read, because the commit begins. Return their reads."""
        all_reads = [reads for _, reads in self._consumers]
        for reads in all_reads:
            reads.fix_offsets()
        return all_reads

    def on_committed(self) -> None:
        """Handle a successful commit."""
        for _, reads in self._consumers:
            reads.on_committed()
        self._consumers.clear()

    def settle_commit(self) -> None:
        """Notify the added consumers, if the transaction was committed."""
        if self.outcome is TransactionOutcome.COMMITTED:
            self.on_committed()

    def settle_consumers(self, *, is_final: bool = False) -> list[ConsumerReads]:
        """Move the added consumers back to their committed offsets, and return them. Synchronous.

        If the transaction was committed, only notify them. While its outcome may become either,
        do nothing, unless `is_final`: then no call can find out the outcome any more, and their
        committed offsets, which wait for it at the coordinator, are all that counts.
        """
        self.settle_commit()
        if not self._consumers or (self._may_still_commit and not is_final):
            return []
        rewound = [reads for _, reads in self._consumers]
        self._consumers.clear()
        for reads in rewound:
            reads.rewind()
        if is_final:
            self._ended_reads += rewound
        return rewound

    def settle_cancelled_commit(self) -> None:
        """Move or notify the added consumers, if the commit was completed or given up."""
        if self._manager.status.state in ENDED:
            self.settle_consumers()

    @property
    def is_ending_alone(self) -> bool:
        """Whether a commit or an abort of this transaction goes on without its caller."""
        return self._is_latest and self._manager.ends.is_ending_alone

    async def wait_for_end(self) -> None:
        """Wait for a commit or an abort that goes on without its caller, and raise its error."""
        if self.is_ending_alone:
            await self._manager.ends.wait_for_previous()
            self.settle_consumers()

    @property
    def _may_still_commit(self) -> bool:
        """Whether the outcome is not known yet, and a later call can find it out."""
        status = self._manager.status
        if self._current is None or not self._is_latest or status.is_closed:
            return False
        return status.state is TransactionState.COMMITTING or (
            self._current.is_open and self._current.is_undecided
        )

    async def rewind_consumers(self, timeout: float, *, is_final: bool = False) -> None:
        """Move the added consumers back as `settle_consumers` does, within `timeout` seconds.

        Do not wait for a transaction that is still open at the coordinator: its offsets are
        pending, and the consumers continue when it has ended.
        """
        is_over = self._manager.status.state is TransactionState.READY
        for reads in self.settle_consumers(is_final=is_final):
            await reads.wait_until_offsets_are_found(timeout if is_over else 0.0)

    def _rewind_later_reads(self) -> None:
        """Move consumers back from what the program has read since a restart or a close.

        The program repeats the work of the transaction, and so it must read these records again.
        """
        all_reads, self._ended_reads = self._ended_reads, []
        for reads in all_reads:
            reads.rewind_later_reads()

    @property
    def failure(self) -> KafkaError | None:
        """The error because of which this open transaction cannot be committed, or None."""
        return self._manager.status.failure if self._is_latest else None

    def require_producer(self) -> None:
        """Raise an error if the producer ended before it has committed the transaction."""
        if self.outcome is not TransactionOutcome.COMMITTED:
            self._producer._require_usable()

    @property
    def was_aborted(self) -> bool:
        """Whether it has ended without a commit, so that the producer can begin another one.

        Another task may have restarted the producer, and may have begun another one already.
        """
        if self._current is None or self.outcome is TransactionOutcome.COMMITTED:
            return False
        usable = self._manager.status.state is TransactionState.READY
        return not self._is_latest or (usable and self.outcome is TransactionOutcome.ABORTED)

    # -- the end

    @property
    def _is_latest(self) -> bool:
        return self._current is not None and self._manager.status.current is self._current

    def _require_open(self, call: str) -> None:
        status = self._manager.status
        if status.state is TransactionState.IN_TRANSACTION and status.current is self._current:
            return
        if self._current is None:
            raise IllegalStateError(f"{call} needs a transaction that has begun. Use `async with`.")
        if not self._is_latest or self._manager.status.state is TransactionState.READY:
            ended = "has ended" if self.outcome is None else f"has ended ({self.outcome.value})"
            raise IllegalStateError(
                f"{call} needs an open transaction. This one {ended}. Begin another one."
            )
        self._manager.require_open(call)

    def release_callers(self) -> None:
        """Let a commit whose call is cancelled go on alone, at once. Synchronous.

        If EndTxn was not sent, the commit becomes an abort.
        """
        if self._is_latest:
            self._manager.ends.release_callers()

    async def abort_shielded(self, limit_s: float | None = None) -> KafkaError | None:
        """Abort the transaction unless it has ended, shielded and within `limit_s` seconds.

        Without a limit, it is `close_timeout_ms`. An abort that has no response by then continues
        in the background. Return the error that makes the producer unusable, if the abort met one.
        """
        if asyncio._get_running_loop() is None:
            return None  # No loop runs in a forked process, whose sys.exit() leaves the block.
        self._rewind_later_reads()
        if not self._is_latest:
            return None
        if limit_s is None:
            limit_s = self._manager.ends.close_timeout_s
        task = new_task(asyncio.get_running_loop(), self._abort_within(limit_s))
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            await ended(task, at_most=limit_s + UNWINDING_S)
            raise
        return task.result()

    async def _abort_within(self, limit_s: float) -> KafkaError | None:
        worse: KafkaError | None = None
        status = self._manager.status
        if status.state in ABORTED_FROM and not status.is_closed:
            try:
                await self._manager.ends.abort(limit_s, accept_commit=True)
            except KafkaError as error:
                worse = error
        with contextlib.suppress(KafkaError):
            await self.rewind_consumers(limit_s)
        return worse
