"""Writing rows that cost nothing, and copying one topic to another in a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from subjects.spark_jobs import MEMORY, OWN, PARTITIONS, SOURCES, Job, World

__all__ = ["EXACTLY_ONCE", "WRITING"]

SIZE = 100
EXACTLY_ONCE = {
    f"{OWN}, exactly once": {"deliveryGuarantee": "exactly-once"},
}
"""The subjects that copy exactly once, and their options."""


@contextmanager
def write(world: World, subject: str, rows: int) -> Iterator[Callable[[], object]]:
    frame = world.spark.range(0, rows, 1, PARTITIONS).selectExpr(f"repeat('v', {SIZE}) AS value")
    writer = frame.write.format(subject).mode("append")
    if subject == MEMORY:
        yield writer.save
    else:
        with world.output(rows) as topic:
            yield writer.options(**world.servers, topic=topic).save


@contextmanager
def copy(world: World, subject: str, rows: int) -> Iterator[Callable[[], object]]:
    name = OWN if subject in EXACTLY_ONCE else subject
    reader = world.spark.readStream.format(name)
    if subject == MEMORY:
        reader = reader.options(rows=rows, size=SIZE, partitions=PARTITIONS)
        yield lambda: run_stream(world, name, reader, {})
        return
    options = {"subscribe": world.filled(rows, SIZE), "startingOffsets": "earliest"}
    reader = reader.options(**world.servers, **options, maxOffsetsPerTrigger=10 * rows)
    with world.output(rows) as topic:
        options = {**world.servers, "topic": topic, **EXACTLY_ONCE.get(subject, {})}
        yield lambda: run_stream(world, name, reader, options)


def run_stream(world: World, name: str, reader: Any, options: dict[str, str]) -> None:
    writer = reader.load().select("value").writeStream.format(name).options(**options)
    writer = writer.option("checkpointLocation", world.new_folder())
    writer.trigger(availableNow=True).start().awaitTermination()


WRITING = (
    Job("batch write", write),
    Job("stream from topic to topic", copy, subjects=(*SOURCES, *EXACTLY_ONCE)),
)
