"""Sequences: what keeps a partition's records in order and unique (KIP-98, KIP-360).

Theory of operation. Every batch carries its identity: producer id, epoch, and first sequence. The
leader of a partition appends a batch only if it follows the one before it. It acknowledges a batch
that it has among its last five as if it had just written it, and refuses any other. So up to five
batches may be in flight, and a batch whose outcome is unknown may be sent again with the same
identity: it is written once.

A batch must never get *another* identity while a request with the former one may still be written.
So identities are given once, when a batch is first sent. They are taken back only when the
partition is drained (none of its batches is in flight) and the lowest batch that is left was
refused because its predecessor is missing, which proves that neither it nor any later one was
written. That is the case when

- an earlier batch was lost: it expired, or failed permanently, after it had its identity;
- the broker lost its memory of this producer.

Then the partition restarts: the next epoch of the same producer id, sequences from 0 (KIP-360). A
broker accepts that from any state, and fences late requests of the old epoch that are still in a
socket. Epochs belong to partitions here: a broker keeps them by partition, so the partitions of an
idempotent producer need not agree. After the last epoch a partition takes a new producer id.

The next epoch is safe only while the producer id is this producer's alone. A cluster that was wiped
gives the same ids to other producers, and two producers with one id and epoch get each other's
acknowledgements. So whatever shows that the leader's state is not what this producer left there
makes the sequence state *void*, and the partition takes a new producer id (see `producer_ids`). The
signs:

- INVALID_PRODUCER_EPOCH and PRODUCER_FENCED: another producer has a newer epoch of the same id;
- UNKNOWN_PRODUCER_ID: the state of this producer is gone;
- OUT_OF_ORDER_SEQUENCE_NUMBER that nothing explains (see `PartitionSequences.explains`);
- DUPLICATE_SEQUENCE_NUMBER for a batch that was never sent before;
- an acknowledgement whose offset is lower than that of an earlier one, where requests name topics
  by their names.

A batch that was never sent cannot be a duplicate, whatever the leader has acknowledged before: no
other batch of this producer had the same identity, so the leader has it from another producer.
(Java and librdkafka take every duplicate for a success; librdkafka's source names that as an
error.) For a batch that may have been written before, it is an acknowledgement without an offset,
as brokers before 1.0 give it. A batch that was sent as a whole and then split may have been written
as a whole: then each part is a duplicate in turn, and the response for one part says nothing about
the next (see `responses`).

If the lowest batch was not refused, the partition goes on: its batches are sent again in order,
with their identities. If all batches that had one are lost, and the last of them was not
acknowledged, the next sequence is uncertain, and the partition restarts as well.

A leader that knows nothing of a producer accepts any first sequence. So the first batch of an
epoch, and the first one after the partition was drained, is sent alone: if it were refused for
another reason and the second one accepted, the order would be lost.

A topic that was created again under its name has a history of its own: the partition begins there
with new sequences and a new producer id, and keeps the old ones in case the metadata was wrong (see
`PartitionQueue.incarnate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from aiokclient.errors import (
    DuplicateSequenceError,
    InvalidProducerEpochError,
    KafkaError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerIdError,
)

__all__ = [
    "CODES",
    "MAX_EPOCH",
    "SequenceEvent",
    "BatchIdentity",
    "PartitionSequences",
    "SequenceState",
    "advance",
]

MAX_EPOCH = 0x7FFF
MODULUS = 1 << 31


class SequenceState(Enum):
    """What the partition may send."""

    # Enum's own is a Python function, which would be called for each batch.
    __hash__ = object.__hash__

    FLOWING = auto()
    """Batches are sent, with consecutive sequences."""
    DRAINING = auto()
    """A batch came back or was lost: nothing is sent until nothing is in flight."""
    RESTARTING = auto()
    """Drained, and the sequences cannot go on: the next epoch comes first."""


class SequenceEvent(Enum):
    """What can happen to batches with a sequence."""

    # Enum's own is a Python function, which would be called for each batch.
    __hash__ = object.__hash__

    WRITTEN = auto()
    """The leader has the batch, now or from an earlier attempt."""
    RETURNED = auto()
    """The batch is to be sent again; whether it was written may be unknown."""
    REFUSED = auto()
    """The batch does not follow what the leader has: it was not written."""
    FOREIGN = auto()
    """The leader's state is not this producer's: the batch was not written."""
    LOST = auto()
    """The batch got its outcome without being acknowledged, and will not be sent again."""
    RECREATED = auto()
    """The topic is another one under the same name."""
    DRAINED_IN_ORDER = auto()
    """Nothing is in flight; the batches that are left can be sent again as they are."""
    DRAINED_WITH_GAP = auto()
    """Nothing is in flight; the batches that are left cannot follow what the leader has."""
    RESTARTED = auto()
    """There is a new epoch."""


_F, _D, _R = SequenceState.FLOWING, SequenceState.DRAINING, SequenceState.RESTARTING

TRANSITIONS: Mapping[tuple[SequenceState, SequenceEvent], SequenceState] = {
    (_F, SequenceEvent.WRITTEN): _F,
    (_F, SequenceEvent.RETURNED): _D,
    (_F, SequenceEvent.REFUSED): _D,
    (_F, SequenceEvent.FOREIGN): _D,
    (_F, SequenceEvent.LOST): _D,
    (_F, SequenceEvent.RECREATED): _D,
    (_D, SequenceEvent.WRITTEN): _D,
    (_D, SequenceEvent.RETURNED): _D,
    (_D, SequenceEvent.REFUSED): _D,
    (_D, SequenceEvent.FOREIGN): _D,
    (_D, SequenceEvent.LOST): _D,
    (_D, SequenceEvent.RECREATED): _D,
    (_D, SequenceEvent.DRAINED_IN_ORDER): _F,
    (_D, SequenceEvent.DRAINED_WITH_GAP): _R,
    (_R, SequenceEvent.LOST): _R,
    (_R, SequenceEvent.RECREATED): _R,
    (_R, SequenceEvent.RESTARTED): _F,
}


def _code(error: type[KafkaError]) -> int:
    assert error.code is not None
    return error.code


CODES: Mapping[int, SequenceEvent] = {
    _code(DuplicateSequenceError): SequenceEvent.WRITTEN,
    _code(OutOfOrderSequenceError): SequenceEvent.REFUSED,
    _code(UnknownProducerIdError): SequenceEvent.FOREIGN,
    _code(InvalidProducerEpochError): SequenceEvent.FOREIGN,
    _code(ProducerFencedError): SequenceEvent.FOREIGN,
}
"""The codes of a produce response that are about sequences; all others are for the policy."""


class BatchIdentity(NamedTuple):
    """What identifies a batch to the leader."""

    producer_id: int
    epoch: int
    sequence: int


def advance(sequence: int, count: int) -> int:
    """Return the sequence `count` records later; it wraps to 0 after 2**31 - 1."""
    return (sequence + count) % MODULUS


class PartitionSequences:
    """The sequences of one partition."""

    __slots__ = (
        "acknowledged",
        "end_offset",
        "epoch",
        "generation",
        "next",
        "producer_id",
        "proven",
        "state",
        "trusted",
        "void",
    )

    def __init__(self) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.generation = 0
        """The generation of the producer id; see `ProducerIds`."""
        self.next = 0
        self.acknowledged = 0
        """The sequence after the last one that is known to be written."""
        self.end_offset = 0
        """The offset after the last record that is known to be written."""
        self.proven = False
        """Whether the leader has taken a batch since this epoch began or was last drained."""
        self.trusted = False
        """Whether the leader's state is this producer's: the epoch is new, or the leader has taken
        a batch since its connection was made."""
        self.void = False
        """Whether the leader's state is another producer's, so that a new producer id is needed."""
        self.state = SequenceState.FLOWING

    def step(self, event: SequenceEvent) -> None:
        """Take note of an event. A pair that is not in the table is a bug and raises KeyError."""
        self.state = TRANSITIONS[self.state, event]
        if event is SequenceEvent.FOREIGN:
            self.void = True

    def assign(self, count: int) -> BatchIdentity:
        """Return the identity of the next batch, of `count` records."""
        identity = BatchIdentity(self.producer_id, self.epoch, self.next)
        self.next = advance(self.next, count)
        return identity

    def written(self, identity: BatchIdentity, count: int, base_offset: int = -1) -> None:
        """Note that the leader has the batch with this identity.

        A `base_offset` other than -1 is compared with that of the batches before.
        """
        if identity.producer_id != self.producer_id or identity.epoch != self.epoch:
            return
        self.proven = self.trusted = True
        end = advance(identity.sequence, count)
        if (end - self.acknowledged) % MODULUS < MODULUS // 2:
            self.acknowledged = end
        if base_offset >= 0:
            if base_offset < self.end_offset:
                # The log was truncated, or is another one: the leader may not have this producer's
                # state.
                self.void = True
            self.end_offset = base_offset + count

    def explains(self, identity: BatchIdentity, *, by_name: bool) -> bool:
        """Return whether a leader with this producer's state may call the sequence out of order.

        That is so when an earlier batch was lost, or when the log was cut and the state is known
        to be this producer's: the request named the topic by its id (not `by_name`), or the leader
        has acknowledged a batch on this connection. It is never so for sequence 0 of an epoch.
        """
        if identity.sequence != self.acknowledged:
            return True
        return (self.trusted or not by_name) and identity.sequence != 0

    def drained(self, *, left: bool, head_refused: bool) -> SequenceState:
        """Decide how to go on, once nothing is in flight.

        `left`: batches with a sequence wait to be sent again. `head_refused`: the lowest of them
        was refused.
        """
        if self.state is not SequenceState.DRAINING:
            return self.state
        self.proven = False
        without_id = self.producer_id < 0
        uncertain = head_refused if left else self.next != self.acknowledged
        if uncertain and not without_id:
            self.step(SequenceEvent.DRAINED_WITH_GAP)
        else:
            self.step(SequenceEvent.DRAINED_IN_ORDER)
        return self.state

    @property
    def single(self) -> bool:
        """Whether only one batch may be in flight."""
        return self.producer_id >= 0 and not self.proven

    @property
    def exhausted(self) -> bool:
        """Whether a new producer id is needed: there is none, or no epoch is left."""
        return self.producer_id < 0 or self.epoch >= MAX_EPOCH

    def distrust(self) -> None:
        """Do not rely on the leader's state: the connection to it is another one from now on."""
        self.trusted = False

    def restart(self) -> None:
        """Begin the next epoch at sequence 0."""
        self._begin(self.producer_id, self.epoch + 1)

    def adopt(self, producer_id: int, epoch: int, generation: int = 0) -> None:
        """Begin with a producer id that the cluster gave."""
        self.generation = generation
        self.trusted = True
        self._begin(producer_id, epoch)

    def _begin(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.next = self.acknowledged = 0
        self.proven = self.void = False
        if self.state is SequenceState.RESTARTING:
            self.step(SequenceEvent.RESTARTED)
