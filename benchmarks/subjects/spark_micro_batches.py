"""Streams of small batches: the time of a batch, and memory after many of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from measuring.runner import RunFailedError
from measuring.spark_runs import Meter
from pyspark.sql.streaming import StreamingQueryListener

from subjects.spark_jobs import MEMORY, PARTITIONS, World

__all__ = ["batch_ms", "memory"]

ROWS = 100
SIZE = 100
WAIT_S = 120.0


class Progress(StreamingQueryListener):
    """The progress of the batches of one query, as Spark reports it."""

    def __init__(self) -> None:
        self._reports: SimpleQueue[Any] = SimpleQueue()

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        self._reports.put(event.progress)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        self._reports.put(event.exception or "The query was stopped.")

    def next(self) -> Any:
        """Wait for the end of the next batch that has rows."""
        while True:
            report = self._reports.get(timeout=WAIT_S)
            if isinstance(report, str):
                raise RunFailedError(report)
            if report.numInputRows:
                return report


@contextmanager
def stream(
    world: World, subject: str, topic: str, target: str | None, **options: object
) -> Iterator[Progress]:
    """Run a stream from one topic to another. Without a target topic, the rows are discarded."""
    reader = world.spark.readStream.format(subject)
    if subject == MEMORY:
        reader = reader.options(rows=ROWS, size=SIZE, partitions=PARTITIONS, endless=True)
    else:
        reader = reader.options(**world.servers, subscribe=topic, startingOffsets="earliest")
    frame = reader.options(**options).load().select("value")
    writer = frame.writeStream.format("noop" if target is None else subject)
    if target is not None and subject != MEMORY:
        writer = writer.options(**world.servers, topic=target)
    writer = writer.option("checkpointLocation", world.new_folder())
    progress = Progress()
    world.spark.streams.addListener(progress)
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        yield progress
    finally:
        query.stop()
        world.spark.streams.removeListener(progress)


def batch_ms(world: World, subject: str, batches: int, *, copied: bool, waiting: bool) -> float:
    """Return the median time of a batch in milliseconds, from the progress that Spark reports.

    Each batch has about 100 rows. If they are `waiting`, they are in the topic before the first
    batch. Otherwise they are sent when the previous batch has ended.
    """
    topic, target = (world.kafka.create_topic(None, PARTITIONS) for _ in range(2))
    times: list[float] = []
    options = {"maxOffsetsPerTrigger": ROWS} if waiting and subject != MEMORY else {}
    if waiting:
        world.send(topic, ROWS * (batches + 2), SIZE)
    with stream(world, subject, topic, target if copied else None, **options) as progress:
        for _ in range(batches + 1):
            if not waiting:
                world.send(topic, ROWS, SIZE)
            rows = 0
            # Rows that were sent may arrive in two batches.
            while rows < (1 if waiting else ROWS):
                report = progress.next()
                rows += report.numInputRows
                times.append(report.durationMs["triggerExecution"])
    # The first batch is slow, because it starts processes and connections.
    return statistics.median(times[1:])


def memory(
    world: World, subject: str, meter: Meter, points: tuple[int, ...]
) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the memory in MiB after certain numbers of batches of one query."""
    last = points[-1]
    topic, target = (world.kafka.create_topic(None, PARTITIONS) for _ in range(2))
    world.send(topic, ROWS * (last + 100), SIZE)
    with stream(world, subject, topic, target, maxOffsetsPerTrigger=ROWS) as progress:
        for number in range(1, last + 1):
            progress.next()
            if number in points:
                yield number, meter.memory()
