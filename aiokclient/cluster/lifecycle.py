"""The life of everything that is started and closed: clients, producers, consumers, admins.

    NEW ──start──▶ STARTING ──▶ RUNNING ⇄ DEGRADED ──close──▶ CLOSED
     ▲                │              │                           ▲
     └──start failed──┘              └──a task died──▶ FAILED ───┘

Starting and closing each run in a task of their own which all callers share, so that it does not
matter who awaits it, or stops awaiting it. A start that nobody awaits any more is undone. A close
always ends, by its bound: cancelling who awaits it shortens the bound to `close_timeout_ms` and
raises after the end.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import uuid
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast

import anyio

from aiokclient.background import ended, new_task
from aiokclient.cluster.callers import wrong_caller
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.health import Health, described
from aiokclient.cluster.ownership import Anchor, dropped, for_background, retrieve
from aiokclient.cluster.supervisor import STOP_S, Supervisor
from aiokclient.cluster.targets import AnyBroker
from aiokclient.cluster.tracebacks import let_go, lets_go
from aiokclient.config import ClientConfig
from aiokclient.errors import (
    ClosedError,
    ConfigError,
    IllegalStateError,
)
from aiokclient.hints.names import missing_attribute
from aiokclient.log import ClientLog
from aiokclient.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from aiokclient.types import State, seconds

if TYPE_CHECKING:
    from aiokclient.metrics import MetricsSnapshot, MetricValue

__all__ = ["ClientLike", "Health", "Lifecycle", "config_of"]

UNWINDING_S = 3 * STOP_S
"""How long tasks and connections may take to end when the time for closing is over."""


class ClientLike(Protocol):
    """What a producer, consumer or admin needs of the client that it is given."""

    @property
    def cluster(self) -> ClusterClient:
        """Connections and metadata; raises unless the client is open."""
        ...

    @property
    def config(self) -> ClientConfig: ...

    def adopt(self, child: Anchor[Lifecycle]) -> None:
        """From here on the client closes the child when it is closed, unless it is gone."""
        ...

    def disown(self, child: Anchor[Lifecycle]) -> None: ...


def config_of(client: ClientLike | None) -> ClientConfig | None:
    """The options of the client that is given to share; ConfigError for what is none."""
    if client is None:
        return None
    config = getattr(client, "config", None)
    if not isinstance(config, ClientConfig):
        raise ConfigError(f"client: {client!r} is no aiokclient.Client; make one and share it")
    return config


class Lifecycle:
    """The base of all that has a start and an end.

    A subclass gives `_open`, `_shutdown` and, where needed, `_abandon`, `_unretrieved` and
    `_grace_s`. It has `_config`, `_cluster` (its own, or that of the client it was given),
    `_supervisor` for its background tasks, and calls `_check` at every entry.
    """

    closing_rank: ClassVar[int] = 0
    """A client closes those with the lowest rank first."""
    _state = State.NEW
    _closing: asyncio.Task[None] | None = None
    config_type: ClassVar[type[ClientConfig]] = ClientConfig

    @classmethod
    def from_properties(
        cls, source: Mapping[str, Any] | str | os.PathLike[str], **options: Any
    ) -> Self:
        """Make one of Kafka's dotted names with texts as values, or of a properties file's path.

        `options` adds what no text can say. Raises ConfigError, which lists all that is wrong.
        """
        config = cls.config_type.from_properties(source, **options)
        made: Self = cast(Any, cls)(**config.given())
        return made

    if not TYPE_CHECKING:
        __getattr__ = missing_attribute

    def __init__(self, config: ClientConfig, client: ClientLike | None = None) -> None:
        self._anchor = Anchor(self)
        """By which background work refers to this object, without keeping it alive."""
        self._config = config
        self._client = client
        self._own_cluster: ClusterClient | None = None
        self._supervisor = Supervisor(
            type(self).__name__,
            ClientLog.of("aiokclient", config),
        )
        self._state = State.NEW
        self._usable = False
        self._failure: BaseException | None = None
        self._failure_seen = False  # whether a call has raised it
        self._unsubscribe: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._starting: asyncio.Task[None] | None = None
        self._undoing = False
        """Whether `_starting` is to end, or undoes what it has begun: no more to be cancelled."""
        self._start_waiters = 0
        self._relied_on = False
        """Whether a start has been answered: somebody uses this, and sees to its end."""
        self._close_scope: anyio.CancelScope | None = None
        self._close_bound = math.inf
        self._client_instance_id: uuid.UUID | None = None

    # -- for subclasses ---------------------------------------------------------------------

    async def _open(self) -> None:
        """Makes it ready, on a cluster that is open. May be cancelled; `_shutdown` follows then."""

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        """Ends the work: all of it when `graceful`, else what cannot be left undone.

        Cancelled when `timeout` (seconds) is over; the tasks and connections end after it.
        """

    def _abandon(self, error: ClosedError) -> None:
        """What `_shutdown` has left without an outcome fails with `error`. Plain."""

    def _failed(self, error: BaseException) -> None:
        """A background task has died of `error`: what waits here fails with it. Plain, once."""

    def _unretrieved(self) -> BaseException | None:
        """What `async with`, left normally, raises at its end: failures that nobody has seen."""
        return None

    def _troubles(self) -> list[str]:
        """Why it works but not well, for people to read. Plain."""
        return self._cluster.troubles()

    def _waits_for_caller(self) -> str:
        """Names what runs in the current task that a close would wait for; "" for nothing. Plain.

        It would wait for itself.
        """
        return ""

    def _grace_s(self) -> float:
        """How long a close without a timeout may take, in seconds."""
        return self._config.close_timeout_ms / 1000

    @property
    def _cluster(self) -> ClusterClient:
        if self._client is not None:
            return self._client.cluster
        assert self._own_cluster is not None
        return self._own_cluster

    # -- what a user sees -------------------------------------------------------------------

    @property
    def state(self) -> State:
        """NEW, STARTING, RUNNING, DEGRADED, FAILED or CLOSED."""
        if self._usable and self._troubles():
            return State.DEGRADED
        return self._state

    def health(self) -> Health:
        """The state and the reasons for it. Plain."""
        reasons = [] if self._failure is None else [f"failed: {self._failure!r}"]
        if not self._usable:
            return Health(self._state, tuple(reasons), {})
        reasons += self._troubles()
        brokers = self._cluster.brokers
        return Health(self.state, tuple(reasons), brokers.states(), brokers.addresses())

    def metrics(self) -> MetricsSnapshot:
        """Return all that is counted and measured, by `name` or `name{label=value,...}`.

        Synchronous. A dict for JSON: each value is a number, or a dict for a histogram. What
        shares a client is measured together.
        """
        self._check()
        return self._cluster.metrics.snapshot()

    def metric_values(self, prefix: str = "") -> list[MetricValue]:
        """Return the same as tuples, of names that begin with `prefix`. Synchronous."""
        self._check()
        return self._cluster.metrics.values(prefix)

    def __repr__(self) -> str:
        owner: object = self if self._client is None else self._client
        cluster = getattr(owner, "_own_cluster", None)
        return described(type(self).__name__, self._config, self.state, cluster, self._subject())

    def _subject(self) -> dict[str, str | None]:
        """Return what else the repr shows: topics, or a group. Synchronous, in every state."""
        return {}

    @lets_go
    async def client_instance_id(self, timeout: float | None = None) -> uuid.UUID:
        """The id under which the brokers know this client in telemetry (KIP-714).

        `timeout` is in seconds (`default_api_timeout_ms`). Raises UnsupportedVersionError where
        the brokers do not collect telemetry, and what a request raises.
        """
        self._check()
        if self._client_instance_id is None:
            request = GetTelemetrySubscriptionsRequest(client_instance_id=uuid.UUID(int=0))
            response = await self._cluster.request(request, AnyBroker(), timeout=timeout)
            self._client_instance_id = response.client_instance_id
        return self._client_instance_id

    @lets_go
    async def __aenter__(self) -> Self:
        await self.start()
        return self

    @lets_go
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            await self._close(graceful=False, timeout=self._config.close_timeout_ms / 1000)
            return
        await self._close(graceful=True, timeout=self._grace_s())
        unseen = (not self._failure_seen and self._failure) or self._unretrieved()
        if unseen is not None:
            raise unseen

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    # -- checks -----------------------------------------------------------------------------

    def _check(self) -> None:
        """Raises unless it may be used here and now: what killed it, or a UsageError."""
        try:
            if not self._usable:
                self._refuse()
            if asyncio._get_running_loop() is not self._loop:
                self._refuse_caller()
        except BaseException as error:
            let_go(error, self)
            del self
            raise

    def _refuse(self) -> None:
        name = type(self).__name__
        if self._failure is not None:
            self._failure_seen = True
            raise self._failure
        if self._state is State.CLOSED:
            raise ClosedError(f"this {name} is closed; make a new one")
        if self._closing is not None:
            raise ClosedError(f"this {name} is being closed")
        raise IllegalStateError(
            f"this {name} is not started; use `async with`, or await its start() first"
        )

    def _refuse_caller(self) -> None:
        raise wrong_caller(type(self).__name__, self._loop, self._thread)

    def _seconds(self, timeout: float | None) -> float:
        """The timeout of a call: as given, else `default_api_timeout_ms`."""
        return self._config.default_api_timeout_ms / 1000 if timeout is None else seconds(timeout)

    def _fail(self, error: BaseException) -> None:
        """From here on every call raises `error`. Plain; the first one counts."""
        if self._failure is not None or self._state is State.CLOSED:
            return
        self._failure, self._failure_seen = error, False
        self._supervisor.adopt(error)
        if self._state is State.RUNNING:
            self._state, self._usable = State.FAILED, False
        self._failed(error)

    # -- start ------------------------------------------------------------------------------

    @lets_go
    async def start(self) -> None:
        """Connects and gets ready; at most `default_api_timeout_ms`. Started already: nothing.

        Raises BootstrapError when no broker answers in time, ConnectionSetupError and other errors
        that waiting would not mend at once, ClosedError when it is closed. A start that fails or
        is cancelled leaves nothing open and may be tried again.
        """
        if self._state in (State.RUNNING, State.FAILED):
            self._relied_on = True
            return self._check()
        if self._state is State.CLOSED or self._closing is not None:
            self._refuse()
        loop = asyncio.get_running_loop()
        if self._starting is None:
            self._loop, self._thread = loop, threading.get_ident()
            self._state, self._relied_on, self._undoing = State.STARTING, False, False
            self._starting = new_task(loop, self._start())
        elif loop is not self._loop:
            self._refuse_caller()
        await self._await_initial_offset(self._starting)

    async def _await_initial_offset(self, task: asyncio.Task[None]) -> None:
        self._start_waiters += 1
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            if self._start_waiters == 1:
                self._end_start(task)
                await ended(task)
                await self._take_back()
            raise
        finally:
            self._start_waiters -= 1
        if task.cancelled():
            raise ClosedError(f"this {type(self).__name__} was closed while it started")
        task.result()
        self._relied_on = True

    def _end_start(self, task: asyncio.Task[None]) -> None:
        """Cancels it, once: a second time would cut short how it is undone. Plain."""
        if task is self._starting and not self._undoing:
            self._undoing = True
            task.cancel()

    async def _take_back(self) -> None:
        """Undoes a start that had just ended when the last who waited for it was cancelled."""
        started = self._state in (State.RUNNING, State.FAILED)
        if started and self._closing is None and not self._relied_on:
            self._state, self._usable, self._undoing = State.STARTING, False, True
            self._starting = new_task(asyncio.get_running_loop(), self._fall_back())
            await ended(self._starting)

    async def _fall_back(self) -> None:
        try:
            await self._undo(graceful=False, timeout=self._config.close_timeout_ms / 1000)
        finally:
            self._state, self._failure, self._starting = State.NEW, None, None
        raise asyncio.CancelledError  # Whoever waits for a start meanwhile has none.

    async def _start(self) -> None:
        try:
            await self._supervisor.start()
            deadline = asyncio.get_running_loop().time() + self._seconds(None)
            if self._client is None:
                self._own_cluster = ClusterClient(for_background(self._config))
                await self._own_cluster.start()
            else:
                self._client.adopt(self._anchor)
                await self._cluster.reach(deadline)
            for supervisor in (self._supervisor, self._cluster.supervisor):
                self._unsubscribe.append(supervisor.on_failure(self._anchor.call("_fail")))
            await self._cluster.open_by(deadline, self._open)
            if self._failure is not None:
                raise self._failure
            if self._closing is not None:
                raise asyncio.CancelledError  # It was closed before this task began.
            self._state, self._usable = State.RUNNING, True
        except BaseException:
            self._undoing = True
            await self._undo(graceful=False, timeout=self._config.close_timeout_ms / 1000)
            self._state = State.NEW
            self._failure = None
            raise
        finally:
            self._starting = None

    # -- close ------------------------------------------------------------------------------

    @lets_go
    async def close(self, timeout: float | None = None) -> None:
        """Ends everything: idempotent, and shared by all who call it.

        With `timeout` (seconds) all of it is bounded by that, and what has no outcome then fails
        with ClosedError. Cancelling it does not stop it: it ends within `close_timeout_ms`, then
        the cancellation goes on.
        """
        bound = self._grace_s() if timeout is None else seconds(timeout)
        await self._close(graceful=True, timeout=bound)

    async def _close(self, *, graceful: bool, timeout: float) -> None:
        if self._state is State.CLOSED:
            return
        loop = asyncio.get_running_loop()
        if self._loop is not None and loop is not self._loop:
            self._refuse_caller()
        caller = self._waits_for_caller()
        if caller:
            raise IllegalStateError(
                f"{caller} must not close this {type(self).__name__}: the end of it waits for "
                f"{caller} to return; return, and close it from another task"
            )
        if self._closing is None:
            self._usable = False
            self._closing = new_task(loop, self._run_close(graceful))
        self._bound_close(timeout)
        try:
            await asyncio.wait([self._closing])
        except asyncio.CancelledError:
            bound_s = self._config.close_timeout_ms / 1000
            self._bound_close(bound_s)
            await ended(self._closing, at_most=bound_s + UNWINDING_S)
            raise
        self._closing.result()

    def __del__(self) -> None:
        if self._state not in (State.NEW, State.CLOSED) and self._closing is None:
            try:
                self._hold()
            finally:
                dropped(self, self._loop, self._close_dropped)

    def _hold(self) -> None:
        """Have background work reach this object again, which is revived to be closed."""
        self._anchor.hold(self)

    def _close_dropped(self) -> None:
        if self._closing is None and self._loop is not None:
            self._usable = False
            self._closing = new_task(self._loop, self._run_close(graceful=False))
            self._closing.add_done_callback(retrieve)
            self._bound_close(self._config.close_timeout_ms / 1000)

    def _bound_close(self, timeout: float) -> None:
        assert self._closing is not None
        deadline = self._closing.get_loop().time() + timeout
        self._close_bound = min(self._close_bound, deadline)
        if self._close_scope is not None:
            self._close_scope.deadline = self._close_bound

    async def _run_close(self, graceful: bool) -> None:
        try:
            if self._starting is not None:
                self._end_start(self._starting)
                await ended(self._starting)
            elif self._state is not State.NEW:
                await self._undo(graceful and self._failure is None, timeout=None)
        finally:
            self._state = State.CLOSED
            self._anchor.let_go(self)

    async def _undo(self, graceful: bool, timeout: float | None) -> None:
        """Shutdown within the bound, then the end of all tasks and connections."""
        now = asyncio.get_running_loop().time()
        if timeout is not None:
            self._close_bound = min(self._close_bound, now + timeout)
        try:
            with anyio.CancelScope(deadline=self._close_bound) as self._close_scope:
                await self._shutdown(graceful, max(self._close_bound - now, 0.0))
        finally:
            self._close_scope = None
            self._close_bound = math.inf
            try:
                self._abandon(ClosedError(f"this {type(self).__name__} was closed"))
            finally:
                await self._release()

    async def _release(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe.clear()
        try:
            await self._supervisor.stop()
        finally:
            own, self._own_cluster = self._own_cluster, None
            if own is not None:
                await own.close()
            elif self._client is not None:
                self._client.disown(self._anchor)


for _name in ("metric_values", "metrics"):
    # Not as decorators: type checkers would no longer see that there is nothing to await.
    setattr(Lifecycle, _name, lets_go(getattr(Lifecycle, _name)))
