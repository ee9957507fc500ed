"""Tests of the table of sequence states, and of a queue against a model of the broker's rules."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import IS_WHOLE

from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.queue import PartitionQueue, TopicStatus
from aiokclient.producer.batching.sequences import (
    CODES,
    MAX_EPOCH,
    TRANSITIONS,
    BatchIdentity,
    PartitionSequences,
    SequenceEvent,
    SequenceState,
    advance,
)
from aiokclient.producer.batching.stages import InLog
from aiokclient.record.batch import RecordBatchBuilder

IMPOSSIBLE = {
    # Only in DRAINING can a drain end, which decides about a restart. In RESTARTING, nothing is in
    # flight.
    (SequenceState.FLOWING, SequenceEvent.DRAINED_IN_ORDER),
    (SequenceState.FLOWING, SequenceEvent.DRAINED_WITH_GAP),
    (SequenceState.FLOWING, SequenceEvent.RESTARTED),
    (SequenceState.DRAINING, SequenceEvent.RESTARTED),
    (SequenceState.RESTARTING, SequenceEvent.WRITTEN),
    (SequenceState.RESTARTING, SequenceEvent.RETURNED),
    (SequenceState.RESTARTING, SequenceEvent.REFUSED),
    (SequenceState.RESTARTING, SequenceEvent.FOREIGN),
    (SequenceState.RESTARTING, SequenceEvent.DRAINED_IN_ORDER),
    (SequenceState.RESTARTING, SequenceEvent.DRAINED_WITH_GAP),
}


@pytest.mark.parametrize("pair", list(itertools.product(SequenceState, SequenceEvent)), ids=str)
def test_every_pair_is_in_the_table_or_impossible(
    pair: tuple[SequenceState, SequenceEvent],
) -> None:
    assert (pair in TRANSITIONS) is (pair not in IMPOSSIBLE)


@pytest.mark.parametrize("kind", [SequenceState, SequenceEvent])
def test_states_and_events_are_hashed_without_a_python_function(kind: type) -> None:
    """States and events are looked up for each batch, so their hash must be fast."""
    assert kind.__hash__ is object.__hash__


def test_the_codes_about_sequences_have_events() -> None:
    out_of_order, duplicate, unknown_producer_id = 45, 46, 59
    invalid_producer_epoch, producer_fenced = 47, 90
    assert {
        out_of_order: SequenceEvent.REFUSED,
        unknown_producer_id: SequenceEvent.FOREIGN,
        invalid_producer_epoch: SequenceEvent.FOREIGN,
        producer_fenced: SequenceEvent.FOREIGN,
        duplicate: SequenceEvent.WRITTEN,
    } == CODES


def test_sequences_wrap_as_in_java() -> None:
    assert advance(2**31 - 1, 1) == 0
    assert advance(2**31 - 3, 5) == 2
    sequences = PartitionSequences()
    sequences.adopt_producer_id(7, 0)
    sequences.next = sequences.acknowledged = 2**31 - 2
    first, second = sequences.assign_identity(3), sequences.assign_identity(1)
    assert (first[2], second[2]) == (2**31 - 2, 1)
    sequences.mark_written(second, 1)
    sequences.mark_written(first, 3)
    assert sequences.acknowledged == 2


def test_the_first_batch_of_an_epoch_is_sent_alone() -> None:
    sequences = PartitionSequences()
    assert not sequences.single, "without a producer id, the first batch need not be sent alone"
    sequences.adopt_producer_id(7, 0)
    assert sequences.single
    sequences.mark_written(sequences.assign_identity(1), 1)
    assert not sequences.single
    sequences.apply_event(SequenceEvent.RETURNED)
    assert sequences.on_drained(left=True, head_refused=False) is SequenceState.FLOWING
    assert sequences.single


@pytest.mark.parametrize(
    ("left", "head_refused", "acknowledged", "then"),
    [
        (True, False, 0, SequenceState.FLOWING),
        (True, True, 0, SequenceState.RESTARTING),
        (False, False, 5, SequenceState.FLOWING),
        (False, False, 4, SequenceState.RESTARTING),
    ],
)
def test_drained(left: bool, head_refused: bool, acknowledged: int, then: SequenceState) -> None:
    sequences = PartitionSequences()
    sequences.adopt_producer_id(7, 3)
    sequences.assign_identity(5)
    sequences.acknowledged = acknowledged
    sequences.apply_event(SequenceEvent.LOST)
    assert sequences.on_drained(left=left, head_refused=head_refused) is then


def test_a_restart_is_the_next_epoch_from_zero() -> None:
    sequences = PartitionSequences()
    sequences.adopt_producer_id(7, MAX_EPOCH - 1)
    sequences.assign_identity(5)
    sequences.apply_event(SequenceEvent.LOST)
    sequences.on_drained(left=False, head_refused=False)
    assert not sequences.exhausted
    sequences.begin_next_epoch()
    assert sequences.state is SequenceState.FLOWING
    assert sequences.assign_identity(1) == (7, MAX_EPOCH, 0)
    assert sequences.exhausted


@pytest.mark.parametrize("by_name", [False, True])
def test_explains_is_false_when_an_unproven_leader_refuses_the_next_sequence(
    by_name: bool,
) -> None:
    sequences = PartitionSequences()
    sequences.adopt_producer_id(7, 0)
    first, lost, third = (
        sequences.assign_identity(1),
        sequences.assign_identity(1),
        sequences.assign_identity(1),
    )
    assert not sequences.is_explained(first, by_name=by_name), "every leader accepts sequence 0"
    sequences.mark_written(first, 1)
    assert sequences.is_explained(lost, by_name=by_name), (
        "the log was truncated during this connection"
    )
    sequences.trusted = False
    assert sequences.is_explained(lost, by_name=by_name) is not by_name
    assert sequences.is_explained(third, by_name=by_name), "the batch before it is missing"


def test_written_voids_the_state_when_offsets_go_back() -> None:
    sequences = PartitionSequences()
    sequences.adopt_producer_id(7, 0)
    sequences.mark_written(sequences.assign_identity(2), 2, 10)
    sequences.mark_written(sequences.assign_identity(1), 1, -1)
    sequences.mark_written(sequences.assign_identity(1), 1, 13)
    assert not sequences.void
    sequences.mark_written(sequences.assign_identity(1), 1, 0)
    assert sequences.void
    sequences.adopt_producer_id(8, 0)
    assert not sequences.void


class Batch(ProducerBatch):
    """A queued batch with a name and a number of records, but without content."""

    def __init__(self, queue: Any, name: int, count: int) -> None:
        hooks: Any = None
        super().__init__("t", queue, hooks, RecordBatchBuilder(limit=0), 0.0)
        self.close_builder()
        self.name, self.count = name, count


class Leader:
    """A broker's rules for the batches of one producer, and the resulting log."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.epoch = -1
        self.last: deque[tuple[int, int]] = deque(maxlen=5)

    def append(self, name: int, identity: BatchIdentity, count: int) -> str:
        _, epoch, sequence = identity
        end = advance(sequence, count)
        if epoch < self.epoch:
            return "fenced"
        if epoch == self.epoch and (sequence, end) in self.last:
            return "written"
        fresh = self.epoch < 0
        expected = 0 if epoch > self.epoch else self.last[-1][1]
        if not fresh and sequence != expected:
            return "refused"
        if epoch > self.epoch:
            self.last.clear()
        self.epoch = epoch
        self.last.append((sequence, end))
        self.log.append(name)
        return "written"

    def forget(self) -> None:
        self.epoch = -1
        self.last.clear()


