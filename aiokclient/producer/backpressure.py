"""The waits of a producer: for room in the buffer, for metadata of a topic, for a serializer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio

from aiokclient.errors import ApiTimeoutError, KafkaError, SerializationError
from aiokclient.policy import Scope, classify
from aiokclient.producer.delivery.delivery import Delivery

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.producer.batching.accumulator import Accumulator
    from aiokclient.producer.batching.queue import PartitionQueue, Topic
    from aiokclient.producer.delivery.failures import Failures

__all__ = ["in_overflow", "known", "out_of_overflow", "prepared", "room", "while_open"]


def in_overflow(delivery: Delivery) -> bool:
    """Return whether the record is in the overflow queue."""
    return delivery.located()[0].in_overflow


async def out_of_overflow(delivery: Delivery) -> None:
    """Wait until the record has left the overflow queue, or has its outcome."""
    while (batch := delivery.located()[0]).in_overflow and not batch.done:
        await batch.changed()


async def room(
    accumulator: Accumulator, failures: Failures, find: Callable[[], Sequence[PartitionQueue]]
) -> bool:
    """Wait until the buffer has room for a record of one of the queues that `find` returns.

    Return whether it was necessary to wait. Raises the reason of the producer's end if it ends.
    """
    if any(map(accumulator.has_room, find())):
        return False

    async def wait() -> None:
        while not any(map(accumulator.has_room, find())):
            await accumulator.room()

    await while_open(failures, wait())
    return True


async def while_open(failures: Failures, work: Awaitable[object]) -> None:
    """Await `work`. If the producer ends first, stop waiting and raise the reason of the end."""
    ended: list[KafkaError] = []
    with anyio.CancelScope() as scope:

        def look(end: KafkaError | None) -> None:
            if end is not None:
                ended.append(end)
                scope.cancel()

        with failures.watched(look):
            await work
    if scope.cancelled_caught:
        failures.on_final_seen()
        raise ended[0].with_traceback(None)


async def known(topic: Topic, cluster: ClusterClient, timeout: float) -> None:
    """Wait until the partitions of a topic are known; see `Producer.prepare`."""
    updater = cluster.updater
    deadline = cluster.clock.monotonic() + timeout
    while not topic.known:
        error = updater.errors.get(topic.name)
        if error is not None and not classify(error, Scope.METADATA).again:
            raise error
        remaining = deadline - cluster.clock.monotonic()
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


def is_cancelled() -> bool:
    """Return whether the current task is being cancelled.

    If it is not, a CancelledError comes from a cancelled future that the application's code awaits.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def prepared(prepare: Callable[[str], Awaitable[object]], topic: str, timeout: float) -> None:
    """Await the `prepare` of a serializer; see `Producer.prepare`."""
    scope = asyncio.timeout(None if timeout == math.inf else timeout)
    try:
        async with scope:
            await prepare(topic)
    except KafkaError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        if scope.expired():
            text = f"A serializer was not prepared for topic {topic} within the timeout."
            raise ApiTimeoutError(text) from error
        text = f"A serializer could not be prepared for topic {topic}: {error!r}."
        raise SerializationError(text) from error
