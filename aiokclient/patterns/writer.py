"""A producer that writes while it is the only one in its group."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Unpack, cast

from aiokclient.client import Client
from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.config.client import ClientConfig
from aiokclient.config.producer import ProducerConfig, ProducerOptions
from aiokclient.errors import ClosedError, NotWriterError
from aiokclient.group.handler import Generation, MemberInfo
from aiokclient.group.member import MemberLifecycle
from aiokclient.group.options import GroupMemberConfig, GroupMemberOptions
from aiokclient.producer import Producer
from aiokclient.scopes import new_scope, new_scope_of
from aiokclient.types.named_tuple import NamedTuple

PROTOCOL_TYPE = "aiokclient-single-writer"
PROTOCOL = "writer-v1"
CONFIRM_S = 0.05
"""Seconds between two checks whether the coordinator has confirmed the writer."""
WRITER = b"writer"
"""The claim of the current writer, and the assignment of the member chosen as writer."""
FORMER = b"former"
"""The metadata of a member that was the writer before it lost its membership.

The member joins again while its body ends, and must not be chosen: it would not write.
"""


class WriterOptions(ProducerOptions[Any, Any], GroupMemberOptions, total=False):
    """The keyword options of a single writer."""


class OptionSplit(NamedTuple):
    """Options, separated by the client that they belong to."""

    client: dict[str, Any]
    member: dict[str, Any]
    producer: dict[str, Any]


def split_options(options: Mapping[str, Any], client: Parent | None) -> OptionSplit:
    """Split options between a new client, a group member, and a producer.

    The options of connections go to the new client. If `client` is given, there is no new client,
    and they go to the member and to the producer. Unknown options go to the producer, which raises
    ConfigError for them.
    """
    shared = _option_names(ClientConfig)
    member = _option_names(GroupMemberConfig) - shared
    of_client = {name: value for name, value in options.items() if name in shared}
    to_both = {} if client is None else of_client
    of_member = {name: value for name, value in options.items() if name in member}
    rest = {n: v for n, v in options.items() if n not in shared and n not in member}
    return OptionSplit(
        {} if client is not None else of_client, {**to_both, **of_member}, {**to_both, **rest}
    )


def _option_names(config: type[ClientConfig]) -> set[str]:
    # The pattern sets these two options itself.
    return {*config.declarations} - {"group_id", "protocol_type"}


class WriterBody:
    """The body of a writer, which is cancelled as by an anyio cancel scope.

    A scope must be left in the task that has entered it. A body may also be left in another task,
    as by fixtures of tests. Then only the task that has entered it can be cancelled.
    """

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._scope = new_scope()
        self._scope.__enter__()

    def cancel(self) -> None:
        """Cancel the task that has entered the body, unless it has ended. Synchronous."""
        if self._task is not None and not self._task.done():
            self._scope.cancel()

    def leave_body(self, error: BaseException | None) -> bool:
        """Leave the body with an error, or without. Return whether the error was its cancellation.

        Synchronous.
        """
        # In a forked process, whose sys.exit() leaves the body, no loop is running.
        if asyncio._get_running_loop() is None or asyncio.current_task() is not self._task:
            return False
        traceback = None if error is None else error.__traceback__
        return bool(self._scope.__exit__(type(error) if error else None, error, traceback))


class Candidacy:
    """The handler of a member that waits to become the writer, or is the writer.

    The writer stays the same over rebalances: it sends a claim each time that it joins, and the
    leader chooses no other member before it has left. It stops being the writer only when it leaves
    the group, or when the coordinator has, or may have, removed it. In the second case, it stops
    immediately, before another member can begin.
    """

    protocol_type = PROTOCOL_TYPE

    def __init__(self) -> None:
        self.last_error: Exception | None = None
        self.over = False
        """Whether this member was the writer and no longer is."""
        self._error: Exception | None = None
        self._is_elected = False
        self._is_confirmed = False
        self._body: WriterBody | None = None
        self._closed = False
        self._change_event = asyncio.Event()
        self.stopped = asyncio.Event()
        self.body_end = asyncio.Event()
        """An event that is set when the body and the producer have ended."""

    # -- the engine's side ------------------------------------------------------------------

    def offer_protocols(self) -> Sequence[tuple[str, bytes]]:
        if self._is_elected or (self._body is not None and not self.over):
            return [(PROTOCOL, WRITER)]
        return [(PROTOCOL, FORMER if self.over else b"")]

    async def assign(
        self, protocol: str, leader_id: str, members: Sequence[MemberInfo]
    ) -> Mapping[str, bytes]:
        claims = [member.member_id for member in members if member.metadata == WRITER]
        waiting = [member.member_id for member in members if member.metadata != FORMER]
        return {min(claims or waiting): WRITER} if waiting else {}

    async def on_generation(self, generation: Generation) -> None:
        self._is_elected = generation.assignment == WRITER
        if not self._is_elected:
            self._stop()
        self._change_event.set()

    async def before_return(self) -> None:
        """Do nothing: the former member with the same instance id was this one."""

    async def before_rejoin(self, reason: str) -> None:
        """Do nothing: no other member becomes the writer during the rebalance."""

    async def on_lost_membership(self, reason: str) -> None:
        self._is_elected = False
        self._stop()

    def on_confirmed_changed(self, confirmed: bool) -> None:
        self._is_confirmed = confirmed
        if not confirmed:
            self._stop()
        self._change_event.set()

    def report_error(self, error: Exception) -> None:
        self._error = self.last_error = error
        self._change_event.set()

    def close(self) -> None:
        self._closed = True
        self._change_event.set()

    async def end_work(self) -> None:
        self._stop()
        if self._body is not None:
            await self.body_end.wait()

    def _stop(self) -> None:
        if self._body is not None and not self.over:
            self.over = True
            self._body.cancel()
            self.stopped.set()

    # -- the program's side -----------------------------------------------------------------

    async def wait_until_chosen(self) -> None:
        """Wait until this member is the writer. Raises the error by which the group refuses it."""
        while not (self._is_elected and self._is_confirmed):
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._closed:
                raise ClosedError("The member was closed before it became the writer.")
            self._change_event.clear()
            await self._change_event.wait()

    def enter_body(self) -> WriterBody:
        """Enter the body of the writer in the current task, and return it."""
        self._body = WriterBody()
        return self._body


class WriterProducer(Producer[Any, Any]):
    """The producer of a single writer, which restarts only while this process is the writer.

    A restart fences all other producers with the same transactional id. Without the check,
    a former writer that does not know of its successor yet would fence the successor.
    """

    candidate: Candidate
    """The member of the group that lets this producer write."""

    async def restart(self) -> None:
        """Begin again with a new epoch, after the coordinator has confirmed the writer.

        See `Producer.restart`. Raises NotWriterError if this process is no longer the writer.
        """
        await self.candidate.confirm_writer()
        await super().restart()


class Candidate(MemberLifecycle):
    """A member that closes the producer as soon as it must not write anymore."""

    def __init__(
        self, config: GroupMemberConfig, client: Parent, producer: Producer[Any, Any]
    ) -> None:
        super().__init__(config, client)
        self.candidacy = Candidacy()
        self._producer = weakref.ref(producer)

    def _make_handler(self) -> Candidacy:
        return self.candidacy

    async def _open(self, wait: bool) -> None:
        await super()._open(wait)
        self._supervisor.spawn(
            stop_producer, self.candidacy, self._producer, name="the end of the writer"
        )

    async def wait_until_chosen(self) -> None:
        """Wait until this member is the writer.

        Raises the error by which the group refuses the member, or the error that failed the member.
        """
        try:
            await self.candidacy.wait_until_chosen()
        except ClosedError:
            if self._failure is not None:
                raise self._failure from None
            raise

    async def confirm_writer(self) -> None:
        """Wait until the coordinator has answered a heartbeat that was sent after this call.

        Raises NotWriterError if this member is no longer the writer.
        """
        since = self._cluster.clock.monotonic()
        while not self.candidacy.over and self._find_last_answer_time() < since:
            with new_scope_of(CONFIRM_S):
                await self.candidacy.stopped.wait()
        if self.candidacy.over:
            raise self.not_writer_error()

    def _find_last_answer_time(self) -> float:
        return -math.inf if self._engine is None else self._engine.heartbeats.last_answer_at

    def not_writer_error(self) -> NotWriterError:
        """Return the error to raise when this member is no longer the writer."""
        return NotWriterError(resource=f"group {self._config.group_id}")


async def stop_producer(candidacy: Candidacy, reference: weakref.ref[Producer[Any, Any]]) -> None:
    """Close the producer as soon as it must not write anymore, before the next writer begins."""
    await candidacy.stopped.wait()
    producer = reference()
    if producer is not None:
        await producer.close(0)


def single_writer(
    group: str, *, client: Parent | None = None, **options: Unpack[WriterOptions]
) -> AbstractAsyncContextManager[Producer[Any, Any]]:
    """Return a producer that is entered when this process is the only writer in the group.

        async with single_writer("ledger", bootstrap_servers=...) as producer:
            ...  # cancelled when this process is no longer the writer

    Entering waits, without a deadline, until the previous writer has left. The writer stays the
    same while other members join and leave. If the group may have removed the writer (there was no
    response of the coordinator for `session_timeout_ms`, or the coordinator has removed it), its
    body is cancelled as by an anyio cancel scope, and its producer is closed immediately. Records
    without an outcome fail with ClosedError, and leaving the body raises NotWriterError. Once the
    coordinator has removed a writer, the next writer begins, even if the body of the former one has
    not ended. Enter again to wait until this process is the writer again. A normal exit first
    writes all records, and then lets another writer begin.

    Without a `transactional_id` the guarantee depends on clocks: requests that were in flight when
    the group removed the writer may still be written. With a `transactional_id`, all records are
    sent in transactions, and the brokers refuse those of earlier writers: when the next writer
    enters, it gets a new epoch, and an open transaction of an earlier writer is aborted. All
    candidates must use the same `transactional_id`, and no other producer may use it. `restart()`
    of this producer raises NotWriterError instead of taking over from the next writer.

    The options are those of `Producer` and of `GroupMember`. Raises the errors of iterating over
    the generations of a member.
    """
    GroupMemberConfig.hide_options(options, ProducerConfig)
    parts = split_options(options, client)
    own = Client(**parts.client) if client is None else None
    shared: Parent = client or cast(Parent, own)
    producer = WriterProducer(client=shared, **parts.producer)
    naming = {"group_id": group, "protocol_type": PROTOCOL_TYPE}
    config = GroupMemberConfig.build({**parts.member, **naming}, client=shared.config)
    candidate = Candidate(config, shared, producer)
    producer.candidate = candidate
    return _writing(candidate, producer, own)


@asynccontextmanager
async def _writing(
    candidate: Candidate, producer: Producer[Any, Any], own: Client | None
) -> AsyncGenerator[Producer[Any, Any], None]:
    async with AsyncExitStack() as stack:
        if own is not None:
            await stack.enter_async_context(own)
        await stack.enter_async_context(candidate)
        candidacy = candidate.candidacy
        await candidate.wait_until_chosen()
        body = candidacy.enter_body()
        try:
            async with producer:
                yield producer
        except BaseException as error:
            if not body.leave_body(error):
                if isinstance(error, ClosedError) and candidacy.over:
                    raise candidate.not_writer_error() from error
                raise
        else:
            body.leave_body(None)
        finally:
            candidacy.body_end.set()
        if candidacy.over:
            raise candidate.not_writer_error()
