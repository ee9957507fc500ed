"""The public producer, and the steps of a send.

`SendPath` runs for every record, and has a native twin. `Producer` has the steps that are less
frequent.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from asyncio import _get_running_loop
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from time import time_ns
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Never,
    Self,
    Unpack,
    cast,
    overload,
)

from aiokclient._native import twin
from aiokclient.background import LATE_PRODUCER, SLICE_S
from aiokclient.clock import SystemClock
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle, config_of
from aiokclient.cluster.lifecycle.ownership import Anchor, for_background
from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.cluster.lifecycle.public_calls import count_cancelled, watch_calls
from aiokclient.cluster.lifecycle.shown import some
from aiokclient.cluster.lifecycle.states import LifecyclePhase
from aiokclient.config.client import ClientConfig
from aiokclient.config.problems import refuse_positional
from aiokclient.config.producer import ProducerConfig, ProducerOptions
from aiokclient.errors import (
    ClosedError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    SerializationError,
)
from aiokclient.errors.local import ArgumentTypeError, RecordTypeError, TopicTypeError
from aiokclient.group.offset_forms import as_offsets, require_group_metadata
from aiokclient.log.foreign_names import with_foreign_names
from aiokclient.producer import send_many as bulk
from aiokclient.producer._pure.send_path import K, SendPath, V, with_own_send
from aiokclient.producer.batching.accumulator import BATCH_OVERHEAD
from aiokclient.producer.batching.batch import RECORD_OVERHEAD, record_size
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.delivery.deliveries import Deliveries, gather
from aiokclient.producer.delivery.delivery import Delivery, DeliveryBatch
from aiokclient.producer.send_arrow import send_rows
from aiokclient.producer.serializers import (
    bound,
    preparations,
    prepare_serializer,
    replace_headers,
)
from aiokclient.producer.threadsafe import ThreadsafeSend
from aiokclient.types import (
    GroupMetadata,
    Headers,
    ProducerRecord,
    RecordMetadata,
    Serialized,
    TopicPartition,
    is_topic_name,
    public_in,
)

if TYPE_CHECKING:
    from aiokclient.cluster.metadata.snapshot import PartitionInfo
    from aiokclient.producer.batching.queue import PartitionQueue, Topic
    from aiokclient.producer.delivery.failures import SendErrors
    from aiokclient.producer.engine import Engine
    from aiokclient.producer.transaction.manager import TransactionManager
    from aiokclient.producer.transaction.transaction import Transaction


def require_topic(name: Any) -> None:
    """Raise InvalidTopicError, or TopicTypeError, for an invalid topic name."""
    if not isinstance(name, str) or not is_topic_name(name):
        if isinstance(name, str):
            raise InvalidTopicError(f"{name!r} cannot be a topic.")
        is_ascii = isinstance(name, bytes) and name.isascii()
        advice = f" Pass {bytes(name).decode()!r}." if is_ascii else ""
        raise TopicTypeError(f"{name!r} cannot be a topic.{advice}")


if not TYPE_CHECKING:
    SendPath, with_own_send = map(twin("producer"), (SendPath, with_own_send))


@with_own_send
@public_in("aiokclient")
@with_foreign_names
@watch_calls(apart=("drain", "gather", "send_and_wait"))
class Producer(Lifecycle, SendPath[K, V], Generic[K, V]):
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

    # With all fields in slots, `__dict__` stays empty, and only then does CPython cache the lookup
    # of a method for an object with a native base class: 200 of 2,100 instructions for each
    # `producer.send(...)`. `SendPath` has further fields.
    __slots__ = (
        *("_anchor", "_cancelled", "_client", "_close_bound", "_close_scope", "_closing"),
        *("_config", "_end_listeners", "_engine", "_events", "_failure", "_failure_seen", "_hub"),
        *("_key_serializer", "_last_push", "_last_transaction", "_limit", "_observers"),
        *("_options", "_own_cluster", "_phase", "_serializes_none", "_start_limit", "_starting"),
        *("_state", "_supervisor", "_thread", "_unsubscribe", "_value_serializer", "_yielded_at"),
    )

    closing_rank: ClassVar[int] = 1
    _late_modules = LATE_PRODUCER
    config_type: ClassVar[type[ClientConfig]] = ProducerConfig

    _engine: Engine | None

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Create a producer that can be shown and deleted, even if its `__init__` raises."""
        made = super().__new__(cls)
        made._phase = LifecyclePhase.NEW
        made._closing = None
        made._engine = None
        return made

    def __init__(
        self,
        *wrong: Never,
        client: Parent | None = None,
        **options: Unpack[ProducerOptions[K, V]],
    ) -> None:
        ProducerConfig.hide_options(options)
        refuse_positional("Producer", wrong)
        shared = config_of(client)
        config = ProducerConfig.build(cast("dict[str, Any]", options), client=shared)
        super().__init__(config, client)
        self._options = config
        self._store_options(config)
        self._yielded_at = 0.0
        """The time at which `drain` last yielded to the event loop."""
        self._last_transaction: Transaction | None = None

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

        It waits for room in the buffer when necessary, and prepares the serializers for each topic
        as `prepare` does. Items have the same form as in `send_many`. At the first failure or at a
        cancellation, it sends nothing more and raises; records that were sent before may still be
        delivered.
        """
        self._require_usable()
        engine = self._require_engine()
        if engine.transactions is not None:
            engine.transactions.require_open("send_all()")
        return await bulk.SendAll(self, engine.accumulator, engine.failures, topic).send_items(
            items
        )

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
            self._raise_unusable()
        record = ProducerRecord(topic, value, key, partition, timestamp, headers)
        sending = ThreadsafeSend(loop, self, record)
        sending.begin_sending()
        return sending.future

    def send_arrow(self, topic: str | None, batch: Any) -> Sequence[Delivery]:
        """Send all rows of a `pyarrow.RecordBatch` or none, and return their deliveries in order.

        The columns are `value` and `key` (strings or binary), `headers` (lists of
        struct<key: string, value: binary>), `partition` (integers; null lets the producer choose),
        `timestamp` (timestamps of any unit, or int64 for milliseconds; null means now), and, if
        the argument `topic` is None, `topic`. Only `value` is required. Serializers are not
        applied. Synchronous; the rows are encoded from the buffers of the columns.

        Raises the errors of `send`, which name the column and the row. Raises RecordTypeError for
        any other column or type, ArgumentTypeError for anything but a record batch, and
        BufferExhaustedError if there is not enough room for all rows: await `drain()` or `flush()`,
        or send the batch in slices. In a loop, use `if producer.full: await producer.drain()`.
        """
        return send_rows(self, topic, batch)

    # -- waiting

    @overload
    async def gather(
        self, deliveries: Iterable[Delivery], return_exceptions: Literal[False] = False
    ) -> Sequence[RecordMetadata]: ...
    @overload
    async def gather(
        self, deliveries: Iterable[Delivery], return_exceptions: bool
    ) -> Sequence[RecordMetadata | KafkaError]: ...
    async def gather(
        self, deliveries: Iterable[Delivery], return_exceptions: bool = False
    ) -> Sequence[Any]:
        """Wait for many deliveries, and return their outcomes in order.

        Raises the first failure in that order. With `return_exceptions`, it returns failures among
        the results instead. Either way, all failures count as retrieved. While it collects the
        outcomes, it yields to the event loop every few milliseconds. Cancelling it does not cancel
        the sends.

        The results are a sequence that cannot be changed and is no list. It makes each
        `RecordMetadata` when it is read, and keeps no record in memory. It equals a list of the
        same outcomes; a slice, a copy, a pickle, and a sum with a list are lists. Write
        `list(results)` for a list, for example to sort it in place or to encode it as JSON.
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
        self._require_usable()
        await self._require_engine().flush()

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
        self._require_usable()
        try:
            if topic is not None:
                target, partition = self._find_partition_to_drain(topic, partition)
                if await self._require_engine().wait_for_room(target, partition):
                    self._require_usable()
                    self._yielded_at = self._clock.monotonic()
                    return
            elif partition is not None:
                raise ArgumentTypeError("drain() takes a partition only with its topic.")
            elif self._last is not None and self.full:
                last = self._last
                while (batch := last.locate_record()[0]).in_overflow and not batch.done:
                    await batch.wait_for_change()
                self._require_usable()
                self._yielded_at = self._clock.monotonic()
                return
            if self._clock.monotonic() - self._yielded_at >= SLICE_S:
                await asyncio.sleep(0)
                self._yielded_at = self._clock.monotonic()
        except asyncio.CancelledError as error:
            count_cancelled(error, self)
            raise

    def _find_partition_to_drain(
        self, topic: str, partition: int | None
    ) -> tuple[Topic, int | None]:
        """Return the topic and the partition for whose room `drain` waits."""
        require_topic(topic)
        target = self._require_engine().find_topic(topic)
        try:
            return target, None if partition is None else self._require_partition(target, partition)
        except TypeError as error:
            raise ArgumentTypeError(str(error)) from None

    async def prepare(self, topic: str, timeout: float | None = None) -> None:
        """Fetch the metadata of a topic and the schemas of the serializers, before the first send.

        `timeout` is in seconds (by default `default_api_timeout_ms`). Raises ApiTimeoutError after
        that time, with the last error that the brokers reported for the topic as its cause. An
        error that is not retriable is raised immediately. Raises SerializationError if a serializer
        cannot be prepared, and ClosedError, or the error that failed the producer, if the producer
        ends during the call. Cancelling it changes nothing.
        """
        self._require_usable()
        require_topic(topic)
        target, patience_s = self._require_engine().find_topic(topic), self._get_timeout_s(timeout)
        await self._require_engine().wait_while_open(self._prepare_topic(target, patience_s))

    async def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic with their current leaders and replicas.

        `timeout` is in seconds (by default `default_api_timeout_ms`). Raises
        UnknownTopicOrPartitionError, InvalidTopicError, ApiTimeoutError, and ClosedError if the
        producer is closed during the call. Cancelling it changes nothing.
        """
        self._require_usable()
        require_topic(topic)
        partitions: list[tuple[PartitionInfo, ...]] = []
        updater, patience_s = self._cluster.updater, self._get_timeout_s(timeout)

        async def read() -> None:
            partitions.append(await updater.find_partitions(topic, patience_s))

        await self._require_engine().wait_while_open(read())
        return partitions[0]

    async def _prepare_topic(self, topic: Topic, patience_s: float) -> None:
        deadline = self._clock.monotonic() + patience_s
        engine = self._require_engine()
        with engine.own_metrics.time_block("metadata.seconds", self._clock):
            await engine.wait_until_known(topic, patience_s)
        await self._prepare_serializers(topic.name, deadline)

    async def _prepare_serializers(self, topic: str, deadline: float) -> None:
        for prepare in self._preparations:
            left_s = max(deadline - self._clock.monotonic(), 0.0)
            await prepare_serializer(prepare, topic, left_s)

    async def _prepare_items(self, topic: str) -> None:
        """Do what `prepare` does for the serializers, for `send_all`."""
        require_topic(topic)
        deadline = self._clock.monotonic() + self._get_timeout_s(None)
        await self._require_engine().wait_while_open(self._prepare_serializers(topic, deadline))

    @property
    def _preparations(self) -> Sequence[Callable[[str], Awaitable[object]]]:
        return preparations(self._options.key_serializer, self._options.value_serializer)

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
        self._require_usable()
        # Most programs have no transactions, so this class is imported only when it is needed.
        from aiokclient.producer.transaction.transaction import Transaction

        return Transaction(self, self._require_transactions("transaction()"))

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
        self._require_usable()
        manager = self._require_transactions("send_offsets_to_transaction()")
        wanted = as_offsets(offsets)
        require_group_metadata(group_metadata)
        manager.require_open("send_offsets_to_transaction()")
        if wanted:
            await manager.send_offsets(wanted, group_metadata, self._get_timeout_s(timeout))

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
        self._require_usable()
        manager = self._require_transactions("commit_transaction()")
        last = self._last_transaction
        seconds = None if timeout is None else self._get_timeout_s(timeout)
        if last is None:
            manager.require_open("commit_transaction()")
            raise manager.status.make_misuse_error("commit_transaction()")
        try:
            await manager.ends.commit(seconds, last)
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
        self._require_usable()
        manager = self._require_transactions("abort_transaction()")
        transaction = self._last_transaction
        if transaction is not None:
            transaction.on_abort_requested()
        try:
            await manager.ends.abort(self._get_timeout_s(timeout))
        except KafkaError:
            if transaction is not None:
                transaction.settle_commit()  # The abort may have found that it is committed.
            raise
        if transaction is not None:
            await transaction.rewind_consumers(self._get_timeout_s(timeout))

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
        self._require_usable()
        # Another task may have begun a transaction before this one continues after the restart.
        last = self._last_transaction
        await self._require_transactions("restart()").restart()
        if last is not None:
            await last.rewind_consumers(self._get_timeout_s(None), is_final=True)

    def _list_troubles(self) -> list[str]:
        troubles = super()._list_troubles()
        if self._engine is not None:
            troubles += self._engine.leaders.describe_troubles()
        manager = None if self._engine is None else self._engine.transactions
        if manager is not None and manager.status.fatal is not None:
            troubles.append("the transactional producer needs a restart()")
        return troubles

    def _require_transactions(self, call: str) -> TransactionManager:
        manager = self._require_engine().transactions
        if manager is None:
            raise IllegalStateError(
                f"{call} needs a transactional producer. Set transactional_id, a name that no "
                "other running producer has."
            )
        return manager

    def _on_transaction_begun(self, transaction: Transaction) -> None:
        """Store the transaction that has just begun."""
        self._last_transaction = transaction

    # -- the steps of a send

    def _store_options(self, config: ProducerConfig) -> None:
        """Store the options that concern single records. Must be called before any send."""
        self._clock = SystemClock() if config.clock is None else config.clock
        self._real_time = type(self._clock) is SystemClock
        self._key_serializer = bound(config.key_serializer, "key")
        self._value_serializer = bound(config.value_serializer, "value")
        self._serializes_none = config.serialize_none
        self._raw = self._key_serializer is None and self._value_serializer is None
        self._limit = min(config.max_request_size, config.buffer_memory)
        self._largest = self._limit - BATCH_OVERHEAD
        self._topics = {}
        self._hashes = not config.partitioner_ignore_keys
        self._chooses = config.partitioner is None

    def _use_engine(self, engine: Engine) -> None:
        """Send records through this engine from now on."""
        self._engine = engine
        self._accept_records(engine.transactions is None)
        self._accumulator = engine.accumulator
        self._partitioner = engine.leaders.partitioner
        self._deliveries = Deliveries

    def _accept_records(self, accept: bool) -> None:
        """Accept records from now on, or refuse them because no transaction is open."""
        self._topics = self._require_engine().leaders.topics if accept else {}

    def _require_engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def _send_errors(self) -> SendErrors:
        return self._require_engine().accumulator.errors

    def _find_topic(self, name: str) -> Topic:
        """Return the topic with this name. Raise an error if nothing can be sent to it now.

        While a transactional producer has no open transaction, `_topics` is empty, so that this
        check finds no topic there.
        """
        topic = self._topics.get(name) if isinstance(name, str) else None
        if topic is None:
            require_topic(name)
            engine = self._require_engine()
            if engine.transactions is not None:
                engine.transactions.require_open("send()")
            topic = engine.find_topic(name)
        return topic

    def _serialize_record(
        self, topic: str, key: K | None, value: V | None, headers: Headers
    ) -> tuple[Any, Any]:
        raw_key: Any = key
        raw_value: Any = value
        nulls = self._serializes_none
        if self._key_serializer is not None and (key is not None or nulls):
            raw_key = self._key_serializer(topic, key, headers)
        if self._value_serializer is not None and (value is not None or nulls):
            raw_value = self._value_serializer(topic, value, headers)
        return raw_key, raw_value

    def _unite_headers(self, key: Any, value: Any, headers: Headers) -> tuple[Any, Any, Headers]:
        """Return the bytes of a serialized key and value, and the headers with those of both.

        Without serializers, the key and value are returned as they are, to be refused.
        """
        if self._raw:
            return key, value, headers
        bare_key = key.data if isinstance(key, Serialized) else key
        bare_value = value.data if isinstance(value, Serialized) else value
        return bare_key, bare_value, replace_headers(headers, key, value)

    def _append_record(
        self,
        topic: Topic,
        key: Any,
        value: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> Delivery:
        """Append a serialized record to a batch of its partition."""
        engine = self._require_engine()
        try:
            if isinstance(value, Serialized) or isinstance(key, Serialized):
                key, value, headers = self._unite_headers(key, value, headers)
            if timestamp is not None:
                timestamp = bulk.as_timestamp(timestamp)
            elif self._real_time:
                timestamp = time_ns() // 1_000_000
            else:
                timestamp = self._clock.time_ms()
            size = record_size(key, value, headers)
            if size > self._largest:
                self._check_record_size(topic.name, key, value, headers)
            if partition is not None:
                partition = self._require_partition(topic, partition)
            if not topic.known:
                queue = topic.undesignated
            elif partition is not None:
                queue = engine.leaders.queue_of(topic, partition)
            else:
                queue = engine.leaders.partitioner.choose_queue(topic, key, size)
            batch = queue.open
            index = -1
            if batch is not None:
                index = batch.append_record(size, timestamp, key, value, headers)
            if batch is None or index < 0:
                batch, index = engine.accumulator.append_record(
                    queue, timestamp, key, value, headers, size
                )
        except (TypeError, AttributeError, ValueError) as error:
            raise self._make_encoding_error(topic.name, error, headers, key, value) from error
        if batch.explicit is not None:
            batch.choose_partitions(-1 if partition is None else partition)
        elif partition is not None:
            batch.mark_chosen(index)
        delivery = self._last = Delivery(batch, index, timestamp)
        return delivery

    def _check_record_size(self, topic: str, key: Any, value: Any, headers: Headers) -> None:
        """Raise RecordTooLargeError if a batch with only this record exceeds the limit."""
        size = bulk.exact_size(self._limit, key, value, headers)
        if size > self._limit:
            raise self._send_errors().too_large(
                f"It takes {size} bytes or more. max_request_size and buffer_memory allow "
                f"{self._limit}.",
                resource=topic,
            )

    def _require_partition(self, topic: Topic, given: int) -> int:
        """Return the application's partition as an int.

        Raise UnknownTopicOrPartitionError if no topic can have it.
        """
        partition = bulk.as_integer(given, "partition")
        if not 0 <= partition < (bulk.PARTITIONS if topic.known else 1 << 63):
            there = "Partitions are numbered from 0."
            if topic.known:
                there = f"The topic has {len(topic.queues)} partitions, numbered from 0."
            raise self._send_errors().unknown_partition(
                f"There is no partition {partition}. {there}",
                topic_partition=TopicPartition(topic.name, partition),
            )
        return partition

    def _make_encoding_error(
        self, topic: str, error: Exception, headers: Headers, key: Any = None, value: Any = None
    ) -> SerializationError:
        kind = SerializationError
        wrong = isinstance(error, TypeError | AttributeError)
        if wrong or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in headers):
            kind = RecordTypeError
        wrong_part = bulk.describe_wrong_part(key, value, headers)
        if wrong_part is not None:
            kind = RecordTypeError
        why = wrong_part or f"{str(error).rstrip('.')}."
        return kind(
            f"A record for topic {topic} cannot be encoded: {why} Without a serializer, keys, "
            "values, and header values must be bytes or None, and header names str, as in "
            "headers=[('name', b'value')]. Partition and timestamp (in milliseconds) must be int."
        )

    def _send_many(self, topic: str, values: Sequence[Any]) -> Sequence[Delivery]:
        """See `SendPath.send_many`."""
        self._require_usable()
        target = self._find_topic(topic)
        engine = self._require_engine()
        partitioner = engine.leaders.partitioner
        if not isinstance(values, Sequence):
            raise ArgumentTypeError(
                f"send_many() takes a sequence such as a list, not {type(values).__name__}. Use "
                "send_all() for any other iterable."
            )
        if type(values) is not list and type(values) is not tuple:
            values = tuple(values)  # Another sequence might have other items at the next reading.
        if not values:
            return []
        if self._raw and not partitioner.is_chosen_by_function and bulk.are_plain(values):
            total = bulk.total_size(values)
            if total > self._largest:
                largest = bulk.largest(values)
                if RECORD_OVERHEAD + len(largest) > self._largest:
                    self._check_record_size(topic, None, largest, ())
            now = self._clock.time_ms()
            deliveries = self._send_values(target, values, total, now)
        else:
            prepared = [self._prepare_record(bulk.as_record(topic, item)) for item in values]
            deliveries = bulk.send_prepared(prepared, engine.accumulator)
        self._last = deliveries[-1]
        return deliveries

    def _send_values(
        self, topic: Topic, values: Sequence[bytes | None], total: int, timestamp: int
    ) -> Deliveries:
        return bulk.send_values(
            self._accumulator, self._partitioner, topic, values, total, timestamp
        )

    def _prepare_record(self, record: ProducerRecord) -> bulk.Prepared:
        topic, value, key, partition, timestamp, headers = record
        target = self._find_topic(topic)
        key, value = self._serialize_record(topic, key, value, headers)
        try:
            if isinstance(value, Serialized) or isinstance(key, Serialized):
                key, value, headers = self._unite_headers(key, value, headers)
            # Copies, because nothing may change or fail after the first record was appended.
            key, value = bulk.as_bytes(key), bulk.as_bytes(value)
            headers = bulk.as_headers(headers)
            if timestamp is not None:
                timestamp = bulk.as_timestamp(timestamp)
            size = record_size(key, value, headers)
            if size > self._largest:
                self._check_record_size(topic, key, value, headers)
            if partition is not None:
                partition = self._require_partition(target, partition)
        except (TypeError, AttributeError, ValueError) as error:
            raise self._make_encoding_error(topic, error, headers, key, value) from error
        return self._place_record(target, key, value, partition, timestamp, headers, size)

    def _place_record(
        self,
        target: Topic,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
        size: int,
    ) -> bulk.Prepared:
        """Choose the partition and the timestamp of a checked record, if they are not given."""
        queue: PartitionQueue = target.undesignated
        if target.known:
            partitioner = self._require_engine().leaders.partitioner
            if partition is None:
                queue = partitioner.choose_queue(target, key, size)
            else:
                queue = self._require_engine().leaders.queue_of(target, partition)
        if timestamp is None:
            timestamp = self._clock.time_ms()
        at = -1 if partition is None else partition
        return bulk.Prepared(queue, timestamp, key, value, headers, at, size)

    # -- lifecycle

    async def _open(self, wait: bool) -> None:
        from aiokclient.producer.engine import Engine  # a late module

        anchor: Anchor[Any] = self._anchor
        engine = Engine(for_background(self._options), self._cluster, self._supervisor, anchor)
        self._use_engine(engine)
        if engine.transactions is not None:
            if wait:
                await engine.transactions.start(self._get_timeout_s(None))
            else:
                engine.transactions.start_later()
        engine.start()

    def _forget_batch(self, batch: DeliveryBatch) -> None:
        """Drop the references to a failed batch, so that its failure can be logged.

        It is logged when the last delivery of the batch is garbage-collected.
        """
        if self._last is not None and self._last.locate_record()[0] is batch:
            self._last = None

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        if self._engine is not None:
            if self._engine.transactions is not None:
                await self._engine.transactions.abort_at_close(timeout)
            self._engine.failures.end_watching(ClosedError("This Producer was closed."))
            await self._engine.flush()

    def _fail_open_operations(self, error: KafkaError) -> None:
        if self._engine is None:
            return
        self._engine.fail_all(error)
        self._engine.stop()
        if self._last_transaction is not None:
            # This producer cannot end the transaction any more, so its consumers look up their
            # committed offsets, which waits for the coordinator to end it.
            self._last_transaction.settle_consumers(is_final=True)

    def _on_failure(self, error: BaseException) -> None:
        if self._engine is None:
            return
        if isinstance(error, KafkaError):
            failure = error
        else:
            failure = KafkaError(f"The producer failed: {error!r}.")
            failure.__cause__ = error
        self._engine.failures.end_watching(failure, final=True)
        self._fail_open_operations(failure)

    def _describe_subject(self) -> dict[str, str | None]:
        return {"topics": None if self._engine is None else some(self._engine.leaders.topics)}

    def _note_failure_seen(self) -> None:
        """Record that the application has seen the failure of the producer."""
        self._failure_seen = self._failure is not None

    def _take_failures(self) -> BaseException | None:
        return None if self._engine is None else self._engine.failures.take_failures()

    def _compute_grace_s(self) -> float:
        return (self._options.delivery_timeout_ms + self._config.close_timeout_ms) / 1000
