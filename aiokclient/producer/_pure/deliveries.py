"""The deliveries of many records, and waiting for many at a time.

`gather` waits once for each batch, not for each record.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, overload

from aiokclient.clock import Clock
from aiokclient.errors import KafkaError
from aiokclient.producer._pure.delivery import Run
from aiokclient.producer.delivery.delivery import Delivery, DeliveryBatch
from aiokclient.producer.fairness import SLICE_S
from aiokclient.types import RecordMetadata

__all__ = ["STRIDE", "DeliveryRuns", "Run", "gather", "runs_of"]

STRIDE = 2048
"""Number of records between two reads of the clock. They take much less than one time slice."""


class DeliveryRuns:
    """The deliveries of one `send_many` call, in order. Each one is created on access."""

    __slots__ = ("_ends", "_runs")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs: list[Run] = []
        self._ends: list[int] = []
        for run in runs:
            self.add(run)

    def add(self, run: Run) -> None:
        """Append the deliveries of a run."""
        self._runs.append(run)
        self._ends.append(len(self) + run.size)

    @property
    def runs(self) -> Sequence[Run]:
        """The runs of deliveries in the sequence."""
        return self._runs

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Delivery]:
        for batch, index, count, timestamp in self._runs:
            for i in range(index, index + count):
                yield Delivery(batch, i, timestamp)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...
    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError("deliveries index out of range")
        at = bisect_right(self._ends, index)
        run = self._runs[at]
        first = self._ends[at] - run.size
        return Delivery(run.batch, run.first + index - first, run.timestamp)

    def __repr__(self) -> str:
        return f"<Deliveries of {len(self)} records in {len(self._runs)} runs>"


def runs_of(deliveries: Iterable[Delivery]) -> Iterator[Run]:
    """Group deliveries into runs: consecutive records that are in the same batch."""
    runs: Sequence[Run] | None = getattr(deliveries, "runs", None)
    return _joined(deliveries) if runs is None else _cut(runs)


def _cut(runs: Iterable[Run]) -> Iterator[Run]:
    for batch, first, size, timestamp in runs:
        for start in range(0, size, STRIDE):
            yield Run(batch, first + start, min(STRIDE, size - start), timestamp)


def _joined(deliveries: Iterable[Delivery]) -> Iterator[Run]:
    batch: DeliveryBatch | None = None
    first = size = timestamp = 0
    for delivery in deliveries:
        try:
            its_batch, index, its_timestamp = delivery.origin
        except AttributeError:
            raise TypeError(f"gather() takes deliveries, not {type(delivery).__name__}.") from None
        if (
            its_batch is batch
            and index == first + size
            and its_timestamp == timestamp
            and size < STRIDE
        ):
            size += 1
            continue
        if batch is not None:
            yield Run(batch, first, size, timestamp)
        batch, first, size, timestamp = its_batch, index, 1, its_timestamp
    if batch is not None:
        yield Run(batch, first, size, timestamp)


async def in_slices(runs: Iterable[Run], clock: Clock) -> AsyncIterator[Run]:
    """Yield the runs, and yield to the event loop every few milliseconds."""
    seen, until = 0, clock.monotonic() + SLICE_S
    for run in runs:
        yield run
        seen += run.size
        if seen >= STRIDE:
            seen = 0
            if clock.monotonic() >= until:
                await asyncio.sleep(0)
                until = clock.monotonic() + SLICE_S


async def gather(
    deliveries: Iterable[Delivery], clock: Clock, *, return_exceptions: bool
) -> list[Any]:
    """Wait for the deliveries and return their outcomes in order; see `Producer.gather`."""
    if not isinstance(deliveries, Sequence):
        deliveries = list(deliveries)
    last: DeliveryBatch | None = None
    async for batch, _, _, _ in in_slices(runs_of(deliveries), clock):
        if batch is not last:
            _demand(batch)
            last = batch
    results: list[Any] = []
    first: KafkaError | None = None
    async for run in in_slices(runs_of(deliveries), clock):
        error = await _collect(run, results)
        first = first or error
    if first is not None and not return_exceptions:
        raise first.with_traceback(None)
    return results


def _demand(batch: DeliveryBatch) -> None:
    batch.demand()
    for target in batch.targets:
        _demand(target)


async def _collect(run: Run, results: list[Any]) -> KafkaError | None:
    """Append the outcomes of a run, and return its first failure."""
    batch, index, count, timestamp = run
    while not batch.done and index + count > batch.moved:
        _demand(batch)
        await batch.changed()
    if batch.calling and batch.done:
        await batch.changed()
    if index < batch.moved:
        return await _collect_moved(run, results)
    error = batch.retrieve(index) if count == 1 else batch.retrieve_run(index, count)
    if error is not None:
        results.extend(repeat(error, count))
        return error
    base, partition = batch.base_offset, batch.partition
    assert partition is not None
    time = batch.append_time if batch.append_time >= 0 else timestamp
    if count == 1:
        results.append(
            RecordMetadata(batch.topic, partition, base + index if base >= 0 else -1, time)
        )
        return None
    offsets = range(base + index, base + index + count) if base >= 0 else repeat(-1, count)
    fields = zip(repeat(batch.topic), repeat(partition), offsets, repeat(time), strict=False)
    results.extend(map(RecordMetadata._make, fields))
    return None


async def _collect_moved(run: Run, results: list[Any]) -> KafkaError | None:
    """Do the same as `_collect`, record by record, for a run that has moved to other batches."""
    first: KafkaError | None = None
    for i in range(run.first, run.first + run.size):
        batch, index = run.batch.locate(i)
        error = await _collect(Run(batch, index, 1, run.timestamp), results)
        first = first or error
    return first
