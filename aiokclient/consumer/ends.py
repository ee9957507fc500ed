"""The offsets at which an iteration to the end stops."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from aiokclient.consumer.positions import PartitionState
from aiokclient.consumer.subscription import SubscriptionState
from aiokclient.consumer.turnstile import Cursor
from aiokclient.types import TopicPartition

__all__ = ["Ends", "EndsLookup"]

EndsLookup: TypeAlias = Callable[[], Awaitable[Mapping[TopicPartition, int]]]
"""Asks for the end offsets as they are now."""


class Ends:
    """Those of one iteration. A partition that is at its end is held until the iteration is over.

    It is over, too, when its iterator is gone or another request was made.
    """

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._offsets: dict[PartitionState, int] = {}
        self._cursor: weakref.ref[Any] | None = None

    def begin(self, cursor: Cursor, ends: Mapping[TopicPartition, int]) -> None:
        """Takes the ends for an iteration."""
        partitions = self._subscription.partitions
        self._cursor = weakref.ref(cursor)
        self._offsets = {partitions[tp]: end for tp, end in ends.items() if tp in partitions}
        # All at once: what hears of it looks at every partition.
        there = [state for state, end in self._offsets.items() if state.position >= end]
        self._subscription.hold(there, True)

    def moved(self, state: PartitionState) -> None:
        """Holds the partition if it is at its end."""
        end = self._offsets.get(state)
        if end is not None and state.position >= end:
            self._subscription.hold([state], True)

    def outlived_by(self, cursor: Cursor | None) -> bool:
        """Whether there are ends, and `cursor` is not the iteration that they are for."""
        return self._cursor is not None and not self.belong_to(cursor)

    def belong_to(self, cursor: Cursor | None) -> bool:
        """Whether there are ends, and they are for this iteration."""
        return cursor is not None and self._cursor is not None and self._cursor() is cursor

    def reached(self) -> bool:
        """Whether all partitions are at their ends, or gone."""
        partitions = self._subscription.partitions
        there = True
        for state, end in self._offsets.items():
            if partitions.get(state.tp) is state and not (state.located and state.position >= end):
                there = False
                if state.held:  # A seek has taken it back.
                    self._subscription.hold([state], False)
        return there

    def within(
        self, offsets: Mapping[PartitionState, int], only: PartitionState | None = None
    ) -> bool:
        """Whether with these positions the ends (or `only` this one's) would be reached."""
        partitions = self._subscription.partitions
        return all(
            offsets.get(state, state.position) >= end
            for state, end in self._offsets.items()
            if partitions.get(state.tp) is state and only in (None, state)
        )

    def clear(self) -> None:
        """Lets the partitions go on."""
        held = [state for state in self._offsets if state.held]
        self._cursor, self._offsets = None, {}
        self._subscription.hold(held, False)
