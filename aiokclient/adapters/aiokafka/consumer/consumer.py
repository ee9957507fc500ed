"""The consumer with aiokafka's interface."""

from __future__ import annotations

import asyncio
import math
import re
import ssl
import time
import warnings
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar, cast

from aiokclient import Consumer, Records, TopicPartition
from aiokclient import ConsumerRecord as NativeRecord
from aiokclient import OffsetAndMetadata as NativeOffset
from aiokclient.adapters.aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener
from aiokclient.adapters.aiokafka.client import VERSION, AIOKafkaClient, refuse_deprecated
from aiokclient.adapters.aiokafka.connection import ConnectionOptions, whole
from aiokclient.adapters.aiokafka.consumer.rebalances import Rebalances
from aiokclient.adapters.aiokafka.consumer.turns import UNLIMITED, Turns
from aiokclient.adapters.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokclient.adapters.aiokafka.coordinator.assignors.bridge import as_strategies
from aiokclient.adapters.aiokafka.coordinator.assignors.roundrobin import (
    RoundRobinPartitionAssignor,
)
from aiokclient.adapters.aiokafka.error_mapping import translate, translated_errors
from aiokclient.adapters.aiokafka.errors import (
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from aiokclient.adapters.aiokafka.offsets import require_offsets
from aiokclient.adapters.aiokafka.private_names import Fetcher, GroupCoordinator, SubscriptionState
from aiokclient.adapters.aiokafka.structs import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from aiokclient.errors import ClosedError, RecordError, UnknownTopicOrPartitionError
from aiokclient.errors import KafkaError as NativeError

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")

UNCHANGED: Final = (
    *("key_deserializer", "value_deserializer", "fetch_max_wait_ms", "fetch_max_bytes"),
    *("fetch_min_bytes", "max_partition_fetch_bytes", "auto_offset_reset", "check_crcs"),
    *("exclude_internal_topics", "isolation_level", "client_rack"),
)
UNCHANGED_IN_GROUP: Final = (
    *("group_id", "group_instance_id", "enable_auto_commit", "auto_commit_interval_ms"),
    *("max_poll_interval_ms", "session_timeout_ms", "heartbeat_interval_ms"),
)
"""The options that are passed on as they are: to every consumer, and to one in a group."""

Record: TypeAlias = ConsumerRecord[Any, Any]
T = TypeVar("T")


class AIOKafkaConsumer:
    """A consumer with aiokafka's arguments, defaults, and calls. `native` is aiokclient's.

    Records count as processed when they were delivered, so that automatic commits include them, and
    rebalances do not wait for them. Several tasks may read from one consumer.
    """

    def __init__(
        self,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = "aiokafka-" + VERSION,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Callable[[Any], Any] | None = None,
        value_deserializer: Callable[[Any], Any] | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52428800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1 * 1024 * 1024,
        request_timeout_ms: int = 40 * 1000,
        retry_backoff_ms: int = 100,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 5 * 60 * 1000,
        partition_assignment_strategy: Sequence[
            type[AbstractPartitionAssignor] | AbstractPartitionAssignor
        ] = (RoundRobinPartitionAssignor,),
        max_poll_interval_ms: int = 300000,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int = 10000,
        heartbeat_interval_ms: int = 3000,
        consumer_timeout_ms: int = 200,
        max_poll_records: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        security_protocol: str = "PLAINTEXT",
        api_version: str | None = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: int | None = 540000,
        isolation_level: str = "read_uncommitted",
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: AbstractTokenProvider | None = None,
        client_rack: str | None = None,
    ) -> None:
        given = locals()
        refuse_deprecated(loop, api_version)
        if max_poll_records is not None:
            require_count("max_poll_records", max_poll_records)
        if isolation_level not in ISOLATION_LEVELS:
            raise ValueError(
                f"Incorrect isolation level {isolation_level}: Use one of {ISOLATION_LEVELS}."
            )
        self._closed = False
        self._group_id = group_id
        self._group_instance_id = group_instance_id
        self._max_poll_records = max_poll_records
        self._request_timeout_ms = request_timeout_ms
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._assigned_by_hand = False
        self._by_pattern = False
        self._at_stop: tuple[frozenset[TopicPartition], frozenset[str]] | None = None
        """The assignment and the subscription when the consumer was stopped."""
        self._client = AIOKafkaClient.of(ConnectionOptions.of(given))
        options = {name: whole(given[name]) for name in UNCHANGED}
        if group_id is not None:
            options |= {name: whole(given[name]) for name in UNCHANGED_IN_GROUP}
            strategies = as_strategies(partition_assignment_strategy)
            options["partition_assignment_strategy"] = strategies
        self.native: Consumer[Any, Any] = Consumer(
            client=self._client.native, deserialize_none=True, new_partitions="reset", **options
        )
        self._client.cluster.follow(self.native)
        self._turns = Turns(self.native)
        self._rebalances = Rebalances(self._turns)
        self._subscription = SubscriptionState(self)
        self._coordinator = GroupCoordinator(self)
        self._fetcher = Fetcher(self)
        if topics:
            self._subscribe(require_topics(topics), None)

    # -- start and stop

    async def start(self) -> None:
        """Connect to the cluster, and wait for the first assignment of the group.

        Raises KafkaConnectionError if no bootstrap server accepts a connection, and
        UnknownTopicOrPartitionError if a topic does not exist after `request_timeout_ms`. A start
        that fails or is cancelled leaves nothing open, but `stop` must still be called.
        """
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        await self._client.bootstrap()
        for topic in sorted(self.subscription()):
            await self._client._wait_on_metadata(topic)
        with translated_errors(ConsumerStoppedError):
            await self.native.start()
        if self._group_id is not None and self._rebalances.is_subscribed:
            await self._wait_for_assignment(self._rebalances.assigned)

    async def _wait_for_assignment(self, assigned: asyncio.Event) -> None:
        """Wait until the group has assigned partitions, or the consumer has failed."""
        while not assigned.is_set():
            with translated_errors(ConsumerStoppedError):
                self.native.assignment()  # Raises the error with which the consumer has failed.
            try:
                async with asyncio.timeout(0.2):
                    await assigned.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """Commit what was delivered, if commits are automatic, leave the group, and disconnect."""
        if self._closed:
            return
        try:
            self._at_stop = self.assignment(), self.subscription()
        except (KafkaError, ConsumerStoppedError):
            pass  # The native consumer has failed, and knows neither any more.
        self._closed = True
        self._turns.close()
        try:
            with translated_errors(ConsumerStoppedError):
                await self.native.close()
        finally:
            await self._client.close()

    # -- what to read

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics, or those whose names begin with a match of a pattern.

        Raises IllegalStateError after `assign`, TypeError unless there is either `topics` or
        `pattern`, or for another kind of listener, and ValueError for a pattern that is wrong.
        """
        if not topics and not pattern:
            raise TypeError("You should provide either `topics` or `pattern`.")
        if topics and pattern:
            raise TypeError("You can't provide both `topics` and `pattern`.")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError(f"{listener!r} is not a ConsumerRebalanceListener.")
        if pattern is None:
            self._subscribe(require_topics(topics), listener)
            return
        self._subscribe(compile_prefix(pattern), listener)

    def _subscribe(
        self, topics: set[str] | re.Pattern[str], listener: ConsumerRebalanceListener | None
    ) -> None:
        if self._assigned_by_hand:
            raise IllegalStateError("Partitions are assigned by hand. Call unsubscribe() first.")
        subscribed_before = self._rebalances.is_subscribed
        by_pattern = isinstance(topics, re.Pattern)
        if subscribed_before and by_pattern != self._by_pattern:
            raise IllegalStateError(
                "Topics and a pattern cannot replace each other. Call unsubscribe() first."
            )
        # Without a group, aiokafka calls no listener.
        heard = None if self._group_id is None else listener
        self._rebalances.begin_subscription(heard)
        with translated_errors(ConsumerStoppedError):
            if subscribed_before:
                # Without it, a subscription to the same topics would cause no rebalance, and the
                # new listener would hear of none.
                self.native.unsubscribe()
            self.native.subscribe(topics, self._rebalances)
        self._by_pattern = by_pattern

    def subscription(self) -> frozenset[str]:
        """Return the topics that are subscribed or of which partitions are assigned."""
        if self._at_stop is not None:
            return self._at_stop[1]
        if self._is_elsewhere():
            return self._call_in_loop(self.subscription)
        with translated_errors(ConsumerStoppedError):
            if self._assigned_by_hand:
                return frozenset(tp.topic for tp in self.native.assignment())
            return frozenset(self.native.subscription())

    def unsubscribe(self) -> None:
        """Leave the group, and read nothing any more."""
        self._assigned_by_hand = False
        self._rebalances.end_subscription()
        with translated_errors(ConsumerStoppedError):
            self.native.unsubscribe()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions, without a group, from their initial positions.

        Partitions that were assigned before get their initial positions, too. Raises
        IllegalStateError after `subscribe`.
        """
        if self._rebalances.is_subscribed:
            raise IllegalStateError("Topics are subscribed. Call unsubscribe() first.")
        self._assigned_by_hand = True
        with translated_errors(ConsumerStoppedError):
            self.native.assign(())  # Otherwise those that stay would keep their positions.
            self.native.assign(partitions)
            self._turns.on_assigned()

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are read, or were read until the consumer was stopped.

        Another thread than that of the event loop may call it, as faust does, and `subscription`,
        `partitions_for_topic`, `highwater`, `last_stable_offset`, and `seek`: it then waits for the
        event loop.
        """
        if self._at_stop is not None:
            return self._at_stop[0]
        if self._is_elsewhere():
            return self._call_in_loop(self.assignment)
        with translated_errors(ConsumerStoppedError):
            return frozenset(self.native.assignment())

    def pause(self, *partitions: TopicPartition) -> None:
        """Read nothing of these partitions until `resume`."""
        require_partitions(partitions)
        self._require_assigned(partitions)
        with translated_errors(ConsumerStoppedError):
            self._turns.pause(partitions)

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return set(self._turns.paused)

    def resume(self, *partitions: TopicPartition) -> None:
        """Read these partitions again."""
        require_partitions(partitions)
        self._require_assigned(partitions)
        with translated_errors(ConsumerStoppedError):
            self._turns.resume(partitions)

    # -- reading

    async def getone(self, *partitions: TopicPartition) -> Record:
        """Return the next record of these partitions, or of any.

        Raises ConsumerStoppedError if the consumer is stopped, also meanwhile; the exception of a
        deserializer; OffsetOutOfRangeError and NoOffsetForPartitionError if `auto_offset_reset` is
        "none"; and the errors by which brokers refuse requests. A cancellation loses no record.
        """
        assert all(isinstance(tp, TopicPartition) for tp in partitions)
        if self._closed:
            raise ConsumerStoppedError()
        try:
            if not partitions:
                record = await self._turns.read_one()
            else:
                records = await self._turns.read(partitions, 1, math.inf)
                record = records[0] if records else None
        except NativeError as error:
            raise self._translate_reading(error) from error
        if record is None:
            raise ConsumerStoppedError()
        return ConsumerRecord.of(record)

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Record]]:
        """Return records of these partitions, or of any, by partition.

        It waits for at most `timeout_ms` if there are none; with 0, only what is buffered is
        returned. `max_records` is `max_poll_records` by default, without a limit. Returns nothing
        if the consumer is stopped meanwhile. Raises as `getone`.
        """
        assert all(isinstance(tp, TopicPartition) for tp in partitions)
        if self._closed:
            raise ConsumerStoppedError()
        if max_records is not None:
            require_count("max_records", max_records)
        limit = max_records or self._max_poll_records or UNLIMITED
        try:
            records = await self._turns.read(partitions, limit, timeout_ms / 1000)
        except ClosedError:
            return {}
        except NativeError as error:
            raise self._translate_reading(error) from error
        return group_records(records)

    def _translate_reading(self, error: NativeError) -> BaseException:
        if isinstance(error, ClosedError):
            return ConsumerStoppedError()
        if isinstance(error, RecordError) and error.topic_partition is not None:
            # The native consumer has moved past the record, at which aiokafka's stays.
            self._turns.read_again(error.topic_partition, error.offset)
        return translate(error, ConsumerStoppedError)

    def __aiter__(self) -> Self:
        if self._closed:
            raise ConsumerStoppedError()
        return self

    async def __anext__(self) -> Record:
        while True:
            try:
                return await self.getone()
            except ConsumerStoppedError:
                raise StopAsyncIteration from None
            except RecordTooLargeError:
                continue

    # -- positions and commits

    async def commit(
        self,
        offsets: dict[TopicPartition, int | tuple[int, str] | OffsetAndMetadata] | None = None,
    ) -> None:
        """Commit these offsets, or the positions of all partitions.

        Raises IllegalOperation without a `group_id`, IllegalStateError for a partition that is not
        assigned, CommitFailedError for one that was lost meanwhile, and ValueError or TypeError for
        offsets of another form.
        """
        self._require_group()
        with translated_errors(ConsumerStoppedError):
            assigned = self.native.assignment()
            if not self._rebalances.is_subscribed and not self._assigned_by_hand:
                raise IllegalStateError("Not subscribed to any topics")
            if self._rebalances.is_subscribed and not self._rebalances.assigned.is_set():
                raise IllegalStateError("No partitions assigned")
            if offsets is None:
                wanted = {
                    tp: offset for tp, offset in self.native.consumed().items() if tp in assigned
                }
            else:
                wanted = {}
                for tp, given in require_offsets(offsets).items():
                    if tp not in assigned:
                        raise IllegalStateError(f"Partition {tp!r} is not assigned.")
                    wanted[tp] = NativeOffset(given.offset, given.metadata)
            if wanted:
                await self.native.commit(wanted)

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset of a partition, or None if there is none."""
        self._require_group()
        with translated_errors(ConsumerStoppedError):
            found = (await self.native.committed([partition]))[partition]
        return None if found is None else found.offset

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record. Raises IllegalStateError if it is not assigned.

        If the partition is revoked during the call, it waits for the next assignment, unless the
        subscription has ended.
        """
        while True:
            self._require_assigned([partition])
            try:
                with translated_errors(ConsumerStoppedError):
                    return await self.native.position(partition)
            except IllegalStateError:
                if not self._rebalances.is_subscribed or self._group_id is None:
                    raise
                await self._wait_for_assignment(self._rebalances.assigned)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the end offset of a partition at its last fetch, or None."""
        if self._is_elsewhere():
            return self._call_in_loop(self.highwater, partition)
        assert partition in self.assignment(), "Partition is not assigned"
        with translated_errors(ConsumerStoppedError):
            return self.native.highwater(partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset before which all transactions had ended at the last fetch, or None."""
        if self._is_elsewhere():
            return self._call_in_loop(self.last_stable_offset, partition)
        assert partition in self.assignment(), "Partition is not assigned"
        with translated_errors(ConsumerStoppedError):
            return self.native.last_stable_offset(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset. Raises ValueError for a negative one, and IllegalStateError."""
        if self._is_elsewhere():
            return self._call_in_loop(self.seek, partition, offset)
        if not isinstance(offset, int) or offset < 0:
            raise ValueError(f"The offset {offset!r} must be an integer of at least 0.")
        self._require_assigned([partition])
        with translated_errors(ConsumerStoppedError):
            self._turns.seek(partition, int(offset))
        return None

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the first records. Return True once the positions are known."""
        chosen = self._choose_partitions(partitions)
        with translated_errors(ConsumerStoppedError):
            self.native.seek_to_beginning(chosen)
        return await self._wait_for_positions(chosen)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue at the ends. Return True once the positions are known."""
        chosen = self._choose_partitions(partitions)
        with translated_errors(ConsumerStoppedError):
            self.native.seek_to_end(chosen)
        return await self._wait_for_positions(chosen)

    async def _wait_for_positions(self, partitions: Collection[TopicPartition]) -> bool:
        for partition in partitions:
            with translated_errors(ConsumerStoppedError):
                await self.native.position(partition)
        return True

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets, and return them. Others keep their positions."""
        committed: dict[TopicPartition, int | None] = {}
        for partition in self._choose_partitions(partitions):
            committed[partition] = offset = await self.committed(partition)
            if offset:
                self.native.seek(partition, offset)
        return committed

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        with translated_errors(ConsumerStoppedError), missing_partitions_time_out():
            return await self.native.beginning_offsets(partitions)

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        with translated_errors(ConsumerStoppedError), missing_partitions_time_out():
            return await self.native.end_offsets(partitions)

    async def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a time in milliseconds, for each partition."""
        for partition, time_ms in timestamps.items():
            if time_ms < 0:
                raise ValueError(f"The time {time_ms} of {partition!r} cannot be negative.")
        wanted = {partition: int(time_ms) for partition, time_ms in timestamps.items()}
        with translated_errors(ConsumerStoppedError), missing_partitions_time_out():
            found = await self.native.offsets_for_times(wanted)
        return {
            partition: None if each is None else OffsetAndTimestamp(each.offset, each.timestamp)
            for partition, each in found.items()
        }

    # -- topics

    async def topics(self) -> set[str]:
        """Return the names of all topics but Kafka's own."""
        with translated_errors(ConsumerStoppedError):
            return set(await self.native.list_topics()) - INTERNAL

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic, or None if its metadata is not known."""
        if self._is_elsewhere():
            return self._call_in_loop(self.partitions_for_topic, topic)
        try:
            found = self.native.partitions_for_topic(topic)
        except NativeError:  # It is closed, or this is no name of a topic.
            found = None
        return self._client.cluster.partitions_for_topic(topic) if found is None else found

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return about when `highwater` was updated, in milliseconds, or None.

        A partition is always being fetched, so that the last response is at most
        `fetch_max_wait_ms` old. It is None for a partition that is paused.
        """
        if self.highwater(partition) is None or partition in self._turns.paused:
            return None
        return int(time.time() * 1000)

    # -- other threads

    def _is_elsewhere(self) -> bool:
        """Return whether a thread without the event loop of the consumer calls this."""
        return self._thread not in (0, get_ident()) and not self._closed

    def _call_in_loop(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in the event loop, and wait for its result in this thread."""

        async def call() -> T:
            return function(*arguments)

        assert self._loop is not None
        calling = asyncio.run_coroutine_threadsafe(call(), self._loop)
        return calling.result(self._request_timeout_ms / 1000)

    # -- checks

    def _require_group(self) -> None:
        if self._group_id is None:
            raise IllegalOperation("Requires group_id")

    def _require_assigned(self, partitions: Collection[TopicPartition]) -> None:
        missing = set(partitions) - self.assignment()
        if missing:
            raise IllegalStateError(f"Partitions {missing} are not assigned.")

    def _choose_partitions(
        self, partitions: Collection[TopicPartition]
    ) -> Collection[TopicPartition]:
        """Return the given partitions, or all that are assigned."""
        require_partitions(partitions)
        if partitions:
            self._require_assigned(partitions)
            return partitions
        assigned = self.assignment()
        assert assigned, "No partitions are currently assigned"
        return assigned

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    def __del__(self, _warnings: Any = warnings) -> None:
        loop = getattr(self, "_loop", None)
        if loop is None or self._closed:
            return
        _warnings.warn(f"Unclosed AIOKafkaConsumer {self!r}", ResourceWarning, source=self)
        loop.call_exception_handler({"consumer": self, "message": "Unclosed AIOKafkaConsumer"})


@contextmanager
def missing_partitions_time_out() -> Generator[None, None, None]:
    """Return a context that raises KafkaTimeoutError for a partition that does not exist."""
    try:
        yield
    except UnknownTopicOrPartitionError as error:
        raise KafkaTimeoutError(str(error)) from error


def group_records(
    records: Sequence[NativeRecord[Any, Any]],
) -> dict[TopicPartition, list[Record]]:
    """Return aiokafka's records by partition."""
    if not records:
        return {}
    if isinstance(records, Records):
        return cast("dict[TopicPartition, list[Record]]", records.by_partition())
    grouped: dict[TopicPartition, list[Record]] = {}
    for record in records:
        tp = TopicPartition(record.topic, record.partition)
        grouped.setdefault(tp, []).append(cast(Record, record))
    return grouped


def compile_prefix(pattern: Any) -> re.Pattern[str]:
    """Return a pattern for all names that begin with a match of the given one.

    aiokafka matches the begin of a name, the native consumer all of it. Raises ValueError for a
    pattern that is not valid, and TypeError for what is no pattern.
    """
    try:
        given = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
    # Flags at the begin of a pattern must stay there, or be passed apart. With re.VERBOSE, the
    # pattern may end with a comment.
    body = re.sub(r"\A(\s*\(\?[aiLmsux]+\))+", "", given.pattern)
    end = "\n" if given.flags & re.VERBOSE else ""
    return re.compile(rf"(?:{body}{end})[\s\S]*", given.flags)


def require_count(name: str, value: Any) -> None:
    """Raise ValueError unless a value is a positive integer."""
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={value!r} must be a positive integer.")


def require_topics(topics: Any) -> set[str]:
    """Return the topics as a set. Raises TypeError unless they are in a list, tuple, or set."""
    if not isinstance(topics, tuple | set | list):
        raise TypeError(f"{topics!r} is not a list of topics.")
    return set(topics)


def require_partitions(partitions: Collection[Any]) -> None:
    """Raise TypeError unless all are TopicPartitions."""
    for partition in partitions:
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"{partition!r} is not a TopicPartition.")
