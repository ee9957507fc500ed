"""The partitions of __consumer_offsets, as far as transactions write to them.

A group's offsets belong to the partition that its id selects. The coordinator of transactions
treats these partitions like any others: they are added to a transaction, and a marker ends it. The
states of their producers are stored here, because their logs are for readers only
(`internal/topics.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.internal.records import write_offsets
from aiokclient.testing.broker.topics.producers import ProducerStates, Verification
from aiokclient.testing.broker.topics.topics import OFFSETS_TOPIC, hash_string
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.testing.broker.groups.group import Group
    from aiokclient.testing.broker.groups.offsets import Committed
    from aiokclient.testing.broker.state import ClusterState
    from aiokclient.testing.broker.transactions.transaction import ProducerIdAndEpoch


class OffsetsPartition:
    """One partition of __consumer_offsets: its producers, and the groups that they wrote to."""

    def __init__(self, cluster: ClusterState, index: int) -> None:
        self.producers = ProducerStates()
        self._cluster = cluster
        self._index = index
        self._end_offset = 0
        self._pending: dict[int, dict[str, None]] = {}

    def commit_offsets(
        self,
        group: Group,
        producer: ProducerIdAndEpoch,
        offsets: dict[TopicPartition, Committed],
        verification: Verification | None,
    ) -> None:
        """Store the pending offsets of a transaction. Raises Refused."""
        producer_id, epoch = producer
        code = self.producers.check_verification(producer_id, epoch, verification)
        if code:
            raise Refused(code, "The group does not belong to an open transaction.")
        self.producers.on_write(
            producer_id, epoch, self._take_offset(), self._now_ms(), transactional=True
        )
        group.offsets.commit_pending(producer_id, offsets)
        write_offsets(self._cluster, group.group_id, offsets, producer)
        self._pending.setdefault(producer_id, {})[group.group_id] = None

    def end_transaction(
        self, commit: bool, producer: ProducerIdAndEpoch, coordinator_epoch: int, level: int
    ) -> Code:
        """Write the marker that ends a transaction, and commit or remove its offsets.

        The result is NOT_LEADER_OR_FOLLOWER while the coordinator of a group is not available.
        """
        producer_id, epoch = producer
        groups = get_groups(self._cluster)
        found = [groups.find_group(each) for each in self._pending.get(producer_id, ())]
        if any(each is not None and each.node is None for each in found):
            return Code.NOT_LEADER_OR_FOLLOWER
        code = self.producers.check_marker(producer_id, epoch, coordinator_epoch, level)
        if code:
            return code
        self.producers.on_marker(
            producer_id, epoch, coordinator_epoch, self._take_offset(), commit, self._now_ms()
        )
        self._cluster.internal.write_marker(
            OFFSETS_TOPIC, self._index, producer, commit, coordinator_epoch
        )
        self._pending.pop(producer_id, None)
        for group in found:
            if group is not None:
                group.offsets.end_transaction(producer_id, commit)
        return Code.NONE

    def _take_offset(self) -> int:
        self._end_offset += 1
        return self._end_offset - 1

    def _now_ms(self) -> int:
        return self._cluster.clock.time_ms()


class OffsetsPartitions:
    """All partitions of __consumer_offsets."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._partitions: dict[int, OffsetsPartition] = {}

    def find_partition(self, group_id: str) -> TopicPartition:
        """Return the partition of a group."""
        count = self._cluster.configs.read_number("offsets.topic.num.partitions")
        return TopicPartition(OFFSETS_TOPIC, hash_string(group_id) % count)

    def __contains__(self, tp: TopicPartition) -> bool:
        count = self._cluster.configs.read_number("offsets.topic.num.partitions")
        return tp.topic == OFFSETS_TOPIC and 0 <= tp.partition < count

    def get_partition(self, tp: TopicPartition) -> OffsetsPartition:
        """Return a partition, which must exist."""
        found = self._partitions.get(tp.partition)
        if found is None:
            found = self._partitions[tp.partition] = OffsetsPartition(self._cluster, tp.partition)
        return found
