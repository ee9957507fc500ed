"""What lists of records are: `Records`."""

from __future__ import annotations

from typing import TypeVar

from aiokclient.types import ConsumerRecord, OffsetAndMetadata, TopicPartition

__all__ = ["Records"]

K = TypeVar("K")
V = TypeVar("V")


class Records(list[ConsumerRecord[K, V]]):
    """A list of records, those of each partition in order."""

    __slots__ = ()

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """The same records, one list for each partition."""
        lists: dict[tuple[str, int], list[ConsumerRecord[K, V]]] = {}
        for record in self:
            lists.setdefault((record.topic, record.partition), []).append(record)
        return {TopicPartition(*place): records for place, records in lists.items()}

    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """For each partition the offset after its last record here: what a commit of them says."""
        last = {(record.topic, record.partition): record for record in self}
        return {
            TopicPartition(*place): OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)
            for place, record in last.items()
        }
