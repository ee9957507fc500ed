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

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aiokclient.record.batch import RecordBatch
from aiokclient.record.control import ControlType
from aiokclient.testing.broker.codes import Code

SEQUENCES = 1 << 31
REMEMBERED = 5
BUMPS_AT = 2
"""The level of transaction.version from which each end of a transaction increases the epoch."""
_MARKER = struct.Struct(">hi")


class WrittenBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + (self.last_sequence - self.first_sequence) % SEQUENCES


class AbortedTxn(NamedTuple):
    """An aborted transaction. `last_stable_offset` is the one that the log had after its end."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerState:
    """The state of one producer in one partition.

    `coordinator_epoch` is that of the last marker, or -1. `timestamp` is that of the last batch or
    marker.
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "timestamp")

    def __init__(self, epoch: int, coordinator_epoch: int = -1) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.timestamp = -1
        # Kafka recognizes repeats of the last five batches, so idempotent producers have at most
        # five requests in flight.
        self.batches: deque[WrittenBatch] = deque(maxlen=REMEMBERED)

    @property
    def last_sequence(self) -> int:
        """The last sequence in this epoch, or -1 if the epoch has no batch yet."""
        return self.batches[-1].last_sequence if self.batches else -1


class Verification:
    """A check, by the coordinator, that a partition belongs to a producer's open transaction.

    It lasts from the first check of a batch until a batch is appended. Until then, a batch is
    refused if its sequence is higher than the lowest sequence that was checked: if it were
    appended first, the batch with the lowest sequence could no longer be appended.
    """

    __slots__ = ("bumps", "epoch", "lowest")

    def __init__(self, sequence: int, epoch: int, bumps: bool) -> None:
        self.lowest = sequence
        self.epoch = epoch
        self.bumps = bumps
        """Whether the client uses level 2 of transaction.version."""

    def add_batch(self, sequence: int, epoch: int) -> None:
        """Include another batch in the check."""
        if epoch > self.epoch:
            self.epoch, self.lowest = epoch, sequence
        elif epoch == self.epoch:
            self.lowest = min(self.lowest, sequence)


TRUSTED = Verification(0, -1, False)
"""A substitute for the verification of a batch that a test appends without a coordinator."""


