"""The calls of a consumer that are about its group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aiokclient.cluster.lifecycle import Lifecycle
from aiokclient.cluster.tracebacks import lets_go
from aiokclient.consumer.arguments import as_listener, as_numbers, as_partitions
from aiokclient.consumer.membership.offsets.commit_forms import covered, to_commit
from aiokclient.consumer.membership.rewind.requests import plain
from aiokclient.errors import IllegalStateError
from aiokclient.types import GroupMetadata, OffsetAndMetadata, State, TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.engine import Engine
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
    from aiokclient.consumer.state.subscription import SubscriptionState

__all__ = ["GroupCalls"]


class GroupCalls(Lifecycle):
    """A part of `Consumer`. Without `group_id` each of these raises IllegalStateError."""

    _subscription: SubscriptionState
    _engine: Engine | None
    _listener: Any
    """The application's, which background work does not keep alive: it may hold this consumer."""

    @lets_go
    async def commit(self, what: Any = None, timeout: float | None = None) -> None:
        """Store in the group how far this consumer is.

        `commit()` covers everything that was delivered, including what is being processed (of
        `tracked`: up to the lowest record that is not done). `commit(what)` covers exactly that:
        a record or several, `{tp: offset}`, `{tp: OffsetAndMetadata}`, topics, or partitions. A
        record commits its offset + 1.

        `timeout` is in seconds (`default_api_timeout_ms`); ApiTimeoutError is raised after it. A
        rebalance and other passing obstacles are waited for. Raises CommitFailedError:

        - for partitions that this consumer no longer owns, as another member may be at work on
          them; `commit()` raises it if records of a lost partition were delivered and not
          committed;
        - for partitions that were assigned by hand, if this consumer is not a member of the group
          and others are: the coordinator then takes offsets of members only;
        - for partitions that are named without offsets and are not assigned.

        In a listener it does not wait for the group, which waits for the listener. In `on_lost`
        the lost partitions can no longer be committed: CommitFailedError is raised immediately,
        except by `commit()` if all that was delivered of them is committed. Catch it there,
        because what a listener raises fails the consumer.

        If the consumer fails in the meantime, this raises why. When it raises, or is cancelled,
        part of the commit may have been stored.
        """
        group = self._group("commit")
        offsets, nothing = to_commit(what, self._subscription.consumed())
        gone = [tp for tp in nothing if tp not in self._subscription]
        if gone:
            raise group.commits.not_assigned(gone)
        await group.commits.commit(offsets, self._seconds(timeout), covered(what))

    @lets_go
    async def committed(
        self, tps: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed, None where it has nothing.

        The partitions need not be assigned to this consumer. `timeout` is in seconds
        (`default_api_timeout_ms`); ApiTimeoutError is raised after it. What an open transaction
        has committed is waited for. If the consumer fails in the meantime, this raises why.
        """
        group = self._group("committed")
        wanted = as_partitions(tps)
        found = await group.commits.fetch(wanted, self._seconds(timeout))
        return {tp: _plain(found[tp]) for tp in wanted}

    @lets_go
    async def rewind_group(
        self, offsets: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> None:
        """Has the whole group, while it lives, go on at these offsets.

        The members that own the partitions wait for what they have in hand, seek and commit; it
        returns when all have. Each does it once, even if owners, leader or coordinator change
        meanwhile. Only with the classic protocol, and only if all members are of this library. Of
        several orders that reach an owner together the latest decides, by the clocks of those who
        called; one that comes later is carried out when it comes.

        The task that reads may call it, too: what it has in hand then counts as put down, not as
        processed, and is handed out again to whoever owns its partition.

        `timeout` in seconds (`default_api_timeout_ms`), after which ApiTimeoutError says which
        partitions have not been rewound; those it does not name have. So it is after a
        cancellation. Raises UnsupportedVersionError for another protocol, and IllegalStateError
        for a member that would not take part.
        """
        group = self._group("rewind_group")
        wanted = as_numbers(offsets, "an offset")
        if self._in_listener():
            raise IllegalStateError(
                "a listener must not rewind its group, which waits for the listener; seek and "
                "commit are allowed in it"
            )
        await group.rewind(wanted, self._seconds(timeout))

    @lets_go
    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group; generation -1 while it is no member. Plain."""
        return self._group("group_metadata").membership.metadata

    def _check(self) -> None:
        # Listeners are called while it starts and while it closes, too. What one starts and does
        # not wait for may go on while the consumer starts.
        if self._usable or not (self._in_listener() or self._is_started_by_listener()):
            super()._check()

    def _kept(self, listener: Any) -> Any:
        """Check a listener and keep it alive; without it, the one before is let go."""
        self._listener = as_listener(listener)
        return self._listener

    def _hold(self) -> None:
        super()._hold()
        if self._listener is not None:
            self._subscription.revive(self._listener)

    def _waits_for_caller(self) -> str:
        calls = None if self._engine is None else self._engine.listener_calls
        return "a listener" if calls is not None and calls.is_calling() else ""

    def _in_listener(self) -> bool:
        if self._engine is None:
            return False
        return self._engine.listener_calls.is_inside()

    def _is_started_by_listener(self) -> bool:
        if self._engine is None or self._state is not State.STARTING:
            return False
        return self._engine.listener_calls.was_inside()

    def _group(self, call: str) -> ConsumerCoordinator:
        self._check()
        assert self._engine is not None
        if self._engine.group is None:
            raise IllegalStateError(
                f"{call}() needs a group, and this consumer has no group_id; keep offsets yourself "
                "(consumed() tells them, seek() goes back to them)"
            )
        return self._engine.group


def _plain(stored: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
    """Without what the library has written into the metadata for itself."""
    return None if stored is None else stored._replace(metadata=plain(stored.metadata))
