"""The calls of a started consumer that concern its group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
from aiokclient.consumer.membership.offsets.commit_forms import covered, named_topics, to_commit
from aiokclient.consumer.membership.rewind.requests import plain
from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.errors import IllegalStateError
from aiokclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["ConsumerGroupCalls"]


class ConsumerGroupCalls:
    """The calls of a consumer with a group. `Consumer` documents them."""

    def __init__(self, group: ConsumerCoordinator, subscription: SubscriptionState) -> None:
        self._group = group
        self._subscription = subscription
        self._time = asyncio.get_running_loop().time

    async def commit(self, what: Any, timeout: float) -> None:
        """Commit offsets to the group, within `timeout` seconds."""
        if isinstance(what, Iterator):
            what = list(what)  # It is read several times.
        consumed = self._subscription.consumed()
        offsets, nothing = to_commit(what, consumed)
        known = {tp.topic for tp in [*consumed, *self._subscription.partitions]}
        for topic in named_topics(what):
            if topic not in known and not self._group.commits.may_have(topic):
                raise IllegalStateError(
                    f"The topic {topic!r} cannot be committed: it is neither subscribed nor "
                    "assigned. Check its name, or commit offsets as {partition: offset}."
                )
        gone = [tp for tp in nothing if tp not in self._subscription]
        if gone:
            raise self._group.commits.not_assigned(gone)
        with self._subscription.measures.timed("commit.seconds", self._time):
            await self._group.commits.commit(offsets, timeout, covered(what))

    async def committed(
        self, tps: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition, or None if there is none."""
        with self._subscription.measures.timed("committed.seconds", self._time):
            found = await self._group.commits.fetch(tps, timeout)
        return {tp: _without_notes(found[tp]) for tp in tps}

    async def rewind(
        self, offsets: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, int]:
        """Make the whole group continue at these offsets, or at the nearest ones in the logs."""
        return await self._group.rewind(offsets, timeout)

    @property
    def metadata(self) -> GroupMetadata:
        """The identity of the consumer in its group."""
        return self._group.membership.metadata


def _without_notes(stored: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
    """Remove the library's own notes from the metadata of a committed offset."""
    return None if stored is None else stored._replace(metadata=plain(stored.metadata))
