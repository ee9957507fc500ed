"""The offsets at which an iteration to the end stops."""

from __future__ import annotations

import math
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import anyio

from aiokclient.consumer.delivery.read_lock import Cursor
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.types import TopicPartition

__all__ = ["EndOffsets", "EndOffsetsLookup"]

EndOffsetsLookup: TypeAlias = Callable[[], Awaitable[Mapping[TopicPartition, int]]]
"""A function that looks up the present end offsets."""
TOGETHER = 16
"""The factor that decides when partitions at their ends are withheld.

They are withheld together as soon as their number times this factor reaches the number of open
partitions.
"""


class EndOffsets:
    """The end offsets of one iteration. Each partition that reaches its end offset is withheld.

    The iteration also ends when its iterator is garbage collected or another request is made. A
    partition that is revoked and assigned again during the iteration keeps its end offset. If its
    log is replaced by another one, as in another cluster, the end offset is looked up again.

    Withholding a partition is expensive, because other objects then examine every partition. So if
    there are thousands of partitions, several are withheld together. `_look` is expensive, too, so
    between changes only partitions that have moved are examined.
    """

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._ends: Mapping[TopicPartition, int] = {}
        self._offsets: dict[PartitionState, int] = {}
        self._open: set[PartitionState] = set()
        """The partitions that had not reached their ends when they were last examined."""
        self._to_hold: list[PartitionState] = []
        self._current = False
        self._cursor: weakref.ref[Any] | None = None
        self._lookup = anyio.CancelScope()
        self._replacements = 0
        """The number of times that logs of partitions were replaced by others."""
        self._valid_after = 0
        """The value of `_replacements` for which the end offsets are valid. When it has increased,
        they must be looked up again.
        """

    async def find(self, ends: EndOffsetsLookup) -> Mapping[TopicPartition, int] | None:
        """Return the end offsets that `ends` looks up, or None if `interrupt` ends the lookup.

        End offsets that were already known are not replaced. If logs are replaced during the
        lookup, it begins again.
        """
        while True:
            before, found = self._replacements, None
            with anyio.CancelScope() as self._lookup:
                found = await ends()
            if found is None:
                return None
            if before == self._replacements:
                return {**found, **self._ends}

    def replaced(self, tps: Iterable[TopicPartition] | None) -> None:
        """Discard the end offsets of these partitions, or of all: their logs were replaced."""
        gone = self._ends if tps is None else dict.fromkeys(tps)
        self._ends = {tp: end for tp, end in self._ends.items() if tp not in gone}
        self._replacements += 1

    def outdated(self, cursor: Cursor | None) -> bool:
        """Return whether end offsets of this iteration must be looked up again."""
        return self._valid_after != self._replacements and self.belong_to(cursor)

    def interrupt(self) -> None:
        """End the lookup that is in progress, if there is one."""
        self._lookup.cancel()

    def begin(
        self, cursor: Cursor, ends: Mapping[TopicPartition, int]
    ) -> Mapping[PartitionState, int]:
        """Set the end offsets for an iteration; return those of the assigned partitions.

        End offsets of partitions that are assigned later are added to the same mapping.
        """
        self._cursor = weakref.ref(cursor)
        self._ends, self._offsets = ends, {}
        self._valid_after = self._replacements
        self._adopt()
        self._open = {state for state, end in self._offsets.items() if state.position < end}
        self._to_hold = [state for state in self._offsets if state not in self._open]
        self.hold()
        return self._offsets

    def moved(self, state: PartitionState) -> None:
        """Withhold the partition if it is at its end, immediately or later together with others."""
        end = self._offsets.get(state)
        if end is not None and state.position >= end:
            self._open.discard(state)
            self._to_hold.append(state)
            if len(self._to_hold) * TOGETHER >= len(self._open):
                self.hold()

    def end_of(self, state: PartitionState) -> float:
        """Return the end offset of a partition, or infinity."""
        return self._offsets.get(state, math.inf)

    def hold(self) -> None:
        """Withhold the partitions that are at their ends and are not withheld yet."""
        states, self._to_hold = self._to_hold, []
        if states:
            self._subscription.hold(states, True)

    def changed(self) -> None:
        """Make `reached` examine the partitions again, because something has changed."""
        self._current = False

    def outlived_by(self, cursor: Cursor | None) -> bool:
        """Return whether there are end offsets of an iteration other than `cursor`."""
        return self._cursor is not None and not self.belong_to(cursor)

    def belong_to(self, cursor: Cursor | None) -> bool:
        """Return whether there are end offsets of this iteration."""
        return cursor is not None and self._cursor is not None and self._cursor() is cursor

    def reached(self) -> bool:
        """Return whether all partitions are at their ends or no longer assigned."""
        if not self._current or not self._open:
            self._look()
        return not self._open and self._subscription.part_known()

    def _adopt(self) -> None:
        """Add the partitions that are assigned now, with their end offsets."""
        partitions = self._subscription.partitions
        self._offsets.update(
            (partitions[tp], end) for tp, end in self._ends.items() if tp in partitions
        )

    def _look(self) -> None:
        partitions = self._subscription.partitions
        self._current = True
        self._adopt()
        self._open = {
            state
            for state, end in self._offsets.items()
            if partitions.get(state.tp) is state and not (state.located and state.position >= end)
        }
        self._to_hold = [state for state in self._to_hold if state not in self._open]
        # A seek may have moved withheld partitions below their end offsets.
        back = [state for state in self._open if state.held]
        if back:
            self._subscription.hold(back, False)

    def within(
        self, offsets: Mapping[PartitionState, int], only: PartitionState | None = None
    ) -> bool:
        """Return whether these positions have reached all end offsets.

        With `only`, only this partition counts.
        """
        partitions = self._subscription.partitions
        return all(
            offsets.get(state, state.position) >= end
            for state, end in self._offsets.items()
            if partitions.get(state.tp) is state and only in (None, state)
        )

    def clear(self) -> None:
        """Remove the end offsets, and stop withholding partitions."""
        held = [state for state in self._offsets if state.held]
        self._cursor, self._ends, self._offsets = None, {}, {}
        self._open, self._to_hold = set(), []
        self._subscription.hold(held, False)
