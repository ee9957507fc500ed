"""The public share consumer, `ShareConsumer` (KIP-932)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, Unpack, cast

from aiokclient.background import LATE_CONSUMER
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle, config_of
from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.cluster.lifecycle.public_calls import count_cancelled, watch_calls
from aiokclient.config.problems import refuse_positional
from aiokclient.config.share import ShareConsumerConfig, ShareConsumerOptions
from aiokclient.decoding.deserialize import Deserializers
from aiokclient.errors import ClosedError, IllegalStateError, KafkaError
from aiokclient.errors.local import refuse_loop
from aiokclient.log.foreign_names import with_foreign_names
from aiokclient.share.delivery.processing import Processing
from aiokclient.share.delivery.record import ShareRecord
from aiokclient.share.locks import AcknowledgeType
from aiokclient.types import State, TopicPartition, public_in, seconds

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from aiokclient.share.delivery.iterators import ShareBatches, ShareIterator, TrackedShareRecords
    from aiokclient.share.delivery.processing import OnLost
    from aiokclient.share.delivery.record import ShareHandle
    from aiokclient.share.engine import ShareEngine
    from aiokclient.worker import Worker

    K = TypeVarWithDefault("K", default=bytes)
    V = TypeVarWithDefault("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")


@public_in("aiokclient")
@with_foreign_names
@watch_calls(apart=("get", "poll"), explained=("subscribe", "unsubscribe"))
class ShareConsumer(Lifecycle, Generic[K, V]):
    """A member of a share group, whose members share the records of topics as a queue (KIP-932).

        async with ShareConsumer("orders", group_id="billing", bootstrap_servers=...) as consumer:
            async for record in consumer:
                print(record.value)

    A broker locks each record for one member at a time. The member settles it: `done` (accepted),
    `release` (to be delivered again), or `reject` (never again). A record that is not settled comes
    again when its lock ends, to any member. There may be more members than partitions, and there is
    no order of records beyond that of one fetch. Needs Kafka 4.1, and 4.2 for renewals of locks.

    In loops over the consumer, `batches`, `get`, and `poll`, requesting the next record accepts the
    one before, unless it was released or rejected. Leaving a loop settles nothing. For many
    handlers at a time there is `tracked`, and `processing`, which binds the lock to its body:

        async def work(record):
            async with consumer.processing(record):
                await handle(record)

    A settlement counts as confirmed if the broker's answer came before `record.lock_deadline`.
    Losses and refusals that no `commit` waits for go to `on_acknowledge_error(error)`, by default
    to the log. Leaving `async with`, also by an exception or a cancellation, releases what is held.

    `client` is a client whose metadata and settings this consumer shares. Options have Kafka's
    names with `_` for `.`, and times are in milliseconds. ConfigError is raised for an invalid
    option; those that the group has instead, such as `share.auto.offset.reset`, are named in it.
    """

    closing_rank: ClassVar[int] = 0
    _late_modules = LATE_CONSUMER
    config_type: ClassVar[type[ShareConsumerConfig]] = ShareConsumerConfig
    _config: ShareConsumerConfig

    def __init__(
        self,
        *topics: str,
        client: Parent | None = None,
        **options: Unpack[ShareConsumerOptions[K, V]],
    ) -> None:
        ShareConsumerConfig.hide_options(options)
        refuse_positional("ShareConsumer", [one for one in topics if isinstance(one, Mapping)])
        config = ShareConsumerConfig.build(options, client=config_of(client))
        super().__init__(config, client)
        self._deserializers = Deserializers(
            config.key_deserializer,
            config.value_deserializer,
            config.on_record_error,
            nulls=config.deserialize_none,
        )
        self._engine: ShareEngine | None = None
        self._stopped = False
        self._topics: frozenset[str] = frozenset()
        if topics:
            self.subscribe(topics)

    @classmethod
    def from_properties(
        cls,
        source: Mapping[str, Any] | str | os.PathLike[str],
        *topics: str,
        **options: Any,
    ) -> Self:
        """Make a share consumer of these topics from Kafka's dotted names, or a properties file.

        `source` is a mapping of the names to strings, or the file's path. See
        `Lifecycle.from_properties`.
        """
        hidden = cls.config_type.hide_properties(source, options)
        del source
        consumer = super().from_properties(cast(Any, hidden), **options)
        if topics:
            consumer.subscribe(topics)
        return consumer

    # -- start and close

    async def _open(self, wait: bool) -> None:
        from aiokclient.share.engine import ShareEngine  # a late module

        self._engine = ShareEngine(
            self._cluster,
            self._config,
            self._deserializers,
            self._topics,
            self._supervisor,
            cast("Anchor[ShareConsumer[Any, Any]]", self._anchor),
            self._events,
        )
        if self._stopped:
            self._engine.reader.mark_stopped()
        await self._engine.start(wait)

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        if self._engine is not None:
            await self._engine.stop(timeout, graceful=graceful)

    async def _close_after_error(self) -> None:
        await self._close(graceful=True, timeout=self._compute_grace_s())

    def _on_failure(self, error: BaseException) -> None:
        if self._engine is not None:
            self._engine.wake_all()

    def _list_troubles(self) -> list[str]:
        found = super()._list_troubles()
        return found if self._engine is None else [*found, *self._engine.list_troubles()]

    def _describe_subject(self) -> dict[str, str | None]:
        return {"group": self._config.group_id, "topics": ", ".join(sorted(self._topics))}

    @property
    def _running(self) -> ShareEngine:
        self._require_usable()
        assert self._engine is not None
        return self._engine

    # -- what to read

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics instead of earlier ones. Synchronous.

        Share groups have no patterns. Records that are held stay held. A topic that does not exist
        is read once it is created.
        """
        self._check_known()
        self._set_topics(frozenset(as_topics(topics)))

    def unsubscribe(self) -> None:
        """Fetch no more records. Synchronous. Records that are held stay held."""
        self._check_known()
        self._set_topics(frozenset())

    def _set_topics(self, topics: frozenset[str]) -> None:
        self._topics = topics
        if self._engine is not None:
            self._engine.set_topics(topics)

    def subscription(self) -> set[str]:
        """Return the names of the subscribed topics. Synchronous."""
        self._check_known()
        return set(self._topics)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions from which this consumer fetches. Synchronous.

        Other members may have them, too.
        """
        self._check_known()
        return set() if self._engine is None else set(self._engine.assignment)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The duration of locks in milliseconds by the last fetch, or None before the first one."""
        return None if self._engine is None else self._engine.lock_timeout_ms

    # -- reading

    if not TYPE_CHECKING:  # Type checkers know that a consumer is no iterable.
        __iter__ = refuse_loop

    def __aiter__(self) -> ShareIterator[K, V]:
        """Return an endless iterator over the records: `async for record in consumer`.

        Requesting the next record accepts the one before. A cancellation loses no record. The
        iterator raises RecordError for a record that cannot be deserialized, CorruptBatchError for
        a damaged batch, ConcurrentReadError while another task reads, and the errors by which
        brokers refuse requests. The next request goes on.
        """
        from aiokclient.share.delivery.iterators import ShareIterator  # a late module

        return ShareIterator(self, self._running.reader)

    def batches(self, max_records: int = 500, max_wait: float = 0.0) -> ShareBatches[K, V]:
        """Return an iterator over lists of records: `async for records in consumer.batches()`.

        The lists are never empty. A list is delivered when it has `max_records`, or `max_wait`
        seconds after its first record was available. Requesting the next list accepts the one
        before. In all other respects it is like the iteration over the consumer.
        """
        from aiokclient.share.delivery.iterators import ShareBatches  # a late module

        require_count("max_records", max_records)
        if seconds(max_wait, "max_wait") < 0:
            raise IllegalStateError(f"max_wait must be at least 0 seconds, not {max_wait}.")
        return ShareBatches(self, self._running.reader, max_records, max_wait)

    def tracked(self, max_outstanding: int = 100) -> TrackedShareRecords[K, V]:
        """Return an iterator for concurrent handlers, which settle each record on its own.

            async for record in consumer.tracked():
                tasks.start_soon(work, record)

        It waits while `max_outstanding` records are held. After `stop()`, it ends when none is
        held. A record that is garbage collected without being settled is released, with a warning
        in the log. In all other respects it is like the iteration over the consumer.
        """
        from aiokclient.share.delivery.iterators import TrackedShareRecords  # a late module

        require_count("max_outstanding", max_outstanding)
        engine = self._running
        return TrackedShareRecords(self, engine.reader, engine.settlements, max_outstanding)

    async def poll(
        self, timeout: float = 1.0, max_records: int | None = None, *, tracked: bool = False
    ) -> list[ShareRecord[K, V]]:
        """Return up to `max_records` records as soon as there is one.

        `max_records` is `max_poll_records` by default. The list is empty if there is no record
        within `timeout` seconds. The next request accepts the records, unless they are `tracked`.
        Raises the same errors as the iteration over the consumer. A cancellation loses no record.
        """
        limit = self._config.max_poll_records if max_records is None else max_records
        require_count("max_records", limit)
        return await self._read(limit, timeout, tracked=tracked)

    async def get(self, timeout: float = 1.0) -> ShareRecord[K, V] | None:
        """Return one record, or None if there is none within `timeout` seconds.

        The next request accepts the record. Like `poll`, it loses no record when it is cancelled.
        """
        records = await self._read(1, timeout, tracked=False)
        return records[0] if records else None

    async def _read(self, limit: int, timeout: float, *, tracked: bool) -> list[ShareRecord[K, V]]:
        engine = self._running
        until = engine.cluster.clock.monotonic() + seconds(timeout)
        try:
            return await engine.reader.read_records(limit, until, tracked=tracked)
        except asyncio.CancelledError as error:
            count_cancelled(error, self)
            raise

    async def run(self, handle: ShareHandle[K, V, Worker], **options: Any) -> None:
        """Call `handle(record)` for each record, until this is stopped.

            await consumer.run(handle, concurrency=50, dead_letter="orders.dlq")

        It is `aiokclient.worker.Worker(consumer, handle, **options).run()`, which describes the
        options, the errors, and what follows a cancellation.
        """
        # The only layer above that this one imports.
        from aiokclient.worker import Worker

        await Worker(self, handle, **options).run()

    def _begin_run(self, run: Any, earlier: Any) -> Any:
        """Trace a call of a worker's handler: `aiokclient.telemetry.otel` replaces this method."""
        return None

    # -- settling

    def done(self, record: ShareRecord[Any, Any] | Iterable[ShareRecord[Any, Any]]) -> bool:
        """Accept a record, or several: it is done, and never delivered again. Synchronous.

        Return whether all locks were still held. If one was lost, nothing is sent for it, and the
        loss is reported. Raises IllegalStateError for a record that is settled already. The
        settlement leaves with the next request to its leader, at once if none is in flight;
        `commit` waits for its outcome.
        """
        return self._settle(record, AcknowledgeType.ACCEPT)

    def release(self, record: ShareRecord[Any, Any] | Iterable[ShareRecord[Any, Any]]) -> bool:
        """Give a record back: it is delivered again, at once, to any member. Synchronous.

        At the limit of deliveries of its group, it is not delivered again, but archived. In all
        other respects it is like `done`.
        """
        return self._settle(record, AcknowledgeType.RELEASE)

    def reject(self, record: ShareRecord[Any, Any] | Iterable[ShareRecord[Any, Any]]) -> bool:
        """Refuse a record: it is never delivered again. Synchronous.

        It goes to the dead letter topic of the group if there is one (KIP-1191). In all other
        respects it is like `done`.
        """
        return self._settle(record, AcknowledgeType.REJECT)

    def renew(self, record: ShareRecord[Any, Any] | Iterable[ShareRecord[Any, Any]]) -> bool:
        """Begin the lock of a held record anew (KIP-1222). Synchronous; may be repeated.

        Return whether all locks were still held. `commit` waits for the answer. By default, the
        consumer renews locks by itself (`renew_locks`).
        """
        engine, held = self._known_engine(), True
        engine.settle_passed()
        for each in as_records(record):
            held &= engine.settlements.ask_renewal(each)
        return held

    def _settle(
        self,
        record: ShareRecord[Any, Any] | Iterable[ShareRecord[Any, Any]],
        kind: AcknowledgeType,
    ) -> bool:
        engine = self._engine or self._known_engine()
        if isinstance(record, ShareRecord):
            return engine.settlements.settle(record, kind)
        held = True
        for each in as_records(record):
            held &= engine.settlements.settle(each, kind)
        return held

    def _known_engine(self) -> ShareEngine:
        if self._engine is None:
            self._require_usable()
        assert self._engine is not None
        return self._engine

    def mark_processed(self) -> None:
        """Accept the delivered records that are not settled, without requesting more. Synchronous.

        Records of `tracked` are not accepted by it.
        """
        self._known_engine().reader.accept_delivered()

    async def commit(
        self,
        records: ShareRecord[Any, Any] | Iterable[ShareRecord[Any, Any]] | None = None,
        timeout: float | None = None,
        *,
        return_exceptions: bool = False,
    ) -> dict[ShareRecord[Any, Any], KafkaError | None]:
        """Wait for the outcomes of what is settled, and of renewals that were asked for.

        Without `records`, it waits for all that have no outcome yet. Return for each record None if
        the broker has confirmed it in time, or else the error: LockLostError or AcknowledgeError.
        Unless `return_exceptions`, errors are raised, as AcknowledgeErrors. `timeout` is in seconds
        (by default `default_api_timeout_ms`); ApiTimeoutError is raised after it. Settlements that
        are in flight go on after a timeout or a cancellation. Raises TypeError for offsets and
        partitions, which a share group does not have.
        """
        engine = self._running
        engine.settle_passed()
        wanted = engine.settlements.find_unconfirmed() if records is None else as_records(records)
        return await engine.settlements.wait_for_outcomes(
            wanted, self._get_timeout_s(timeout), return_exceptions=return_exceptions
        )

    def processing(self, record: ShareRecord[Any, Any], on_lost: OnLost = "raise") -> Processing:
        """Return a scope for the handler of a record: `async with consumer.processing(record)`.

        At its end the record is done, and after an exception or a cancellation it is released,
        unless the body has settled it. Meanwhile its lock is renewed. If the lock is lost, the body
        is cancelled, once, and LockLostError leaves the scope. With `on_lost="return"` the scope is
        then left without an error, and the loss is reported as one of a settlement is; with
        "ignore" the body is not cancelled.
        """
        if on_lost != "raise" and on_lost not in ("return", "ignore"):
            raise IllegalStateError(
                f'on_lost must be "raise", "return", or "ignore", not {on_lost!r}.'
            )
        self._require_usable()
        engine = self._engine
        assert engine is not None
        return Processing(engine.settlements, record, on_lost)

    async def lock_lost(self, record: ShareRecord[Any, Any]) -> None:
        """Return when the lock of a record is lost, or when the record is settled."""
        engine = self._running
        engine.settle_passed()
        while engine.settlements.is_held(record) and not record.lock_lost:
            await engine.settlements.wait_for_change()

    # -- the end

    def stop(self) -> None:
        """Stop reading permanently: iterations end at their next request, and `poll` returns [].

        Synchronous. It may be called at any time, from any thread, and from signal handlers.
        `tracked` ends when no record is held. The consumer must still be closed.
        """
        self._stopped = True
        if self._loop is None or self._state is State.CLOSED:
            return
        if threading.get_ident() == self._thread:
            self._on_stopped()
            return
        try:
            self._loop.call_soon_threadsafe(self._on_stopped)
        except RuntimeError as error:
            raise ClosedError("The event loop of this consumer is closed.") from error

    def _on_stopped(self) -> None:
        if self._engine is not None:
            self._engine.reader.stop()
        self._tell_end()

    async def drain(self, timeout: float | None = None) -> None:
        """Wait until no record is held, and all settlements have outcomes.

        `timeout` is in seconds; ApiTimeoutError is raised after it. By default there is none.
        """
        await self._running.settlements.wait_until_drained(timeout)

    async def lag(self, timeout: float | None = None) -> dict[TopicPartition, int | None]:
        """Return the number of records that the group has not finished, for each partition.

        It is None where the brokers do not know it. `timeout` is in seconds (by default
        `default_api_timeout_ms`); ApiTimeoutError is raised after it.
        """
        return await self._running.find_lag(self._get_timeout_s(timeout))


def as_topics(topics: Any) -> list[str]:
    """Return topic names. Raises TypeError for anything else, such as a pattern."""
    names = [topics] if isinstance(topics, str) else list(topics)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"A topic is a str, not {type(name).__name__}. Share groups have no patterns."
            )
    return names


def as_records(records: Any) -> list[ShareRecord[Any, Any]]:
    """Return one or more records as a list. Raises TypeError for anything else."""
    found = [records] if isinstance(records, ShareRecord) else list(records)
    for each in found:
        if not isinstance(each, ShareRecord):
            raise TypeError(
                f"A ShareConsumer settles ShareRecords, not {type(each).__name__}. Share groups "
                "have no offsets to commit."
            )
    return found


def require_count(name: str, count: int) -> None:
    """Raise IllegalStateError unless a count is a positive number."""
    if not isinstance(count, int) or count < 1:
        raise IllegalStateError(f"{name} must be at least 1, not {count!r}.")
