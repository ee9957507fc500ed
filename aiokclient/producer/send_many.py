"""The sends of many records: `send_many` takes all of a sequence or none, `send_all` an iterable.

One call of `send_many` appends as many values without keys as fit into a batch. All other records
are first serialized, partitioned, and measured one by one, so that every error is found before the
first record is appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from aiokclient.errors import BufferExhaustedError, KafkaError
from aiokclient.producer.batching.accumulator import BATCH_OVERHEAD, Accumulator
from aiokclient.producer.batching.batch import RECORD_OVERHEAD
from aiokclient.producer.batching.partitioner import Partitioner
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.delivery.deliveries import Deliveries, Run, runs_of
from aiokclient.producer.delivery.delivery import Delivery, settled
from aiokclient.producer.delivery.failures import Failures
from aiokclient.record.batch import RecordBatchBuilder
from aiokclient.scopes import new_scope
from aiokclient.types import Headers, ProducerRecord, shortened, to_integer
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.errors import KafkaError
    from aiokclient.producer.batching.queue import Topic
    from aiokclient.producer.producer import Producer

PARTITIONS = 1 << 31
"""The number of partitions that a topic could have: in requests, a partition has 32 bits."""

PLAIN = ({bytes}, {bytes, type(None)}, {type(None)})


class Prepared(NamedTuple):
    """A serialized record. `partition` is -1 if the application chose none."""

    queue: PartitionQueue
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int
    size: int


def are_plain(values: Sequence[Any]) -> bool:
    """Return whether all values are bytes or None."""
    return set(map(type, values)) in PLAIN


def as_record(topic: str, item: Any) -> ProducerRecord:
    """Convert a value, a (key, value) tuple, or a ProducerRecord to a ProducerRecord."""
    if isinstance(item, ProducerRecord):
        return item
    if type(item) is tuple and len(item) == 2:
        return ProducerRecord(topic, value=item[1], key=item[0])
    return ProducerRecord(topic, value=item)


def as_integer(given: Any, what: str) -> int:
    """Return an integer of any type, such as one of numpy, as an int. `what` names it in errors."""
    number = to_integer(given)
    if number is None:
        raise TypeError(f"The {what} {given!r} is not an int.")
    return number


def as_timestamp(given: Any) -> int:
    """Return the application's timestamp. Raises TypeError or ValueError for an invalid one."""
    timestamp = as_integer(given, "timestamp")
    if not 0 <= timestamp < 1 << 63:
        raise ValueError(f"The timestamp {timestamp} is negative or does not fit into 64 bits.")
    return timestamp


def as_bytes(content: Any) -> bytes | None:
    """Return a key, value, or header value as bytes. Raises TypeError for any other type.

    The types are those that `RecordBatchBuilder.append` accepts.
    """
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, bytearray) or (
        isinstance(content, memoryview) and content.nbytes == len(content) and content.c_contiguous
    ):
        return bytes(content)
    raise TypeError(f"{type(content).__name__} is not bytes.")


def as_headers(headers: Any) -> Headers:
    """Return a copy of the headers, which are read once. Raises TypeError if they are invalid.

    Iterators are refused, because `send` reads the headers twice and cannot send them.
    """
    if not len(headers):
        return ()
    copied: list[tuple[str, bytes | None]] = []
    for pair in headers:
        if len(pair) != 2:
            raise TypeError(f"The header {pair!r} is not a pair of name and value.")
        name, content = pair
        if not isinstance(name, str):
            raise TypeError(f"The header name {name!r} is not str.")
        name.encode()
        copied.append((name, as_bytes(content)))
    return copied


def describe_wrong_part(key: Any, value: Any, headers: Any) -> str | None:
    """Return a text about the part of a record that has a wrong type, or None if all are right."""
    for name, content in (("key", key), ("value", value)):
        if content is not None and not isinstance(content, bytes | bytearray | memoryview):
            shown = f"{type(content).__name__} {shortened(content)}"
            return f"the {name} is {shown}. Encode it, or set {name}_serializer."
    if isinstance(headers, Mapping):
        return (
            f"the headers are a {type(headers).__name__}, but a name may occur several times. Pass "
            "headers=list(headers.items())."
        )
    if isinstance(headers, tuple) and len(headers) == 2 and isinstance(headers[0], str):
        return f"the headers are one pair. Pass headers=[{shortened(headers)}]."
    if isinstance(headers, Iterator):
        return (
            f"the headers are a {type(headers).__name__}, which can be read only once. Pass "
            "headers=list(...)."
        )
    return _describe_wrong_header(headers) if isinstance(headers, list | tuple) else None