class Model:
    """A queue, a leader, and requests between them that arrive in order or are lost."""

    def __init__(self) -> None:
        self.queue = PartitionQueue(TopicStatus("t", 16384), 0)
        self.queue.sequences.adopt_producer_id(1, 0)
        self.leader = Leader()
        self.wire: deque[tuple[Any, int, BatchIdentity]] = deque()
        self.stragglers: list[tuple[int, BatchIdentity, int]] = []
        self.names = itertools.count()
        self.acknowledged: list[int] = []
        self.expired: list[int] = []

    def add(self, count: int) -> None:
        batch: Any = Batch(self.queue, next(self.names), count)
        self.queue.closed.append(batch)

    def send(self) -> None:
        batch: Any = self.queue.next_batch(False, 5)
        if batch is None:
            return
        sequences = self.queue.sequences
        if sequences.state is SequenceState.RESTARTING:
            sequences.begin_next_epoch()
        if batch.identity is None:
            batch.set_identity(sequences.assign_identity(batch.count))
        self.queue.mark_in_flight(batch)
        self.wire.append((batch, batch.attempt, batch.identity))

    def arrive(self, *, error: bool = False) -> None:
        """Deliver the next request to the leader, which answers it.

        With `error`, the leader refuses it with a temporary error.
        """
        if not self.wire:
            return
        batch, attempt, identity = self.wire.popleft()
        answer = "error" if error else self.leader.append(batch.name, identity, batch.count)
        if batch.attempt != attempt or batch.name in self.expired:
            return
        if answer == "written":
            self.queue.remove_batch(batch, written=True)
            self.acknowledged.append(batch.name)
        else:
            assert answer != "fenced", "a sequence of an epoch that has ended"
            self.queue.requeue_batch(batch, refused=answer == "refused")

    def disconnect(self, written: int, straggling: bool) -> None:
        """Break the connection.

        The leader writes the first `written` requests before that. With `straggling`, it may
        write the others much later.
        """
        broken, self.wire = self.wire, deque()
        for index, (batch, attempt, identity) in enumerate(broken):
            if index < written:
                self.leader.append(batch.name, identity, batch.count)
            elif straggling:
                self.stragglers.append((batch.name, identity, batch.count))
            if batch.attempt == attempt and batch.name not in self.expired:
                self.queue.requeue_batch(batch)

    def straggle(self) -> None:
        for name, identity, count in self.stragglers:
            self.leader.append(name, identity, count)
        self.stragglers.clear()

    def expire(self) -> None:
        batch: Any = self.queue.oldest_batch()
        if batch is not None:
            batch.attempt += 1
            self.expired.append(batch.name)
            self.queue.remove_batch(batch)

    def finish(self) -> None:
        for _ in range(1000):
            self.send()
            self.arrive()
        assert self.queue.oldest_batch() is None, self.queue.sequences.state


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3)),
        st.tuples(st.just("send")),
        st.tuples(st.just("arrive")),
        st.tuples(st.just("error")),
        st.tuples(st.just("disconnect"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("abandon")),
        st.tuples(st.just("expire")),
    ),
    max_size=60,
)


