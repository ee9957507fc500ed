"""What was fetched and not yet handed out, bounded.

A response is kept as it came, one `PartitionFetch` for each partition with data, until the reader
has handed out the last record. A fetcher asks for the next response when it holds at most one
that is not read to its end, so the memory of a consumer is two responses for each broker.

A paused partition must not hold up the others of its broker, nor keep the whole response alive:
its part is copied out (parked) as long as all parked bytes together are within the limit, and
otherwise dropped, to be fetched again after resume.
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
    """One response of a broker: how many of its parts are unread.

    Made with a count of one, for the fetcher that fills it and releases it then.
    """

    __slots__ = ("on_free", "unread")

    def __init__(self, on_free: Callable[[], None]) -> None:
        self.unread = 1
        self.on_free = on_free

    def release(self) -> None:
        """One part less; the last one frees the slot."""
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
    """Records of a part that are decoded and, from `index` on, not yet deserialized."""

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
    `next_offset` the one after the last batch. `visible`
    tells for each batch whether the program is to see it. `damage` is what lies behind the last
    batch, if that could not be read.
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
        """The rest of the batch that is next, if a part of it was read."""
        if slot is not None:
            slot.unread += 1

    @property
    def alive(self) -> bool:
        """Whether it follows on the position still."""
        return self.generation == self.state.generation

    @property
    def unpacked(self) -> bool:
        """Whether all of it went to the reader."""
        if self.index < len(self.batches) or self.raw is not None:
            return False
        return self.damage is None or self.damage_told

    @property
    def read(self) -> bool:
        """Whether nothing is left to unpack, nor to be told."""
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
        """Ends this part before the batch that is next: it cannot be read."""
        self.batches = self.batches[: self.index]
        self.next_offset = damage.offset
        self.damage = damage

    def rewind(self) -> None:
        """Goes back to the first record that was not handed out."""
        self.offset = self.state.position
        self.raw = self.job = self.stream = None
        self.damage_told = False
        self.index = 0
        while self.index < len(self.batches) and (
            self.batches[self.index].next_offset <= self.offset
        ):
            self.index += 1

    def release(self) -> None:
        """Lets go of the response."""
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.release()

    def detach(self) -> None:
        """Copies out what was not handed out, and lets go of the response."""
        self.rewind()
        self.first = max(self.first, self.offset)
        first, self.visible = self.index, self.visible[self.index :]
        data = b"".join(batch.buffer for batch in self.batches[first:])
        self.batches = walk(memoryview(data))
        self.index, self.size = 0, len(data)
        self.release()


class FetchBuffer:
    """The parts in the order in which they came, those of paused partitions aside."""

    def __init__(self, paused_limit: int) -> None:
        self._paused_limit = paused_limit
        self._queue: dict[PartitionFetch, None] = {}
        self._paused: dict[PartitionFetch, None] = {}

    def __len__(self) -> int:
        return len(self._queue) + len(self._paused)

    @property
    def size(self) -> int:
        """Bytes of all batches here."""
        return sum(fetch.size for fetch in self)

    @property
    def paused_size(self) -> int:
        return sum(fetch.size for fetch in self._paused)

    def __iter__(self) -> Iterator[PartitionFetch]:
        yield from self._queue
        yield from self._paused

    def add(self, fetch: PartitionFetch) -> None:
        """Takes a part; that of a paused partition is parked at once."""
        self._queue[fetch] = None
        if not fetch.state.flowing:
            self._set_aside(fetch)

    def next(self) -> PartitionFetch | None:
        """The first part that has something left to unpack."""
        for fetch in self._queue:
            if not fetch.unpacked:
                return fetch
        return None

    def rewind(self, fetches: Iterable[PartitionFetch]) -> None:
        """Has parts unpacked again from the position on; lets go of those that lie before it."""
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
        """Lets go of a part, read or void."""
        self._queue.pop(fetch, None)
        self._paused.pop(fetch, None)
        fetch.release()

    def clear(self) -> None:
        """Lets go of everything."""
        for fetch in list(self):
            self.remove(fetch)

    def sort_out(self) -> None:
        """Acts on changes: drops what is void, parks what is paused, takes back what flows."""
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
