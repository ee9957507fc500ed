"""The sequences by which a partition's records stay in order and unique (KIP-98, KIP-360).

Every batch carries its identity: producer id, epoch, and first sequence. The leader of a partition
appends a batch only if its sequence directly follows the sequence of the previous batch. If a batch
is one of the last five that it appended, the leader acknowledges it again without writing it again.
It refuses any other batch. So up to five batches may be in flight, and a batch whose outcome is
unknown may be sent again with the same identity: it is written once.

A batch must never get *another* identity while a request with its former identity may still be
written. So a batch gets its identity when it is first sent, and keeps it. Identities are taken back
only when the partition is drained (none of its batches is in flight) and the leader refused the
remaining batch with the lowest sequence because its predecessor is missing. That proves that
neither this batch nor any later one was written. It happens when

- an earlier batch was lost: it expired, or failed permanently, after it had its identity;
- the broker lost its state of this producer.

Then the partition restarts with the next epoch of the same producer id, and with sequences from 0
(KIP-360). A broker accepts such a restart whatever it has stored about the producer, and fences
late requests of the old epoch that are still in a socket. Each partition has its own epoch: brokers
store epochs by partition, so the partitions of an idempotent producer may have different ones.
After the last possible epoch, a partition takes a new producer id.

The next epoch is safe only while no other producer uses the producer id. A cluster that was wiped
gives the same ids to other producers, and two producers with the same id and epoch would get each
other's acknowledgements. So if anything shows that the leader's state is not from this producer,
the sequence state becomes *void*, and the partition takes a new producer id (see `producer_ids`).
These are the signs:

- INVALID_PRODUCER_EPOCH and PRODUCER_FENCED: another producer has a newer epoch of the same id;
- UNKNOWN_PRODUCER_ID: the leader has no state of this producer;
- OUT_OF_ORDER_SEQUENCE_NUMBER that nothing explains (see `PartitionSequences.is_explained`);
- DUPLICATE_SEQUENCE_NUMBER for a batch that was never sent before;
- an acknowledgement with a lower offset than an earlier acknowledgement, if requests name topics by
  their names.

A batch that was never sent before cannot be a duplicate, whatever the leader has acknowledged
before: no other batch of this producer had the same identity, so the leader has it from another
producer. (Java's client and librdkafka treat every duplicate as a success; a comment in
librdkafka's source calls that an error.) For a batch that may have been written before,
DUPLICATE_SEQUENCE_NUMBER is an acknowledgement without an offset, as brokers before 1.0 send it. A
batch that was sent and then split may have been written as a whole. In that case each part is a
duplicate, and the response for one part says nothing about the next part (see `responses`).

If the leader did not refuse the batch with the lowest sequence, the partition continues: its
batches are sent again in order, with their identities. If all batches with an identity are lost,
and the last of them was not acknowledged, the next sequence is uncertain, and the partition also
restarts.

A leader that has no state of a producer accepts any first sequence. So the first batch of an epoch,
and the first one after the partition was drained, is sent alone: if it were refused for another
reason and the second batch accepted, the order would be lost.

A topic that was deleted and created again has a new log. The partition begins there with new
sequences and a new producer id. It keeps the old ones in case the metadata was wrong (see
`PartitionQueue.change_incarnation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeAlias

from aiokclient.errors import (
    DuplicateSequenceError,
    InvalidProducerEpochError,
    KafkaError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerIdError,
)

MAX_EPOCH = 0x7FFF
_MODULUS = 1 << 31
_HALF = _MODULUS // 2


class SequenceState(Enum):
    """The state of a partition's sequences, which determines what it may send."""

    # The __hash__ of Enum is a Python function, which would be slow for each batch.
    __hash__ = object.__hash__

    FLOWING = auto()
    """Batches are sent, with consecutive sequences."""
    DRAINING = auto()
    """A batch must be sent again, or was lost. No batch is sent until none is in flight."""
    RESTARTING = auto()
    """Nothing is in flight, and the sequences cannot continue. A new epoch must begin first."""


class SequenceEvent(Enum):
    """An event that changes the state of a partition's sequences."""

    # The __hash__ of Enum is a Python function, which would be slow for each batch.
    __hash__ = object.__hash__

    WRITTEN = auto()
    """The leader has written the batch, in this or in an earlier attempt."""
    RETURNED = auto()
    """The batch will be sent again. Whether it was already written may be unknown."""
    REFUSED = auto()
    """The leader refused the batch because an earlier one is missing. It was not written."""
    FOREIGN = auto()
    """The leader has the state of another producer. The batch was not written."""
    LOST = auto()
    """The batch got its outcome without being acknowledged, and will not be sent again."""
    RECREATED = auto()
    """The topic was replaced by another one with the same name."""
    DRAINED_IN_ORDER = auto()
    """Nothing is in flight, and the remaining batches can be sent with their identities."""
    DRAINED_WITH_GAP = auto()
    """Nothing is in flight, and the remaining batches need new sequences."""
    RESTARTED = auto()
    """A new epoch has begun."""


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


