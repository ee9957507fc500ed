"""The produce requests to one broker, with the ready batches of the partitions that it leads.

While the broker is connected, no task runs. Whenever a queue may have something to send,
`schedule_queue` is called, which schedules `send_batches`. It takes the first batch of each ready
queue in turn until a request is full, and continues with the next request while fewer than
`max_in_flight_requests_per_connection` requests are in flight. A response completes its batches or
returns them to their queues, and then calls `send_batches` again. Only connecting needs a task (see
`ProduceConnection`).

Full batches do not wait for `send_batches`: while fewer requests are in flight, they leave within
the call of the application that has filled them (`send_full_batches`). The first one leaves alone,
so that the broker has work, and the next ones leave together, because each request has a cost of
its own. Nothing that happens there, such as a connection that closes, is raised in that call.

While the broker is unreachable or silent, its partitions are unsendable, which limits their memory.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from aiokclient.background import SLICE_S
from aiokclient.clock import get_loop_clock
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.errors import DisconnectedError, KafkaError
from aiokclient.network import connection as wire
from aiokclient.network.pool import Purpose
from aiokclient.policy import Attempts, Backoff, Scope
from aiokclient.producer.batching.accumulator import SLACK
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.batching.stages import BatchStage, InLog
from aiokclient.protocol import produce_template
from aiokclient.protocol.messages.produce import ProduceRequest
from aiokclient.protocol.produce_template import IDS_FROM, Template, TemplateRequest, Written
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.network.connection import BrokerConnection
    from aiokclient.producer.batching.meters import ProducerMeters
    from aiokclient.producer.engine import Engine
    from aiokclient.producer.transaction.manager import TransactionManager
    from aiokclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse


# These are compared for every batch. Compiled, they are variables in C.
_IN_FLIGHT, _UNKNOWABLE = BatchStage.IN_FLIGHT, InLog.UNKNOWABLE
_IDS_FROM, _SLACK = IDS_FROM, SLACK


class Sent(NamedTuple):
    """A batch with the number of the attempt in which it was sent."""

    batch: ProducerBatch
    attempt: int


class PendingProduce(wire.PendingRequest):
    """A produce request that is held or in flight. Its outcome goes to its sender.

    It has at most one batch for each partition. `attempts` are the numbers of their attempts.
    """

    __slots__ = ("attempts", "batches", "over", "sender")

    message: TemplateRequest
    batches: list[ProducerBatch]
    attempts: list[int]
    sender: Sender
    over: bool

    def list_sent(self) -> list[Sent]:
        """Return the batches with the numbers of their attempts."""
        return list(map(Sent, self.batches, self.attempts))

    def match_response(
        self, response: ProduceResponse
    ) -> Iterator[tuple[Sent, PartitionProduceResponse | None]]:
        """Yield each batch with its part of the response, or None if the partition is missing.

        Only the first part for a partition counts. Partitions that were not requested are ignored.
        """
        templates = self.message.templates
        by_id = templates[0].version >= _IDS_FROM
        waiting: dict[tuple[str | UUID, int], Sent] = {
            (template.topic_id if by_id else template.name, template.index): sent
            for template, sent in zip(templates, self.list_sent(), strict=True)
        }
        for topic in response.responses:
            name = topic.topic_id if by_id else topic.name
            for part in topic.partition_responses:
                found = waiting.pop((name, part.index), None)
                if found is not None:
                    yield found, part
        for sent in waiting.values():
            yield sent, None

    def deliver_response(self, response: Any) -> None:
        if self.over:
            return
        self.over = True
        sender = self.sender
        try:
            sender.on_response(self, response, None)
        except Exception as error:
            # As in `Callbacks.call_now`, which would be another call for each response.
            sender.callbacks.report_error(error, type(sender).on_response.__qualname__)

    def on_written(self) -> None:
        self._end_later(None)

    def fail(self, error: KafkaError) -> None:
        self._end_later(error)

    def _end_later(self, error: KafkaError | None) -> None:
        # Later, because the caller may be in the middle of sending or closing.
        if not self.over:
            self.over = True
            self.sender.callbacks.call_soon(self.sender.on_response, self, None, error)


class ProduceRequests:
    """A factory of the produce requests to one broker."""

    def __init__(
        self, config: ProducerConfig, transactions: TransactionManager | None = None
    ) -> None:
        self._acks = config.acks
        self._timeout_ms = config.request_timeout_ms
        self._timeout_s = config.request_timeout_ms / 1000
        self._expects_response = config.acks != 0
        self._transactional_id = config.transactional_id
        self._transactions = transactions
        self._templates: dict[PartitionQueue, Template] = {}

    def forget_template(self, queue: PartitionQueue) -> None:
        """Discard the template of a partition that now has another leader."""
        self._templates.pop(queue, None)

    def make_request(
        self, sender: Sender, batches: list[ProducerBatch], version: int, now: float
    ) -> PendingProduce:
        """Return the request for the given batches in an API version that the broker supports.

        `now` is the time on the loop's clock at which they are sent.
        """
        if self._transactions is not None:
            highest = self._transactions.partitions.find_highest_produce()
            version = version if highest is None else min(version, highest)
        # From Produce 13 on, a request has no names of topics (KIP-516). Brokers older than 2.8
        # give no ids.
        if version >= _IDS_FROM:
            for batch in batches:  # Not `all`, which would call a generator for each batch.
                queue = batch.queue
                if not queue.topic.topic_id.int:
                    version = _IDS_FROM - 1
        by_name = version < _IDS_FROM
        transactional = self._transactional_id is not None
        templates, encoded, attempts = [], [], []
        for batch in batches:
            queue = batch.queue
            found = self._templates.get(queue)
            topic_id = queue.topic.topic_id
            if found is None or found.topic_id is not topic_id or found.version != version:
                found = self._make_template(queue, version)
            templates.append(found)
            encoded.append(batch.encode_for_request(now, by_name, transactional))
            attempts.append(batch.attempt)
        # A constructor would be another call for each request.
        made = PendingProduce.__new__(PendingProduce)
        made.message = produce_template.new_request(TemplateRequest, templates, encoded)
        made.version = version
        made.since = now
        made.timeout_s = self._timeout_s
        made.deadline = now + self._timeout_s
        made.expect_response = self._expects_response
        made.batches = batches
        made.attempts = attempts
        made.sender = sender
        made.over = False
        return made

    def _make_template(self, queue: PartitionQueue, version: int) -> Template:
        """Make the template of a partition, because the version or the topic is new."""
        index = queue.partition
        assert index is not None
        made = self._templates[queue] = Template(
            version,
            queue.topic.name,
            queue.topic.topic_id,
            index,
            self._acks,
            self._timeout_ms,
            self._transactional_id,
        )
        return made


def endpoints(response: ProduceResponse) -> list[BrokerInfo]:
    """Return the addresses of the leaders that the response names (KIP-951)."""
    return [
        BrokerInfo(node.node_id, node.host, node.port, node.rack)
        for node in response.node_endpoints
    ]


def left_out(broker: int) -> DisconnectedError:
    """Return the error for a batch that the response does not mention."""
    return DisconnectedError(
        "The response does not mention the partition. Whether the batch was written is unknown.",
        api="Produce",
        broker=broker,
    )


SILENCE_S = 1.0
"""Seconds without a response after which a broker counts as silent."""
TICK_S = 0.010


class ProduceConnectionState:
    """The part of a `ProduceConnection` that its sender reads for each request."""

    def __init__(self) -> None:
        self.current: BrokerConnection | None = None
        self.version = 0
        """The highest version of Produce that the broker supports."""
        self.silent = False
        self.watch: asyncio.TimerHandle | None = None
        """The timer that checks whether the broker responds, while requests are in flight."""


class ProduceConnection(ProduceConnectionState):
    """The connection for the produce requests to one broker, and whether the broker can be reached.

    While there is a connection, no task runs. Only connecting needs a task, which `open` starts,
    and which tries again until it has a connection or no partition needs one.

    A broker is *unreachable* while its connection is lost and the producer tries to reconnect. It
    is *silent* when a request has had no response for a second. If no batch waits to be sent, the
    producer does not reconnect, and would never notice that the broker is reachable again. In that
    case the broker counts as reachable until an attempt to connect fails.
    """

    def __init__(
        self,
        node_id: int,
        config: ProducerConfig,
        engine: Engine,
        sender: Sender,
    ) -> None:
        super().__init__()
        self.reachable = True
        self._node_id = node_id
        self._cluster = engine.cluster
        self._supervisor = engine.supervisor
        self._callbacks = engine.callbacks
        self._sender = sender
        self._backoff = Backoff.of_reconnects(config)
        self._connecting = False
        self._ignore_loss: Callable[[], None] = lambda: None
        self._closed = False

    @property
    def unsendable(self) -> bool:
        """Whether the broker is unreachable or silent."""
        return self.silent or not self.reachable

    def measure_unanswered_s(self) -> float:
        """Return the seconds since the oldest request without a response was sent, or 0."""
        return 0.0 if self.current is None else self.current.measure_unanswered_s()

    def start_connecting(self) -> None:
        """Start to connect, unless that is in progress."""
        if self._connecting:
            return
        self._connecting = True
        self._supervisor.spawn(self._connect, name=f"produce connection to broker {self._node_id}")

    def close(self) -> None:
        """Stop connecting, and ignore the end of the connection."""
        self._closed = True
        self._ignore_loss()  # The connection may be shared and may stay open after this.
        if self.watch is not None:
            self.watch.cancel()

    # -- silence

    def begin_watch(self) -> None:
        """Check from now on whether the broker responds, until nothing is in flight."""
        self.watch = self._callbacks.call_later(SILENCE_S, self._check_silence)

    def set_silent(self, silent: bool) -> None:
        """Store whether the broker is silent."""
        if self.silent is not silent:
            self.silent = silent
            self._sender.on_reachability_changed()

    def _check_silence(self) -> None:
        """Check whether the broker still responds."""
        self.watch = None
        connection = self.current
        if not self._sender.in_flight or connection is None:
            return
        quiet = connection.measure_unanswered_s()
        if quiet >= SILENCE_S:
            self.set_silent(True)
            quiet = 0.0
        self.watch = self._callbacks.call_later(max(SILENCE_S - quiet, TICK_S), self._check_silence)

    def _set_reachable(self, reachable: bool) -> None:
        self.silent = False
        self.reachable = reachable
        self._sender.on_reachability_changed()

    # -- connecting

    async def _connect(self) -> None:
        try:
            await self._keep_connecting()
        finally:
            self._connecting = False
        if self.current is None:
            self._set_reachable(True)
        self._sender.send_batches()

    async def _keep_connecting(self) -> None:
        retry = Attempts(math.inf, self._backoff, self._cluster.clock)
        while self._sender.queues and not self._closed:
            lasting = self._callbacks.call_later(SILENCE_S, self._set_reachable, False)
            try:
                connection = await self._cluster.connect(self._node_id, Purpose.PRODUCE)
                # An unsupported version must raise here rather than when a request is sent.
                version = connection.broker.version_of(ProduceRequest)
            except KafkaError as error:
                self._set_reachable(False)
                action = retry.count_failure(error, Scope.CONNECTION)
                if not action.again:
                    self._sender.fail_all(error)
                    return
                topics = dict.fromkeys(queue.topic.name for queue in self._sender.queues)
                self._cluster.updater.request_update(topics)
                await asyncio.sleep(action.delay_s)
            else:
                self.current, self.version = connection, version
                self._ignore_loss = connection.on_close(
                    self._callbacks.guard_function(self._on_connection_lost)
                )
                self._set_reachable(True)
                return
            finally:
                lasting.cancel()

    def _on_connection_lost(self, connection: BrokerConnection, reason: KafkaError | None) -> None:
        if connection is not self.current:
            return
        self.current = None
        waiting = self._sender.on_connection_lost()
        if reason is not None and not self._closed:
            self._set_reachable(not waiting)
        if waiting:
            self._sender.schedule_queues()


FULL_TOGETHER = 3
"""Number of full batches that leave in one request while others are in flight. With 3, a million
records of 100 B take two thirds of the requests that they would take with 1."""
LEAST_PAUSE_S = 0.0002
"""The shortest pause, in seconds, for which a timer is set."""


class BatchIds(Protocol):
    """The source of the producer id, epoch, and sequence of each batch."""

    @property
    def last_error(self) -> KafkaError | None:
        """The last error of the requests without which batches have no identity."""

    def identify_batch(self, queue: PartitionQueue, batch: ProducerBatch, by_name: bool) -> bool:
        """Set the identity of a batch that is about to be sent. Return False if it must wait."""


class Sender:
    """The produce requests to one broker."""

    def __init__(
        self,
        node_id: int,
        config: ProducerConfig,
        engine: Engine,
    ) -> None:
        self.node_id = node_id
        self.queues: dict[PartitionQueue, None] = {}
        self.in_flight = 0
        """Number of produce requests without a response."""
        self._now = get_loop_clock()
        self._accumulator = accumulator = engine.accumulator
        self.callbacks = engine.callbacks
        self._responses = engine.responses
        self._ids = engine.batch_ids
        self._limit = config.max_in_flight_requests_per_connection
        self._max_request = config.max_request_size
        self._requests = ProduceRequests(config, engine.transactions)
        self._meters: ProducerMeters = accumulator.meters
        can_collect = accumulator.wakes.can_collect
        self._resume_collected = accumulator.resume_collected if can_collect else None
        self._connection = ProduceConnection(node_id, config, engine, self)
        self._ready: dict[PartitionQueue, None] = {}
        self._awaited: dict[PartitionQueue, None] = {}
        """Queues whose open batch is awaited: they are ready once nothing is in flight."""
        self._full: dict[PartitionQueue, None] = {}
        """Queues with full batches that may leave together within a call."""
        self._scheduled = False
        self._handling_response = False
        self._closed = False

    # -- queues

    @property
    def unsendable(self) -> bool:
        """Whether the broker is unreachable or silent."""
        return self._connection.unsendable

    def measure_unanswered_s(self) -> float:
        """Return the seconds since the oldest request without a response was sent, or 0."""
        return self._connection.measure_unanswered_s()

    def gain_queue(self, queue: PartitionQueue) -> None:
        """Start to send the batches of a partition, because the broker is now its leader."""
        self.queues[queue] = None
        self._accumulator.set_unsendable(queue, self.unsendable)
        if queue.oldest_batch() is not None:
            self.schedule_queue(queue)

    def lose_queue(self, queue: PartitionQueue) -> None:
        """Stop sending batches of a partition, because the broker is no longer its leader."""
        self.queues.pop(queue, None)
        self._requests.forget_template(queue)
        self._ready.pop(queue, None)
        self._awaited.pop(queue, None)
        self._full.pop(queue, None)
        queue.sequences.distrust_leader()

    def schedule_queue(self, queue: PartitionQueue, at_once: bool = False) -> None:
        """Schedule `send_batches` for a queue that may have something to send.

        The call is ignored if the broker is not the leader of the partition.
        """
        if queue not in self.queues:
            return
        self._ready[queue] = None
        if self._handling_response:
            return  # `on_response` calls `send_batches` at its end.
        if at_once and not self.in_flight and self._connection.current is not None:
            try:
                self.send_batches()
            except Exception as error:
                # As in `Callbacks.call_now`, which would be another call for each batch.
                self.callbacks.report_error(error, type(self).send_batches.__qualname__)
        elif not self._scheduled:
            self._scheduled = True
            self.callbacks.call_soon(self.send_batches)

    def send_full_batches(self, queue: PartitionQueue) -> None:
        """Send the full batches in this call, as far as that is permitted and worth a request now.

        Otherwise they leave with those of other queues as soon as it is. Full batches need not wait
        for the event loop, which may have its next iteration much later: the broker works
        meanwhile, and the batches are still in the processor's cache.
        """
        if queue not in self.queues:
            return
        if self._handling_response or self.in_flight >= self._limit:
            self._ready[queue] = None  # The handling of a response ends with `send_batches`.
            return
        self._full[queue] = None
        # A request has at most one batch of a queue, so the second one waits for no other queue.
        together = len(self._full) >= FULL_TOGETHER or len(queue.closed) > 1 or not self.in_flight
        if together and self._connection.current is not None:
            self.callbacks.run_within_call(self._send_full)
        else:
            self.schedule_queue(queue)

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        self._connection.close()

    # -- sending

    def send_batches(self) -> None:
        """Send ready batches until the permitted number of requests is in flight."""
        self._scheduled = False
        if self._full:
            self._full.clear()
        if self._closed:
            return
        connection = self._connection.current
        if connection is None or connection.closed:
            if self._ready or self._awaited:
                self._connection.start_connecting()
            return
        until = 0.0
        while self.in_flight < self._limit:
            if self._awaited and not self.in_flight:
                self._ready.update(self._awaited)
                self._awaited.clear()
            batches = self._collect_batches(self._ready)
            if not batches:
                return
            self._send_request(connection, batches)
            if not self._ready:
                return
            # Most calls send one request and have returned above, without reading the clock.
            now = self._now()
            until = until or now + SLICE_S
            if now > until:
                if not self._scheduled:
                    self._scheduled = True
                    self.callbacks.call_soon(self.send_batches)
                return

    def _send_full(self) -> None:
        """Send a full batch of each queue that has some in one request.

        No other batches are sent, because open ones may get more records until `send_batches`.
        """
        connection = self._connection.current
        if self._closed:
            return
        full = {queue: None for queue in self._full if queue.closed}
        self._full.clear()
        connected = connection is not None and not connection.closed
        batches = self._collect_batches(full) if connected else []
        for queue in full:  # Those with more batches, or all of them without a connection.
            self.schedule_queue(queue)
        if connection is not None and batches:
            self._send_request(connection, batches)

    def _collect_batches(self, ready: dict[PartitionQueue, None]) -> list[ProducerBatch]:
        """Return the batches of the next request, at most one for each of the ready queues.

        Queues without further batches are removed.
        """
        batches: list[ProducerBatch] = []
        if len(ready) == 1:
            (queue,) = ready
            batch = self._next_batch(queue)
            if batch is None or not queue.mark_in_flight(batch):
                del ready[queue]
            return batches if batch is None else [batch]
        total = 0
        until = self._now() + SLICE_S
        for queue in list(ready):
            batch = self._next_batch(queue)
            if batch is None:
                del ready[queue]
                continue
            # As in Java's client, max_request_size limits the request, not only a record.
            if batches and total + batch.size > self._max_request:
                break
            has_more = queue.mark_in_flight(batch)
            batches.append(batch)
            total += batch.size
            # The other batches of this queue come after those of all other queues.
            del ready[queue]
            if has_more:
                ready[queue] = None
            if self._now() > until:
                break
        return batches

    def _next_batch(self, queue: PartitionQueue) -> ProducerBatch | None:
        batch = queue.next_batch(not self.in_flight, self._limit)
        if batch is None:
            waiting = queue.open
            if waiting is not None and waiting.skips_linger and not waiting.in_overflow:
                self._awaited[queue] = None
            return None
        if batch.in_log is _UNKNOWABLE:
            # The batch fails in a later call, because the application may react by sending more.
            self.callbacks.call_soon(self._responses.fail_unknowable, batch)
            return None
        # Most batches are ready. This saves a call for each of them.
        is_ready = batch.size and batch.reserved - batch.plain_size <= _SLACK
        if not (is_ready or self._accumulator.prepare_batch(batch)):
            return None
        by_name = self._connection.version < _IDS_FROM
        return batch if self._ids.identify_batch(queue, batch, by_name) else None

    def _send_request(self, connection: BrokerConnection, batches: list[ProducerBatch]) -> None:
        now, own = self._now(), self._connection
        request = self._requests.make_request(self, batches, own.version, now)
        self.in_flight += 1
        wire.start_request(connection, request, now)
        self._meters.on_request_sent()
        if own.watch is None:
            own.begin_watch()

    # -- responses

    def on_response(
        self,
        request: PendingProduce,
        response: ProduceResponse | list[Written] | None,
        error: KafkaError | None,
    ) -> None:
        """Handle the response to a request, or the error in its place."""
        self._handling_response = True
        try:
            accumulator, connection = self._accumulator, self._connection
            if response is not None and self._resume_collected is not None:
                current = connection.current
                if current is not None and wire.call_after_read(current, self._resume_collected):
                    accumulator.wakes.collect()
            self.in_flight -= 1
            # By now the transport has released the bytes, or will never read them again.
            batches = request.batches
            for batch in batches:
                if batch.end_request():
                    accumulator.release_memory(batch)
            if connection.silent and error is None:
                connection.set_silent(False)
            if error is not None:
                for sent in request.list_sent():
                    self._responses.on_no_response(sent, error)
            # With acks=0, brokers send no response.
            elif response is None or isinstance(response, list):
                written = response or [(-1, -1, -1)] * len(batches)
                for at in range(len(batches)):  # Not by `zip`, which takes as long as five calls.
                    batch = batches[at]
                    # This is `is_current_attempt` without a call, which each batch would make.
                    if request.attempts[at] == batch.attempt and (
                        batch.stage is _IN_FLIGHT or not batch.done
                    ):
                        outcome = written[at]
                        # By index, which is faster than by name or `*outcome`.
                        accumulator.complete_batch(batch, outcome[0], outcome[1], outcome[2])
            else:
                self._handle_parts(request, response)
            for batch in batches:
                queue = batch.queue
                if queue not in self.queues:
                    queue.notify_sender()
                elif queue.more:
                    self._ready[queue] = None
        except BaseException:
            # After a KeyboardInterrupt, the program may go on.
            self._handling_response = False
            self.schedule_queues()
            raise
        self._handling_response = False
        if self._ready or self._awaited:
            self.send_batches()

    def _handle_parts(self, request: PendingProduce, response: ProduceResponse) -> None:
        """Handle a response that is not that of a success, batch by batch."""
        nodes = endpoints(response)
        for sent, part in request.match_response(response):
            if part is None:
                self._responses.on_no_response(sent, left_out(self.node_id))
            else:
                self._responses.on_partition_response(sent, part, self.node_id, nodes)

    # -- the connection

    def on_reachability_changed(self) -> None:
        """Mark the partitions as sendable or unsendable."""
        for queue in self.queues:
            self._accumulator.set_unsendable(queue, self.unsendable)

    def on_connection_lost(self) -> bool:
        """Handle the loss of the connection. Return whether batches wait to be sent."""
        for queue in self.queues:
            queue.sequences.distrust_leader()
        return any(queue.oldest_batch() is not None for queue in self.queues)

    def schedule_queues(self) -> None:
        """Schedule `send_batches` for all partitions with batches."""
        for queue in self.queues:
            if queue.oldest_batch() is not None:
                self.schedule_queue(queue)

    def fail_all(self, error: KafkaError) -> None:
        """Fail all batches, because the broker cannot be used and waiting does not change that."""
        for queue in list(self.queues):
            for batch in list(queue.all_batches()):
                self._accumulator.fail_batch(batch, error)
        self._ready.clear()
        self._awaited.clear()
        self._full.clear()


class TransactionalSender(Sender):
    """The produce requests of a transactional producer to one broker."""

    def __init__(
        self, node_id: int, config: ProducerConfig, engine: Engine, transactions: TransactionManager
    ) -> None:
        super().__init__(node_id, config, engine)
        self._transactions = transactions
        self._pause = transactions.pause
        self._pausing: asyncio.TimerHandle | None = None
        self._is_first = False
        """Whether the first request of the transaction is in flight to this broker."""

    def send_batches(self) -> None:
        """Send ready batches, but not before the markers of the last transaction are written."""
        pause = self._pause
        left_s = 0.0 if pause.is_used else pause.compute_wait_s(self._now())
        if left_s < LEAST_PAUSE_S:
            Sender.send_batches(self)
        elif self._pausing is None:
            self._pausing = self.callbacks.call_later(left_s, self._end_pause)

    def _send_full(self) -> None:
        pause = self._pause
        if pause.is_used or pause.compute_wait_s(self._now()) < LEAST_PAUSE_S:
            Sender._send_full(self)
        else:
            for queue in self._full:
                self.schedule_queue(queue)

    def _end_pause(self) -> None:
        self._pausing = None
        Sender.send_batches(self)

    def close(self) -> None:
        """Send nothing more."""
        Sender.close(self)
        if self._pausing is not None:
            self._pausing.cancel()

    def _send_request(self, connection: BrokerConnection, batches: list[ProducerBatch]) -> None:
        if not self._pause.is_used:
            self._pause.on_request_sent(self._now())
            self._is_first = True
        Sender._send_request(self, connection, batches)

    def on_response(
        self,
        request: PendingProduce,
        response: ProduceResponse | list[Written] | None,
        error: KafkaError | None,
    ) -> None:
        Sender.on_response(self, request, response, error)
        if self._is_first:
            self._is_first = False
            if error is None and request.batches[0].stage is BatchStage.BACKING_OFF:
                self._pause.on_request_refused()
            elif error is None:
                self._pause.on_request_answered(self._now())
        self._transactions.ends.on_records_settled()
