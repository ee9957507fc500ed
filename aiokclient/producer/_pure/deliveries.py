"""The deliveries and the outcomes of many records, and waiting for many at a time.

`gather` waits once for each batch, not for each record.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from aiokclient.background import SLICE_S
from aiokclient.clock import Clock
from aiokclient.errors import KafkaError
from aiokclient.producer._pure.delivery import Run, encode_answer
from aiokclient.producer.delivery.delivery import Delivery, DeliveryBatch
from aiokclient.types import RecordMetadata
from aiokclient.types.named_tuple import NamedTuple

__all__ = ["DeliveryRuns", "Gathering", "OutcomeRuns", "Run", "gathered", "runs_of"]

STRIDE = 2048
"""Number of records in one step, which takes much less than a time slice."""
SLICE_STRIDES = 16
"""Number of steps after which `gathered` yields even if little time has passed."""


class DeliveryRuns:
    """The deliveries of one `send_many` call, in order. Each delivery is created on access."""

    __slots__ = ("_ends", "_runs")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs: list[Run] = []
        self._ends: list[int] = []
        for run in runs:
            self.add_run(run)

    def add_run(self, run: Run) -> None:
        """Append the deliveries of a run, which are consecutive records of one batch."""
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


class OutcomeRun(NamedTuple):
    """The outcomes of consecutive records of one batch: what was written, or one failure."""

    topic: str
    partition: int
    offset: int
    """The offset of the first record, or -1 if the broker returned none."""
    timestamp: int
    answer: int
    """See `encode_answer`."""
    error: KafkaError | None


class OutcomeRuns:
    """The outcomes of many records, in order. Each `RecordMetadata` is created on access.

    It refers to no batch, and so it keeps none in memory.
    """

    __slots__ = ("_ends", "_runs")

    def __init__(self) -> None:
        self._runs: list[OutcomeRun] = []
        self._ends: list[int] = []

    def add_written(self, batch: DeliveryBatch, index: int, count: int, timestamp: int) -> None:
        """Append the metadata of consecutive records of a batch that was written."""
        base, partition = batch.base_offset, batch.partition
        assert partition is not None
        offset = base + index if base >= 0 else -1
        time = batch.append_time if batch.append_time >= 0 else timestamp
        answer = encode_answer(batch.append_time, batch.log_start)
        self._add_run(OutcomeRun(batch.topic, partition, offset, time, answer, None), count)

    def add_failed(self, error: KafkaError, count: int) -> None:
        """Append the failure of `count` records."""
        self._add_run(OutcomeRun("", 0, 0, 0, 0, error), count)

    def _add_run(self, run: OutcomeRun, count: int) -> None:
        self._runs.append(run)
        self._ends.append(len(self) + count)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Any]:
        start = 0
        for run, end in zip(self._runs, self._ends, strict=True):
            for nth in range(end - start):
                yield _make_outcome(run, nth)
            start = end

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError("results index out of range")
        at = bisect_right(self._ends, index)
        return _make_outcome(self._runs[at], index - (self._ends[at - 1] if at else 0))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, OutcomeRuns)):
            return NotImplemented
        return len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: object) -> list[Any]:
        if not isinstance(other, (list, OutcomeRuns)):
            return NotImplemented
        return [*self, *other]

    def __radd__(self, other: object) -> list[Any]:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        """Copy and pickle as a list, which any version of the library can load."""
        return list, (list(self),)

    def __repr__(self) -> str:
        return repr(list(self))


def _make_outcome(run: OutcomeRun, nth: int) -> RecordMetadata | KafkaError:
    """Return the outcome of the record with this index in the run."""
    if run.error is not None:
        return run.error
    offset = run.offset + nth if run.offset >= 0 else -1
    made = RecordMetadata(run.topic, run.partition, offset, run.timestamp)
    made._answer = run.answer
    return made


class Gathering:
    """The two passes of `gather`: `skip_lingers` sends all batches, `collect_outcomes` follows.

    Each call of these methods is one step, which handles about `limit` deliveries. The call returns
    None when all deliveries are handled, True if there are more, or a batch if the next step must
    wait for a change of that batch.
    """

    def __init__(self, deliveries: Iterable[Delivery], results: OutcomeRuns) -> None:
        if not isinstance(deliveries, Sequence):
            deliveries = list(deliveries)
        self.results = results
        self.failure: KafkaError | None = None
        """The first failure among the results."""
        self._to_demand = runs_of(deliveries)
        self._to_collect = runs_of(deliveries)
        self._next: list[Run] = []
        """The runs to collect next, in reverse order."""
        self._demanded: DeliveryBatch | None = None
        self._called: DeliveryBatch | None = None
        """The last batch whose callbacks were waited for."""

    def skip_lingers(self, limit: int) -> bool | None:
        """Send the batches without lingering, because a task waits for them."""
        seen = 0
        for batch, _, count, _ in self._to_demand:
            if batch is not self._demanded:
                _demand(batch)
                self._demanded = batch
            seen += count
            if seen >= limit:
                return True
        return None

    def collect_outcomes(self, limit: int) -> bool | DeliveryBatch | None:
        """Append outcomes to `results`."""
        seen = 0
        while seen < limit:
            run = self._next.pop() if self._next else next(self._to_collect, None)
            if run is None:
                return None
            batch, index, count, timestamp = run
            if not batch.done and index + count > batch.moved:
                _demand(batch)
                self._next.append(run)
                return batch
            if batch.has_callbacks and batch is not self._called:
                self._called = batch  # Callbacks that were added earlier must run first.
                self._next.append(run)
                return batch
            if index < batch.moved:
                self._next += [
                    Run(*batch.locate_record(at), 1, timestamp)
                    for at in range(index + count - 1, index - 1, -1)
                ]
                continue
            self._append_outcomes(run)
            seen += count
        return True

    def _append_outcomes(self, run: Run) -> None:
        """Append the outcomes of a run whose batch has its outcome."""
        batch, index, count, timestamp = run
        error = (
            batch.retrieve_error(index) if count == 1 else batch.retrieve_run_error(index, count)
        )
        if error is not None:
            self.failure = self.failure or error
            self.results.add_failed(error, count)
        else:
            self.results.add_written(batch, index, count, timestamp)


def _demand(batch: DeliveryBatch) -> None:
    batch.skip_linger()
    for target in batch.targets:
        _demand(target)


async def gathered(work: Gathering, clock: Clock, *, return_exceptions: bool) -> OutcomeRuns:
    """Take all steps of a gathering. Yield to the event loop every few milliseconds."""
    for step in (work.skip_lingers, work.collect_outcomes):
        strides, until = 0, clock.monotonic() + SLICE_S
        while (found := step(STRIDE)) is not None:
            strides += 1
            if found is not True:
                assert found
                await found.wait_for_change()
            elif strides % SLICE_STRIDES == 0 or clock.monotonic() >= until:
                await asyncio.sleep(0)
                until = clock.monotonic() + SLICE_S
    if work.failure is not None and not return_exceptions:
        raise work.failure.with_traceback(None)
    return work.results
