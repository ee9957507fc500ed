"""The reporter: pushes the metrics of one client to the brokers that have subscribed to them.

`states.py` has the table of states. This module has the coroutine around the table. It runs in a
task that does not belong to the client's supervisor. The task is created when a connected broker
announces the telemetry requests, or when the application wants the client instance id. If the task
dies, the client logs one warning, and continues without it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from uuid import UUID

from aiokclient import threads
from aiokclient.background import loop_ends, new_task
from aiokclient.clock import Clock
from aiokclient.config.client import ClientConfig
from aiokclient.errors import (
    ApiTimeoutError,
    ClosedError,
    IllegalStateError,
    KafkaError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.metrics import Metrics
from aiokclient.network.connection import BrokerConnection
from aiokclient.policy import Backoff
from aiokclient.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from aiokclient.protocol.messages.push_telemetry import PushTelemetryRequest
from aiokclient.protocol.schema import Request, Response
from aiokclient.scopes import new_scope
from aiokclient.telemetry import LAST_PUSH_S
from aiokclient.telemetry.states import (
    TABLE,
    ReporterEffect,
    ReporterEvent,
    ReporterState,
    event_of,
)
from aiokclient.telemetry.subscription import DEFAULT_INTERVAL_S, Subscription, subscription_of

if TYPE_CHECKING:
    from aiokclient.telemetry.collector import ClientCollector
    from aiokclient.telemetry.pushes import Payload, Pushes

R = TypeVar("R", bound=Response)

DELAY_S: Final = 1.0
"""The longest random delay before the first request, in seconds."""
SPREAD: Final = (0.5, 1.5)
"""The range of the random delay before a subscription's first push, in push intervals (KIP-714)."""
FORBIDDEN_S: Final = 1_800.0
"""Seconds until the next request after an authorization error."""
FINISH_S: Final = 0.2
"""Seconds for which a close still waits for the response to a push that is in flight."""
STOP_S: Final = 2.0
"""Seconds that the cancelled task may take to end."""
NO_IDS: Final = (0, 1)
"""UUIDs that Kafka reserves. They identify no client."""
CONSEQUENCES: Final[Mapping[ReporterEvent, str]] = {
    ReporterEvent.OUTDATED: "The subscription to client metrics is requested again.",
    ReporterEvent.CODEC_REFUSED: "Client metrics are compressed differently from now on.",
    ReporterEvent.TOO_LARGE: "Fewer client metrics are pushed at once from now on.",
    ReporterEvent.POSTPONED: "Client metrics are pushed again after an interval.",
    ReporterEvent.FORBIDDEN: "Client metrics are pushed again after half an hour.",
    ReporterEvent.REFUSED: "No more client metrics are pushed.",
}
"""The consequences of a refusal, for the log."""


class ReportingClient(Protocol):
    """The client that reports: its connections, and the source of its metrics."""

    @property
    def is_forked(self) -> bool:
        """Whether this is the copy of a client in a forked process."""

    def make_collector(self) -> ClientCollector:
        """Return the source of the metrics. It is created at the first call."""

    def has_announced(self) -> bool:
        """Return whether a connected broker announces the telemetry requests. Synchronous."""

    async def connect(self, preferred: int | None, avoided: int | None) -> BrokerConnection | None:
        """Return the control connection to a connected broker that announces telemetry requests.

        It is the broker `preferred`, if possible. `avoided` is used only if there is no other one.
        Returns None if no such broker is connected.
        """

    async def connect_any(self) -> BrokerConnection:
        """Return the control connection to any broker that announces the telemetry requests.

        The connection is opened if necessary. Raises UnsupportedVersionError if no broker announces
        the requests, and an error if no connection can be opened.
        """


