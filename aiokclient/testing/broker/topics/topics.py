"""Topics and partitions: replicas, leaders, epochs, in-sync replicas, and the high watermark.

All replicas of a partition share one log. A follower has all of it immediately, unless a test holds
its replication. Then it has the log only up to its end offset at that time. While such a follower
is in sync, the high watermark does not advance beyond this offset, as with a slow follower in
Kafka. When the follower becomes the leader, the log is truncated to this offset, as in an unclean
election.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol
from uuid import UUID

from aiokclient.record.batch import RecordBatch, with_append_time, with_offset
from aiokclient.record.control import end_transaction_batch
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.configs import Configs
from aiokclient.testing.broker.topics.compaction import CompactionTimes
from aiokclient.testing.broker.topics.log import PartitionLog
from aiokclient.testing.broker.topics.producers import TRUSTED, Verification

NO_LEADER = -1
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
ANYTHING = 1 << 62
"""The value of a watcher's `added` argument if it is not known what has changed."""


class Watcher(Protocol):
    """Something that waits for a partition to change: a waiting fetch or produce request."""

    def on_change(self, added: int) -> None:
        """Handle `added` bytes below the high watermark, or with `ANYTHING` an unknown change."""


class Appended(NamedTuple):
    code: Code
    base_offset: int = -1
    append_time: int = -1
    message: str | None = None
    refused: Mapping[int, str] = {}
    """The reasons for which records were refused. A key is the index of a record in the batch."""


