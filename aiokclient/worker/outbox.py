"""What a worker writes: the records that handlers send, retry records, and dead letters.

Handlers send through the producer that the program gave, with its serializers. Retry records and
dead letters are bytes, so they are written by a producer without serializers. A producer that is
needed and was not given is made on the consumer's `Client`, or with the options of its connections,
and is closed at the end of the run.

A write of the worker itself is repeated with a backoff until it is acknowledged. A record is not
done before. If that takes longer than `delivery_timeout_ms`, the run ends with the last error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from aiokclient.clock import Clock
from aiokclient.config.client import ClientConfig
from aiokclient.config.producer import ProducerConfig
from aiokclient.errors import IllegalStateError, KafkaError
from aiokclient.log.client_log import ClientLog
from aiokclient.policy import Attempts, Backoff
from aiokclient.producer import Producer
from aiokclient.types import ProducerRecord, State
from aiokclient.worker.dead_letters import adapt_letter, is_too_large

if TYPE_CHECKING:
    from aiokclient.consumer import Consumer
    from aiokclient.producer import Delivery

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


def ignore_failures(deliveries: Iterable[Any]) -> None:
    """Let nothing report later failures of deliveries, or of futures of threads."""
    for each in deliveries:
        each.add_done_callback(_retrieve)


def _retrieve(delivery: Any) -> None:
    if not delivery.cancelled():
        delivery.exception()


class Outbox:
    """The producers of one run of a worker."""

    def __init__(self, consumer: Consumer[Any, Any], given: Producer[Any, Any] | None) -> None:
        self._consumer = consumer
        self._given = given
        self._made: Producer[Any, Any] | None = None
        self._starting: asyncio.Lock = asyncio.Lock()
        self._owns_given = False
        self._writes: dict[LetterWrite, None] = {}
        self._clock = consumer._cluster.clock

    async def open(self, *, sends: bool) -> None:
        """Start the producer that was given, unless it runs.

        With `sends`, the handler can send records, so that a producer is needed in any case.
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

    def get_sender(self) -> Producer[Any, Any]:
        """Return the producer by which handlers send. Synchronous, safe in any thread.

        Raises IllegalStateError if there is none.
        """
        producer = self._given if self._given is not None else self._made
        if producer is None:
            raise IllegalStateError(
                "This worker has no producer to send with. Give its handler a second parameter, "
                "for the worker, or make the worker with producer=..."
            )
        return producer

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
