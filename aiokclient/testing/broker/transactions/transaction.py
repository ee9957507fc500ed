"""One transactional id: its producer id and epoch, and its current or last transaction.

The rules about producer ids and epochs are those of KIP-360 and KIP-890:

* InitProducerId increases the epoch. If the request contains a producer id and an epoch, it does so
  only if they are current. If they are those before the last increase, the request is a repetition,
  and the response is the same again. Otherwise the caller is fenced.
* At level 2, each end of a transaction increases the epoch, too, and repetitions are recognized in
  the same way.
* The last epoch that a producer receives is 32766. After that, it receives a new producer id with
  epoch 0.
* An abort by the coordinator increases the epoch, which fences the producer.

A coordinator stores each change before it applies it. At level 0, the stored format has no field
for the level of the client that made the change, so that a change by a client of level 2 fails with
UNSUPPORTED_VERSION. As in Kafka, the transactional id is then blocked: until a coordinator loads it
again, most requests are answered with CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.internal.records import TransactionSnapshot
from aiokclient.testing.broker.topics.producers import BUMPS_AT
from aiokclient.testing.broker.transactions.states import (
    ENDING,
    TABLE,
    CoordinatorTransactionEvent,
    CoordinatorTransactionState,
)
from aiokclient.types import TopicPartition

NO_PRODUCER = -1
NO_EPOCH = -1
_LAST_EPOCH = (1 << 15) - 1
_LAST_GIVEN = _LAST_EPOCH - 1
"""The last epoch that a producer receives. The next epoch is reserved for fencing."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


NO_PRODUCER_ID_AND_EPOCH = ProducerIdAndEpoch(NO_PRODUCER, NO_EPOCH)


