"""The buffer of records that were fetched and not yet delivered.

A response is kept unchanged until the reader has delivered its last record. The data of one
partition in a response is called a part (`PartitionFetch`). A fetcher sends the next request when
at most one of its responses is not fully read, so a consumer needs memory for two responses of each
broker.

A paused partition must not delay the other partitions of its broker, and must not keep the whole
response in memory. So the part of a paused partition is copied and set aside. All parts that are
set aside have one size limit. A part that would exceed the limit is dropped, and fetched again
after the partition is resumed.

`read_batches` finds the batches of a part. `visible` says which of them have records for the
application. Control batches never have any. With `read_committed` the response also lists the
aborted transactions in the batches, by producer id and first offset. From that offset on, the
producer's transactional batches are skipped, until the marker that ends the transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from aiokclient.consumer.state.partition import PartitionState
from aiokclient.errors import CorruptRecordError
from aiokclient.protocol.messages.fetch import PartitionData
from aiokclient.record.batch import RecordBatch, walk

if TYPE_CHECKING:
    from aiokclient.consumer.delivery.unpack import Decoded
    from aiokclient.consumer.fetching.responses import Slot
    from aiokclient.decoding.batches import Damage, Loaded
    from aiokclient.record.stream import RecordStream


ABORT_MARKER: Final = 0


def visible(batches: Sequence[RecordBatch], aborted: Iterable[tuple[int, int]] = ()) -> list[bool]:
    """Return for each batch whether its records are to be delivered.

    `aborted` are (producer id, first offset) in any order: brokers have sent them out of order.
    """
    # The list is popped from its end, so the earliest transaction comes last.
    beginning = sorted(aborted, key=lambda transaction: -transaction[1])
    open_aborted: set[int] = set()
    shown: list[bool] = []
    for batch in batches:
        while beginning and beginning[-1][1] <= batch.last_offset:
            open_aborted.add(beginning.pop()[0])
        if batch.is_control:
            if batch.producer_id in open_aborted and _aborts(batch):
                open_aborted.discard(batch.producer_id)
            shown.append(False)
        else:
            shown.append(not (batch.is_transactional and batch.producer_id in open_aborted))
    return shown


def _aborts(marker: RecordBatch) -> bool:
    try:
        return marker.control_type() == ABORT_MARKER
    except CorruptRecordError:
        return False  # `Reader` reports the damage when it comes to this marker.


def read_batches(
    data: PartitionData, offset: int
) -> tuple[list[RecordBatch], list[bool], CorruptRecordError | None]:
    """Return the batches from `offset` on, up to the first that is damaged or does not follow.

    Also return which of them are visible and, if there are no batches, an error that says why.
    """
    records = memoryview(data.records or b"")
    try:
        found = walk(records)
    except CorruptRecordError as error:
        return [], [], error
    batches: list[RecordBatch] = []
    following = offset
    for batch in found:
        if batch.next_offset <= offset and not batches:
            continue  # Skip a batch that ends before the offset. Brokers may begin with one.
        if batch.next_offset <= following or (batches and batch.base_offset < following):
            break
        batches.append(batch)
        following = batch.next_offset
    if not batches:
        text = f"The response has {len(records)} bytes, but no batch that follows offset {offset}."
        return [], [], CorruptRecordError(text)
    aborted = [(t.producer_id, t.first_offset) for t in data.aborted_transactions or ()]
    return batches, visible(batches, aborted), None


class PartitionFetch:
    """The batches of one partition in one response, and how far they are unpacked.

    `first` is the lowest offset that this part contains, `offset` is the next one to unpack, and
    `next_offset` is the one after the last batch. `visible` says for each batch whether its records
    are for the application. `damage` describes unreadable records after the last batch.
    """

    __slots__ = (
        "batches",
        "damage",
        "damage_told",
        "first",
        "generation",
        "index",
        "job",
        "next_offset",
        "offset",
        "raw",
        "size",
        "slot",
        "state",
        "stream",
        "visible",
    )

    def __init__(
        self,
        state: PartitionState,
        offset: int,
        batches: Sequence[RecordBatch],
        visible: Sequence[bool],
        slot: Slot | None,
        damage: Damage | None = None,
    ) -> None:
        self.state = state
        self.generation = state.generation
        self.batches = batches
        self.visible = visible
        self.first = self.offset = offset
        self.next_offset = batches[-1].next_offset if batches else offset
        self.size = sum([batch.size for batch in batches])
        self.slot = slot
        self.index = 0
        self.damage = damage
        self.damage_told = False
        self.raw: Decoded | None = None
        self.job: asyncio.Future[Loaded] | None = None
        self.stream: RecordStream | None = None
        """The rest of the next batch, if some of its records were read."""
        if slot is not None:
            slot.add_part()

    @property
    def is_valid(self) -> bool:
        """Whether the part is valid, because the position has not jumped since the request."""
        return self.generation == self.state.generation

    @property
    def is_unpacked(self) -> bool:
        """Whether the reader has unpacked the whole part, including its damage."""
        if self.index < len(self.batches) or self.raw is not None:
            return False
        return self.damage is None or self.damage_told

    @property
    def is_read(self) -> bool:
        """Whether nothing is left to unpack, and there is no damage."""
        return self.is_unpacked and self.damage is None

    def find_next_batches(self, size: int) -> list[int]:
        """Return the indexes of the next batches to unpack, including control batches.

        The batches have about `size` bytes. At least one is returned, unless no batch is left.
        """
        found: list[int] = []
        for index in range(self.index, len(self.batches)):
            batch = self.batches[index]
            if self.visible[index] or batch.is_control:
                found.append(index)
                size -= batch.size
                if size < 0:
                    break
        return found

    # -- the progress of unpacking

    def pass_batches(self, count: int) -> None:
        """Continue after this number of batches, which were read or skipped."""
        self.index += count
        self.offset = self.batches[self.index - 1].next_offset

    def continue_at(self, offset: int) -> None:
        """Continue at this offset, within the batch."""
        self.offset = offset

    def advance_to(self, index: int, rest: RecordStream | None) -> None:
        """Continue at the batch with this index, or at `rest` if some of its records were read."""
        self.index, self.stream = index, rest

    def store_decoded(self, records: Decoded | None) -> None:
        """Store decoded records until they are deserialized; None removes them."""
        self.raw = records

    def store_job(self, job: asyncio.Future[Loaded]) -> None:
        """Store the thread's job that reads the next batch, or more records of it."""
        self.job = job

    def finish_job(self) -> Loaded:
        """Remove the finished job, and return its result or raise its error."""
        job, self.job = self.job, None
        assert job is not None
        found = job.result()
        self.stream = found.rest
        return found

    def take_damage(self) -> Damage | None:
        """Return the damage after the last batch, and count the damage as unpacked."""
        self.damage_told = True
        return self.damage

    def end_before_damage(self, damage: Damage) -> None:
        """End this part before the next batch, which cannot be read."""
        self.job = self.stream = None
        self.batches = self.batches[: self.index]
        self.next_offset = damage.offset
        self.damage = damage

    def rewind(self) -> None:
        """Unpack again from the first record that was not delivered."""
        self.offset = self.state.position
        self.raw = self.job = self.stream = None
        self.damage_told = False
        self.index = 0
        while self.index < len(self.batches) and (
            self.batches[self.index].next_offset <= self.offset
        ):
            self.index += 1

    def release_slot(self) -> None:
        """Release the response, because this part does not need it any more."""
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.release_part()

    def copy_batches(self) -> None:
        """Copy the batches that were not delivered, and release the response."""
        self.rewind()
        self.first = max(self.first, self.offset)
        first, self.visible = self.index, self.visible[self.index :]
        data = b"".join(batch.buffer for batch in self.batches[first:])
        self.batches = walk(memoryview(data))
        self.index, self.size = 0, len(data)
        self.release_slot()