class Partition:
    """One partition. `leader` is a broker id, or -1 while there is none."""

    def __init__(self, topic: BrokerTopic, index: int, replicas: Iterable[int]) -> None:
        self.topic = topic
        self.index = index
        self.replicas = list(replicas)
        self.isr = list(self.replicas)
        self.adding: list[int] = []
        """The replicas that a reassignment adds, by broker id."""
        self.removing: list[int] = []
        """The replicas that go when the added ones are in sync. They are the last of `replicas`."""
        self.leader = self.replicas[0]
        self.leader_epoch = 0
        self.log = PartitionLog()
        self.log.epochs.assign_epoch(0, 0)
        self.deleted = False
        self._lagging_ends: dict[int, int] = {}
        """The log end offsets of the replicas that may lag, by broker id."""
        self._held: dict[int, None] = {}
        self._watchers: dict[Watcher, None] = {}

    def __repr__(self) -> str:
        return f"<{self.topic.name}-{self.index} led by {self.leader} in {self.leader_epoch}>"

    # -- reading ---------------------------------------------------------------------------

    def find_replica_end(self, broker: int) -> int:
        """Return the log end offset of a replica."""
        return min(self._lagging_ends.get(broker, ANYTHING), self.log.end_offset)

    @property
    def high_watermark(self) -> int:
        """The offset that all in-sync replicas have reached."""
        if not self._lagging_ends:
            return self.log.end_offset
        ends = [self.find_replica_end(broker) for broker in self.isr]
        return max(min(ends, default=self.log.end_offset), self.log.start_offset)

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the first offset of an open transaction before it."""
        high = self.high_watermark
        return min(high, self.log.producers.find_first_open(high))

    def check_request(self, broker: int, leader_epoch: int, *, leader_only: bool = True) -> Code:
        """Return the error code if `broker` may not serve this partition to a client, or NONE.

        `leader_epoch` is the epoch that the client knows, or -1 if it sent none (KIP-320).
        """
        if broker not in self.replicas:
            return Code.NOT_LEADER_OR_FOLLOWER
        if leader_epoch >= 0 and leader_epoch != self.leader_epoch:
            older = leader_epoch < self.leader_epoch
            return Code.FENCED_LEADER_EPOCH if older else Code.UNKNOWN_LEADER_EPOCH
        if leader_only and broker != self.leader:
            return Code.NOT_LEADER_OR_FOLLOWER
        return Code.NONE

    # -- writing ---------------------------------------------------------------------------

    def append_batch(
        self,
        batch: RecordBatch,
        now_ms: int,
        verification: Verification | None = TRUSTED,
    ) -> Appended:
        """Check a client's batch against the state of its producer, and append it.

        `verification` is what the transaction's coordinator has confirmed for a transactional
        batch.
        """
        producers = self.log.producers
        if batch.producer_id >= 0:
            earlier = producers.find_duplicate(batch)
            if earlier is not None:
                stamped = self.topic.uses_append_time
                return Appended(
                    Code.NONE, earlier.base_offset, earlier.timestamp if stamped else -1
                )
            code = Code.NONE
            if batch.is_transactional and verification is not TRUSTED:
                code = producers.check_verification(
                    batch.producer_id, batch.producer_epoch, verification
                )
            code = code or producers.check_batch(batch)
            if code is not Code.NONE:
                return Appended(code)
        base = self.log.end_offset
        data = with_offset(batch.buffer, base, self.leader_epoch)
        append_time = -1
        if self.topic.uses_append_time:
            append_time = now_ms
            data = with_append_time(data, now_ms)
            batch = RecordBatch(data)
        self.write_batch(data, batch)
        return Appended(Code.NONE, base, append_time)

    def end_transaction(
        self,
        commit: bool,
        producer_id: int,
        epoch: int,
        now_ms: int,
        *,
        coordinator_epoch: int = 0,
    ) -> int:
        """Write the marker that ends a producer's transaction, and return its offset."""
        offset = self.log.end_offset
        data = end_transaction_batch(
            commit,
            producer_id,
            epoch,
            now_ms,
            coordinator_epoch=coordinator_epoch,
            base_offset=offset,
            leader_epoch=self.leader_epoch,
        )
        self.write_batch(data, RecordBatch(data))
        return offset

    def write_batch(self, data: bytes, batch: RecordBatch) -> None:
        """Append a batch that has its final offset and epoch, and notify the watchers."""
        configs = self.topic.configs
        self.log.append_batch(data, batch, segment_bytes=configs.read_number("segment.bytes"))
        limit = configs.read_number("retention.bytes")
        if limit >= 0 and "delete" in configs["cleanup.policy"]:
            self.log.remove_oldest(limit, self.high_watermark)
        self.notify_watchers(ANYTHING if self._lagging_ends else len(data))

    def delete_records(self, offset: int) -> None:
        self.log.delete_before(offset)
        self.notify_watchers(ANYTHING)

    def compact(self, times: CompactionTimes) -> None:
        """Compact the log up to the last stable offset."""
        self.log.compact(self.last_stable_offset, times)
        self.notify_watchers(ANYTHING)

    # -- leadership ------------------------------------------------------------------------

    def change_leader(self, broker: int) -> None:
        """Make `broker` the leader in a new epoch; -1 for no leader."""
        self.leader = broker
        self.leader_epoch += 1
        if broker != NO_LEADER:
            end = self.find_replica_end(broker)
            self._lagging_ends.pop(broker, None)
            self._held.pop(broker, None)
            self.log.truncate(end)
            if broker not in self.isr:
                # The new leader lags, so no other replica is known to have the same log.
                self.isr = [broker]
            self.log.epochs.assign_epoch(self.leader_epoch, self.log.end_offset)
        self.notify_watchers(ANYTHING)

    def elect_leader(self, alive: Mapping[int, object]) -> None:
        """Elect the first running in-sync replica if the partition has no running leader.

        If there is none and `unclean.leader.election.enable` is set, elect any running replica.
        """
        if self.leader in alive:
            return
        living = [each for each in self.replicas if each in alive]
        choice = next((each for each in living if each in self.isr), NO_LEADER)
        if choice == NO_LEADER and self.topic.configs["unclean.leader.election.enable"] == "true":
            choice = next(iter(living), NO_LEADER)
        if choice != self.leader:
            self.change_leader(choice)

    def remove_from_isr(self, broker: int) -> None:
        """Remove a replica from the ISR. The last one stays, because only it has all records."""
        self._lagging_ends[broker] = self.find_replica_end(broker)
        remaining = [each for each in self.isr if each != broker]
        if remaining and remaining != self.isr:
            self.isr = remaining
        self.notify_watchers(ANYTHING)

    def catch_up_replica(self, broker: int) -> None:
        """Update a running replica to the leader's log, unless a test holds it."""
        if broker in self._held or broker not in self.replicas or self.leader == NO_LEADER:
            return
        self._lagging_ends.pop(broker, None)
        if broker not in self.isr:
            self.isr = [each for each in self.replicas if each in self.isr or each == broker]
        self._complete_reassignment()
        self.notify_watchers(ANYTHING)

    def truncate(self, offset: int) -> None:
        """Remove all records from `offset` on, as in an unclean election that the leader wins."""
        self.log.truncate(offset)
        self.change_leader(self.leader)

    def hold_replica(self, broker: int, *, in_sync: bool) -> None:
        """Stop a follower's replication at the current offset.

        If `in_sync` is false, the follower also leaves the ISR.
        """
        self._held[broker] = None
        self._lagging_ends[broker] = self.find_replica_end(broker)
        if not in_sync:
            self.remove_from_isr(broker)

    def release_replica(self, broker: int) -> None:
        """Resume the replication of a follower."""
        if broker in self._held:
            del self._held[broker]
            self.catch_up_replica(broker)

    # -- reassignment ------------------------------------------------------------------------

    @property
    def is_reassigned(self) -> bool:
        """Whether replicas are being moved to other brokers."""
        return bool(self.adding or self.removing)

    def reassign_replicas(self, target: Sequence[int]) -> None:
        """Begin to move the replicas. An earlier reassignment gets this target instead."""
        adding = sorted(set(target) - set(self.replicas))
        removing = sorted(set(self.replicas) - set(target))
        # As in Kafka, a later target that needs no new replica keeps those that were being added.
        self.adding, self.removing = adding or self.adding, removing or self.removing
        self.replicas = [*target, *removing]
        for broker in adding:
            self._lagging_ends[broker] = self.log.start_offset

    def cancel_reassignment(self) -> None:
        """Remove the added replicas, and keep the others in their order."""
        self._remove_replicas(self.adding)

    def _complete_reassignment(self) -> None:
        """Remove the replicas that were to go, if all added ones and another one are in sync."""
        staying = [each for each in self.isr if each not in self.removing]
        if self.is_reassigned and staying and set(self.adding) <= set(staying):
            self._remove_replicas(self.removing)

    def _remove_replicas(self, gone: Sequence[int]) -> None:
        self.adding, self.removing = [], []
        self.replicas = [each for each in self.replicas if each not in gone]
        self.isr = [each for each in self.isr if each not in gone]
        for broker in gone:
            self._lagging_ends.pop(broker, None)
            self._held.pop(broker, None)
        if self.leader in gone:
            self.change_leader(next(iter(self.isr), NO_LEADER))

    # -- waiting ---------------------------------------------------------------------------

    def add_watcher(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def notify_watchers(self, added: int) -> None:
        if self._watchers:
            for watcher in list(self._watchers):
                watcher.on_change(added)


class BrokerTopic:
    """A topic. One that is created again under the same name is a new topic with a new id."""

    def __init__(
        self,
        name: str,
        topic_id: UUID,
        configs: Configs,
        make_partition: Callable[[BrokerTopic, int, Iterable[int]], Partition] = Partition,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.configs = configs
        self.partitions: list[Partition] = []
        self._make_partition = make_partition

    @property
    def internal(self) -> bool:
        """Whether the topic is one of Kafka's internal topics."""
        return self.name in INTERNAL

    @property
    def uses_append_time(self) -> bool:
        return self.configs["message.timestamp.type"] == "LogAppendTime"

    def find_partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    def add_partition(self, replicas: Iterable[int]) -> None:
        self.partitions.append(self._make_partition(self, len(self.partitions), replicas))

    def on_deleted(self) -> None:
        """Answer the requests that wait for the partitions, and free the logs.

        Topics and partitions refer to each other, so without this the logs would stay until the
        next full run of the garbage collector.
        """
        for partition in self.partitions:
            partition.deleted = True
            partition.notify_watchers(ANYTHING)
            partition.log = PartitionLog()


@lru_cache(maxsize=4096)
def hash_string(key: str) -> int:
    """Return Java's hash code of a string, made positive. It is the same in every process."""
    value = 0
    for unit in key:
        value = (31 * value + ord(unit)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
