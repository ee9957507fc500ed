"""`send_many`: all of a sequence or nothing, with as little work a record as can be.

Plain values without keys go into a batch by one call for all that fit. Anything else is prepared
record by record first (serialized, its partition chosen, its size known), so that whatever may be
wrong is found before the first record is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokclient.errors import BufferExhaustedError
from aiokclient.producer.accumulator import BATCH_OVERHEAD, Accumulator
from aiokclient.producer.batch import RECORD_OVERHEAD
from aiokclient.producer.deliveries import Deliveries, Run
from aiokclient.producer.partitioner import Partitioner
from aiokclient.producer.queue import PartitionQueue
from aiokclient.types import Headers, ProducerRecord

if TYPE_CHECKING:
    from aiokclient.producer.topic import Topic

__all__ = ["Prepared", "are_plain", "as_record", "send_prepared", "send_values"]

PLAIN = ({bytes}, {bytes, type(None)}, {type(None)})


class Prepared(NamedTuple):
    """A record that only has to be appended; `partition` is -1 where it is left open."""

    queue: PartitionQueue
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int
    size: int


def are_plain(values: Sequence[Any]) -> bool:
    """Whether all of them are bytes or None."""
    return set(map(type, values)) in PLAIN


def as_record(topic: str, item: Any) -> ProducerRecord:
    """A value, a (key, value) or a ProducerRecord as the latter."""
    if isinstance(item, ProducerRecord):
        return item
    if type(item) is tuple and len(item) == 2:
        return ProducerRecord(topic, value=item[1], key=item[0])
    return ProducerRecord(topic, value=item)


def value_sizes(values: Sequence[bytes | None]) -> tuple[int, int]:
    """The size of the largest and of all of the values, as records, in bytes."""
    sizes = [len(value) for value in values if value is not None]
    return max(sizes, default=0) + RECORD_OVERHEAD, sum(sizes) + RECORD_OVERHEAD * len(values)


def send_values(
    topic: Topic,
    values: Sequence[bytes | None],
    total: int,
    timestamp: int,
    accumulator: Accumulator,
    partitioner: Partitioner,
) -> Deliveries:
    """Append values of `total` bytes at most, without keys and partitions.

    Raises BufferExhaustedError, and keeps nothing then.
    """
    queue = topic.undesignated
    if topic.known:
        queue = partitioner.choose(topic, None, 0)
    _require_room(accumulator, {queue: total}, topic.batch_limit)
    deliveries = Deliveries()
    start, count = 0, len(values)
    while start < count:
        if topic.known:
            queue = partitioner.choose(topic, None, 0)
        before = 0 if queue.open is None else queue.open.builder.size
        batch, index, taken = accumulator.append_values(queue, timestamp, values, start, total)
        total -= batch.builder.size - (before if index else BATCH_OVERHEAD)
        if batch.explicit is not None:
            batch.explicit.extend([-1] * taken)
        deliveries.add(Run(batch, index, taken, timestamp))
        start += taken
        if start < count:
            accumulator.close(queue)
            topic.sticky_left = 0
    return deliveries


def send_prepared(records: Sequence[Prepared], accumulator: Accumulator) -> Deliveries:
    """Append prepared records. Raises BufferExhaustedError, and keeps nothing then."""
    needs: dict[PartitionQueue, int] = {}
    for record in records:
        needs[record.queue] = needs.get(record.queue, 0) + record.size
    if needs:
        limit = min(queue.topic.batch_limit for queue in needs)
        _require_room(accumulator, needs, limit)
    deliveries = Deliveries()
    append: Callable[..., Any] = accumulator.append
    for queue, timestamp, key, value, headers, partition, size in records:
        batch, index = append(queue, timestamp, key, value, headers, size, forced=True)
        if batch.explicit is not None:
            batch.explicit.append(partition)
        deliveries.add(Run(batch, index, 1, timestamp))
    return deliveries


def _require_room(
    accumulator: Accumulator, needs: Mapping[PartitionQueue, int], limit: int
) -> None:
    memory = accumulator.memory
    total = shared = 0
    for queue, size in needs.items():
        size += (size // max(limit, 1) + 1) * BATCH_OVERHEAD
        total += size
        shared += size if queue.unsendable else 0
        if size > memory.room(queue):
            raise _too_much(size)
    if shared > memory.shared_room() or total > memory.sendable_room():
        raise _too_much(total)


def _too_much(size: int) -> BufferExhaustedError:
    return BufferExhaustedError(
        f"the records of send_many take about {size} bytes, more than there is room for; nothing "
        "was sent. Use send_all(), which waits for room"
    )
