"""Tests of how partitions are chosen: murmur2 as in Java, sticky batches, and adaptive loads."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from aiokclient import murmur2
from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.config.producer import ProducerConfig
from aiokclient.errors import SerializationError
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.partitioner import SAMPLE, Partitioner, weights
from aiokclient.producer.batching.queue import PartitionQueue, Topic
from aiokclient.record.batch import RecordBatchBuilder


def topic(partitions: int) -> Topic:
    made = Topic("t", 16384)
    made.queues = [PartitionQueue(made.status, index) for index in range(partitions)]
    return made


def partitioner(closed: list[PartitionQueue] | None = None, **options: Any) -> Partitioner:
    config = ProducerConfig.build({"bootstrap_servers": "h:1", "batch_size": 1000, **options})
    owner: Any = SimpleNamespace(_options=config)
    accumulator: Any = SimpleNamespace(close_batch=(closed if closed is not None else []).append)
    return Partitioner(config, random.Random(1), Anchor(owner), accumulator)


def open_batch(queue: PartitionQueue, count: int) -> None:
    """Open a batch with records that take 91 bytes, and for which `record_size` says 120."""
    hooks: Any = SimpleNamespace(loop=None, thread=0)
    builder = RecordBatchBuilder(limit=10_000)
    for _ in range(count):
        builder.append(0, None, b"x" * 83)
    queue.open = ProducerBatch("t", queue, hooks, builder, 0.0)


# These are the values of
# org.apache.kafka.clients.producer.internals.BuiltInPartitioner.partitionForKey.
@pytest.mark.parametrize(
    ("key", "partition"),
    [(b"21", (-973932308 & 0x7FFFFFFF) % 7), (b"foobar", (-790332482 & 0x7FFFFFFF) % 7)],
)
def test_a_key_goes_where_java_puts_it(key: bytes, partition: int) -> None:
    assert partitioner().choose_queue(topic(7), key, 10).partition == partition


def test_an_unsendable_partition_still_gets_its_keys() -> None:
    there = topic(7)
    chosen = partitioner().choose_queue(there, b"21", 10)
    chosen.unsendable = True
    assert partitioner().choose_queue(there, b"21", 10) is chosen


def test_without_a_key_one_partition_for_a_batch_then_another() -> None:
    choose, there = partitioner().choose_queue, topic(10)
    chosen = [choose(there, None, 100).partition for _ in range(100)]
    runs = [chosen[i : i + 10] for i in range(0, 100, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert len({run[0] for run in runs}) > 3


def test_a_partition_is_kept_until_its_batch_is_full() -> None:
    there, closed = Topic("t", 1000), list[PartitionQueue]()
    there.queues = topic(10).queues
    choose = partitioner(closed).choose_queue
    (queue,) = {choose(there, None, 120) for _ in range(9)}
    open_batch(queue, 8)
    # After 8 records, there is room for two more, by their average size.
    assert {choose(there, None, 120) for _ in range(2)} == {queue}
    assert not closed
    open_batch(queue, 10)
    after = [choose(there, None, 120) for _ in range(9)]
    assert closed == [queue], "the full batch leaves at once"
    assert len(set(after)) == 1


def test_a_partition_is_kept_for_about_two_batches_at_most() -> None:
    there, closed = Topic("t", 1000), list[PartitionQueue]()
    there.queues = topic(10).queues
    choose = partitioner(closed).choose_queue
    chosen = []
    for _ in range(200):
        chosen.append(choose(there, None, 120))
        open_batch(chosen[-1], 1)  # The linger time is so short that batches leave early.
    first = len(list(next(groupby(chosen))[1]))
    assert 9 < first < 30
    assert not closed


def test_keys_can_be_ignored() -> None:
    choose, there = partitioner(partitioner_ignore_keys=True).choose_queue, topic(10)
    assert len({choose(there, b"%d" % i, 1).partition for i in range(100)}) == 1


def test_weights_fall_with_the_load() -> None:
    assert weights([0, 3, 1]) == [4, 1, 3]
    assert weights([2, 2]) == [1, 1]


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_longer_queue_gets_less(adaptive: bool) -> None:
    there = topic(2)
    there.queues[0].closed.extend([None] * 8)  # type: ignore[list-item]  # only their number counts
    advance = partitioner(partitioner_adaptive_partitioning_enable=adaptive).choose_sticky_queue
    counts = Counter(advance(there).partition for _ in range(2000))
    expected = 200 if adaptive else 1000
    assert abs(counts[0] - expected) < 120


def test_what_cannot_be_sent_is_left_out_while_there_is_something_else() -> None:
    choose, there = partitioner().choose_queue, topic(3)
    for queue in there.queues[:2]:
        queue.unsendable = True
    assert {choose(there, None, 2000).partition for _ in range(30)} == {2}
    there.queues[2].unsendable = True
    assert {choose(there, None, 2000).partition for _ in range(60)} == {0, 1, 2}


def test_a_function_of_the_users() -> None:
    def last(key: bytes | None, partitions: Any, available: Any) -> int:
        assert (list(partitions), available) == ([0, 1, 2], [])
        return 2 if key is None else 0

    choose, there = partitioner(partitioner=last).choose_queue, topic(3)
    assert choose(there, None, 1).partition == 2
    assert choose(there, b"k", 1).partition == 0


def test_a_function_is_told_which_partitions_have_leaders() -> None:
    made, there = partitioner(partitioner=lambda _, partitions, available: available[0]), topic(3)
    there.queues[2].sender = object()  # type: ignore[assignment]
    assert made.choose_queue(there, None, 1).partition == 2
    there.queues[1].sender = there.queues[2].sender
    made.on_leaders_changed(there)
    assert made.choose_queue(there, None, 1).partition == 1


@pytest.mark.parametrize("answer", [3, -1, "0", 1.0, numpy.int64(3), numpy.float64(1)])
def test_a_function_that_answers_nonsense(answer: Any) -> None:
    choose = partitioner(partitioner=lambda *_: answer).choose_queue
    with pytest.raises(SerializationError, match="has 3 partitions"):
        choose(topic(3), None, 1)


@pytest.mark.parametrize("answer", [1, numpy.int8(1), numpy.int64(1), numpy.uint16(1)])
def test_a_function_may_return_any_kind_of_integer(answer: Any) -> None:
    there = topic(3)
    assert (
        partitioner(partitioner=lambda *_: answer).choose_queue(there, b"k", 1) is there.queues[1]
    )


def test_a_function_that_returns_none_leaves_the_choice_to_kafka() -> None:
    options: dict[str, Any] = {"partitioner": lambda key, *_: 0 if key == b"own" else None}
    choose, there = partitioner(**options).choose_queue, topic(7)
    assert choose(there, b"own", 10) is there.queues[0]
    assert choose(there, b"21", 10) is there.queues[(murmur2(b"21") & 0x7FFFFFFF) % 7]
    assert len({choose(there, None, 10) for _ in range(99)}) == 1, "a batch's worth is sticky"
    assert len({choose(there, None, 500) for _ in range(99)}) > 1
    ignoring = partitioner(partitioner_ignore_keys=True, **options).choose_queue
    assert len({ignoring(there, b"%d" % at, 1) for at in range(99)}) == 1


def test_a_function_that_fails() -> None:
    failing: Callable[..., int] = lambda *_: 1 // 0  # noqa: E731
    with pytest.raises(SerializationError) as caught:
        partitioner(partitioner=failing).choose_queue(topic(3), None, 1)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


class Counting(PartitionQueue):
    """A queue that counts how often its load is read."""

    asked = 0

    @property
    def waiting(self) -> int:
        Counting.asked += 1
        return len(self.sent)


def test_of_very_many_partitions_a_few_are_looked_at() -> None:
    there = Topic("t", 16384)
    there.queues = [Counting(there.status, index) for index in range(10_000)]
    busy = there.queues[:5_000]
    for queue in busy:
        queue.sent.extend([None] * 9)  # type: ignore[list-item]
    advance = partitioner().choose_sticky_queue
    Counting.asked = 0
    chosen = Counter(len(advance(there).sent) for _ in range(1_000))
    assert Counting.asked <= 1_000 * SAMPLE
    assert chosen[0] > 8 * chosen[9] > 0


def test_the_few_of_very_many_that_can_be_sent_are_found() -> None:
    there = topic(1_000)
    for queue in there.queues[1:]:
        queue.unsendable = True
    assert {partitioner().choose_sticky_queue(there).partition for _ in range(10)} == {0}
