"""The choice of a record's partition.

The partition of a record with a key is computed from the murmur2 hash of the key, as in Kafka's
Java client, so that all clients choose the same partition. Records without a key go to one
partition until its batch is full, and then to another partition (KIP-480): if they left it earlier,
each partition would keep a batch that is nearly full and waits for its linger time. The next
partition is chosen at random, with weights: the longer the queue of a partition, the lower its
weight, so that slow brokers receive fewer records (KIP-794). Partitions to which nothing can be
sent now are skipped as long as there are others. If a topic has very many partitions, only a random
sample of them is considered, so that the cost of a record does not grow with their number.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from aiokclient.errors import KafkaError, SerializationError
from aiokclient.record.murmur2 import murmur2, to_positive
from aiokclient.types import to_integer

if TYPE_CHECKING:
    from aiokclient.cluster.lifecycle.ownership import Anchor
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.producer.batching.accumulator import Accumulator
    from aiokclient.producer.batching.queue import PartitionQueue, Topic
    from aiokclient.producer.producer import Producer

SAMPLE = 32
"""The largest number of partitions from which the next one is chosen."""
_SAMPLE = SAMPLE

PartitionerFunction = Callable[[bytes | None, Sequence[int], Sequence[int]], int | None]
"""A function `partitioner(key, partitions, available) -> partition`. `key` is the serialized key or
None. `partitions` are all partitions of the topic; `available` are those that have a leader. The
result None means Kafka's own choice."""


def weights(loads: Sequence[int]) -> list[int]:
    """Return the weight of each queue, given how many batches wait in each."""
    longest = max(loads) + 1
    return [longest - load for load in loads]


class Partitioner:
    """The choice of partitions: by key, by stickiness, or by the application's function."""

    def __init__(
        self,
        config: ProducerConfig,
        rng: random.Random,
        producer: Anchor[Producer[Any, Any]],
        accumulator: Accumulator,
    ) -> None:
        self._producer = producer
        """The producer, whose options have the application's function."""
        owner = producer.get()
        self.is_chosen_by_function = owner is not None and owner._options.partitioner is not None
        self.ignore_keys = config.partitioner_ignore_keys
        self._adaptive = config.partitioner_adaptive_partitioning_enable
        self._availability_s = config.partitioner_availability_timeout_ms / 1000
        self._sticky_bytes = max(config.batch_size, 1)
        self._rng = rng
        self._accumulator = accumulator
        self._available: dict[Topic, list[int]] = {}

    def on_leaders_changed(self, topic: Topic) -> None:
        """Handle new partitions of a topic, or new leaders of its partitions."""
        self._available.pop(topic, None)

    def choose_queue(self, topic: Topic, key: bytes | None, size: int) -> PartitionQueue:
        """Return the queue for a record of `size` bytes for which no partition was given."""
        if self.is_chosen_by_function:
            queue = self._call_function(topic, key)
            if queue is not None:
                return queue
        if key is not None and not self.ignore_keys:
            # The same as Java's client computes, so that the records of a key stay in order
            # whichever client sends them.
            return topic.queues[to_positive(murmur2(key)) % len(topic.queues)]
        return topic.take_sticky(size) or self.choose_sticky_queue(topic, size)

    def choose_sticky_queue(self, topic: Topic, size: int = 0) -> PartitionQueue:
        """Choose the partition for the next records without a key, and return its queue.

        `size` is the number of bytes of the record that goes there first. The partition stays the
        same while the record fits into its open batch. Otherwise, that batch is full and leaves.
        """
        former = topic.sticky
        if size and former is not None and former.open is not None and not former.unsendable:
            builder = former.open.builder
            room = topic.status.batch_limit.size - builder.size
            # `size` is an upper bound, so that more records fit than the sum of the bounds says.
            fitting = max(room * builder.count // builder.size, 1)
            if room < size:
                self._accumulator.close_batch(former)
            elif topic.stick_for_longer(fitting * size, size):
                return former
        queues = self._find_candidates(topic.queues)
        queue = queues[0] if len(queues) == 1 else self._draw_queue(queues)
        topic.stick_to_queue(queue, self._sticky_bytes, size)
        return queue

    def _find_candidates(self, queues: list[PartitionQueue]) -> list[PartitionQueue]:
        if len(queues) > _SAMPLE:
            found = self._usable_queues(self._rng.sample(queues, _SAMPLE))
            if found:
                return found
        if len(queues) > 1:
            queues = (
                self._usable_queues(queues) or [q for q in queues if not q.unsendable] or queues
            )
        return queues

    def _usable_queues(self, queues: list[PartitionQueue]) -> list[PartitionQueue]:
        found = [queue for queue in queues if not queue.unsendable]
        return (
            [queue for queue in found if self._is_leader_responsive(queue)]
            if self._availability_s
            else found
        )

    def _is_leader_responsive(self, queue: PartitionQueue) -> bool:
        """Return whether the leader responds within `partitioner_availability_timeout_ms`."""
        return queue.sender is None or queue.sender.measure_unanswered_s() <= self._availability_s

    def _draw_queue(self, queues: Sequence[PartitionQueue]) -> PartitionQueue:
        if not self._adaptive:
            return queues[self._rng.randrange(len(queues))]
        # The load of a queue is the number of batches that would be sent before a new batch.
        loads = [len(q.sent) + len(q.closed) + len(q.overflow) for q in queues]
        cumulated = list(accumulate(weights(loads))) if any(loads) else range(1, len(queues) + 1)
        return queues[bisect_right(cumulated, int(self._rng.random() * cumulated[-1]))]

    def _call_function(self, topic: Topic, key: bytes | None) -> PartitionQueue | None:
        """Return the queue that the application's function chooses, or None if it returns None."""
        producer = self._producer.get()
        function = None if producer is None else producer._options.partitioner
        if function is None:
            return None
        partitions = range(len(topic.queues))
        available = self._available.get(topic)
        if available is None:
            available = [i for i, queue in enumerate(topic.queues) if queue.sender is not None]
            self._available[topic] = available
        try:
            partition: Any = function(key, partitions, available)
        except (KafkaError, SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # A CancelledError would pass for one of the caller.
            text = f"The partitioner failed for a record of topic {topic.name}: {error!r}."
            raise SerializationError(text) from error
        if partition is None:
            return None
        number = to_integer(partition)
        if number is None or not 0 <= number < len(topic.queues):
            raise SerializationError(
                f"The partitioner returned {partition!r}. Topic {topic.name} has "
                f"{len(topic.queues)} partitions, numbered from 0."
            )
        return topic.queues[number]