@pytest.mark.fault(2, 3, 8)
@settings(max_examples=600 if IS_WHOLE else 150, deadline=None)
@given(ACTIONS, st.booleans())
def test_nothing_acknowledged_is_lost_twice_or_out_of_order(
    actions: list[tuple[Any, ...]], straggle: bool
) -> None:
    model = Model()
    for kind, *arguments in actions:
        match kind:
            case "add":
                model.add(*arguments)
                model.send()
            case "error":
                model.arrive(error=True)
            case "abandon":
                model.queue.ignore_responses()
            case _:
                getattr(model, kind)(*arguments)
    model.finish()
    if straggle:
        model.straggle()
    log = model.leader.log
    assert len(set(log)) == len(log), f"a batch was written twice: {log}"
    assert set(model.acknowledged) <= set(log), (
        f"acknowledged batches are missing: {set(model.acknowledged) - set(log)}"
    )
    acknowledged = [name for name in log if name in set(model.acknowledged)]
    assert acknowledged == sorted(acknowledged), f"the batches are out of order: {log}"
    assert {*model.acknowledged, *model.expired} >= set(range(next(model.names)))


def in_flight(model: Model) -> list[tuple[int, BatchIdentity]]:
    return [(batch.name, identity) for batch, _, identity in model.wire]


def test_a_queue_sends_the_same_numbers_again_when_it_returns_to_a_topic() -> None:
    """After metadata was wrong about the topic for a time, each batch is written exactly once."""
    model = Model()
    queue = model.queue
    queue.rename_incarnation("true")
    for count in (2, 1, 3):
        model.add(count)
        model.send()
        model.arrive()
    model.add(1)
    model.send()
    before = in_flight(model)
    queue.change_incarnation("wrong")
    assert queue.changing, "the queue waits for the batches in flight"
    model.disconnect(1, False)
    assert queue.incarnation == "wrong"
    assert queue.sequences.producer_id == -1
    queue.sequences.adopt_producer_id(2, 0)
    model.add(1)
    model.send()
    assert in_flight(model) == [(3, (2, 0, 0))]
    model.arrive(error=True)
    queue.change_incarnation("true")
    model.send()
    assert in_flight(model) == before
    model.finish()
    assert model.leader.log == [0, 1, 2, 3, 4]


def test_a_queue_stays_where_it_is_when_the_topic_changes_back_in_time() -> None:
    model = Model()
    queue = model.queue
    queue.rename_incarnation("true")
    model.add(1)
    model.send()
    queue.change_incarnation("wrong")
    queue.change_incarnation("true")
    model.finish()
    assert queue.incarnation == "true"
    assert queue.sequences.producer_id == 1
    assert model.leader.log == [0]


@pytest.mark.parametrize("by_name", [False, True])
def test_a_batch_is_unknowable_when_its_request_named_a_recreated_topic(by_name: bool) -> None:
    model = Model()
    queue = model.queue
    queue.rename_incarnation("old")
    model.add(1)
    model.send()
    (batch,) = queue.sent
    batch.builder.append(0, None, b"x")
    batch.encode_for_request(0.0, by_name, False)
    batch.note_unknown()
    queue.change_incarnation("new")
    model.disconnect(0, False)
    assert batch.in_log is (InLog.UNKNOWABLE if by_name else InLog.NO)
    assert batch.identity is None


@pytest.mark.fault(9)
@settings(max_examples=200 if IS_WHOLE else 100, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=8), st.integers(0, 8))
def test_a_leader_that_forgets_the_producer(counts: list[int], when: int) -> None:
    model = Model()
    for index, count in enumerate(counts):
        model.add(count)
        model.send()
        if index == when:
            model.leader.forget()
        if index % 2:
            model.arrive()
    model.finish()
    assert model.leader.log == list(range(len(counts)))
    assert model.acknowledged == model.leader.log
