"""A check that a repeated batch is not divided into fewer Spark partitions than before.

A task compares its rows with the marker of its own Spark partition. If a repeated batch has fewer
partitions than before, no task checks the markers of the missing partitions. Their rows may be
committed already, and now other tasks write the same rows. So before the driver commits a batch, it
stores the number of the batch and the highest number of partitions so far, as the committed offset
of a group. If the batch is a repeated one, the driver looks for the markers of the partitions that
the batch no longer has. More partitions than before need no check: some task then finds that its
own rows are not the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Self

from aiokclient import Admin, Client, OffsetAndMetadata, TopicPartition
from aiokclient.errors import KafkaError
from aiokclient.spark.sink.markers import (
    MARKED_PARTITION,
    PREFIX,
    Position,
    decoded,
    newest,
    unreadable,
)


@dataclass(frozen=True, slots=True)
class Division:
    """The newest batch of a query, and the highest number of partitions that a batch had."""

    batch: int = -1
    count: int = 0

    def encode(self) -> OffsetAndMetadata:
        """Return the offset to commit."""
        return OffsetAndMetadata(self.count, json.dumps({"batch": self.batch}))

    @classmethod
    def decode(cls, committed: OffsetAndMetadata, group: str) -> Self:
        """Return the content of a committed offset. Raises KafkaError if it has another form."""
        try:
            return cls(int(json.loads(committed.metadata)["batch"]), committed.offset)
        except (ValueError, TypeError, KeyError):
            text = unreadable(committed, group)
        raise KafkaError(text)


async def check_partition_count(
    client: Client, position: Position, topic: str, count: int
) -> Position | None:
    """Return the position of a committed partition beyond the batch's `count` partitions, or None.

    `position` is any position of the batch. `count` is stored as an offset of `topic`, which must
    exist.
    """
    async with Admin(client=client) as admin:
        known = await _stored(admin, position)
        if known.batch >= position.batch:
            committed = await _committed(admin, position, range(count, known.count))
            if committed is not None:
                return committed
        now = Division(max(known.batch, position.batch), max(known.count, count))
        offset = {TopicPartition(topic, MARKED_PARTITION): now.encode()}
        # The number is no offset of a record.
        stored = await admin.alter_consumer_group_offsets(_group(position), offset, check=False)
        stored.raise_for_errors()
    return None


def _group(position: Position) -> str:
    # The groups of markers end with a number, so no marker can have this group.
    return f"{PREFIX}-{position.name}-partitions"


async def _stored(admin: Admin, position: Position) -> Division:
    group = _group(position)
    listed = await admin.list_consumer_group_offsets([group])
    offsets = listed.raise_for_errors()[group].values()
    found = [Division.decode(committed, group) for committed in offsets]
    # There is one offset for each topic if the topics are in a column.
    return Division(
        max((each.batch for each in found), default=-1),
        max((each.count for each in found), default=0),
    )


async def _committed(admin: Admin, position: Position, partitions: range) -> Position | None:
    """Return the first partition for which the batch or a later one is committed, or None."""
    others = [replace(position, partition=partition) for partition in partitions]
    if not others:
        return None
    groups = [other.group for other in others]
    listed = await admin.list_consumer_group_offsets(groups, require_stable=True)
    offsets = listed.raise_for_errors()
    for other in others:
        marker = newest(decoded(offsets[other.group], other))
        if marker is not None and marker.batch >= other.batch:
            return other
    return None
