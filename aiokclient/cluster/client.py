"""The client of one cluster: its connections, its metadata, and requests to its brokers.

`ClusterClient.request` is the loop around one request: it routes the request, sends it, and
retries until the deadline. Operations on several items (topics, partitions, groups) use `per_item`.
Senders, fetchers, and members of groups must handle each failed attempt themselves, because an
error code changes their state. They have loops of their own around `connect` and
`BrokerConnection.send`. In all of these loops, `policy` decides what is done about an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aiokclient import threads
from aiokclient.background import ended, new_task
from aiokclient.clock import Clock, SystemClock
from aiokclient.cluster.bootstrap import connect_first
from aiokclient.cluster.lifecycle.supervisor import Supervisor
from aiokclient.cluster.metadata.requests import MetadataRequests
from aiokclient.cluster.metadata.snapshot import ClusterMetadata, moved_leaders
from aiokclient.cluster.metadata.updater import MetadataUpdater
from aiokclient.cluster.requests.attempts import (
    CallAttempts,
    CallsInProgress,
    Check,
    GivenUpError,
    LastAnswer,
    PendingResponse,
    RefusalLog,
    any_version,
    is_refusal,
    nothing,
)
from aiokclient.cluster.requests.brokers import Brokers, Outages, ReporterConnections, one_line
from aiokclient.cluster.requests.routing import CoordinatorLocator, Router
from aiokclient.cluster.targets import Target, subject_of
from aiokclient.config.client import ClientConfig
from aiokclient.errors import (
    ApiTimeoutError,
    BootstrapError,
    ClosedError,
    KafkaError,
    error_for,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.log.kept_errors import bare
from aiokclient.metrics import Metrics
from aiokclient.network.connection import BrokerConnection, OnResponse
from aiokclient.network.event_hub import EventHub
from aiokclient.network.login import Sasl
from aiokclient.network.pool import Purpose
from aiokclient.network.setup import ConnectionSettings
from aiokclient.network.tls import TlsContexts
from aiokclient.network.traffic import Traffic
from aiokclient.network.transport import Connector, TcpConnector
from aiokclient.policy import Attempts, Backoff, Decision, Scope
from aiokclient.telemetry.application import ApplicationMetrics
from aiokclient.types import seconds

if TYPE_CHECKING:
    from aiokclient.protocol.schema import Request, Response
    from aiokclient.telemetry.collector import ClientCollector
    from aiokclient.telemetry.disabled import DisabledReporter
    from aiokclient.telemetry.reporter import Reporter

R = TypeVar("R", bound="Response")

NAMES_BROKERS = "answered, and named the brokers"
REFUSED_START = (
    "Brokers were reached and refused a request of the start until then. Check the state of the "
    "cluster."
)
"""The advice of an error of `limit_start` after a refusal."""


class ClusterClient:
    """The connections, the metadata, and the requests of a client of one cluster.

    It can be created anywhere, and must be used in the event loop in which `start` was awaited.
    Producers, consumers, and other parts of the library that use it also use its attributes
    `config`, `clock`, `connector`, `events`, `metrics`, `supervisor`, `telemetry`, and `updater`.
    """

    def __init__(self, config: ClientConfig, events: EventHub | None = None) -> None:
        self.config = config
        self.clock: Clock = config.clock if config.clock is not None else SystemClock()
        self.events = EventHub(self.clock) if events is None else events
        self.connector: Connector = (
            config.connector if config.connector is not None else TcpConnector()
        )
        self.metrics = Metrics(self.clock)
        self.application_metrics = ApplicationMetrics()
        self._collector: ClientCollector | None = None
        group_id = getattr(config, "group_id", None)
        self._traffic = Traffic(self.metrics, config.client_id, group_id, self.events)
        self.supervisor = Supervisor("client", self.make_log(""))
        self.refusals = RefusalLog(self.make_log(""), self.clock)
        self.outages = Outages()
        self._metadata_requests = requests = MetadataRequests(self)
        self.updater = MetadataUpdater(config, self.clock, requests)
        self.metrics.connections.compute_series("rebootstraps", requests.count_rebootstraps)
        self._reached = asyncio.Event()
        self.supervisor.add_failure_listener(self.updater.fail_calls)
        self.supervisor.add_failure_listener(lambda error: self._reached.set())
        self.calls = CallsInProgress(self.clock)
        self.coordinators = CoordinatorLocator(self)
        self._router = Router(
            self.updater, self.coordinators, uses_controllers=config.uses_controllers
        )
        self._backoff = Backoff.of(config)
        self._brokers: Brokers | None = None
        self._login: Sasl | None = None
        self._opening: dict[asyncio.Task[Any], LastAnswer] = {}
        """The tasks in `limit_start`, each with the last error of its requests."""
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._watching: AsyncGenerator[None, None] | None = None
        self.telemetry = self._make_reporter()
        self.outages.add_listener(lambda: self.updater.topic_ids.doubt_all(self.metadata))

    def _make_reporter(self) -> Reporter | DisabledReporter:
        if not self.config.enable_metrics_push:
            from aiokclient.telemetry.disabled import DisabledReporter

            return DisabledReporter()
        from aiokclient.telemetry.reporter import Reporter  # a late module

        return Reporter(
            self.config,
            self.clock,
            self.make_log("telemetry"),
            self.metrics,
            ReporterConnections(self),
        )

    # -- starting and closing ---------------------------------------------------------------

    async def start(self, wait: bool = True) -> None:
        """Reach the cluster, read its metadata, and connect to one of its brokers.

        Raises BootstrapError, which names the addresses, if that takes longer than
        `default_api_timeout_ms`, or TokenProviderError if there was no token with which to log in.
        Errors that waiting cannot correct (ConnectionSetupError, AuthenticationError, ConfigError)
        are raised immediately. A start that fails or is cancelled leaves nothing open.

        Without `wait`, the cluster is reached in the background, without a deadline, and an error
        that waiting cannot correct fails the client.
        """
        deadline = self._compute_deadline()
        try:
            await self.supervisor.start()
            self.telemetry.on_open()
            self._watching = self._close_at_loop_end()
            await anext(self._watching)
            settings = await self._make_settings(deadline)
            self._brokers = brokers = Brokers(
                self.config, settings, self.supervisor, self.clock.rng, self._metadata_requests
            )
            self.metrics.gauge("client.connections", lambda: brokers.connections)
            self.updater.add_listener(self._on_snapshot)
            if wait:
                await self._reach_cluster(deadline)
            else:
                self.supervisor.spawn(self._reach_cluster_at_last, name="bootstrap")
        except BaseException as error:
            # In a task that no cancellation reaches, not even one of anyio, which is repeated.
            await ended(new_task(asyncio.get_running_loop(), self.close()))
            if isinstance(error, Exception):
                self.supervisor.raise_failure()  # Raises the error of a background task that died.
            raise

    async def _reach_cluster(self, deadline: float) -> None:
        resolve_ms = self.config.bootstrap_resolve_timeout_ms
        resolve_s = None if resolve_ms is None else resolve_ms / 1000
        try:
            response, server = await self._metadata_requests.reach_cluster(deadline, resolve_s)
            await self.updater.install_first(response)
            # The brokers that it names may be replaced before the client has reached one of them.
            self._follow_metadata()
            await self.reach_broker(deadline, (server, NAMES_BROKERS))
        except BootstrapError:
            self._check_token()
            raise
        self._mark_reached()

    async def _reach_cluster_at_last(self) -> None:
        await self.updater.install_first(await self._metadata_requests.reach_cluster_at_last())
        self._follow_metadata()
        self._mark_reached()

    def _follow_metadata(self) -> None:
        """Update the metadata from now on, and rebootstrap whenever it is due."""
        self._metadata_requests.on_started()
        self.supervisor.spawn(self.updater.run, name="metadata")

    def _mark_reached(self) -> None:
        self._reached.set()
        self.telemetry.on_connection()

    @property
    def reached(self) -> bool:
        """Whether a broker has responded since the start."""
        return self._reached.is_set()

    async def wait_until_reached(self, timeout: float) -> None:
        """Wait until a broker has responded.

        After `timeout` seconds, raises BootstrapError, or TokenProviderError if there was no token
        with which to log in. If the client fails, raises its failure.
        """
        try:
            async with asyncio.timeout(timeout) as patience:
                await self._reached.wait()
        except TimeoutError:
            if not patience.expired():
                raise
            self._check_token()
            text = f"No broker has responded within {timeout:.1f} s."
            error = BootstrapError(attempts=self.brokers.list_outcomes(), needed=text)
            raise error from self.find_last_error()
        self.supervisor.raise_failure()

    def _compute_deadline(self) -> float:
        return self.clock.monotonic() + self.config.default_api_timeout_ms / 1000

    async def reach_broker(self, deadline: float, *attempts: tuple[str, str]) -> None:
        """Wait until a broker in the metadata is connected.

        Returns immediately if one is already connected. `deadline` is on the monotonic clock.
        Raises BootstrapError if no broker is connected by then. Its `attempts` are the given ones
        and the addresses of the brokers. If every broker has failed with an error that waiting
        cannot correct, raises one of these errors immediately.
        """
        if not self.brokers.any_connected:
            await connect_first(self, deadline, attempts)

    @contextlib.asynccontextmanager
    async def limit_start(self, deadline: float) -> AsyncIterator[None]:
        """Run a block of a start, which uses this client, until a deadline on the monotonic clock.

        At the deadline, raises BootstrapError with the addresses of all brokers, because the block
        may have needed one that is not connected. If a broker has refused a request of the block,
        the last refusal is the cause. If a coordinator refuses the login, raises the refusal
        immediately.
        """
        began = self.clock.monotonic()
        task = asyncio.current_task()
        assert task is not None
        self._opening[task] = last = LastAnswer()
        try:
            async with asyncio.timeout_at(deadline) as patience:
                with self.brokers.starts.end_on_refusal(patience):
                    yield
        except TimeoutError:
            if not patience.expired():
                raise
            needed = f"The start did not end within {self.clock.monotonic() - began:.1f} s."
            error = BootstrapError(attempts=self.brokers.list_outcomes(), needed=needed)
            if last.error is None:
                raise error from self.find_last_error()
            if is_refusal(last.error):
                error.hint = REFUSED_START
            raise error from last.error
        finally:
            del self._opening[task]

    def _note_error(self, error: KafkaError) -> None:
        """Keep the error of a request that `limit_start` waits for."""
        task = asyncio.current_task()
        last = None if task is None else self._opening.get(task)
        if last is not None:
            last.note_error(bare(error))

    async def close(self) -> None:
        """End all tasks and connections. Requests without a response fail with ClosedError.

        That takes at most two seconds. Idempotent. A cancellation does not stop the close.
        """
        self.supervisor.begin_close()
        pending, self._pending = self._pending, {}
        for future in pending:
            if not future.done():
                future.set_exception(
                    ClosedError("The client was closed before the response arrived.")
                )
                # Mark the errors as retrieved: after a close, asyncio must not log them.
                future.exception()
        brokers, self._brokers = self._brokers, None
        self._metadata_requests.close()
        try:
            await self.telemetry.close()
        finally:
            if self._collector is not None:
                self._collector.close()
            await self._end_tasks(brokers)

    async def _end_tasks(self, brokers: Brokers | None) -> None:
        try:
            if brokers is not None:
                await brokers.close()
        finally:
            try:
                await self.supervisor.stop()
            finally:
                self.updater.close()
                watching, self._watching = self._watching, None
                if watching is not None:
                    await watching.aclose()

    async def _close_at_loop_end(self) -> AsyncGenerator[None, None]:
        """Close the connections when the event loop ends and the client was not closed before.

        `asyncio.run` closes asynchronous generators after it has cancelled all tasks. Without this
        generator, a connection that is still open would keep its socket. With uvloop, closing the
        loop would even wait forever if ResourceWarning is an error.
        """
        try:
            yield
        finally:
            if self._watching is not None:
                self._watching = None
                await self.close()

    async def prepare_connections(self, deadline: float) -> ConnectionSettings:
        """Return the settings for connections of the caller, instead of starting this client.

        `close` ends what the settings use. Raises ConfigError if the files of the security options
        cannot be used, and BootstrapError if they are not read by the deadline.
        """
        await self.supervisor.start()
        settings = await self._make_settings(deadline)
        return settings._replace(traffic=None, events=None, cluster=None)

    async def _make_settings(self, deadline: float) -> ConnectionSettings:
        config = self.config
        tls = TlsContexts.of(config.security, self.make_log(""))
        if tls is not None:
            await self._read_files(tls, deadline)
        idle_ms = config.connections_max_idle_ms
        return ConnectionSettings(
            connector=self.connector,
            client_id=config.client_id,
            tls=tls,
            receive_max=config.receive_message_max_bytes,
            idle_s=idle_ms / 1000 if idle_ms >= 0 else None,
            traffic=self._traffic,
            group_id=getattr(config, "group_id", None),
            request_s=config.request_timeout_ms / 1000,
            sasl=self._make_sasl(),
            events=self.events,
            cluster=self._metadata_requests.identity,
        )

    async def _read_files(self, tls: TlsContexts, deadline: float) -> None:
        began, job = self.clock.monotonic(), threads.Job(tls.load_files)
        try:
            async with asyncio.timeout_at(deadline):
                await threads.run_blocking(job)
        except TimeoutError:
            seconds = self.clock.monotonic() - began
            why = "" if job.begun else " No thread was free for it."
            text = f"The files of security= were not read within {seconds:.1f} s.{why}"
            raise BootstrapError(needed=text) from None

    def _check_token(self) -> None:
        """Raise TokenProviderError if connections cannot log in, because there is no token."""
        problem = None if self._login is None else self._login.problem
        if problem is not None:
            try:
                raise problem from problem.__cause__
            finally:
                # The error that is handled now may have the problem as its cause: together they
                # would be a circle.
                problem.__context__ = None

    def _make_sasl(self) -> Sasl | None:
        log = self.make_log("")
        sasl = Sasl.of(self.config, self.clock, self.supervisor, log, self.events)
        if sasl is not None:
            sasl.warn_if_readable(log)
        self._login = sasl
        return sasl

    def _on_snapshot(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        self.brokers.apply_snapshot(new.brokers)
        if old.brokers is not new.brokers:
            self._traffic.keep_brokers({*new.brokers})
        if old.topics is not new.topics:
            self.metrics.keep_topics(new.has_topic)
            if self.events.heard:
                for moved in moved_leaders(old, new):
                    self.events.emit("LeaderMoved", **moved._asdict())

    @property
    def is_open(self) -> bool:
        """Whether the client has connection pools, from the beginning of its start to its close."""
        return self._brokers is not None

    @property
    def brokers(self) -> Brokers:
        """The connection pools. Raises ClosedError if the client is not started."""
        if self._brokers is None:
            raise ClosedError("The client is not open.")
        return self._brokers

    @property
    def live_brokers(self) -> Brokers:
        """The connection pools. Raises the failure of the client, or ClosedError."""
        self.supervisor.raise_failure()
        return self.brokers

    @property
    def permitted_brokers(self) -> Brokers | None:
        """The connection pools; None before the start, and while only metadata may be requested."""
        return self._brokers if self._metadata_requests.is_open else None

    def list_addresses(self) -> dict[int | str, str]:
        """Return the addresses of the brokers; empty before the start. Synchronous."""
        return {} if self._brokers is None else self._brokers.list_addresses()

    @property
    def metadata(self) -> ClusterMetadata:
        """The current snapshot of the metadata."""
        return self.updater.snapshot

    def make_log(self, part: str, group_id: str | None = None) -> ClientLog:
        """Return the logger `aiokclient.<part>`, whose lines name this client and the group."""
        name = f"aiokclient.{part}" if part else "aiokclient"
        if group_id is None:
            return ClientLog.of(name, self.config)
        return ClientLog(name, self.config.client_id, group_id)

    # -- requests ---------------------------------------------------------------------------

    async def request(
        self,
        message: Request[R],
        to: Target,
        *,
        timeout: float | None = None,
        attempt_timeout: float | None = None,
        scope: Scope = Scope.CLIENT,
        check: Check | None = None,
        purpose: Purpose = Purpose.CONTROL,
        owner: Hashable = None,
        failed: Callable[[KafkaError], None] = lambda error: None,
        highest: Callable[[], int | None] = any_version,
        before_retry: Callable[[KafkaError], Awaitable[None]] = nothing,
        earlier: KafkaError | None = None,
        unanswered: set[asyncio.Future[Any]] | None = None,
    ) -> R:
        """Send a request, with retries, and return the successful response.

        Each attempt locates the broker again and may take `attempt_timeout` seconds (by default
        `request_timeout_ms`). All attempts together may take `timeout` seconds (by default
        `default_api_timeout_ms`). The policy decides for `scope` which errors are retried.
        `check(response)` returns the error in a response, which by default is that of its
        top-level error code.

        Raises ApiTimeoutError, whose cause is the last error, or if there is no token with which to
        log in, TokenProviderError. Also raises every error that is not retried, with its API and
        broker. A client that has failed raises its failure instead of retrying. `failed(error)` is
        called for each attempt that was sent and failed, and `before_retry(error)` is awaited
        before each retry. `highest()` returns the highest version in which the next attempt may be
        sent, or None for any version. `earlier` is the error of the first attempt, if
        `attempt_request` has made it. A cancellation abandons the response: the broker may still
        execute a request that was sent. `unanswered` then keeps the response until it arrives or
        the attempt fails.
        """
        default_s = self.config.default_api_timeout_ms / 1000
        timeout_s = default_s if timeout is None else seconds(timeout)
        retry = Attempts(self.clock.monotonic() + timeout_s, self._backoff, self.clock)
        attempt_s = attempt_timeout or self.config.request_timeout_ms / 1000
        check = check or top_level_error
        call = CallAttempts(
            message,
            to,
            scope,
            purpose,
            owner,
            retry,
            attempt_s,
            unanswered,
        )
        self.calls.add_call(call.progress)
        try:
            async with asyncio.timeout(None if timeout_s == math.inf else timeout_s):
                if earlier is not None:
                    call.record_first_error(earlier)
                    self.supervisor.raise_failure()
                    failed(earlier)
                    await self._prepare_retry(call, before_retry)
                while True:
                    try:
                        return cast(R, await self._attempt_call(call, check, highest))
                    except KafkaError as error:
                        self.supervisor.raise_failure()
                        call.record_error(error)
                        self._note_error(error)
                        if call.was_sent:
                            failed(error)
                    await self._prepare_retry(call, before_retry)
        except GivenUpError:
            assert call.error is not None
            raise call.error from call.error.__cause__
        except TimeoutError as error:
            if error is self.supervisor.failure:
                raise
            if not call.was_sent:
                self._check_token()
            text = f"There was no successful response within {timeout_s:.1f} s."
            if call.error is not None and call.error is not call.cause:
                text += f" After the last answer: {call.error.brief}"
            raise ApiTimeoutError(text, api=call.api, broker=call.node_id) from call.cause
        finally:
            self.calls.remove_call(call.progress)

    def attempt_request(
        self,
        connection: BrokerConnection,
        message: Request[R],
        done: OnResponse,
        *,
        highest: int | None = None,
    ) -> None:
        """Send a request once, on an open connection. Synchronous.

        `done(response, None)` is called with a successful response, and otherwise
        `done(None, error)`. `done` must not raise. `request(..., earlier=error)` continues after an
        error. The attempt may take `request_timeout_ms`, and is sent in at most the version
        `highest`.
        """
        broker = connection.broker

        def answered(response: Any, error: KafkaError | None) -> None:
            if error is None:
                if self._brokers is not None:
                    self._brokers.on_response(broker.node_id)
                error = top_level_error(response)
            if error is not None:
                error.api = error.api or message.api_key.api_name
                error.broker = broker.node_id if error.broker is None else error.broker
            done(response if error is None else None, error)

        connection.send_with_callback(
            message,
            answered,
            timeout_s=self.config.request_timeout_ms / 1000,
            version=None if highest is None else min(broker.version_of(type(message)), highest),
        )

    async def _attempt_call(
        self, call: CallAttempts, check: Check, highest_version: Callable[[], int | None]
    ) -> Any:
        call.was_sent = False
        call.node_id = await self._router.find_broker(call.to, max(call.retry.remaining_s, 0.0))
        connection = await self._connect(call.node_id, call.purpose, call.owner, type(call.message))
        call.node_id = connection.broker.node_id
        version = connection.broker.version_of(type(call.message))
        highest = highest_version()
        if highest is not None:
            version = min(version, highest)
        call.was_sent = True
        call.progress.note_request(connection.broker.node_id, self.clock.monotonic())
        sent = connection.send(call.message, timeout_s=call.attempt_s, version=version)
        response = await (sent if call.unanswered is None else call.await_response(sent))
        error = check(response)
        self.brokers.on_response(connection.broker.node_id)
        if error is not None:
            error.resource = error.resource or subject_of(call.to)
            raise self._metadata_requests.translate_error(call.message, error)
        return response

    async def _prepare_retry(
        self, call: CallAttempts, before_retry: Callable[[KafkaError], Awaitable[None]]
    ) -> None:
        error = call.error
        assert error is not None
        action = call.retry.count_failure(error, call.scope)
        if not action.again:
            late = error.retriable and call.retry.remaining_s <= 0
            raise TimeoutError if late else GivenUpError
        name = error.name or type(error).__name__
        self.metrics.counter("client.request.retries", api=call.api, error=name).add()
        self.metrics.connections.counter("retries", error=name).add()
        self.refusals.log_refusal(error, call.refusals)
        await before_retry(error)
        # The target may have moved away from a broker that does not respond.
        if action.decision is Decision.REFRESH_AND_RETRY or isinstance(error, ApiTimeoutError):
            self._router.refresh_target(call.to, call.node_id)
        await asyncio.sleep(action.delay_s)

    def send(
        self, message: Request[R], to: Target, *, timeout: float | None = None
    ) -> PendingResponse[R]:
        """Start a request as `request` does, and return a handle of its response. Synchronous.

        Raises ClosedError if the client is closed. If it is closed before the response arrives,
        the handle raises ClosedError.
        """
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        name = f"send {message.api_key.api_name}"
        self.supervisor.spawn(self._send_for_handle, future, message, to, timeout, name=name)
        self._pending[future] = None
        return PendingResponse(future)

    async def _send_for_handle(
        self, future: asyncio.Future[R], message: Request[R], to: Target, timeout: float | None
    ) -> None:
        try:
            response = await self.request(message, to, timeout=timeout)
        except Exception as error:
            # Every error goes to the handle, because no other task depends on this one.
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(response)
        finally:
            self._pending.pop(future, None)

    # -- telemetry

    def make_collector(self) -> ClientCollector:
        """Return the collector of what this client measures, for the reporter. Synchronous."""
        if self._collector is None:
            # Clients that report no metrics need not import this module.
            from aiokclient.telemetry.collector import ClientCollector

            self._collector = ClientCollector(
                self.metrics, self.application_metrics, self.clock, self.make_log("telemetry")
            )
        return self._collector

    # -- connections ------------------------------------------------------------------------

    async def connect(
        self, node_id: int, purpose: Purpose, owner: Hashable = None
    ) -> BrokerConnection:
        """Return a connection to a broker, opened if necessary.

        There is one attempt, after the reconnect backoff. Its setup timeout is the only deadline.
        Raises DisconnectedError, ConnectionSetupError, UnsupportedVersionError, and
        InvalidMetadataError for an unknown broker. During a rebootstrap, the call waits. A
        cancellation does not end the attempt for other callers.
        """
        return await self._connect(node_id, purpose, owner)

    async def connect_any(self, request: type[Request[Any]]) -> BrokerConnection:
        """Return a control connection to a broker that supports the request; see `connect`."""
        return await self._connect(None, Purpose.CONTROL, None, request)

    async def _connect(
        self,
        node_id: int | None,
        purpose: Purpose,
        owner: Hashable,
        request: type[Request[Any]] | None = None,
    ) -> BrokerConnection:
        """Return a connection to a broker, or without an id, to any broker for the request."""
        requests = self._metadata_requests
        while True:
            if not requests.is_open:
                await requests.wait_until_open()
            if node_id is not None:
                connection = await self.brokers.find_pool(node_id).get_connection(purpose, owner)
            elif purpose is Purpose.CONTROL:
                connection = await self.brokers.connect_any(request)
            else:
                connection = await self.brokers.choose_pool().get_connection(purpose, owner)
            if requests.is_open:  # Otherwise a rebootstrap has begun meanwhile.
                return connection

    def find_connection(
        self, node_id: int, purpose: Purpose, owner: Hashable = None
    ) -> BrokerConnection | None:
        """Return the open connection that `connect` would return, or None. Synchronous."""
        if self._brokers is None or not self._metadata_requests.is_open:
            return None
        return self._brokers.find_connection(node_id, purpose, owner)

    def is_reachable(self, node_id: int) -> bool:
        """Return whether the broker counts as reachable. Synchronous."""
        return self._brokers is not None and self._brokers.is_reachable(node_id)

    def find_last_error(self, node_id: int | None = None) -> KafkaError | None:
        """Return the last error of connecting to a broker, or None if it is connected. Synchronous.

        Without a broker, return the last error of requesting metadata, or None if that succeeded.
        """
        if node_id is None or self._brokers is None:
            return self.updater.last_error or self._metadata_requests.search_error
        return self._brokers.error_of(node_id)

    def measure_silence_s(self, node_id: int) -> float:
        """Return the seconds for which a broker has not answered or accepted a connection.

        Returns 0.0 if no answer is due. Synchronous.
        """
        return 0.0 if self._brokers is None else self._brokers.measure_silence_s(node_id)

    def release_owner(self, owner: Hashable) -> None:
        """Close the connections of an owner, and stop keeping metadata for it. Synchronous."""
        self.updater.unwant_topics(owner)
        if self._brokers is not None:
            self._brokers.release_owner(owner)

    def list_troubles(self) -> list[str]:
        """Return readable reasons why the client may not work well, if any. Synchronous."""
        if not self.reached:
            # `Health.brokers` has the error of each broker.
            return ["no broker has responded yet"]
        missed = self._metadata_requests.list_troubles()
        if self._brokers is not None and self._brokers.reachability.lost:
            # `Health.brokers` has the error of each broker.
            return [*self._brokers.list_refused_logins(), "no broker can be reached", *missed]
        if self._brokers is not None:
            missed = [*self._brokers.list_refused_logins(), *missed]
        error = self.updater.last_error
        if error is None:
            return missed
        return [f"metadata cannot be refreshed: {one_line(error.message or str(error))}", *missed]


def top_level_error(response: Any) -> KafkaError | None:
    """Return the top-level error of a response, or None if it has no such field or error."""
    code = getattr(response, "error_code", 0)
    if not code:
        return None
    message = getattr(response, "error_message", None)
    if message and message.startswith("Request Request("):
        # A broker that refuses a request which it would forward to the controller dumps its own
        # representation of the request (Kafka 4.4).
        message = None
    return error_for(code, message)