class Reporter:
    """The reporter of one client. It belongs to the event loop in which the client was started."""

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        log: ClientLog,
        metrics: Metrics,
        client: ReportingClient,
    ) -> None:
        self._request_s = config.request_timeout_ms / 1000
        self._clock = clock
        self._log = log
        self._client = client
        self._backoff = Backoff.of(config)
        self._context = contextvars.Context()
        self._task: asyncio.Task[None] | None = None
        self._state = ReporterState.SEARCHING
        self._event: ReporterEvent | None = None
        """The last event."""
        self._closing = False
        self._failure: Exception | None = None
        """The error that has ended the pushes: a broker's refusal, or an error in the task."""
        self._dead = False
        self._id: UUID | None = None
        self._waiters: dict[asyncio.Future[UUID], None] = {}
        self._wanted = False
        self._attempts = 0
        """The number of requests that have failed without a response since the last response."""
        self._wake = asyncio.Event()
        self._due = math.inf
        self._throttled_until = -math.inf
        self._interval_s = DEFAULT_INTERVAL_S
        self._subscription: Subscription | None = None
        self._metrics = metrics
        self._created_ms = clock.time_ms()
        self._made_pushes: Pushes | None = None
        self._node_id: int | None = None
        """The broker that has responded last."""
        self._avoided: int | None = None
        self._warned: set[object] = set()
        self._last_error: Exception | None = None
        self._effects: dict[ReporterEffect, Callable[[], Awaitable[ReporterEvent | None] | None]]
        self._effects = {
            ReporterEffect.DELAY: self._wait_for_first_push,
            ReporterEffect.WAIT: self._wait_interval,
            ReporterEffect.SPREAD: self._wait_spread_delay,
            ReporterEffect.WAIT_LONG: lambda: self._wait_for(FORBIDDEN_S),
            ReporterEffect.AVOID: self._avoid_broker,
            ReporterEffect.SHRINK: self._shrink_pushes,
            ReporterEffect.SWITCH: self._switch_codec,
            ReporterEffect.FORGET: self._forget_subscription,
            ReporterEffect.ASK: self._request_subscription,
            ReporterEffect.PUSH: self._push_payload,
            ReporterEffect.TERMINATE: self._push_last,
        }

    # -- for the client ---------------------------------------------------------------------

    @property
    def status(self) -> str:
        """The state in one line. It begins with "failed" if the reporter has died."""
        # An error of the reporter never fails the client: metrics for the operators of the brokers
        # are less important than records.
        if self._dead:
            return f"failed: {self._failure!r}"
        if self._state is ReporterState.ENDED and self._failure is not None:
            return f"ended: {self._failure}"
        return self._state.value

    def on_open(self) -> None:
        """Start to follow the connections, in the current context. Synchronous."""
        self._context = contextvars.copy_context()

    def on_connection(self) -> None:
        """Handle a connection that became ready, or that may be used again. Synchronous."""
        if self._closing or self._state is not ReporterState.SEARCHING:
            return
        if self._task is not None:
            self._wake.set()
        elif self._client.has_announced():
            self._start_task()

    async def get_instance_id(self, timeout: float) -> UUID:
        """Return the client instance id, which is requested immediately if it is unknown.

        `timeout` is in seconds. Raises IllegalStateError if the reporter has died,
        UnsupportedVersionError if no broker announces the requests, ApiTimeoutError, and the error
        with which a broker has refused the request.
        """
        if self._id is not None:
            return self._id
        if self._failure is not None:
            raise self._make_waiters_error() from self._failure
        if timeout <= 0:
            raise ApiTimeoutError("The client instance id is not known yet.")
        waiter: asyncio.Future[UUID] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        self._wanted = True
        self._wake.set()
        if self._task is None:
            self._start_task()
        try:
            async with asyncio.timeout(None if timeout == math.inf else timeout) as patience:
                return await waiter
        except TimeoutError:
            if not patience.expired():
                raise
            text = f"No broker returned a client instance id within {timeout:.1f} s."
            raise ApiTimeoutError(text) from self._last_error
        finally:
            self._waiters.pop(waiter, None)

    def begin_close(self) -> None:
        """Begin the last push, if a subscription is in use. Synchronous, idempotent."""
        if not self._closing:
            self._closing = True
            self._wake.set()

    async def close(self, limit_s: float = 0.0) -> None:
        """Wait at most `limit_s` seconds for the last push, and cancel the task if it takes longer.

        Calls that wait for the client instance id fail with ClosedError.
        """
        self.begin_close()
        task, self._task = self._task, None
        try:
            if task is not None and not task.done() and limit_s > 0:
                await asyncio.wait([task], timeout=limit_s)
        finally:
            self._fail_waiters(ClosedError("The client was closed."))
            self._state = ReporterState.CLOSED
            if task is not None and not task.done():
                task.cancel()
                with new_scope(shield=True):
                    await asyncio.wait([task], timeout=STOP_S)

    # -- the task ---------------------------------------------------------------------------

    def _start_task(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = new_task(
            loop, self._run_task(), name="client: telemetry", context=self._context.copy()
        )
        self._task.add_done_callback(self._on_task_end)

    async def _run_task(self) -> None:
        try:
            event: ReporterEvent | None = None
            while self._state is not ReporterState.CLOSED and not self._client.is_forked:
                event = await self._apply_event(
                    await self._wait_for_event() if event is None else event
                )
        except Exception as error:
            self._end_with_error(error)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            # Only KeyboardInterrupt or SystemExit is possible. The event loop raises it itself.
            task.exception()
        elif not self._closing and not loop_ends(task.get_loop()):
            self._end_with_error(
                IllegalStateError("The task of client metrics was cancelled from outside.")
            )

    def _end_with_error(self, error: Exception) -> None:
        self._failure, self._dead = error, True
        self._state = ReporterState.CLOSED
        self._forget_subscription()
        self._fail_waiters(self._make_waiters_error())
        self._warn_once(
            "died",
            "client metrics are not pushed any more, because their task has failed: %r",
            error,
            exc_info=error,
            extra={"event": "telemetry_died"},
        )

    async def _apply_event(self, event: ReporterEvent) -> ReporterEvent | None:
        """Make the transition of an event. Return the event that follows from it, or None."""
        row = TABLE.get((self._state, event))
        if row is None:
            return None
        self._state, self._event = row.state, event
        following: ReporterEvent | None = None
        for effect in row.effects:
            outcome = self._effects[effect]()
            following = outcome if outcome is None else await outcome
        return following

    async def _wait_for_event(self) -> ReporterEvent:
        """Wait for the next event from outside."""
        while True:
            event = self._find_event()
            if event is not None:
                return event
            self._wake.clear()
            left_s = self._due - self._clock.monotonic()
            try:
                async with asyncio.timeout(None if left_s == math.inf else left_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _find_event(self) -> ReporterEvent | None:
        if self._closing:
            return ReporterEvent.CLOSING
        if self._wanted:
            self._wanted = False
            return ReporterEvent.WANTED
        if self._state is ReporterState.SEARCHING:
            return ReporterEvent.FOUND if self._client.has_announced() else None
        if self._clock.monotonic() >= self._due:
            self._due = math.inf
            return ReporterEvent.DUE
        return None

    # -- waiting ----------------------------------------------------------------------------

    def _wait_for(self, seconds: float) -> None:
        self._due = max(self._clock.monotonic() + seconds, self._throttled_until)

    def _wait_for_first_push(self) -> None:
        self._wait_for(self._clock.rng.uniform(0, DELAY_S))

    def _wait_interval(self) -> None:
        seconds = self._interval_s
        if self._waiters and self._event is ReporterEvent.LOST:
            seconds = min(seconds, self._backoff.compute_delay_s(self._attempts, self._clock.rng))
        self._wait_for(seconds)

    def _wait_spread_delay(self) -> None:
        self._wait_for(self._interval_s * self._clock.rng.uniform(*SPREAD))

    @property
    def _pushes(self) -> Pushes:
        """The content of the pushes. Its modules are imported with the first subscription."""
        if self._made_pushes is None:
            from aiokclient.telemetry.pushes import Pushes

            self._made_pushes = Pushes(
                self._clock, self._metrics, self._client, since_ms=self._created_ms
            )
        return self._made_pushes

    # -- what a refusal changes -------------------------------------------------------------

    def _avoid_broker(self) -> None:
        self._avoided, self._node_id = self._node_id, None

    def _shrink_pushes(self) -> None:
        self._pushes.shrink_limit()

    def _switch_codec(self) -> None:
        if self._subscription is not None:
            self._pushes.switch_codec(self._subscription)

    def _forget_subscription(self) -> None:
        if self._subscription is not None:
            self._subscription = None
            self._pushes.discard_payloads()

    # -- the requests -----------------------------------------------------------------------

    async def _request_subscription(self) -> ReporterEvent | None:
        """Request the subscription. Returns None if the client is closed meanwhile."""
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self._id or UUID(int=0))
        outcome = await self._exchange_messages(request, at_least_s=0.0)
        if not isinstance(outcome, Response):
            return outcome
        if self._id is None:
            if outcome.client_instance_id.int in NO_IDS:
                self._warn_once("no id", "a broker has returned no client instance id")
                return ReporterEvent.LOST
            self._learn_id(outcome.client_instance_id)
        new = subscription_of(outcome)
        self._interval_s = new.interval_s
        if not new.names:
            return ReporterEvent.UNSUBSCRIBED
        if new.shortened:
            self._warn_once(
                "shortened", "some prefixes of a subscription to client metrics are ignored"
            )
        if new == self._subscription:
            return ReporterEvent.UNCHANGED
        self._subscription = new
        self._pushes.follow_subscription(new)
        return ReporterEvent.SUBSCRIBED

    def _learn_id(self, instance_id: UUID) -> None:
        self._id = instance_id
        self._log.info("the client instance id is %s", instance_id, extra={"event": "telemetry_id"})
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(instance_id)

    async def _push_payload(self) -> ReporterEvent | None:
        """Push the next payload. Returns None if the client is closed meanwhile."""
        subscription = self._subscription
        if subscription is None:
            return ReporterEvent.OUTDATED
        payload = self._pushes.next_payload or await self._take_payload(subscription, last=False)
        if payload is None:
            return None
        outcome = await self._exchange_messages(
            self._push_request(subscription, payload), at_least_s=FINISH_S
        )
        if isinstance(outcome, Response):
            self._pushes.on_accepted()
            return ReporterEvent.ACCEPTED
        if outcome is not ReporterEvent.TOO_LARGE:
            # The next push contains the values of this one, and what has changed since.
            self._pushes.discard_payloads()
        return outcome

    async def _push_last(self) -> ReporterEvent:
        """Push the metrics for the last time. `close` limits the time for which this may wait."""
        subscription = self._subscription
        if subscription is not None and self._id is not None:
            payload = await self._take_payload(subscription, last=True)
            while payload is not None:
                # Metrics that do not fit into one push go first, in pushes before the last one. A
                # broker may refuse these, because they come too early. It never refuses the last.
                is_last = self._pushes.is_last
                message = self._push_request(subscription, payload, terminating=is_last)
                outcome = await self._exchange_messages(message, at_least_s=math.inf)
                if is_last or outcome is None:
                    break
                if isinstance(outcome, Response):
                    self._pushes.on_accepted()
                else:
                    self._pushes.keep_only_next()
                payload = self._pushes.next_payload
        return ReporterEvent.DONE

    def _push_request(
        self, subscription: Subscription, payload: Payload, *, terminating: bool = False
    ) -> PushTelemetryRequest:
        assert self._id is not None
        return PushTelemetryRequest(
            client_instance_id=self._id,
            subscription_id=subscription.id,
            terminating=terminating,
            compression_type=payload.codec,
            metrics=payload.data,
        )

    async def _take_payload(self, subscription: Subscription, *, last: bool) -> Payload | None:
        """Take the metrics at this moment, and return the first payload.

        Returns None if the client is closed meanwhile, unless this is for the last push.
        """
        pushes = self._pushes
        collected = pushes.take_metrics(subscription)
        if not pushes.takes_long(collected):
            return pushes.add_payloads(pushes.encode_metrics(collected, subscription))
        thread = threads.run(pushes.encode_metrics, collected, subscription)
        if not await self._wait_for_future(thread, at_least_s=math.inf if last else 0.0):
            return None
        return pushes.add_payloads(thread.result())

    async def _exchange_messages(
        self, message: Request[R], at_least_s: float
    ) -> R | ReporterEvent | None:
        """Send a request. Return the response, or the event that says why there is none.

        After the client is closed, continue to wait for the response for `at_least_s` seconds. If
        there is none by then, return None.
        """
        try:
            connection = await self._find_connection()
            if connection is None:
                return None if self._closing else ReporterEvent.MISSING
            sent = connection.send(message, timeout_s=self._request_s)
            if not await self._wait_for_future(sent, at_least_s):
                return None
            response: Any = sent.result()
        except UnsupportedVersionError as error:
            self._fail_waiters(error)
            return ReporterEvent.MISSING
        except (KafkaError, TimeoutError) as error:
            self._last_error = error
            self._node_id = None
            self._attempts += 1
            self._warn_once(
                "lost", "no broker has responded to %s: %s", message.api_key.api_name, error
            )
            return ReporterEvent.LOST
        self._attempts = 0
        self._node_id = connection.broker.node_id
        if response.throttle_time_ms > 0:
            throttle_s = response.throttle_time_ms / 1000
            self._throttled_until = self._clock.monotonic() + throttle_s
        refusal = error_for(response.error_code)
        if refusal is None:
            answer: R = response
            return answer
        return self._on_refusal(response.error_code, refusal, message.api_key.api_name)

    def _on_refusal(self, code: int, error: KafkaError, api: str) -> ReporterEvent:
        error.api, error.broker = api, self._node_id
        self._last_error = error
        event = event_of(code)
        # A changed subscription is an operator's intention, and makes every client ask so soon that
        # brokers may throttle it. One line is enough for both.
        usual = event in (ReporterEvent.OUTDATED, ReporterEvent.POSTPONED)
        self._warn_once(
            "changed" if usual else code,
            "broker %s has refused %s with %s (%d). %s",
            self._node_id,
            api,
            error.name,
            code,
            CONSEQUENCES[event],
            level=logging.INFO if usual else logging.WARNING,
        )
        if event is ReporterEvent.REFUSED:
            self._failure = error
            self._fail_waiters(self._make_waiters_error())
        return event

    async def _find_connection(self) -> BrokerConnection | None:
        found = await self._wait_for_connection(self._client.connect(self._node_id, self._avoided))
        if found is None and self._waiters and not self._closing:
            async with asyncio.timeout(self._request_s):
                found = await self._wait_for_connection(self._client.connect_any())
        return found

    async def _wait_for_connection(
        self, connecting: Coroutine[Any, Any, BrokerConnection | None]
    ) -> BrokerConnection | None:
        """Return a connection, or None if there is none.

        After the client is closed, connecting may take at most `LAST_PUSH_S` more seconds.
        """
        task = new_task(asyncio.get_running_loop(), connecting, name="client: connect to push")
        task.add_done_callback(retrieved)
        return task.result() if await self._wait_for_future(task, LAST_PUSH_S) else None

    async def _wait_for_future(self, future: asyncio.Future[Any], at_least_s: float) -> bool:
        """Wait for a future, and return whether it is done. If it is not, cancel it.

        After the client is closed, continue to wait for `at_least_s` seconds.
        """
        try:
            while not future.done():
                if self._closing:
                    await asyncio.wait(
                        [future], timeout=None if at_least_s == math.inf else at_least_s
                    )
                    break
                await self._wait_for_first(future)
            return future.done()
        finally:
            future.cancel()

    async def _wait_for_first(self, future: asyncio.Future[Any]) -> None:
        """Wait until the future is done, or the reporter is woken."""
        self._wake.clear()
        future.add_done_callback(self._wake_reporter)
        try:
            if not future.done():
                await self._wake.wait()
        finally:
            future.remove_done_callback(self._wake_reporter)

    def _wake_reporter(self, future: asyncio.Future[Any]) -> None:
        self._wake.set()

    # -- errors -----------------------------------------------------------------------------

    def _make_waiters_error(self) -> Exception:
        """Return the error for calls that wait for the id, after it can no longer become known."""
        if self._dead or self._failure is None:
            return IllegalStateError("The reporter of client metrics has failed. See the log.")
        return self._failure

    def _fail_waiters(self, error: Exception) -> None:
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_exception(error)

    def _warn_once(self, key: object, text: str, *args: object, **more: Any) -> None:
        """Log a warning, or a line of another `level`, once for each key."""
        if key not in self._warned:
            self._warned.add(key)
            more.setdefault("extra", {"event": "telemetry_refused"})
            self._log.log(more.pop("level", logging.WARNING), text, *args, **more)


def retrieved(task: asyncio.Task[Any]) -> None:
    """Mark the error of a task as retrieved, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