class FetchBuffer:
    """The fetched parts in order; those of paused partitions are set aside."""

    def __init__(self, paused_limit: int) -> None:
        self._paused_limit = paused_limit
        self._queue: dict[PartitionFetch, None] = {}
        self._paused: dict[PartitionFetch, None] = {}

    def __len__(self) -> int:
        return len(self._queue) + len(self._paused)

    @property
    def size(self) -> int:
        """The bytes of all batches in the buffer."""
        return sum(fetch.size for fetch in self)

    @property
    def paused_size(self) -> int:
        return sum(fetch.size for fetch in self._paused)

    def __iter__(self) -> Iterator[PartitionFetch]:
        yield from self._queue
        yield from self._paused

    def add(self, fetch: PartitionFetch) -> None:
        """Add a part. A part of a paused partition is set aside.

        If the partition was paused or resumed after the last call of `sort_parts`, the earlier
        parts of the partition have not been moved yet. They must stay before the new part.
        """
        state = fetch.state
        if state.is_readable:
            if self._paused:
                self._restore_parts([part for part in self._paused if part.state is state])
            self._queue[fetch] = None
            return
        follows = any(part.state is state for part in self._queue)
        self._queue[fetch] = None
        if not follows:  # Otherwise, `sort_parts` sets aside all parts of the partition in order.
            self._set_part_aside(fetch)

    def get_next(self, apart: Container[PartitionState] = ()) -> PartitionFetch | None:
        """Return the first part that has something left to unpack, apart from these partitions."""
        for fetch in self._queue:
            if fetch.index < len(fetch.batches) or not fetch.is_unpacked:
                if apart and fetch.state in apart:
                    continue
                return fetch
        return None

    def get_next_prepared(self, apart: Container[PartitionState]) -> PartitionFetch | None:
        """Return what `get_next` does, without partitions whose next record is not prepared."""
        waiting: set[PartitionState] = set()
        for fetch in self._queue:
            if fetch.state in waiting or fetch.state in apart or fetch.is_unpacked:
                continue
            if fetch.raw is not None and fetch.raw.is_waiting:
                waiting.add(fetch.state)
            else:
                return fetch
        return None

    def rewind(self, fetches: Iterable[PartitionFetch]) -> None:
        """Unpack parts again from the position on; remove those that end before it."""
        for fetch in dict.fromkeys(fetches):
            fetch.rewind()
            if fetch.is_read:
                self.remove(fetch)

    def find_parts(self, state: PartitionState, offset: int) -> list[PartitionFetch]:
        """Return the parts of a partition if they contain the offset; otherwise an empty list."""
        parts = [fetch for fetch in self if fetch.state is state and fetch.is_valid]
        if not parts:
            return []
        first = min(fetch.first for fetch in parts)
        return parts if first <= offset < max(fetch.next_offset for fetch in parts) else []

    def remove(self, fetch: PartitionFetch) -> None:
        """Remove a part that is read or no longer valid."""
        self._queue.pop(fetch, None)
        self._paused.pop(fetch, None)
        fetch.release_slot()

    def clear(self) -> None:
        """Remove all parts."""
        for fetch in list(self):
            self.remove(fetch)

    def sort_parts(self) -> None:
        """Remove invalid parts, set aside parts of paused partitions, and restore resumed ones."""
        for fetch in [fetch for fetch in self if not fetch.is_valid]:
            self.remove(fetch)
        for fetch in [fetch for fetch in self._queue if not fetch.state.is_readable]:
            if fetch in self._queue:  # An earlier iteration of this loop may have removed it.
                self._set_part_aside(fetch)
        self._restore_parts([fetch for fetch in self._paused if fetch.state.is_readable])

    def _restore_parts(self, fetches: Iterable[PartitionFetch]) -> None:
        for fetch in fetches:
            del self._paused[fetch]
            self._queue[fetch] = None

    def _set_part_aside(self, fetch: PartitionFetch) -> None:
        # A later part of the same partition must not outlive an earlier one that was dropped.
        if self.paused_size + fetch.size > self._paused_limit:
            state = fetch.state
            state.rewind()
            for other in [other for other in self if other.state is state]:
                self.remove(other)
            return
        del self._queue[fetch]
        fetch.copy_batches()
        if not fetch.is_read:
            self._paused[fetch] = None
