"""Where the engine puts generations and errors, and the program's iteration takes them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from aiokclient.cluster.ownership import Anchor
from aiokclient.errors import ClosedError, IllegalStateError
from aiokclient.group.generation import GroupGeneration
from aiokclient.group.handler import Generation, MemberInfo

__all__ = ["GenerationMailbox", "GroupProtocol"]


class GroupProtocol(Protocol):
    """A way for the members of a group to agree; of several, the group uses one that all offer.

    To be derived from, or just to be looked like.
    """

    name: str
    """By which the members recognise it; change it when the meaning of the bytes changes."""

    def metadata(self) -> bytes:
        """What the leader has to know of this member. Asked each time that it joins."""
        return b""

    def assign(
        self, members: Mapping[str, bytes]
    ) -> Mapping[str, bytes] | Awaitable[Mapping[str, bytes]]:
        """From the members' metadata, what each gets, both by member id. On the leader.

        Runs once in a generation, and may be a coroutine function: heartbeats go on meanwhile. Who
        is left out gets no bytes. What it raises, the leader's `generations()` raises as it is,
        and that of all others as AssignmentFailedError; the group tries again, later each time.
        """
        ...


class GenerationMailbox:
    """Holds the present generation, or the last error, until somebody takes it.

    It is the handler of the engine.
    """

    def __init__(self, protocol_type: str, protocols: Sequence[GroupProtocol]) -> None:
        self.protocol_type = protocol_type
        self.closed = False
        self.error: Exception | None = None
        """The last error, until `take` has raised it."""
        self.last_error: Exception | None = None
        self.on_lost: Callable[[], None] = lambda: None
        """Called when this member has, or may have, lost its part. Plain."""
        # The member keeps them: they may hold it.
        self._protocols = {protocol.name: Anchor(protocol) for protocol in protocols}
        self._current: GroupGeneration | None = None
        self._taken: GroupGeneration | None = None
        self._data: Generation | None = None
        self._confirmed = False
        self._changed = asyncio.Event()
        self.closer: asyncio.Task[Any] | None = None
        """Who closes the member: a body that does so itself is not waited for."""

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
        self.on_lost()

    def confirmed_changed(self, confirmed: bool) -> None:
        """The coordinator may count this member out by now, or it was heard of again. Plain."""
        self._confirmed = confirmed
        if not confirmed:
            self._end(lost=True)
            self.on_lost()
        elif self._data is not None:
            self._offer(self._data)

    def report(self, error: Exception) -> None:
        """Raised to whoever asks next; the latest counts. Plain."""
        self.error = self.last_error = error
        self._changed.set()

    async def end(self) -> None:
        """Ends the present generation and waits until its body has left."""
        self._data = None
        self._end(lost=False)
        if self._taken is not None:
            await self._taken.left(self.closer)

    def _offer(self, generation: Generation) -> None:
        self._current = GroupGeneration(generation)
        self._changed.set()

    def _end(self, *, lost: bool) -> None:
        self._current = None
        if self._taken is not None:
            self._taken.end(lost=lost)

    # -- the program's side -----------------------------------------------------------------

    def close(self) -> None:
        """There is nothing more to come. Plain."""
        self.closed = True
        self._changed.set()

    async def take(self, *, again: bool = False) -> GroupGeneration | None:
        """The next generation, None when closed. Raises what was reported. May be cancelled.

        The present one, if its body has left before its end, is given `again`.
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
        """Return whether no task works in the present generation, or is about to."""
        return self._current is None and self._taken is not None and self._taken.is_over_early


def _kept(protocol: Anchor[GroupProtocol]) -> GroupProtocol:
    kept = protocol.get()
    if kept is None:
        raise ClosedError("This GroupMember was dropped without close().")
    return kept
