"""The public consumer, `Consumer`."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, Unpack, cast

from aiokclient.cluster.lifecycle import Lifecycle
from aiokclient.cluster.metadata import PartitionInfo
from aiokclient.cluster.shared_client import ClientLike, config_of
from aiokclient.cluster.tracebacks import let_go, lets_go
from aiokclient.config import ConsumerConfig, ConsumerOptions
from aiokclient.config.problems import refuse_positional
from aiokclient.consumer.arguments import (
    as_listener,
    as_numbers,
    as_partition,
    as_partitions,
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
from aiokclient.consumer.membership.group_calls import GroupCalls
from aiokclient.consumer.records import Records
from aiokclient.consumer.state.offset_reset import EARLIEST, LATEST, Reset
from aiokclient.consumer.state.subscribed_topics import matching
from aiokclient.consumer.state.subscription import Subscription, SubscriptionState
from aiokclient.consumer.stopped import STOPPED
from aiokclient.errors import (
    ApiTimeoutError,
    ClosedError,
    ConfigError,
    IllegalStateError,
)
from aiokclient.types import (
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
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


class Consumer(Lifecycle, Generic[K, V]):
    """A consumer of records, in order within each partition.

        async with Consumer("orders", bootstrap_servers="localhost:9092") as consumer:
            async for record in consumer:
                print(record.value)

    Without `group_id`, topics are read whole: all partitions, including those that appear later
    (these from their first record on, see `new_partitions`), from `auto_offset_reset` on
    ("latest"; "earliest", "none", "by_duration:P1D"). Instead of topics, one compiled pattern can
    be given, which must match their whole names. With `group_id`, the partitions are shared among
    the members of the group and read from the offsets that the group has committed. `assign` takes
    single partitions instead or in addition.

    A consumer can be created anywhere, and starts by `async with`, `await consumer.start()` or
    `await consumer`. Once it is started its positions are known, except for partitions whose
    brokers do not answer: with "latest", what is sent from then on is read. The start also waits
    for the first assignment of a group, for at most three seconds. One task reads at a time. A
    record that was delivered counts as processed once the next one is requested.

    `client` shares connections and metadata. `listener` is an object with `on_assigned(tps)`,
    `on_revoked(tps)` (only with a group) and `on_lost(tps)`, synchronous or async. It may commit
    and seek, but not read; what it raises fails the consumer.

    Options are Kafka's with `_` for `.`, times in milliseconds; ConfigError is raised for a bad
    one. `key_deserializer` and `value_deserializer` are functions of the bytes, or objects with
    `deserialize(topic, data, headers)`. When they fail, `on_record_error(error)` returns a value
    to use instead, or SKIP. With `value_deserializer=memoryview` values are not copied, which pays
    from about 4 KB each: the views are read-only, and each keeps in memory the response that it is
    part of.
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
        self._stopped = False
        self._listener: Any = None
        """The application's listener. Only this keeps it alive, as it may hold the consumer."""
        self._closers: dict[asyncio.Task[Any] | None, None] = {}
        self._subscribe_all(topics, listener)

    def _subscribe_all(self, topics: Sequence[str | re.Pattern[str]], listener: Any) -> None:
        patterns = [topic for topic in topics if isinstance(topic, re.Pattern)]
        if patterns and len(topics) > 1:
            raise ConfigError("A consumer takes either topic names or one pattern, not both.")
        if topics:
            self.subscribe(patterns[0] if patterns else cast(Sequence[str], topics), listener)

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
        consumer = super().from_properties(source, **options)
        consumer._subscribe_all(topics, listener)
        return consumer

    # -- start and close

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
        """Return what has failed the consumer; `raised` if the caller raises it to a user."""
        self._failure_seen |= raised and self._failure is not None
        return self._failure

    async def _close(self, *, graceful: bool, timeout: float) -> None:
        # A task that closes does not request more records.
        self._closers[asyncio.current_task()] = None
        if self._engine is not None:
            self._engine.in_progress.relieved.set()
        await super()._close(graceful=graceful, timeout=timeout)

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        if self._engine is None:
            return
        read_lock = self._engine.read_lock
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

    def _hold(self) -> None:
        super()._hold()
        if self._listener is not None:
            self._subscription.revive(self._listener)

    # -- checks

    def _check(self) -> None:
        # Listeners are called while the consumer starts and closes, too. What a listener starts and
        # does not wait for may continue while the consumer starts.
        if self._usable or not (self._in_listener() or self._is_started_by_listener()):
            super()._check()

    def _check_known(self) -> None:
        """Raise unless a synchronous call that reads known data is allowed now."""
        if self._state not in (State.NEW, State.STARTING):
            self._check()

    def _waits_for_caller(self) -> str:
        calls = None if self._engine is None else self._engine.listener_calls
        return "a listener" if calls is not None and calls.is_calling() else ""

    def _in_listener(self) -> bool:
        return self._engine is not None and self._engine.listener_calls.is_inside()

    def _is_started_by_listener(self) -> bool:
        if self._engine is None or self._state is not State.STARTING:
            return False
        return self._engine.listener_calls.was_inside()

    @property
    def _running(self) -> Engine:
        self._check()
        assert self._engine is not None
        return self._engine

    def _reader(self) -> Reader:
        if self._closing is not None and self._engine is not None and not self._in_listener():
            # The request is refused, but it shows that the application is done with its records.
            self._engine.in_progress.ask()
        return self._running.reader

    def _group(self, call: str) -> GroupCalls:
        group = self._running.group_calls
        if group is None:
            raise IllegalStateError(
                f"{call}() needs a group, and this consumer has no group_id. Store offsets "
                "yourself: consumed() returns them, and seek() goes back to them."
            )
        return group

    # -- what to read

    def subscribe(self, topics: Iterable[str] | re.Pattern[str], listener: Any = None) -> None:
        """Read these topics whole instead of the earlier ones, or all that a pattern matches.

        Synchronous. A pattern must match a topic's whole name; internal topics are left out. With
        `group_protocol="consumer"` the brokers match it, as RE2 does: without look-around and
        back-references (InvalidRegularExpressionError). Partitions that were assigned by hand stay.
        """
        self._check_known()
        checked = as_topics(topics)
        self._listener = as_listener(listener)
        self._subscription.subscribe(Subscription(checked, self._listener))

    def unsubscribe(self) -> None:
        """Read nothing any more, neither what was subscribed nor what was assigned. Synchronous."""
        self._check_known()
        self._subscription.assign(())
        self._subscription.subscribe(Subscription())

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Read these partitions instead of those that were assigned before. Synchronous.

        Partitions that were assigned already keep their positions. A subscription stays.
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
        """Return the partitions that are read. Synchronous."""
        self._check_known()
        return set(self._subscription.partitions)

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Deliver nothing of these partitions until `resume`. Synchronous.

        Their fetched records are kept within bounds, and beyond them are fetched again later.
        """
        self._check_known()
        self._subscription.pause(tps, True)

    def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Continue with these partitions. Synchronous."""
        self._check_known()
        self._subscription.pause(tps, False)

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused. Synchronous."""
        self._check_known()
        return {state.tp for state in self._subscription.partitions.values() if state.paused}

    # -- where to read

    def seek(
        self,
        to: ConsumerRecord[Any, Any] | TopicPartition,
        offset: int | OffsetAndMetadata | None = None,
    ) -> None:
        """Deliver a record again, or the one at an offset: `seek(record)`, `seek(tp, offset)`.

        Synchronous. What was delivered and what is processed both move there. Raises
        IllegalStateError for a partition that is not assigned.
        """
        self._check_known()
        self._subscription.seek(*as_position(to, offset))

    def seek_to_beginning(self, tps: Iterable[TopicPartition] | None = None) -> None:
        """Continue at the first record of each partition, by default of all. Synchronous.

        The offset is looked up in the background.
        """
        self._check_known()
        self._subscription.look_up(self._subscription.chosen(tps), EARLIEST)

    def seek_to_end(self, tps: Iterable[TopicPartition] | None = None) -> None:
        """Continue at the end of each partition, by default of all. Synchronous.

        The offset is looked up in the background: it is the end as it is a little later.
        """
        self._check_known()
        self._subscription.look_up(self._subscription.chosen(tps), LATEST)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return for each partition the offset after the last delivered record. Synchronous.

        That is what `commit()` commits. Of `tracked`, the lowest record that is not done counts.
        """
        self._check_known()
        return self._subscription.consumed()

    # -- reading

    def __aiter__(self) -> RecordIterator[K, V]:
        """Return an endless iterator over the records: `async for record in consumer`.

        It waits only when nothing is buffered, and yields to the event loop at least every 10 ms.
        Raises RecordError for a record that cannot be deserialized (the next request continues
        after it), CorruptBatchError for a damaged batch, OffsetOutOfRangeError, LogTruncationError
        and NoOffsetError where `auto_offset_reset` is "none", ConcurrentReadError while another
        task reads, and what the brokers refuse. A cancellation loses no record.
        """
        return RecordIterator(self, self._running.reader)

    @lets_go
    def until_end(self) -> RecordIterator[K, V]:
        """Return an iterator over the records up to the present end offsets.

        The end offsets are looked up when the iteration begins. It begins when it is known which
        partitions are subscribed, or which ones the group has assigned: ApiTimeoutError is raised
        after `default_api_timeout_ms` without that. Otherwise as the iteration over the consumer.
        """
        return RecordIterator(self, self._running.reader, self._final_offsets)

    @lets_go
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
        seconds after its first record was there. With `by_partition` each holds records of one
        partition. `max_bytes` bounds the decompressed keys, values and headers of a list, beyond
        its first record; what does not fit comes next. With `until_end` it ends as `until_end()`.
        Otherwise as the iteration over the consumer.
        """
        require_count("max_records", max_records)
        require_count("max_bytes", max_bytes)
        if seconds(max_wait, "max_wait") < 0:
            raise IllegalStateError(f"max_wait must be at least 0 seconds, not {max_wait}.")
        ends = self._final_offsets if until_end else None
        reader = self._running.reader
        return RecordBatches(self, reader, max_records, max_wait, by_partition, ends, max_bytes)

    @lets_go
    def tracked(self, max_outstanding: int = 1000) -> TrackedRecords[K, V]:
        """Return an iterator for many handlers at a time, each of which ends with `done(record)`.

            async for record in consumer.tracked():
                tasks.start_soon(handle, record)

        It waits while `max_outstanding` records are not done. Commits cover everything before the
        lowest record that is not done. Otherwise as the iteration over the consumer.
        """
        require_count("max_outstanding", max_outstanding)
        return TrackedRecords(self, self._running.reader, max_outstanding)

    def done(self, record: ConsumerRecord[Any, Any]) -> None:
        """Count a record that `tracked` has delivered as processed. Synchronous.

        A record of a partition that was lost, or that was delivered again since, is ignored. So is
        any record after the end of the consumer.
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
        """Return an iterator over `pyarrow.RecordBatch`es, each of one partition.

            async for table in consumer.arrow_batches(): ...

        `max_bytes`, at most 1 GiB, bounds the decompressed keys, values and headers of a table,
        beyond its first record; what does not fit comes next. The columns are topic, partition,
        offset, timestamp, timestamp_type, key, value, headers. Keys and values are bytes:
        deserializers are not applied. Raises ImportError without pyarrow. Otherwise as the
        iteration over the consumer.
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
        """Return up to `max_records` (`max_poll_records`) as soon as there is one.

        The list is empty after `timeout` seconds; 0 takes only what is buffered. `max_bytes` as in
        `batches`. Raises as the iteration does. A cancellation loses no record.
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
        """Return one record, or None if there is none within `timeout` seconds. See `poll`."""
        try:
            records = await self._reader().read(1, seconds(timeout))
        except BaseException as error:
            let_go(error, self)
            del self
            raise
        return records[0] if records else None

    def stop(self) -> None:
        """End reading for good: iterations end after what is in progress, `poll` returns [].

        Synchronous; may be called from any thread and from signal handlers, at any time. A consumer
        that is stopped before its start reads nothing. It must still be closed.
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
            raise ClosedError("The event loop of this consumer is closed.") from error
        return STOPPED

    # -- the group

    @lets_go
    async def commit(self, what: Any = None, timeout: float | None = None) -> None:
        """Store in the group how far this consumer is.

        `commit()` covers everything that was delivered, including what is being processed (of
        `tracked`: up to the lowest record that is not done). `commit(what)` covers exactly that:
        a record or several, `{tp: offset}`, `{tp: OffsetAndMetadata}`, topics, or partitions. A
        record commits its offset + 1.

        `timeout` is in seconds (`default_api_timeout_ms`); ApiTimeoutError is raised after it. A
        rebalance and other passing obstacles are waited for. Raises CommitFailedError:

        - for partitions that this consumer no longer owns, as another member may be at work on
          them; `commit()` raises it if records of a lost partition were delivered and not
          committed;
        - for partitions that were assigned by hand, if this consumer is not a member of the group
          and others are: the coordinator then takes offsets of members only;
        - for partitions that are named without offsets and are not assigned.

        In a listener it does not wait for the group, which waits for the listener. In `on_lost`
        the lost partitions can no longer be committed: CommitFailedError is raised immediately,
        except by `commit()` if all that was delivered of them is committed. Catch it there,
        because what a listener raises fails the consumer.

        If the consumer fails in the meantime, this raises why. When it raises, or is cancelled,
        part of the commit may have been stored.
        """
        await self._group("commit").commit(what, self._seconds(timeout))

    @lets_go
    async def committed(
        self, tps: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed, None where it has nothing.

        The partitions need not be assigned to this consumer. `timeout` is in seconds
        (`default_api_timeout_ms`); ApiTimeoutError is raised after it. What an open transaction
        has committed is waited for. If the consumer fails in the meantime, this raises why.
        """
        group = self._group("committed")
        return await group.committed(as_partitions(tps), self._seconds(timeout))

    @lets_go
    async def rewind_group(
        self, offsets: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> None:
        """Have the whole group, while it lives, continue at these offsets.

        The members that own the partitions wait until nothing of them is in progress, seek, and
        commit; the call returns when all have. Each does so once, even if owners, leader or
        coordinator change in the meantime. It works only with the classic protocol, and only if all
        members are of this library. Of several rewind requests that reach an owner together the
        latest wins, by the clocks of the callers; one that arrives later is carried out then.

        The task that reads may call it, too: the records that it is processing then do not count as
        processed, and are delivered again to the owner of their partition.

        `timeout` is in seconds (`default_api_timeout_ms`). ApiTimeoutError is raised after it and
        names the partitions that have not been rewound; the others have. The same holds after a
        cancellation. Raises UnsupportedVersionError for another protocol, and IllegalStateError
        for a member that would not take part.
        """
        group = self._group("rewind_group")
        wanted = as_numbers(offsets, "an offset")
        if self._in_listener():
            raise IllegalStateError(
                "A listener must not rewind its group, which waits for the listener. It may seek "
                "and commit."
            )
        await group.rewind(wanted, self._seconds(timeout))

    @lets_go
    def group_metadata(self) -> GroupMetadata:
        """Return the identity of this consumer in its group. Synchronous.

        The generation is -1 while it is not a member.
        """
        return self._group("group_metadata").metadata

    # -- lookups

    @lets_go
    async def position(self, tp: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record to be delivered; look it up if it is not known.

        `timeout` in seconds (`default_api_timeout_ms`), after which ApiTimeoutError is raised;
        ClosedError, or what failed the consumer, if that is its end. May be cancelled.
        """
        engine = self._running
        return await engine.lookups.position(as_partition(tp), self._seconds(timeout))

    @lets_go
    async def beginning_offsets(
        self, tps: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition.

        `timeout` is in seconds (`default_api_timeout_ms`); ApiTimeoutError is raised after it. The
        partitions need not be assigned.
        """
        wanted = as_partitions(tps)
        return await self._running.lookups.beginning_offsets(wanted, self._seconds(timeout))

    @lets_go
    async def end_offsets(
        self, tps: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition; see `beginning_offsets`.

        With `isolation_level="read_committed"` it is the offset before the first open transaction.
        """
        wanted = as_partitions(tps)
        return await self._running.lookups.end_offsets(wanted, self._seconds(timeout))

    @lets_go
    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time in ms, for each partition; None if none is.

        `timeout` as in `beginning_offsets`.
        """
        wanted = as_numbers(times, "a time in milliseconds since the epoch")
        return await self._running.lookups.offsets_for_times(wanted, self._seconds(timeout))

    @lets_go
    async def lag(
        self, tps: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets from position to end, by default of all assigned partitions.

        `timeout` as in `beginning_offsets`.
        """
        chosen = [state.tp for state in self._subscription.chosen(tps)]
        ends = await self.end_offsets(chosen, timeout)
        return {tp: max(ends[tp] - await self.position(tp, timeout), 0) for tp in chosen}

    async def _final_offsets(self) -> dict[TopicPartition, int]:
        """Return the end offsets of all partitions, once it is known which there are."""
        timeout = self._seconds(None)
        if not await self._running.knows_its_part(self._cluster.clock.monotonic() + timeout):
            raise ApiTimeoutError(f"The group assigned no partitions within {timeout:.1f} s.")
        return await self.end_offsets(list(self._subscription.partitions))

    @lets_go
    def highwater(self, tp: TopicPartition) -> int | None:
        """Return the end offset of a partition as of its last fetch, or None if unknown.

        Synchronous. This is the high watermark, whatever `isolation_level` is.
        """
        self._check_known()
        state = self._subscription.partitions.get(as_partition(tp))
        end = -1 if state is None else state.fetch.high_watermark
        return None if end < 0 else end

    @lets_go
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic in the known metadata, or None if unknown.

        Synchronous. Known are the topics that this client uses; `partitions_for` asks a broker.
        """
        self._check_known()
        (name,) = as_topics([topic])
        info = None if self._engine is None else self._engine.cluster.metadata.topic(name)
        if info is None or not info.partitions:
            return None
        return {partition.index for partition in info.partitions}

    @lets_go
    async def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic with their leaders and replicas, read anew.

        `timeout` is in seconds (`default_api_timeout_ms`). Raises UnknownTopicOrPartitionError,
        ApiTimeoutError, and ClosedError when the client is closed in the meantime.
        """
        (name,) = as_topics([topic])
        return await self._running.lookups.partitions_for(name, self._seconds(timeout))

    @lets_go
    async def list_topics(
        self, timeout: float | None = None
    ) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return the partitions of all topics that this client may see, by topic.

        `timeout` is in seconds (`default_api_timeout_ms`); ApiTimeoutError is raised after it.
        """
        return await self._running.lookups.list_topics(timeout)


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
