"""The public consumer, `Consumer`."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar, Unpack, cast

from aiokclient.background import LATE_CONSUMER
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle, config_of
from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.cluster.lifecycle.public_calls import count_cancelled, watch_calls
from aiokclient.config.consumer import ConsumerConfig, ConsumerOptions
from aiokclient.config.problems import refuse_positional
from aiokclient.consumer.arguments import (
    MAX_BYTES,
    as_listener,
    as_numbers,
    as_partition,
    as_partitions,
    as_position,
    as_topics,
    require_count,
    require_record,
)
from aiokclient.consumer.state.offset_reset import (
    EARLIEST,
    EARLIEST_TIMESTAMP,
    LATEST,
    LATEST_TIMESTAMP,
    Reset,
)
from aiokclient.consumer.state.partition import Withheld
from aiokclient.consumer.state.subscription import Subscription, SubscriptionState
from aiokclient.decoding.deserialize import Deserializers
from aiokclient.errors import (
    ClosedError,
    ConfigError,
    IllegalStateError,
)
from aiokclient.errors.local import refuse_loop
from aiokclient.log.foreign_names import with_foreign_names
from aiokclient.types import (
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    State,
    TopicPartition,
    public_in,
    seconds,
)


class _Stopped:
    """A value like None that raises TypeError when awaited, because aiokafka's `stop` is async."""

    def __await__(self) -> Generator[Any, None, None]:
        raise TypeError(
            "stop() is synchronous: it ends the iterations and returns immediately. To commit, "
            "leave the group and disconnect, write `await consumer.close()`, or use `async with`."
        )

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "None"


STOPPED: Final = cast(None, _Stopped())


if TYPE_CHECKING:
    # Without deserializers, keys and values are bytes. Only type checkers need to know that.
    import pyarrow
    from typing_extensions import TypeVar as TypeVarWithDefault

    from aiokclient.cluster.metadata.snapshot import PartitionInfo
    from aiokclient.consumer.delivery.intake import EarlierRuns, TracedRun, WorkerRecords
    from aiokclient.consumer.delivery.iterators import (
        ArrowBatches,
        RecordBatches,
        RecordIterator,
        TrackedRecords,
    )
    from aiokclient.consumer.delivery.reader import Reader
    from aiokclient.consumer.engine import ConsumerEngine
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
    from aiokclient.consumer.records import Records
    from aiokclient.consumer.transactional import TransactionalReads
    from aiokclient.types import Handle
    from aiokclient.worker import Worker

    K = TypeVarWithDefault("K", default=bytes)
    V = TypeVarWithDefault("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")


