"""The public producer."""

from __future__ import annotations

import asyncio
import concurrent.futures
from asyncio import _get_running_loop
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Never, Unpack, cast, overload

from aiokclient.background import SLICE_S
from aiokclient.cluster.lifecycle.health import some
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle, config_of
from aiokclient.cluster.lifecycle.ownership import Anchor, for_background
from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.cluster.lifecycle.public_calls import count_cancelled, watch_calls
from aiokclient.cluster.metadata.updater import partitions_of
from aiokclient.config.client import ClientConfig
from aiokclient.config.problems import refuse_positional
from aiokclient.config.producer import ProducerConfig, ProducerOptions
from aiokclient.errors import ClosedError, IllegalStateError, KafkaError
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.group.offset_forms import as_offsets, require_group_metadata
from aiokclient.producer import backpressure
from aiokclient.producer._pure.send import K, V
from aiokclient.producer.delivery.deliveries import gather
from aiokclient.producer.delivery.delivery import Delivery, DeliveryBatch
from aiokclient.producer.delivery.failures import FailureHooks
from aiokclient.producer.engine import Engine
from aiokclient.producer.send import Sends, require_topic
from aiokclient.producer.send_many import SendAll
from aiokclient.producer.serializers import preparations
from aiokclient.producer.threadsafe import ThreadsafeSend
from aiokclient.types import GroupMetadata, Headers, RecordMetadata, public_in

if TYPE_CHECKING:
    from aiokclient.cluster.metadata.snapshot import PartitionInfo
    from aiokclient.producer.batching.queue import PartitionQueue, Topic
    from aiokclient.producer.transaction.manager import TransactionManager
    from aiokclient.producer.transaction.transaction import Transaction

__all__ = ["Producer"]


