"""The stages of a batch, as a table. Sans-IO.

A batch is in one of six stages:

                 closed             sent
        OPEN ──────────▶ QUEUED ──────────▶ IN_FLIGHT ◀──┐
         │                │  ▲                  │        │ sent again
         │                │  │ new identity     │ to be  │
         │                │  │ (restart)        ▼ retried│
         │                │  └──────────── BACKING_OFF ──┘
         │                ▼                     │
         └──────────▶ SPLIT or DONE ◀───────────┘

- An open batch accepts records. It is closed when it is full, when it has lingered, or when a task
  awaits it while its broker is idle.
- A queued batch accepts no more records. It has no sequence: it receives one when it is sent.
- A batch in flight waits for the response to its request. After the response, the batch is done, or
  it is sent again if the policy says so, or it is split because it was too large.
- A batch that backs off was sent and will be sent again, with the same producer id, epoch, and
  sequence, so that it is written once. It is sent only when nothing of its partition is in flight.
  If the partition restarts (see `sequences`), the batch is queued again and receives a new
  sequence. In the opposite direction, a queued batch backs off when its partition returns to a
  topic where the batch was sent before: it receives its former sequence.
- A batch is split when all its records have moved to other batches: to smaller ones, because the
  broker refused it as too large, or to the partitions of a topic that was not known before. The
  smaller batches of a batch that was refused begin as batches that back off, in its position and
  with its sequences.
- A batch is done when its records have an outcome: the leader acknowledged them, or they failed.
  A batch can become done in every stage except SPLIT, because its delivery timeout can pass in any
  of them.

SPLIT and DONE are final stages. A transition that is not in the table is a bug: it raises
`StageError`, which fails the producer rather than lose or repeat a record.

Only the methods of `ProducerBatch` change the stage. Which batch is sent next, and when, is up to
its queue (see `queue`). Whether a batch that was sent may be in the log is stored separately from
the stage (see `InLog`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class BatchStage(Enum):
    """A stage in the life of a batch."""

    # The __hash__ of Enum is a Python function, which would be slow for each batch.
    __hash__ = object.__hash__

    OPEN = "open"
    """The batch accepts records."""
    QUEUED = "queued"
    """The batch accepts no more records, and has no sequence yet."""
    IN_FLIGHT = "in flight"
    """The batch waits for the response to its request."""
    BACKING_OFF = "backing off"
    """The batch was sent, and waits to be sent again with the same sequence."""
    SPLIT = "split"
    """The batch has no records any more, because they have moved to other batches."""
    DONE = "done"
    """The batch was acknowledged, or it failed."""


class InLog(Enum):
    """The producer's knowledge of whether an earlier request has written the batch."""

    __hash__ = object.__hash__

    NO = "no"
    MAYBE = "maybe"
    """Unknown. If it was written, the leader recognizes its sequence as a repetition."""
    UNKNOWABLE = "unknowable"
    """Unknown, and the topic was replaced or the leader's state was lost since. The batch must not
    be sent again."""


_S = BatchStage

TRANSITIONS: Mapping[BatchStage, frozenset[BatchStage]] = {
    _S.OPEN: frozenset({_S.QUEUED, _S.SPLIT, _S.DONE}),
    _S.QUEUED: frozenset({_S.IN_FLIGHT, _S.BACKING_OFF, _S.SPLIT, _S.DONE}),
    _S.IN_FLIGHT: frozenset({_S.BACKING_OFF, _S.SPLIT, _S.DONE}),
    _S.BACKING_OFF: frozenset({_S.IN_FLIGHT, _S.QUEUED, _S.DONE}),
    _S.SPLIT: frozenset(),
    _S.DONE: frozenset(),
}
"""The permitted transitions: for each stage, the stages that may follow it."""

BEFORE: Mapping[BatchStage, frozenset[BatchStage]] = {
    stage: frozenset(before for before in BatchStage if stage in TRANSITIONS[before])
    for stage in BatchStage
}
"""The stages that each stage may follow: the same table, read in the other direction."""


class StageError(AssertionError):
    """A transition that the table does not permit: a bug in this library."""

    def __init__(self, current: BatchStage, wanted: BatchStage) -> None:
        super().__init__(f"A batch cannot go from {current.value!r} to {wanted.value!r}.")
        self.current = current
        self.wanted = wanted
