"""The implementation of `send_all`, which sends an iterable as fast as the brokers accept it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

import anyio

from aiokclient.errors import BufferExhaustedError, KafkaError
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.delivery.deliveries import Run, runs_of
from aiokclient.producer.delivery.delivery import Delivery, settled
from aiokclient.producer.delivery.failures import Failures
from aiokclient.producer.send_many import as_record

__all__ = ["SendAll"]

CHUNK = 256
"""Number of items of a synchronous iterable that are sent at a time."""


class Sending(Protocol):
    """The calls of a producer that `send_all` makes."""

    def send(self, topic: str, /, *fields: Any) -> Delivery:
        """See `Producer.send`."""

    def send_many(self, topic: str, values: Sequence[Any], /) -> Sequence[Delivery]:
        """See `Producer.send_many`."""

    async def drain(self) -> None:
        """See `Producer.drain`."""


class SendAll:
    """One call of `send_all`: sends records, waits for room, and watches for failures."""

    def __init__(
        self, producer: Sending, accumulator: Accumulator, failures: Failures, topic: str
    ) -> None:
        self._producer = producer
        self._accumulator = accumulator
        self._failures = failures
        self._topic = topic
        self._waiting: deque[Run] = deque()
        """The records that were sent and are not yet known to be delivered, in order."""
        self._seen_failures = failures.total
        self._end: KafkaError | None = None
        self._told = False
        """Whether the failure of a delivery is being raised."""
        self._count = 0

    async def run(self, items: Iterable[Any] | AsyncIterable[Any]) -> int:
        """See `Producer.send_all`."""
        try:
            return await self._run(items)
        except KafkaError:
            if self._told:
                for run in self._waiting:
                    retrieve(run)  # The caller has no deliveries and sees only this one error.
            raise

    async def _run(self, items: Iterable[Any] | AsyncIterable[Any]) -> int:
        if isinstance(items, AsyncIterable):
            await self._stream(items)
        elif isinstance(items, Iterable):
            iterator = iter(items)
            while chunk := list(islice(iterator, CHUNK)):
                await self._send_chunk(chunk)
        else:
            raise TypeError(f"send_all() takes an iterable, not {type(items).__name__}.")
        while self._waiting:
            await self._front()
        return self._count

    async def _stream(self, items: AsyncIterable[Any]) -> None:
        """Send each item as it arrives, until a record fails or the producer ends."""
        with anyio.CancelScope() as scope:

            def look(end: KafkaError | None) -> None:
                self._end = self._end or end or self._failure()
                if self._end is not None:
                    scope.cancel()

            with self._failures.watched(look):
                async for item in items:
                    await self._send_one(item)
        if scope.cancelled_caught and self._end is not None:
            self._failures.on_final_seen()
            raise self._end.with_traceback(None)

    def _failure(self) -> KafkaError | None:
        """Return the first failure among the records that were sent."""
        try:
            for run in self._waiting:
                self._delivered(run)
        except KafkaError as error:
            return error
        return None

    def _delivered(self, run: Run) -> bool:
        try:
            return delivered(run)
        except KafkaError:
            self._told = True
            raise

    async def _send_chunk(self, chunk: list[Any]) -> None:
        if len(chunk) == 1:
            await self._send_one(chunk[0])
            return
        try:
            deliveries = self._producer.send_many(self._topic, chunk)
        except BufferExhaustedError:
            for item in chunk:
                await self._send_one(item)
        else:
            await self._took(deliveries)

    async def _send_one(self, item: Any) -> None:
        record = as_record(self._topic, item)
        while True:
            try:
                delivery = self._producer.send(*record)
                break
            except BufferExhaustedError:
                if not self._accumulator.pending:
                    raise  # The record does not fit even into an empty buffer.
                await self._accumulator.room()
        await self._took([delivery])

    async def _took(self, deliveries: Sequence[Delivery]) -> None:
        self._count += len(deliveries)
        for run in runs_of(deliveries):
            last = self._waiting[-1] if self._waiting else None
            if last is not None and last.batch is run.batch and last.first + last.size == run.first:
                self._waiting[-1] = last._replace(size=last.size + run.size)
            else:
                self._waiting.append(run)
        await self._producer.drain()
        if self._failures.total != self._seen_failures:
            self._seen_failures = self._failures.total
            for run in self._waiting:
                self._delivered(run)
        while self._waiting and self._delivered(self._waiting[0]):
            self._waiting.popleft()

    async def _front(self) -> None:
        """Wait until the oldest record is delivered."""
        run = self._waiting[0]
        if self._delivered(run):
            self._waiting.popleft()
            return
        await settled(run.batch)


def parts_of(run: Run) -> list[Run]:
    """Return the records of a run as runs of the batches to which they have moved."""
    batch, first, size, timestamp = run
    if first >= batch.moved:
        return [run]
    return [Run(*batch.locate(index), 1, timestamp) for index in range(first, first + size)]


def delivered(run: Run) -> bool:
    """Return whether all records of a run are delivered. Raise the first failure among them."""
    parts = parts_of(run)
    if not all(part.batch.done for part in parts):
        return False
    for batch, first, size, _ in parts:
        error = batch.retrieve_run(first, size)
        if error is not None:
            raise error.with_traceback(None)
    return True


def retrieve(run: Run) -> None:
    """Count all failures of a run as retrieved, including those that happen later."""
    for part in parts_of(run):
        batch, first, size, timestamp = part
        if batch.done:
            batch.retrieve_run(first, size)
        else:
            Delivery(batch, first, timestamp).add_done_callback(partial(_retrieve_later, part))


def _retrieve_later(run: Run, _: Delivery) -> None:
    retrieve(run)
