"""The produce requests to one broker, with the ready batches of the partitions that it leads.

While the broker is connected, no task runs. Whenever a queue may have something to send, `ready` is
called, which schedules `pump`. `pump` takes the first batch of each ready queue in turn until a
request is full, and continues with the next request while fewer than
`max_in_flight_requests_per_connection` requests are in flight. A response completes its batches or
returns them to their queues, and then calls `pump` again. Only connecting needs a task (see
`produce_connection`).

While the broker is unreachable or silent, its partitions are unsendable, which limits their memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from aiokclient.errors import KafkaError
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.batching.queue import PartitionQueue, QueuedBatch
from aiokclient.producer.batching.stages import BatchStage, InLog
from aiokclient.producer.fairness import SLICE_S
from aiokclient.producer.sending.produce_connection import ProduceConnection
from aiokclient.producer.sending.produce_request import (
    IDS_FROM,
    MultiBatch,
    OneBatch,
    ProduceRequests,
    endpoints,
    left_out,
)
from aiokclient.producer.sending.responses import Responses
from aiokclient.protocol.messages.produce import ProduceRequest
from aiokclient.protocol.one_batch import Written

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.network.connection import BrokerConnection
    from aiokclient.producer.transaction.marker_pause import MarkerPause
    from aiokclient.protocol.messages.produce import ProduceResponse

__all__ = ["Sender", "TransactionalSender"]

LEAST_PAUSE_S = 0.0002
"""The shortest pause, in seconds, for which a timer is set."""


class BatchIds(Protocol):
    """The source of the producer id, epoch, and sequence of each batch."""

    def identify(self, queue: PartitionQueue, batch: QueuedBatch, *, by_name: bool) -> bool:
        """Set the identity of a batch that is about to be sent. Return False if it must wait."""


class Sender:
    """The produce requests to one broker."""

    def __init__(
        self,
        node_id: int,
        config: ProducerConfig,
        cluster: ClusterClient,
        supervisor: Supervisor,
        accumulator: Accumulator,
        responses: Responses,
        ids: BatchIds,
        requests: ProduceRequests,
    ) -> None:
        self.node_id = node_id
        self.queues: dict[PartitionQueue, None] = {}
        self.in_flight = 0
        """Number of produce requests without a response."""
        self._clock = cluster.clock
        self._accumulator = accumulator
        self._callbacks = accumulator.callbacks
        self._responses = responses
        self._ids = ids
        self._expects_response = config.acks != 0
        self._limit = config.max_in_flight_requests_per_connection
        self._max_request = config.max_request_size
        self._timeout_s = config.request_timeout_ms / 1000
        self._requests = requests
        self._sent = accumulator.meters.requests
        self._connection = ProduceConnection(
            node_id, config, cluster, supervisor, self._callbacks, self
        )
        self._ready: dict[PartitionQueue, None] = {}
        self._awaited: dict[PartitionQueue, None] = {}
        """Queues whose open batch is awaited: they are ready once nothing is in flight."""
        self._scheduled = False
        self._closed = False

    # -- queues

    @property
    def unsendable(self) -> bool:
        """Whether the broker is unreachable or silent."""
        return self._connection.unsendable

    def unanswered_for(self) -> float:
        """Return the seconds since the oldest request without a response was sent, or 0."""
        return self._connection.unanswered_for()

    def gain(self, queue: PartitionQueue) -> None:
        """Start to send the batches of a partition, because the broker is now its leader."""
        self.queues[queue] = None
        self._accumulator.set_unsendable(queue, self.unsendable)
        if queue.oldest() is not None:
            self.ready(queue)

    def lose(self, queue: PartitionQueue) -> None:
        """Stop sending batches of a partition, because the broker is no longer its leader."""
        self.queues.pop(queue, None)
        self._requests.forget(queue)
        self._ready.pop(queue, None)
        self._awaited.pop(queue, None)
        queue.sequences.distrust()

    def ready(self, queue: PartitionQueue, *, at_once: bool = False) -> None:
        """Schedule `pump` for a queue that may have something to send.

        The call is ignored if the broker is not the leader of the partition.
        """
        if queue not in self.queues:
            return
        self._ready[queue] = None
        if at_once and not self.in_flight and self._connection.current is not None:
            self._callbacks.run(self.pump)
        elif not self._scheduled:
            self._scheduled = True
            self._callbacks.soon(self.pump)

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        self._connection.close()

    # -- sending

    def pump(self) -> None:
        """Send ready batches until the permitted number of requests is in flight."""
        self._scheduled = False
        if self._closed:
            return
        connection = self._connection.current
        if connection is None or connection.closed:
            if self._ready or self._awaited:
                self._connection.open()
            return
        until = 0.0
        while self.in_flight < self._limit:
            if not self.in_flight and self._awaited:
                self._ready.update(self._awaited)
                self._awaited.clear()
            batches = self._collate()
            if not batches:
                return
            self._transmit(connection, batches)
            if not self._ready:
                return
            # Most calls send one request and have returned above, without reading the clock.
            now = self._clock.monotonic()
            until = until or now + SLICE_S
            if now > until:
                if not self._scheduled:
                    self._scheduled = True
                    self._callbacks.soon(self.pump)
                return

    def _collate(self) -> list[QueuedBatch]:
        """Return the batches of the next request, at most one for each partition."""
        batches: list[QueuedBatch] = []
        total = 0
        until = self._clock.monotonic() + SLICE_S if len(self._ready) > 1 else 0.0
        for queue in list(self._ready):
            batch = self._next(queue)
            if batch is None:
                del self._ready[queue]
                continue
            if batches and total + batch.size > self._max_request:
                break
            queue.leave(batch)
            batches.append(batch)
            total += batch.size
            # The other batches of this queue come after those of all other queues.
            del self._ready[queue]
            if queue.more:
                self._ready[queue] = None
            if until and self._clock.monotonic() > until:
                break
        return batches

    def _next(self, queue: PartitionQueue) -> QueuedBatch | None:
        batch = queue.next(not self.in_flight, self._limit)
        if batch is None:
            waiting = queue.open
            if waiting is not None and waiting.demanded and not waiting.in_overflow:
                self._awaited[queue] = None
            return None
        if batch.in_log is InLog.UNKNOWABLE:
            # The batch fails in a later call, because the application may react by sending more.
            self._callbacks.soon(self._responses.unknowable, batch)
            return None
        if not self._accumulator.prepare(batch):
            return None
        return batch if self._ids.identify(queue, batch, by_name=self._connection.by_name) else None

    def _transmit(self, connection: BrokerConnection, batches: list[QueuedBatch]) -> None:
        request = self._requests.make(batches, connection.broker.version_of(ProduceRequest))
        self.in_flight += 1
        self._sent.value += 1
        by_name = request.version < IDS_FROM
        now = self._accumulator.loop.time()
        for batch in batches:
            batch.enter_request(now, by_name=by_name)
        connection.call(
            request.message,
            self._callbacks.bound(self._answered, request),
            timeout_s=self._timeout_s,
            version=request.version,
            expect_response=self._expects_response,
            now=now,
        )
        if self._connection.watch is None:
            self._connection.begin_watch()

    # -- responses

    def _answered(
        self,
        request: MultiBatch | OneBatch,
        response: ProduceResponse | Written | None,
        error: KafkaError | None,
    ) -> None:
        self.in_flight -= 1
        # By now the transport has released the bytes, or will never read them again.
        for sent in request.sent:
            if sent.batch.leave_request():
                self._accumulator.release(sent.batch)
        if error is None and self._connection.silent:
            self._connection.set_silent(False)
        if error is not None:
            for sent in request.sent:
                self._responses.unanswered(sent, error)
        elif response is None:
            for sent in request.sent:
                self._responses.written(sent)
        elif isinstance(response, Written):
            self._responses.written(request.sent[0], *response)
        else:
            nodes = endpoints(response)
            for sent, part in request.answers(response):
                if part is None:
                    self._responses.unanswered(sent, left_out(self.node_id))
                else:
                    self._responses.answered(sent, part, self.node_id, nodes)
        for sent in request.sent:
            queue = sent.batch.queue
            if queue not in self.queues:
                queue.poke()
            elif queue.more:
                self._ready[queue] = None
        if self._ready or self._awaited:
            self.pump()

    # -- the connection

    def reach_changed(self) -> None:
        """Mark the partitions as sendable or unsendable; see `ConnectionUser`."""
        for queue in self.queues:
            self._accumulator.set_unsendable(queue, self.unsendable)

    def disconnected(self) -> bool:
        """Handle the loss of the connection. Return whether batches wait to be sent."""
        for queue in self.queues:
            queue.sequences.distrust()
        return any(queue.oldest() is not None for queue in self.queues)

    def resume(self) -> None:
        """Schedule `pump` for all partitions with batches."""
        for queue in self.queues:
            if queue.oldest() is not None:
                self.ready(queue)

    def fail_all(self, error: KafkaError) -> None:
        """Fail all batches, because the broker cannot be used and waiting does not change that."""
        for queue in list(self.queues):
            for batch in list(queue.batches()):
                self._accumulator.fail(batch, error)
        self._ready.clear()
        self._awaited.clear()


class TransactionalSender(Sender):
    """The produce requests of a transactional producer to one broker."""

    def __init__(self, *parts: Any, settled: Callable[[], object], pause: MarkerPause) -> None:
        """Create a sender that calls `settled()` after each response."""
        super().__init__(*parts)
        self._settled = settled
        self._pause = pause
        self._pausing: asyncio.TimerHandle | None = None
        self._is_first = False
        """Whether the first request of the transaction is in flight to this broker."""

    def pump(self) -> None:
        """Send ready batches, but not before the markers of the last transaction are written."""
        pause = self._pause
        left_s = 0.0 if pause.is_over else pause.left(self._clock.monotonic())
        if left_s < LEAST_PAUSE_S:
            super().pump()
        elif self._pausing is None:
            self._pausing = self._callbacks.later(left_s, self._end_pause)

    def _end_pause(self) -> None:
        self._pausing = None
        super().pump()

    def close(self) -> None:
        """Send nothing more."""
        super().close()
        if self._pausing is not None:
            self._pausing.cancel()

    def _transmit(self, connection: BrokerConnection, batches: list[QueuedBatch]) -> None:
        if not self._pause.is_over:
            self._pause.sent(self._clock.monotonic())
            self._is_first = True
        super()._transmit(connection, batches)

    def _answered(
        self,
        request: MultiBatch | OneBatch,
        response: ProduceResponse | Written | None,
        error: KafkaError | None,
    ) -> None:
        super()._answered(request, response, error)
        if self._is_first:
            self._is_first = False
            if error is None and request.sent[0].batch.stage is BatchStage.BACKING_OFF:
                self._pause.refused()
            elif error is None:
                self._pause.answered(self._clock.monotonic())
        self._settled()
