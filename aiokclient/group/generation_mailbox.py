"""The mailbox through which the engine passes generations and errors to the application."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.errors import ClosedError, IllegalStateError
from aiokclient.group.generation import GroupGeneration
from aiokclient.group.handler import Generation, MemberInfo

__all__ = ["GenerationMailbox", "GroupProtocol"]


class GroupProtocol(Protocol):
    """A protocol by which members agree on assignments. A group uses one that all members offer.

    An implementation may derive from this class, but does not have to.
    """

    name: str
    """The name by which members identify the protocol. An incompatible change of the format of
    metadata or assignments needs a new name."""

    def metadata(self) -> bytes:
        """Return the data about this member for the leader. Called at each join.

        If this raises, `generations()` raises the same exception, and the member tries again with
        increasing delays.
        """
        return b""

    def assign(
        self, members: Mapping[str, bytes]
    ) -> Mapping[str, bytes] | Awaitable[Mapping[str, bytes]]:
        """Return the assignment of each member, given their metadata, both by member id.

        It is called on the leader, once in each generation. It may be a coroutine function;
        heartbeats continue while it runs. A member without an entry gets empty bytes. If this
        raises, `generations()` raises the same exception on the leader and AssignmentFailedError
        on all other members, and the group tries again with increasing delays.
        """
        ...


class GenerationMailbox:
    """The handler of the engine, which keeps the present generation or error until `take`."""

    def __init__(self, protocol_type: str, protocols: Sequence[GroupProtocol]) -> None:
        self.protocol_type = protocol_type
        self.closed = False
        self.error: Exception | None = None
        """The last error, until `take` has raised it."""
        self.last_error: Exception | None = None
        # Only the member has strong references to the protocols, because a protocol may refer to
        # its member.
        self._protocols = {protocol.name: Anchor(protocol) for protocol in protocols}
        self._current: GroupGeneration | None = None
        self._taken: GroupGeneration | None = None
        self._data: Generation | None = None
        self._confirmed = False
        self._changed = asyncio.Event()
        self._closer: asyncio.Task[Any] | None = None

    # -- the engine's side ------------------------------------------------------------------

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        offered = [(name, _kept(each).metadata()) for name, each in self._protocols.items()]
        for name, said in offered:
            if not isinstance(said, bytes):
                raise TypeError(f"metadata() of protocol {name} returned {said!r}, not bytes.")
        return offered

    async def assign(
        self, protocol: str, leader_id: str, members: Sequence[MemberInfo]
    ) -> Mapping[str, bytes]:
        chosen = self._protocols.get(protocol)
        if chosen is None:
            raise IllegalStateError(
                f"The group has chosen protocol {protocol!r}, which this member did not offer."
            )
        assigned = _kept(chosen).assign({member.member_id: member.metadata for member in members})
        return await assigned if inspect.isawaitable(assigned) else assigned

    async def began(self, generation: Generation) -> None:
        self._data = generation
        if self._confirmed:
            self._offer(generation)

    async def before_rejoin(self, reason: str) -> None:
        await self.end()

    async def lost(self, reason: str) -> None:
        self._data = None
        self._end(lost=True)

    def confirmed_changed(self, confirmed: bool) -> None:
        """End the generation if the coordinator may have removed this member.

        When the membership is confirmed again, offer the generation again. Synchronous.
        """
        self._confirmed = confirmed
        if not confirmed:
            self._end(lost=True)
        elif self._data is not None:
            self._offer(self._data)

    def report(self, error: Exception) -> None:
        """Make the next `take` raise this error, instead of any earlier one. Synchronous."""
        self.error = self.last_error = error
        self._changed.set()

    async def end(self) -> None:
        """End the present generation and wait until its body has been left."""
        self._data = None
        self._end(lost=False)
        if self._taken is not None:
            await self._taken.left(self._closer)

    def _offer(self, generation: Generation) -> None:
        self._current = GroupGeneration(generation)
        self._changed.set()

    def _end(self, *, lost: bool) -> None:
        self._current = None
        if self._taken is not None:
            self._taken.end(lost=lost)

    # -- the application's side -------------------------------------------------------------

    def close(self) -> None:
        """Make `take` return None from now on. Synchronous."""
        self.closed = True
        self._changed.set()

    def closes_in(self, task: asyncio.Task[Any] | None) -> None:
        """Do not wait for a body that runs in this task, which closes the member. Synchronous."""
        self._closer = task

    async def take(self, *, again: bool = False) -> GroupGeneration | None:
        """Return the next generation, or None when the mailbox is closed. Raises reported errors.

        With `again`, the present generation is returned once more if its body was left before the
        generation ended. A cancellation loses no generation.
        """
        if again and self._data is not None and self._confirmed and self._is_free():
            self._offer(self._data)
        while not self.closed:
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            if self._current is not None:
                self._taken, self._current = self._current, None
                return self._taken
            self._changed.clear()
            await self._changed.wait()
        return None

    def _is_free(self) -> bool:
        """Return whether the body of the present generation was left before its end."""
        return self._current is None and self._taken is not None and self._taken.is_over_early


def _kept(protocol: Anchor[GroupProtocol]) -> GroupProtocol:
    kept = protocol.get()
    if kept is None:
        raise ClosedError("This GroupMember was dropped without close().")
    return kept
