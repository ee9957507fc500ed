"""`GroupMember`: membership in a group of a kind that the application defines.

Its base class `MemberLifecycle`, the start and close of a group engine, is also that of the
candidates for a single writer (`aiokclient.patterns`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, Unpack

from aiokclient.cluster.lifecycle.lifecycle import Lifecycle, config_of
from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.cluster.lifecycle.public_calls import count_cancelled, watch_calls
from aiokclient.cluster.targets import Coordinator
from aiokclient.errors import ConfigError, IllegalStateError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.group.engine import GroupEngine
from aiokclient.group.generation import GenerationMailbox, GroupGeneration, GroupProtocol
from aiokclient.group.handler import MemberHandler
from aiokclient.group.loop_watch import LoopWatch
from aiokclient.group.options import GroupMemberConfig, GroupMemberOptions
from aiokclient.group.requests import REASON_CHARACTERS
from aiokclient.group.states import MemberState
from aiokclient.log.foreign_names import with_foreign_names
from aiokclient.metrics import OwnMetrics
from aiokclient.protocol.api import ApiKey
from aiokclient.scopes import new_scope_of
from aiokclient.types import GroupMetadata, State, public_in, shortened, text_problem

JOINING = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
SHOWN_S = 3.0
"""Seconds after which a rebalance is reported as a problem."""

LEAVING_S = 1.0
"""Seconds of a close that are reserved for leaving the group."""


async def keep_membership(
    engine: GroupEngine, handler: MemberHandler, anchor: Anchor[Lifecycle]
) -> None:
    """Stay in the group until the member leaves or is fenced. Fencing fails the member.

    The task has no strong reference to the member.
    """
    await engine.run()
    error = handler.last_error
    if engine.state is MemberState.FENCED and error is not None:
        _fail_member(anchor, error)


def _fail_member(anchor: Anchor[Lifecycle], error: Exception) -> None:
    """Fail the member if it still exists.

    The traceback of the error keeps the frame of `keep_membership`, but not that of this function.
    """
    member = anchor.get()
    if member is not None:
        member._fail(error)


class MemberLifecycle(Lifecycle):
    """A member that joins when it is started and leaves when it is closed."""

    closing_rank: ClassVar[int] = 0
    config_type: ClassVar[type[GroupMemberConfig]] = GroupMemberConfig
    _config: GroupMemberConfig

    def __init__(self, config: GroupMemberConfig, client: Parent | None) -> None:
        super().__init__(config, client)
        self._handler: MemberHandler | None = None
        self._engine: GroupEngine | None = None
        self._own_metrics: OwnMetrics | None = None

    def _make_handler(self) -> MemberHandler:
        raise NotImplementedError

    async def _open(self, wait: bool) -> None:
        self._handler = handler = self._make_handler()
        config = self._config
        given = {
            "client_rack": config.client_rack,
            "group_id": config.group_id,
            "group_instance_id": config.group_instance_id,
        }
        self._own_metrics = own_metrics = OwnMetrics(
            self._cluster.metrics,
            "consumer",
            "member",
            attributes=tuple((name, value) for name, value in given.items() if value),
        )
        self._engine = GroupEngine(
            self._cluster,
            self._config.settings,
            handler,
            self._supervisor,
            own_metrics=own_metrics,
            events=self._events,
        )
        own_metrics.owner = self._engine
        self._cluster.metrics.add_owner(own_metrics)
        self._unsubscribe.append(own_metrics.end_owner)
        self._supervisor.spawn(
            keep_membership, self._engine, handler, self._anchor, name="membership"
        )
        watch = LoopWatch(self._cluster.metrics, self._config.group_id, self._config.client_id)
        self._supervisor.spawn(watch.run, name="watch over the loop")

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        if self._handler is None or self._engine is None:
            return
        self._handler.close()
        if self._own_metrics is not None:
            self._own_metrics.keep_attributes()
        clock = self._cluster.clock
        deadline = clock.monotonic() + timeout
        with new_scope_of(max(timeout - LEAVING_S, timeout / 2)):
            await self._handler.end_work()
        await self._engine.leave("the member is closed", max(deadline - clock.monotonic(), 0.0))

    def _find_close_obstacle(self) -> str:
        called_back = self._engine is not None and self._engine.is_current_task()
        return "assign()" if called_back else ""

    def _on_failure(self, error: BaseException) -> None:
        if self._handler is not None:
            self._handler.close()

    def _describe_subject(self) -> dict[str, str | None]:
        return {"group": repr(self._config.group_id)}

    def _list_troubles(self) -> list[str]:
        found = super()._list_troubles()
        engine, handler, group = self._engine, self._handler, self._config.group_id
        if engine is None or handler is None:
            return found
        if engine.state is MemberState.OUT:
            found.append(f"not in the group {group}: {handler.last_error or 'it has left'}")
        since = engine.rebalancing_since
        if since is not None and self._cluster.clock.monotonic() - since >= SHOWN_S:
            lasted = self._cluster.clock.monotonic() - since
            text = f"group {group} has been rebalancing for {lasted:.0f} s"
            if self._cluster.coordinators.find_cached("group", group) is None:
                text += ", as its coordinator is not known"
            trouble = self._cluster.calls.find_trouble(Coordinator("group", group), JOINING)
            found.append(text if trouble is None else f"{text}; {trouble}")
        if (
            engine.state is not MemberState.OUT
            and engine.metadata.member_id
            and not engine.heartbeats.is_confirmed
        ):
            found.append(f"the coordinator of the group {group} does not answer")
        return found


@public_in("aiokclient")
@with_foreign_names
@watch_calls()
class GroupMember(MemberLifecycle):
    """A member of a group of processes that divide work by Kafka's group protocol.

        async with GroupMember(
            "workers", protocol_type="leases", protocols=[Leases()], bootstrap_servers="..."
        ) as member:
            async for generation in member.generations():
                async with generation as mine:
                    ...  # cancelled when the generation ends

    All members of a group have the same `protocol_type`. `protocols` are in order of preference;
    the group uses one that all its members offer. To change the protocol of a running group,
    replace its members one by one with members that offer both the old and the new protocol, and
    then with members that offer only the new one. The member joins when it is started, and
    leaves when it is closed. With `group_instance_id` it is static (KIP-345): closing it sends no
    LeaveGroup, the group keeps it for `session_timeout_ms`, and within that time a member with the
    same id replaces it without a rebalance.

    It can be created anywhere, and starts by `async with`, `await member.start()` or `await
    member`. `GroupMemberConfig` describes the options. With `client`, the member shares the
    connections of that client. Raises ConfigError for an option that is not allowed.
    """

    def __init__(
        self,
        group_id: str,
        *,
        protocol_type: str,
        protocols: Sequence[GroupProtocol],
        client: Parent | None = None,
        **options: Unpack[GroupMemberOptions],
    ) -> None:
        GroupMemberConfig.hide_options(options)
        shared = config_of(client)
        every: dict[str, Any] = {**options, "group_id": group_id, "protocol_type": protocol_type}
        super().__init__(GroupMemberConfig.build(every, client=shared), client)
        self._protocols = checked(protocols)
        self._mailbox: GenerationMailbox | None = None
        self._reading = False

    @classmethod
    def from_properties(
        cls,
        source: Mapping[str, Any] | str | os.PathLike[str],
        *,
        client: Parent | None = None,
        **options: Any,
    ) -> Self:
        """Make a member from Kafka's dotted names, such as `group.id`, with strings as values.

        `options` adds `protocols`, `protocol_type`, and other options that no string can express.
        With `client`, the member shares the connections of that client, and has only options of its
        own. Raises ConfigError for an unknown name (the error suggests the most similar name) and
        for a value that is not allowed.
        """
        protocols = options.pop("protocols", ())
        hidden = GroupMemberConfig.hide_properties(source, options)
        del source
        shared = config_of(client)
        config = GroupMemberConfig.from_properties(hidden, client=shared, **options)
        return cls(protocols=protocols, client=client, **config.given_options(shared))

    def _make_handler(self) -> GenerationMailbox:
        self._mailbox = GenerationMailbox(self._config.protocol_type, self._protocols)
        return self._mailbox

    async def _close(self, *, graceful: bool, timeout: float) -> None:
        if self._mailbox is not None:
            self._mailbox.set_closing_task(asyncio.current_task())
        await super()._close(graceful=graceful, timeout=timeout)

    # -- use

    def generations(self) -> AsyncIterator[GroupGeneration]:
        """Iterate over the generations of the group, from the present one, until `close`.

        A generation that ends before the program requests it is skipped. A new iteration begins
        with the present generation, unless its body is running. The iteration waits without a
        deadline. Only one task may wait for a generation at a time; others get IllegalStateError.
        The following errors end neither the iteration nor the membership. After them, the next step
        of the iteration continues, and the member joins the group again if necessary:

        - the exception of `metadata` or of `assign` on this member, or AssignmentFailedError if
          `assign` has raised on another member. A CancelledError of `assign` becomes
          AssignmentFailedError, and that of `metadata` IllegalStateError;
        - the error by which the group refuses this member: InconsistentGroupProtocolError,
          InvalidSessionTimeoutError, GroupAuthorizationError, GroupMaxSizeReachedError, ...

        FencedInstanceIdError is final: another member has the same `group_instance_id`.
        """
        self._require_usable()
        return _Generations(self)

    def rejoin(self, reason: str) -> None:
        """Request a new generation, because the input of `assign` has changed. Synchronous.

        The present generation ends for all members. If a generation is about to begin, another one
        follows it. `reason` is shown in the brokers' logs (KIP-800), up to its 255th character.
        Raises ArgumentTypeError if `reason` is not a str, and ArgumentValueError if UTF-8 cannot
        express it.
        """
        self._require_usable()
        if not isinstance(reason, str):
            raise ArgumentTypeError(f"reason={reason!r} is not a str. Pass a text for the logs.")
        if problem := text_problem(reason[:REASON_CHARACTERS]):
            raise ArgumentValueError(f"reason={shortened(reason)} cannot be sent. {problem}")
        self._running.rejoin(reason)

    def group_metadata(self) -> GroupMetadata:
        """Return the group id, generation id, and member id. Synchronous.

        Outside of a generation the generation id is -1 and the member id is empty.
        """
        self._require_usable()
        return self._running.metadata

    @property
    def _running(self) -> GroupEngine:
        assert self._engine is not None
        return self._engine

    async def _take_generation(self, *, again: bool) -> GroupGeneration | None:
        if self._state is State.CLOSED or self._closing is not None:
            return None
        self._require_usable()
        if self._reading:
            raise IllegalStateError(
                "Another task is already waiting for the next generation of this member."
            )
        engine, mailbox = self._running, self._mailbox
        assert mailbox is not None
        if mailbox.error is None:
            engine.resume()
        self._reading = True
        try:
            generation = await mailbox.take_generation(again=again)
        except asyncio.CancelledError as error:
            count_cancelled(error, self)
            raise
        finally:
            self._reading = False
        if self._failure is not None:
            raise self._failure
        return generation


class _Generations:
    """An iterator over generations, which continues after an error, unlike an async generator."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self._began = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GroupGeneration:
        generation = await self._member._take_generation(again=not self._began)
        self._began = True
        if generation is None:
            raise StopAsyncIteration
        return generation


def checked(protocols: Sequence[GroupProtocol]) -> list[GroupProtocol]:
    """Return the protocols as a list.

    Raises ConfigError if there are none, if two have the same name, or if one is not a protocol.
    """
    given: Any = protocols
    if not isinstance(given, Iterable):
        raise ConfigError(f"protocols: {given!r} is not a list of protocols.")
    found: list[GroupProtocol] = list(given)
    names = [getattr(protocol, "name", None) for protocol in found]
    if not found:
        raise ConfigError(
            "protocols: the list is empty. A group needs a protocol that all its members offer."
        )
    for protocol, name in zip(found, names, strict=True):
        if isinstance(protocol, type):
            raise ConfigError(f"protocols: {protocol!r} is a class. Give an instance of it.")
        if not isinstance(name, str) or not name or not hasattr(protocol, "assign"):
            raise ConfigError(f"protocols: {protocol!r} must have a name, metadata() and assign().")
        if problem := text_problem(name):
            raise ConfigError(f"protocols: {shortened(name)} cannot be a name. {problem}")
    if len(set(names)) < len(names):
        raise ConfigError(f"protocols: a name is in the list twice: {', '.join(map(str, names))}.")
    return found
