"""The records that one ShareFetch request acquires, after a wait if necessary."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiokclient.protocol.messages import ShareFetchRequest
from aiokclient.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
)
from aiokclient.record.batch import RecordBatch
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.share.leader import find_led_partition
from aiokclient.testing.broker.share.partition import SharePartition
from aiokclient.testing.broker.share.records import Acquired, OffsetRange, Wanted
from aiokclient.testing.broker.share.sessions import SharePartitionKey, ShareSession

if TYPE_CHECKING:
    from aiokclient.testing.broker.call import Call
    from aiokclient.testing.broker.topics.topics import Partition

_RECORD_LIMIT = 1
_BASE, _LENGTH, _DELTA = slice(0, 8), slice(8, 12), slice(23, 27)


class ReadBatch(NamedTuple):
    """A whole batch of the log."""

    offsets: OffsetRange
    data: bytes | memoryview


class ShareFetch:
    """One request. `answers` has the partitions that it acquired from or that have errors."""

    def __init__(self, call: Call, session: ShareSession) -> None:
        self.answers: dict[SharePartitionKey, PartitionData] = {}
        self.leaders: dict[int, None] = {}
        """The leaders of partitions that another broker leads."""
        self._call = call
        self._session = session
        self._request: ShareFetchRequest = call.request
        self._partitions: list[SharePartition] = []
        self._refused: dict[SharePartitionKey, int] = {}
        """The codes of partitions that could not be loaded, which come after the wait."""

    async def acquire_records(self) -> None:
        """Acquire records, as soon as there are enough or `max_wait_ms` has passed."""
        await self._load_partitions()
        request = self._request
        has_none = not self._partitions and not self._refused
        if has_none or request.max_records <= 0 or request.max_bytes <= 0:
            return
        if not self._has_enough() and request.max_wait_ms > 0:
            await self._wait_for_records()
        self._acquire_all()
        for key, code in self._refused.items():
            self.answers[key] = make_failure(key, code)

    async def _load_partitions(self) -> None:
        cluster, node = self._call.cluster, self._call.broker
        async for key in self._call.iterate_items(self._session.list_rotated()):
            topic = cluster.topics_by_id.get(key.topic_id)
            refused = 0 if topic is None else self._call.find_refusal(topic.name, key.partition)
            partition, code = find_led_partition(cluster, node.node_id, key)
            if refused or code or partition is None:
                self._add_failure(key, refused or code, partition)
                continue
            group_id = self._session.key.group_id
            is_known = cluster.share_states.is_available(group_id)
            if not is_known and node.shares.find_loaded(group_id, key) is None:
                # The state of the partition cannot be read yet. The fetch waits without it.
                self._refused[key] = Code.NONE
                continue
            try:
                found = node.shares.load_partition(cluster, group_id, key, partition)
            except Refused as unready:
                self._refused[key] = unready.code
            else:
                self._partitions.append(found)

    def _add_failure(self, key: SharePartitionKey, code: int, partition: Partition | None) -> None:
        answer = self.answers[key] = make_failure(key, code)
        if partition is not None and code == Code.NOT_LEADER_OR_FOLLOWER:
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )
            self.leaders[partition.leader] = None

    # -- waiting -----------------------------------------------------------------------------

    def _list_ready(self) -> list[SharePartition]:
        """Return the partitions from which something can be acquired now."""
        return [each for each in self._partitions if each.is_led and each.can_acquire()]

    def _has_enough(self) -> bool:
        """Return whether `min_bytes` can be acquired."""
        enough = max(self._request.min_bytes, 1)
        size = 0
        for each in self._list_ready():
            log, offset = each.partition.log, each.table.find_next_offset()
            if offset < log.start_offset:
                return True
            size += log.count_bytes(offset, each.upper_offset, enough)
        return size >= enough

    async def _wait_for_records(self) -> None:
        wait = _Wait(self._call)
        try:
            wait.watch_partitions(self._partitions)
            while not wait.is_over:
                await wait.wait_for_change()
                if self._has_enough():
                    return
        finally:
            wait.stop_watching()

    # -- acquiring -----------------------------------------------------------------------------

    def _acquire_all(self) -> None:
        request = self._request
        ready = self._list_ready()
        is_strict = self._call.version >= 2 and request.share_acquire_mode == _RECORD_LIMIT
        left = request.max_records
        for each in ready:
            if left <= 0:
                return
            wanted = Wanted(left, max(request.batch_size, 1), is_strict)
            answer = self._acquire_from(each, wanted, request.max_bytes // len(ready))
            self.answers[each.key] = answer
            left -= sum(one.last_offset - one.first_offset + 1 for one in answer.acquired_records)

    def _acquire_from(self, share: SharePartition, wanted: Wanted, max_bytes: int) -> PartitionData:
        answer = PartitionData(partition_index=share.key.partition, records=b"")
        # As in Kafka, a fetch that finds records gone from the log is answered without any.
        if share.follow_log_start():
            return answer
        offset, log = share.table.find_next_offset(), share.partition.log
        pieces, _, _ = log.read_range(offset, share.upper_offset, max_bytes, whole_first=True)
        batches = _list_whole(pieces)
        if not batches:
            return answer
        offsets = [each.offsets for each in batches]
        member_id = self._session.key.member_id
        acquired = share.acquire(member_id, offsets, offset, wanted)
        if acquired and share.is_committed_only:
            acquired = self._remove_aborted(share, batches, acquired)
        if acquired:
            first, last = acquired[0].first, acquired[-1].last
            answer.records = [
                each.data
                for each in batches
                if each.offsets.last >= first and each.offsets.first <= last
            ]
        answer.acquired_records = [
            AcquiredRecords(
                first_offset=each.first, last_offset=each.last, delivery_count=each.deliveries
            )
            for each in acquired
        ]
        return answer

    def _remove_aborted(
        self, share: SharePartition, batches: Sequence[ReadBatch], acquired: list[Acquired]
    ) -> list[Acquired]:
        """Archive the records of aborted transactions, and return the others."""
        first, last = batches[0].offsets.first, batches[-1].offsets.last
        aborted = share.partition.log.producers.find_aborted(first, last + 1)
        gone = []
        for each in batches:
            batch = RecordBatch(each.data)
            if not batch.is_transactional or batch.is_control:
                continue
            if any(
                one.producer_id == batch.producer_id
                and one.first_offset <= each.offsets.first <= one.last_offset
                for one in aborted
            ):
                gone.append(each.offsets)
        share.archive_ranges(
            [
                OffsetRange(max(one.first, each.first), min(one.last, each.last))
                for each in gone
                for one in acquired
                if one.first <= each.last and one.last >= each.first
            ]
        )
        for offsets in gone:
            acquired = [part for one in acquired for part in _cut_out(one, offsets)]
        return acquired


class _Wait:
    """A wait for share partitions to change, for the request's `max_wait_ms` at most."""

    def __init__(self, call: Call) -> None:
        self.is_over = False
        self._loop = call.cluster.loop
        self._woken: asyncio.Future[None] = self._loop.create_future()
        self._watched: list[SharePartition] = []
        seconds = call.request.max_wait_ms / 1000
        self._timer = self._loop.call_later(seconds, self._on_timeout)

    def watch_partitions(self, partitions: Sequence[SharePartition]) -> None:
        self._watched = list(partitions)
        for each in self._watched:
            each.add_watcher(self)
            each.partition.add_watcher(self)

    async def wait_for_change(self) -> None:
        """Wait for a change since the last call of this, or until the wait is over."""
        await self._woken
        if not self.is_over:
            self._woken = self._loop.create_future()

    def on_change(self, added: int) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    def _on_timeout(self) -> None:
        self.is_over = True
        self.on_change(0)

    def stop_watching(self) -> None:
        self._timer.cancel()
        for each in self._watched:
            each.remove_watcher(self)
            each.partition.remove_watcher(self)


def make_failure(key: SharePartitionKey, code: int) -> PartitionData:
    """Return the result of a partition with an error."""
    return PartitionData(partition_index=key.partition, error_code=code, records=b"")


def _list_whole(pieces: Sequence[bytes | memoryview]) -> list[ReadBatch]:
    """Return the batches, without the last one if it is cut off."""
    batches = []
    for piece in pieces:
        if len(piece) < 27 or len(piece) < 12 + int.from_bytes(piece[_LENGTH], "big"):
            break
        first = int.from_bytes(piece[_BASE], "big")
        last = first + int.from_bytes(piece[_DELTA], "big")
        batches.append(ReadBatch(OffsetRange(first, last), piece))
    return batches


def _cut_out(acquired: Acquired, gone: OffsetRange) -> list[Acquired]:
    """Return what remains of acquired records without a range."""
    if gone.last < acquired.first or gone.first > acquired.last:
        return [acquired]
    parts = [
        Acquired(acquired.first, gone.first - 1, acquired.deliveries),
        Acquired(gone.last + 1, acquired.last, acquired.deliveries),
    ]
    return [each for each in parts if each.first <= each.last]
