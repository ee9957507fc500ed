"""`EmbeddedCluster`: a Kafka cluster for tests and demos, without Java.

The brokers listen on loopback and speak Kafka's protocol to any client. They share one state in
one event loop (`broker/state.py`), store record batches as the bytes that they received
(`broker/log.py`), and answer as Apache Kafka 4 does, errors included. The docstring of each handler
names the differences from Kafka.

In addition to what Kafka's clients can do, a test can inspect everything and inject faults. It can
refuse, drop, delay, throttle, and alter responses, stop and pause brokers, move leaders, hold
replication, and truncate logs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from aiokclient.clock import Clock, SystemClock
from aiokclient.config.kinds import written
from aiokclient.errors import IllegalStateError
from aiokclient.testing.broker.broker import EmbeddedBroker
from aiokclient.testing.broker.codes import Refused
from aiokclient.testing.broker.configs import choose_broker_options
from aiokclient.testing.broker.connections.listener import Listener, TcpListener
from aiokclient.testing.broker.groups.coordinator import GroupCoordinator, get_groups
from aiokclient.testing.broker.groups.group import GroupView
from aiokclient.testing.broker.handlers import TELEMETRY_APIS, list_handled
from aiokclient.testing.broker.node import Endpoint
from aiokclient.testing.broker.requests import ReceivedRequest
from aiokclient.testing.broker.security.listeners import CONTROLLER, DEFAULT, BrokerListener
from aiokclient.testing.broker.state import ClusterState
from aiokclient.testing.broker.telemetry.receiver import (
    check_receiver,
    close_receiver,
    start_receiver,
)
from aiokclient.testing.broker.transactions.coordinator import (
    TransactionCoordinator,
    TransactionView,
    get_transactions,
)
from aiokclient.testing.controls.acls import AclControls
from aiokclient.testing.controls.base import forward_to
from aiokclient.testing.controls.brokers import BrokerControls
from aiokclient.testing.controls.data import DataControls
from aiokclient.testing.controls.faults import FaultControls
from aiokclient.testing.controls.groups import GroupControls, check_share_level
from aiokclient.testing.controls.leaders import LeaderControls
from aiokclient.testing.controls.security import SecurityControls
from aiokclient.testing.controls.transactions import TransactionControls, check_level
from aiokclient.testing.runner import Runner
from aiokclient.types import public_in

if TYPE_CHECKING:
    from types import TracebackType

    from aiokclient.config.security import Tls
    from aiokclient.testing.broker.telemetry.receiver import ClientTelemetryReceiver

T = TypeVar("T")

_TIMEOUT_S = 60.0


@public_in("aiokclient.testing")
class EmbeddedCluster:
    """A cluster of brokers with the ids 1 to `brokers`, for tests.

        with EmbeddedCluster(brokers=3, topics={"orders": 6}) as cluster:
            ...  # runs in a thread of its own, for synchronous and asynchronous code

        async with EmbeddedCluster() as cluster:
            ...  # runs in the current event loop

        cluster = EmbeddedCluster()
        cluster.start()  # runs in a thread of its own until close(), for notebooks
        cluster.close()

    topics: The topics to create: a mapping of names to numbers of partitions, or only names, for
        topics with one partition each.
    port: The port of the first broker. The other brokers use the ports after it. With 0, the
        operating system chooses free ports.
    host: The address at which the brokers listen.
    advertised_host: The host name that the brokers send to clients. The default is `host`.
    replication: The number of replicas of each partition of a topic that is created without such a
        number. The default is min(3, brokers), and with `defaults="kafka"` 1.
    auto_create_topics: Whether brokers create a topic when a client first uses its name. The
        default is False, and with `defaults="kafka"` True.
    racks: The rack of each broker. With racks, brokers direct the fetches of a client to a replica
        in the client's rack.
    defaults: The default values of options: "tests" for values that make tests fast and small, or
        "kafka" for those of Kafka 4.4 (`KAFKA_DEFAULTS` in `broker/configs.py` has the
        differences). Other arguments and `configs` take precedence.
    configs: Configs of the brokers under Kafka's names (`BROKER_OPTIONS` in `broker/configs.py`,
        and those of `broker/security/options.py`). ACLs apply if `authorizer.class.name` is that of
        Kafka's StandardAuthorizer. `allow` and `deny` add ACLs, and `super.users` are principals
        without restrictions. A client that does not log in is `User:ANONYMOUS`.
    retention_bytes: The number of bytes that each partition keeps. The default is 256 MiB; -1, the
        default with `defaults="kafka"`, keeps everything.
    resync: Whether the leader of a group may send new assignments within a generation, which Kafka
        does not allow. The brokers announce it as the feature "group.resync"
        (`broker/groups/rebalancing.py` describes it).
    transaction_version: The level of the feature transaction.version: 2 as in Kafka 4, or 0 or 1.
        `set_transaction_version` changes it.
    share_version: The level of the feature share.version: 2 as in Kafka 4.4, 1 as in Kafka 4.2,
        or 0 to disable share groups. `set_share_version` changes it.
    persist_groups: Whether a coordinator that takes over a group finds its generation and members.
    seed: The seed for ids and all other random choices, which makes them the same in each run.
    listeners: More listeners of each broker by name, for TLS and logins (`BrokerListener`). The
        default listener, PLAINTEXT, has neither. Clients use the addresses of
        `bootstrap_servers_for(name)`.
    telemetry: The receiver of the metrics that clients push (KIP-714), such as a
        `TopicTelemetryReceiver`. Without one, the brokers do not announce these requests.
    clock: The wall clock of the brokers.
    listener: The source of connections. The default is TCP.

    All methods except `until` are synchronous and can be called from any thread. A cluster can be
    started only once.
    """

    def __init__(
        self,
        brokers: int = 1,
        topics: Mapping[str, int] | Iterable[str] = (),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: str | None = None,
        replication: int | None = None,
        racks: Sequence[str | None] = (),
        auto_create_topics: bool | None = None,
        defaults: Literal["tests", "kafka"] = "tests",
        configs: Mapping[str, str | int] = {},
        retention_bytes: int | None = None,
        resync: bool = False,
        persist_groups: bool = True,
        transaction_version: int = 2,
        share_version: int = 2,
        seed: int | None = None,
        listeners: Mapping[str, BrokerListener] = {},
        telemetry: ClientTelemetryReceiver | None = None,
        clock: Clock | None = None,
        listener: Listener | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: A cluster needs at least one broker.")
        if racks and len(racks) != brokers:
            raise ValueError(
                f"racks has {len(racks)} entries for {brokers} brokers. Give one for each broker."
            )
        options = choose_broker_options(defaults)
        self._runner = Runner()
        self._state = ClusterState(
            random.Random(seed),
            self._runner.post_to_loop,
            list_handled(),
            GroupCoordinator,
            TransactionCoordinator,
            options=options,
            telemetry=check_receiver(telemetry),
            hidden=TELEMETRY_APIS if telemetry is None else (),
        )
        self._brokers: dict[int, EmbeddedBroker] = {}
        self._state.clock = clock or SystemClock()
        self._state.groups.resync = resync
        self._state.groups.persist = persist_groups
        self._state.transactions.level = check_level(transaction_version)
        self._state.share_level = check_share_level(share_version)
        self._sockets = TcpListener()
        self._listener = listener or self._sockets
        self._listen_host = host
        self._faults = FaultControls(self._state, self._brokers, self._runner)
        self._nodes = BrokerControls(self._state, self._brokers, self._runner, self._listener, host)
        self._leaders = LeaderControls(self._state, self._brokers, self._runner)
        self._data = DataControls(self._state, self._brokers, self._runner)
        self._groups = GroupControls(self._state, self._brokers, self._runner)
        self._transactions = TransactionControls(self._state, self._brokers, self._runner)
        self._security = SecurityControls(self._state.security, listeners, advertised_host or host)
        self._acls = AclControls(self._state, self._brokers, self._runner)
        self._used = False
        values: dict[str, str] = {}
        if auto_create_topics is not None:
            values["auto.create.topics.enable"] = str(auto_create_topics).lower()
        if replication or defaults == "tests":
            values["default.replication.factor"] = str(replication or min(3, brokers))
        values.update((name, str(value)) for name, value in configs.items())
        if retention_bytes is not None:
            values["log.retention.bytes"] = str(retention_bytes)
        others = self._state.security.apply_configs(values)
        described = {name: each for name, each in values.items() if name in options}
        self._state.static_configs.apply_changes(others | described)
        for index, rack in enumerate(racks or [None] * brokers):
            self._add_broker(self._make_endpoints(advertised_host or host, port, index), rack)
        if isinstance(topics, str):
            topics = (topics,)
        self._topics = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)

    def _add_broker(self, endpoints: Mapping[str, Endpoint], rack: str | None) -> None:
        node_id = len(self._brokers) + 1
        broker = EmbeddedBroker(self._state, node_id, endpoints, rack)
        self._brokers[node_id] = self._state.brokers[node_id] = broker

    def _make_endpoints(self, host: str, port: int, index: int) -> dict[str, Endpoint]:
        """Return the addresses of a broker. The first broker has the index 0."""
        listeners = self._state.security.listeners
        ports = {name: each.port for name, each in listeners.items()} | {DEFAULT: port}
        return {
            name: Endpoint(each.host or host, ports[name] + index if ports[name] else 0)
            for name, each in listeners.items()
        }

    # -- running ---------------------------------------------------------------------------

    def start(self, broker: int | None = None) -> None:
        """Start the cluster in a thread of its own, or start one broker that was stopped.

        The thread ends with `close()` or with the process. A broker starts on its previous port and
        catches up with the current leaders. It becomes a leader only of partitions that have none.
        In the thread of the cluster's own event loop, the method returns before the broker accepts
        connections, which it does from the next iteration of the loop.

        Raises IllegalStateError if the cluster was started before, ValueError if the broker does
        not exist, and OSError if a port is not free.
        """
        if broker is not None:
            self._nodes.start(broker)
            return
        self._require_unused()
        self._runner.start_thread(self._open_brokers, self._shut_brokers)

    def close(self) -> None:
        """Stop all brokers and end the cluster. Idempotent, and allowed before the start.

        Inside `async with`, this method stops the brokers, and leaving the block ends the cluster.
        Raises IllegalStateError in the cluster's own thread, which cannot wait for its own end, and
        RuntimeError if a broker failed on a request.
        """
        self._used = True
        self._runner.stop_thread(self._shut_brokers)
        self._runner.post_to_loop(self._shut_brokers)
        self._raise_failure()

    def _raise_failure(self) -> None:
        bug, self._state.bug = self._state.bug, None
        if bug is not None:
            raise RuntimeError(
                "A broker of the embedded cluster failed on a request. This is a bug in the "
                "embedded cluster, or in a function that the test passed to alter()."
            ) from bug

    def __enter__(self) -> EmbeddedCluster:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.stop_thread(self._shut_brokers)
        if error is None:
            self._raise_failure()

    async def __aenter__(self) -> EmbeddedCluster:
        self._require_unused()
        self._runner.attach()
        try:
            await self._open_brokers()
        except BaseException:
            self._shut_brokers()
            await self._runner.detach()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shut_brokers()
        await self._runner.detach()
        if error is None:
            self._raise_failure()

    def _require_unused(self) -> None:
        if self._used:
            raise IllegalStateError("An EmbeddedCluster can be started only once. Create another.")
        self._used = True

    async def _open_brokers(self) -> None:
        state = self._state
        state.loop = self._runner.loop
        for broker in self._brokers.values():
            broker.open_listeners(self._listener, self._listen_host)
            await broker.accept_connections()
        for name, partitions in self._topics.items():
            try:
                state.create_topic(name, state.assign_replicas(partitions, -1))
            except Refused as error:
                raise ValueError(f"topics: {name!r}: {error}") from None
        start_receiver(state.telemetry, self)

    def _shut_brokers(self) -> None:
        self._state.groups.close()
        self._state.transactions.close()
        for broker in self._brokers.values():
            broker.kill()
        close_receiver(self._state.telemetry)
        self._sockets.close()

    # -- looking ---------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as `host:port` separated by commas.

        Raises IllegalStateError before the start.
        """
        return self.bootstrap_servers_for(DEFAULT)

    @property
    def bootstrap_controllers(self) -> str:
        """The addresses of all brokers as controllers, for `Admin(bootstrap_controllers=...)`.

        Each broker is a controller, too (KIP-919). Raises IllegalStateError before the start.
        """
        return self.bootstrap_servers_for(CONTROLLER)

    def bootstrap_servers_for(self, listener: str) -> str:
        """Return the addresses of all brokers at one of the `listeners`.

        Raises ValueError if there is no such listener, and IllegalStateError before the start.
        """
        found = [self.address(broker, listener) for broker in self.brokers]
        return ",".join(map(written, found))

    @property
    def brokers(self) -> list[int]:
        """The ids of all brokers, including those that are stopped."""
        return list(self._state.brokers)

    @property
    def cluster_id(self) -> str:
        """The cluster id that the brokers report: 22 characters of base64url."""
        return self._state.cluster_id

    def address(self, broker: int, listener: str = DEFAULT) -> tuple[str, int]:
        """Return the host and the port of a broker, which stay the same when it restarts.

        Raises ValueError if there is no such broker or listener, and IllegalStateError before the
        cluster is started, because it has no ports until then.
        """
        endpoints = self._nodes.find_broker(broker).endpoints
        if listener not in endpoints:
            known = ", ".join(endpoints)
            raise ValueError(f"The cluster has no listener {listener!r}. It has {known}.")
        found = endpoints[listener]
        if not found.port:
            raise IllegalStateError(
                "The embedded cluster has no ports before its start. Use it in a `with` or an "
                "`async with` block, or call start()."
            )
        return found.host, found.port

    @property
    def client_tls(self) -> Tls:
        """The option `security` of a client that trusts the certificates of the brokers.

        With SASL, it is the argument `tls` of the credentials. Raises ValueError if none of the
        `listeners` has TLS.
        """
        return self._security.client_tls

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The last 10,000 requests, the oldest first.

        Each one has `api`, `version`, `broker`, `message`, `client_id`, and `at`. Together they use
        at most 32 MiB. Above that, older produce requests keep only the headers of their batches,
        and if that is not enough, the oldest requests are removed.
        """
        return self._runner.call_in_loop(self._state.requests.list_requests)

    @property
    def requests_total(self) -> int:
        """The number of requests since the start or the last `reset`."""
        return self._runner.call_in_loop(lambda: self._state.requests.total)

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by topic name, without internal topics."""
        return self._data.topics

    @property
    def groups(self) -> dict[str, GroupView]:
        """All groups by group id, in their current state.

        Each one is a tuple of `group_id`, `kind` (a GroupType), `state` (Kafka's name, or
        "loading"), `generation` (for KIP-848 groups the epoch), `protocol_type`, `protocol`,
        `leader` (a member id, or None), and `members`. `members` maps each member id to a tuple of
        `member_id`, `instance_id`, `client_id`, `metadata`, and `assignment`.
        """
        return self._groups.groups

    @property
    def transactions(self) -> dict[str, TransactionView]:
        """All transactional ids, in their current state.

        Each one is a tuple of `transactional_id`, `state` (Kafka's name, such as "Ongoing"),
        `producer_id`, `producer_epoch`, `timeout_ms`, `partitions` (of the open transaction; once
        it is ending, those that have no marker yet), and `coordinator` (a broker id, or None while
        it loads). The offsets of a group appear as the group's partition of `__consumer_offsets`.
        """
        return self._transactions.transactions

    @property
    def transaction_version(self) -> int:
        """The level of the feature transaction.version: 0, 1, or 2."""
        return self._transactions.transaction_version

    @property
    def share_version(self) -> int:
        """The level of the feature share.version: 0, 1, or 2."""
        return self._groups.share_version

    def connections(self, broker: int | None = None) -> int:
        """Return the number of open connections to a broker, or to all brokers."""
        return self._runner.call_in_loop(
            lambda: sum(
                each.connections
                for each in self._brokers.values()
                if broker in (None, each.node_id)
            )
        )

    def wait_for(self, predicate: Callable[[], T], timeout: float = _TIMEOUT_S) -> T:
        """Block until `predicate()` returns a true value, and return that value.

        The predicate runs in the calling thread, each time that something happens in the cluster.
        Raises KafkaTimeoutError after `timeout` seconds, and IllegalStateError in a thread that
        runs an event loop.
        """
        return self._runner.wait_for(predicate, timeout, self._state.watch)

    async def until(self, predicate: Callable[[], T], timeout: float = _TIMEOUT_S) -> T:
        """Wait until `predicate()` returns a true value, and return it, in any event loop.

        This is `wait_for` for coroutines.
        """
        return await self._runner.until(predicate, timeout, self._state.watch)

    def reset(self) -> None:
        """Remove all faults, clear the list of requests, and start or resume all brokers.

        Requests that clients sent before the call do not appear in the list afterwards, even if no
        broker had read them yet. If the call is made in the thread of the cluster's own event loop,
        such unread requests do appear: the loop reads them in its next iteration. Topics, records,
        leaders, and groups stay.
        """
        self._runner.catch_up()
        self._runner.call_in_loop(self._undo_controls)
        for broker in self.brokers:
            if not self._nodes.find_broker(broker).alive:
                self.start(broker)

    def _undo_controls(self) -> None:
        state = self._state
        state.faults.clear_rules()
        get_groups(state).release_all()
        state.share_states.release_all()
        get_transactions(state).release_all()
        state.versions.remove_limits()
        state.held.clear()
        state.requests.clear_requests()
        for partition in state.list_partitions():
            for node in partition.replicas:
                partition.release_replica(node)
        for broker in self._brokers.values():
            broker.resume()

    # -- controls, which are documented in their own modules ----------------------------------

    fail = forward_to("_faults", FaultControls.fail)
    drop = forward_to("_faults", FaultControls.drop)
    delay = forward_to("_faults", FaultControls.delay)
    throttle = forward_to("_faults", FaultControls.throttle)
    alter = forward_to("_faults", FaultControls.alter)
    limit_versions = forward_to("_faults", FaultControls.limit_versions)
    disconnect = forward_to("_faults", FaultControls.disconnect)
    evict_sessions = forward_to("_faults", FaultControls.evict_sessions)

    stop = forward_to("_nodes", BrokerControls.stop)
    pause = forward_to("_nodes", BrokerControls.pause)
    resume = forward_to("_nodes", BrokerControls.resume)
    wipe = forward_to("_nodes", BrokerControls.wipe)
    hold_metadata = forward_to("_nodes", BrokerControls.hold_metadata)

    leader = forward_to("_leaders", LeaderControls.leader)
    leader_epoch = forward_to("_leaders", LeaderControls.leader_epoch)
    isr = forward_to("_leaders", LeaderControls.isr)
    replicas = forward_to("_leaders", LeaderControls.replicas)
    move_leader = forward_to("_leaders", LeaderControls.move_leader)
    bump_epoch = forward_to("_leaders", LeaderControls.bump_epoch)
    move_coordinator = forward_to("_leaders", LeaderControls.move_coordinator)
    coordinator = forward_to("_leaders", LeaderControls.coordinator)
    hold_replication = forward_to("_leaders", LeaderControls.hold_replication)
    truncate = forward_to("_leaders", LeaderControls.truncate)
    delete_records = forward_to("_leaders", LeaderControls.delete_records)

    create_topic = forward_to("_data", DataControls.create_topic)
    delete_topic = forward_to("_data", DataControls.delete_topic)
    add_partitions = forward_to("_data", DataControls.add_partitions)
    topic_id = forward_to("_data", DataControls.topic_id)
    produce = forward_to("_data", DataControls.produce)
    append = forward_to("_data", DataControls.append)
    compact = forward_to("_data", DataControls.compact)
    end_transaction = forward_to("_data", DataControls.end_transaction)
    records = forward_to("_data", DataControls.records)
    batches = forward_to("_data", DataControls.batches)
    offsets = forward_to("_data", DataControls.offsets)
    forget_producers = forward_to("_data", DataControls.forget_producers)

    committed = forward_to("_groups", GroupControls.committed)
    rebalance = forward_to("_groups", GroupControls.rebalance)
    hold_loading = forward_to("_groups", GroupControls.hold_loading)
    hold_share_coordinator = forward_to("_groups", GroupControls.hold_share_coordinator)
    set_share_version = forward_to("_groups", GroupControls.set_share_version)

    allow = forward_to("_acls", AclControls.allow)
    deny = forward_to("_acls", AclControls.deny)
    client_certificate = forward_to("_security", SecurityControls.client_certificate)

    set_transaction_version = forward_to(
        "_transactions", TransactionControls.set_transaction_version
    )
    hold_markers = forward_to("_transactions", TransactionControls.hold_markers)
    hold_transaction_loading = forward_to(
        "_transactions", TransactionControls.hold_transaction_loading
    )
    time_out_transaction = forward_to("_transactions", TransactionControls.time_out_transaction)
    hang_transaction = forward_to("_transactions", TransactionControls.hang_transaction)
    forget_transactional_id = forward_to(
        "_transactions", TransactionControls.forget_transactional_id
    )
    set_producer_epoch = forward_to("_transactions", TransactionControls.set_producer_epoch)
    pending_offsets = forward_to("_transactions", TransactionControls.pending_offsets)
