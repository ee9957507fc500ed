"""The connections to one broker, by purpose and owner.

A broker processes the requests of one connection one at a time. Therefore requests that may wait at
the broker (such as Fetch or JoinGroup) have connections of their own, and all others share one: see
`Purpose`. There is a *slot* for each pair of purpose and owner. It has a connection, or an attempt
to open one. All callers that wait for a slot share its attempt, and a caller that stops waiting
does not end the attempt for the others.

After a failed attempt or a lost connection, the broker counts as unreachable. The next attempt of
any slot waits for the reconnect backoff, which grows exponentially, with jitter. Only failures to
connect increase the setup timeout, because a broker that accepts connections does not need more
time for that. While an attempt takes long, the pool reports that repeatedly: other brokers may
have newer metadata by then.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

import aiokclient.network.diagnosis as diagnosis
from aiokclient.background import TaskOwner
from aiokclient.config.kinds import written
from aiokclient.errors import (
    ClosedError,
    DisconnectedError,
    KafkaError,
    ProtocolError,
    ResponseTooLargeError,
    TicketError,
    TokenProviderError,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.log.kept_errors import bare
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.event_hub import EventKind
from aiokclient.network.login import Sasl
from aiokclient.network.setup import (
    TLS_HANDSHAKE,
    ConnectionSettings,
    SetupProgress,
    open_connection,
)
from aiokclient.policy import Backoff, refuses_login
from aiokclient.protocol.api import ApiKey
from aiokclient.scopes import new_scope

if TYPE_CHECKING:
    from aiokclient.scopes import CancelScope

SLOW_S = 1.0
SLOWEST_S = 4.0
"""Seconds between reports of a slow attempt: SLOW_S at first, doubling up to SLOWEST_S."""


RENEWED = (0.85, 0.95)
"""The limits of the fraction of a session's lifetime after which the client authenticates again.

The fraction is random, so that connections do not authenticate at the same time (KIP-368).
"""


LOGIN_INTERVAL_S = 1.0
"""The minimum time in seconds between two logins of a connection, as brokers require it."""


class Purpose(Enum):
    """The use of a connection. CONTROL and PRODUCE are shared. The others belong to an owner."""

    CONTROL = "control"
    PRODUCE = "produce"
    FETCH = "fetch"
    JOIN = "join"
    GROUP = "group"
    TRANSACTION = "transaction"


class PoolOwner(TaskOwner):
    """The object to which pools belong. It is told what happens to them; here, it ignores that."""

    def on_pool_failure(self) -> None:
        """React to an attempt that failed, or to a connection that was lost."""

    def on_broker_reachable(self, pool: ConnectionPool) -> None:
        """React to a connection that is ready, or to a response."""

    def on_slow_attempt(self) -> None:
        """React to an attempt that takes long. Called repeatedly."""

    def on_connection_end(self) -> None:
        """React to the end of an open connection, except by `close_gracefully` and `close`."""

    def on_wrong_broker(self) -> None:
        """React to a connection that has reached another broker or cluster."""

    def on_refused_login(self, purpose: Purpose, error: KafkaError) -> None:
        """React to a login that a broker refuses."""


class _Slot:
    __slots__ = (
        "attempt",
        "began",
        "connecting",
        "connection",
        "key",
        "progress",
        "released",
        "timer",
        "waiters",
    )

    def __init__(self, key: tuple[Purpose, Hashable]) -> None:
        self.key = key
        self.connection: BrokerConnection | None = None
        self.connecting = False
        self.attempt: CancelScope | None = None
        """The scope of the current attempt."""
        self.progress = SetupProgress()
        """The progress of the current attempt."""
        self.began: float | None = None
        """The time at which the current attempt began to connect, or None before that."""
        self.timer: asyncio.TimerHandle | None = None
        self.released = False
        self.waiters: list[asyncio.Future[BrokerConnection]] = []

    def settle_attempt(self, outcome: BrokerConnection | Exception) -> None:
        """End the attempt with an outcome."""
        self.connecting = False
        self.pass_to_waiters(outcome)

    def end_attempt(self) -> None:
        """End the attempt without an outcome, and close its connection. Synchronous."""
        if self.attempt is not None:
            self.attempt.cancel()

    def pass_to_waiters(self, outcome: BrokerConnection | Exception) -> None:
        """Pass the outcome to all waiting callers. The attempt may still be in progress."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if waiter.done():
                continue
            if isinstance(outcome, Exception):
                waiter.set_exception(outcome)
            else:
                waiter.set_result(outcome)


