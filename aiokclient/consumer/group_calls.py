"""The calls of a consumer that are about its group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aiokclient.cluster.lifecycle import Lifecycle
from aiokclient.consumer.arguments import as_partitions
from aiokclient.consumer.commit_forms import to_commit
from aiokclient.consumer.commits import lost
from aiokclient.errors import IllegalStateError
from aiokclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.engine import Engine
    from aiokclient.consumer.grouped import Grouped
    from aiokclient.consumer.subscription import SubscriptionState

__all__ = ["GroupCalls"]


class GroupCalls(Lifecycle):
    """A part of `Consumer`. Without `group_id` each of these raises IllegalStateError."""

    _subscription: SubscriptionState
    _engine: Engine | None

    async def commit(self, what: Any = None, timeout: float | None = None) -> None:
        """Stores for the group how far it is.

        Of everything that was handed out, what is in hand included (of `tracked`: up to the lowest
        record that is not done); or of a record, several records, `{tp: offset}`,
        `{tp: OffsetAndMetadata}`, topics, or partitions: exactly that. A record commits its
        offset + 1.

        `timeout` in seconds (`default_api_timeout_ms`), after which ApiTimeoutError is raised.
        What stands in the way for a while, a rebalance say, is waited out. Raises
        IllegalGenerationError or UnknownMemberIdError for partitions that this consumer does not
        own any more: another member may be at work on them. When it raises, or is cancelled, part
        of the commit may have been stored.
        """
        group = self._group("commit")
        offsets, nothing = to_commit(what, self._subscription.consumed())
        for tp in nothing:
            if tp not in self._subscription:
                raise lost(tp)
        await group.commits.commit(offsets, self._seconds(timeout))

    async def committed(
        self, tps: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None where it has nothing; the partitions may be anyone's.

        `timeout` in seconds (`default_api_timeout_ms`), after which ApiTimeoutError is raised.
        What a transaction that is still open has committed is waited for.
        """
        group = self._group("committed")
        wanted = as_partitions(tps)
        found = await group.commits.fetch(wanted, self._seconds(timeout))
        return {tp: found[tp] for tp in wanted}

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group; generation -1 while it is no member. Plain."""
        return self._group("group_metadata").membership.metadata

    def _group(self, call: str) -> Grouped:
        self._check()
        assert self._engine is not None
        if self._engine.group is None:
            raise IllegalStateError(
                f"{call}() needs a group, and this consumer has no group_id; keep offsets yourself "
                "(consumed() tells them, seek() goes back to them)"
            )
        return self._engine.group

    def _seconds(self, timeout: float | None) -> float:
        return self._config.default_api_timeout_ms / 1000 if timeout is None else timeout
