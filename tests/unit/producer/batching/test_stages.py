"""Tests of the table of a batch's stages, and that a batch permits only those transitions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from aiokclient.errors import KafkaError
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.queue import PartitionQueue, TopicStatus
from aiokclient.producer.batching.stages import TRANSITIONS, BatchStage, InLog, StageError
from aiokclient.record.batch import RecordBatchBuilder

IDENTITY = (7, 0, 100)

STEPS: dict[BatchStage, list[Callable[[Any], object]]] = {
    BatchStage.OPEN: [],
    BatchStage.QUEUED: [
        lambda batch: batch.close_builder(),
        lambda batch: batch.requeue_without_identity(unknowable=False),
    ],
    BatchStage.IN_FLIGHT: [lambda batch: batch.begin_attempt()],
    BatchStage.BACKING_OFF: [
        lambda batch: batch.return_to_queue(refused=False),
        lambda batch: batch.resume_identity(IDENTITY),
    ],
    BatchStage.SPLIT: [lambda batch: batch.mark_split()],
    BatchStage.DONE: [
        lambda batch: batch.acknowledge(0, -1),
        lambda batch: batch.fail_records(KafkaError("no")),
    ],
}
"""The methods that lead to each stage."""

PATHS: dict[BatchStage, list[str]] = {
    BatchStage.OPEN: [],
    BatchStage.QUEUED: ["close_builder"],
    BatchStage.IN_FLIGHT: ["close_builder", "begin_attempt"],
    BatchStage.BACKING_OFF: ["close_builder", "begin_attempt", "return_to_queue"],
    BatchStage.SPLIT: ["close_builder", "mark_split"],
    BatchStage.DONE: ["close_builder", "fail_records"],
}
"""A sequence of steps that leads to each stage."""

ARGUMENTS: dict[str, dict[str, Any]] = {
    "return_to_queue": {"refused": False},
    "fail_records": {"error": KafkaError("no")},
}


class Hooks:
    """The attributes of an accumulator that a batch needs in order to finish."""

    loop: Any = None
    thread = 0
    calling: ClassVar[dict[Any, None]] = {}


def batch_of(count: int = 1) -> ProducerBatch:
    builder = RecordBatchBuilder(limit=1 << 20)
    for index in range(count):
        builder.append(index, None, b"v%d" % index, ())
    hooks: Any = Hooks()
    batch = ProducerBatch("t", PartitionQueue(TopicStatus("t", 1 << 20), 0), hooks, builder, 0.0)
    batch.update_count()
    for index in range(count):
        batch.store_timestamp(index, index)
    return batch


def batch_in(stage: BatchStage) -> ProducerBatch:
    batch = batch_of()
    for name in PATHS[stage]:
        getattr(batch, name)(**ARGUMENTS.get(name, {}))
    assert batch.stage is stage
    return batch


PAIRS = [
    pytest.param(before, after, step, id=f"{before.value} to {after.value} {number}")
    for before, after in itertools.product(BatchStage, BatchStage)
    for number, step in enumerate(STEPS[after])
]


@pytest.mark.parametrize(("before", "after", "step"), PAIRS)
def test_a_step_is_taken_when_the_table_permits_it(
    before: BatchStage, after: BatchStage, step: Callable[[Any], object]
) -> None:
    batch = batch_in(before)
    if before is BatchStage.SPLIT and after is BatchStage.SPLIT:
        return  # `mark_split` also ends a split that `parts` began.
    if after in TRANSITIONS[before]:
        step(batch)
        assert batch.stage is after
        return
    with pytest.raises(StageError) as caught:
        step(batch)
    assert (caught.value.current, caught.value.wanted) == (before, after)
    assert batch.stage is before
    assert f"{before.value!r} to {after.value!r}" in str(caught.value)


def test_every_stage_has_a_row_and_only_outcomes_are_final() -> None:
    assert TRANSITIONS.keys() == set(BatchStage)
    final = {stage for stage, following in TRANSITIONS.items() if not following}
    assert final == {BatchStage.SPLIT, BatchStage.DONE}
    reachable = {BatchStage.OPEN}.union(*TRANSITIONS.values())
    assert reachable == set(BatchStage)


@pytest.mark.parametrize("kind", [BatchStage, InLog])
def test_members_are_hashed_without_a_python_function(kind: Any) -> None:
    assert kind.__hash__ is object.__hash__


def builders_of(count: int) -> list[RecordBatchBuilder]:
    made = []
    for index in range(count):
        builder = RecordBatchBuilder(limit=1 << 20)
        builder.append(index, None, b"v%d" % index, ())
        made.append(builder)
    return made


def test_parts_take_over_the_sequences_when_a_batch_is_split() -> None:
    batch = batch_of(3)
    batch.close_builder()
    batch.set_identity(IDENTITY)
    batch.begin_attempt()
    parts = batch.split_into(builders_of(3))
    assert batch.stage is BatchStage.SPLIT
    assert [part.stage for part in parts] == [BatchStage.BACKING_OFF] * 3
    assert [part.identity for part in parts] == [(7, 0, sequence) for sequence in (100, 101, 102)]
    assert [part.whole for part in parts] == [None] * 3
    assert [batch.locate_record(index) for index in range(3)] == [(part, 0) for part in parts]
    assert [part.timestamp_of(0) for part in parts] == [0, 1, 2]


def test_the_first_part_knows_the_others_when_the_whole_may_have_been_written() -> None:
    batch = batch_of(2)
    batch.close_builder()
    batch.set_identity(IDENTITY)
    batch.begin_attempt()
    batch.note_unknown()
    first, second = parts = batch.split_into(builders_of(2))
    assert first.whole == parts
    assert second.whole is None
    first.pass_on_whole_batch()
    assert second.whole == [second]


def test_a_batch_keeps_no_identity_when_it_is_queued_again() -> None:
    batch = batch_in(BatchStage.BACKING_OFF)
    batch.set_identity(IDENTITY)
    batch.note_unknown()
    batch.requeue_without_identity(unknowable=True)
    assert batch.identity is None
    assert batch.in_log is InLog.UNKNOWABLE
    batch.resume_identity(IDENTITY)
    assert batch.in_log is InLog.UNKNOWABLE, (
        "a former identity does not show whether the batch is in the log"
    )
