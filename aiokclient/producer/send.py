"""The steps of a send, except for those in `_pure.send`, which has a native twin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from aiokclient._native import twin
from aiokclient.clock import SystemClock
from aiokclient.errors import InvalidTopicError, SerializationError
from aiokclient.errors.local import ArgumentTypeError, RecordTypeError, TopicTypeError
from aiokclient.producer import send_many as bulk
from aiokclient.producer._pure.send import K, SendPath, V
from aiokclient.producer.batching.accumulator import BATCH_OVERHEAD
from aiokclient.producer.batching.batch import RECORD_OVERHEAD
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.delivery.deliveries import Deliveries
from aiokclient.producer.delivery.delivery import Delivery
from aiokclient.producer.send_arrow import ArrowRecords, ArrowRow, send_columns
from aiokclient.producer.sending.leaders import record_size
from aiokclient.producer.serializers import bound
from aiokclient.types import Headers, ProducerRecord, TopicPartition, is_topic_name

if TYPE_CHECKING:
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.producer.batching.accumulator import SendErrors
    from aiokclient.producer.batching.queue import Topic
    from aiokclient.producer.engine import Engine

if not TYPE_CHECKING:
    SendPath = twin("producer")(SendPath)

__all__ = ["Sends", "require_topic"]

PARTITIONS = 1 << 31
"""The number of partitions that a topic could have: in requests, a partition has 32 bits."""


def is_ascii(name: Any) -> bool:
    """Return whether this is the name of a topic as bytes."""
    return isinstance(name, bytes) and name.isascii()


def require_topic(name: Any) -> None:
    """Raise InvalidTopicError, or TopicTypeError, for an invalid topic name."""
    if not isinstance(name, str) or not is_topic_name(name):
        if isinstance(name, str):
            raise InvalidTopicError(f"{name!r} cannot be a topic.")
        advice = f" Pass {bytes(name).decode()!r}." if is_ascii(name) else ""
        raise TopicTypeError(f"{name!r} cannot be a topic.{advice}")


class Sends(SendPath[K, V], Generic[K, V]):
    """The steps of a send, as a base class of `Producer`."""

    _engine: Engine | None = None

    def _accept(self, config: ProducerConfig) -> None:
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

    def _send_through(self, engine: Engine) -> None:
        """Send records through this engine from now on."""
        self._engine = engine
        self._accept_records(engine.transactions is None)
        accumulator, partitioner = engine.accumulator, engine.leaders.partitioner
        self._append = accumulator.append
        self._advance = partitioner.advance
        self._deliveries = Deliveries
        self._reserve = partial(bulk.require_room, accumulator)
        self._send_values = partial(bulk.send_values, accumulator, partitioner)

    def _accept_records(self, accept: bool) -> None:
        """Accept records from now on, or refuse them because no transaction is open."""
        self._topics = self._required_engine().leaders.topics if accept else {}

    def _required_engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def _send_errors(self) -> SendErrors:
        return self._required_engine().accumulator.errors

    # -- one record

    def _topic(self, name: str) -> Topic:
        """Return the topic with this name. Raise an error if nothing can be sent to it now.

        While a transactional producer has no open transaction, `_topics` is empty, so that this
        check finds no topic there.
        """
        topic = self._topics.get(name) if isinstance(name, str) else None
        if topic is None:
            require_topic(name)
            engine = self._required_engine()
            if engine.transactions is not None:
                engine.transactions.require_open("send()")
            topic = engine.topic(name)
        return topic

    def _serialized(
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

    def _put(
        self,
        topic: Topic,
        key: Any,
        value: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> Delivery:
        """Append a serialized record to a batch of its partition."""
        engine = self._required_engine()
        try:
            now = self._clock.time_ms
            timestamp = now() if timestamp is None else bulk.as_timestamp(timestamp)
            size = record_size(key, value, headers)
            if size > self._largest:
                self._require_small(topic.name, key, value, headers)
            if partition is not None:
                partition = self._existing(topic, partition)
            if not topic.known:
                queue = topic.undesignated
            elif partition is not None:
                queue = engine.leaders.queue_of(topic, partition)
            else:
                queue = engine.leaders.partitioner.choose(topic, key, size)
            batch = queue.open
            index = -1
            if batch is not None:
                index = batch.append(size, timestamp, key, value, headers)
            if batch is None or index < 0:
                batch, index = engine.accumulator.append(
                    queue, timestamp, key, value, headers, size
                )
        except (TypeError, AttributeError, ValueError) as error:
            raise self._unfit(topic.name, error, headers, key, value) from error
        if batch.explicit is not None:
            batch.choose_partitions(-1 if partition is None else partition)
        elif partition is not None:
            batch.note_chosen(index)
        delivery = self._last = Delivery(batch, index, timestamp)
        return delivery

    def _require_small(self, topic: str, key: Any, value: Any, headers: Headers) -> None:
        """Raise RecordTooLargeError if a batch with only this record exceeds the limit."""
        size = bulk.exact_size(self._limit, key, value, headers)
        if size > self._limit:
            raise self._send_errors().too_large(
                f"It takes {size} bytes or more. max_request_size and buffer_memory allow "
                f"{self._limit}.",
                resource=topic,
            )

    def _existing(self, topic: Topic, given: int) -> int:
        """Return the application's partition as an int.

        Raise UnknownTopicOrPartitionError if no topic can have it.
        """
        partition = bulk.as_integer(given, "partition")
        if not 0 <= partition < (PARTITIONS if topic.known else 1 << 63):
            there = "Partitions are numbered from 0."
            if topic.known:
                there = f"The topic has {len(topic.queues)} partitions, numbered from 0."
            raise self._send_errors().unknown_partition(
                f"There is no partition {partition}. {there}",
                topic_partition=TopicPartition(topic.name, partition),
            )
        return partition

    def _unfit(
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

    # -- many

    def _send_many(self, topic: str, values: Sequence[Any]) -> Sequence[Delivery]:
        """See `SendPath.send_many`."""
        self._check()
        target = self._topic(topic)
        engine = self._required_engine()
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
        if self._raw and partitioner.function is None and bulk.are_plain(values):
            total = bulk.total_size(values)
            if total > self._largest:
                largest = bulk.largest(values)
                if RECORD_OVERHEAD + len(largest) > self._largest:
                    self._require_small(topic, None, largest, ())
            now = self._clock.time_ms()
            deliveries = self._send_values(target, values, total, now)
        else:
            prepared = [self._prepared(bulk.as_record(topic, item)) for item in values]
            deliveries = bulk.send_prepared(prepared, engine.accumulator)
        self._last = deliveries[-1]
        return deliveries

    def _prepared(self, record: ProducerRecord) -> bulk.Prepared:
        topic, value, key, partition, timestamp, headers = record
        target = self._topic(topic)
        key, value = self._serialized(topic, key, value, headers)
        try:
            # Copies, because nothing may change or fail after the first record was appended.
            key, value = bulk.as_bytes(key), bulk.as_bytes(value)
            headers = bulk.as_headers(headers)
            if timestamp is not None:
                timestamp = bulk.as_timestamp(timestamp)
            size = record_size(key, value, headers)
            if size > self._largest:
                self._require_small(topic, key, value, headers)
            if partition is not None:
                partition = self._existing(target, partition)
        except (TypeError, AttributeError, ValueError) as error:
            raise self._unfit(topic, error, headers, key, value) from error
        return self._placed(target, key, value, partition, timestamp, headers, size)

    def _placed(
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
            partitioner = self._required_engine().leaders.partitioner
            if partition is None:
                queue = partitioner.choose(target, key, size)
            else:
                queue = self._required_engine().leaders.queue_of(target, partition)
        if timestamp is None:
            timestamp = self._clock.time_ms()
        at = -1 if partition is None else partition
        return bulk.Prepared(queue, timestamp, key, value, headers, at, size)

    # -- columns

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
        self._check()
        engine = self._required_engine()
        if topic is not None:
            self._topic(topic)
        records = ArrowRecords(topic, batch)
        targets = [self._topic(name) for name in records.topics]
        if not records.count:
            return []
        deliveries = None
        if self._chooses and all(target.known for target in targets):
            reserve = partial(bulk.require_room, engine.accumulator, advice=bulk.SLICES)
            refuse = partial(self._row_size, targets, records)
            deliveries = send_columns(self, targets, records, refuse, reserve)
        if deliveries is None:
            rows = [(row, self._row_size(targets, records, row.row, row)) for row in records.rows()]
            # As in native code, no partition is chosen before all rows are known to be correct,
            # and all rows without a timestamp get the same one.
            now = self._clock.time_ms()
            prepared = [
                self._placed(
                    targets[row.target],
                    row.key,
                    row.value,
                    row.partition,
                    now if row.timestamp is None else row.timestamp,
                    row.headers,
                    size,
                )
                for row, size in rows
            ]
            deliveries = bulk.send_prepared(prepared, engine.accumulator, advice=bulk.SLICES)
        self._last = deliveries[-1]
        return deliveries

    def _row_size(
        self,
        targets: Sequence[Topic],
        records: ArrowRecords,
        index: int,
        row: ArrowRow | None = None,
    ) -> int:
        """Return an upper bound of the size of a row. Raise an error if the row cannot be sent."""
        _, number, key, value, partition, _, headers = row or records.row(index)
        target = targets[number]
        size = record_size(key, value, headers)
        if size > self._largest:
            self._require_small(f"{target.name}, row {index}", key, value, headers)
        if partition is not None and not 0 <= partition < PARTITIONS:
            raise self._send_errors().unknown_partition(
                f"Column 'partition' has {partition} in row {index}. Partitions are numbered from "
                "0; null lets the producer choose.",
                topic_partition=TopicPartition(target.name, partition),
            )
        return size
