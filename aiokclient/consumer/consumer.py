"""`Consumer`: what a program reads with."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, Unpack, cast

from aiokclient.cluster.lifecycle import Lifecycle
from aiokclient.cluster.shared_client import ClientLike, config_of
from aiokclient.cluster.tracebacks import let_go, lets_go
from aiokclient.config import ConsumerConfig, ConsumerOptions
from aiokclient.config.problems import refuse_positional
from aiokclient.consumer.arguments import (
    as_position,
    as_topics,
    require_count,
    require_record,
)
from aiokclient.consumer.delivery.deserialize import Deserializers
from aiokclient.consumer.delivery.iterators import ArrowBatches, RecordBatches, RecordIterator
from aiokclient.consumer.delivery.reader import MAX_BYTES, Reader
from aiokclient.consumer.delivery.tracked import TrackedRecords
from aiokclient.consumer.engine import Engine
from aiokclient.consumer.lookup_calls import LookupCalls
from aiokclient.consumer.membership.group_calls import GroupCalls
from aiokclient.consumer.records import Records
from aiokclient.consumer.state.offset_reset import EARLIEST, LATEST, Reset
from aiokclient.consumer.state.subscribed_topics import matching
from aiokclient.consumer.state.subscription import Subscription, SubscriptionState
from aiokclient.consumer.stopped import STOPPED
from aiokclient.errors import (
    ClosedError,
    ConfigError,
    IllegalStateError,
)
from aiokclient.types import (
    ConsumerRecord,
    OffsetAndMetadata,
    State,
    TopicPartition,
    seconds,
)

if TYPE_CHECKING:
    # A consumer without deserializers is one of bytes; only type checkers know of defaults yet.
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=bytes)
    V = TypeVarWithDefault("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")

__all__ = ["Consumer"]


class Consumer(GroupCalls, LookupCalls, Lifecycle, Generic[K, V]):
    """Reads records, in order within each partition.

        async with Consumer("orders", bootstrap_servers="localhost:9092") as consumer:
            async for record in consumer:
                print(record.value)

    Without `group_id` topics, or one compiled pattern that has to match their whole names, are
    read whole: all partitions, also those that appear later (these from their first record on, see
    `new_partitions`), from `auto_offset_reset` on ("latest"; "earliest", "none",
    "by_duration:P1D"). With it the members of the group share the partitions out and go on where
    the group has committed. `assign` takes single partitions instead or as well.

    It can be made anywhere, and starts by `async with`, `await consumer.start()` or
    `await consumer`. Once started its positions are known, but for partitions whose brokers do not
    answer: with "latest", what is sent from then on is read. A group's first assignment is waited
    for as well, three seconds at most. One task reads at a time. A record handed out is processed
    once the next one is asked for.

    `client` shares connections and metadata; `listener` is told of partitions by the methods
    `on_assigned(partitions)`, `on_revoked(partitions)` (only with a group) and
    `on_lost(partitions)`, plain or async. It may commit and seek, not read; what it raises fails
    the consumer. Options are Kafka's with
    `_` for `.`, times in milliseconds; ConfigError for a bad one. `key_deserializer` and
    `value_deserializer` are functions of the bytes, or objects with
    `deserialize(topic, data, headers)`; `on_record_error(error)` answers what stands for what they
    fail on, or SKIP. With `value_deserializer=memoryview` values are not copied, which pays from
    some 4 KB each: the views are read-only, and as long as one lives, so does the response that it
    came in.
    """

    closing_rank: ClassVar[int] = 0
    config_type: ClassVar[type[ConsumerConfig]] = ConsumerConfig
    _config: ConsumerConfig

    def __init__(
        self,
        *topics: str | re.Pattern[str],
        client: ClientLike | None = None,
        listener: Any = None,
        **options: Unpack[ConsumerOptions[K, V]],
    ) -> None:
        refuse_positional("Consumer", [one for one in topics if isinstance(one, Mapping)])
        shared = config_of(client)
        config = ConsumerConfig.build(options, client=shared)
        super().__init__(config, client)
        self._deserializers = Deserializers(
            config.key_deserializer, config.value_deserializer, config.on_record_error
        )
        grouped = config.group_id is not None
        self._subscription = SubscriptionState(Reset.of(config), grouped=grouped)
        self._engine: Engine | None = None
        self._stopped, self._listener = False, None
        self._closers: dict[asyncio.Task[Any] | None, None] = {}
        self._subscribe_all(topics, listener)

    def _subscribe_all(self, topics: Sequence[str | re.Pattern[str]], listener: Any) -> None:
        patterns = [topic for topic in topics if isinstance(topic, re.Pattern)]
        if patterns and len(topics) > 1:
            raise ConfigError("a consumer takes names of topics, or one pattern, not both")
        if topics:
            self.subscribe(patterns[0] if patterns else cast(Sequence[str], topics), listener)

    @classmethod
    def from_properties(
        cls,
        source: Mapping[str, Any] | str | os.PathLike[str],
        *topics: str | re.Pattern[str],
        **options: Any,
    ) -> Self:
        """Make a consumer of these topics of dotted names, or of a properties file's path.

        As `Lifecycle.from_properties`.
        """
        listener = options.pop("listener", None)
        consumer = super().from_properties(source, **options)
        consumer._subscribe_all(topics, listener)
        return consumer

    # -- life

    async def _open(self) -> None:
        self._engine = Engine(
            self._cluster,
            self._config,
            self._subscription,
            self._deserializers,
            self._supervisor,
            self._anchor.call("_died"),
        )
        if self._stopped:
            self._engine.reader.mark_stopped()
        await self._engine.start()

    def _died(self, raised: bool = False) -> BaseException | None:
        """Return what has failed it; `raised` if the caller raises that in a user's call."""
        self._failure_seen |= raised and self._failure is not None
        return self._failure

    async def _close(self, *, graceful: bool, timeout: float) -> None:
        # Whoever closes does not come back for more records.
        self._closers[asyncio.current_task()] = None
        if self._engine is not None:
            self._engine.reader.in_progress.relieved.set()
        await super()._close(graceful=graceful, timeout=timeout)

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        if self._engine is None:
            return
        read_lock = self._engine.reader.read_lock
        if graceful:
            await self._engine.stop(timeout, lambda: read_lock.will_ask(self._closers))
        else:
            await self._engine.stop(timeout, lambda: False, farewell=False)

    def _abandon(self, error: ClosedError) -> None:
        if self._engine is not None:
            self._engine.abandon(error)

    def _failed(self, error: BaseException) -> None:
        if self._engine is not None:
            self._engine.wake()

    def _troubles(self) -> list[str]:
        found = super()._troubles()
        return found if self._engine is None else [*found, *self._engine.troubles()]

    def _subject(self) -> dict[str, str | None]:
        return self._subscription.described(self._config.group_id)

    def _reader(self) -> Reader:
        if self._closing is not None and self._engine is not None and not self._in_listener():
            self._engine.reader.in_progress.ask()  # It is refused, and yet the program is back.
        return self._running.reader

    # -- what to read

    def subscribe(self, topics: Iterable[str] | re.Pattern[str], listener: Any = None) -> None:
        """Reads these topics whole instead of those before, or all that a pattern matches. Plain.

        A pattern has to match a topic's whole name; internal topics are left out. With
        `group_protocol="consumer"` the brokers match it, as RE2 does: without looking ahead or
        behind and references (InvalidRegularExpressionError). Partitions assigned by hand stay.
        """
        self._check_known()
        self._subscription.subscribe(Subscription(as_topics(topics), self._kept(listener)))

    def unsubscribe(self) -> None:
        """Reads nothing any more, neither subscribed nor assigned. Plain."""
        self._check_known()
        self._subscription.assign(())
        self._subscription.subscribe(Subscription())

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Reads these partitions instead of those assigned before. Plain.

        Those that were assigned already keep their positions. A subscription stays.
        """
        self._check_known()
        self._subscription.assign(tps)

    def subscription(self) -> set[str]:
        """Return the names of the subscribed topics; of a pattern, those that match.

        Synchronous. A pattern matches nothing before the first metadata is read.
        """
        self._check_known()
        wanted = self._subscription.subscription
        if wanted.pattern is None:
            return set(wanted.topics)
        if self._engine is None:
            return set()
        hide_internal = self._config.exclude_internal_topics
        return set(matching(wanted, self._engine.cluster.metadata, hide_internal))

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read. Plain."""
        self._check_known()
        return set(self._subscription.partitions)

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Hands out nothing of these partitions until `resume`. Plain.

        What is fetched of them is kept within bounds, and fetched again where it is not.
        """
        self._check_known()
        self._subscription.pause(tps, True)

    def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Goes on with these partitions. Plain."""
        self._check_known()
        self._subscription.pause(tps, False)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused. Plain."""
        self._check_known()
        return {state.tp for state in self._subscription.partitions.values() if state.paused}

    # -- where to read

    def seek(
        self,
        to: ConsumerRecord[Any, Any] | TopicPartition,
        offset: int | OffsetAndMetadata | None = None,
    ) -> None:
        """Hands out `seek(record)` again, or the record at the offset in `seek(tp, offset)`. Plain.

        What was handed out and what is processed both move there. Raises IllegalStateError for a
        partition that is not assigned.
        """
        self._check_known()
        self._subscription.seek(*as_position(to, offset))

    def seek_to_beginning(self, tps: Iterable[TopicPartition] | None = None) -> None:
        """Goes on at the first record of each partition, by default of all. Plain.

        The offset is looked up in the background.
        """
        self._check_known()
        self._subscription.look_up(self._subscription.chosen(tps), EARLIEST)

    def seek_to_end(self, tps: Iterable[TopicPartition] | None = None) -> None:
        """Goes on at the end of each partition, by default of all. Plain.

        The offset is looked up in the background: it is the end as it is a little later.
        """
        self._check_known()
        self._subscription.look_up(self._subscription.chosen(tps), LATEST)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """For each partition the offset after the last record handed out. Plain."""
        self._check_known()
        return self._subscription.consumed()

    # -- reading

    def __aiter__(self) -> RecordIterator[K, V]:
        """The records one by one, without end: `async for record in consumer`.

        It awaits only when there is nothing at hand, and gives way to the loop at least every
        10 ms. Raises RecordError for a record that cannot be deserialized (asking again goes on
        behind it), CorruptBatchError for a damaged batch, OffsetOutOfRangeError, LogTruncationError
        and NoOffsetError where `auto_offset_reset` is "none", ConcurrentReadError while another
        task reads, and what the brokers refuse. A cancellation loses no record.
        """
        return RecordIterator(self, self._running.reader)

    @lets_go
    def until_end(self) -> RecordIterator[K, V]:
        """As `async for record in consumer`, up to the end offsets as they are when it begins.

        It begins when it is known which partitions are subscribed, or what the group has given:
        ApiTimeoutError after `default_api_timeout_ms` without that.
        """
        return RecordIterator(self, self._running.reader, self._ends)

    @lets_go
    def batches(
        self,
        max_records: int = 500,
        max_wait: float = 0.0,
        by_partition: bool = False,
        max_bytes: int = MAX_BYTES,
        until_end: bool = False,
    ) -> RecordBatches[K, V]:
        """The records in lists that are never empty: `async for records in consumer.batches()`.

        A list is handed out when it has `max_records`, or `max_wait` seconds after its first
        record was there. With `by_partition` each holds records of one partition. `max_bytes`
        bounds the decompressed keys, values and headers of a list, beyond its first record; what
        does not fit comes next. Otherwise as the iteration over the consumer.
        """
        require_count("max_records", max_records)
        require_count("max_bytes", max_bytes)
        if seconds(max_wait, "max_wait") < 0:
            raise IllegalStateError(f"max_wait has to be at least 0, not {max_wait}")
        ends = self._ends if until_end else None
        reader = self._running.reader
        return RecordBatches(self, reader, max_records, max_wait, by_partition, ends, max_bytes)

    @lets_go
    def tracked(self, max_outstanding: int = 1000) -> TrackedRecords[K, V]:
        """The records one by one, for many handlers at a time, each ended by `done(record)`.

            async for record in consumer.tracked():
                tasks.start_soon(handle, record)

        It waits while `max_outstanding` are not done. Commits cover what lies before the lowest
        record that is not done. Otherwise as the iteration over the consumer.
        """
        require_count("max_outstanding", max_outstanding)
        return TrackedRecords(self, self._running.reader, max_outstanding)

    def done(self, record: ConsumerRecord[Any, Any]) -> None:
        """The program is done with a record that `tracked` handed out. Plain.

        One of a partition that was lost, or handed out again since, is ignored; so it is after the
        end of the consumer.
        """
        require_record(record)
        if self._engine is not None:
            self._engine.reader.done(record)

    def mark_processed(self) -> None:
        """Count everything that was delivered so far as processed, without requesting more.

        Automatic commits then cover it, and a revocation does not wait for it. This includes
        records of `tracked` that are not done. Synchronous; allowed while the consumer closes,
        which waits for what is being processed.
        """
        if self._engine is not None:
            self._engine.reader.mark_processed()
        if self._closing is None or self._state is State.CLOSED:
            self._check_known()

    @lets_go
    def arrow_batches(self, max_bytes: int = MAX_BYTES) -> ArrowBatches:
        """The records as `pyarrow.RecordBatch`es: `async for table in consumer.arrow_batches()`.

        Each holds records of one partition. `max_bytes`, at most 1 GiB, bounds the decompressed
        keys, values and headers of a table, beyond its first record; what does not fit comes
        next. The columns are topic, partition, offset,
        timestamp, timestamp_type, key, value, headers; keys and values are bytes: deserializers
        are not applied. Raises ImportError without pyarrow.
        """
        require_count("max_bytes", max_bytes)
        return ArrowBatches(
            self,
            self._running.reader,
            max_bytes=max_bytes,
            limit=self._config.max_decompressed_batch_bytes,
            check_crcs=self._config.check_crcs,
        )

    async def poll(
        self,
        timeout: float = 1.0,
        max_records: int | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Records[K, V]:
        """Up to `max_records` (`max_poll_records`) as soon as there is one; empty at the timeout.

        `timeout` in seconds; 0 takes only what is at hand. `max_bytes` as in `batches`. Raises as
        the iteration does. A cancellation loses no record.
        """
        limit = self._config.max_poll_records if max_records is None else max_records
        try:
            require_count("max_records", limit)
            require_count("max_bytes", max_bytes)
            return await self._reader().read(limit, seconds(timeout), max_bytes=max_bytes)
        except BaseException as error:
            let_go(error, self)
            del self
            raise

    async def get(self, timeout: float = 1.0) -> ConsumerRecord[K, V] | None:
        """One record, or None when there is none within `timeout` seconds. As `poll`."""
        try:
            records = await self._reader().read(1, seconds(timeout))
        except BaseException as error:
            let_go(error, self)
            del self
            raise
        return records[0] if records else None

    def stop(self) -> None:
        """Ends reading for good: iterations end after what is in hand, `poll` gives []. Plain.

        May be called from any thread and from signal handlers, at any time: stopped before its
        start a consumer reads nothing. It still has to be closed.
        """
        self._stopped = True
        if self._engine is None or self._loop is None or self._state is State.CLOSED:
            return STOPPED
        self._engine.reader.mark_stopped()
        if threading.get_ident() == self._thread and self._closing is not None:
            return STOPPED
        try:
            self._loop.call_soon_threadsafe(self._engine.reader.stop)
        except RuntimeError as error:
            raise ClosedError("the event loop of this consumer is closed") from error
        return STOPPED


for _name in (
    "assign",
    "pause",
    "resume",
    "seek",
    "seek_to_beginning",
    "seek_to_end",
    "subscribe",
    "unsubscribe",
):
    # Not as decorators: type checkers would no longer see that there is nothing to await.
    setattr(Consumer, _name, lets_go(getattr(Consumer, _name)))
