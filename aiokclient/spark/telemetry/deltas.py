"""The totals of series, added up from the values that were pushed.

A delta counts what happened between its start and its time. The order in which deltas arrive does
not matter. Each delta begins where the previous one ends. If it begins later, a push was lost.
If two deltas begin at the same time, and no delta of the client instance begins where the shorter
one ends, the client did not know that the shorter one was accepted. It then pushed the same changes
again in the longer one, so the longer delta replaces the shorter one. Any other delta that begins
before the end of another one belongs to a series that has begun again from zero.

A cumulative value counts what has happened since its start. It loses nothing when a push is lost.
It begins again when its start changes, or when it decreases although it is monotonic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

Amounts: TypeAlias = tuple[float, ...]
"""The numbers of a point: the value, and for histograms also the total count and each bucket's."""


UNKNOWN: Final = 0
"""The value of `start` for a point whose start is unknown."""


class SeriesValue(NamedTuple):
    """One point of a series. The times may have any unit."""

    start: int
    time: int
    amounts: Amounts


class SeriesTotal(NamedTuple):
    """The sum of all points of a series."""

    amounts: Amounts
    start: int
    """The earliest start of a point, or 0 if it is unknown."""
    time: int
    """The end of the last point."""
    points: int
    """The number of points that were added up."""
    gaps: tuple[tuple[int, int], ...]
    """The start and end times of each interval that no point covers."""
    restarts: int
    """The number of times that the series began again."""
    replaced: int
    """The number of points that were not added up, because a longer one contains them."""


def add_deltas(values: Iterable[SeriesValue], continued: Collection[int]) -> SeriesTotal:
    """Add up the deltas of a series, which has at least one.

    A start of 0 means that the start is unknown. Such a delta counts as beginning where the
    previous one ends, so lost pushes are not recognized. `continued` has the starts of all deltas
    of the client instance. Each start is the time of a push that the client knows to be accepted.
    """
    given = list(values)
    merged, points = _merge(_with_starts(given))
    longest: dict[int, int] = {}
    for start, time in merged:
        longest[start] = max(time, longest.get(start, time))
    spans = sorted(
        ((start, time) for start, time in merged if time == longest[start] or time in continued),
        key=lambda span: (span[1], span[0]),
    )
    total: Amounts = merged[spans[0]]
    first, end = spans[0]
    gaps: list[tuple[int, int]] = []
    restarts = 0
    for start, time in spans[1:]:
        total = _add(total, merged[start, time])
        if start > end:
            gaps.append((end, start))
        elif start < end:
            restarts += 1
        first, end = min(first, start), max(end, time)
    added = sum(points[span] for span in spans)
    replaced = sum(points.values()) - added
    if min(given, key=lambda value: value.time).start == UNKNOWN:
        first = UNKNOWN
    return SeriesTotal(total, first, end, added, tuple(gaps), restarts, replaced)


def add_cumulative(values: Iterable[SeriesValue], *, monotonic: bool) -> SeriesTotal:
    """Return the total of the cumulative values of a series, which has at least one."""
    merged, points = _merge(values)
    ordered = sorted((time, start) for start, time in merged)
    time, start = ordered[0]
    first, last = start, merged[start, time]
    total: Amounts = tuple(0 for _ in last)
    restarts = 0
    for time, began in ordered[1:]:
        new = merged[began, time]
        if began != start or (monotonic and _decreased(new, last)):
            total = _add(total, last)
            restarts += 1
        start, last = began, new
        first = min(first, start)
    return SeriesTotal(_add(total, last), first, time, sum(points.values()), (), restarts, 0)


def _with_starts(values: Sequence[SeriesValue]) -> Iterator[SeriesValue]:
    """Yield the deltas. A delta without a start gets the previous delta's time as its start."""
    times = sorted({value.time for value in values})
    before = dict(zip(times, (times[0] - 1, *times), strict=False))
    for value in values:
        yield value if value.start != UNKNOWN else value._replace(start=before[value.time])


def _merge(
    values: Iterable[SeriesValue],
) -> tuple[dict[tuple[int, int], Amounts], dict[tuple[int, int], int]]:
    """Return two mappings from start and time: to the summed amounts, and to the number of points.

    Several points can have the same times, because objects that share a client push series of the
    same name at the same time.
    """
    merged: dict[tuple[int, int], Amounts] = {}
    points: dict[tuple[int, int], int] = {}
    for start, time, amounts in values:
        span = (start, time)
        merged[span] = _add(merged[span], amounts) if span in merged else amounts
        points[span] = points.get(span, 0) + 1
    return merged, points


def _decreased(new: Amounts, old: Amounts) -> bool:
    # Negative observations decrease the sum of a histogram. Its counts never decrease.
    skipped = 1 if len(new) > 1 else 0
    return any(a < b for a, b in zip(new[skipped:], old[skipped:], strict=True))


def _add(first: Amounts, second: Amounts) -> Amounts:
    return tuple(a + b for a, b in zip(first, second, strict=True))
