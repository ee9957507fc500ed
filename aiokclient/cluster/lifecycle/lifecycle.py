"""The start and the close of clients, producers, consumers, admins, and group members.

`states` has the table of phases, with the reasons for it. This module has the
coroutines around the table. A close always ends within its time limit. Cancelling a task that
awaits the close shortens the limit to `close_timeout_ms`, and the cancellation is raised after the
close.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import uuid
from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, cast

from aiokclient._native import note_pure_modules
from aiokclient.background import LATE_CLIENT, LATE_REPORTER, ended, load_late, new_task
from aiokclient.clock import SystemClock
from aiokclient.cluster.lifecycle.ownership import Anchor, dropped, for_background, retrieve
from aiokclient.cluster.lifecycle.public_calls import running_loop, watch_calls, wrong_caller
from aiokclient.cluster.lifecycle.shown import described
from aiokclient.cluster.lifecycle.states import (
    ENDED,
    SHOWN,
    TABLE,
    LifecycleEvent,
    LifecyclePhase,
)
from aiokclient.cluster.lifecycle.supervisor import STOP_S, Supervisor
from aiokclient.config.client import ClientConfig
from aiokclient.errors import (
    ClosedError,
    ConfigError,
    IllegalStateError,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.log.foreign_names import own_names
from aiokclient.network.event_hub import EventHub, EventReader, EventSource
from aiokclient.scopes import new_scope
from aiokclient.telemetry import LAST_PUSH_S
from aiokclient.types import State, seconds

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.health import Health
    from aiokclient.cluster.lifecycle.parent import Parent
    from aiokclient.metrics import Counter, Gauge, Histogram, MetricsSnapshot, MetricValue
    from aiokclient.scopes import CancelScope

UNWINDING_S = 3 * STOP_S
"""Seconds that tasks and connections may take to end after the time limit of a close."""


WRITING_S = 0.1
"""Seconds that the last push of metrics may take after the time limit, in order to be written."""


@watch_calls()
class Lifecycle:
    """The base class of everything that is started and closed.

    A subclass defines `_open` and `_shutdown`, and where necessary `_fail_open_operations`,
    `_take_failures`, and `_compute_grace_s`. It can use `_config`, `_cluster` (its own, or that of
    the shared client), and `_supervisor` for its background tasks. Each of its public methods must
    call `_require_usable` first.
    """

    closing_rank: ClassVar[int] = 0
    """The rank among the children of a client, which closes the lowest rank first."""
    _late_modules: ClassVar[tuple[str, ...]] = LATE_CLIENT
    """The modules that a start imports in a thread."""
    _phase = LifecyclePhase.NEW
    _closing: asyncio.Task[None] | None = None
    config_type: ClassVar[type[ClientConfig]] = ClientConfig

    @classmethod
    def from_properties(
        cls,
        source: Mapping[str, Any] | str | os.PathLike[str],
        *,
        client: Parent | None = None,
        **options: Any,
    ) -> Self:
        """Create an object from a mapping of Kafka's dotted names to texts, or a properties file.

        `options` are additional keyword options, such as functions, which a text cannot express.
        With `client`, the object shares the connections of that client, and has only options of its
        own. Raises ConfigError, which lists all mistakes.
        """
        hidden = cls.config_type.hide_properties(source, options)
        del source
        shared = config_of(client)
        config = cls.config_type.from_properties(hidden, client=shared, **options)
        given = config.given_options(shared)
        made: Self = cast(Any, cls)(**given if client is None else {**given, "client": client})
        return made

    def __dir__(self) -> list[str]:
        return own_names(self, super().__dir__())

    def __init__(self, config: ClientConfig, client: Parent | None = None) -> None:
        self._anchor = Anchor(self)
        """A weak reference for background tasks, which must not keep this object alive."""
        self._config = config
        self._client = client
        self._own_cluster: ClusterClient | None = None
        self._supervisor = Supervisor(
            type(self).__name__,
            ClientLog.of("aiokclient", config),
        )
        self._phase = LifecyclePhase.NEW
        self._state = SHOWN[self._phase]
        self._usable = False
        self._failure: BaseException | None = None
        self._failure_seen = False  # Whether a call has raised the failure.
        self._unsubscribe: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._starting: asyncio.Future[None] | None = None
        """The outcome of the start in progress, which is cancelled if the start is cancelled."""
        self._start_limit: asyncio.Timeout | None = None
        """The timeout by which a close ends a start."""
        self._close_scope: CancelScope | None = None
        self._close_bound = math.inf
        self._last_push: asyncio.TimerHandle | None = None
        self._cancelled: Counter | None = None
        """The number of cancelled calls, which all objects with the same client share."""
        self._observers: list[Callable[[ClusterClient], None]] = []
        """Functions that are called with the cluster client at each start."""
        self._end_listeners: list[Callable[[], None]] = []
        self._hub = EventHub(config.clock or SystemClock()) if client is None else client.hub
        self._events = EventSource(self._hub, None if client is None else self._anchor)

    # -- for subclasses ---------------------------------------------------------------------

    async def _open(self, wait: bool) -> None:
        """Prepare the object, after the cluster client was opened.

        A cancellation is followed by `_shutdown`. Without `wait`, this method must not wait for a
        response of a broker.
        """

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        """Finish all work if `graceful`, otherwise only what is indispensable.

        The call is cancelled after `timeout` seconds. Tasks and connections end afterwards.
        """

    def _fail_open_operations(self, error: ClosedError) -> None:
        """Fail every operation that `_shutdown` has left without an outcome. Synchronous."""

    def _on_failure(self, error: BaseException) -> None:
        """Fail all waiting calls, because a background task died. Synchronous, called once."""

    def _take_failures(self) -> BaseException | None:
        """Return the unretrieved failures, which a normal exit of `async with` raises."""
        return None

    def _list_troubles(self) -> list[str]:
        """Return the reasons for DEGRADED, as texts. Synchronous."""
        return self._cluster.list_troubles()

    def _find_close_obstacle(self) -> str:
        """Return what would make a close in the current task wait forever, or "".

        Such a close would wait for its own caller. Synchronous.
        """
        return ""

    def _compute_grace_s(self) -> float:
        """Return the seconds that a close without a timeout may take."""
        return self._config.close_timeout_ms / 1000

    @property
    def _cluster(self) -> ClusterClient:
        if self._client is not None:
            return self._client.cluster
        if self._own_cluster is None:
            self._raise_unusable()  # Another task has closed the object during a call.
        return self._own_cluster

    # -- the public methods -----------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state: NEW, STARTING, RUNNING, DEGRADED, FAILED, or CLOSED."""
        if not self._usable:
            return self._state
        if not self._cluster.reached:
            return State.STARTING
        return State.DEGRADED if self._list_troubles() else self._state

    def health(self) -> Health:
        """Return the state and the reasons for it. Synchronous.

        While the object starts, `brokers` has a text for each server that it tries to reach: what
        it waits for, or what failed last, and when.
        """
        from aiokclient.cluster.lifecycle.health import Health  # a late module

        reasons = [] if self._failure is None else [f"failed: {self._failure!r}"]
        if not self._usable:
            starting = self._own_cluster if self._state is State.STARTING else None
            if starting is None or not starting.is_open:
                return Health(self._state, tuple(reasons), {})
            brokers = starting.brokers
            return Health(
                self._state, tuple(reasons), brokers.list_states(), brokers.list_addresses()
            )
        reasons += self._list_troubles()
        brokers, telemetry = self._cluster.brokers, self._cluster.telemetry.status
        states, addresses = brokers.list_states(), brokers.list_addresses()
        return Health(self.state, tuple(reasons), states, addresses, telemetry)

    def metrics(self) -> MetricsSnapshot:
        """Return all metrics, by `name` or `name{label=value,...}`. Synchronous.

        The result can be serialized as JSON: each value is a number, or a dict for a histogram.
        Producers and consumers that share a client have their metrics in common.
        """
        self._require_usable()
        return self._cluster.metrics.take_snapshot()

    def metric_values(self, prefix: str = "") -> list[MetricValue]:
        """Return, as tuples, the metrics whose names begin with `prefix`. Synchronous."""
        self._require_usable()
        return self._cluster.metrics.collect_values(prefix)

    def register_metric(
        self,
        name: str,
        fn_or_instrument: Callable[[], float] | Counter | Gauge | Histogram,
        labels: Mapping[str, str] | None = None,
        unit: str = "",
    ) -> None:
        """Push a metric of the application, together with those of the client. Synchronous.

        It is pushed under the given name, if the cluster subscribes to it (KIP-1076).
        `fn_or_instrument` is a function that returns a number (a gauge), or a Counter, Gauge, or
        Histogram of `aiokclient.metrics`. The function is called in the event loop at each push. If
        it raises, or returns no number, its metric is missing from that push. If it takes over 10
        ms, it is not called again. Each of these problems is logged once. A metric with the same
        name and labels is replaced. Raises ArgumentTypeError for any other argument.
        """
        self._require_usable()
        self._cluster.application_metrics.register_metric(
            name, fn_or_instrument, labels or {}, unit
        )

    def unregister_metric(self, name: str) -> None:
        """Stop pushing the metrics of the application with this name. Synchronous.

        Does nothing if no metric has this name.
        """
        self._require_usable()
        self._cluster.application_metrics.unregister_metrics(name)

    def _add_observer(self, observe: Callable[[ClusterClient], None]) -> None:
        """Call `observe(cluster)` at each start, and now if the client has started. Synchronous."""
        self._observers.append(observe)
        if self._usable:
            observe(self._cluster)

    def _add_end_listener(self, on_end: Callable[[], None]) -> Callable[[], None]:
        """Call `on_end()` in the loop when this has started and fails, or begins to close.

        It is also called after a call of `stop` that ends reading, even during a start. Returns a
        function that removes the listener. Synchronous.
        """
        self._end_listeners.append(on_end)
        return partial(self._end_listeners.remove, on_end)

    def _tell_end(self) -> None:
        for on_end in list(self._end_listeners):
            on_end()

    def _count_cancelled(self) -> None:
        """Count a call that was cancelled. Synchronous."""
        if self._cancelled is not None:
            self._cancelled.add()

    def events(self) -> EventReader:
        """Return an asynchronous iterator over the events from now on. Synchronous.

        The classes of the events are in `aiokclient.events`.

        Objects that share a client get the events of its connections and their own; the client gets
        all events. There may be any number of readers. Each keeps at most 1,000 unread events, and
        counts those that it drops in `dropped`. The method may be called before the start. The
        iterator ends when this object has closed. Raises ClosedError if this object is closed.
        """
        if self._phase is LifecyclePhase.CLOSED:
            self._raise_unusable()
        return self._events.open_reader()

    def __repr__(self) -> str:
        owner: object = self if self._client is None else self._client
        cluster = getattr(owner, "_own_cluster", None)
        return described(
            type(self).__name__, self._config, self.state, cluster, self._describe_subject()
        )

    def _describe_subject(self) -> dict[str, str | None]:
        """Return the topics or the group for the repr. Synchronous, in every state."""
        return {}

    async def client_instance_id(self, timeout: float | None = None) -> uuid.UUID:
        """Return the id under which the brokers know this client in telemetry (KIP-714).

        The id is requested if it is not known yet, and never changes. Objects that share a client
        have its id. `timeout` is in seconds (by default `default_api_timeout_ms`). Raises
        IllegalStateError with `enable_metrics_push=False`, UnsupportedVersionError if the brokers
        do not collect telemetry, and ApiTimeoutError. With `timeout=0`, raises ApiTimeoutError
        immediately unless the id is known.
        """
        self._require_usable()
        return await self._cluster.telemetry.get_instance_id(self._get_timeout_s(timeout))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._supervisor.forked and asyncio._get_running_loop() is None:
            return  # A forked process leaves the block by sys.exit(). Its parent has the client.
        if error is not None:
            await self._close_after_error()
            return
        await self._close(graceful=True, timeout=self._compute_grace_s())
        unseen = (not self._failure_seen and self._failure) or self._take_failures()
        if unseen is not None:
            raise unseen

    async def _close_after_error(self) -> None:
        """Close this object, because its block raises. An error of the close is only logged."""
        try:
            await self._close(graceful=False, timeout=self._config.close_timeout_ms / 1000)
        except Exception as error:
            ClientLog.of("aiokclient", self._config).warning(
                "The close of this %s after an error in its block has failed, too: %r",
                type(self).__name__,
                error,
                extra={"event": "close_failed"},
            )

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    # -- checks -----------------------------------------------------------------------------

    def _require_usable(self) -> None:
        """Raise the failure, or a UsageError if the object must not be used here and now."""
        if not self._usable:
            self._raise_unusable()
        if asyncio._get_running_loop() is not self._loop:
            self._refuse_caller()

    def _raise_unusable(self) -> NoReturn:
        name = type(self).__name__
        if self._failure is not None:
            self._failure_seen = True
            raise self._failure
        if self._state is State.CLOSED:
            raise ClosedError(f"This {name} is closed. Make a new one.")
        if self._phase is LifecyclePhase.ENDING:
            raise ClosedError(f"This {name} is being closed.")
        raise IllegalStateError(
            f"This {name} is not started. Use `async with`, or await its start() first."
        )

    def _check_known(self) -> None:
        """Raise an error unless a synchronous call that reads known data is allowed now."""
        if self._state not in (State.NEW, State.STARTING):
            self._require_usable()

    def _get_failure(self, raised: bool) -> BaseException | None:
        """Return the error with which the object has failed, or None if it has not failed.

        `raised` means that the caller raises this error to the application.
        """
        self._failure_seen |= raised and self._failure is not None
        return self._failure

    def _refuse_caller(self) -> None:
        raise wrong_caller(type(self).__name__, self._loop, self._thread)

    def _get_timeout_s(self, timeout: float | None) -> float:
        """Return the given timeout of a call, or `default_api_timeout_ms`, in seconds."""
        return self._config.default_api_timeout_ms / 1000 if timeout is None else seconds(timeout)

    def _fail(self, error: BaseException) -> None:
        """Make every later call raise `error`. Only the first error counts. Synchronous."""
        if self._failure is not None or self._phase is LifecyclePhase.CLOSED:
            return
        self._failure, self._failure_seen = error, False
        self._supervisor.adopt_failure(error)
        self._apply_event(LifecycleEvent.FAILED)
        if self._state is State.RUNNING:  # The phase is ENDING.
            self._state = State.FAILED
        self._events.emit("Failed", cause=error)
        self._on_failure(error)
        if self._phase is LifecyclePhase.FAILED:
            self._tell_end()
        else:
            self._end_start()

    def _apply_event(self, event: LifecycleEvent) -> None:
        """Apply an event to the table. Synchronous."""
        self._phase = TABLE.get((self._phase, event), self._phase)
        self._state = SHOWN.get(self._phase, self._state)
        self._usable = self._phase is LifecyclePhase.RUNNING

    # -- start ------------------------------------------------------------------------------

    async def start(self, wait: bool | None = None) -> None:
        """Connect to the cluster and get ready, within `default_api_timeout_ms`.

        Does nothing if this object has started already. Raises BootstrapError if no broker responds
        in time, and ClosedError after a close. ConnectionSetupError and other errors that waiting
        cannot correct are raised immediately. A start that fails or is cancelled leaves nothing
        open and may be repeated.

        With `wait=False` (the default with `start_without_brokers=True`), it returns before a
        broker has responded. The state is STARTING until one does, and `health()` shows what the
        client has tried. Meanwhile, a producer queues records within its limits, and all other
        calls wait until their deadlines. An error that waiting cannot correct fails the client.
        """
        if wait is None:
            wait = not self._config.start_without_brokers
        loop = running_loop(type(self).__name__)
        if note_pure_modules():
            ClientLog.of("aiokclient", self._config).warning(
                "The native modules are not compiled, so the pure Python ones run, which are "
                "several times slower. In a checkout, `make native` compiles them. "
                "AIOKCLIENT_PURE=1 selects the pure ones without this warning.",
                extra={"event": "pure_modules"},
            )
        while (starting := self._starting) is not None:
            if loop is not self._loop:
                self._refuse_caller()
            await asyncio.wait([starting])
            if not starting.cancelled():
                starting.result()  # Raises the error of the start that another caller began.
                break
        else:
            if self._phase is LifecyclePhase.NEW:
                await self._start(loop, wait)
            else:
                self._require_usable()
        if wait and not self._cluster.reached:  # Another caller has started without waiting.
            await self._cluster.wait_until_reached(self._get_timeout_s(None))

    async def _start(self, loop: asyncio.AbstractEventLoop, wait: bool) -> None:
        """Start in the task of the caller, or undo what was begun. Other callers of `start` wait.

        Between the last suspension of a start that succeeds and the return to its caller, no
        cancellation can come. So a caller that is cancelled has started nothing.
        """
        self._apply_event(LifecycleEvent.START)
        self._loop, self._thread = loop, threading.get_ident()
        outcome = self._starting = loop.create_future()
        try:
            await self._open_all(wait)
        except BaseException as error:
            try:
                await self._undo_start(loop)
            finally:
                self._on_start_undone()
                if isinstance(error, Exception):
                    outcome.set_exception(error)
                    outcome.exception()  # Marks it as retrieved: maybe no other caller waits.
                else:
                    outcome.cancel()
            raise
        self._starting = None
        outcome.set_result(None)
        self._apply_event(LifecycleEvent.READY)

    async def _undo_start(self, loop: asyncio.AbstractEventLoop) -> None:
        """End what a start has begun, in a task that no cancellation reaches."""
        timeout = self._config.close_timeout_ms / 1000
        # anyio cancels at each await of a cancelled scope, which would also end the cleanup.
        undoing = new_task(loop, self._end_work(graceful=False, timeout=timeout))
        await ended(undoing)
        undoing.result()

    def _on_start_undone(self) -> None:
        self._failure, self._starting = None, None
        self._apply_event(LifecycleEvent.UNDONE)
        if self._phase is LifecyclePhase.NEW:
            self._loop, self._thread = None, 0  # Any loop may start or close the object now.
        else:
            self._state = State.NEW

    async def _open_all(self, wait: bool) -> None:
        """Open the cluster client, or use the shared one, and then this object."""
        try:
            async with asyncio.timeout(None) as self._start_limit:
                await self._supervisor.start()
                self._watch_failures(self._supervisor)
                deadline = asyncio.get_running_loop().time() + self._get_timeout_s(None)
                pushes = self._client is None and self._config.enable_metrics_push
                await load_late(*self._late_modules, *(LATE_REPORTER if pushes else ()))
                if self._client is None:
                    from aiokclient.cluster.client import ClusterClient

                    self._own_cluster = ClusterClient(for_background(self._config), self._hub)
                    self._watch_failures(self._own_cluster.supervisor)
                    # Its errors can be in reference cycles, and refer to the frames of all callers.
                    # In a task of its own, they do not keep this object alive.
                    await new_task(asyncio.get_running_loop(), self._own_cluster.start(wait))
                else:
                    self._client.adopt_child(self._anchor)
                    self._watch_failures(self._cluster.supervisor)
                    if wait:
                        await self._cluster.reach_broker(deadline)
                for observe in self._observers:
                    observe(self._cluster)
                self._cancelled = self._cluster.metrics.connections.counter("cancelled")
                async with self._cluster.limit_start(deadline):
                    await self._open(wait)
                    await asyncio.sleep(0)  # The tasks that this has begun make their first step.
                if self._failure is not None:
                    raise self._failure
                if self._phase in ENDED:
                    raise TimeoutError
        except TimeoutError as error:
            if error is self._failure:
                raise
            if self._phase in ENDED:
                text = f"This {type(self).__name__} was closed while it started."
                raise ClosedError(text) from None
            if self._failure is None:
                raise
        else:
            return
        finally:
            self._start_limit = None
        raise self._failure  # A background task has died, which has ended this start.

    def _watch_failures(self, supervisor: Supervisor) -> None:
        failing = supervisor.add_failure_listener(_failing(self._anchor))
        self._unsubscribe.append(failing)

    def _end_start(self) -> None:
        """End the start in progress, if there is one. Synchronous."""
        limit, self._start_limit = self._start_limit, None  # It can be rescheduled only once.
        if limit is not None:
            limit.reschedule(asyncio.get_running_loop().time())

    # -- close ------------------------------------------------------------------------------

    async def close(self, timeout: float | None = None) -> None:
        """Finish the work and close all connections. Idempotent; all callers share one close.

        `timeout` (seconds) limits all of it, and so does `shutdown_timeout_ms`. Operations that
        have no outcome by then fail with ClosedError. A cancellation does not stop the close: it
        ends within `close_timeout_ms`, and then the cancellation is raised.
        """
        bound = self._compute_grace_s() if timeout is None else seconds(timeout)
        await self._close(graceful=True, timeout=bound)

    async def _close(self, *, graceful: bool, timeout: float) -> None:
        if self._phase is LifecyclePhase.CLOSED:
            return
        loop = running_loop(type(self).__name__)
        if self._loop is not None and loop is not self._loop:
            self._refuse_caller()
        caller = self._find_close_obstacle()
        if caller:
            raise IllegalStateError(
                f"{caller} must not close this {type(self).__name__}, because the close waits for "
                f"{caller} to return. Close it from another task."
            )
        if self._phase is not LifecyclePhase.ENDING:
            self._loop, self._thread = loop, threading.get_ident()
            self._begin_close(loop, graceful)
        assert self._closing is not None
        self._limit_close(timeout)
        try:
            await asyncio.wait([self._closing])
        except asyncio.CancelledError:
            bound_s = self._config.close_timeout_ms / 1000
            self._limit_close(bound_s)
            await ended(self._closing, at_most=bound_s + UNWINDING_S)
            raise
        self._closing.result()

    def __del__(self) -> None:
        if (
            self._phase is not LifecyclePhase.NEW
            and self._phase not in ENDED
            and not self._supervisor.forked
        ):
            try:
                self._keep_alive()
            finally:
                dropped(self, self._loop, self._close_dropped)

    def _keep_alive(self) -> None:
        """Make the references of background tasks strong, while this object is being closed."""
        self._anchor.hold_object(self)

    def _close_dropped(self) -> None:
        if self._loop is not None and self._phase not in ENDED:
            closing = self._begin_close(self._loop, graceful=False)
            closing.add_done_callback(retrieve)
            self._limit_close(self._config.close_timeout_ms / 1000)

    def _begin_close(self, loop: asyncio.AbstractEventLoop, graceful: bool) -> asyncio.Task[None]:
        """Create the task of the close, which begins at the loop's next iteration."""
        has_started = self._phase in (LifecyclePhase.RUNNING, LifecyclePhase.FAILED)
        self._apply_event(LifecycleEvent.CLOSE)
        self._closing = new_task(loop, self._run_close(graceful, has_started))
        if has_started:
            self._tell_end()
        return self._closing

    def _limit_close(self, timeout: float) -> None:
        assert self._closing is not None
        if self._config.shutdown_timeout_ms is not None:
            timeout = min(timeout, self._config.shutdown_timeout_ms / 1000)
        deadline = self._closing.get_loop().time() + timeout
        self._close_bound = min(self._close_bound, deadline)
        if self._close_scope is not None:
            self._close_scope.deadline = self._close_bound
            self._plan_last_push()

    def _plan_last_push(self) -> None:
        """Begin the last push of metrics early enough for the close to end within its timeout."""
        if self._last_push is not None:
            self._last_push.cancel()
        self._last_push = None
        own = self._own_cluster
        if own is not None and self._supervisor.running and self._close_bound < math.inf:
            at, begin = self._close_bound - LAST_PUSH_S, own.telemetry.begin_close
            self._last_push = self._supervisor.callbacks.call_at(at, begin)

    async def _run_close(self, graceful: bool, has_started: bool) -> None:
        try:
            if has_started:
                await self._end_work(graceful and self._failure is None, timeout=None)
            elif self._starting is not None:
                self._end_start()
                await ended(self._starting)
        finally:
            self._apply_event(LifecycleEvent.ENDED)
            self._events.end_readers()
            self._anchor.release_object(self)

    async def _end_work(self, graceful: bool, timeout: float | None) -> None:
        """Shut down within `timeout`, then end all tasks and connections."""
        now = asyncio.get_running_loop().time()
        if timeout is not None:
            self._close_bound = min(self._close_bound, now + timeout)
        try:
            with new_scope(deadline=self._close_bound) as self._close_scope:
                self._plan_last_push()
                await self._shutdown(graceful, max(self._close_bound - now, 0.0))
        finally:
            self._close_scope = None
            bound, self._close_bound = self._close_bound, math.inf
            try:
                self._fail_open_operations(ClosedError(f"This {type(self).__name__} was closed."))
            finally:
                await self._release_resources(bound)

    async def _release_resources(self, bound: float) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe.clear()
        own = self._own_cluster
        try:
            if own is not None:
                left_s = bound - asyncio.get_running_loop().time()
                await own.telemetry.close(min(max(left_s, WRITING_S), LAST_PUSH_S))
        finally:
            try:
                await self._supervisor.stop()
            finally:
                if self._last_push is not None:
                    self._last_push.cancel()
                    self._last_push = None
                self._own_cluster = None
                if own is not None:
                    await own.close()
                elif self._client is not None:
                    self._client.disown_child(self._anchor)


def _failing(anchor: Anchor[Lifecycle]) -> Callable[[BaseException], None]:
    """Return a listener that fails the object of a weak reference, if it still exists."""

    def fail(error: BaseException) -> None:
        lifecycle = anchor.get()
        if lifecycle is not None:
            lifecycle._fail(error)

    return fail


def config_of(client: Parent | None) -> ClientConfig | None:
    """Return the options of a shared client, or None without a client.

    Raises ConfigError for an object that is not a client.
    """
    if client is None:
        return None
    config = getattr(client, "config", None)
    if not isinstance(config, ClientConfig):
        raise ConfigError(f"client: {client!r} is not an aiokclient.Client. Make one and share it.")
    return config
