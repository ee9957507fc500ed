"""The markers of an exactly-once sink, and what a task does when it finds one. Sans-IO.

A marker is a committed offset: the number of the batch plus one, with a digest of the task's rows
as its metadata. It is committed in the transaction of the rows, so that the marker exists if and
only if the rows exist.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

from aiokclient import OffsetAndMetadata, TopicPartition
from aiokclient.errors import KafkaError

PREFIX = "aiokclient-spark"
VERSION = 1
MARKED_PARTITION = 0
"""The partition for which the marker is an offset. Every topic has a partition 0."""


@dataclass(frozen=True, slots=True)
class Position:
    """The part of a query that one task writes: the Spark partition of one batch."""

    name: str
    """The id of the query, or the `writeId` of a batch write."""
    partition: int
    """The number of the Spark partition."""
    batch: int
    """The number of the batch; 0 for a batch write."""
    streaming: bool = True

    @property
    def transactional_id(self) -> str:
        """The transactional id of all attempts and batches: newer producers fence older ones."""
        return f"{PREFIX}-{self.name}-{self.partition}"

    @property
    def group(self) -> str:
        """The group in which the marker is an offset.

        Each Spark partition has a group of its own, because a broker accepts only offsets of
        partitions that exist, and a query may have more partitions than its topic.
        """
        return f"{PREFIX}-{self.name}-{self.partition}"

    def __str__(self) -> str:
        if self.streaming:
            return f"Spark partition {self.partition} of batch {self.batch}, query {self.name}"
        return f"Spark partition {self.partition} of the write {self.name!r}"


@dataclass(frozen=True, slots=True)
class Marker:
    """The batch, the number of rows, and the digest of what one task has committed."""

    batch: int
    rows: int
    digest: str

    def encode(self) -> OffsetAndMetadata:
        """Return the offset to commit."""
        text = {"version": VERSION, "rows": self.rows, "digest": self.digest}
        return OffsetAndMetadata(self.batch + 1, json.dumps(text, separators=(",", ":")))

    @classmethod
    def decode(cls, committed: OffsetAndMetadata) -> Self:
        """Return the marker in a committed offset. Raises ValueError if there is none."""
        found: Any = json.loads(committed.metadata)
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise ValueError(f"{committed.metadata!r} is not a marker of version {VERSION}")
        rows, digest = found.get("rows"), found.get("digest")
        if type(rows) is not int or not isinstance(digest, str):
            raise ValueError(f"{committed.metadata!r} is not a marker")
        return cls(committed.offset - 1, rows, digest)


class Step(Enum):
    """The treatment of a task's rows."""

    WRITE = "write"
    """Write the rows, because they are not committed."""
    VERIFY = "verify"
    """Compare the rows with the digest of the marker, because they are already committed."""
    REFUSE = "refuse"
    """Raise KafkaError, because a later batch is already committed."""


def next_step(marker: Marker | None, position: Position) -> Step:
    """Return what a task at `position` does when this marker is committed."""
    if marker is None or marker.batch < position.batch:
        return Step.WRITE
    return Step.VERIFY if marker.batch == position.batch else Step.REFUSE


def decoded(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None], position: Position
) -> dict[TopicPartition, Marker]:
    """Return the markers among the committed offsets of a group.

    Raises KafkaError for an offset that is not a marker.
    """
    markers = {}
    for tp, committed in offsets.items():
        if committed is not None:
            try:
                markers[tp] = Marker.decode(committed)
            except ValueError:
                text = unreadable(committed, position.group)
                raise KafkaError(text) from None
    return markers


def newest(markers: dict[TopicPartition, Marker]) -> Marker | None:
    """Return the marker of the latest batch, or None if there is no marker.

    A Spark partition has a marker for each topic to which its first rows went, if the topics are
    in a column.
    """
    return max(markers.values(), key=lambda marker: marker.batch, default=None)


def difference(marker: Marker, repeated: Marker, position: Position) -> str | None:
    """Return the error text if a repeated task has other rows than the committed ones, or None."""
    if marker.rows == repeated.rows and marker.digest == repeated.digest:
        return None
    return (
        f"{position} is committed with {marker.rows} rows (digest {marker.digest}), but repeated "
        f"with {repeated.rows} rows (digest {repeated.digest}). A repeated task must get the same "
        "rows: remove what is random or depends on the time from the query, and keep the number "
        "of its partitions. This task has written nothing."
    )


def fewer_partitions(committed: Position, count: int) -> str:
    """Return the error text for a batch with fewer partitions than before."""
    return (
        f"{committed} is committed already, and the batch has only {count} Spark partitions now. A "
        "repeated batch must be divided into the same partitions. Set the number of partitions "
        f"(repartition, minPartitions, maxRecordsPerPartition) as it was. Nothing was committed."
    )


def refusal(marker: Marker, position: Position) -> str:
    """Return the error text for a task whose partition has committed a later batch."""
    return (
        f"{position} cannot be written: batch {marker.batch} is committed already. The checkpoint "
        "is older than the output, or another run of the query uses it. Use the newest checkpoint, "
        "or a new one with a new output topic."
    )


def unreadable(committed: OffsetAndMetadata, group: str) -> str:
    """Return the error text for a committed offset that is not from this version of the sink."""
    return (
        f"The committed offset {committed.offset} of the group {group} has the metadata "
        f"{committed.metadata[:80]!r}, which is not from this version of the sink. Another program "
        "has written it. Use a new checkpoint or a new writeId."
    )