class TransactionMetadata:
    """The state of one transactional id. Its methods raise Refused."""

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.state = CoordinatorTransactionState.EMPTY
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.timeout_ms = timeout_ms
        self.partitions: dict[TopicPartition, None] = {}
        """The transaction's partitions. While it is ending, only those that have no marker yet."""
        self.started_ms = -1
        self.updated_ms = -1
        self.client_level = 0
        """The level of transaction.version that the client used for the last change."""
        self.coordinator_epoch = 0
        """The number of times that a coordinator loaded this transactional id."""
        self.node: int | None = None
        """The id of the broker that has loaded this transactional id, or None."""
        self._last_epoch = NO_EPOCH
        self._previous_id = NO_PRODUCER
        self._next_id = NO_PRODUCER
        self._blocked = False
        self._written: TransactionSnapshot | None = None

    def __repr__(self) -> str:
        state = self.state.value
        return f"<{self.transactional_id!r} {self.producer_id}/{self.epoch} {state}>"

    @property
    def current(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def is_busy(self) -> bool:
        """Whether a change is in progress, so that other changes are refused."""
        return self._blocked or self.state in ENDING

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open or ending, so that the transactional id can expire."""
        return not self.is_busy and self.state is not CoordinatorTransactionState.ONGOING

    @property
    def is_committing(self) -> bool:
        """Whether the ending transaction is being committed."""
        return self.state is CoordinatorTransactionState.PREPARE_COMMIT

    def load(self) -> None:
        """Update the state when a coordinator has loaded the transactional id."""
        self.coordinator_epoch += 1
        self._blocked = False
        self._last_epoch = NO_EPOCH

    # -- InitProducerId --------------------------------------------------------------------

    def check_init(self, expected: ProducerIdAndEpoch | None) -> None:
        """Raise Refused if InitProducerId with this producer id and epoch is not allowed now."""
        self._check_idle()
        if expected is None or self.epoch == NO_EPOCH or expected.producer_id == self.producer_id:
            return
        if expected.producer_id != self._previous_id or expected.epoch < _LAST_GIVEN:
            raise Refused(Code.PRODUCER_FENCED, "The producer id belongs to an older producer.")

    def init_producer(
        self,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        new_id: Callable[[], int],
        now_ms: int,
        level: int,
    ) -> ProducerIdAndEpoch:
        """Give a producer the next epoch, after `check_init`."""
        state = self._find_next_state(CoordinatorTransactionEvent.INIT)
        producer_id, epoch, last = self.producer_id, self.epoch, NO_EPOCH
        if self.epoch >= _LAST_GIVEN and (expected is None or expected.epoch == self.epoch):
            last = NO_EPOCH if expected is None else self.epoch
            producer_id, epoch = new_id(), 0
        elif self.epoch >= _LAST_GIVEN:
            raise Refused(Code.UNKNOWN_SERVER_ERROR, "No epoch is left for this producer id.")
        elif expected is None:
            epoch += 1
        elif self.epoch == NO_EPOCH or expected.epoch == self.epoch:
            epoch, last = self.epoch + 1, self.epoch
        elif expected.epoch == self._last_epoch:
            last = self._last_epoch
        else:
            raise Refused(Code.PRODUCER_FENCED, "The epoch belongs to an older producer.")
        self._require_storable(level, self.client_level)
        self._enter_state(state, producer_id, epoch, last, now_ms)
        self.partitions = {}
        self.started_ms, self.timeout_ms = -1, timeout_ms
        return self.current

    # -- adding ----------------------------------------------------------------------------

    def add_partitions(
        self,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_level: int,
        now_ms: int,
        level: int,
    ) -> None:
        """Add partitions to the transaction, which begins with the first of them."""
        self._check_idle()
        self._check_producer(producer)
        state = self._find_next_state(CoordinatorTransactionEvent.ADD)
        ongoing = self.state is CoordinatorTransactionState.ONGOING
        if ongoing and all(each in self.partitions for each in partitions):
            return
        self._require_storable(level, client_level)
        self._enter_state(state, *producer, self._last_epoch, now_ms)
        self.client_level = client_level
        self.partitions.update(dict.fromkeys(partitions))
        if not ongoing:
            self.started_ms = now_ms

    def verify_partitions(
        self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Code]:
        """Return for each partition whether it belongs to the open transaction."""
        self._check_producer(producer)
        if self.state in ENDING:
            raise Refused(Code.CONCURRENT_TRANSACTIONS, "The transaction is ending.")
        return {
            each: Code.NONE if each in self.partitions else Code.TRANSACTION_ABORTABLE
            for each in partitions
        }

    # -- ending ----------------------------------------------------------------------------

    def end_transaction(
        self, producer: ProducerIdAndEpoch, commit: bool, now_ms: int, level: int
    ) -> ProducerIdAndEpoch:
        """Decide the outcome that an EndTxn request of version 4 or earlier asks for."""
        self._check_producer(producer)
        self._check_idle()
        state = self._find_next_state(
            CoordinatorTransactionEvent.COMMIT if commit else CoordinatorTransactionEvent.ABORT
        )
        if state is not self.state:
            self._require_storable(level, 0)
            self._enter_state(state, *self.current, self._last_epoch, now_ms)
            self._next_id = NO_PRODUCER
            self.client_level = 0
        return NO_PRODUCER_ID_AND_EPOCH

    def end_with_new_epoch(
        self,
        producer: ProducerIdAndEpoch,
        commit: bool,
        new_id: Callable[[], int],
        now_ms: int,
        level: int,
    ) -> ProducerIdAndEpoch:
        """Decide the outcome that an EndTxn request of version 5 or later asks for.

        Returns the producer id and epoch of the next transaction.
        """
        self._check_idle()
        renamed = (
            self.epoch == 0
            and producer.epoch == _LAST_GIVEN
            and producer.producer_id == self._previous_id
        )
        if producer.producer_id != self.producer_id and not renamed:
            raise Refused(Code.INVALID_PRODUCER_ID_MAPPING, "Another producer id is in use.")
        repeated = renamed or producer.epoch + 1 == self.epoch
        if not repeated and producer.epoch != self.epoch:
            raise Refused(Code.PRODUCER_FENCED, "Another epoch is in use.")
        event = _ENDS[commit, repeated]
        state = self._find_next_state(event)
        if state is self.state:
            return self.current
        next_id = new_id() if self.epoch >= _LAST_GIVEN else NO_PRODUCER
        self._require_storable(level, BUMPS_AT)
        if self.state is not CoordinatorTransactionState.ONGOING:
            self.started_ms = now_ms
        self._bump_epoch(state, next_id, now_ms)
        return self.current if next_id == NO_PRODUCER else ProducerIdAndEpoch(next_id, 0)

    def abort_and_fence(self, now_ms: int, level: int) -> None:
        """Abort the open transaction on the coordinator's own decision, and fence its producer."""
        state = self._find_next_state(CoordinatorTransactionEvent.REVOKE)
        if level >= BUMPS_AT:
            self._bump_epoch(state, NO_PRODUCER, now_ms)
            return
        self._enter_state(
            state, self.producer_id, min(self.epoch + 1, _LAST_EPOCH), NO_EPOCH, now_ms
        )
        self._next_id = NO_PRODUCER
        self.client_level = 0

    def on_marker_written(self, partition: TopicPartition) -> None:
        """Remove a partition whose marker was written."""
        self.partitions.pop(partition, None)

    def complete_end(self, now_ms: int, level: int) -> None:
        """Complete the end of the transaction, after all markers were written."""
        state = self._find_next_state(CoordinatorTransactionEvent.MARKED)
        self._require_storable(level, self.client_level)
        producer = self.current
        if self.client_level >= BUMPS_AT and self._next_id != NO_PRODUCER:
            producer = ProducerIdAndEpoch(self._next_id, 0)
        self._enter_state(state, *producer, self._last_epoch, now_ms)
        self._next_id = NO_PRODUCER
        self.partitions = {}

    def mark_dead(self) -> None:
        """Change the state to Dead, before the transactional id is forgotten."""
        self._check_idle()
        self.state = self._find_next_state(CoordinatorTransactionEvent.EXPIRE)

    def forget_partitions(self, now_ms: int, level: int) -> None:
        """Abort the open transaction without its markers, at the request of a test.

        The epoch stays the same, as when a client of an older version aborts the transaction.
        """
        self.end_transaction(self.current, False, now_ms, level)
        self.complete_end(now_ms, level)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, at the request of a test."""
        self.epoch = epoch

    # -- the log of transactions -----------------------------------------------------------

    def take_changed_snapshot(self) -> TransactionSnapshot | None:
        """Return the state to be written to the log, or None if it was returned before."""
        if self.epoch == NO_EPOCH:
            return None
        snapshot = TransactionSnapshot(
            self.producer_id,
            self._previous_id,
            self._next_id,
            self.epoch,
            self.timeout_ms,
            self.state.value,
            tuple(self.partitions),
            self.updated_ms,
            self.started_ms,
            self.client_level,
        )
        before = self._written
        if before is not None and self.state in ENDING and before.state == snapshot.state:
            # The partitions that have no marker yet are not written.
            snapshot = snapshot._replace(partitions=before.partitions)
        if snapshot == before:
            return None
        self._written = snapshot
        return snapshot

    # -- parts -----------------------------------------------------------------------------

    def _check_idle(self) -> None:
        if self.is_busy:
            raise Refused(Code.CONCURRENT_TRANSACTIONS, "Another change is in progress.")

    def _check_producer(self, producer: ProducerIdAndEpoch) -> None:
        if producer.producer_id != self.producer_id:
            raise Refused(Code.INVALID_PRODUCER_ID_MAPPING, "Another producer id is in use.")
        if producer.epoch != self.epoch:
            raise Refused(Code.PRODUCER_FENCED, "Another epoch is in use.")

    def _find_next_state(self, event: CoordinatorTransactionEvent) -> CoordinatorTransactionState:
        """Return the state after an event. It is the present state if nothing is to be done."""
        after = TABLE[self.state][event]
        if isinstance(after, CoordinatorTransactionState):
            return after
        if after:
            raise Refused(after, f"{self.state.value} does not permit this: {event.value}.")
        return self.state

    def _require_storable(self, level: int, client_level: int) -> None:
        if not level and client_level:
            self._blocked = True
            raise Refused(Code.UNSUPPORTED_VERSION, "Level 0 cannot store a change of level 2.")

    def _enter_state(
        self,
        state: CoordinatorTransactionState,
        producer_id: int,
        epoch: int,
        last_epoch: int,
        now_ms: int,
    ) -> None:
        self._previous_id = self.producer_id
        self.state, self.producer_id, self.epoch = state, producer_id, epoch
        self._last_epoch = last_epoch
        self.updated_ms = now_ms

    def _bump_epoch(self, state: CoordinatorTransactionState, next_id: int, now_ms: int) -> None:
        epoch = min(self.epoch + 1, _LAST_EPOCH)
        self._enter_state(state, self.producer_id, epoch, self.epoch, now_ms)
        self._next_id = next_id
        self.client_level = BUMPS_AT


_ENDS = {
    (True, False): CoordinatorTransactionEvent.COMMIT_BUMPED,
    (False, False): CoordinatorTransactionEvent.ABORT_BUMPED,
    (True, True): CoordinatorTransactionEvent.COMMIT_REPEATED,
    (False, True): CoordinatorTransactionEvent.ABORT_REPEATED,
}
