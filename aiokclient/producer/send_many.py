"""The implementation of `send_many`, which sends all records of a sequence or none.

One call appends as many values without keys as fit into a batch. All other records are first
serialized, partitioned, and measured one by one, so that every error is found before the first
record is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from aiokclient.producer.batching.accumulator import BATCH_OVERHEAD, Accumulator
from aiokclient.producer.batching.batch import RECORD_OVERHEAD
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.delivery.deliveries import Deliveries, Run
from aiokclient.producer.partitioner import Partitioner
from aiokclient.record.batch import RecordBatchBuilder
from aiokclient.types import Headers, ProducerRecord, shortened, to_integer

if TYPE_CHECKING:
    from aiokclient.errors import KafkaError
    from aiokclient.producer.batching.topic import Topic

__all__ = [
    "SLICES",
    "Prepared",
    "are_plain",
    "as_bytes",
    "as_headers",
    "as_integer",
    "as_record",
    "as_timestamp",
    "describe_wrong_part",
    "exact_size",
    "largest",
    "require_room",
    "send_prepared",
    "send_values",
    "total_size",
]

MANY = "The records of send_many()", "Use send_all(), which waits for room."
SLICES = (
    "The rows of send_arrow()",
    "Await drain() or flush(), or send the batch in slices (batch.slice).",
)
"""The subject of the error message for a full buffer, and the advice at its end."""

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
        queue = partitioner.choose(topic, None, 0)
    require_room(accumulator, {queue: (total, len(values))})
    deliveries = Deliveries()
    start, count = 0, len(values)
    while start < count:
        before = 0 if queue.open is None else queue.open.builder.size
        batch, index, taken = accumulator.append_values(queue, timestamp, values, start, total)
        total -= batch.builder.size - (before if index else BATCH_OVERHEAD)
        if batch.explicit is not None:
            batch.choose_partitions(-1, taken)
        deliveries.add(Run(batch, index, taken, timestamp))
        start += taken
        if start < count:
            accumulator.close(queue)
            topic.leave_sticky()
            if topic.known:
                queue = partitioner.choose(topic, None, 0)
    return deliveries


def send_prepared(
    records: Sequence[Prepared], accumulator: Accumulator, advice: tuple[str, str] = MANY
) -> Deliveries:
    """Append prepared records.

    Raises BufferExhaustedError, with `advice`, if there is not enough room. Nothing is appended
    then.
    """
    needs: dict[PartitionQueue, tuple[int, int]] = {}
    for record in records:
        size, count = needs.get(record.queue, (0, 0))
        needs[record.queue] = size + record.size, count + 1
    require_room(accumulator, needs, advice)
    deliveries = Deliveries()
    append: Callable[..., Any] = accumulator.append
    for queue, timestamp, key, value, headers, partition, size in records:
        batch, index = append(queue, timestamp, key, value, headers, size, forced=True)
        if batch.explicit is not None:
            batch.choose_partitions(partition)
        elif partition >= 0:
            batch.note_chosen(index)
        deliveries.add(Run(batch, index, 1, timestamp))
    return deliveries


def require_room(
    accumulator: Accumulator,
    needs: Mapping[PartitionQueue, tuple[int, int]],
    advice: tuple[str, str] = MANY,
) -> None:
    """Raise BufferExhaustedError unless each queue has room for the bytes that it needs.

    `needs` has, for each queue, the total size in bytes and the number of the records.
    """
    memory = accumulator.memory
    total = shared = 0
    for queue, (size, count) in needs.items():
        # Any two consecutive batches together hold more than the limit of one batch.
        batches = min(2 * (size // queue.batch_limit) + 2, count)
        size += batches * BATCH_OVERHEAD
        total += size
        shared += size if queue.unsendable else 0
        if size > memory.room(queue):
            raise _too_much(accumulator, size, advice)
    if (shared and shared > memory.shared_room()) or total > memory.sendable_room():
        raise _too_much(accumulator, total, advice)


def _too_much(accumulator: Accumulator, size: int, advice: tuple[str, str]) -> KafkaError:
    what, instead = advice
    return accumulator.errors.exhausted(
        f"{what} take about {size} bytes, more than there is room for. Nothing was sent. {instead}"
    )
