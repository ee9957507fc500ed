"""The parts of a started producer: queues, senders, deadlines, and producer ids."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

# Code of applications runs in scopes of the producer. Its shields need anyio's scopes around them.
import anyio  # noqa: F401

from aiokclient.errors import ApiTimeoutError, KafkaError
from aiokclient.metrics import OwnMetrics
from aiokclient.policy import Scope, classify
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.batching.producer_ids import ProducerIds
from aiokclient.producer.batching.queue import PartitionQueue, Topic
from aiokclient.producer.delivery.delivery import DeliveryBatch, settled
from aiokclient.producer.delivery.failures import Failures
from aiokclient.producer.sending.expiry import Expiry
from aiokclient.producer.sending.leaders import Leaders
from aiokclient.producer.sending.responses import Responses
from aiokclient.producer.sending.sender import BatchIds, Sender, TransactionalSender
from aiokclient.scopes import new_scope

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.ownership import Anchor
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.metrics import Labels
    from aiokclient.producer.producer import Producer
    from aiokclient.producer.transaction.manager import TransactionManager
    from aiokclient.producer.transaction.status import TransactionStatus


class Engine:
    """The running part of a producer, from its start to its end, in one event loop.

    The parts refer to the engine, and through it to each other. They must not keep the producer
    alive, so the engine and the parts have only a weak reference to it.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: ClusterClient,
        supervisor: Supervisor,
        producer: Anchor[Producer[Any, Any]],
    ) -> None:
        self.producer = producer
        self.cluster = cluster
        self.supervisor = supervisor
        self.log = cluster.make_log("producer")
        self.callbacks = supervisor.callbacks
        self.own_metrics = OwnMetrics(cluster.metrics, "producer", attributes=_attributes(config))
        self.senders: dict[int, Sender] = {}
        self._config = config
        self.status = _transaction_status(config, cluster)
        """The state of the transactions; None without a transactional id."""
        self.failures = Failures(self)
        self.accumulator = Accumulator(config, self)
        self.leaders = Leaders(config, self)
        self.ids = ProducerIds(config, self)
        self.expiry = Expiry(config, self)
        self.responses = Responses(config, self)
        self.transactions = None if self.status is None else self._make_transactions(self.status)
        self.batch_ids: BatchIds = (
            self.ids if self.transactions is None else self.transactions.partitions
        )
        self._ends: list[Callable[[], None]] = []
        self._register_gauges(self.own_metrics)

    def _register_gauges(self, own_metrics: OwnMetrics) -> None:
        own_metrics.gauge("in.flight", lambda: sum(s.in_flight for s in self.senders.values()))
        own_metrics.gauge("metadata.age", lambda: self.cluster.updater.age)
        self.cluster.metrics.add_owner(own_metrics)

    def _make_transactions(self, status: TransactionStatus) -> TransactionManager:
        # Most producers have no transactions, so `transaction.manager` is imported only if needed.
        from aiokclient.producer.transaction.manager import TransactionManager

        return TransactionManager(self, self._config, status)

    def start(self) -> None:
        """Follow the metadata, and request a producer id in the background.

        A transactional producer has already requested its producer id.
        """
        updated = self.callbacks.guard_function(self.leaders.on_metadata)
        self._ends.append(self.cluster.updater.add_listener(updated))
        if self.transactions is not None:
            return
        expire_ids = self.callbacks.guard_function(self.ids.expire_ids)
        self._ends.append(self.cluster.outages.add_listener(expire_ids))
        if self._config.enable_idempotence:
            self.ids.find_id()

    def stop(self) -> None:
        """Send nothing more. The caller decides what happens to pending batches.

        It may be called again.
        """
        for end in self._ends:
            end()
        self._ends.clear()
        self.leaders.stop_searches()
        self.cluster.updater.unwant_topics(self)
        self.accumulator.stop()
        self.own_metrics.end_owner()
        for sender in self.senders.values():
            sender.close()
        if self.transactions is not None:
            self.transactions.stop()

    def on_cluster_replaced(self) -> None:
        """Use new producer ids, because another cluster does not know the present ones."""
        self.ids.expire_ids()
        if self.transactions is not None:
            self.transactions.on_cluster_replaced()

    def find_sender(self, node_id: int) -> Sender:
        """Return the sender of a broker, which is created at the first call."""
        sender = self.senders.get(node_id)
        if sender is None:
            if self.transactions is None:
                sender = Sender(node_id, self._config, self)
            else:
                sender = TransactionalSender(node_id, self._config, self, self.transactions)
            self.senders[node_id] = sender
        return sender

    def find_topic(self, name: str) -> Topic:
        """Return the topic with this name, and start to follow its metadata."""
        return self.leaders.find_topic(name, self.cluster.metadata)

    def fail_all(self, error: KafkaError) -> None:
        """Fail every batch without an outcome."""
        for batch in list(self.accumulator.pending):
            try:
                self.accumulator.fail_batch(batch, error)
            except Exception:
                # The bug that failed the producer may have left the queue in an invalid state.
                self.log.exception(
                    "A failed batch could not be removed from the queue of its partition.",
                    extra={"event": "task_died"},
                )
                self.accumulator.drop_batch(batch, error)

    # -- waiting

    async def flush(self) -> None:
        """Wait until every batch that is pending now has its outcome and its callbacks have run.

        After that, `on_delivery_error` has been called for each failure. Cancelling the wait
        changes nothing.
        """
        waiting: list[DeliveryBatch] = [*self.accumulator.calling, *self.accumulator.pending]
        if not waiting:
            await self.failures.wait_until_reported()
            return
        time = self.accumulator.loop.time
        began = time()
        try:
            for batch in waiting:
                batch.skip_linger()
            for batch in waiting:
                await settled(batch)
            await self.failures.wait_until_reported()
        finally:
            self.accumulator.meters.flushing.value += time() - began

    async def wait_while_open(self, work: Awaitable[object]) -> None:
        """Await `work`. If the producer ends first, stop waiting and raise the reason."""
        reasons: list[KafkaError] = []
        with new_scope() as scope:

            def look(end: KafkaError | None) -> None:
                if end is not None:
                    reasons.append(end)
                    scope.cancel()

            with self.failures.watch_failures(look):
                await work
        if scope.cancelled_caught:
            self.failures.on_final_seen()
            raise reasons[0].with_traceback(None)

    async def wait_for_room(self, topic: Topic, partition: int | None) -> bool:
        """Wait until the buffer has room for a record of a partition, or of any without one.

        Return whether it was necessary to wait. Raises the reason of the producer's end if it ends.
        """
        if self._has_room(topic, partition):
            return False

        async def wait() -> None:
            while not self._has_room(topic, partition):
                await self.accumulator.wait_for_room()

        await self.wait_while_open(wait())
        return True

    def _has_room(self, topic: Topic, partition: int | None) -> bool:
        queues: Sequence[PartitionQueue]
        if not topic.known:
            queues = [topic.undesignated]
        elif partition is None:
            queues = topic.queues
        else:
            queues = [self.leaders.queue_of(topic, partition)]
        return any(map(self.accumulator.has_room, queues))

    async def wait_until_known(self, topic: Topic, timeout: float) -> None:
        """Wait until the partitions of a topic are known; see `Producer.prepare`."""
        updater, clock = self.cluster.updater, self.cluster.clock
        deadline = clock.monotonic() + timeout
        while not topic.known:
            error = updater.errors.get(topic.name)
            if error is not None and not classify(error, Scope.METADATA).again:
                raise error
            remaining = deadline - clock.monotonic()
            if remaining <= 0:
                raise ApiTimeoutError(
                    f"No broker has described topic {topic.name} so far.", api="Metadata"
                ) from error
            try:
                await updater.refresh((topic.name,), timeout=remaining)
            except ApiTimeoutError as late:
                text = f"No broker has described topic {topic.name} within {timeout:.1f} s."
                cause = updater.errors.get(topic.name, late.__cause__)
                raise ApiTimeoutError(text, api="Metadata") from cause
            if topic.status.moving:
                await asyncio.sleep(0)


def _attributes(config: ProducerConfig) -> Labels:
    """Return the attributes by which an operator recognizes a producer."""
    found = (("client_rack", config.client_rack), ("transactional_id", config.transactional_id))
    return tuple((name, value) for name, value in found if value)


def _transaction_status(config: ProducerConfig, cluster: ClusterClient) -> TransactionStatus | None:
    if config.transactional_id is None:
        return None
    from aiokclient.producer.transaction.status import TransactionStatus

    return TransactionStatus(config.transactional_id, config.transaction_timeout_ms, cluster.clock)
