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

from subjects.spark_jobs import PARTITIONS, World

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
    """Run a stream from a topic to another one. Without a target, the rows are discarded."""
    reader = world.spark.readStream.format(subject).options(**world.servers, subscribe=topic)
    frame = reader.options(startingOffsets="earliest", **options).load().select("value")
    writer = frame.writeStream.format("noop" if target is None else subject)
    if target is not None:
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


def batch_ms(world: World, subject: str, batches: int, *, copied: bool) -> float:
    """Return the median time of a batch in milliseconds, from the progress that Spark reports.

    Each batch has 100 rows, which are sent when the one before has ended.
    """
    topic, target = (world.kafka.create_topic(None, PARTITIONS) for _ in range(2))
    times: list[float] = []
    with stream(world, subject, topic, target if copied else None) as progress:
        for _ in range(batches + 1):
            world.send(topic, ROWS, SIZE)
            rows = 0
            while rows < ROWS:
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