def _describe_wrong_header(headers: Sequence[Any]) -> str | None:
    for pair in headers:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            return f"the header {shortened(pair)} is not a pair of name and value."
        name, content = pair
        if not isinstance(name, str):
            return f"the header name {shortened(name)} is not a str."
        if content is not None and not isinstance(content, bytes | bytearray | memoryview):
            shown = f"{type(content).__name__} {shortened(content)}"
            return f"the value of the header {shortened(name)} is {shown}. Encode it."
    return None


def exact_size(limit: int, key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the size in bytes of a batch with only this record.

    If the size exceeds `limit`, the result may be a lower bound of it, which costs less to compute.
    """
    size = len(key or b"") + len(value or b"") + BATCH_OVERHEAD
    if size <= limit:
        builder = RecordBatchBuilder(limit=0)
        builder.append(0, key, value, headers)
        size = builder.size
    return size


def largest(values: Sequence[bytes | None]) -> bytes:
    """Return the longest of the values."""
    return max((value for value in values if value is not None), key=len, default=b"")


def total_size(values: Sequence[bytes | None]) -> int:
    """Return an upper bound of the encoded size of all values as records."""
    try:
        size = sum(map(len, cast("Sequence[bytes]", values)))
    except TypeError:  # None has no length.
        size = sum(len(value) for value in values if value is not None)
    return size + RECORD_OVERHEAD * len(values)


def send_values(
    accumulator: Accumulator,
    partitioner: Partitioner,
    topic: Topic,
    values: Sequence[bytes | None],
    total: int,
    timestamp: int,
) -> Deliveries:
    """Append values without keys and partitions, which take at most `total` bytes as records.

    Raises BufferExhaustedError if there is not enough room. Nothing is appended then.
    """
    queue = topic.undesignated
    if topic.known:
        queue = partitioner.choose_queue(topic, None, 0)
    accumulator.require_room({queue: (total, len(values))})
    deliveries = Deliveries()
    start, count = 0, len(values)
    while start < count:
        before = 0 if queue.open is None else queue.open.builder.size
        batch, index, taken = accumulator.append_values(queue, timestamp, values, start, total)
        total -= batch.builder.size - (before if index else BATCH_OVERHEAD)
        if batch.explicit is not None:
            batch.choose_partitions(-1, taken)
        deliveries.add_run(Run(batch, index, taken, timestamp))
        start += taken
        if start < count:
            accumulator.close_batch(queue)
            topic.leave_sticky()
            if topic.known:
                queue = partitioner.choose_queue(topic, None, 0)
    return deliveries


def send_prepared(
    records: Sequence[Prepared], accumulator: Accumulator, *, are_rows: bool = False
) -> Deliveries:
    """Append prepared records.

    Raises BufferExhaustedError if there is not enough room. Nothing is appended then. `are_rows`
    says that they are rows of an Arrow record batch, for the text of the error.
    """
    needs: dict[PartitionQueue, tuple[int, int]] = {}
    for record in records:
        size, count = needs.get(record.queue, (0, 0))
        needs[record.queue] = size + record.size, count + 1
    accumulator.require_room(needs, are_rows=are_rows)
    deliveries = Deliveries()
    append: Callable[..., Any] = accumulator.append_record
    for queue, timestamp, key, value, headers, partition, size in records:
        batch, index = append(queue, timestamp, key, value, headers, size, forced=True)
        if batch.explicit is not None:
            batch.choose_partitions(partition)
        elif partition >= 0:
            batch.mark_chosen(index)
        deliveries.add_run(Run(batch, index, 1, timestamp))
    return deliveries


CHUNK = 256
"""Number of items of a synchronous iterable that are sent at a time."""


class SendAll:
    """One call of `send_all`: sends records, waits for room, and watches for failures."""

    def __init__(
        self, producer: Producer[Any, Any], accumulator: Accumulator, failures: Failures, topic: str
    ) -> None:
        self._producer = producer
        self._accumulator = accumulator
        self._failures = failures
        self._topic = topic
        self._waiting: deque[Run] = deque()
        """The records that were sent and are not yet known to be delivered, in order."""
        self._seen_failures = failures.total
        self._end: KafkaError | None = None
        self._told = False
        """Whether the failure of a delivery is being raised."""
        self._count = 0
        self._prepares = bool(producer._preparations)
        self._prepared: set[str] = set()
        """The topics for which the serializers are prepared."""

    async def send_items(self, items: Iterable[Any] | AsyncIterable[Any]) -> int:
        """See `Producer.send_all`."""
        try:
            return await self._send_all_items(items)
        except KafkaError:
            if self._told:
                for run in self._waiting:
                    retrieve(run)  # The caller has no deliveries and sees only this one error.
            raise

    async def _send_all_items(self, items: Iterable[Any] | AsyncIterable[Any]) -> int:
        if isinstance(items, AsyncIterable):
            await self._send_stream(items)
        elif isinstance(items, Iterable):
            iterator = iter(items)
            while chunk := list(islice(iterator, CHUNK)):
                if self._prepares:
                    await self._prepare_topics(chunk)
                await self._send_chunk(chunk)
        else:
            raise TypeError(f"send_all() takes an iterable, not {type(items).__name__}.")
        while self._waiting:
            await self._wait_for_oldest()
        return self._count

    async def _prepare_topics(self, items: Sequence[Any]) -> None:
        """Prepare the serializers for the topics of items, unless they are prepared already."""
        for item in items:
            topic = item.topic if isinstance(item, ProducerRecord) else self._topic
            if isinstance(topic, str) and topic not in self._prepared:
                await self._producer._prepare_items(topic)
                self._prepared.add(topic)

    async def _send_stream(self, items: AsyncIterable[Any]) -> None:
        """Send each item as it arrives, until a record fails or the producer ends."""
        with new_scope() as scope:

            def look(end: KafkaError | None) -> None:
                self._end = self._end or end or self._find_failure()
                if self._end is not None:
                    scope.cancel()

            with self._failures.watch_failures(look):
                async for item in items:
                    if self._prepares:
                        await self._prepare_topics([item])
                    await self._send_item(item)
        if scope.cancelled_caught and self._end is not None:
            self._failures.on_final_seen()
            raise self._end.with_traceback(None)

    def _find_failure(self) -> KafkaError | None:
        """Return the first failure among the records that were sent."""
        try:
            for run in self._waiting:
                self._is_delivered(run)
        except KafkaError as error:
            return error
        return None

    def _is_delivered(self, run: Run) -> bool:
        try:
            return delivered(run)
        except KafkaError:
            self._told = True
            raise

    async def _send_chunk(self, chunk: list[Any]) -> None:
        if len(chunk) == 1:
            await self._send_item(chunk[0])
            return
        try:
            deliveries = self._producer.send_many(self._topic, chunk)
        except BufferExhaustedError:
            for item in chunk:
                await self._send_item(item)
        else:
            await self._note_sent(deliveries)

    async def _send_item(self, item: Any) -> None:
        record = as_record(self._topic, item)
        while True:
            try:
                delivery = self._producer.send(*record)
                break
            except BufferExhaustedError:
                if not self._accumulator.pending:
                    raise  # The record does not fit even into an empty buffer.
                await self._accumulator.wait_for_room()
        await self._note_sent([delivery])

    async def _note_sent(self, deliveries: Sequence[Delivery]) -> None:
        self._count += len(deliveries)
        for run in runs_of(deliveries):
            last = self._waiting[-1] if self._waiting else None
            if last is not None and last.batch is run.batch and last.first + last.size == run.first:
                self._waiting[-1] = last._replace(size=last.size + run.size)
            else:
                self._waiting.append(run)
        await self._producer.drain()
        if self._failures.total != self._seen_failures:
            self._seen_failures = self._failures.total
            for run in self._waiting:
                self._is_delivered(run)
        while self._waiting and self._is_delivered(self._waiting[0]):
            self._waiting.popleft()

    async def _wait_for_oldest(self) -> None:
        """Wait until the oldest record is delivered."""
        run = self._waiting[0]
        if self._is_delivered(run):
            self._waiting.popleft()
            return
        await settled(run.batch)


def parts_of(run: Run) -> list[Run]:
    """Return the records of a run as runs of the batches to which they have moved."""
    batch, first, size, timestamp = run
    if first >= batch.moved:
        return [run]
    return [Run(*batch.locate_record(index), 1, timestamp) for index in range(first, first + size)]


def delivered(run: Run) -> bool:
    """Return whether all records of a run are delivered. Raise the first failure among them."""
    parts = parts_of(run)
    if not all(part.batch.done for part in parts):
        return False
    for batch, first, size, _ in parts:
        error = batch.retrieve_run_error(first, size)
        if error is not None:
            raise error.with_traceback(None)
    return True


def retrieve(run: Run) -> None:
    """Count all failures of a run as retrieved, including those that happen later."""
    for part in parts_of(run):
        batch, first, size, timestamp = part
        if batch.done:
            batch.retrieve_run_error(first, size)
        else:
            Delivery(batch, first, timestamp).add_done_callback(partial(_retrieve_later, part))


def _retrieve_later(run: Run, _: Delivery) -> None:
    retrieve(run)