BatchIdentity: TypeAlias = tuple[int, int, int]
"""The producer id, epoch, and first sequence that identify a batch to the leader. It is not a named
tuple, because making one takes as long as five calls."""


def advance(sequence: int, count: int) -> int:
    """Return the sequence `count` records later; it wraps to 0 after 2**31 - 1."""
    return (sequence + count) % _MODULUS


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
        """Whether the leader has accepted a batch since this epoch began, or since the last time at
        which the partition was drained."""
        self.trusted = False
        """Whether the leader is known to have this producer's state: the epoch is new, or the
        leader has accepted a batch on the current connection."""
        self.void = False
        """Whether the leader has another producer's state, so that a new producer id is needed."""
        self.state = SequenceState.FLOWING

    def apply_event(self, event: SequenceEvent) -> None:
        """Change the state after an event.

        Raises KeyError if the table has no row for the state and the event, which is a bug.
        """
        self.state = TRANSITIONS[self.state, event]
        if event is SequenceEvent.FOREIGN:
            self.void = True

    def assign_identity(self, count: int) -> BatchIdentity:
        """Return the identity of the next batch, of `count` records."""
        sequence = self.next
        self.next = (sequence + count) % _MODULUS
        return self.producer_id, self.epoch, sequence

    def mark_written(self, identity: BatchIdentity, count: int, base_offset: int = -1) -> None:
        """Store that the leader has written the batch with this identity.

        If `base_offset` is known (not -1) and lower than the offset of an earlier batch, the
        leader's state is no longer trusted.
        """
        producer_id, epoch, sequence = identity
        if producer_id != self.producer_id or epoch != self.epoch:
            return
        self.proven = self.trusted = True
        end = (sequence + count) % _MODULUS
        if (end - self.acknowledged) % _MODULUS < _HALF:
            self.acknowledged = end
        if base_offset >= 0:
            if base_offset < self.end_offset:
                # The log was truncated or replaced, so the leader may have lost this producer's
                # state.
                self.void = True
            self.end_offset = base_offset + count

    def is_explained(self, identity: BatchIdentity, *, by_name: bool) -> bool:
        """Return whether OUT_OF_ORDER_SEQUENCE_NUMBER is explained by this producer's own state.

        An earlier batch that was lost explains it. A truncation of the log explains it if the
        leader's state is known to be from this producer: the request used the topic's id (not
        `by_name`), or the leader has acknowledged a batch on this connection. But a truncation does
        not explain it for sequence 0 of an epoch.
        """
        sequence = identity[2]
        if sequence != self.acknowledged:
            return True
        return (self.trusted or not by_name) and sequence != 0

    def on_drained(self, *, left: bool, head_refused: bool) -> SequenceState:
        """Return the state to enter now that nothing is in flight any more.

        `left` says that batches with a sequence wait to be sent again. `head_refused` says that the
        leader refused the first of them.
        """
        if self.state is not SequenceState.DRAINING:
            return self.state
        self.proven = False
        without_id = self.producer_id < 0
        uncertain = head_refused if left else self.next != self.acknowledged
        if uncertain and not without_id:
            self.apply_event(SequenceEvent.DRAINED_WITH_GAP)
        else:
            self.apply_event(SequenceEvent.DRAINED_IN_ORDER)
        return self.state

    @property
    def single(self) -> bool:
        """Whether only one batch may be in flight."""
        return self.producer_id >= 0 and not self.proven

    @property
    def exhausted(self) -> bool:
        """Whether a new producer id is needed: there is none, or its last epoch is in use."""
        return self.producer_id < 0 or self.epoch >= MAX_EPOCH

    def distrust_leader(self) -> None:
        """Stop relying on the leader's state, because the connection to the leader is a new one."""
        self.trusted = False

    def begin_next_epoch(self) -> None:
        """Begin the next epoch at sequence 0."""
        self._begin_epoch(self.producer_id, self.epoch + 1)

    def adopt_producer_id(self, producer_id: int, epoch: int, generation: int = 0) -> None:
        """Begin again with a producer id that the cluster returned."""
        self.generation = generation
        self.trusted = True
        self._begin_epoch(producer_id, epoch)

    def _begin_epoch(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.next = self.acknowledged = 0
        self.proven = self.void = False
        if self.state is SequenceState.RESTARTING:
            self.apply_event(SequenceEvent.RESTARTED)
