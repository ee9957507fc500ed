"""Waiting for room, for a topic to become known, and sending all of an iterable at that pace."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from aiokclient.errors import ApiTimeoutError, BufferExhaustedError
from aiokclient.policy import Decision, Scope, decide
from aiokclient.producer.bulk import as_record
from aiokclient.producer.deliveries import Run, runs_of
from aiokclient.producer.delivery import Delivery, settled
from aiokclient.producer.fairness import SLICE_S

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.producer.engine import Engine
    from aiokclient.producer.producer import Producer
    from aiokclient.producer.topic import Topic

__all__ = ["SLICE_S", "SendAll", "known", "parked", "unparked"]

CHUNK = 256
"""Items of a plain iterable that are sent by one call."""
WAITING = (Decision.RETRY, Decision.REFRESH_AND_RETRY)


def parked(delivery: Delivery) -> bool:
    """Whether the record is in the parking."""
    return delivery.located()[0].parked


async def unparked(delivery: Delivery) -> None:
    """Until the record has left the parking, or has its outcome."""
    while (batch := delivery.located()[0]).parked and not batch.done:
        await batch.changed()


async def known(topic: Topic, cluster: ClusterClient, timeout: float) -> None:
    """Until the partitions of a topic are known; see `Producer.prepare`."""
    updater = cluster.updater
    deadline = cluster.clock.monotonic() + timeout
    while not topic.known:
        error = updater.errors.get(topic.name)
        if error is not None:
            action = decide(error, Scope.METADATA, 0, 1.0, cluster.clock.rng)
            if action.decision not in WAITING:
                raise error
        remaining = deadline - cluster.clock.monotonic()
        if remaining <= 0:
            raise ApiTimeoutError(f"topic {topic.name} is not known", api="Metadata") from error
        try:
            await updater.refresh((topic.name,), timeout=remaining)
        except ApiTimeoutError as late:
            raise late from updater.errors.get(topic.name, late.__cause__)
        if topic.moving:
            await asyncio.sleep(0)


class SendAll:
    """One `send_all`: sends, waits for room, and watches for failures."""

    def __init__(self, producer: Producer[Any, Any], engine: Engine, topic: str) -> None:
        self._producer = producer
        self._accumulator = engine.accumulator
        self._failures = engine.failures
        self._topic = topic
        self._waiting: deque[Run] = deque()
        """What was sent and not found delivered, in order."""
        self._seen_failures = engine.failures.total
        self._count = 0

    async def run(self, items: Iterable[Any] | AsyncIterable[Any]) -> int:
        """See `Producer.send_all`."""
        if isinstance(items, AsyncIterable):
            async for item in items:
                await self._send_one(item)
        elif isinstance(items, Iterable):
            iterator = iter(items)
            while chunk := list(islice(iterator, CHUNK)):
                await self._send_chunk(chunk)
        else:
            raise TypeError(f"send_all takes an iterable, not {type(items).__name__}")
        while self._waiting:
            await self._front()
        return self._count

    async def _send_chunk(self, chunk: list[Any]) -> None:
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
                    raise  # it fits into no buffer of this size
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
                delivered(run)
        while self._waiting and delivered(self._waiting[0]):
            self._waiting.popleft()

    async def _front(self) -> None:
        """Until the oldest that was sent is delivered."""
        run = self._waiting[0]
        if delivered(run):
            self._waiting.popleft()
            return
        await settled(run.batch)


def delivered(run: Run) -> bool:
    """Whether all of a run is delivered; raises the first failure in it."""
    batch, first, size, _ = run
    if first >= batch.moved:
        parts = [(batch, first, size)] if batch.done else []
    else:
        parts = [(*batch.locate(index), 1) for index in range(first, first + size)]
        parts = parts if all(part.done for part, _, _ in parts) else []
    for part, index, count in parts:
        error = part.retrieve_run(index, count)
        if error is not None:
            raise error.with_traceback(None)
    return bool(parts)