@public_in("aiokclient")
@with_foreign_names
@watch_calls(
    apart=("get", "poll"),
    explained=(
        "assign",
        "pause",
        "resume",
        "seek",
        "seek_to_beginning",
        "seek_to_end",
        "subscribe",
        "unsubscribe",
    ),
)
class Consumer(Lifecycle, Generic[K, V]):
    """A consumer of records, in order within each partition.

        async with Consumer("orders", bootstrap_servers="localhost:9092") as consumer:
            async for record in consumer:
                print(record.value)

    Without `group_id`, the consumer reads all partitions of its topics, including partitions that
    appear later. It begins at `auto_offset_reset` ("latest" by default; or "earliest", "none",
    "by_duration:P1D"), and at the first record of partitions that appear later (see
    `new_partitions`). Instead of topics, one compiled pattern can be given, which must match whole
    topic names. With `group_id`, the group assigns the partitions to its members, which begin at
    the group's committed offsets. `assign` selects single partitions instead or in addition.

    A consumer can be created anywhere, and is started by `async with`, `await consumer.start()` or
    `await consumer`. When it has started, its positions are known, so that with "latest" all
    records sent from then on are read, except from partitions whose brokers do not respond.
    The start also waits for the first assignment of a group, for at most three seconds. Only one
    task at a time may read. A delivered record counts as processed when the next one is requested.

    `client` is a client whose connections and metadata this consumer shares.
    `listener` is an object with `on_assigned(tps)`, `on_revoked(tps)` (only with a group), and
    `on_lost(tps)`, synchronous or async. It may commit and seek, but not read. An exception from it
    fails the consumer.

    Options have Kafka's names with `_` for `.`, and times are in milliseconds. ConfigError is
    raised for an invalid option. `key_deserializer` and `value_deserializer` are functions of the
    bytes, or objects with `deserialize(topic, data, headers)`. When they fail,
    `on_record_error(error)` returns a value to use instead, or SKIP. With
    `value_deserializer=memoryview` values are not copied, which is faster for values from about
    4 KB. The views are read-only, and each one keeps the response that contains it in memory.
    """

    closing_rank: ClassVar[int] = 0
    _late_modules = LATE_CONSUMER
    config_type: ClassVar[type[ConsumerConfig]] = ConsumerConfig
    _config: ConsumerConfig

    def __init__(
        self,
        *topics: str | re.Pattern[str],
        client: Parent | None = None,
        listener: Any = None,
        **options: Unpack[ConsumerOptions[K, V]],
    ) -> None:
        ConsumerConfig.hide_options(options)
        refuse_positional("Consumer", [one for one in topics if isinstance(one, Mapping)])
        shared = config_of(client)
        config = ConsumerConfig.build(options, client=shared)
        super().__init__(config, client)
        self._deserializers = Deserializers(
            config.key_deserializer,
            config.value_deserializer,
            config.on_record_error,
            nulls=config.deserialize_none,
        )
        grouped = config.group_id is not None
        self._subscription = SubscriptionState(
            Reset.of(config), grouped=grouped, brokers_match=config.group_protocol == "consumer"
        )
        self._engine: ConsumerEngine | None = None
        self._stopped = False
        self._listener: Any = None
        """The application's listener. This is the only strong reference to it, as the listener may
        refer to the consumer."""
        self._earlier: list[Any] = []
        """Earlier listeners, which the consumer keeps alive until they were called."""
        self._closers: dict[asyncio.Task[Any] | None, None] = {}
        self._subscribe_all(topics, listener)

    def _subscribe_all(self, topics: Sequence[str | re.Pattern[str]], listener: Any) -> None:
        patterns = [topic for topic in topics if isinstance(topic, re.Pattern)]
        if patterns and len(topics) > 1:
            raise ConfigError("A consumer takes either topic names or one pattern, not both.")
        if topics:
            self.subscribe(patterns[0] if patterns else cast("Sequence[str]", topics), listener)

    @classmethod
    def from_properties(
        cls,
        source: Mapping[str, Any] | str | os.PathLike[str],
        *topics: str | re.Pattern[str],
        **options: Any,
    ) -> Self:
        """Make a consumer of these topics from Kafka's dotted names, or from a properties file.

        `source` is a mapping of the names to strings, or the file's path. See
        `Lifecycle.from_properties`.
        """
        listener = options.pop("listener", None)
        hidden = cls.config_type.hide_properties(source, options)
        del source
        consumer = super().from_properties(cast(Any, hidden), **options)
        consumer._subscribe_all(topics, listener)
        return consumer

    # -- start and close

    async def _open(self, wait: bool) -> None:
        from aiokclient.consumer.engine import ConsumerEngine  # a late module

        self._engine = ConsumerEngine(
            self._cluster,
            self._config,
            self._subscription,
            self._deserializers,
            self._supervisor,
            cast("Anchor[Consumer[Any, Any]]", self._anchor),
            self._events,
        )
        if self._stopped:
            self._engine.reader.mark_stopped()
        await self._engine.start(wait)

    async def _close(self, *, graceful: bool, timeout: float) -> None:
        # A task that is closing the consumer requests no more records.
        self._closers[asyncio.current_task()] = None
        if self._engine is not None:
            self._engine.in_progress.relieved.set()
        await super()._close(graceful=graceful, timeout=timeout)

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        if self._engine is None:
            return
        await self._engine.stop(timeout, self._closers, graceful=graceful)

    def _fail_open_operations(self, error: ClosedError) -> None:
        if self._engine is not None:
            self._engine.positions.fail_waits(error)

    def _on_failure(self, error: BaseException) -> None:
        if self._engine is not None:
            self._engine.wake_all()

    def _list_troubles(self) -> list[str]:
        found = super()._list_troubles()
        return found if self._engine is None else [*found, *self._engine.list_troubles()]

    def _describe_subject(self) -> dict[str, str | None]:
        return self._subscription.describe_parts(self._config.group_id)

    def _keep_alive(self) -> None:
        super()._keep_alive()
        if self._listener is not None:
            self._subscription.restore_listener(self._listener)

    # -- checks

    def _require_usable(self) -> None:
        # Listeners are also called while the consumer starts and closes. A task that a listener has
        # started and not awaited may continue while the consumer starts.
        if self._usable or not (self._is_in_listener() or self._is_started_by_listener()):
            super()._require_usable()

    def _find_close_obstacle(self) -> str:
        calls = None if self._engine is None else self._engine.listener_calls
        return "a listener" if calls is not None and calls.is_calling() else ""

    def _is_in_listener(self) -> bool:
        return self._engine is not None and self._engine.listener_calls.is_inside()

    def _is_started_by_listener(self) -> bool:
        if self._engine is None or self._state is not State.STARTING:
            return False
        return self._engine.listener_calls.was_inside()

    @property
    def _running(self) -> ConsumerEngine:
        self._require_usable()
        assert self._engine is not None
        return self._engine

    def _request_reader(self) -> Reader:
        if self._closing is not None and self._engine is not None and not self._is_in_listener():
            # The request is refused, but it shows that earlier records have been processed.
            self._engine.in_progress.on_request()
        return self._running.reader

    def _require_group(self, call: str) -> ConsumerCoordinator:
        group = self._running.group
        if group is None:
            raise IllegalStateError(
                f"{call}() needs a group, and this consumer has no group_id. Store offsets "
                "yourself: consumed() returns them, and seek() goes back to them."
            )
        return group

    # -- what to read

    def subscribe(self, topics: Iterable[str] | re.Pattern[str], listener: Any = None) -> None:
        """Read these topics, or all topics that a pattern matches, instead of earlier ones.

        Synchronous. A pattern must match the whole name of a topic. It does not match internal
        topics. With `group_protocol="consumer"` the brokers evaluate it with RE2, which supports
        neither lookaround nor backreferences (InvalidRegularExpressionError). Partitions that were
        assigned by hand stay assigned.
        """
        self._check_known()
        checked = as_topics(topics)
        earlier, self._listener = self._listener, as_listener(listener)
        awaited = [
            each
            for each in (*self._earlier, earlier)
            if self._subscription.is_listener_needed(each)
        ]
        self._earlier = awaited
        self._subscription.subscribe(Subscription(checked, self._listener))

    def unsubscribe(self) -> None:
        """Stop reading all subscribed topics and all assigned partitions. Synchronous.

        `assignment()` is empty after it. In a group, the partitions are revoked as soon as their
        records in progress are processed, and the listener hears of it. If `subscribe` follows
        without an await, the group sees only one change, or none if the topics are the same; the
        new listener then hears of all partitions, also of those that stay.
        """
        self._check_known()
        self._subscription.assign(())
        self._subscription.subscribe(Subscription())

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Read these partitions instead of those of the last `assign`. Synchronous.

        Partitions that are already assigned keep their positions. A subscription stays in effect.
        """
        self._check_known()
        self._subscription.assign(tps)

    def subscription(self) -> set[str]:
        """Return the names of the subscribed topics, or of the topics that the pattern matches.

        Synchronous. A pattern matches no topics before the first metadata is read.
        """
        self._check_known()
        wanted = self._subscription.subscription
        if wanted.pattern is None:
            return set(wanted.topics)
        if self._engine is None:
            return set()
        hide_internal = self._config.exclude_internal_topics
        return set(wanted.find_matching(self._engine.cluster.metadata, hide_internal))

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads. Synchronous."""
        self._check_known()
        return self._subscription.assignment()

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Deliver no records of these partitions until `resume`. Synchronous.

        Records that are already fetched are kept up to a limit of memory; records beyond it are
        fetched again later. A partition that cannot be read, for example because it has no offset
        and `auto_offset_reset` is "none", raises its error again after `resume`.
        """
        self._check_known()
        self._subscription.pause(tps, True)

    def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Deliver records of these partitions again, after `pause`. Synchronous."""
        self._check_known()
        self._subscription.pause(tps, False)

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused, also those that a worker has paused. Synchronous.

        A worker pauses partitions whose lanes are full, and resumes them on its own.
        """
        self._check_known()
        states = self._subscription.choose_states(None)
        return {state.tp for state in states if state.paused or state.withheld & Withheld.FULL}

    # -- where to read

    def seek(
        self,
        to: ConsumerRecord[Any, Any] | TopicPartition,
        offset: int | OffsetAndMetadata | None = None,
    ) -> None:
        """Continue at a record or an offset: `seek(record)`, `seek(tp, offset)`.

        Synchronous. The record there is delivered next. The offset up to which records count as
        processed also moves there. Raises IllegalStateError for a partition that is not assigned.
        """
        self._check_known()
        self._subscription.seek(*as_position(to, offset))

    def seek_to_beginning(self, tps: Iterable[TopicPartition] | None = None) -> None:
        """Continue at the first record of these partitions, by default of all. Synchronous.

        The offset is looked up in the background.
        """
        self._check_known()
        self._subscription.look_up(self._subscription.choose_states(tps), EARLIEST)

    def seek_to_end(self, tps: Iterable[TopicPartition] | None = None) -> None:
        """Continue at the end of these partitions, by default of all. Synchronous.

        The end offset is looked up in the background, so records that are sent until then are
        skipped.
        """
        self._check_known()
        self._subscription.look_up(self._subscription.choose_states(tps), LATEST)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return for each partition the offset after the last delivered record. Synchronous.

        `commit()` commits these offsets. With `tracked`, it is the offset of the lowest record that
        is not done.
        """
        self._check_known()
        return self._subscription.find_consumed()

    # -- reading

    if not TYPE_CHECKING:  # Type checkers know that a consumer is no iterable.
        __iter__ = refuse_loop

    def __aiter__(self) -> RecordIterator[K, V]:
        """Return an endless iterator over the records: `async for record in consumer`.

        It waits only when nothing is buffered, and yields to the event loop at least every 10 ms.
        A cancellation loses no record. The iterator raises:

        - RecordError for a record that cannot be deserialized; the next request continues after it;
        - SchemaRegistryUnavailableError, or another KafkaError of a deserializer's `prepare`; the
          next request waits for the same record;
        - CorruptBatchError for a damaged batch;
        - OffsetOutOfRangeError, LogTruncationError, and NoOffsetError if `auto_offset_reset` is
          "none";
        - ConcurrentReadError while another task reads;
        - the errors by which brokers refuse requests.
        """
        from aiokclient.consumer.delivery.iterators import RecordIterator  # a late module

        return RecordIterator(self, self._running.reader)

    def until_end(self) -> RecordIterator[K, V]:
        """Return an iterator over the records up to the present end offsets.

        When the iteration begins, it waits until the partitions of the subscription are known or
        the group has assigned partitions. Then it looks up the end offsets. Raises ApiTimeoutError
        if that takes more than `default_api_timeout_ms`. The end offset of a partition is looked up
        again if its position is no longer valid, for example because the topic was created again.
        In all other respects the iteration is like the one over the consumer.
        """
        from aiokclient.consumer.delivery.iterators import RecordIterator  # a late module

        return RecordIterator(self, self._running.reader, until_end=True)

    def batches(
        self,
        max_records: int = 500,
        max_wait: float = 0.0,
        by_partition: bool = False,
        max_bytes: int = MAX_BYTES,
        until_end: bool = False,
    ) -> RecordBatches[K, V]:
        """Return an iterator over lists of records: `async for records in consumer.batches()`.

        The lists are never empty. A list is delivered when it has `max_records`, or `max_wait`
        seconds after its first record was available. With `by_partition` each list has records of
        one partition. `max_bytes` limits the decompressed keys, values, and headers of a list,
        except that a larger single record is delivered alone. With `until_end` the iteration ends
        at the present end offsets, as with `until_end()`. In all other respects it is like the
        iteration over the consumer.
        """
        from aiokclient.consumer.delivery.iterators import RecordBatches  # a late module

        require_count("max_records", max_records)
        require_count("max_bytes", max_bytes)
        if seconds(max_wait, "max_wait") < 0:
            raise IllegalStateError(f"max_wait must be at least 0 seconds, not {max_wait}.")
        return RecordBatches(
            self, self._running.reader, max_records, max_wait, by_partition, until_end, max_bytes
        )

    def tracked(self, max_outstanding: int = 1000) -> TrackedRecords[K, V]:
        """Return an iterator for concurrent handlers, which call `done(record)` at their end.

            async for record in consumer.tracked():
                tasks.start_soon(handle, record)

        It waits while `max_outstanding` records are not done. Commits cover all records before the
        lowest one that is not done. In all other respects it is like the iteration over the
        consumer.
        """
        from aiokclient.consumer.delivery.iterators import TrackedRecords  # a late module

        require_count("max_outstanding", max_outstanding)
        return TrackedRecords(self, self._running.reader, max_outstanding)

    def done(self, record: ConsumerRecord[Any, Any]) -> None:
        """Mark a record of `tracked` as processed. Synchronous.

        The call has no effect if the partition was lost, if the record was delivered again in the
        meantime, or if the consumer is closed.
        """
        require_record(record)
        if self._engine is not None:
            self._engine.reader.mark_done(record)

    def _begin_run(self, run: WorkerRecords, earlier: EarlierRuns) -> TracedRun | None:
        """Trace a call of a worker's handler: `aiokclient.telemetry.otel` replaces this method."""
        return None

    def mark_processed(self) -> None:
        """Count all delivered records as processed, without requesting more.

        Automatic commits then cover them, and a revocation does not wait for them. This includes
        records of `tracked` that are not done. Synchronous. It is allowed while the consumer is
        closing, because closing waits for records in progress.
        """
        if self._engine is not None:
            self._engine.reader.mark_processed()
        if self._closing is None or self._state is State.CLOSED:
            self._check_known()

    def arrow_batches(
        self, max_bytes: int = MAX_BYTES, until_end: bool = False, value_schema: Any = None
    ) -> ArrowBatches:
        """Return an iterator over `pyarrow.RecordBatch`es, each of one partition.

            async for table in consumer.arrow_batches(): ...

        `max_bytes`, at most 1 GiB, limits the decompressed keys, values, and headers of a table,
        except that a larger single record is delivered alone. The columns are topic, partition,
        offset, timestamp, timestamp_type, key, value, and headers. Keys and values are bytes:
        deserializers are not applied. With `until_end` the iteration ends at the present end
        offsets, as with `until_end()`. Raises ImportError if pyarrow is not installed. In all other
        respects it is like the iteration over the consumer.

        With `value_schema`, an Avro or Protobuf deserializer that was given a schema or a message
        type, the values are decoded, in a thread, and `value` is a struct column. A table ends
        before a record that cannot be decoded; the next request raises its RecordError, unless
        `on_record_error` returns a value for it, or SKIP. Raises ConfigError for a deserializer
        without a schema, and the errors of its `prepare` as other iterations do.
        """
        from aiokclient.consumer.delivery.iterators import ArrowBatches  # a late module

        require_count("max_bytes", max_bytes)
        engine, values = self._running, None
        if value_schema is not None:
            # Few programs use this, so the module is not imported with the consumer.
            from aiokclient.consumer.delivery.value_columns import ValueColumns

            deserializers = Deserializers(None, value_schema, self._config.on_record_error)
            values = ValueColumns(value_schema, deserializers, engine.preparations)
        return ArrowBatches(
            self,
            engine.reader,
            max_bytes=max_bytes,
            limit=self._config.max_decompressed_batch_bytes,
            check_crcs=self._config.check_crcs,
            until_end=until_end,
            values=values,
        )

    async def table(self, max_bytes: int | None = None) -> pyarrow.Table:
        """Return the records up to the present end offsets as one `pyarrow.Table`.

        It has the batches of `arrow_batches(until_end=True)`. `max_bytes` limits the decompressed
        keys, values, and headers beyond its first record; what does not fit comes next. By default
        there is no limit. After an error or a cancellation, the records are delivered again. Raises
        ImportError if pyarrow is not installed.
        """
        if max_bytes is not None:
            require_count("max_bytes", max_bytes)
        return await self.arrow_batches(until_end=True).read_all(max_bytes)

    async def poll(
        self,
        timeout: float = 1.0,
        max_records: int | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Records[K, V]:
        """Return up to `max_records` records as soon as there is one.

        `max_records` is `max_poll_records` by default. The list is empty if there is no record
        within `timeout` seconds; with a timeout of 0 only buffered records are returned.
        `max_bytes` is the same as in `batches`. The records count as processed when more are
        requested, or by `mark_processed`; the close does not mark them. Raises the same errors as
        the iteration over the consumer. A cancellation loses no record.
        """
        limit = self._config.max_poll_records if max_records is None else max_records
        require_count("max_records", limit)
        require_count("max_bytes", max_bytes)
        try:
            return await self._request_reader().read_records(
                limit, seconds(timeout), max_bytes=max_bytes
            )
        except asyncio.CancelledError as error:
            count_cancelled(error, self)
            raise

    async def get(self, timeout: float = 1.0) -> ConsumerRecord[K, V] | None:
        """Return one record, or None if there is none within `timeout` seconds.

        Like `poll`, it loses no record when it is cancelled.
        """
        try:
            records = await self._request_reader().read_records(1, seconds(timeout))
        except asyncio.CancelledError as error:
            count_cancelled(error, self)
            raise
        return records[0] if records else None

    async def run(self, handle: Handle[K, V, Worker], **options: Any) -> None:
        """Call `handle(record)` for each record, until this is stopped.

            await consumer.run(handle, concurrency=50, dead_letter="orders.dlq")

        It is `aiokclient.worker.Worker(consumer, handle, **options).run()`, which describes the
        options, the errors, and what follows a cancellation.
        """
        # The only layer above that this one imports.
        from aiokclient.worker import Worker

        await Worker(self, handle, **options).run()

    def stop(self) -> None:
        """Stop reading permanently: iterations end at their next request, and `poll` returns [].

        Synchronous. It may be called at any time, from any thread, and from signal handlers. A
        consumer that is stopped before its start reads nothing. It must still be closed.
        """
        self._stopped = True
        if self._loop is None or self._state is State.CLOSED:
            return STOPPED
        if self._engine is not None:
            self._engine.reader.mark_stopped()
        if threading.get_ident() == self._thread and self._closing is not None:
            return STOPPED
        try:
            self._loop.call_soon_threadsafe(self._on_stopped)
        except RuntimeError as error:
            raise ClosedError("The event loop of this consumer is closed.") from error
        return STOPPED

    def _on_stopped(self) -> None:
        if self._engine is not None:
            self._engine.reader.stop()
        self._tell_end()

    # -- the group

    async def commit(self, what: Any = None, timeout: float | None = None) -> None:
        """Commit offsets to the group.

        `commit()` covers all delivered records, including those that are being processed (with
        `tracked`: up to the lowest record that is not done). `commit(what)` covers only what is
        given: one or more records, `{tp: offset}`, `{tp: OffsetAndMetadata}`, or one or more topics
        or partitions. For a record its offset + 1 is committed. Raises IllegalStateError for a
        topic that is neither subscribed nor assigned.

        `timeout` is in seconds (by default `default_api_timeout_ms`); ApiTimeoutError is raised
        after it. The call waits for the end of a rebalance, and retries temporary errors. Raises
        CommitFailedError:

        - for partitions that this consumer no longer owns, because another member may be processing
          them; `commit()` raises it if records of a lost partition were delivered and not
          committed;
        - for partitions that were assigned by hand, if this consumer is not a member of the group
          and others are: the coordinator then accepts offsets only from members;
        - for partitions that are given without offsets and are not assigned.

        In a listener the call does not wait for the group, which waits for the listener. In
        `on_lost` the lost partitions can no longer be committed: CommitFailedError is raised
        immediately, except by `commit()` if all delivered records of these partitions are
        committed. Catch it in the listener, because an exception from a listener fails the
        consumer.

        If the consumer fails during the call, the call raises the error of that failure. After an
        error or a cancellation, some of the offsets may have been stored.
        """
        await self._require_group("commit").commit_offsets(what, self._get_timeout_s(timeout))

    async def committed(
        self, tps: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition, or None if there is none.

        The partitions need not be assigned to this consumer. `timeout` is in seconds (by default
        `default_api_timeout_ms`); ApiTimeoutError is raised after it. If an open transaction has
        committed offsets, the call waits for its end. If the consumer fails during the call, the
        call raises the error of that failure.
        """
        group = self._require_group("committed")
        return await group.fetch_committed(as_partitions(tps), self._get_timeout_s(timeout))

    async def rewind_group(
        self, offsets: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Make a whole running group continue at these offsets; return the resulting offsets.

        Each owner of a partition waits until none of its records are in progress, seeks, and
        commits. The call returns when all partitions are rewound. The result has the offset at
        which each partition really continues. It may differ from the requested one: an offset
        outside the log is moved to the nearest end of the log, and a later request may apply
        instead (see below). Each partition is rewound once, even if its owner, the leader, or the
        coordinator changes in the meantime. This works only with the classic protocol, and only if
        all members use this library. If several rewind requests reach an owner together, the latest
        one by the clocks of the callers applies. A request that arrives later is executed when it
        arrives.

        The task that reads may call this, too. The records that this task is processing at that
        time do not count as processed, and are delivered again to the owner of their partition.

        `timeout` is in seconds (by default `default_api_timeout_ms`). ApiTimeoutError is raised
        after it and names the partitions that have not been rewound; all others have been. After a
        cancellation, too, some partitions may have been rewound. Raises UnsupportedVersionError for
        another protocol, IllegalStateError if a member uses another library or an older version,
        and CommitFailedError if the cluster changes.
        """
        group = self._require_group("rewind_group")
        wanted = as_numbers(offsets, "an offset")
        if self._is_in_listener():
            raise IllegalStateError(
                "A listener must not rewind its group, which waits for the listener. It may seek "
                "and commit."
            )
        return await group.rewind_group(wanted, self._get_timeout_s(timeout))

    def group_metadata(self) -> GroupMetadata:
        """Return the identity of this consumer in its group. Synchronous.

        The generation is -1 while it is not a member.
        """
        return self._require_group("group_metadata").membership.metadata

    def _for_transaction(
        self, began: float | None = None, number: int | None = None
    ) -> TransactionalReads:
        """Return the object by which a producer commits offsets in a transaction. Synchronous.

        `began` is the time at which the transaction began, on the monotonic clock, and `number` its
        number in the order of transactions. None means that it begins now.
        """
        if self._config.group_id is None:
            raise IllegalStateError(
                "A transaction commits the offsets of a group, and this consumer has no group_id. "
                "Set group_id and enable_auto_commit=False."
            )
        if self._config.enable_auto_commit:
            raise IllegalStateError(
                "This consumer commits offsets automatically, outside of the transaction. Set "
                "enable_auto_commit=False."
            )
        engine = self._running
        if number is not None and engine.read_lock.has_read_in(number):
            raise IllegalStateError(
                "Records were requested from this consumer since the transaction began, and an "
                "abort would not have delivered them again. Call add(consumer) before the first "
                "read in the transaction."
            )
        former = engine.find_last_reads()
        if number is not None and former is not None and not former.is_settled:
            raise IllegalStateError(
                "This consumer was added to a transaction of another producer that has not ended, "
                "or whose outcome is not known. Commit or abort that transaction, or restart or "
                "close its producer, before you add the consumer to another one."
            )
        # Few programs use this, so the module is not imported with the consumer.
        from aiokclient.consumer.transactional import TransactionalReads

        began = self._cluster.clock.monotonic() if began is None else began
        reads = TransactionalReads(engine, self._subscription, began)
        if number is not None:
            engine.find_last_reads = weakref.ref(reads)
        return reads

    # -- lookups

    async def position(self, tp: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record to be delivered; wait if it is not known yet.

        `timeout` is in seconds (by default `default_api_timeout_ms`); ApiTimeoutError is raised
        after it. If the consumer is closed or fails during the call, the call raises ClosedError or
        the error of that failure. The call may be cancelled.
        """
        engine = self._running
        return await engine.lookups.find_position(as_partition(tp), self._get_timeout_s(timeout))

    async def beginning_offsets(
        self, tps: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition.

        `timeout` is in seconds (by default `default_api_timeout_ms`); ApiTimeoutError is raised
        after it. The partitions need not be assigned. A partition that does not exist for a few
        seconds raises UnknownTopicOrPartitionError.
        """
        lookups, wanted = self._running.lookups, as_partitions(tps)
        return await lookups.find_offsets(wanted, EARLIEST_TIMESTAMP, self._get_timeout_s(timeout))

    async def end_offsets(
        self, tps: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition; see `beginning_offsets`.

        With `isolation_level="read_committed"`, it is the last stable offset, before which no
        transaction is open. As in Java, this is one answer of each leader, which may be too low for
        a moment if the broker lags.
        """
        lookups, wanted = self._running.lookups, as_partitions(tps)
        return await lookups.find_offsets(wanted, LATEST_TIMESTAMP, self._get_timeout_s(timeout))

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offset of the first record at or after a time in ms, for each partition.

        The value is None for a partition without such a record. `timeout` is the same as in
        `beginning_offsets`.
        """
        wanted = as_numbers(times, "a time in milliseconds since the epoch")
        return await self._running.lookups.find_offsets_for_times(
            wanted, self._get_timeout_s(timeout)
        )

    async def lag(
        self, tps: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets from the position to the end of each partition.

        The default for `tps` is all assigned partitions. `timeout` is the same as in
        `beginning_offsets`.
        """
        chosen = [state.tp for state in self._subscription.choose_states(tps)]
        return await self._running.lookups.find_lag(chosen, self._get_timeout_s(timeout))

    def highwater(self, tp: TopicPartition) -> int | None:
        """Return the end offset of a partition as of its last fetch, or None if unknown.

        Synchronous. This is the high watermark, whatever `isolation_level` is.
        """
        self._check_known()
        state = self._subscription.partitions.get(as_partition(tp))
        end = -1 if state is None else state.fetch.high_watermark
        return None if end < 0 else end

    def last_stable_offset(self, tp: TopicPartition) -> int | None:
        """Return the last stable offset of a partition as of its last fetch, or None if unknown.

        Synchronous. All transactions with records before this offset have ended, so it is the end
        for `isolation_level="read_committed"`. It is known whatever `isolation_level` is.
        """
        self._check_known()
        state = self._subscription.partitions.get(as_partition(tp))
        end = -1 if state is None else state.fetch.last_stable
        return None if end < 0 else end

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic in the known metadata, or None if unknown.

        Synchronous. The metadata has the topics that this client uses; `partitions_for` requests
        the metadata of any topic.
        """
        self._check_known()
        (name,) = as_topics([topic])
        info = None if self._engine is None else self._engine.cluster.metadata.find_topic(name)
        if info is None or not info.partitions:
            return None
        return {partition.index for partition in info.partitions}

    async def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> tuple[PartitionInfo, ...]:
        """Request and return the partitions of a topic, with their leaders and replicas.

        `timeout` is in seconds (by default `default_api_timeout_ms`). Raises
        UnknownTopicOrPartitionError, ApiTimeoutError, and ClosedError when the client is closed in
        the meantime.
        """
        (name,) = as_topics([topic])
        updater = self._running.cluster.updater
        return await updater.find_partitions(name, self._get_timeout_s(timeout))

    async def list_topics(
        self, timeout: float | None = None
    ) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return the partitions of all topics that this client may see, by topic.

        `timeout` is in seconds (by default `default_api_timeout_ms`); ApiTimeoutError is raised
        after it.
        """
        return await self._running.lookups.list_topics(timeout)
