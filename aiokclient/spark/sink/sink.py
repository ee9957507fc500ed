"""The sink: writers of a batch query and of a stream, which write at least once by default."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from aiokclient import Client, Producer
from aiokclient.errors import ConfigError, KafkaError
from aiokclient.spark import clients, garbage
from aiokclient.spark.attempts import require_brokers
from aiokclient.spark.checkpoint_files import query_id
from aiokclient.spark.sink.arrow_sends import ArrowSends
from aiokclient.spark.sink.batch_feed import BatchFeed
from aiokclient.spark.sink.columns import check_columns
from aiokclient.spark.sink.exactly_once import ExactlyOnce, WrittenPart, abort, commit
from aiokclient.spark.sink.kill_points import reach
from aiokclient.spark.sink.markers import Position
from aiokclient.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("aiokclient.spark")

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
ABORT_S = 15.0
"""Seconds that the driver spends on aborting the transactions of a batch that has failed."""
LATER = (
    "The next start of the query aborts them, or the coordinator does after "
    "kafka.transaction.timeout.ms."
)
_queries: dict[str, str] = {}
"""The ids of the queries whose batches this process of the driver has committed, by checkpoint."""


@dataclass
class Written(WriterCommitMessage):
    """The report of a task to the driver."""

    part: WrittenPart | None = None
    """The rows of an exactly-once task. None if it had none, or if they were committed before."""
    position: Position | None = None
    """What the task has written, with exactly-once."""


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a batch query. Raises ConfigError for mistakes.

    It connects to the cluster first: an error about a broker is then raised once, before Spark
    starts tasks and repeats them.
    """
    options = _checked(given, schema, overwrite, streaming=False)
    clients.run(options.client, _connected)
    return BatchWriter(options)


def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of a stream. Raises ConfigError for mistakes."""
    return StreamWriter(_checked(given, schema, overwrite, streaming=True))


def _checked(
    given: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool
) -> SinkOptions:
    options = SinkOptions.parse(given, streaming=streaming)
    # In the mode complete, a stream writes all rows of each batch, as with the connector.
    if overwrite and not streaming:
        raise ConfigError(
            "The mode overwrite is not allowed, because the records of a topic cannot be replaced. "
            "Use mode('append')."
        )
    check_columns(schema, options.topic)
    return options


async def _connected(client: Client) -> None:
    """Do nothing, because `clients.run` has already connected the client."""


class BatchWriter(DataSourceArrowWriter):
    """The writer of a batch query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task, and wait until they are acknowledged or in a transaction."""
        return _write(self._options, self._make_position(_context().partitionId()), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the rows that the tasks have written and not committed."""
        _commit(self._options, messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the transactions that the tasks have left open."""
        _abort(self._options, messages, self._make_position)

    def _make_position(self, partition: int) -> Position:
        return Position(self._options.write_id or "", partition, 0, False)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task, and wait until they are acknowledged or in a transaction."""
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        position = Position(query or "", context.partitionId(), int(batch or 0))
        if self._options.exactly_once:
            _check_query(context, query, batch)
        return _write(self._options, position, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the rows that the tasks have written and not committed."""
        if None in messages:
            # Spark commits a batch only if all its tasks have reported. In an epoch of a continuous
            # trigger, it passes no rows to a sink in Python, and so there are no reports. The error
            # does not end the query, but keeps Spark from committing the epoch.
            raise ConfigError(
                "A continuous trigger is not allowed: Spark does not pass the rows of its epochs "
                "to a sink in Python. Nothing is written or committed. Stop the query, and use "
                "trigger(processingTime=...) or trigger(availableNow=True)."
            )
        self._find_query_id(messages)
        _commit(self._options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the transactions that the tasks have left open."""
        query = self._find_query_id(messages)
        if query is None and self._options.exactly_once:
            log.warning(
                "The transactions of batch %d were not aborted: no task has reported the id of "
                "the query, and the checkpoint %s is not local. %s",
                batchId,
                self._options.checkpoint,
                LATER,
            )
            return
        _abort(self._options, messages, lambda part: Position(query or "", part, batchId))

    def _find_query_id(self, messages: list[WriterCommitMessage | None]) -> str | None:
        """Return the id of the query, which Spark passes to tasks, but not to the driver."""
        checkpoint = self._options.checkpoint or ""
        for message in messages:
            if isinstance(message, Written) and message.position is not None:
                _queries[checkpoint] = message.position.name
        return _queries.get(checkpoint) or query_id(checkpoint)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("A writer of Spark was called outside of a task.")
    return context


def _check_query(context: TaskContext, query: str | None, batch: str | None) -> None:
    if not query or not batch:
        raise ConfigError(
            "deliveryGuarantee=exactly-once needs the id of the query and of the batch, but Spark "
            "did not pass them to this task. Use at-least-once."
        )
    # A task sees a setting only if the program has set it. Spark's default is true.
    if (context.getLocalProperty(ADAPTIVE) or "true").strip().lower() != "false":
        raise ConfigError(
            f"{ADAPTIVE}: 'true' is not allowed with deliveryGuarantee=exactly-once. A repeated "
            "batch must be divided into the same tasks, and adaptive execution may divide it "
            "differently. Set it to false."
        )


def _write(options: SinkOptions, position: Position, batches: Iterator[pa.RecordBatch]) -> Written:
    garbage.exclude()
    require_brokers(options.client)
    feed = BatchFeed()
    work: Callable[[Client], Awaitable[WrittenPart | None]]
    if options.exactly_once:
        work = partial(ExactlyOnce(options, position).write_rows, feed)
    else:
        work = partial(_write_at_least_once, options, position, feed)
    part = clients.result(feed.feed_reader(batches, partial(clients.submit, options.client, work)))
    return Written(part, position) if options.exactly_once else Written()


async def _write_at_least_once(
    options: SinkOptions, position: Position, feed: BatchFeed, client: Client
) -> None:
    await reach(options.test_points, "after-log", position.batch, position.partition)
    sends = ArrowSends(options.topic)
    async with Producer.from_properties(
        dict(options.producer), client=client, on_delivery_error=sends.on_delivery_error
    ) as producer:
        await sends.send_all(producer, feed.read_batches())
        await reach(options.test_points, "before-flush", position.batch, position.partition)
        await producer.flush()
        sends.raise_failure()
    await reach(options.test_points, "before-handoff", position.batch, position.partition)


def _parts(messages: list[WriterCommitMessage | None]) -> list[WrittenPart]:
    # A failed task has no message.
    return [m.part for m in messages if isinstance(m, Written) and m.part is not None]


def _commit(options: SinkOptions, messages: list[WriterCommitMessage | None], batch: int) -> None:
    if options.exactly_once or options.test_points is not None:
        work = partial(commit, options, _parts(messages), len(messages), batch)
        clients.run(options.client, work)


def _abort(
    options: SinkOptions,
    messages: list[WriterCommitMessage | None],
    position: Callable[[int], Position],
) -> None:
    """Abort the transactions of all tasks. `position` returns what a Spark partition writes.

    Errors are only logged: they would hide the error for which Spark aborts the batch.
    """
    if not options.exactly_once:
        return
    unreported = [position(number) for number, m in enumerate(messages) if m is None]
    work = partial(abort, _parts(messages), unreported)
    try:
        clients.run(options.client, work, timeout=ABORT_S)
    except (KafkaError, TimeoutError) as error:
        log.warning(
            "Transactions of a batch that has failed may be open, because they were not aborted "
            "within %d s. %s The last error was: %s",
            ABORT_S,
            LATER,
            error,
        )
