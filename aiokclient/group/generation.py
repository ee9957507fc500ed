"""A generation, as the application sees it: an `async with` body.

The body is cancelled when the generation ends.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

import anyio

from aiokclient.errors import IllegalStateError
from aiokclient.group.handler import Generation

__all__ = ["GroupGeneration"]


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
        self._scope: anyio.CancelScope | None = None
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
        self._scope = anyio.CancelScope()
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

    async def left(self, closer: asyncio.Task[Any] | None = None) -> None:
        """Wait until the body has been left.

        Return immediately if it was never entered, or if it runs in the task `closer`.
        """
        if self._scope is not None and (closer is None or closer is not self._task):
            await self._left.wait()
