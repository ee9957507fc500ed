"""All transactional ids of an embedded cluster, each with the broker that coordinates it.

`ClusterState.find_coordinator` determines the broker. When it is another one than before,
`move_to_coordinators` moves the transactional id: the new coordinator loads what was stored,
continues the timeout of an open transaction, and writes the markers of a transaction that was
ending.

Markers are written after the response to EndTxn, in the next iteration of the event loop. A marker
waits while its partition has no running leader or too few in-sync replicas, while the coordinator
of a group is loading, and while a test holds markers.

A transactional id that was not used for `transactional.id.expiration.ms` is forgotten. Kafka looks
for such ids once an hour. Here, they are forgotten at the next request or call that concerns them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.timers import Timers
from aiokclient.testing.broker.internal.records import write_transaction
from aiokclient.testing.broker.topics.topics import OFFSETS_TOPIC
from aiokclient.testing.broker.transactions.offsets import OffsetsPartitions
from aiokclient.testing.broker.transactions.states import ENDING, CoordinatorTransactionState
from aiokclient.testing.broker.transactions.transaction import (
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.testing.broker.node import Node
    from aiokclient.testing.broker.state import ClusterState
    from aiokclient.testing.broker.topics.topics import Partition

FIRST_PRODUCER_ID = 1000
_BUMPING_VERSION = 5
"""The first version of EndTxn that increases the epoch."""


class TransactionView(NamedTuple):
    """A transactional id as a test sees it.

    `partitions` are those of the open transaction. Once the transaction is ending, they are those
    that have no marker yet. The offsets of a group appear as the group's partition of
    `__consumer_offsets`.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    coordinator: int | None


