"""The producers of one partition, with their sequences and transactions.

An idempotent producer numbers the records that it writes to a partition. For each producer, the log
stores the epoch and the last five batches. A repeated batch is recognized and answered with the
offset that it already has, a gap is refused, and an older epoch is fenced (KIP-98, KIP-360). A
producer that is not known may begin with any sequence.

A transaction is open from its first batch in the partition to its marker. Readers of committed data
stop at the first open transaction (the last stable offset) and receive the list of producers whose
batches they must skip.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from aiokclient.record.batch import RecordBatch
from aiokclient.testing.broker.codes import Code

SEQUENCES = 1 << 31
REMEMBERED = 5
ABORT, COMMIT = 0, 1


class WrittenBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction. `last_stable_offset` is that of the log at the transaction's end."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerState:
    """The state of one producer in one partition."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=REMEMBERED)


class ProducerStates:
    """The states of all producers in one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, ProducerState] = {}
        self._open: dict[int, int] = {}
        self.aborted: list[AbortedTransaction] = []

    def forget(self) -> None:
        """Forget all producers, as if their batches had been removed with the oldest segments."""
        self._producers.clear()

    def duplicate(self, batch: RecordBatch) -> WrittenBatch | None:
        """Return the earlier copy of a batch, if it is one of the producer's last five."""
        state = self._producers.get(batch.producer_id)
        if state is None or state.epoch != batch.producer_epoch:
            return None
        key = batch.base_sequence, batch.last_sequence
        return next((each for each in state.batches if each[:2] == key), None)

    def check(self, batch: RecordBatch) -> Code:
        """Return an error code that says whether a batch, not a duplicate, may be appended."""
        state = self._producers.get(batch.producer_id)
        if state is None:
            return Code.NONE
        if batch.producer_epoch < state.epoch:
            return Code.INVALID_PRODUCER_EPOCH
        if batch.producer_id in self._open and not batch.is_transactional:
            return Code.INVALID_TXN_STATE
        if batch.producer_epoch > state.epoch:
            expected = 0
        elif state.batches:
            expected = (state.batches[-1].last_sequence + 1) % SEQUENCES
        else:
            # The producer is known by a marker alone, so its batches in this epoch begin at
            # sequence 0.
            expected = 0
        if batch.base_sequence != expected:
            return Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        return Code.NONE

    def appended(self, batch: RecordBatch, base_offset: int) -> None:
        """Record that a batch was appended at `base_offset`."""
        if batch.producer_id < 0:
            return
        state = self._producers.get(batch.producer_id)
        if state is None or state.epoch != batch.producer_epoch:
            state = self._producers[batch.producer_id] = ProducerState(batch.producer_epoch)
        if batch.is_control:
            self._ended(batch.producer_id, base_offset, batch.control_type())
            return
        if batch.is_transactional:
            self._open.setdefault(batch.producer_id, base_offset)
        state.batches.append(
            WrittenBatch(batch.base_sequence, batch.last_sequence, base_offset, batch.max_timestamp)
        )

    def _ended(self, producer_id: int, offset: int, outcome: int) -> None:
        first = self._open.pop(producer_id, None)
        if first is not None and outcome == ABORT:
            stable = self.first_open(offset + 1)
            self.aborted.append(AbortedTransaction(producer_id, first, offset, stable))

    def first_open(self, otherwise: int) -> int:
        """Return the first offset of the oldest open transaction, or `otherwise`."""
        return min(self._open.values(), default=otherwise)

    def is_open(self, producer_id: int) -> bool:
        return producer_id in self._open

    def epoch_of(self, producer_id: int) -> int:
        state = self._producers.get(producer_id)
        return -1 if state is None else state.epoch

    def aborted_in(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have batches between offsets `start` and `end`."""
        found = []
        for each in self.aborted:
            if each.last_offset >= start and each.first_offset < end:
                found.append(each)
            if each.last_stable_offset >= end:
                break
        return found

    def start_at(self, offset: int) -> None:
        """Remove aborted transactions before the log start offset."""
        if self.aborted and self.aborted[0].last_offset < offset:
            self.aborted = [each for each in self.aborted if each.last_offset >= offset]
