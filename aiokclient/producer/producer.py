"""The producer that users see."""

from __future__ import annotations

import asyncio
import concurrent.futures
from asyncio import _get_running_loop
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, Unpack, cast, overload

from aiokclient.clock import Clock, SystemClock
from aiokclient.cluster.lifecycle import ClientLike, Lifecycle
from aiokclient.config import ClientConfig, ProducerConfig, ProducerOptions
from aiokclient.errors import (
    ClosedError,
    ConfigError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from aiokclient.producer import bulk, pace
from aiokclient.producer.accumulator import BATCH_OVERHEAD
from aiokclient.producer.batch import RECORD_OVERHEAD
from aiokclient.producer.deliveries import gather
from aiokclient.producer.delivery import Delivery
from aiokclient.producer.engine import Engine
from aiokclient.producer.fairness import SLICE_S
from aiokclient.producer.queue import PartitionQueue
from aiokclient.producer.routing import record_size
from aiokclient.producer.send_all import SendAll
from aiokclient.producer.serializers import bound, preparations
from aiokclient.types import (
    Headers,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
    is_topic_name,
)

if TYPE_CHECKING:
    # The default makes `Producer(...)` without serializers a Producer[bytes, bytes].
    from typing_extensions import TypeVar as DefaultTypeVar

    from aiokclient.producer.topic import Topic

    K = DefaultTypeVar("K", default=bytes)
    V = DefaultTypeVar("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")

__all__ = ["Producer"]


class Producer(Lifecycle, Generic[K, V]):
    """Sends records, idempotently by default, in order within each partition.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send("orders", b"tea", key=b"customer-7")

    It can be made anywhere, and starts by `async with`, `await producer.start()` or
    `await producer`; from then on it belongs to that event loop. `client=` shares the connections
    and metadata of a `Client`. Options are Kafka's with `_` for `.`; a bad one raises ConfigError.

    Leaving `async with` normally flushes (at most `delivery_timeout_ms`), disconnects, and raises
    `DeliveryErrors` for failures that nobody retrieved. Leaving it by an exception or a
    cancellation flushes within `close_timeout_ms`, fails the rest with ClosedError, and raises the
    original.
    """

    closing_rank: ClassVar[int] = 1
    config_type: ClassVar[type[ClientConfig]] = ProducerConfig

    def __init__(
        self, *, client: ClientLike | None = None, **options: Unpack[ProducerOptions[K, V]]
    ) -> None:
        shared = None if client is None else client.config
        config = ProducerConfig.build(cast(dict[str, Any], options), client=shared)
        if config.transactional_id is not None:
            raise ConfigError("transactional_id: transactions are not available in this version")
        super().__init__(config, client)
        self._options = config
        self._clock: Clock = SystemClock() if config.clock is None else config.clock
        self._key_serializer = bound(config.key_serializer, "key")
        self._value_serializer = bound(config.value_serializer, "value")
        self._raw = self._key_serializer is None and self._value_serializer is None
        self._limit = min(config.max_request_size, config.buffer_memory)
        self._largest = self._limit - BATCH_OVERHEAD
        self._engine: Engine | None = None
        self._topics: dict[str, Topic] = {}
        self._last: Delivery | None = None
        self._turn = 0.0

    # Sending

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Take a record to be sent; plain, it returns at once.

        Awaiting the `Delivery` waits for the acknowledgement, at most `delivery_timeout_ms`;
        cancelling that wait leaves the record on its way. `timestamp` is in milliseconds since the
        epoch, now if left out. In a loop of sends `if producer.full: await producer.drain()` is
        the backpressure.

        Raises at once, and keeps nothing of the record: ClosedError or what failed the producer,
        SerializationError, RecordTooLargeError (`max_request_size`), InvalidTopicError,
        UnknownTopicOrPartitionError for a partition that a known topic does not have,
        BufferExhaustedError beyond the parking, WrongThreadError and WrongLoopError. All else comes
        through the delivery.
        """
        if not self._usable or _get_running_loop() is not self._loop:
            self._check()
        place = self._topics.get(topic)
        if place is None:
            place = self._topic(topic)
        raw_key: Any = key
        raw_value: Any = value
        if not self._raw:
            raw_key, raw_value = self._serialized(topic, key, value, headers)
        engine = self._engine
        assert engine is not None
        try:
            if timestamp is None:
                timestamp = self._clock.time_ms()
            elif timestamp < 0:
                raise ValueError(f"the timestamp {timestamp} is negative")
            size = record_size(raw_key, raw_value, headers)
            if size > self._largest:
                bulk.require_small(self._limit, place.name, raw_key, raw_value, headers)
            if partition is not None:
                self._require(place, partition)
            if not place.known:
                queue = place.undesignated
            elif partition is not None:
                queue = place.queues[partition]
            else:
                queue = engine.routing.partitioner.choose(place, raw_key, size)
            batch = queue.open
            if (
                batch is None
                or batch.left < size
                or (index := batch.add(timestamp, raw_key, raw_value, headers)) < 0
            ):
                batch, index = engine.accumulator.append(
                    queue, timestamp, raw_key, raw_value, headers, size
                )
            else:
                batch.left -= size
                if timestamp != batch.stamp:
                    batch.note(index, timestamp)
        except (TypeError, AttributeError, ValueError) as error:
            raise self._unfit(topic, error) from error
        if batch.explicit is not None:
            batch.explicit.append(-1 if partition is None else partition)
        delivery = self._last = Delivery(batch, index, timestamp)
        return delivery

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """`await producer.send(...)` as a coroutine function, for `create_task` and its kin.

        Raises what `send` and its delivery raise. Cancelling it before it has run sends nothing;
        afterwards the record is on its way.
        """
        return await self.send(topic, value, key, partition, timestamp, headers)

    def send_many(self, topic: str, values: Sequence[Any]) -> Sequence[Delivery]:
        """Send all of a sequence, or nothing of it; plain. The deliveries come in its order.

        An item is a value, a (key, value), or a `ProducerRecord`, which may name another topic.
        Raises what `send` raises; BufferExhaustedError, when they do not all fit, names
        `send_all()`, which waits for room.
        """
        self._check()
        place = self._topic(topic)
        engine = self._engine
        assert engine is not None
        partitioner = engine.routing.partitioner
        if not isinstance(values, Sequence):
            raise IllegalStateError(
                f"send_many() takes a sequence such as a list, not {type(values).__name__}; "
                "send_all() takes any iterable"
            )
        if not values:
            return []
        if self._raw and partitioner.function is None and bulk.are_plain(values):
            largest, total = bulk.value_sizes(values)
            if len(largest) + RECORD_OVERHEAD > self._largest:
                bulk.require_small(self._limit, topic, None, largest, ())
            now = self._clock.time_ms()
            deliveries = bulk.send_values(
                place, values, total, now, engine.accumulator, partitioner
            )
        else:
            prepared = [self._prepared(bulk.as_record(topic, item)) for item in values]
            deliveries = bulk.send_prepared(prepared, engine.accumulator)
        self._last = deliveries[-1]
        return deliveries

    async def send_all(self, topic: str, items: Iterable[Any] | AsyncIterable[Any]) -> int:
        """Send every item of an iterable, waiting for room; how many, once all are acknowledged.

        Items are as for `send_many`. Raises the first failure, after which no more is sent; what
        was sent before goes its way. Cancelling it stops sending likewise.
        """
        self._check()
        return await SendAll(self, self._required_engine(), topic).run(items)

    def send_threadsafe(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> concurrent.futures.Future[RecordMetadata]:
        """`send` from another thread: the future gets the `RecordMetadata` or the failure.

        Whatever `send` would raise comes through the future too, but for ClosedError and
        IllegalStateError when the producer does not run. Records sent by one thread keep their
        order. Cancelling the future leaves the record on its way.
        """
        loop = self._loop
        if not self._usable or loop is None or loop.is_closed():
            self._refuse()
            raise ClosedError("the event loop of this Producer is closed")
        future: concurrent.futures.Future[RecordMetadata] = concurrent.futures.Future()

        def send() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                delivery = self.send(topic, value, key, partition, timestamp, headers)
            except Exception as error:
                future.set_exception(error)
                return
            delivery.add_done_callback(hand_over)

        def hand_over(delivery: Delivery) -> None:
            error = delivery.exception()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(delivery.result())

        loop.call_soon_threadsafe(send)
        return future

    # Waiting

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
        """The outcomes of many deliveries, in their order, once all have one.

        Raises the first failure in that order; with `return_exceptions` failures stand among the
        results instead. All of them count as retrieved. It gives way to the event loop every few
        milliseconds, and cancelling it leaves the records on their way.
        """
        self._check_loop()
        return await gather(deliveries, self._clock, return_exceptions=return_exceptions)

    async def flush(self) -> None:
        """Until all that was sent before has its outcome; at most `delivery_timeout_ms`.

        It only waits: failures are seen through the deliveries. Cancelling it changes nothing.
        """
        self._check()
        await self._required_engine().flush()

    @property
    def full(self) -> bool:
        """The record sent last is parked: time to await `drain()`."""
        return self._last is not None and pace.parked(self._last)

    async def drain(self) -> None:
        """Until the record sent last has left the parking or has its outcome.

        Call it right after `send`, without an await between; at once when that record is not
        parked. It gives way to the event loop at least every 10 ms of work. Raises what failed the
        producer. Cancelling it changes nothing.
        """
        self._check()
        if self._last is not None and pace.parked(self._last):
            await pace.unparked(self._last)
            self._check()
            self._turn = self._clock.monotonic()
        elif self._clock.monotonic() - self._turn >= SLICE_S:
            await asyncio.sleep(0)
            self._turn = self._clock.monotonic()

    async def prepare(self, topic: str, timeout: float | None = None) -> None:
        """Fetch what sends to a topic need: its metadata, and the serializers' schemas.

        `timeout` is in seconds (`default_api_timeout_ms`). Raises ApiTimeoutError, whose cause is
        what the brokers last said of the topic, what waiting would not mend at once, and
        SerializationError. Cancelling it leaves nothing behind.
        """
        self._check()
        place = self._topic(topic)
        seconds = self._config.default_api_timeout_ms / 1000 if timeout is None else timeout
        deadline = self._clock.monotonic() + seconds
        await pace.known(place, self._cluster, seconds)
        for prepare in preparations(self._options.key_serializer, self._options.value_serializer):
            remaining = deadline - self._clock.monotonic()
            await pace.prepared(prepare, topic, max(remaining, 0.0))

    # What send is made of

    def _required_engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            if not isinstance(name, str) or not is_topic_name(name):
                raise InvalidTopicError(
                    f"{name!r} cannot be a topic: 1 to 249 letters, digits, '.', '_' and '-'"
                )
            topic = self._required_engine().topic(name)
        return topic

    def _require(self, topic: Topic, partition: int) -> None:
        """Raise for a partition that is not there."""
        count = len(topic.queues)
        number: Any = partition
        if not isinstance(number, int):
            raise TypeError(f"the partition {number!r} is not an int")
        if not 0 <= partition < (count if topic.known else 1 << 63):
            there = f"it has {count} partitions" if topic.known else "they are numbered from 0"
            raise UnknownTopicOrPartitionError(
                f"there is no partition {partition}; {there}",
                topic_partition=TopicPartition(topic.name, partition),
            )

    def _serialized(
        self, topic: str, key: K | None, value: V | None, headers: Headers
    ) -> tuple[Any, Any]:
        raw_key: Any = key
        raw_value: Any = value
        if key is not None and self._key_serializer is not None:
            raw_key = self._key_serializer(topic, key, headers)
        if value is not None and self._value_serializer is not None:
            raw_value = self._value_serializer(topic, value, headers)
        return raw_key, raw_value

    def _unfit(self, topic: str, error: Exception) -> SerializationError:
        return SerializationError(
            f"a record for topic {topic} cannot be encoded ({error}); without a serializer keys, "
            "values and header values have to be bytes or None, header names str, partition and "
            "timestamp (milliseconds) int"
        )

    def _prepared(self, record: ProducerRecord) -> bulk.Prepared:
        topic, value, key, partition, timestamp, headers = record
        place = self._topic(topic)
        key, value = self._serialized(topic, key, value, headers)
        try:
            bulk.require_encodable(key, value, headers, timestamp)
            size = record_size(key, value, headers)
            if size > self._largest:
                bulk.require_small(self._limit, topic, key, value, headers)
            if partition is not None:
                self._require(place, partition)
        except (TypeError, AttributeError, ValueError) as error:
            raise self._unfit(topic, error) from error
        queue: PartitionQueue = place.undesignated
        if place.known:
            partitioner = self._required_engine().routing.partitioner
            chosen = partition is not None
            queue = place.queues[partition or 0] if chosen else partitioner.choose(place, key, size)
        if timestamp is None:
            timestamp = self._clock.time_ms()
        at = -1 if partition is None else partition
        return bulk.Prepared(queue, timestamp, key, value, headers, at, size)

    def _check_loop(self) -> None:
        """For what is of use after the end, too: the outcomes of deliveries."""
        if self._loop is not None and _get_running_loop() is not self._loop:
            self._refuse_caller()

    # Life

    async def _open(self) -> None:
        callback = cast(Callable[[Delivery], Any] | None, self._options.on_delivery_error)
        self._engine = Engine(self._options, self._cluster, self._supervisor, callback)
        self._topics = self._engine.routing.topics
        self._engine.start()

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        if self._engine is not None:
            self._engine.failures.end(ClosedError("this Producer was closed"))
            await self._engine.flush()

    def _abandon(self, error: ClosedError) -> None:
        if self._engine is not None:
            self._engine.fail_all(error)
            self._engine.stop()

    def _failed(self, error: BaseException) -> None:
        if self._engine is None:
            return
        failure = error if isinstance(error, KafkaError) else KafkaError(f"failed: {error!r}")
        if failure is not error:
            failure.__cause__ = error
        self._engine.failures.end(failure)
        self._engine.fail_all(failure)
        self._engine.stop()

    def _unretrieved(self) -> BaseException | None:
        return None if self._engine is None else self._engine.failures.group()

    def _grace_s(self) -> float:
        return (self._options.delivery_timeout_ms + self._config.close_timeout_ms) / 1000
