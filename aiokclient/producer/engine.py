"""The parts of a started producer: queues, senders, deadlines, and producer ids."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from aiokclient.background import Callbacks
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import KafkaError, UnsupportedVersionError
from aiokclient.metrics import OwnMetrics
from aiokclient.policy import Scope
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.batching.deadline_timer import DeadlineTimer
from aiokclient.producer.batching.producer_ids import ProducerIds
from aiokclient.producer.batching.queue import QueuedBatch, Topic
from aiokclient.producer.delivery.delivery import DeliveryBatch, settled
from aiokclient.producer.delivery.failures import FailureHooks, Failures
from aiokclient.producer.sending.expiry import Expiry
from aiokclient.producer.sending.leaders import Leaders
from aiokclient.producer.sending.responses import Responses
from aiokclient.producer.sending.sender import (
    ProduceRequests,
    Sender,
    TransactionalProduceRequests,
    TransactionalSender,
)
from aiokclient.protocol.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.metrics import Labels
    from aiokclient.producer.transaction.manager import TransactionManager
    from aiokclient.producer.transaction.status import TransactionStatus

__all__ = ["Engine"]


class Engine:
    """The running part of a producer, from its start to its end, in one event loop."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: ClusterClient,
        supervisor: Supervisor,
        failure_hooks: FailureHooks,
        accept: Callable[[bool], object],
    ) -> None:
        """`accept(True)` makes the producer accept records, and `accept(False)` refuse them."""
        loop = asyncio.get_running_loop()
        self.cluster = cluster
        self.own_metrics = OwnMetrics(cluster.metrics, "producer", attributes=_attributes(config))
        self.senders: dict[int, Sender] = {}
        self._log = cluster.log("producer")
        self._callbacks = callbacks = Callbacks(loop, supervisor.fail)
        self.failures = Failures(loop, callbacks, cluster.clock, failure_hooks, self._log)
        self._deadline_timer = DeadlineTimer(
            Expiry.interval_s(config),
            cluster.clock,
            callbacks,
            lambda now: self._expiry.expire(now),
        )
        status = _transaction_status(config, cluster)
        self.accumulator = Accumulator(
            config,
            loop,
            callbacks,
            cluster.clock,
            self.failures,
            self.own_metrics,
            self._deadline_timer,
            None if status is None else partial(status.handle_error, scope=Scope.PRODUCE_TXN),
        )
        self.leaders = Leaders(
            config,
            cluster.clock,
            self.accumulator,
            self.failures,
            self._sender_of,
            self._want,
            lambda topic: cluster.updater.request_update((topic,)),
            self._ask_again,
            lambda: self._ids.expire(),
            self._cluster_replaced,
        )
        self._config = config
        self._accept = accept
        self._supervisor = supervisor
        self._expiry = Expiry(config, cluster, self.accumulator, self._identity_error)
        self._responses = Responses(
            config,
            cluster.clock,
            self.accumulator,
            cluster.updater,
            cluster.metrics,
            self._log,
            (lambda: True) if status is None else (lambda: status.may_send),
            self._postpone,
        )
        self._ids = ProducerIds(
            bool(config.enable_idempotence),
            self._ask_for_id,
            self._look,
            self.leaders.has_sent,
            supervisor,
            self._poke_all,
            self._fail_without_id,
        )
        self.transactions = None if status is None else self._make_transactions(status)
        self._ends: list[Callable[[], None]] = []
        self._measure(self.own_metrics)

    def _identity_error(self) -> KafkaError | None:
        """Return the last error of the requests without which batches have no identity."""
        ids = self._ids if self.transactions is None else self.transactions.partitions
        return ids.last_error

    def _measure(self, own_metrics: OwnMetrics) -> None:
        own_metrics.gauge("in.flight", lambda: sum(s.in_flight for s in self.senders.values()))
        own_metrics.gauge("metadata.age", lambda: self.cluster.updater.age)
        self.cluster.metrics.add_owner(own_metrics)

    def accept_records(self, accept: bool) -> None:
        """Make the producer accept records, or refuse them."""
        self._accept(accept)

    def _make_transactions(self, status: TransactionStatus) -> TransactionManager:
        # Most producers have no transactions, so `transaction.manager` is imported only if needed.
        from aiokclient.producer.transaction.manager import TransactionManager

        return TransactionManager(
            self, self._config, self.cluster, self._supervisor, status, self.accumulator
        )

    def _postpone(self, batch: QueuedBatch, error: KafkaError) -> bool:
        transactions = self.transactions
        return transactions is not None and transactions.batches.postpone_batch(batch, error)

    def start(self) -> None:
        """Follow the metadata, and request a producer id in the background.

        A transactional producer has already requested its producer id.
        """
        updated = self._callbacks.guard(self.leaders.updated)
        self._ends.append(self.cluster.updater.subscribe(updated))
        if self.transactions is not None:
            return
        self._ends.append(self.cluster.outages.listen(self._callbacks.guard(self._ids.expire)))
        if self._config.enable_idempotence:
            self._ids.get()

    def stop(self) -> None:
        """Send nothing more. The caller decides what happens to pending batches.

        It may be called again.
        """
        for end in self._ends:
            end()
        self._ends.clear()
        self.leaders.stop()
        self.cluster.updater.unwant(self)
        self._deadline_timer.stop()
        self.accumulator.stop()
        self.own_metrics.end()
        for sender in self.senders.values():
            sender.close()
        if self.transactions is not None:
            self.transactions.stop()

    def topic(self, name: str) -> Topic:
        """Return the topic with this name, and start to follow its metadata."""
        return self.leaders.topic(name, self.cluster.metadata)

    def fail_all(self, error: KafkaError) -> None:
        """Fail every batch without an outcome."""
        for batch in list(self.accumulator.pending):
            try:
                self.accumulator.fail(batch, error)
            except Exception:
                # The bug that failed the producer may have left the queue in an invalid state.
                self._log.exception(
                    "A failed batch could not be removed from the queue of its partition.",
                    extra={"event": "task_died"},
                )
                self.accumulator.lose(batch, error)

    async def flush(self) -> None:
        """Wait until every batch that is pending now has its outcome and its callbacks have run.

        After that, `on_delivery_error` has been called for each failure. Cancelling the wait
        changes nothing.
        """
        waiting: list[DeliveryBatch] = [*self.accumulator.calling, *self.accumulator.pending]
        if not waiting:
            await self.failures.reported()
            return
        time = self.accumulator.loop.time
        began = time()
        try:
            for batch in waiting:
                batch.demand()
            for batch in waiting:
                await settled(batch)
            await self.failures.reported()
        finally:
            self.accumulator.meters.flushing.value += time() - began

    def _sender_of(self, node_id: int) -> Sender:
        sender = self.senders.get(node_id)
        if sender is None:
            transactions = self.transactions
            kind = (
                Sender
                if transactions is None
                else partial(
                    TransactionalSender,
                    settled=transactions.on_records_settled,
                    pause=transactions.pause,
                )
            )
            sender = self.senders[node_id] = kind(
                node_id,
                self._config,
                self.cluster,
                self._supervisor,
                self.accumulator,
                self._responses,
                self._ids if transactions is None else transactions.partitions,
                self._requests(),
            )
        return sender

    def _requests(self) -> ProduceRequests:
        acks, timeout_ms = self._config.acks, self._config.request_timeout_ms
        if self.transactions is None:
            return ProduceRequests(acks, timeout_ms)
        transactional_id = self.transactions.status.transactional_id
        highest = self.transactions.partitions.highest_produce
        return TransactionalProduceRequests(acks, timeout_ms, transactional_id, highest)

    def _want(self, topic: str) -> None:
        self.cluster.updater.want(topic, self, auto_create=True)

    async def _ask_for_id(self) -> tuple[int, int]:
        timeout_ms = self._config.transaction_timeout_ms
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=timeout_ms, producer_id=-1
        )
        try:
            # This needs no deadline, because the batches that wait for the id have their own.
            answer = await self.cluster.request(
                request,
                AnyBroker(),
                timeout=math.inf,
                scope=Scope.INIT_PRODUCER_ID,
                failed=self._ids.note_failure,
            )
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(
                "An idempotent producer needs a producer id, which the broker cannot give. Check "
                "that the brokers run Kafka 0.11 or later, or set enable_idempotence=False.",
                api=error.api,
                broker=error.broker,
            ) from error
        return answer.producer_id, answer.producer_epoch

    async def _look(self, topic: str) -> bool:
        timeout = self._config.default_api_timeout_ms / 1000
        snapshot = await self.cluster.updater.refresh((topic,), timeout=timeout, at_once=True)
        info = snapshot.topic(topic)
        return info is not None and not info.error

    def _ask_again(self, topic: str) -> None:
        self._supervisor.spawn(self._reconsider, topic, name=f"metadata of {topic}")

    async def _reconsider(self, topic: str) -> None:
        timeout = self._config.default_api_timeout_ms / 1000
        try:
            await self.cluster.updater.refresh((topic,), timeout=timeout)
        except KafkaError:
            pass  # The records wait for the next attempt, up to their own deadline.
        self.leaders.reconsidered(topic)

    def _cluster_replaced(self) -> None:
        if self.transactions is not None:
            self.transactions.on_cluster_replaced()

    def _poke_all(self) -> None:
        for queue in list(self.accumulator.active):
            queue.poke()

    def _fail_without_id(self, error: KafkaError) -> None:
        """Fail the batches that wait for a producer id. Later sends request one again."""
        for batch in list(self.accumulator.pending):
            if batch.identity is None and batch.queue.partition is not None:
                self.accumulator.fail(batch, error)


def _attributes(config: ProducerConfig) -> Labels:
    """Return the attributes by which an operator recognizes a producer."""
    found = (("client_rack", config.client_rack), ("transactional_id", config.transactional_id))
    return tuple((name, value) for name, value in found if value)


def _transaction_status(config: ProducerConfig, cluster: ClusterClient) -> TransactionStatus | None:
    if config.transactional_id is None:
        return None
    from aiokclient.producer.transaction.status import TransactionStatus

    return TransactionStatus(config.transactional_id, config.transaction_timeout_ms, cluster.clock)
