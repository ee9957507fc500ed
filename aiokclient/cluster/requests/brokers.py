"""The connection pools of all brokers, and the choice of one for a request that any can serve.

`Reachability` writes one log line for each change. A lost connection alone means little: brokers,
load balancers, and firewalls close idle connections. After the loss of the last connection, the
brokers count as unreachable only once each of them has refused a new connection, or no connection
was ready within `GRACE_S`. They count as reachable again as soon as one of them responds.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
import re
from collections.abc import Callable, Container, Coroutine, Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.config.client import ClientConfig
from aiokclient.config.kinds import written
from aiokclient.errors import InvalidMetadataError, KafkaError, UnsupportedVersionError
from aiokclient.log.client_log import ClientLog
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.pool import ConnectionPool, PoolOwner, Purpose
from aiokclient.network.setup import ConnectionSettings, confirms
from aiokclient.policy import Backoff, refuses_login

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.cluster.metadata.requests import MetadataRequests
    from aiokclient.protocol.schema import Request
    from aiokclient.telemetry.collector import ClientCollector


class Outages:
    """A list of listeners that are called when the last open connection of a client has ended.

    Afterwards, another cluster may respond at the same addresses.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener()` at each outage. Return a function that removes it. Synchronous."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def call_listeners(self) -> None:
        """Call the listeners, because no connection is left. Synchronous."""
        for listener in list(self._listeners):
            listener()


GRACE_S: Final = 2.0


class Reachability:
    """The reachability of the brokers of one client, taken together."""

    def __init__(self, log: ClientLog) -> None:
        self.lost = False
        """Whether no broker can be reached."""
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._why = ""
        self._timer: asyncio.TimerHandle | None = None

    def mark_missing(self, why: str, *, certain: bool) -> None:
        """Record that no broker is reachable. `why` is the last error.

        `certain` means that each broker has refused a connection.
        """
        if self._since is None:
            self._since = self._loop.time()
        self._why = why
        if self.lost:
            return
        if certain:
            self._mark_lost()
        elif self._timer is None:
            self._timer = self._loop.call_later(GRACE_S, self._mark_lost)

    def mark_reachable(self, broker: str) -> None:
        """Record that a broker has responded."""
        since, self._since = self._since, None
        self.stop_timer()
        if self.lost and since is not None:
            self.lost = False
            seconds = self._loop.time() - since
            self._log.warning(
                "%s can be reached again. No broker could be reached for %.1f s.",
                broker,
                seconds,
                extra={"event": "brokers_back", "seconds": seconds},
            )

    def read_time(self) -> float:
        """Return the time on the loop's clock, in any thread."""
        return self._loop.time()

    def stop_timer(self) -> None:
        """Cancel the timer of the grace period."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _mark_lost(self) -> None:
        self.stop_timer()
        self.lost = True
        self._log.warning(
            "No broker can be reached; the client keeps trying. %s",
            self._why,
            extra={"event": "brokers_unreachable", "error": self._why},
        )


HANGING_S = 1.0
"""Seconds without a response after which a broker is chosen only if there is no other."""

TRYING_S = 10.0
"""Seconds for which brokers are tried in turn when a connection to any broker is needed."""

PATIENCE_S = 3.0
"""The timeout in seconds of the first attempt of a request that any broker can serve."""

NEEDED = frozenset({Purpose.JOIN, Purpose.GROUP, Purpose.TRANSACTION})
"""The purposes of connections to a certain broker without which a start cannot end."""

REFUSED_S = 5.0
"""Seconds for which the refusal of a login by one of several brokers is reported."""

NAMED = 3
"""The maximum number of brokers that one log line names."""

CLOSE_S = 1.0
"""Seconds that connections with unwritten data may take to close before they are aborted."""


class Starts:
    """The starts in progress, which end when a broker refuses the login that they need."""

    def __init__(self) -> None:
        self._refusals: dict[asyncio.Timeout, KafkaError | None] = {}

    @contextlib.contextmanager
    def end_on_refusal(self, patience: asyncio.Timeout) -> Iterator[None]:
        """Let the body time out as soon as a broker refuses a login. Then raise the refusal."""
        self._refusals[patience] = None
        try:
            yield
        finally:
            refusal = self._refusals.pop(patience)
            if refusal is not None:
                raise copy.copy(refusal)

    def end_starts(self, purpose: Purpose, error: KafkaError) -> None:
        """End the starts, unless they may use another broker. Synchronous."""
        if purpose not in NEEDED:
            return
        for patience, refusal in self._refusals.items():
            if refusal is None and not patience.expired():
                self._refusals[patience] = error
                patience.reschedule(asyncio.get_running_loop().time())


class Brokers(PoolOwner):
    """The connection pools of a client: one for each broker and each bootstrap server.

    A bootstrap server has a negative id until it is known which broker it is.

    `requests` refreshes the metadata or rebootstraps, depending on what happens to the connections.
    """

    def __init__(
        self,
        config: ClientConfig,
        settings: ConnectionSettings,
        supervisor: Supervisor,
        rng: random.Random,
        requests: MetadataRequests,
    ) -> None:
        self._config = config
        self._settings = settings
        self._supervisor = supervisor
        self.rng = rng
        self._requests = requests
        self.reachability = Reachability(ClientLog.of("aiokclient", config))
        self.starts = Starts()
        self._watching = False
        """Whether the brokers are known. Before that, there are only bootstrap servers."""
        self._outage_at = 0.0
        """The time at which the last connection to a known broker ended, on the loop's clock."""
        self._found_at = 0.0
        """The time at which a broker was last found to be reachable, on the loop's clock."""
        self._avoided: int | None = None
        self._pools: dict[int, ConnectionPool] = {}
        self._retired: list[ConnectionPool] = []
        self._named: Mapping[int, BrokerInfo] = {}
        self._shown: Mapping[int, BrokerInfo] = {}
        """The brokers in the metadata, which during a rebootstrap is outdated."""

    # -- the known brokers ------------------------------------------------------------------

    def add_bootstrap_servers(self, servers: Iterable[tuple[str, int]]) -> list[ConnectionPool]:
        """Return new pools for bootstrap servers, in the order in which to try them.

        Until the next snapshot, `choose_pool` returns only these pools.
        """
        self._named = {}
        for node_id in [node_id for node_id in self._pools if node_id < 0]:
            self._retire_pool(node_id)
        pools = []
        for index, (host, port) in enumerate(servers, start=1):
            self._pools[-index] = pool = self._make_pool(-index, host, port)
            pools.append(pool)
        # Clients with the same list must not all begin with its first server.
        self.rng.shuffle(pools)
        return pools

    def close_connections(self, why: KafkaError) -> None:
        """Close all connections, to start again from the bootstrap servers.

        Requests in flight fail as after any lost connection. The backoff of each broker stays.
        """
        for pool in [*self._pools.values(), *self._retired]:
            pool.close_connections(why)

    def apply_snapshot(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Apply the brokers of a new snapshot, by their ids, and identify bootstrap servers.

        A broker that is no longer in the snapshot keeps its connections until they close. It may
        return to the cluster, and it may still respond to requests in flight.
        """
        self._named = self._shown = brokers
        self._watching = True
        for node_id, pool in list(self._pools.items()):
            info = brokers.get(node_id)
            moved = info is not None and (pool.host, pool.port) != (info.host, info.port)
            if node_id >= 0 and (moved or (info is None and not pool.busy)):
                self._retire_pool(node_id)
        servers = [node_id for node_id in self._pools if node_id < 0]
        if servers:
            addresses = {(info.host, info.port): node_id for node_id, info in brokers.items()}
            for server in servers:
                self._identify_server(server, addresses)
        self._retired = [pool for pool in self._retired if pool.busy]

    def _identify_server(self, server: int, addresses: Mapping[tuple[str, int], int]) -> None:
        """Reuse the pool of a bootstrap server for the broker that it was identified as."""
        pool = self._pools[server]
        node_id = addresses.get((pool.host, pool.port))
        known = None if node_id is None else self._pools.get(node_id)
        if node_id is None or not self._may_serve(pool) or (known is not None and known.busy):
            self._retire_pool(server)
            return
        if known is not None:
            self._retire_pool(node_id)
        self._pools[node_id] = self._pools.pop(server)
        # The connection over which the client started is used further. Java's client opens another
        # one.
        pool.set_broker_id(node_id)

    def _may_serve(self, pool: ConnectionPool) -> bool:
        """Return whether requests for a broker may use the connection to a bootstrap server.

        They may not if the broker could have confirmed its id and has not (KIP-1242): another
        broker may respond at the same address.
        """
        cluster = self._settings.cluster
        connection = pool.find_connection(Purpose.CONTROL)
        if cluster is None or connection is None or pool.confirmed:
            return True
        return not (cluster.checks and confirms(connection))

    def _retire_pool(self, node_id: int) -> None:
        pool = self._pools.pop(node_id, None)
        if pool is not None:
            pool.close_gracefully()
            self._retired.append(pool)

    def _make_pool(self, node_id: int, host: str, port: int) -> ConnectionPool:
        config = self._config
        return ConnectionPool(
            node_id,
            host,
            port,
            self._settings,
            owner=self,
            backoff=Backoff.of_reconnects(config),
            setup=Backoff.of_setup_timeouts(config),
            rng=self.rng,
            is_first_contact=not self._watching,
        )

    # -- what the pools report --------------------------------------------------------------

    def spawn(
        self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any, name: str
    ) -> None:
        self._supervisor.spawn(function, *args, name=name)

    def on_slow_attempt(self) -> None:
        self._requests.on_slow_connection()

    def on_wrong_broker(self) -> None:
        self._requests.on_rebootstrap_required()

    def on_refused_login(self, purpose: Purpose, error: KafkaError) -> None:
        self.starts.end_starts(purpose, error)

    def on_pool_failure(self) -> None:
        self._report_failure()
        if self._are_all_unavailable():
            self._requests.on_brokers_unavailable()

    def _are_all_unavailable(self) -> bool:
        """Return whether each broker in the metadata is unavailable (KIP-899)."""
        pools = [self._pools.get(node_id) for node_id in self._named]
        since = self._outage_at
        return bool(pools) and all(pool and pool.is_unavailable(since) for pool in pools)

    def _report_failure(self) -> None:
        if self.any_reachable:
            # A broker counts as reachable until an attempt to connect to it fails.
            if not any(pool.busy for pool in self._pools.values()):
                self._requests.on_connections_lost()
            return
        if self._watching:
            pools = self.list_eligible()
            texts = dict.fromkeys(f"{self._describe_pool(pool)}: {_why(pool)}." for pool in pools)
            why = " ".join(list(texts)[:NAMED])
            self.reachability.mark_missing(why, certain=all(pool.refused for pool in pools))
        self._requests.on_connections_lost()

    def on_broker_reachable(self, pool: ConnectionPool) -> None:
        self._found_at = self.reachability.read_time()
        self.reachability.mark_reachable(self._describe_pool(pool))
        self._requests.on_broker_found()

    def on_response(self, node_id: int) -> None:
        """Record that the broker is reachable, because it sent a response."""
        pool = self._pools.get(node_id)
        if pool is not None and not pool.reachable:
            pool.mark_reachable()

    def on_connection_end(self) -> None:
        if not self.any_connected:
            self._outage_at = self.reachability.read_time()
        if not self.connections:
            self._requests.on_outage()

    # -- connections ------------------------------------------------------------------------

    def avoid_broker(self, node_id: int | None) -> None:
        """Let `choose_pool` return this broker only if no other is reachable. None: avoid none."""
        self._avoided = node_id

    def find_pool(self, node_id: int) -> ConnectionPool:
        """Return the pool of a broker.

        The pool is created at the first use, because a cluster may have very many brokers. Raises
        InvalidMetadataError for a broker that is not in the snapshot.
        """
        pool = self._pools.get(node_id)
        if pool is not None:
            return pool
        info = self._named.get(node_id)
        if info is None:
            raise InvalidMetadataError(
                f"The metadata does not contain broker {node_id}.", broker=node_id
            )
        pool = self._pools[node_id] = self._make_pool(*info[:3])
        return pool

    def find_connection(
        self, node_id: int, purpose: Purpose, owner: Hashable = None
    ) -> BrokerConnection | None:
        pool = self._pools.get(node_id)
        return None if pool is None else pool.find_connection(purpose, owner)

    def is_reachable(self, node_id: int) -> bool:
        pool = self._pools.get(node_id)
        return node_id in self._named if pool is None else pool.reachable

    def choose_pool(self, unfit: Container[int] = ()) -> ConnectionPool:
        """Return the broker for a request that any can serve, except those whose ids are `unfit`.

        The order of preference is: the connected and responding broker with the fewest requests
        in flight; a broker that has not failed and whose connecting does not take long; a
        connected broker; the broker whose reconnect backoff ends first. Brokers that are no longer
        in the metadata are excluded. Raises InvalidMetadataError if no broker is left.
        """
        pools = [pool for pool in self.list_eligible() if pool.node_id not in unfit]
        unused = self._count_unused()
        if not pools and not unused:
            raise InvalidMetadataError("No broker is known.")
        if self._avoided is not None:
            others = [pool for pool in pools if pool.node_id != self._avoided and pool.reachable]
            pools = others if others or unused else pools
        connected = [pool for pool in pools if pool.find_connection(Purpose.CONTROL) is not None]
        answering = [pool for pool in connected if _silent_for(pool) < HANGING_S]
        if answering:
            # Brokers answer the requests of a connection one at a time, so the one with the fewest
            # answers first.
            least = min(pool.in_flight for pool in answering)
            return self.rng.choice([pool for pool in answering if pool.in_flight == least])
        others = [pool for pool in pools if pool.find_connection(Purpose.CONTROL) is None]
        prompt = [pool for pool in others if pool.measure_attempt_s(Purpose.CONTROL) < HANGING_S]
        untried = [pool for pool in prompt if pool.reachable]
        chosen = self.rng.randrange(unused + len(untried)) if unused or untried else -1
        if 0 <= chosen < len(untried):
            return untried[chosen]
        if chosen >= 0:
            names = (node_id for node_id in self._named if node_id not in self._pools)
            return self.find_pool(next(islice(names, chosen - len(untried), None)))
        if connected:
            return min(connected, key=_silent_for)
        # Brokers that hang come last, even if their reconnect backoff has ended.
        return min(prompt or others, key=lambda pool: pool.not_before)

    def list_eligible(self) -> list[ConnectionPool]:
        """Return the pools of all brokers in the metadata and of all bootstrap servers."""
        pools = self._pools.items()
        return [pool for node_id, pool in pools if node_id < 0 or node_id in self._named]

    async def connect_any(self, request: type[Request[Any]] | None = None) -> BrokerConnection:
        """Return a control connection to the broker of `choose_pool`, opened if necessary.

        If that broker cannot be connected, does not respond, or supports no version of `request`,
        the next one is tried. Raises the error of the last broker if none is left. There is no
        deadline: the caller must set one.
        """
        unfit: dict[int, KafkaError] = {}
        began = self.reachability.read_time()
        while True:
            pool = self.choose_pool(unfit)
            try:
                connection = await _connected_soon(pool)
                if connection is None:
                    continue
                if request is not None:
                    connection.broker.version_of(request)
                return connection
            except KafkaError as error:
                unfit[pool.node_id] = error
                late = self.reachability.read_time() - began > TRYING_S
                if late or not self._is_any_left(unfit, error.retriable):
                    raise

    def _is_any_left(self, unfit: Container[int], promising: bool) -> bool:
        """Return whether a broker is left whose id is not in `unfit`.

        With `promising`, only brokers that may respond now count. After an outage, a broker that
        has only lost its connection may respond. A broker that has refused a connection since the
        outage, or whose connection attempt takes long, is tried later.
        """
        left = (pool for pool in self.list_eligible() if pool.node_id not in unfit)
        return bool(self._count_unused()) or any(
            not promising or self._is_promising(p) for p in left
        )

    def _is_promising(self, pool: ConnectionPool) -> bool:
        if pool.reachable:
            return True
        hangs = pool.measure_attempt_s(Purpose.CONTROL) >= HANGING_S
        return not hangs and not pool.has_failed_since(self._outage_at)

    def list_states(self) -> dict[int | str, str]:
        """Return a readable description of the connection to each broker, in one line each.

        The keys are broker ids, or addresses for bootstrap servers whose ids are not known yet.
        """
        now = self.reachability.read_time()
        return {_key(broker): _state(self._pool_of(broker), now) for broker in self._list_brokers()}

    def list_addresses(self) -> dict[int | str, str]:
        """Return the address of each broker, by the keys of `states`."""
        return {_key(broker): _address(broker) for broker in self._list_brokers()}

    def list_outcomes(self) -> list[tuple[str, str]]:
        """Return the address of each broker with the outcome of connecting to it."""
        return [
            (_address(broker), _outcome(self._pool_of(broker))) for broker in self._list_brokers()
        ]

    def _list_brokers(self) -> list[BrokerInfo | ConnectionPool]:
        """Return all brokers, even those without a pool, and the bootstrap servers, sorted by id.

        During a rebootstrap, these are the brokers that were known before.
        """
        known: dict[int, BrokerInfo | ConnectionPool] = {**self._shown, **self._pools}
        ids = {(broker.host, broker.port) for node_id, broker in known.items() if node_id >= 0}
        return [
            broker
            for node_id, broker in sorted(known.items())
            if node_id >= 0 or (broker.host, broker.port) not in ids
        ]

    def _pool_of(self, broker: BrokerInfo | ConnectionPool) -> ConnectionPool | None:
        """Return the pool of a broker, or during a rebootstrap, that of its bootstrap server."""
        for node_id, pool in self._pools.items():
            if node_id < 0 and (pool.host, pool.port) == (broker.host, broker.port):
                return pool
        return self._pools.get(broker.node_id)

    def _describe_pool(self, pool: ConnectionPool) -> str:
        if pool.node_id < 0:
            for node_id, broker in self._shown.items():
                if (pool.host, pool.port) == (broker.host, broker.port):
                    return f"Broker {node_id} ({_address(pool)})"
            return f"Bootstrap server ({_address(pool)})"
        return f"Broker {pool.node_id} ({_address(pool)})"

    @property
    def connections(self) -> int:
        """The number of open connections of all purposes and owners."""
        pools = [*self._pools.values(), *self._retired]
        return sum(len(pool.open_connections()) for pool in pools)

    @property
    def any_reachable(self) -> bool:
        """Whether any broker may be reachable.

        A broker counts as reachable until an attempt to connect to it fails.
        """
        return bool(self._count_unused()) or any(pool.reachable for pool in self.list_eligible())

    @property
    def any_connected(self) -> bool:
        """Whether any broker in the metadata is connected."""
        pools = self._pools.items()
        return any(pool.open_connections() for node_id, pool in pools if node_id in self._named)

    def list_refused_logins(self) -> list[str]:
        """Return a text about each broker that refuses the login, up to NAMED. Synchronous.

        While others accept it, a refusal counts for REFUSED_S, because the broker may not be asked
        again.
        """
        any_reachable, since = self.any_reachable, self.reachability.read_time() - REFUSED_S
        pools = (
            pool
            for pool in self.list_eligible()
            if refuses_login(pool.last_error)
            and (not any_reachable or pool.failed_at > max(self._found_at, since))
        )
        return [
            f"{self._describe_pool(pool)} refuses the login: {_why(pool)}"
            for pool in islice(pools, NAMED)
        ]

    def error_of(self, node_id: int) -> KafkaError | None:
        """Return the last error of connecting to a broker, or None if there was none."""
        pool = self._pools.get(node_id)
        return None if pool is None else pool.last_error

    def list_errors(self) -> list[KafkaError | None]:
        """Return the last error of connecting to each broker, or None if there was none."""
        pools = [self._pools.get(node_id) for node_id in self._named]
        return [None if pool is None else pool.last_error for pool in pools]

    def _count_unused(self) -> int:
        """Return the number of brokers in the metadata that have no pool yet."""
        return len(self._named) - sum(node_id in self._named for node_id in self._pools)

    # -- closing ----------------------------------------------------------------------------

    def measure_silence_s(self, node_id: int) -> float:
        """Return the seconds for which a broker has not answered or accepted a connection."""
        pool = self._pools.get(node_id)
        if pool is None:
            return 0.0
        return max(_silent_for(pool), pool.measure_attempt_s(Purpose.CONTROL))

    def release_owner(self, owner: Hashable) -> None:
        for pool in [*self._pools.values(), *self._retired]:
            pool.release_owner(owner)

    async def close(self) -> None:
        """Close all connections and wait until their sockets are closed, for at most CLOSE_S."""
        self.reachability.stop_timer()
        pools = [*self._pools.values(), *self._retired]
        connections = [connection for pool in pools for connection in pool.open_connections()]
        for pool in pools:
            pool.close()
        waits = [asyncio.ensure_future(connection.wait_closed()) for connection in connections]
        if waits:
            _, pending = await asyncio.wait(waits, timeout=CLOSE_S)
            if pending:
                for connection in connections:
                    connection.abort()
                await asyncio.wait(waits, timeout=CLOSE_S)


async def _connected_soon(pool: ConnectionPool) -> BrokerConnection | None:
    """Return a control connection of the pool, or None if opening it takes long."""
    waiter = pool.request_connection(Purpose.CONTROL)
    try:
        await asyncio.wait([waiter], timeout=HANGING_S)
        return waiter.result() if waiter.done() else None
    finally:
        waiter.cancel()  # If it has failed already, this marks its error as retrieved.


def patience_s(in_vain: int, longest_s: float) -> float:
    """Return the seconds to wait for a response that any broker can give.

    `in_vain` is the number of previous attempts without a response. The first waits are short, so
    that a broker that hangs does not delay new metadata: the next attempt goes to a broker with
    fewer unanswered requests.
    """
    return min(PATIENCE_S * 2.0 ** min(in_vain, 10), longest_s)


def _silent_for(pool: ConnectionPool) -> float:
    """Return the seconds since the oldest unanswered request was sent on the control connection."""
    connection = pool.find_connection(Purpose.CONTROL)
    return 0.0 if connection is None else connection.measure_unanswered_s()


def _state(pool: ConnectionPool | None, now: float) -> str:
    if pool is None:
        return "not connected"
    if pool.open_connections():
        return "connected"
    if pool.last_error is None:
        return pool.progress or "not connected"
    what = "unreachable" if pool.refused else "disconnected"
    return f"{what} {max(now - pool.failed_at, 0.0):.0f} s ago: {_why(pool)}"


def _why(pool: ConnectionPool) -> str:
    """Return the last error in one line, without the address, which the caller shows before it."""
    error = pool.last_error
    if error is None:
        return "not connected"
    text = one_line(error.message or str(error)).rstrip(".")
    address = re.escape(pool.address)
    ip = None
    while found := re.match(rf"{address}(?: \(([^)]+)\))?:? ", text):
        ip = ip or found[1]
        text = text[found.end() :]
    return text if ip in (None, pool.host) else f"{text} ({ip})"


def _outcome(pool: ConnectionPool | None) -> str:
    """Return the outcome of connecting, for an error text that lists the addresses."""
    if pool is None:
        return "not tried yet"
    if pool.last_error is not None:
        return _why(pool)
    if pool.advice:
        return f"no answer yet. {pool.advice}".rstrip(".")
    return pool.progress or ("connected" if pool.open_connections() else "no answer yet")


def _address(broker: BrokerInfo | ConnectionPool) -> str:
    return written((broker.host, broker.port))


def _key(broker: BrokerInfo | ConnectionPool) -> int | str:
    return broker.node_id if broker.node_id >= 0 else _address(broker)


def one_line(text: str) -> str:
    """Return a text without line breaks."""
    return " ".join(text.split())


class ReporterConnections:
    """The metrics and the connections of one client, for requests that must not change its work.

    Normally, these requests use connections that are open anyway.
    """

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    @property
    def is_forked(self) -> bool:
        """Whether this is the copy of a client in a forked process."""
        return self._cluster.supervisor.forked

    def make_collector(self) -> ClientCollector:
        """Return the source of the metrics. Synchronous."""
        return self._cluster.make_collector()

    def has_announced(self) -> bool:
        """Return whether a connected broker announces the telemetry requests. Synchronous."""
        return bool(self._list_pools())

    async def connect(self, preferred: int | None, avoided: int | None) -> BrokerConnection | None:
        """Return the control connection to a broker that announces the telemetry requests.

        Returns None if no connected broker announces the requests. The result is the connection to
        `preferred` if that is a connected broker that announces them, otherwise to any such broker.
        `avoided` is used only if no other broker can be reached. The control connection is opened
        if necessary. Raises an error if it cannot be opened.
        """
        brokers, pools = self._cluster.permitted_brokers, self._list_pools()
        if brokers is None or not pools:
            return None
        others = [pool for pool in pools if pool.node_id != avoided]
        if not others:
            return await _other(brokers, avoided) or await pools[0].get_connection(Purpose.CONTROL)
        for pool in others:
            if pool.node_id == preferred:
                return await pool.get_connection(Purpose.CONTROL)
        ready = [pool for pool in others if pool.find_connection(Purpose.CONTROL) is not None]
        prompt = [pool for pool in ready if _silent_for(pool) < HANGING_S]
        chosen = prompt or ready or others
        pool = chosen[0] if len(chosen) == 1 else brokers.rng.choice(chosen)
        return await pool.get_connection(Purpose.CONTROL)

    async def connect_any(self) -> BrokerConnection:
        """Return the control connection to any broker that announces the telemetry requests.

        The connection is opened if necessary. Raises UnsupportedVersionError if no broker announces
        the requests, and an error if no connection can be opened.
        """
        from aiokclient.protocol.messages.get_telemetry_subscriptions import (
            GetTelemetrySubscriptionsRequest,
        )

        brokers = self._cluster.permitted_brokers
        if brokers is None:
            raise KafkaError("No broker is known.")
        return await brokers.connect_any(GetTelemetrySubscriptionsRequest)

    def _list_pools(self) -> list[ConnectionPool]:
        brokers = self._cluster.permitted_brokers
        if brokers is None:
            return []
        return [
            pool
            for pool in brokers.list_eligible()
            if any(map(_announces, pool.open_connections()))
        ]


async def _other(brokers: Brokers, avoided: int | None) -> BrokerConnection | None:
    """Return a connection to a broker other than `avoided` that announces the telemetry requests.

    Returns None if there is no such broker.
    """
    try:
        unfit = () if avoided is None else (avoided,)
        connection = await brokers.choose_pool(unfit).get_connection(Purpose.CONTROL)
    except KafkaError:
        return None
    return connection if _announces(connection) else None


def _announces(connection: BrokerConnection) -> bool:
    # The reporter, which is imported only if the client pushes metrics, has imported these modules.
    from aiokclient.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsRequest,
    )
    from aiokclient.protocol.messages.push_telemetry import PushTelemetryRequest

    try:
        connection.broker.version_of(GetTelemetrySubscriptionsRequest)
        connection.broker.version_of(PushTelemetryRequest)
    except UnsupportedVersionError:
        return False
    return True
