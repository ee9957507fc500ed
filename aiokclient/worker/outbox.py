"""The writes of a worker: the records that handlers send, retry records, and dead letters.

Handlers send through the producer that the program gave, with its serializers. Retry records and
dead letters are bytes, so they are written by a producer without serializers. A producer that is
needed and was not given is made on the consumer's `Client`, or with the options of its connections,
and is closed at the end of the run.

A write of the worker itself is repeated with a backoff until it is acknowledged. A record is not
done before. If that takes longer than `delivery_timeout_ms`, the run ends with the last error.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from aiokclient.background import new_task
from aiokclient.clock import Clock
from aiokclient.config.client import ClientConfig
from aiokclient.config.producer import ProducerConfig
from aiokclient.errors import KafkaError
from aiokclient.log.client_log import ClientLog
from aiokclient.policy import Attempts, Backoff
from aiokclient.producer import Producer
from aiokclient.types import ProducerRecord, RecordMetadata, State
from aiokclient.worker.dead_letters import adapt_letter, is_too_large

if TYPE_CHECKING:
    from aiokclient.consumer import Consumer
    from aiokclient.producer import Delivery
    from aiokclient.share.share_consumer import ShareConsumer

SHOWN_S: Final = 2.0
"""Seconds after which a write that is not acknowledged counts against the readiness."""


class LetterWrite:
    """A write of a worker itself: of a retry record or a dead letter, until it is acknowledged.

    Errors are retried with a backoff. After `delivery_timeout_ms`, the last one is raised, and so
    is the error of a producer that has failed.
    """

    def __init__(self, producer: Producer[Any, Any], topic: str, clock: Clock) -> None:
        self._producer = producer
        self.topic = topic
        self.since = clock.monotonic()
        self.error: BaseException | None = None
        """The error of the last attempt."""
        config = cast(ProducerConfig, producer._config)
        until = self.since + config.delivery_timeout_ms / 1000
        self._attempts = Attempts(until, Backoff.of(config), clock)
        self._log = ClientLog.of("aiokclient.worker", config)

    async def count_partitions(self) -> int:
        """Return the number of partitions of the topic."""
        while True:
            try:
                return len(await self._producer.partitions_for(self.topic))
            except KafkaError as error:
                await self._wait_after(error)

    async def send_letter(self, letter: ProducerRecord) -> None:
        """Write a record of bytes, and return when all in-sync replicas have it.

        A dead letter that is too large is shortened. Any other record that is too large raises its
        error at once. After a cancellation the record may be written.
        """
        while True:
            delivery: Delivery | None = None
            try:
                delivery = self._producer.send(*letter)
                await delivery
            except asyncio.CancelledError:
                if delivery is not None:
                    ignore_failures((delivery,))
                raise
            except KafkaError as error:
                if (adapted := adapt_letter(letter, error)) is not None:
                    letter = adapted
                    continue
                if is_too_large(error):
                    raise
                await self._wait_after(error)
            else:
                return

    async def _wait_after(self, error: KafkaError) -> None:
        """Wait before the next attempt. Raise the error if there is none."""
        self.error = error
        pause = self._attempts.take_pause_s()
        if self._producer.state is State.FAILED or pause >= self._attempts.remaining_s:
            raise error
        self._log.warning(
            "A failed record could not be written to %s, and the write is repeated: %s",
            self.topic,
            error,
            extra={"event": "worker_write_failed", "topic": self.topic},
        )
        await asyncio.sleep(pause)


Sent: TypeAlias = (
    "Delivery | asyncio.Future[RecordMetadata] | concurrent.futures.Future[RecordMetadata]"
)
"""The awaitable that a handler gets for a record that it sends."""


def ignore_failures(deliveries: Iterable[Any]) -> None:
    """Let nothing report later failures of deliveries, or of futures of threads.

    What waits until serializers are prepared is not sent any more.
    """
    for each in deliveries:
        each.add_done_callback(_retrieve)
        if isinstance(each, (asyncio.Task, concurrent.futures.Future)):
            each.cancel()


def _retrieve(delivery: Any) -> None:
    if not delivery.cancelled():
        delivery.exception()


class Outbox:
    """The producers of one run of a worker."""

    def __init__(
        self,
        consumer: Consumer[Any, Any] | ShareConsumer[Any, Any],
        given: Producer[Any, Any] | None,
    ) -> None:
        self._consumer = consumer
        self._given = given
        self._made: Producer[Any, Any] | None = None
        self._starting: asyncio.Lock = asyncio.Lock()
        self._owns_given = False
        self._writes: dict[LetterWrite, None] = {}
        self._clock = consumer._cluster.clock
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._prepared: set[str] = set()
        """The topics for which the serializers are prepared."""
        self._waiting: dict[str, set[object]] = {}
        """The sends of each topic that wait for a producer or for serializers, as tickets."""
        self._waiting_lock = threading.Lock()
        """The lock for changes of `_waiting`, which handlers in threads make, too."""
        self._turns: dict[str, asyncio.Lock] = {}

    async def open(self, *, sends: bool) -> None:
        """Start the producer that was given, unless it runs.

        With `sends`, the handler is likely to send records, so that one is made if none was given.
        """
        if self._given is not None:
            if self._given.state is State.NEW:
                self._owns_given = True
                await self._given.start()
        elif sends:
            await self.find_raw_producer()

    async def find_raw_producer(self) -> Producer[Any, Any]:
        """Return a running producer of bytes; make and start one if there is none."""
        given = self._given
        if given is not None and not _has_serializers(given):
            return given
        async with self._starting:
            if self._made is None:
                made = self._make_producer()
                await made.start()
                self._made = made
        return self._made

    def _make_producer(self) -> Producer[Any, Any]:
        consumer = self._consumer
        if consumer._client is not None:
            return Producer(client=consumer._client)
        given = consumer._config.given_options()
        shared = {name: given[name] for name in ClientConfig.declarations if name in given}
        return Producer(**shared)

    def send_record(self, record: ProducerRecord) -> Sent:
        """Send a record for a handler; return what it can await. Synchronous, safe in any thread.

        The first sends to a topic wait until there is a producer, and until the serializers are
        prepared for the topic, in order. In another thread the result is a future of threads.
        """
        producer = self._given if self._given is not None else self._made
        is_here = threading.get_ident() == self._thread
        if producer is not None and self._is_prepared(producer, record.topic):
            return producer.send(*record) if is_here else producer.send_threadsafe(*record)
        # The ticket is taken here and not by the task, which begins later: a thread may send its
        # next record before that.
        ticket = object()
        with self._waiting_lock:
            self._waiting.setdefault(record.topic, set()).add(ticket)
        sending = self._send_prepared(record, ticket)
        sent: Sent
        if is_here:
            sent = new_task(self._loop, sending)
        else:
            sent = asyncio.run_coroutine_threadsafe(sending, self._loop)
        # A task that is cancelled before it begins returns no ticket.
        sent.add_done_callback(partial(self._return_ticket, record.topic, ticket))
        return sent

    def _is_prepared(self, producer: Producer[Any, Any], topic: str) -> bool:
        if topic in self._waiting:
            return False  # Earlier sends come first.
        return not producer._preparations or topic in self._prepared

    def _return_ticket(self, topic: str, ticket: object, _: object = None) -> None:
        """Let later sends to a topic no longer wait for this one. Synchronous, and idempotent."""
        with self._waiting_lock:
            tickets = self._waiting.get(topic)
            if tickets is not None:
                tickets.discard(ticket)
                if not tickets:
                    del self._waiting[topic]

    async def _send_prepared(self, record: ProducerRecord, ticket: object) -> RecordMetadata:
        topic = record.topic
        turn = self._turns.setdefault(topic, asyncio.Lock())
        try:
            # A lock lets the sends continue in the order in which they came.
            async with turn:
                given = self._given
                producer = given if given is not None else await self.find_raw_producer()
                await producer.prepare(topic)
                delivery = producer.send(*record)
                self._prepared.add(topic)
        finally:
            self._return_ticket(topic, ticket)
            if topic not in self._waiting:
                self._turns.pop(topic, None)
        return await delivery

    @asynccontextmanager
    async def begin_write(self, topic: str) -> AsyncIterator[LetterWrite]:
        """Return the context of a write, which counts against the readiness until its end."""
        write = LetterWrite(await self.find_raw_producer(), topic, self._clock)
        self._writes[write] = None
        try:
            yield write
        finally:
            del self._writes[write]

    def list_troubles(self) -> list[str]:
        """Return which writes of the worker are not acknowledged in time, as texts."""
        now = self._clock.monotonic()
        found = []
        for write in self._writes:
            waited = now - write.since
            if write.error is not None or waited >= SHOWN_S:
                why = f": {write.error}" if write.error is not None else ""
                found.append(
                    f"a failed record could not be written to {write.topic} for {waited:.0f} s{why}"
                )
        return found

    async def close(self, timeout: float) -> None:
        """Close the producers that this object has started, within `timeout` seconds each."""
        if self._made is not None:
            await self._made.close(timeout)
        if self._owns_given and self._given is not None:
            await self._given.close(timeout)


def _has_serializers(producer: Producer[Any, Any]) -> bool:
    config = cast(ProducerConfig, producer._config)
    return config.key_serializer is not None or config.value_serializer is not None
