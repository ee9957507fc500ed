"""Writing the rows of a Spark task exactly once, in a transaction that carries a marker.

A task writes its rows and a marker, which is an offset of a group, in one transaction. Spark
repeats a batch that is not in its commit log, because a task, an executor, or the driver has died.
The repeated task first starts a producer with the same transactional id, which fences older
attempts and aborts their open transactions. Then it reads the marker. If there is none, or only
that of an earlier batch, the task writes the rows. If the marker is that of this batch, the rows
are already committed, and the task only compares its own rows with the marker's digest. The marker
of a later batch is an error.

Tasks leave their transactions open, and the driver commits them once all tasks are done. A task
cannot commit its own: if what stands before the sink fails, or if the query is stopped, pyspark
ends the rows of the task as if they were complete, and only the driver knows that they are not. The
driver then aborts the transactions of all tasks, also of those that have reported nothing.

The rows of one task are atomic, but the rows of a batch are not: a reader may see the rows of some
tasks before the rows of other tasks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokclient import (
    Admin,
    Client,
    Consumer,
    DetachedTransaction,
    GroupMetadata,
    Producer,
    TopicPartition,
    TransactionOutcome,
)
from aiokclient.errors import KafkaError
from aiokclient.spark.sink.arrow_sends import ArrowSends
from aiokclient.spark.sink.batch_feed import BatchFeed
from aiokclient.spark.sink.columns import selected
from aiokclient.spark.sink.digest import RowDigest
from aiokclient.spark.sink.kill_points import is_armed, reach
from aiokclient.spark.sink.markers import (
    MARKED_PARTITION,
    Marker,
    Position,
    Step,
    decoded,
    difference,
    fewer_partitions,
    newest,
    next_step,
    refusal,
)
from aiokclient.spark.sink.options import SinkOptions
from aiokclient.spark.sink.partition_count import check_partition_count

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("aiokclient.spark")

AT_A_TIME = 16
"""The number of transactions that the driver ends at the same time."""
KILLED_S = 3.0
"""Seconds after which a task that is stopped can begin no transaction any more. Spark kills its
process after two (`spark.python.task.killTimeout`)."""
POLL_S = 0.2
OPEN = "Ongoing"
"""Kafka's name for the state of an open transaction."""


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """The rows that a task has written in a transaction."""

    position: Position
    topic: str
    """The topic of the marker. It exists, so offsets can be committed for it."""
    begun: float
    """The time at which the transaction was begun, in seconds since the epoch."""
    transaction: DetachedTransaction
    """The transaction that the driver ends."""


class ExactlyOnce:
    """The exactly-once write of one task."""

    def __init__(self, options: SinkOptions, position: Position) -> None:
        self._options = options
        self._position = position
        self._digest = RowDigest()

    async def write_rows(self, feed: BatchFeed, client: Client) -> WrittenPart | None:
        """Write the rows, or compare them with the marker if they are committed already.

        Return None if there are no rows, or if the rows were committed already. Raises KafkaError
        if the rows that were committed for this batch are not the same, or if a later batch is
        committed.
        """
        await self._reach_test_point("after-log")
        batches = feed.read_batches()
        first = await _first(batches)
        topic = self._options.topic
        if first is None:
            # Earlier attempts of this task had no rows, too, so they left no transaction to fence.
            await self._is_committed(await self._find_marker(client, topic), batches)
            return None
        if topic is None:
            topic = str(selected(first, None).column("topic")[0].as_py())
        batches = _chained(first, batches)
        sends = ArrowSends(self._options.topic)
        producer: Producer[Any, Any] = Producer.from_properties(
            {**dict(self._options.producer), "transactional.id": self._position.transactional_id},
            client=client,
            on_delivery_error=sends.on_delivery_error,
        )
        async with producer:
            # The marker can be read only if the topic exists.
            await sends.prepare_topic(producer, topic)
            marker = await self._find_marker(client, topic)
            if await self._is_committed(marker, batches):
                return None
            part = await self._write_part(producer, sends, topic, batches)
        await self._reach_test_point("before-handoff")
        return part

    async def _is_committed(
        self, marker: Marker | None, batches: AsyncIterator[pa.RecordBatch]
    ) -> bool:
        """Return whether the rows are already committed.

        Raises KafkaError if the committed rows of this batch are not the same, or if a later batch
        is committed.
        """
        step = next_step(marker, self._position)
        if marker is None or step is Step.WRITE:
            return False
        if step is Step.REFUSE:
            raise KafkaError(refusal(marker, self._position))
        async for batch in batches:
            self._digest.update(selected(batch, self._options.topic))
        text = difference(marker, self._make_marker(), self._position)
        if text is not None:
            raise KafkaError(text)
        return True

    async def _write_part(
        self,
        producer: Producer[Any, Any],
        sends: ArrowSends,
        topic: str,
        batches: AsyncIterator[pa.RecordBatch],
    ) -> WrittenPart:
        begun = time.time()
        try:
            async with producer.transaction() as transaction:
                await sends.send_all(producer, batches, self._digest.update)
                # Offsets of a group are the only data that a transaction stores beside records. So
                # the marker is there exactly if the rows are.
                offset = {TopicPartition(topic, MARKED_PARTITION): self._make_marker().encode()}
                await transaction.send_offsets(offset, GroupMetadata(self._position.group))
                await self._reach_test_point("before-flush")
                await producer.flush()
                detached = await transaction.detach()
        except KafkaError as error:
            # After a fatal error, the transaction is no longer open.
            if not error.fatal:
                raise
            raise _aborted(self._options, self._position, begun) from error
        return WrittenPart(self._position, topic, begun, detached)

    def _make_marker(self) -> Marker:
        return Marker(self._position.batch, self._digest.rows, self._digest.hexdigest())

    async def _find_marker(self, client: Client, topic: str | None) -> Marker | None:
        """Return the newest marker of this Spark partition.

        `topic` is the topic of the first row. Without the option `topic`, the first rows of earlier
        batches may have had other topics, so the markers of all topics are read.
        """
        group, found = self._position.group, {}
        if topic is not None:
            tp = TopicPartition(topic, MARKED_PARTITION)
            async with Consumer(
                client=client, group_id=group, enable_auto_commit=False
            ) as consumer:
                # This call waits for the end of an open transaction that has a marker.
                found = await consumer.committed([tp])
        if self._options.topic is None:
            async with Admin(client=client) as admin:
                listed = await admin.list_consumer_group_offsets([group], require_stable=True)
                listed.raise_for_errors()
                found = {**found, **listed.succeeded[group]}
        return newest(decoded(found, self._position))

    async def _reach_test_point(self, point: str) -> None:
        position = self._position
        await reach(self._options.test_points, point, position.batch, position.partition)