class TransactionCoordinator:
    """The transaction coordinators of all brokers. `level` is that of transaction.version."""

    def __init__(self, cluster: ClusterState) -> None:
        self.level = 2
        self.offsets = OffsetsPartitions(cluster)
        self._cluster = cluster
        self._transactions: dict[str, TransactionMetadata] = {}
        self._timers = Timers(cluster)
        self._loading: dict[str, int] = {}
        self._held: dict[str | None, int] = {}
        self._next_producer_id = FIRST_PRODUCER_ID

    def __iter__(self) -> Iterator[TransactionMetadata]:
        return iter(list(self._transactions.values()))

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def find_transaction(self, transactional_id: str) -> TransactionMetadata | None:
        self._forget_expired(transactional_id)
        return self._transactions.get(transactional_id)

    def list_loaded(self, broker: Node) -> list[TransactionMetadata]:
        """Return the metadata of each transactional id that a broker has loaded."""
        self.move_to_coordinators()
        self._forget_expired(*self._transactions)
        return [each for each in self if each.node == broker.node_id]

    def is_loading(self, broker: Node) -> bool:
        """Return whether a broker has transactional ids that it has not loaded yet."""
        return any(self._cluster.find_coordinator(each) is broker for each in self._loading)

    def make_view(self) -> dict[str, TransactionView]:
        """Return a copy of the current states."""
        self._forget_expired(*self._transactions)
        return {
            each.transactional_id: TransactionView(
                each.transactional_id,
                each.state.value,
                each.producer_id,
                each.epoch,
                each.timeout_ms,
                frozenset(each.partitions),
                each.node,
            )
            for each in self
        }

    # -- requests, which raise Refused -----------------------------------------------------

    def check_coordinator(self, broker: Node | None, transactional_id: str) -> None:
        """Raise Refused unless this broker can answer for the transactional id."""
        if broker is None or not broker.alive or broker.paused:
            raise Refused(Code.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
        if self._cluster.find_coordinator(transactional_id) is not broker:
            raise Refused(Code.NOT_COORDINATOR, "Another broker is the coordinator.")
        if transactional_id in self._loading:
            raise Refused(Code.COORDINATOR_LOAD_IN_PROGRESS, "The coordinator is loading.")
        self._forget_expired(transactional_id)

    def init_producer(
        self,
        broker: Node,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
    ) -> ProducerIdAndEpoch:
        """Handle InitProducerId: assign the next epoch, and abort an open transaction."""
        if not transactional_id:
            raise Refused(Code.INVALID_REQUEST, "The transactional id is empty.")
        if not 0 < timeout_ms <= self._cluster.configs.read_number("transaction.max.timeout.ms"):
            raise Refused(Code.INVALID_TRANSACTION_TIMEOUT, "The timeout is out of range.")
        self.check_coordinator(broker, transactional_id)
        found = self._transactions.get(transactional_id)
        if found is None:
            new_id = self.new_producer_id()
            found = TransactionMetadata(transactional_id, new_id, timeout_ms)
            found.node = broker.node_id
            self._transactions[transactional_id] = found
        found.check_init(expected)
        if found.state is CoordinatorTransactionState.ONGOING:
            self._revoke_if_open(found)
            raise Refused(Code.CONCURRENT_TRANSACTIONS, "The open transaction is aborted first.")
        new_id_of = self.new_producer_id
        given = found.init_producer(timeout_ms, expected, new_id_of, self._now_ms(), self.level)
        self._on_change(found)
        return given

    def add_to_transaction(
        self,
        broker: Node | None,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_level: int,
    ) -> None:
        """Add partitions to a transaction, and begin it with the first of them."""
        found = self._require_transaction(broker, transactional_id)
        found.add_partitions(producer, partitions, client_level, self._now_ms(), self.level)
        self._on_change(found)

    def verify_partitions(
        self,
        broker: Node | None,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, Code]:
        """Return for each partition whether it belongs to the open transaction."""
        return self._require_transaction(broker, transactional_id).verify_partitions(
            producer, partitions
        )

    def end_transaction(
        self,
        broker: Node,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        commit: bool,
        version: int,
    ) -> ProducerIdAndEpoch:
        """Handle EndTxn of this version: decide the outcome, and write the markers afterwards."""
        found = self._require_transaction(broker, transactional_id)
        # From EndTxn 5 on, the end of a transaction increases the epoch (KIP-890).
        if version < _BUMPING_VERSION:
            given = found.end_transaction(producer, commit, self._now_ms(), self.level)
        else:
            new_id = self.new_producer_id
            given = found.end_with_new_epoch(producer, commit, new_id, self._now_ms(), self.level)
        self._on_change(found)
        return given

    def _require_transaction(
        self, broker: Node | None, transactional_id: str
    ) -> TransactionMetadata:
        if not transactional_id:
            raise Refused(Code.INVALID_REQUEST, "The transactional id is empty.")
        self.check_coordinator(broker, transactional_id)
        found = self._transactions.get(transactional_id)
        if found is None:
            raise Refused(Code.INVALID_PRODUCER_ID_MAPPING, "The transactional id is unknown.")
        return found

    # -- changes ---------------------------------------------------------------------------

    def _on_change(self, transaction: TransactionMetadata) -> None:
        """Write a new state, start the timers that it needs, and stop the others."""
        self._write_state(transaction)
        key = ("timeout", transaction.transactional_id)
        if transaction.state is not CoordinatorTransactionState.ONGOING or transaction.node is None:
            self._timers.cancel_timer(key)
        elif key not in self._timers:
            remaining = transaction.started_ms + transaction.timeout_ms - self._now_ms()
            self._timers.start_timer(key, max(remaining, 0), lambda: self._on_timeout(transaction))
        if transaction.state in ENDING:
            self._write_markers_soon(transaction)

    def _on_timeout(self, transaction: TransactionMetadata) -> None:
        node = self._cluster.alive.get(-1 if transaction.node is None else transaction.node)
        if node is not None and not node.paused:
            self._revoke_if_open(transaction)

    def _revoke_if_open(self, transaction: TransactionMetadata) -> None:
        transaction.abort_and_fence(self._now_ms(), self.level)
        self._on_change(transaction)

    def revoke_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction as after its timeout, at the request of a test."""
        self._revoke_if_open(self._transactions[transactional_id])

    def hang_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction without its markers, at the request of a test."""
        transaction = self._transactions[transactional_id]
        transaction.forget_partitions(self._now_ms(), self.level)
        self._on_change(transaction)

    def expire_id(self, transactional_id: str) -> None:
        """Forget a transactional id as if it had not been used for long. Raises Refused."""
        self._transactions[transactional_id].mark_dead()
        del self._transactions[transactional_id]
        write_transaction(self._cluster, transactional_id, None, self.level)

    def _write_state(self, transaction: TransactionMetadata) -> None:
        """Write the state of a transactional id to `__transaction_state`, if it has changed."""
        snapshot = transaction.take_changed_snapshot()
        if snapshot is not None:
            write_transaction(self._cluster, transaction.transactional_id, snapshot, self.level)

    def _forget_expired(self, *transactional_ids: str) -> None:
        """Forget each of these ids that was not used for `transactional.id.expiration.ms`."""
        unused_ms = self._cluster.configs.read_number("transactional.id.expiration.ms")
        for transactional_id in transactional_ids:
            found = self._transactions.get(transactional_id)
            if found is None or found.updated_ms < 0 or not found.is_idle:
                continue
            if self._now_ms() - found.updated_ms >= unused_ms:
                self.expire_id(transactional_id)

    def set_level(self, level: int) -> None:
        """Change the level of transaction.version."""
        if level != self.level:
            self.level = level
            self._cluster.features_epoch += 1
            self._cluster.notify_tests()

    def _now_ms(self) -> int:
        return self._cluster.clock.time_ms()

    # -- markers ---------------------------------------------------------------------------

    def _write_markers_soon(self, transaction: TransactionMetadata) -> None:
        key = ("markers", transaction.transactional_id)
        self._timers.start_timer(key, 0, lambda: self._write_markers(transaction))

    def _write_markers(self, transaction: TransactionMetadata) -> None:
        """Write the markers of a transaction that ends, as far as they can be written now."""
        held = None in self._held or transaction.transactional_id in self._held
        if transaction.state not in ENDING or transaction.node is None or held:
            return
        node = self._cluster.alive.get(transaction.node)
        if node is None or node.paused:
            return
        for tp in list(transaction.partitions):
            if self._mark_partition(transaction, tp):
                transaction.on_marker_written(tp)
        if not transaction.partitions:
            try:
                transaction.complete_end(self._now_ms(), self.level)
            except Refused:
                # This level of transaction.version cannot store the end, so the id stays blocked.
                return
            self._write_state(transaction)
            self._cluster.notify_tests()

    def _mark_partition(self, transaction: TransactionMetadata, tp: TopicPartition) -> bool:
        """Write one marker, and return whether nothing remains to be written to the partition."""
        level, coordinator_epoch = transaction.client_level, transaction.coordinator_epoch
        producer = transaction.current
        if tp.topic == OFFSETS_TOPIC:
            offsets = self.offsets.get_partition(tp)
            return not offsets.end_transaction(
                transaction.is_committing, producer, coordinator_epoch, level
            )
        partition = self._cluster.find_partition(*tp)
        if partition is None:
            return True
        leader = self._cluster.alive.get(partition.leader)
        code = Code.NOT_LEADER_OR_FOLLOWER
        if leader is not None and not leader.paused:
            commit = transaction.is_committing
            code = self.write_marker(partition, commit, producer, coordinator_epoch, level)
        if code:
            partition.add_watcher(_Waiting(partition, self, transaction))
        return not code

    def write_marker(
        self,
        partition: Partition,
        commit: bool,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        level: int,
    ) -> Code:
        """Write a marker to a partition. Return NONE, or the code of the refusal."""
        producers = partition.log.producers
        least = partition.topic.configs.read_number("min.insync.replicas")
        if len(partition.isr) < min(least, len(partition.replicas)):
            return Code.NOT_ENOUGH_REPLICAS
        code = producers.check_marker(*producer, coordinator_epoch, level)
        if not code:
            partition.end_transaction(
                commit, *producer, self._now_ms(), coordinator_epoch=coordinator_epoch
            )
        return code

    def retry_markers(self, transaction: TransactionMetadata) -> None:
        """Try again to write the missing markers of a transaction, if it is ending."""
        if transaction.state in ENDING:
            self._write_markers_soon(transaction)

    def hold_markers(self, transactional_id: str | None) -> None:
        """Write no markers until each call of this has its call of `release_markers`.

        This applies to one transactional id, or to all if it is None.
        """
        self._held[transactional_id] = self._held.get(transactional_id, 0) + 1

    def release_markers(self, transactional_id: str | None) -> None:
        _release_hold(self._held, transactional_id)
        self.move_to_coordinators()

    # -- coordinators ----------------------------------------------------------------------

    def move_to_coordinators(self) -> None:
        """Move each transactional id to its coordinator, and write markers that can be written."""
        for transaction in self:
            transactional_id = transaction.transactional_id
            broker = self._cluster.find_coordinator(transactional_id)
            loading = transactional_id in self._loading
            node = None if broker is None or loading else broker.node_id
            if node != transaction.node:
                transaction.node = node
                if node is not None:
                    transaction.load()
            self._on_change(transaction)

    def hold_loading(self, transactional_id: str) -> None:
        """Keep the coordinator of a transactional id in the loading state.

        The state ends when each call of this has its call of `release_loading`.
        """
        self._loading[transactional_id] = self._loading.get(transactional_id, 0) + 1
        self.move_to_coordinators()

    def release_loading(self, transactional_id: str) -> None:
        _release_hold(self._loading, transactional_id)
        self.move_to_coordinators()

    def release_all(self) -> None:
        """Release all markers and coordinators that tests hold."""
        self._held.clear()
        self._loading.clear()
        self.move_to_coordinators()

    def on_topic_deleted(self, topic: str) -> None:
        """Continue with transactions that were to write markers to a deleted topic."""
        self.move_to_coordinators()

    def make_replacement(self) -> TransactionCoordinator:
        """Cancel all timers, and return a new object with the same level and without ids."""
        self.close()
        new = TransactionCoordinator(self._cluster)
        new.level = self.level
        return new

    def close(self) -> None:
        """Cancel all timers at the end of the cluster."""
        self._timers.cancel_all()


class _Waiting(NamedTuple):
    """A marker that waits for a change of its partition."""

    partition: Partition
    coordinator: TransactionCoordinator
    transaction: TransactionMetadata

    def on_change(self, added: int) -> None:
        """Try again to write the markers, whatever has changed in the partition."""
        self.partition.remove_watcher(self)
        self.coordinator.retry_markers(self.transaction)


def _release_hold(held: dict[str | None, int] | dict[str, int], key: str | None) -> None:
    left = held.pop(key, 0) - 1  # type: ignore[arg-type]
    if left > 0:
        held[key] = left  # type: ignore[index]


def get_transactions(cluster: ClusterState) -> TransactionCoordinator:
    """Return the transactional ids of a cluster."""
    transactions = cluster.transactions
    assert isinstance(transactions, TransactionCoordinator)
    return transactions
