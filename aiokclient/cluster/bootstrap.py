"""The bootstrap: the first contact with a cluster, by the first bootstrap server that responds.

The client tries the servers concurrently. It begins with the next server when the previous one
has failed or has not responded for a second, so that a server that drops packets costs a second
and not its whole timeout. It retries each server after the reconnect backoff, until one responds,
the deadline passes, or all servers have failed with errors that waiting cannot correct. Their names
are looked up before, and one log line has those that are not resolved.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokclient import threads
from aiokclient.clock import Clock
from aiokclient.cluster.metadata.controllers import as_metadata, check_kind, make_brokers_request
from aiokclient.cluster.requests.attempts import LastAnswer
from aiokclient.config.client import ClientConfig
from aiokclient.config.kinds import written
from aiokclient.errors import (
    BootstrapError,
    InvalidMetadataError,
    KafkaError,
    error_for,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.log.kept_errors import bare
from aiokclient.network.diagnosis import ClosedEarlyError, UnresolvedError
from aiokclient.network.pool import ConnectionPool, Purpose
from aiokclient.network.setup import RUNGS, confirms, identifying_request
from aiokclient.network.transport import delayed_by, resolve
from aiokclient.policy import Attempts, Backoff, ends_start, refuses_login
from aiokclient.scopes import new_group, new_scope_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokclient.cluster.client import ClusterClient
    from aiokclient.config.client import ClientConfig
    from aiokclient.errors import KafkaError
    from aiokclient.log.client_log import ClientLog
    from aiokclient.network.connection import BrokerConnection
    from aiokclient.network.setup import ClusterCheck
    from aiokclient.network.transport import Address, Connector
    from aiokclient.policy import Attempts
    from aiokclient.protocol.messages.metadata import MetadataResponse
    from aiokclient.scopes import CancelScope

Server = tuple[str, int]


class UnresolvedNames:
    """The names that are not resolved during one bootstrap, for one line of the log."""

    def __init__(self, log: ClientLog, level: int, connector: Connector) -> None:
        self._log = log
        self._level = level
        self._connector = connector
        self._texts: dict[str, str] = {}
        self._told = False

    def add_name(self, address: str, error: KafkaError) -> None:
        """Add the address of a bootstrap server, with the error of the resolution."""
        self._texts.setdefault(address, error.message or str(error))

    def describe_pending(self, host: str) -> str:
        """Return the outcome for a name whose resolution has not ended."""
        return f"its name was not resolved yet{delayed_by(self._connector, host)}"

    def log_names(self) -> None:
        """Log the names, unless there are none or they have been logged."""
        if self._told or not self._texts:
            return
        self._told = True
        self._log.log(
            self._level,
            "Names of bootstrap servers are not resolved. %s",
            " ".join(dict.fromkeys(self._texts.values())),
            extra={"event": "bootstrap_failed", "address": ", ".join(self._texts)},
        )


async def servers_of(
    config: ClientConfig,
    connector: Connector,
    lookup_s: float,
    retry: Attempts,
    unresolved: UnresolvedNames,
) -> list[Server]:
    """Return the names and ports of the bootstrap servers, according to `client_dns_lookup`.

    With `resolve_canonical_bootstrap_servers_only` each address of a name becomes a server, under
    its canonical name. All names are looked up at the same time, for at most `lookup_s` seconds. If
    no name is resolved, the lookups are repeated until the deadline of `retry`. A name that is not
    resolved by then, or has no canonical name, remains in the list.
    """
    given = tuple(dict.fromkeys(config.initial_servers))
    if config.client_dns_lookup == "use_all_dns_ips":
        return list(given)
    while True:
        servers = await _look_up(given, connector, lookup_s, unresolved)
        if servers:
            return servers
        unresolved.log_names()
        left_s = retry.remaining_s
        if left_s <= 0:
            return list(given)
        await asyncio.sleep(min(retry.take_pause_s(), left_s))
        lookup_s = min(lookup_s, max(retry.remaining_s, 0.0))


async def _look_up(
    given: Iterable[Server], connector: Connector, lookup_s: float, unresolved: UnresolvedNames
) -> list[Server]:
    """Return the servers that the names stand for, or an empty list if none is resolved."""
    lookups = [_canonical(server, connector, lookup_s) for server in given]
    outcomes = await asyncio.gather(*lookups, return_exceptions=True)
    servers: dict[Server, None] = {}
    found = False
    for server, outcome in zip(given, outcomes, strict=True):
        if isinstance(outcome, UnresolvedError):
            unresolved.add_name(written(server), outcome)
            servers[server] = None
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            found = True
            servers.update(dict.fromkeys(outcome))
    return list(servers) if found else []


async def _canonical(server: Server, connector: Connector, lookup_s: float) -> list[Server]:
    """Return the canonical names of a server's addresses, or the server if the lookup takes long.

    Raises UnresolvedError if it has no address.
    """
    deadline = asyncio.get_running_loop().time() + lookup_s
    addresses = await resolve(connector, *server, lookup_s)
    try:
        async with asyncio.timeout_at(deadline):
            return await asyncio.gather(*(_name_of(address, server[0]) for address in addresses))
    except TimeoutError:
        return [server]


async def _name_of(address: Address, given: str) -> Server:
    """Return the canonical name of an address, or the given name if the system finds none."""
    try:
        # Kerberos needs the canonical names of the brokers (client_dns_lookup, KIP-235).
        name, _ = await threads.run_blocking(socket.getnameinfo, address, socket.NI_NUMERICSERV)
    except OSError:
        name = given
    return name, address[1]


STAGGER_S = 1.0
NO_NAME = "No name was resolved within bootstrap_resolve_timeout_ms:"
NONE_CONNECTED = "None of the brokers could be reached at the address that it advertises."


class Bootstrap:
    """One search for a bootstrap server that responds. `reach_server` is called once."""

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        pools: list[ConnectionPool],
        unresolved: UnresolvedNames,
        advised: set[str],
        cluster: ClusterCheck | None = None,
        *,
        level: int = logging.WARNING,
    ) -> None:
        """Create a search. `level` is that of its log lines about servers that do not respond.

        `advised` has the addresses about which the client has said that they may require a login.
        """
        self._config = config
        self._clock = clock
        self._pools = pools
        self._cluster = cluster
        self._unresolved = unresolved
        self._advised = advised
        self._level = level
        self._log = ClientLog.of("aiokclient", config)
        self._backoff = Backoff.of(config)
        self._errors: dict[str, KafkaError] = {}
        self._last = LastAnswer()
        self._told: set[str] = set()
        """The addresses of the servers whose errors were logged."""
        self._hopeless: dict[str, KafkaError] = {}
        self._metadata: MetadataResponse | None = None
        self.server = ""
        """The address of the server that responded."""
        self._moved: asyncio.Future[None]
        """A future that is done when a server has failed."""
        self._deadline: float
        """The end of the search on the monotonic clock."""
        self._resolve_s: float | None = None
        self._is_overdue = False
        """Whether a name was not resolved in time."""

    async def reach_server(
        self, deadline: float, resolve_s: float | None = None
    ) -> MetadataResponse:
        """Return the metadata response of the first server that responds.

        `deadline` is on the monotonic clock. Raises BootstrapError, which lists every server and
        its outcome, if none has responded by then, or if no name was resolved within `resolve_s`
        seconds. With `resolve_s=0`, each name is resolved once. Raises the error of a server
        immediately if waiting can correct none of the servers' errors, or if a server has refused
        the login and no server is left that may respond.
        """
        began = self._clock.monotonic()
        self._deadline, self._resolve_s = deadline, resolve_s
        self._moved = asyncio.get_running_loop().create_future()
        limit: asyncio.TimerHandle | None = None
        stagger_s = STAGGER_S
        with new_scope_of(max(deadline - began, 0.0)) as scope:
            if resolve_s:
                loop = asyncio.get_running_loop()
                limit = loop.call_later(resolve_s, self._end_without_names, scope)
                # The attempts begin close enough together that even the last name can be resolved
                # in time.
                stagger_s = min(stagger_s, resolve_s / 2 / len(self._pools))
            try:
                async with new_group() as group:
                    for pool in self._pools:
                        group.start_soon(self._ask_until_answered, pool, group.cancel_scope)
                        # asyncio.timeout() would cancel this task, and might thereby conceal
                        # another cancellation.
                        await asyncio.wait([self._moved], timeout=stagger_s)
            finally:
                if limit is not None:
                    limit.cancel()
        self._unresolved.log_names()
        if self._metadata is not None:
            return self._metadata
        if len(self._hopeless) == len(self._pools) or self._is_login_refused():
            raise next(filter(refuses_login, self._hopeless.values()), None) or next(
                iter(self._hopeless.values())
            )
        attempts = [(pool.address, self._describe_outcome(pool)) for pool in self._pools]
        nameless = self._is_overdue and not self._any_resolved
        lasted = NO_NAME if nameless else _within(self._clock.monotonic() - began)
        raise BootstrapError(lasted, attempts=attempts) from self.last_error

    @property
    def last_error(self) -> KafkaError | None:
        """The last error of a server. Silence does not replace a refusal."""
        return None if self._last.error is None else bare(self._last.error)

    @property
    def _any_resolved(self) -> bool:
        return any(pool.resolved for pool in self._pools)

    def _end_without_names(self, scope: CancelScope) -> None:
        if not self._any_resolved:
            self._is_overdue = True
            scope.cancel()

    def _is_login_refused(self) -> bool:
        """Return whether a server has refused the login, and no server is left that may respond.

        Waiting for servers that are not reachable would only hide that the credentials are wrong.
        """
        tried = len(self._errors) == len(self._pools)
        return tried and any(map(refuses_login, self._hopeless.values()))

    def _describe_outcome(self, pool: ConnectionPool) -> str:
        error = self._errors.get(pool.address)
        if error is not None:
            return (error.message or str(error)).rstrip(".")
        if not pool.resolved:
            return self._unresolved.describe_pending(pool.host)
        return pool.progress or "no answer yet"

    async def _ask_until_answered(self, pool: ConnectionPool, everything: CancelScope) -> None:
        retry = Attempts(self._deadline, self._backoff, self._clock)
        while True:
            try:
                self._metadata = await self._request_metadata(pool)
                self.server = pool.address
                everything.cancel()
                return
            except KafkaError as error:
                explained, advised = await pool.explain_error(error)
                delay = self._on_server_failure(pool, explained, retry, advised)
                if self._is_login_refused():
                    everything.cancel()
            if delay is None:
                return
            await asyncio.sleep(delay)

    def _level_of(self, advised: bool) -> int:
        """Return the level of the line about a server. The first advice about a login warns."""
        if not advised:
            return self._level
        return logging.INFO if self._advised else self._level

    async def _request_metadata(self, pool: ConnectionPool) -> MetadataResponse:
        connection = await pool.get_connection(Purpose.CONTROL)
        check_kind(self._config, connection.broker)
        request = make_brokers_request(self._config)
        timeout_s = self._config.request_timeout_ms / 1000
        answer = as_metadata(await connection.send(request, timeout_s=timeout_s))
        api = request.api_key.api_name
        error = error_for(getattr(answer, "error_code", 0), api=api, broker=pool.address)
        if error is not None:
            raise error
        if not any(broker.node_id >= 0 for broker in answer.brokers):
            text = "The metadata response lists no broker."
            raise InvalidMetadataError(text, broker=pool.address)
        await self._confirm_broker(pool, connection, answer)
        return answer

    async def _confirm_broker(
        self, pool: ConnectionPool, connection: BrokerConnection, answer: MetadataResponse
    ) -> None:
        """Let a broker at an advertised address confirm its id, so that the connection is kept.

        Errors are ignored. Without a confirmation, the connection is closed later, and another one
        is opened.
        """
        cluster, cluster_id = self._cluster, answer.cluster_id
        if cluster is None or not cluster.checks or cluster_id is None or not confirms(connection):
            return
        for broker in answer.brokers:
            if (broker.host, broker.port) == (pool.host, pool.port) and broker.node_id >= 0:
                request = identifying_request((cluster_id, broker.node_id))
                with contextlib.suppress(KafkaError):
                    timeout_s = self._config.request_timeout_ms / 1000
                    response = await connection.send(request, timeout_s=timeout_s)
                    if not response.error_code:
                        pool.mark_confirmed()

    def _on_server_failure(
        self, pool: ConnectionPool, error: KafkaError, retry: Attempts, advised: bool
    ) -> float | None:
        address = pool.address
        # The time that is left makes no difference here. The deadline cancels this task, and an
        # error at that moment must not replace the timeout.
        again = not ends_start(error)
        unresolved = isinstance(error, UnresolvedError)
        if unresolved:
            self._unresolved.add_name(address, error)
        elif address not in self._told or (advised and not self._advised):
            left = retry.remaining_s
            rest = f"It is tried again for {left:.1f} s." if again else "It is not tried again."
            # Some servers close the connection if the first request has a version that they do not
            # support. The next attempts use lower versions.
            lower = isinstance(error, ClosedEarlyError) and retry.attempt + 1 < len(RUNGS)
            if not lower:
                self._told.add(address)
            self._log.log(
                logging.DEBUG if lower else self._level_of(advised),
                "Bootstrap server %s. %s",
                _named(address, (error.message or str(error)).rstrip(".")),
                rest,
                extra={"event": "bootstrap_failed", "address": address},
            )
        if advised:
            self._advised.add(address)
        self._errors[address] = error
        self._last.note_error(error)
        if len(self._errors) == len(self._pools):
            self._unresolved.log_names()
        self._moved.set_result(None)
        self._moved = asyncio.get_running_loop().create_future()
        if not again:
            self._hopeless[address] = error
        elif unresolved and self._resolve_s == 0:
            self._is_overdue = True
            return None
        return retry.take_pause_s() if again else None


async def connect_first(
    cluster: ClusterClient, deadline: float, attempts: Sequence[tuple[str, str]]
) -> None:
    """Connect to any broker in the metadata; see `ClusterClient.reach_broker`."""
    clock = cluster.clock
    began, retry = clock.monotonic(), Attempts(deadline, Backoff.of(cluster.config), clock)
    try:
        async with asyncio.timeout_at(deadline):
            while not cluster.live_brokers.any_connected:
                try:
                    await cluster.live_brokers.connect_any()
                except KafkaError:
                    errors = cluster.live_brokers.list_errors()
                    if errors and not any(map(_may_pass, errors)):
                        raise
                if not cluster.live_brokers.any_connected:
                    # Only a bootstrap server was connected, which is not enough.
                    await asyncio.sleep(retry.take_pause_s())
    except TimeoutError:
        brokers = cluster.live_brokers
        outcomes = (*attempts, *brokers.list_outcomes())
        lasted = _within(clock.monotonic() - began)
        raise BootstrapError(lasted, attempts=outcomes, needed=NONE_CONNECTED) from next(
            (error for error in brokers.list_errors() if error is not None), None
        )


def _may_pass(error: KafkaError | None) -> bool:
    """Return whether connecting may succeed later. `error` is None before the first attempt."""
    return error is None or not ends_start(error)


def _within(seconds: float) -> str:
    return f"The client tried for {seconds:.1f} s:"


def _named(address: str, text: str) -> str:
    """Return the text with the address before it, unless it already begins with the address."""
    return text if text.startswith(address) else f"{address}: {text}"
