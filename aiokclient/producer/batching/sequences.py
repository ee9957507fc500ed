"""Sequence numbers: what keeps a partition's records in order and unique (KIP-98, KIP-360).

Theory of operation. Every batch carries (producer id, epoch, first sequence). The leader of a
partition appends a batch only if it follows the one before it, answers a batch that it has among
its last five as if it had just written it, and refuses any other. So up to five batches may be
under way at once, and a batch whose fate is unknown may be sent again as it is: it lands once.

What may never happen is that a batch gets *other* numbers while its former ones may still land.
So numbers are given once, when a batch first leaves, and taken back only when the partition is
calm (none of its batches is under way) and the lowest batch that is left was refused for want of
its predecessor, which proves that neither it nor any after it was written. That is the case when

- an earlier batch was lost: it expired, or failed for good, after it had its numbers;
- the broker lost its memory of this producer.

Then the partition restarts: the next epoch of the same producer id, sequences from 0 (KIP-360). A
broker accepts that from any state, and a straggler of the old epoch, still in some socket, is
fenced. Epochs belong to partitions here: a broker keeps them by partition, so the partitions of an
idempotent producer need not agree. Past the last epoch a partition takes a new producer id.

The next epoch is safe only while the producer id is this producer's alone. A cluster that was wiped
gives the same ids to other producers, and two producers with one id and epoch get each other's
acknowledgements. So whatever shows that the leader's state is not what this producer left there
makes the sequence state *void*, and the partition takes a new producer id (see `ids`). The signs:

- INVALID_PRODUCER_EPOCH and PRODUCER_FENCED: another producer has a newer epoch of the same id;
- UNKNOWN_PRODUCER_ID: the state of this producer is gone;
- OUT_OF_ORDER_SEQUENCE_NUMBER that nothing explains (see `PartitionSequences.explains`);
- DUPLICATE_SEQUENCE_NUMBER for a batch that was never sent before;
- an acknowledgement whose offset is lower than that of an earlier one, where requests name topics
  by their names.

A batch that was never sent cannot be a duplicate, whatever the leader has acknowledged before: no
other batch of this producer had the same numbers, so the leader has them from another producer.
(Java and librdkafka take every duplicate for a success; librdkafka's source names that as an
error.) For a batch that may have been written before it is an acknowledgement without an offset, as
brokers before 1.0 give it. A batch that was sent as a whole and then split may have been written as
a whole: then each part is a duplicate in turn, and the answer for one part says nothing about the
next (see `Outcomes`).

If the lowest batch was not refused, the partition goes on: its batches are sent again in order,
with their numbers. If all that was numbered is lost, and the last of it was not acknowledged, the
next number is uncertain, and the partition restarts as well.

A leader that knows nothing of a producer accepts any first number. So the first batch of an epoch,
and the first one after a calm, travels alone: were it refused for another reason and the second
one taken, the order would be lost.

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

__all__ = ["CODES", "MAX_EPOCH", "Event", "Numbers", "PartitionSequences", "State", "advance"]

MAX_EPOCH = 0x7FFF
MODULUS = 1 << 31


class State(Enum):
    """What the partition may send."""

    # Enum's own is a Python function, which would be called for each batch.
    __hash__ = object.__hash__

    FLOWING = auto()
    """Batches leave, numbered one after the other."""
    CALMING = auto()
    """Something came back or was lost: nothing leaves until nothing is under way."""
    RESTARTING = auto()
    """Calm, and the numbers are void: the next epoch comes first."""


class Event(Enum):
    """What can happen to numbered batches."""

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
    CALM_IN_ORDER = auto()
    """Nothing is under way; what is left can go again as it is."""
    CALM_WITH_GAP = auto()
    """Nothing is under way; what is left cannot follow what the leader has."""
    RESTARTED = auto()
    """There is a new epoch."""


_F, _C, _R = State.FLOWING, State.CALMING, State.RESTARTING

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (_F, Event.WRITTEN): _F,
    (_F, Event.RETURNED): _C,
    (_F, Event.REFUSED): _C,
    (_F, Event.FOREIGN): _C,
    (_F, Event.LOST): _C,
    (_F, Event.RECREATED): _C,
    (_C, Event.WRITTEN): _C,
    (_C, Event.RETURNED): _C,
    (_C, Event.REFUSED): _C,
    (_C, Event.FOREIGN): _C,
    (_C, Event.LOST): _C,
    (_C, Event.RECREATED): _C,
    (_C, Event.CALM_IN_ORDER): _F,
    (_C, Event.CALM_WITH_GAP): _R,
    (_R, Event.LOST): _R,
    (_R, Event.RECREATED): _R,
    (_R, Event.RESTARTED): _F,
}


def _code(error: type[KafkaError]) -> int:
    assert error.code is not None
    return error.code


CODES: Mapping[int, Event] = {
    _code(DuplicateSequenceError): Event.WRITTEN,
    _code(OutOfOrderSequenceError): Event.REFUSED,
    _code(UnknownProducerIdError): Event.FOREIGN,
    _code(InvalidProducerEpochError): Event.FOREIGN,
    _code(ProducerFencedError): Event.FOREIGN,
}
"""The codes of a produce response that are about sequences; all others are for the policy."""


class Numbers(NamedTuple):
    """What a batch is numbered with."""

    producer_id: int
    epoch: int
    sequence: int


def advance(sequence: int, count: int) -> int:
    """The sequence `count` records later; it wraps to 0 after 2**31 - 1."""
    return (sequence + count) % MODULUS


class PartitionSequences:
    """The numbers of one partition."""

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
        """The leader has taken a batch since these numbers began, or since the last calm."""
        self.trusted = False
        """The state is this producer's: the numbers are new, or the leader has taken a batch since
        its connection was made."""
        self.void = False
        """The leader's state is not this producer's: only a new producer id will do."""
        self.state = State.FLOWING

    def step(self, event: Event) -> None:
        """Take note of an event; a pair that is not in the table is a bug and raises KeyError."""
        self.state = TRANSITIONS[self.state, event]
        if event is Event.FOREIGN:
            self.void = True

    def assign(self, count: int) -> Numbers:
        """Numbers for the next batch, of `count` records."""
        numbers = Numbers(self.producer_id, self.epoch, self.next)
        self.next = advance(self.next, count)
        return numbers

    def written(self, numbers: Numbers, count: int, base_offset: int = -1) -> None:
        """The leader has the batch with these numbers.

        A `base_offset` other than -1 is compared with that of the batches before.
        """
        if numbers.producer_id != self.producer_id or numbers.epoch != self.epoch:
            return
        self.proven = self.trusted = True
        end = advance(numbers.sequence, count)
        if (end - self.acknowledged) % MODULUS < MODULUS // 2:
            self.acknowledged = end
        if base_offset >= 0:
            if base_offset < self.end_offset:
                # The log was cut or is another one: what the leader knows of this producer may
                # not be what it was told.
                self.void = True
            self.end_offset = base_offset + count

    def explains(self, numbers: Numbers, *, by_name: bool) -> bool:
        """Return whether these numbers may be out of order for a leader of this producer's state.

        That is so when an earlier batch was lost, or when the log was cut and the state is known
        to be this producer's: the request named the topic by its id (not `by_name`), or the leader
        has acknowledged a batch on this connection. It is never so for sequence 0 of an epoch.
        """
        if numbers.sequence != self.acknowledged:
            return True
        return (self.trusted or not by_name) and numbers.sequence != 0

    def calm(self, *, left: bool, head_refused: bool) -> State:
        """Nothing is under way any more; decide how to go on.

        `left`: numbered batches wait to be sent again; `head_refused`: the answer to the lowest of
        them was a refusal.
        """
        if self.state is not State.CALMING:
            return self.state
        self.proven = False
        unnumbered = self.producer_id < 0
        uncertain = head_refused if left else self.next != self.acknowledged
        if uncertain and not unnumbered:
            self.step(Event.CALM_WITH_GAP)
        else:
            self.step(Event.CALM_IN_ORDER)
        return self.state

    @property
    def single(self) -> bool:
        """Only one batch may be under way."""
        return self.producer_id >= 0 and not self.proven

    @property
    def exhausted(self) -> bool:
        """There is no next epoch, or no producer id at all: a new one has to be asked for."""
        return self.producer_id < 0 or self.epoch >= MAX_EPOCH

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
        if self.state is State.RESTARTING:
            self.step(Event.RESTARTED)