class ProducerStates:
    """The states of all producers in one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, ProducerState] = {}
        self._open: dict[int, int] = {}
        self._verifications: dict[int, Verification] = {}
        self.aborted: list[AbortedTxn] = []

    def __iter__(self) -> Iterator[tuple[int, ProducerState]]:
        return iter(self._producers.items())

    def forget_all(self) -> None:
        """Forget all producers, as if their batches had been removed with the oldest segments."""
        self._producers.clear()

    # -- checking --------------------------------------------------------------------------

    def find_duplicate(self, batch: RecordBatch) -> WrittenBatch | None:
        """Return the earlier copy of a batch, if it is one of the producer's last five."""
        state = self._producers.get(batch.producer_id)
        if state is None or state.epoch != batch.producer_epoch:
            return None
        key = batch.base_sequence, batch.last_sequence
        return next((each for each in state.batches if each[:2] == key), None)

    def check_batch(self, batch: RecordBatch) -> Code:
        """Return the error code if a batch that is no duplicate may not be appended, or NONE."""
        state = self._producers.get(batch.producer_id)
        if state is not None and batch.producer_epoch < state.epoch:
            return Code.INVALID_PRODUCER_EPOCH
        if not self._is_in_order(batch, state):
            return Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        if batch.producer_id in self._open and not batch.is_transactional:
            return Code.INVALID_TXN_STATE
        return Code.NONE

    def _is_in_order(self, batch: RecordBatch, state: ProducerState | None) -> bool:
        first = batch.base_sequence
        verification = self._verifications.get(batch.producer_id)
        if verification is not None:
            unknown = state is None or not state.batches
            if first > verification.lowest or (verification.bumps and first and unknown):
                return False
        if state is None:
            return True
        if batch.producer_epoch > state.epoch or not state.batches:
            # A new epoch begins at sequence 0. So does an epoch in which only a marker was written.
            return first == 0
        return first == (state.last_sequence + 1) % SEQUENCES

    def check_verification(
        self, producer_id: int, epoch: int, verification: Verification | None
    ) -> Code:
        """Return the error code if a transactional batch may not be appended, or NONE.

        `verification` is what `begin_verification` returned before the coordinator was asked. It is
        no longer valid if a marker was written since then.
        """
        if self.is_open_in(producer_id, epoch):
            return Code.NONE
        if epoch < self.find_epoch(producer_id):
            return Code.INVALID_PRODUCER_EPOCH
        if verification is None or self._verifications.get(producer_id) is not verification:
            return Code.INVALID_TXN_STATE
        return Code.NONE

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, bumps: bool
    ) -> Verification | Code:
        """Return the verification that the coordinator must confirm before an append.

        Return NONE if the transaction is already open in this partition and needs no confirmation,
        or INVALID_PRODUCER_EPOCH if the epoch is older than that of the producer.
        """
        if epoch < self.find_epoch(producer_id):
            return Code.INVALID_PRODUCER_EPOCH
        if self.is_open_in(producer_id, epoch):
            return Code.NONE
        known = self._verifications.get(producer_id)
        if known is None:
            known = self._verifications[producer_id] = Verification(sequence, epoch, bumps)
        known.add_batch(sequence, epoch)
        return known

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, level: int
    ) -> Code:
        """Return the error code if a marker may not be written, or NONE.

        From level 2 of transaction.version on, the epoch of a marker is higher than that of the
        transaction's records.
        """
        state = self._producers.get(producer_id)
        if state is None:
            return Code.NONE
        if epoch < state.epoch or (epoch == state.epoch and level >= BUMPS_AT):
            return Code.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < state.coordinator_epoch:
            return Code.TRANSACTION_COORDINATOR_FENCED
        return Code.NONE

    # -- appending -------------------------------------------------------------------------

    def on_append(self, batch: RecordBatch, base_offset: int) -> None:
        """Record that a batch was appended at `base_offset`."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if producer_id < 0:
            return
        if batch.is_control:
            committed, coordinator_epoch = read_marker(batch)
            self.on_marker(
                producer_id, epoch, coordinator_epoch, base_offset, committed, batch.max_timestamp
            )
            return
        self.on_write(producer_id, epoch, base_offset, batch.max_timestamp, batch.is_transactional)
        self._producers[producer_id].batches.append(
            WrittenBatch(batch.base_sequence, batch.last_sequence, base_offset, batch.max_timestamp)
        )

    def on_write(
        self, producer_id: int, epoch: int, offset: int, timestamp: int, transactional: bool
    ) -> None:
        """Record that a producer wrote at `offset`."""
        state = self._producers.get(producer_id)
        if state is None or state.epoch != epoch:
            known = -1 if state is None else state.coordinator_epoch
            state = self._producers[producer_id] = ProducerState(epoch, known)
        state.timestamp = timestamp
        if transactional:
            self._open.setdefault(producer_id, offset)
            self._verifications.pop(producer_id, None)

    def on_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        offset: int,
        committed: bool,
        timestamp: int,
    ) -> None:
        """Record that a marker was written at `offset`."""
        state = self._producers.get(producer_id)
        if state is None or state.epoch != epoch:
            state = self._producers[producer_id] = ProducerState(epoch)
        state.coordinator_epoch, state.timestamp = coordinator_epoch, timestamp
        first = self._open.pop(producer_id, None)
        if first is not None and not committed:
            stable = self.find_first_open(offset + 1)
            self.aborted.append(AbortedTxn(producer_id, first, offset, stable))
        pending = self._verifications.get(producer_id)
        if pending is not None and not (pending.bumps and pending.epoch == epoch):
            # Otherwise, the verification belongs to the next transaction, and stays valid.
            del self._verifications[producer_id]

    # -- reading ---------------------------------------------------------------------------

    def find_first_open(self, otherwise: int) -> int:
        """Return the first offset of the oldest open transaction, or `otherwise`."""
        return min(self._open.values(), default=otherwise)

    def find_open_since(self, producer_id: int) -> int:
        """Return the first offset of a producer's open transaction, or -1."""
        return self._open.get(producer_id, -1)

    def is_open_in(self, producer_id: int, epoch: int) -> bool:
        """Return whether a transaction is open that the producer began in this epoch."""
        return producer_id in self._open and self.find_epoch(producer_id) == epoch

    def find_epoch(self, producer_id: int) -> int:
        state = self._producers.get(producer_id)
        return -1 if state is None else state.epoch

    def find_aborted(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions that have batches between offsets `start` and `end`."""
        found = []
        for each in self.aborted:
            if each.last_offset >= start and each.first_offset < end:
                found.append(each)
            if each.last_stable_offset >= end:
                break
        return found

    def forget_aborted(self, gone: Iterable[AbortedTxn]) -> None:
        """Forget aborted transactions of which no batch is left."""
        forgotten = set(gone)
        self.aborted = [each for each in self.aborted if each not in forgotten]

    def remove_aborted_before(self, offset: int) -> None:
        """Remove aborted transactions before the log start offset."""
        if self.aborted and self.aborted[0].last_offset < offset:
            self.aborted = [each for each in self.aborted if each.last_offset >= offset]


def read_marker(batch: RecordBatch) -> tuple[bool, int]:
    """Return whether the marker in a control batch commits, and its coordinator epoch."""
    committed = batch.control_type() == ControlType.COMMIT
    value = batch.rows(check_crcs=False)[0][3] or b""
    return committed, _MARKER.unpack_from(value)[1] if len(value) >= _MARKER.size else 0