class ConnectionPool:
    """All connections to one broker. The `node_id` of a bootstrap server is negative.

    `backoff` has the delays between attempts to connect, and `setup` their time limits, which grow
    with failures. `is_first_contact` tells whether the security options may be wrong, because no
    broker has answered the client yet.
    """

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        settings: ConnectionSettings,
        *,
        owner: PoolOwner,
        backoff: Backoff,
        setup: Backoff,
        rng: random.Random,
        is_first_contact: bool = True,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.address = written((host, port))
        self.last_error: KafkaError | None = None
        self.reachable = True
        self.failed_at = 0.0
        """The time of `last_error`, on the loop's clock."""
        self.refused = False
        """Whether the last attempt to connect failed."""
        self.confirmed = False
        """Whether the broker itself has confirmed that it has this id (KIP-1242)."""
        self._hangs = False
        """Whether the last attempt to connect failed because of a timeout."""
        self._settings = settings
        self._backoff = backoff
        self._setup = setup
        self._rng = rng
        self._owner = owner
        self._log = ClientLog("aiokclient", settings.client_id, settings.group_id)
        self._was_resolved = False
        self._slots: dict[tuple[Purpose, Hashable], _Slot] = {}
        self._failures = 0
        self._not_connected = 0
        """The number of consecutive failures to connect."""
        self._not_before = 0.0
        self._rung = 0
        self._is_first_contact = is_first_contact
        self._advises = settings.sasl is None and (is_first_contact or node_id >= 0)
        self._ever_answered = False
        """Whether the broker has answered a request, other than ApiVersions, without a login."""
        self._advice: asyncio.Future[str] | None = None
        """The advice about connections that end without an answer, once it is known."""
        self._retired = False
        self._closed = False
        self._too_large: set[str | None] = set()
        """The APIs with a response that was too large."""
        self._logged_in_at = 0.0
        """The time of the last login, on the loop's clock."""
        self._renewals: dict[BrokerConnection, asyncio.TimerHandle] = {}
        """The timers of the next authentications on open connections."""

    def __repr__(self) -> str:
        state = "closed" if self._closed else "reachable" if self.reachable else "unreachable"
        return f"<ConnectionPool {self.node_id} {self.address}, {state}>"

    # -- requesting connections --------------------------------------------------------------

    def find_connection(self, purpose: Purpose, owner: Hashable = None) -> BrokerConnection | None:
        """Return the open connection of a slot, or None if there is none. Synchronous."""
        slot = self._slots.get((purpose, owner))
        return None if slot is None else slot.connection

    async def get_connection(self, purpose: Purpose, owner: Hashable = None) -> BrokerConnection:
        """Return the open connection of a slot, opened if necessary.

        The reconnect backoff and the setup timeout of one attempt are the only deadline. Raises
        the errors of `open_connection`, ClosedError, and an unexpected error (a bug) of the
        attempt, which also fails the client. A cancellation does not end the attempt for other
        callers.
        """
        slot = self._slots.get((purpose, owner))
        if slot is not None and slot.connection is not None:
            return slot.connection
        return await self.request_connection(purpose, owner)

    def request_connection(
        self, purpose: Purpose, owner: Hashable = None
    ) -> asyncio.Future[BrokerConnection]:
        """Return a future of the connection, to await several together. Synchronous."""
        waiter: asyncio.Future[BrokerConnection] = asyncio.get_running_loop().create_future()
        if self._closed:
            waiter.set_exception(ClosedError("The client is closed."))
            return waiter
        slot = self._slots.setdefault((purpose, owner), _Slot((purpose, owner)))
        if slot.connection is not None:
            waiter.set_result(slot.connection)
            return waiter
        slot.waiters.append(waiter)
        if not slot.connecting:
            slot.connecting = True
            name = f"connect to {self.address} for {purpose.value}"
            self._owner.spawn(self._attempt_connection, slot, name=name)
        return waiter

    @property
    def resolved(self) -> bool:
        """Whether the name of the broker has been resolved."""
        attempts = self._slots.values()
        return self._was_resolved or any(slot.progress.is_resolved for slot in attempts)

    @property
    def in_flight(self) -> int:
        """The number of requests without an outcome on all connections."""
        return sum(connection.in_flight for connection in self.open_connections())

    @property
    def not_before(self) -> float:
        """The earliest time of the next attempt, on the loop's clock. It may be in the past."""
        return self._not_before

    @property
    def busy(self) -> bool:
        """Whether there is a connection or an attempt to open one."""
        return any(slot.connecting or slot.connection for slot in self._slots.values())

    def has_failed_since(self, since: float) -> bool:
        """Return whether the last attempt to connect failed, and did so at or after `since`."""
        return self.refused and self.failed_at >= since

    def is_unavailable(self, since: float) -> bool:
        """Return whether the broker refuses connections (KIP-899).

        That means: there is no connection, none is being made, and the last attempt was refused,
        either after `since` or so recently that the reconnect backoff has not ended. An attempt
        that timed out was not refused. A broker that refuses the login has responded.
        """
        slots = self._slots.values()
        if any(slot.connection is not None or slot.began is not None for slot in slots):
            return False
        if not self.refused or self._hangs or refuses_login(self.last_error):
            return False
        return self.failed_at >= since or asyncio.get_running_loop().time() < self._not_before

    def measure_attempt_s(self, purpose: Purpose, owner: Hashable = None) -> float:
        """Return the duration of the slot's attempt so far in seconds, without the backoff."""
        slot = self._slots.get((purpose, owner))
        if slot is None or slot.began is None:
            return 0.0
        return asyncio.get_running_loop().time() - slot.began

    def open_connections(self) -> list[BrokerConnection]:
        return [s.connection for s in self._slots.values() if s.connection is not None]

    # -- connecting -------------------------------------------------------------------------

    async def _attempt_connection(self, slot: _Slot) -> None:
        outcome: BrokerConnection | Exception = ClosedError("The client is closed.")
        try:
            with new_scope() as slot.attempt:
                try:
                    outcome = self._install_connection(slot, await self._open_connection(slot))
                finally:
                    slot.attempt = None
        except KafkaError as error:
            # The error's tracebacks refer to the transport, whose buffer for TLS is large.
            outcome = bare(error)
            # Without a token or a ticket, the client has not asked the broker.
            self.refused = not isinstance(error, TokenProviderError | TicketError)
            self._hangs = isinstance(error, diagnosis.TimedOutError | diagnosis.SilentError)
            refused = isinstance(error, diagnosis.NotConnectedError)
            self._not_connected = self._not_connected + 1 if refused else 0
            self._emit_event("Disconnected", connected=False, cause=error)
            self._mark_unreachable(error)
            if refuses_login(error):
                self._owner.on_refused_login(slot.key[0], error)
            if isinstance(error, diagnosis.WrongBrokerError):
                self._owner.on_wrong_broker()
        except Exception as error:
            outcome = error  # A bug: all callers get the error.
            raise
        finally:
            slot.settle_attempt(outcome)
            del outcome

    async def _open_connection(self, slot: _Slot) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        delay = self._not_before - loop.time()
        if delay > 0:
            await asyncio.sleep(delay)
        slot.began = loop.time()
        slot.timer = loop.call_later(SLOW_S, self._on_slow_timer, slot, SLOW_S)
        try:
            return await open_connection(
                self.node_id,
                self.host,
                self.port,
                self._settings,
                # The limit grows with failures to connect, so that a slow network is not given up
                # (KIP-601).
                timeout_s=self._setup.compute_delay_s(self._not_connected, self._rng),
                rung=self._rung,
                examine=self._is_first_contact,
                progress=slot.progress,
            )
        finally:
            slot.timer.cancel()
            self._was_resolved |= slot.progress.is_resolved
            slot.began, slot.progress = None, SetupProgress()

    def _on_slow_timer(self, slot: _Slot, after_s: float) -> None:
        if self._closed or self._retired:
            return
        next_s = min(2 * after_s, SLOWEST_S)
        slot.timer = asyncio.get_running_loop().call_later(
            next_s, self._on_slow_timer, slot, next_s
        )
        self._owner.on_slow_attempt()

    def _install_connection(
        self, slot: _Slot, connection: BrokerConnection
    ) -> BrokerConnection | KafkaError:
        if self._closed or slot.released:
            connection.close()
            return ClosedError("The client is closed.")
        if self._retired:
            connection.close()
            return self._make_moved_error()
        slot.connection = connection
        self._failures, self._not_before = 0, 0.0
        self.mark_reachable()
        self._not_connected = 0
        connection.on_close(lambda closed, reason: self._on_connection_lost(slot, closed, reason))
        self._emit_event("Connected")
        self._plan_next_login(connection, again=False)
        return connection

    def mark_reachable(self) -> None:
        """Mark the broker as reachable, because it has responded, perhaps on another connection."""
        self.reachable, self.refused, self.last_error = True, False, None
        self._owner.on_broker_reachable(self)

    def _on_connection_lost(
        self, slot: _Slot, connection: BrokerConnection, reason: KafkaError | None
    ) -> None:
        slot.connection = None
        if self._slots.get(slot.key) is slot and not slot.connecting:
            del self._slots[slot.key]
        if asyncio._get_running_loop() is None:
            # In a forked process that ends by sys.exit(), uvloop reads the socket once more after
            # the loop has stopped. No one waits for this connection there.
            return
        self._emit_event("Disconnected", connected=True, cause=reason)
        if isinstance(reason, ResponseTooLargeError):
            self._log_too_large(reason)
        elif reason is not None and not self._closed:
            self._mark_unreachable(reason)
            self._doubt_login(connection)
        if not self._closed and not self._retired:
            self._owner.on_connection_end()

    def _doubt_login(self, connection: BrokerConnection) -> None:
        """Find out whether a lost connection may have ended because the client does not log in."""
        if any(each.has_answered for each in (connection, *self.open_connections())):
            self._ever_answered = True
        if not self._advises or self._ever_answered or not connection.never_answered:
            return
        if self._advice is None:
            self._advice = asyncio.get_running_loop().create_future()
            self._owner.spawn(
                self._find_advice, self._advice, name=f"ask {self.address} for its mechanisms"
            )
        elif self._advice.done():
            self._add_advice(self._advice.result())

    async def _find_advice(self, advice: asyncio.Future[str]) -> None:
        from aiokclient.network.probe import advise_login

        text = ""
        try:
            text = await advise_login(self.host, self.port, self._settings, self._rung)
        finally:
            advice.set_result(text)
        self._add_advice(text)

    def _add_advice(self, advice: str) -> None:
        """Add the advice to the error of the lost connection, unless another one has followed."""
        error = self.last_error
        if advice and error is not None and not self.refused:
            self.last_error = _advised(error, advice)

    @property
    def progress(self) -> str:
        """The step awaited from a server that accepted a connection, or an empty text."""
        slots = self._slots.values()
        awaited = [slot.progress.awaited for slot in slots if slot.progress.awaited]
        awaited += [name for each in self.open_connections() if (name := each.awaited)]
        if not awaited:
            return ""
        asks = " (does it speak TLS on this port?)" if awaited[0] == TLS_HANDSHAKE else ""
        return f"accepted the connection, but has not answered {awaited[0]} yet{asks}"

    @property
    def advice(self) -> str:
        """The advice about a broker that never answers, or an empty text."""
        advice = self._advice
        return "" if advice is None or not advice.done() else advice.result()

    async def explain_error(self, error: KafkaError) -> tuple[KafkaError, bool]:
        """Return the error of a request with advice about the login, and whether there is any.

        Waits until it is known, if the connection was lost without an answer.
        """
        if self._advice is None or self._ever_answered or not error.retriable or self.refused:
            return error, False
        advice = await asyncio.shield(self._advice)
        return (_advised(error, advice), True) if advice else (error, False)

    def _log_too_large(self, error: ResponseTooLargeError) -> None:
        """Log the first response of each API that is too large. The broker remains reachable.

        What fetches records raises the error, with the partition, and logs it where necessary.
        """
        if error.api in self._too_large or error.api == ApiKey.FETCH.api_name:
            return
        self._too_large.add(error.api)
        self._log.warning(
            "broker %s (%s): A response to %s has %d bytes, and receive_message_max_bytes is %d.",
            self.node_id,
            self.address,
            error.api,
            error.size,
            error.limit,
            extra={"event": "response_too_large", "broker": self.node_id, "api": error.api},
        )

    def _mark_unreachable(self, error: KafkaError) -> None:
        if self.reachable and self.node_id >= 0:
            # A lost connection is normal. A malformed response is a lasting problem, so warn.
            strange = isinstance(error, ProtocolError)
            self._log.log(
                logging.WARNING if strange else logging.INFO,
                "broker %s (%s): %s",
                self.node_id,
                self.address,
                error.message or error,
                extra={
                    "event": "broker_misbehaved" if strange else "broker_disconnected",
                    "broker": self.node_id,
                },
            )
        self.last_error = error
        self.reachable = False
        self.failed_at = now = asyncio.get_running_loop().time()
        self._not_before = now + self._backoff.compute_delay_s(self._failures, self._rng)
        self._failures += 1
        # Maybe the server did not know the version of ApiVersions.
        if isinstance(error, diagnosis.ClosedEarlyError):
            self._rung += 1
        self._owner.on_pool_failure()

    def _emit_event(self, kind: EventKind, **fields: Any) -> None:
        events = self._settings.events
        if events is not None and events.heard:
            broker = self.node_id if self.node_id >= 0 else None
            events.emit(kind, broker=broker, address=self.address, **fields)

    # -- authenticating again ----------------------------------------------------------------

    def _plan_next_login(self, connection: BrokerConnection, *, again: bool) -> None:
        """Plan the next authentication, if the broker limits the time for which it accepts one."""
        sasl, lifetime_ms = self._settings.sasl, connection.broker.session_lifetime_ms
        if sasl is None:
            return
        events = self._settings.events
        if events is not None:
            events.emit(
                "Authenticated",
                broker=self.node_id if self.node_id >= 0 else None,
                mechanism=sasl.mechanism,
                again=again,
                lifetime_ms=lifetime_ms,
            )
        if lifetime_ms > 0:
            lifetime_s = lifetime_ms / 1000
            after_s = lifetime_s * self._rng.uniform(*RENEWED)
            loop = asyncio.get_running_loop()
            self._logged_in_at = loop.time()
            ends_at = loop.time() + lifetime_s
            if connection not in self._renewals:
                connection.on_close(self._forget_renewal)
            renew = partial(self._spawn_login, connection, sasl, ends_at)
            if lifetime_s < LOGIN_INTERVAL_S:
                # The requests wait for the next login: the broker would close the connection.
                self._renewals[connection] = loop.call_later(
                    after_s, self._suspend_requests, connection, LOGIN_INTERVAL_S - after_s, renew
                )
            else:
                self._renewals[connection] = loop.call_later(max(after_s, LOGIN_INTERVAL_S), renew)

    def _suspend_requests(
        self, connection: BrokerConnection, seconds: float, renew: Callable[[], None]
    ) -> None:
        """Hold the requests of a session that is about to end, until the next login."""
        connection.hold_requests()
        self._renewals[connection] = asyncio.get_running_loop().call_later(seconds, renew)

    def _forget_renewal(self, connection: BrokerConnection, reason: KafkaError | None) -> None:
        self._renewals.pop(connection).cancel()
        if connection.broker.session_lifetime_ms < 1000 * LOGIN_INTERVAL_S:
            self._not_before = max(self._not_before, self._logged_in_at + LOGIN_INTERVAL_S)

    def _spawn_login(self, connection: BrokerConnection, sasl: Sasl, ends_at: float) -> None:
        if not self._closed:
            name = f"log in again to {self.address}"
            self._owner.spawn(self._log_in_again, connection, sasl, ends_at, name=name)

    async def _log_in_again(self, connection: BrokerConnection, sasl: Sasl, ends_at: float) -> None:
        """Authenticate again on an open connection.

        Without that, the broker closes the connection when it reads the first request after
        `ends_at`. If the event loop was blocked until then, the client authenticates late, which
        brokers permit.
        """
        loop = asyncio.get_running_loop()
        timeout_s = self._setup.compute_delay_s(0, self._rng)
        login = None
        while login is None and not connection.closed:
            left_s = ends_at - loop.time()
            try:
                login = await sasl.prepare_login(self.host, left_s if left_s > 0 else timeout_s)
            except KafkaError as error:  # The token source logs it and tries again after a delay.
                if loop.time() >= ends_at:
                    if connection.is_suspended:
                        connection.close(error)  # Nothing else would end the wait of its requests.
                    return
        if login is None or connection.closed:
            return
        begun = loop.time()
        from aiokclient.network.authentication import authenticate_again

        await authenticate_again(connection, sasl, login, timeout_s)
        self._count_login(connection, loop.time() - begun)

    def _count_login(self, connection: BrokerConnection, seconds: float) -> None:
        """Count the outcome of another authentication."""
        if connection.closed:
            connection.traffic.count_failed_authentication(again=True)
        else:
            connection.traffic.count_authentication(seconds)
            self._plan_next_login(connection, again=True)

    # -- closing -----------------------------------------------------------------------------

    def set_broker_id(self, node_id: int) -> None:
        """Set the broker id, once it is known which broker the bootstrap server is."""
        self.node_id = node_id
        for connection in self.open_connections():
            connection.set_broker_id(node_id)

    def mark_confirmed(self) -> None:
        """Record that the broker has confirmed its id."""
        self.confirmed = True

    def close_connections(self, why: KafkaError) -> None:
        """Close all connections immediately, also those that are being set up.

        Requests in flight and callers get a retriable error.

        The pool keeps its backoff, and opens new connections when it is asked for one. Synchronous.
        """
        self.confirmed = False
        for slot in list(self._slots.values()):
            self._end_slot(slot, DisconnectedError(why.message, broker=self.node_id), why)

    def release_owner(self, owner: Hashable) -> None:
        """Close the connections of an owner. Its waiting callers get ClosedError."""
        for slot in [slot for slot in self._slots.values() if slot.key[1] is owner]:
            self._end_slot(slot, ClosedError("The client is closed."))

    def close_gracefully(self) -> None:
        """Close the connections gracefully, because the broker has another address now, or none.

        Each connection closes once no request is in flight. Waiting callers get DisconnectedError.
        """
        self._retired = True
        for connection in self.open_connections():
            connection.close_when_idle()
        for slot in self._slots.values():
            slot.pass_to_waiters(self._make_moved_error())
            slot.end_attempt()

    def _make_moved_error(self) -> KafkaError:
        return DisconnectedError("The broker has another address now.", broker=self.node_id)

    def close(self) -> None:
        """Close all connections. Waiting callers get ClosedError. Synchronous, idempotent."""
        self._closed = True
        for slot in list(self._slots.values()):
            self._end_slot(slot, ClosedError("The client is closed."))

    def _end_slot(self, slot: _Slot, outcome: KafkaError, reason: KafkaError | None = None) -> None:
        """Close the connection of a slot with a reason. Its waiting callers get the outcome."""
        self._slots.pop(slot.key, None)
        slot.released = True
        slot.end_attempt()
        if slot.connection is not None:
            slot.connection.close(reason)
        slot.settle_attempt(outcome)


def _advised(error: KafkaError, advice: str) -> KafkaError:
    """Return a DisconnectedError with the text of `error` and the advice."""
    said = error.message or str(error)
    return DisconnectedError(f"{said} {advice}", api=error.api, broker=error.broker)
