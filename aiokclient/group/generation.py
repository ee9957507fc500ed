"""A generation, as the application sees it, and how the application receives it.

A generation is an `async with` body, which is cancelled when the generation ends. The mailbox is
the engine's handler for `GroupMember`: it passes generations and errors to the application.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.errors import ClosedError, IllegalStateError
from aiokclient.group.handler import Generation, MemberInfo
from aiokclient.scopes import new_scope
from aiokclient.types import public_in

if TYPE_CHECKING:
    from aiokclient.scopes import CancelScope


class GroupGeneration:
    """One generation of a group, for one member. It is entered once, with `async with`.

    When the generation ends, the body is cancelled as by an anyio cancel scope: every await in it
    raises until the body has been left. The member joins the next generation only after that, so
    that no other member is assigned the same work before the body has ended. The body has the
    rebalance timeout for that. The cancellation is not raised outside of the `async with`.

    `lost` means that the generation ended without waiting for the body, because the coordinator did
    not respond for the session timeout or has removed the member. Another member may then already
    have this member's assignment.
    """

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._scope: CancelScope | None = None
        self._left = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._ended = False
        self._lost = False

    def __repr__(self) -> str:
        state = "lost" if self._lost else "ended" if self._ended else "current"
        group = self._generation.metadata.group_id
        return f"<GroupGeneration {self.generation_id} of {group}, {state}>"

    @property
    def generation_id(self) -> int:
        """The id of the generation. It increases, unless the coordinator has deleted the group."""
        return self._generation.metadata.generation_id

    @property
    def member_id(self) -> str:
        """The id of this member, given by the coordinator."""
        return self._generation.metadata.member_id

    @property
    def leader_id(self) -> str:
        """The id of the member that computed the assignment."""
        return self._generation.leader_id

    @property
    def is_leader(self) -> bool:
        """Whether this member computed the assignment."""
        return self._generation.is_leader

    @property
    def protocol(self) -> str:
        """The name of the protocol that the group has chosen."""
        return self._generation.protocol

    @property
    def assignment(self) -> bytes:
        """The bytes that the leader's `assign` returned for this member, or empty bytes."""
        return self._generation.assignment

    @property
    def ended(self) -> bool:
        """Whether the generation has ended or is about to end, so that the body must be left."""
        return self._ended

    @property
    def is_over_early(self) -> bool:
        """Whether the body was left before the end of the generation."""
        return self._left.is_set() and not self._ended

    @property
    def lost(self) -> bool:
        """Whether another member may already have this member's assignment."""
        return self._lost

    async def __aenter__(self) -> Self:
        if self._scope is not None:
            raise IllegalStateError(
                "A generation can be entered only once. Take the next one from generations()."
            )
        self._scope = new_scope()
        self._scope.__enter__()
        self._task = asyncio.current_task()
        if self._ended:
            self._scope.cancel()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._scope is not None
        if asyncio._get_running_loop() is None:
            return None  # A forked process leaves the block by sys.exit().
        if asyncio.current_task() is not self._task:
            # Only the task that has entered the scope can leave it. A fixture's has ended.
            self._left.set()
            return None
        try:
            return self._scope.__exit__(kind, error, traceback)
        finally:
            self._left.set()

    def end(self, *, lost: bool) -> None:
        """Cancel the body. Synchronous."""
        self._ended = True
        if self._left.is_set():
            return
        self._lost = self._lost or lost
        if self._scope is not None and self._task is not None and not self._task.done():
            self._scope.cancel()

    async def wait_until_left(self, closer: asyncio.Task[Any] | None = None) -> None:
        """Wait until the body has been left.

        Return immediately if it was never entered, or if it runs in the task `closer`.
        """
        if self._scope is not None and (closer is None or closer is not self._task):
            await self._left.wait()


@public_in("aiokclient")
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
    """The handler of the engine. It keeps a generation or an error until `take_generation`."""

    def __init__(self, protocol_type: str, protocols: Sequence[GroupProtocol]) -> None:
        self.protocol_type = protocol_type
        self.closed = False
        self.error: Exception | None = None
        """The last error, until `take_generation` has raised it."""
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

    def offer_protocols(self) -> Sequence[tuple[str, bytes]]:
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

    async def on_generation(self, generation: Generation) -> None:
        self._data = generation
        if self._confirmed:
            self._offer_generation(generation)

    async def before_return(self) -> None:
        """Do nothing: the protocols of the application need not know of former members."""

    async def before_rejoin(self, reason: str) -> None:
        await self.end_work()

    async def on_lost_membership(self, reason: str) -> None:
        self._data = None
        self._end_generation(lost=True)

    def on_confirmed_changed(self, confirmed: bool) -> None:
        """End the generation if the coordinator may have removed this member.

        When the membership is confirmed again, offer the generation again. Synchronous.
        """
        self._confirmed = confirmed
        if not confirmed:
            self._end_generation(lost=True)
        elif self._data is not None:
            self._offer_generation(self._data)

    def report_error(self, error: Exception) -> None:
        """Make the next `take_generation` raise this error, not an earlier one. Synchronous."""
        self.error = self.last_error = error
        self._changed.set()

    async def end_work(self) -> None:
        """End the present generation and wait until its body has been left."""
        self._data = None
        self._end_generation(lost=False)
        if self._taken is not None:
            await self._taken.wait_until_left(self._closer)

    def _offer_generation(self, generation: Generation) -> None:
        self._current = GroupGeneration(generation)
        self._changed.set()

    def _end_generation(self, *, lost: bool) -> None:
        self._current = None
        if self._taken is not None:
            self._taken.end(lost=lost)

    # -- the application's side -------------------------------------------------------------

    def close(self) -> None:
        """Make `take_generation` return None from now on. Synchronous."""
        self.closed = True
        self._changed.set()

    def set_closing_task(self, task: asyncio.Task[Any] | None) -> None:
        """Do not wait for a body that runs in this task, which closes the member. Synchronous."""
        self._closer = task

    async def take_generation(self, *, again: bool = False) -> GroupGeneration | None:
        """Return the next generation, or None when the mailbox is closed. Raises reported errors.

        With `again`, the present generation is returned once more if its body was left before the
        generation ended. A cancellation loses no generation.
        """
        if again and self._data is not None and self._confirmed and self._can_offer_again():
            self._offer_generation(self._data)
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

    def _can_offer_again(self) -> bool:
        """Return whether the body of the present generation was left before its end."""
        return self._current is None and self._taken is not None and self._taken.is_over_early


def _kept(protocol: Anchor[GroupProtocol]) -> GroupProtocol:
    kept = protocol.get()
    if kept is None:
        raise ClosedError("This GroupMember was dropped without close().")
    return kept