async def commit(
    options: SinkOptions, parts: Sequence[WrittenPart], count: int, batch: int, client: Client
) -> None:
    """Commit the transactions of the tasks of a batch. The call may be repeated.

    `count` is the number of Spark partitions, including those that have written nothing. Raises
    KafkaError if a transaction was aborted: the rows that were not committed are written again when
    Spark repeats the batch. Also raises KafkaError if the batch has fewer partitions than before;
    see `partition_count`.
    """
    if parts:
        position, topic = parts[0].position, parts[0].topic
        committed = await check_partition_count(client, position, topic, count)
        if committed is not None:
            raise KafkaError(fewer_partitions(committed, count))
    points = options.test_points
    several = asyncio.Semaphore(1 if is_armed(points, "between-commits", batch) else AT_A_TIME)
    ended = 0

    async def end(part: WrittenPart) -> None:
        nonlocal ended
        async with several:
            if ended:
                await reach(points, "between-commits", batch)
            try:
                outcome = await client.end_transaction(part.transaction, commit=True)
            except KafkaError as error:
                if not error.fatal:
                    raise
                raise _aborted(options, part.position, part.begun) from error
            if outcome is not TransactionOutcome.COMMITTED:
                raise _aborted(options, part.position, part.begun)
            ended += 1

    results = await asyncio.gather(*map(end, parts), return_exceptions=True)
    for result in results:
        if result is not None:
            raise result
    await reach(points, "after-commit", batch)


async def abort(
    parts: Iterable[WrittenPart], unreported: Iterable[Position], client: Client
) -> None:
    """Abort the transactions of the tasks of a batch. Those that are committed stay committed.

    `unreported` are the positions of the tasks that have failed, were stopped, or have not begun.
    If an abort fails, the next attempt or the coordinator aborts the transaction.
    """
    calls = [client.end_transaction(part.transaction, commit=False) for part in parts]
    await asyncio.gather(*calls, return_exceptions=True)
    ids = [position.transactional_id for position in unreported]
    if ids:
        async with Admin(client=client) as admin:
            await _fence(admin, ids)


async def _fence(admin: Admin, ids: Sequence[str]) -> None:
    """Abort the transactions with these transactional ids, also those that begin a little later."""
    opened = await _opened(admin, ids)
    await _fence_once(admin, ids)
    late = set(ids) - opened
    loop = asyncio.get_running_loop()
    end = loop.time() + KILLED_S
    # A task that had received its first rows when it was stopped may begin a transaction now.
    while late and loop.time() < end:
        await asyncio.sleep(POLL_S)
        opened = await _opened(admin, late)
        if opened:
            await _fence_once(admin, opened)
            late -= opened


async def _opened(admin: Admin, ids: Iterable[str]) -> set[str]:
    """Return the transactional ids that have an open transaction."""
    described = await admin.describe_transactions(ids)
    return {name for name, each in described.succeeded.items() if each.state == OPEN}


async def _fence_once(admin: Admin, ids: Iterable[str]) -> None:
    fenced = await admin.fence_producers(ids)
    for name, error in fenced.errors.items():
        log.warning(
            "The open transaction of %s was not aborted: %s The next start of the query aborts it, "
            "or the coordinator does after kafka.transaction.timeout.ms.",
            name,
            error,
        )


def _aborted(options: SinkOptions, position: Position, begun: float) -> KafkaError:
    took_ms, limit_ms = int((time.time() - begun) * 1000), options.transaction_timeout_ms
    if took_ms >= limit_ms:
        why = (
            f"It was open for {took_ms} ms, longer than kafka.transaction.timeout.ms ({limit_ms}). "
            "Set that above the time of the longest batch, or make batches smaller."
        )
    else:
        why = "Another attempt or another run of the query has started and has fenced it."
    what = "Start the query again: it" if position.streaming else "Repeat the write: it"
    return KafkaError(
        f"The transaction of {position} was aborted before it was committed. {why} {what} skips "
        "what is committed and writes the rest."
    )


async def _first(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    async for batch in batches:
        if batch.num_rows:
            return batch
    return None


async def _chained(
    first: pa.RecordBatch, rest: AsyncIterator[pa.RecordBatch]
) -> AsyncIterator[pa.RecordBatch]:
    yield first
    async for batch in rest:
        yield batch
