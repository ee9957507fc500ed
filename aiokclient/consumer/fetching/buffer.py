"""The buffer of what was fetched and not yet delivered.

A response is kept as it came, one `PartitionFetch` for each partition with data, until the reader
has delivered its last record. A fetcher requests the next response when at most one of its
responses is not read to the end, so a consumer needs the memory of two responses for each broker.

A paused partition must not delay the others of its broker, nor keep the whole response in memory:
its part is copied and set aside, as long as all parts that are set aside are within the limit.
Beyond the limit it is dropped, to be fetched again after resume.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from aiokclient.cluster.tracebacks import bare
from aiokclient.consumer.delivery.deserialize import RawRecord
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.errors import KafkaError, RecordError
from aiokclient.record.batch import ContentLimitError, RecordBatch, walk
from aiokclient.record.stream import RecordStream

__all__ = ["Damage", "Decoded", "FetchBuffer", "Loaded", "PartitionFetch", "Slot"]


class Slot:
    """One response of a broker, which counts its unread parts.

    The count begins at one, for the fetcher that adds the parts and then releases the slot.
    """

    __slots__ = ("on_free", "unread")

    def __init__(self, on_free: Callable[[], None]) -> None:
        self.unread = 1
        self.on_free = on_free

    def release(self) -> None:
        """Count one part less; the last one frees the slot."""
        self.unread -= 1
        if self.unread == 0:
            self.on_free()


class Damage(NamedTuple):
    """Records that could not be read, and why."""

    offset: int
    last_offset: int
    cause: KafkaError
    over_limit: bool = False
    """The batch is larger than `max_decompressed_batch_bytes`."""

    @classmethod
    def of(cls, batch: RecordBatch, cause: KafkaError) -> Damage:
        """Return the damage of a batch whose records cannot be read."""
        over_limit = isinstance(cause, ContentLimitError)
        return cls(max(batch.base_offset, 0), batch.last_offset, bare(cause), over_limit)


class Loaded(NamedTuple):
    """Records that a thread has read from a batch, their bytes, and the rest of the batch."""

    records: list[RawRecord]
    size: int
    rest: RecordStream | None


class Decoded:
    """Decoded records of a part; from `index` on they are not yet deserialized."""

    __slots__ = ("epoch", "error", "index", "next_offset", "records", "size")

    def __init__(
        self, records: list[RawRecord], next_offset: int, epoch: int, size: int = 0
    ) -> None:
        self.records = records
        self.size = size
        """Bytes that the records take, at least those of their keys, values and headers."""
        self.next_offset = next_offset
        self.epoch = epoch
        self.index = 0
        self.error: RecordError | None = None


class PartitionFetch:
    """The batches of one partition in one response, and how far they are unpacked.

    `first` is the lowest offset that can be read from it, `offset` the next one to unpack,
    `next_offset` the one after the last batch. `visible` tells for each batch whether its records
    are for the application. `damage` is what follows the last batch, if that could not be read.
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
        self.size = sum(batch.size for batch in batches)
        self.slot = slot
        self.index = 0
        self.damage = damage
        self.damage_told = False
        self.raw: Decoded | None = None
        self.job: asyncio.Future[Loaded] | None = None
        self.stream: RecordStream | None = None
        """The rest of the next batch, if a part of it was read."""
        if slot is not None:
            slot.unread += 1

    @property
    def alive(self) -> bool:
        """Whether it still follows the position."""
        return self.generation == self.state.generation

    @property
    def unpacked(self) -> bool:
        """Whether the reader has all of it."""
        if self.index < len(self.batches) or self.raw is not None:
            return False
        return self.damage is None or self.damage_told

    @property
    def read(self) -> bool:
        """Whether nothing is left to unpack, and there is no damage."""
        return self.unpacked and self.damage is None

    def rest(self, size: int) -> list[int]:
        """Return the indexes of the batches to unpack, those with markers included.

        Only as many as are needed for `size` bytes, and at least one if there is any.
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

    def damaged(self, damage: Damage) -> None:
        """End this part before the next batch, which cannot be read."""
        self.batches = self.batches[: self.index]
        self.next_offset = damage.offset
        self.damage = damage

    def rewind(self) -> None:
        """Go back to the first record that was not delivered."""
        self.offset = self.state.position
        self.raw = self.job = self.stream = None
        self.damage_told = False
        self.index = 0
        while self.index < len(self.batches) and (
            self.batches[self.index].next_offset <= self.offset
        ):
            self.index += 1

    def release(self) -> None:
        """Release the response."""
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.release()

    def detach(self) -> None:
        """Copy what was not delivered, and release the response."""
        self.rewind()
        self.first = max(self.first, self.offset)
        first, self.visible = self.index, self.visible[self.index :]
        data = b"".join(batch.buffer for batch in self.batches[first:])
        self.batches = walk(memoryview(data))
        self.index, self.size = 0, len(data)
        self.release()


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
        """Add a part; that of a paused partition is set aside."""
        self._queue[fetch] = None
        if not fetch.state.flowing:
            self._set_aside(fetch)

    def next(self) -> PartitionFetch | None:
        """Return the first part that has something left to unpack."""
        for fetch in self._queue:
            if not fetch.unpacked:
                return fetch
        return None

    def rewind(self, fetches: Iterable[PartitionFetch]) -> None:
        """Have parts unpacked again from the position on; remove those that end before it."""
        for fetch in dict.fromkeys(fetches):
            fetch.rewind()
            if fetch.read:
                self.remove(fetch)

    def holding(self, state: PartitionState, offset: int) -> list[PartitionFetch]:
        """Return the parts of a partition if they hold the record at the offset, else nothing."""
        parts = [fetch for fetch in self if fetch.state is state and fetch.alive]
        if not parts:
            return []
        first = min(fetch.first for fetch in parts)
        return parts if first <= offset < max(fetch.next_offset for fetch in parts) else []

    def remove(self, fetch: PartitionFetch) -> None:
        """Remove a part, which is read or void."""
        self._queue.pop(fetch, None)
        self._paused.pop(fetch, None)
        fetch.release()

    def clear(self) -> None:
        """Remove everything."""
        for fetch in list(self):
            self.remove(fetch)

    def sort_out(self) -> None:
        """Remove what is void, set aside what is paused, and take back what is not any more."""
        for fetch in [fetch for fetch in self if not fetch.alive]:
            self.remove(fetch)
        for fetch in [fetch for fetch in self._queue if not fetch.state.flowing]:
            if fetch in self._queue:  # Dropped with an earlier one of its partition?
                self._set_aside(fetch)
        for fetch in [fetch for fetch in self._paused if fetch.state.flowing]:
            del self._paused[fetch]
            self._queue[fetch] = None

    def _set_aside(self, fetch: PartitionFetch) -> None:
        # A later part of the same partition must not outlive an earlier one that was dropped.
        if self.paused_size + fetch.size > self._paused_limit:
            state = fetch.state
            state.rewind()
            for other in [other for other in self if other.state is state]:
                self.remove(other)
            return
        del self._queue[fetch]
        fetch.detach()
        if not fetch.read:
            self._paused[fetch] = None