@public_in("aiokclient")
@watch_calls(apart=("drain", "gather", "send_and_wait"))
class Producer(Lifecycle, Sends[K, V], Generic[K, V]):
    """A client that sends records, idempotently by default, in order within each partition.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send("orders", b"tea", key=b"customer-7")

    A producer can be created outside of an event loop. `async with`, `await producer.start()`, or
    `await producer` starts it; from then on it belongs to the running event loop. With `client=`,
    it shares the connections and metadata of a `Client`. Options have the names of Kafka's options,
    with `_` in place of `.`. An invalid option raises ConfigError.

    A normal exit from `async with` flushes (for at most `delivery_timeout_ms`), disconnects, and
    raises `DeliveryErrors` for failures that were never retrieved. An exit by an exception or a
    cancellation flushes for at most `close_timeout_ms`, fails the remaining records with
    ClosedError, and raises the original exception.
    """

    closing_rank: ClassVar[int] = 1
    config_type: ClassVar[type[ClientConfig]] = ProducerConfig

    def __init__(
        self,
        *wrong: Never,
        client: Parent | None = None,
        **options: Unpack[ProducerOptions[K, V]],
    ) -> None:
        ProducerConfig.hide(options)
        refuse_positional("Producer", wrong)
        shared = config_of(client)
        config = ProducerConfig.build(cast(dict[str, Any], options), client=shared)
        super().__init__(config, client)
        self._options = config
        self._accept(config)
        self._yielded_at = 0.0
        """The time at which `drain` last yielded to the event loop."""
        self._last_transaction: Transaction | None = None
        self._functions: list[tuple[Anchor[Any], Any]] = []
        """The application's functions, which may hold references to this object."""

    # -- sending

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send a record, wait for its acknowledgement, and return its metadata.

        This is a coroutine function, so that it can be passed to `asyncio.create_task`. Raises the
        errors of `send` and of the delivery. If the task is cancelled before it first runs, nothing
        is sent. If it is cancelled later, the record is still sent.
        """
        try:
            return await self.send(topic, value, key, partition, timestamp, headers)
        except asyncio.CancelledError as error:
            count_cancelled(error, self)
            raise

    async def send_all(self, topic: str, items: Iterable[Any] | AsyncIterable[Any]) -> int:
        """Send all items of an iterable, and return their number once all are acknowledged.

        It waits for room in the buffer when necessary. Items have the same form as in `send_many`.
        At the first failure or at a cancellation, it sends nothing more and raises; records that
        were sent before may still be delivered.
        """
        self._check()
        engine = self._required_engine()
        if engine.transactions is not None:
            engine.transactions.require_open("send_all()")
        return await SendAll(self, engine.accumulator, engine.failures, topic).run(items)

    def send_threadsafe(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> concurrent.futures.Future[RecordMetadata]:
        """Send a record from another thread. Return a future of its `RecordMetadata`.

        The future also gets the errors that `send` would raise. If the producer is not running,
        `send_threadsafe` itself raises ClosedError or IllegalStateError. Records that one thread
        sends keep their order. Cancelling the future does not prevent the send. If the event loop
        stops or is closed before the outcome is known, the future gets ClosedError.
        """
        loop = self._loop
        if not self._usable or loop is None:
            self._refuse()
        if loop is None or loop.is_closed():
            raise ClosedError("The event loop of this Producer is closed. Make a new Producer.")
        sending = ThreadsafeSend(
            loop, partial(self.send, topic, value, key, partition, timestamp, headers)
        )
        sending.begin()
        return sending.future

    # -- waiting

    @overload
    async def gather(
        self, deliveries: Iterable[Delivery], return_exceptions: Literal[False] = False
    ) -> list[RecordMetadata]: ...
    @overload
    async def gather(
        self, deliveries: Iterable[Delivery], return_exceptions: bool
    ) -> list[RecordMetadata | KafkaError]: ...
    async def gather(
        self, deliveries: Iterable[Delivery], return_exceptions: bool = False
    ) -> list[Any]:
        """Wait for many deliveries, and return their outcomes in order.

        Raises the first failure in that order. With `return_exceptions`, it returns failures among
        the results instead. Either way, all failures count as retrieved. While it collects the
        outcomes, it yields to the event loop every few milliseconds. Cancelling it does not cancel
        the sends.
        """
        self._check_loop()
        try:
            return await gather(deliveries, self._clock, return_exceptions=return_exceptions)
        except asyncio.CancelledError as error:
            count_cancelled(error, self)
            raise

    async def flush(self) -> None:
        """Wait until all records that were sent before have their outcome.

        The wait takes at most `delivery_timeout_ms`. It does not raise the failures of records: the
        deliveries do. Cancelling it changes nothing.
        """
        self._check()
        await self._required_engine().flush()

    async def drain(self, topic: str | None = None, partition: int | None = None) -> None:
        """Wait until the record sent last has left the overflow queue or has its outcome.

        Call it directly after `send`, without an await in between. It returns immediately if that
        record is not in the overflow queue.

        With a topic and a partition, it waits until the buffer has room for a record of that
        partition, whichever record was sent last; with a topic alone, for a record of any of its
        partitions. Call it before the send to keep a partition without a leader from delaying
        others.

        In a loop that sends records, it yields to the event loop at least every 10 ms of work.
        Raises the error that failed the producer, and ClosedError if the producer is closed
        meanwhile. Cancelling it changes nothing.
        """
        self._check()
        try:
            if topic is not None:
                find = self._queues_of(topic, partition)
                engine = self._required_engine()
                if await backpressure.room(engine.accumulator, engine.failures, find):
                    self._check()
                    self._yielded_at = self._clock.monotonic()
                    return
            elif partition is not None:
                raise ArgumentTypeError("drain() takes a partition only with its topic.")
            elif self._last is not None and backpressure.in_overflow(self._last):
                await backpressure.out_of_overflow(self._last)
                self._check()
                self._yielded_at = self._clock.monotonic()
                return
            if self._clock.monotonic() - self._yielded_at >= SLICE_S:
                await asyncio.sleep(0)
                self._yielded_at = self._clock.monotonic()
        except asyncio.CancelledError as error:
            count_cancelled(error, self)
            raise

    def _queues_of(
        self, topic: str, partition: int | None
    ) -> Callable[[], Sequence[PartitionQueue]]:
        """Return a function that returns the queues to which records of a partition may go."""
        require_topic(topic)
        engine = self._required_engine()
        target = engine.topic(topic)
        try:
            number = None if partition is None else self._existing(target, partition)
        except TypeError as error:
            raise ArgumentTypeError(str(error)) from None

        def find() -> Sequence[PartitionQueue]:
            if not target.known:
                return [target.undesignated]
            return target.queues if number is None else [engine.leaders.queue_of(target, number)]

        return find

    async def prepare(self, topic: str, timeout: float | None = None) -> None:
        """Fetch the metadata of a topic and the schemas of the serializers, before the first send.

        `timeout` is in seconds (by default `default_api_timeout_ms`). Raises ApiTimeoutError after
        that time, with the last error that the brokers reported for the topic as its cause. An
        error that is not retriable is raised immediately. Raises SerializationError if a serializer
        cannot be prepared, and ClosedError, or the error that failed the producer, if the producer
        ends during the call. Cancelling it changes nothing.
        """
        self._check()
        require_topic(topic)
        target, patience_s = self._required_engine().topic(topic), self._seconds(timeout)
        failures = self._required_engine().failures
        await backpressure.while_open(failures, self._prepare(target, patience_s))

    async def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic with their current leaders and replicas.

        `timeout` is in seconds (by default `default_api_timeout_ms`). Raises
        UnknownTopicOrPartitionError, InvalidTopicError, ApiTimeoutError, and ClosedError if the
        producer is closed during the call. Cancelling it changes nothing.
        """
        self._check()
        require_topic(topic)
        found: list[tuple[PartitionInfo, ...]] = []
        updater, patience_s = self._cluster.updater, self._seconds(timeout)
        failures = self._required_engine().failures

        async def read() -> None:
            found.append(await partitions_of(updater, topic, patience_s))

        await backpressure.while_open(failures, read())
        return found[0]

    async def _prepare(self, topic: Topic, patience_s: float) -> None:
        deadline = self._clock.monotonic() + patience_s
        with self._required_engine().own_metrics.timed("metadata.seconds", self._clock.monotonic):
            await backpressure.known(topic, self._cluster, patience_s)
        for prepare in preparations(self._options.key_serializer, self._options.value_serializer):
            remaining = deadline - self._clock.monotonic()
            await backpressure.prepared(prepare, topic.name, max(remaining, 0.0))

    def _check_loop(self) -> None:
        """Raise an error for a call from another event loop or thread, even after `close`."""
        if self._loop is not None and _get_running_loop() is not self._loop:
            self._refuse_caller()

    # -- transactions

    def transaction(self) -> Transaction:
        """Return a transaction for `async with`, which begins it, and commits or aborts it.

            async with producer.transaction() as tx:
                tx.send("out", b"value")

        A normal exit commits the transaction. An exit by an exception or a cancellation aborts it:
        records that were not sent are dropped, those in flight are awaited, and then the exception
        propagates. The abort is shielded and takes at most `close_timeout_ms`; without a response
        by then, it continues in the background, and the next begin waits for it. If the commit
        fails with an AbortableError, the transaction is aborted in the same way before that error
        propagates; if the abort finds that the commit was applied, the exit succeeds.

        Entering raises IllegalStateError if a transaction is open, or the producer has no
        `transactional_id`.
        """
        self._check()
        # Most programs have no transactions, so this class is imported only when it is needed.
        from aiokclient.producer.transaction.transaction import Transaction

        return Transaction(self, self._transactions("transaction()"))

    @property
    def last_transaction(self) -> Transaction | None:
        """The open transaction, or the last one; None before the first."""
        return self._last_transaction

    async def begin_transaction(self) -> None:
        """Open a transaction. Every record that is sent before its end belongs to it.

        If the abort of the previous transaction is still in progress, this waits for it, for at
        most `default_api_timeout_ms`; TransactionAbortableError is raised after that. Raises
        IllegalStateError if a transaction is open, and an ApplicationRecoverableError if the
        producer needs a restart. A cancelled call opens no transaction.
        """
        await self.transaction()._begin_transaction()

    async def send_offsets_to_transaction(
        self, offsets: Any, group_metadata: GroupMetadata, timeout: float | None = None
    ) -> None:
        """Commit offsets of a consumer's group with the open transaction (KIP-447).

        `offsets` has the form of `Consumer.commit`: a mapping from partition to offset or
        OffsetAndMetadata, a record, or records. `group_metadata` is that of the consumer,
        `consumer.group_metadata()`. `timeout` is in seconds (by default `default_api_timeout_ms`).
        Raises TransactionAbortableError after that time. After an error or a cancellation, the
        transaction must be aborted. After an ApplicationRecoverableError, for example because the
        member is no longer in its group, the producer must be restarted.
        """
        self._check()
        manager = self._transactions("send_offsets_to_transaction()")
        wanted = as_offsets(offsets)
        require_group_metadata(group_metadata)
        manager.require_open("send_offsets_to_transaction()")
        if wanted:
            await manager.send_offsets(wanted, group_metadata, self._seconds(timeout))

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Commit the open transaction, once all its records have their outcome.

        The records take at most `delivery_timeout_ms`, and the commit then at most
        `default_api_timeout_ms`; `timeout` (seconds) limits both together. If records have failed,
        it raises their most severe error, whether or not their deliveries were awaited, and all
        failures count as retrieved. After an error, the transaction must be aborted; after an
        ApplicationRecoverableError, the producer must be restarted instead. Without a response in
        time, it raises TransactionAbortableError, and the outcome is UNKNOWN until an abort or a
        restart determines it. A cancelled commit continues, shielded, for at most
        `transaction_timeout_ms`; then the cancellation is raised.
        """
        self._check()
        manager = self._transactions("commit_transaction()")
        last, seconds = self._last_transaction, None if timeout is None else self._seconds(timeout)
        if last is None:
            manager.require_open("commit_transaction()")
            raise manager.status.make_misuse_error("commit_transaction()")
        try:
            await manager.commit(seconds, last)
        except asyncio.CancelledError:
            last.settle_cancelled_commit()
            raise
        last.settle_commit()

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the open transaction, and drop its records that were not sent.

        It never raises an AbortableError. Directly after a transaction that was already aborted, it
        does nothing. Raises an ApplicationRecoverableError if the transaction had been committed,
        or if the coordinator or another producer has ended it, and the coordinator's error if a
        permission is missing. `timeout` is in seconds (by default `default_api_timeout_ms`). An
        abort that has no response by then, or that is cancelled, continues in the background; the
        next begin waits for it. Consumers that were added to the transaction go back to their
        committed offsets.
        """
        self._check()
        manager = self._transactions("abort_transaction()")
        transaction = self._last_transaction
        if transaction is not None:
            transaction.on_abort_requested()
        try:
            await manager.abort(self._seconds(timeout))
        except KafkaError:
            if transaction is not None:
                transaction.settle_commit()  # The abort may have found that it is committed.
            raise
        if transaction is not None:
            await transaction.rewind_consumers(self._seconds(timeout))

    async def restart(self) -> None:
        """Begin again after an ApplicationRecoverableError, in a new epoch of the transactional id.

        Records without an outcome fail first. If a transaction is open, the brokers abort it, even
        if it was detached. If a commit has no response, or another process may have ended a
        detached transaction, the outcome of the transaction is determined if that is possible, and
        `last_transaction.outcome` has it afterwards. Allowed in every state except during a start
        and after a close. Takes at most `default_api_timeout_ms`. Raises AbortableError if the
        coordinator did not respond, and InvalidConfigurationError if it refused the request. After
        an error or a cancellation, call it again or close the producer. Consumers that were added
        to the transaction go back to their committed offsets, unless it was committed.

        If another task is restarting the producer, this waits for that restart, and ends as it
        does. Until the end of a restart, `begin_transaction`, `commit_transaction`, and
        `abort_transaction` raise IllegalStateError, and `close` waits for it.
        """
        self._check()
        # Another task may have begun a transaction before this one continues after the restart.
        last = self._last_transaction
        await self._transactions("restart()").restart()
        if last is not None:
            await last.rewind_consumers(self._seconds(None), is_final=True)

    def _troubles(self) -> list[str]:
        troubles = super()._troubles()
        if self._engine is not None:
            troubles += self._engine.leaders.troubles()
        manager = None if self._engine is None else self._engine.transactions
        if manager is not None and manager.status.fatal is not None:
            troubles.append("the transactional producer needs a restart()")
        return troubles

    def _transactions(self, call: str) -> TransactionManager:
        manager = self._required_engine().transactions
        if manager is None:
            raise IllegalStateError(
                f"{call} needs a transactional producer. Set transactional_id, a name that no "
                "other running producer has."
            )
        return manager

    def _on_transaction_begun(self, transaction: Transaction) -> None:
        """Store the transaction that has just begun."""
        self._last_transaction = transaction

    # -- lifecycle

    async def _open(self, wait: bool) -> None:
        self._functions.clear()
        callback = self._weakly(self._options.on_delivery_error)
        options = for_background(self._options)
        object.__setattr__(options, "partitioner", self._weakly(self._options.partitioner))
        hooks = FailureHooks(
            callback, self._anchor.call("_forget"), self._anchor.call("_note_seen")
        )
        accept = self._anchor.call("_accept_records")
        engine = Engine(options, self._cluster, self._supervisor, hooks, accept)
        self._send_through(engine)
        if engine.transactions is not None:
            if wait:
                await engine.transactions.start(self._seconds(None))
            else:
                engine.transactions.start_later()
        engine.start()

    def _forget(self, batch: DeliveryBatch) -> None:
        """Drop the references to a failed batch, so that its failure can be logged.

        It is logged when the last delivery of the batch is garbage-collected.
        """
        if self._last is not None and self._last.located()[0] is batch:
            self._last = None

    def _hold(self) -> None:
        super()._hold()
        for anchor, function in self._functions:
            anchor.hold(function)

    def _weakly(self, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """Return a function that calls the given one while this object exists.

        It keeps no strong reference to this object.
        """
        if function is None:
            return None
        anchor = Anchor(function)
        self._functions.append((anchor, function))
        return anchor.call()

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        if self._engine is not None:
            if self._engine.transactions is not None:
                await self._engine.transactions.close(timeout)
            self._engine.failures.end(ClosedError("This Producer was closed."))
            await self._engine.flush()

    def _abandon(self, error: ClosedError) -> None:
        if self._engine is not None:
            self._engine.fail_all(error)
            self._engine.stop()
            self._settle_transaction()

    def _settle_transaction(self) -> None:
        """Move the consumers of a transaction back, because this producer cannot end it any more.

        Their committed offsets are looked up, which waits for the coordinator to end it.
        """
        if self._last_transaction is not None:
            self._last_transaction.settle_consumers()

    def _failed(self, error: BaseException) -> None:
        if self._engine is None:
            return
        if isinstance(error, KafkaError):
            failure = error
        else:
            failure = KafkaError(f"The producer failed: {error!r}.")
            failure.__cause__ = error
        self._engine.failures.end(failure, final=True)
        self._engine.fail_all(failure)
        self._engine.stop()
        self._settle_transaction()

    def _subject(self) -> dict[str, str | None]:
        return {"topics": None if self._engine is None else some(self._engine.leaders.topics)}

    def _note_seen(self) -> None:
        """Record that the application has seen the failure of the producer."""
        self._failure_seen = self._failure is not None

    def _unretrieved(self) -> BaseException | None:
        return None if self._engine is None else self._engine.failures.take()

    def _grace_s(self) -> float:
        return (self._options.delivery_timeout_ms + self._config.close_timeout_ms) / 1000
