"""Start and close of a group engine, for `GroupMember` and for `aiokclient.patterns`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Protocol

import anyio

from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.cluster.targets import Coordinator
from aiokclient.group.engine import GroupEngine
from aiokclient.group.handler import GroupHandler
from aiokclient.group.loop_watch import LoopWatch
from aiokclient.group.options import GroupMemberConfig
from aiokclient.group.states import MemberState
from aiokclient.measures import Measures
from aiokclient.metrics import Labels
from aiokclient.protocol.api import ApiKey

__all__ = ["MemberHandler", "MemberLifecycle"]

JOINING = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
SHOWN_S = 3.0
"""Seconds after which a rebalance is reported as a problem."""

LEAVING_S = 1.0
"""Seconds of a close that are reserved for leaving the group."""


class MemberHandler(GroupHandler, Protocol):
    """A handler that is closed with its member, and to which errors are reported."""

    last_error: Exception | None

    def confirmed_changed(self, confirmed: bool) -> None:
        """Record whether the coordinator certainly keeps this member now. Synchronous."""
        ...

    def report(self, error: Exception) -> None:
        """Store an error that the next call of the application raises. Synchronous."""
        ...

    def close(self) -> None:
        """Begin no more generations, and wake the waiting tasks. Synchronous."""
        ...

    async def end(self) -> None:
        """End the application's present work, and wait until the application has left its body."""
        ...


class MembershipTask:
    """The task of a member. It has no strong reference to the `MemberLifecycle`."""

    def __init__(
        self, engine: GroupEngine, handler: MemberHandler, failed: Callable[[Exception], None]
    ) -> None:
        self._engine = engine
        self._handler = handler
        self._failed = failed
        self._task: asyncio.Task[Any] | None = None

    def is_current(self) -> bool:
        """Return whether the current task is the task of this member."""
        return self._task is not None and asyncio.current_task() is self._task

    async def run(self) -> None:
        """Stay in the group until the member leaves or is fenced. Fencing fails the member."""
        self._task = asyncio.current_task()
        await self._engine.run()
        error = self._handler.last_error
        if self._engine.state is MemberState.FENCED and error is not None:
            self._failed(error)


class MemberLifecycle(Lifecycle):
    """A member that joins when it is started and leaves when it is closed."""

    closing_rank: ClassVar[int] = 0
    config_type: ClassVar[type[GroupMemberConfig]] = GroupMemberConfig
    _config: GroupMemberConfig

    def __init__(self, config: GroupMemberConfig, client: Parent | None) -> None:
        super().__init__(config, client)
        self._handler: MemberHandler | None = None
        self._engine: GroupEngine | None = None
        self._membership: MembershipTask | None = None
        self._measures: Measures | None = None

    def _make_handler(self) -> MemberHandler:
        raise NotImplementedError

    async def _open(self, wait: bool) -> None:
        self._handler = handler = self._make_handler()
        self._measures = measures = Measures("consumer", self._anchor.call("_attributes"), "member")
        self._unsubscribe.append(self._cluster.measures.add(measures))
        self._engine = GroupEngine(
            self._cluster,
            self._config.settings,
            handler,
            spawn=self._supervisor.spawn,
            callbacks=self._supervisor.callbacks,
            report=handler.report,
            confirmed_changed=handler.confirmed_changed,
            began=partial(self._events.emit, "Rebalanced", group_id=self._config.group_id),
            measures=measures,
        )
        self._membership = MembershipTask(self._engine, handler, self._anchor.call("_fail"))
        self._supervisor.spawn(self._membership.run, name="membership")
        watch = LoopWatch(self._cluster.metrics, self._config.group_id, self._config.client_id)
        self._supervisor.spawn(watch.run, name="watch over the loop")

    def _attributes(self) -> Labels:
        """Return the attributes by which an operator recognizes this member."""
        config, engine = self._config, self._engine
        found = {
            "client_rack": config.client_rack,
            "group_id": config.group_id,
            "group_instance_id": config.group_instance_id,
            "group_member_id": None if engine is None else engine.metadata.member_id,
        }
        return tuple((name, value) for name, value in found.items() if value)

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        if self._handler is None or self._engine is None:
            return
        self._handler.close()
        if self._measures is not None:
            self._measures.note_resource()
        clock = self._cluster.clock
        deadline = clock.monotonic() + timeout
        with anyio.move_on_after(max(timeout - LEAVING_S, timeout / 2)):
            await self._handler.end()
        await self._engine.leave("the member is closed", max(deadline - clock.monotonic(), 0.0))

    def _waits_for_caller(self) -> str:
        called_back = self._membership is not None and self._membership.is_current()
        return "assign()" if called_back else ""

    def _failed(self, error: BaseException) -> None:
        if self._handler is not None:
            self._handler.close()

    def _subject(self) -> dict[str, str | None]:
        return {"group": repr(self._config.group_id)}

    def _troubles(self) -> list[str]:
        found = super()._troubles()
        engine, handler, group = self._engine, self._handler, self._config.group_id
        if engine is None or handler is None:
            return found
        if engine.state is MemberState.OUT:
            found.append(f"not in the group {group}: {handler.last_error or 'it has left'}")
        since = engine.rebalancing_since
        if since is not None and self._cluster.clock.monotonic() - since >= SHOWN_S:
            lasted = self._cluster.clock.monotonic() - since
            text = f"group {group} has been rebalancing for {lasted:.0f} s"
            if self._cluster.coordinators.cached("group", group) is None:
                text += ", as its coordinator is not known"
            trouble = self._cluster.calls.trouble(Coordinator("group", group), JOINING)
            found.append(text if trouble is None else f"{text}; {trouble}")
        if (
            engine.state is not MemberState.OUT
            and engine.metadata.member_id
            and not engine.confirmed
        ):
            found.append(f"the coordinator of the group {group} does not answer")
        return found
