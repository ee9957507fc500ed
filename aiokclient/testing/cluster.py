"""`EmbeddedCluster`: brokers of one's own for tests and demos, without Java.

Brokers listen on loopback and speak Kafka's protocol to any client. They share one state in
one event loop (`state.py`), keep record batches as the bytes that came (`log.py`), and answer
as Apache Kafka 4 does, errors included, as far as each handler's docstring says.

Beside what Kafka's clients can do, a test may look at everything and make things go wrong:
refuse, drop, delay, throttle and alter answers, stop and pause brokers, move and depose leaders,
hold back replication, cut logs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from aiokclient.clock import Clock, SystemClock
from aiokclient.errors import IllegalStateError
from aiokclient.testing.broker.broker import Broker
from aiokclient.testing.broker.codes import Refused
from aiokclient.testing.broker.groups.coordinator import GroupCoordinator, groups_of
from aiokclient.testing.broker.groups.group import GroupView
from aiokclient.testing.broker.handlers import announced
from aiokclient.testing.broker.listener import Listener, TcpListener
from aiokclient.testing.broker.requests import ReceivedRequest
from aiokclient.testing.broker.state import ClusterState
from aiokclient.testing.controls.base import control
from aiokclient.testing.controls.brokers import BrokerControls
from aiokclient.testing.controls.data import DataControls
from aiokclient.testing.controls.faults import FaultControls
from aiokclient.testing.controls.groups import GroupControls
from aiokclient.testing.controls.leaders import LeaderControls
from aiokclient.testing.runner import Runner

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")

_TIMEOUT_S = 60.0


class EmbeddedCluster:
    """Brokers 1 to `brokers`, with topics.

        with EmbeddedCluster(brokers=3, topics={"orders": 6}) as cluster:
            ...  # in a thread of its own, for plain and async code

        async with EmbeddedCluster() as cluster:
            ...  # in this event loop

        cluster = EmbeddedCluster()
        cluster.start()  # in a thread of its own, until close(): for notebooks
        cluster.close()

    topics: names with their numbers of partitions, or names alone (one partition each)
    port: of the first broker, the others follow; 0 for any free ones
    host, advertised_host: where to listen, and what clients are told (the same unless given)
    replication: replicas of a topic that does not say; min(3, brokers) unless given
    racks: one for each broker; with them a fetch is sent to a replica in the client's rack
    configs: the brokers' configs by Kafka's names (`configs.BROKER_OPTIONS`)
    retention_bytes: how much a partition keeps, 256 MiB unless given; -1 for all of it
    resync: let a group's leader give new assignments within a generation, which Kafka does not;
        announced as the feature "group.resync" (`groups/rebalancing.py` says what happens)
    persist_groups: whether a coordinator that takes over finds generations and members
    seed: makes ids, and whatever else is left to chance, the same each time
    clock: the wall clock of the brokers
    listener: where connections come from; TCP unless given

    All controls but `until` are synchronous and may be called from any thread. A cluster is used
    once.
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
        auto_create_topics: bool = False,
        configs: Mapping[str, str | int] = {},
        retention_bytes: int | None = None,
        resync: bool = False,
        persist_groups: bool = True,
        seed: int | None = None,
        clock: Clock | None = None,
        listener: Listener | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError("a cluster has at least one broker")
        if racks and len(racks) != brokers:
            raise ValueError(f"{len(racks)} racks are given for {brokers} brokers")
        self._runner = Runner()
        self._state = ClusterState(
            random.Random(seed), self._runner.post, announced(), GroupCoordinator
        )
        self._brokers: dict[int, Broker] = {}
        self._state.clock = clock or SystemClock()
        self._state.groups.resync = resync
        self._state.groups.persist = persist_groups
        self._sockets = TcpListener()
        self._listener = listener or self._sockets
        self._listen_host = host
        self._faults = FaultControls(self._state, self._brokers, self._runner)
        self._nodes = BrokerControls(self._state, self._brokers, self._runner, self._listener, host)
        self._leaders = LeaderControls(self._state, self._brokers, self._runner)
        self._data = DataControls(self._state, self._brokers, self._runner)
        self._groups = GroupControls(self._state, self._brokers, self._runner)
        self._used = False
        defaults = {
            "auto.create.topics.enable": str(auto_create_topics).lower(),
            "default.replication.factor": str(replication or min(3, brokers)),
            **{name: str(value) for name, value in configs.items()},
        }
        if retention_bytes is not None:
            defaults["log.retention.bytes"] = str(retention_bytes)
        self._state.static_configs.change(defaults)
        for index in range(brokers):
            broker = self._brokers[index + 1] = Broker(
                self._state,
                index + 1,
                advertised_host or host,
                port + index if port else 0,
                racks[index] if racks else None,
            )
            self._state.brokers[broker.node_id] = broker
        if isinstance(topics, str):
            topics = (topics,)
        self._topics = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)

    # -- running ---------------------------------------------------------------------------

    def start(self, broker: int | None = None) -> None:
        """Start the cluster in a thread of its own, or one of its brokers that was stopped.

        The thread ends with `close()` or with the process. A broker starts on its old port,
        catches up, and leads only where nobody else can. From the thread of the cluster's own
        loop, it answers from the loop's next turn on.

        Raises IllegalStateError for a cluster that was started before, ValueError for a broker
        that does not exist, OSError for a port that is not free.
        """
        if broker is not None:
            self._nodes.start(broker)
            return
        self._use()
        self._runner.start_thread(self._open, self._shut)

    def close(self) -> None:
        """Stop all brokers and end the cluster. Idempotent, also before the start.

        Inside `async with` it stops the brokers, and leaving the block does the rest. Raises
        IllegalStateError in the cluster's own thread, which cannot wait for its end, and
        RuntimeError if a broker has failed on a request.
        """
        self._used = True
        self._runner.stop_thread(self._shut)
        self._runner.post(self._shut)
        self._raise_failure()

    def _raise_failure(self) -> None:
        bug, self._state.bug = self._state.bug, None
        if bug is not None:
            raise RuntimeError(
                "A broker of the embedded cluster failed on a request: this is a bug of it, or "
                "of a function that the test gave to alter()."
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
        self._runner.stop_thread(self._shut)
        if error is None:
            self._raise_failure()

    async def __aenter__(self) -> EmbeddedCluster:
        self._use()
        self._runner.attach()
        try:
            await self._open()
        except BaseException:
            self._shut()
            await self._runner.detach()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shut()
        await self._runner.detach()
        if error is None:
            self._raise_failure()

    def _use(self) -> None:
        if self._used:
            raise IllegalStateError("An EmbeddedCluster is used once: make another one.")
        self._used = True

    async def _open(self) -> None:
        state = self._state
        state.loop = self._runner.loop
        for broker in self._brokers.values():
            broker.listen(self._listener, self._listen_host)
            await broker.serve()
        for name, partitions in self._topics.items():
            try:
                state.create_topic(name, state.assign(partitions, -1))
            except Refused as error:
                raise ValueError(f"topics: {name!r}: {error}") from None

    def _shut(self) -> None:
        self._state.groups.close()
        for broker in self._brokers.values():
            broker.shut()
        self._sockets.close()

    # -- looking ---------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, as `host:port` with commas between. IllegalStateError before the start."""
        return ",".join(f"{host}:{port}" for host, port in map(self.address, self.brokers))

    @property
    def brokers(self) -> list[int]:
        """The ids of all brokers, up or not."""
        return list(self._state.brokers)

    @property
    def cluster_id(self) -> str:
        """The id that the brokers tell, 22 characters of base64url."""
        return self._state.cluster_id

    def address(self, broker: int) -> tuple[str, int]:
        """Host and port of a broker; the port stays the same when it is stopped and started.

        IllegalStateError before the cluster is started: it has no ports then.
        """
        found = self._nodes.broker(broker)
        if not found.port:
            raise IllegalStateError(
                "The embedded cluster has no ports before its start. Use it in a `with` or an "
                "`async with` block, or call start()."
            )
        return found.host, found.port

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The last 10,000 requests, oldest first: api, version, broker, message, client_id, at.

        They take at most 32 MiB. Over that, older produce requests keep only the headers of their
        batches, and if that is not enough, the oldest requests are forgotten.
        """
        return self._runner.call(self._state.requests.list)

    @property
    def requests_total(self) -> int:
        """How many requests there were since the start or the last `reset`."""
        return self._runner.call(lambda: self._state.requests.total)

    @property
    def topics(self) -> dict[str, int]:
        """The topics with their numbers of partitions."""
        return self._data.topics

    @property
    def groups(self) -> dict[str, GroupView]:
        """All groups by their ids, as they are now.

        Each is a tuple of `group_id`, `kind` (a GroupType), `state` (Kafka's name, or
        "loading"), `generation` (or epoch), `protocol_type`, `protocol`, `leader` (a member id,
        or None) and `members`: by their ids tuples of `member_id`, `instance_id`, `client_id`,
        `metadata` and `assignment`.
        """
        return self._groups.groups

    def connections(self, broker: int | None = None) -> int:
        """How many connections a broker has, or all of them."""
        return self._runner.call(
            lambda: sum(
                each.connections
                for each in self._brokers.values()
                if broker in (None, each.node_id)
            )
        )

    def wait_for(self, predicate: Callable[[], T], timeout: float = _TIMEOUT_S) -> T:
        """Block until `predicate()` is true, and give what it gave.

        It is asked in this thread, whenever something happened. Raises KafkaTimeoutError after
        `timeout` seconds, and IllegalStateError in a thread that runs an event loop.
        """
        return self._runner.wait_for(predicate, timeout, self._state.watch)

    async def until(self, predicate: Callable[[], T], timeout: float = _TIMEOUT_S) -> T:
        """`wait_for` for a coroutine, in any event loop."""
        return await self._runner.until(predicate, timeout, self._state.watch)

    def reset(self) -> None:
        """Take all faults back and forget the requests; brokers that are down or paused go on.

        What clients had sent by then is forgotten too, though no broker has read it yet; but not
        from the thread of the cluster's own loop, where it is read at the loop's next turn. Topics
        and their records stay, and so do leaders and groups.
        """
        self._runner.catch_up()
        self._runner.call(self._take_back)
        for broker in self.brokers:
            if not self._nodes.broker(broker).alive:
                self.start(broker)

    def _take_back(self) -> None:
        state = self._state
        state.faults.clear()
        groups_of(state).release_all()
        state.unlimited_versions()
        state.held.clear()
        state.requests.clear()
        for partition in state.partitions():
            for node in partition.replicas:
                partition.release(node)
        for broker in self._brokers.values():
            broker.resume()

    # -- what a test may do; each control is documented where it is -------------------------

    fail = control("_faults", FaultControls.fail)
    drop = control("_faults", FaultControls.drop)
    delay = control("_faults", FaultControls.delay)
    throttle = control("_faults", FaultControls.throttle)
    alter = control("_faults", FaultControls.alter)
    limit_versions = control("_faults", FaultControls.limit_versions)
    disconnect = control("_faults", FaultControls.disconnect)
    evict_sessions = control("_faults", FaultControls.evict_sessions)

    stop = control("_nodes", BrokerControls.stop)
    pause = control("_nodes", BrokerControls.pause)
    resume = control("_nodes", BrokerControls.resume)
    wipe = control("_nodes", BrokerControls.wipe)
    hold_metadata = control("_nodes", BrokerControls.hold_metadata)

    leader = control("_leaders", LeaderControls.leader)
    leader_epoch = control("_leaders", LeaderControls.leader_epoch)
    isr = control("_leaders", LeaderControls.isr)
    replicas = control("_leaders", LeaderControls.replicas)
    move_leader = control("_leaders", LeaderControls.move_leader)
    bump_epoch = control("_leaders", LeaderControls.bump_epoch)
    move_coordinator = control("_leaders", LeaderControls.move_coordinator)
    coordinator = control("_leaders", LeaderControls.coordinator)
    hold_replication = control("_leaders", LeaderControls.hold_replication)
    truncate = control("_leaders", LeaderControls.truncate)
    delete_records = control("_leaders", LeaderControls.delete_records)

    create_topic = control("_data", DataControls.create_topic)
    delete_topic = control("_data", DataControls.delete_topic)
    add_partitions = control("_data", DataControls.add_partitions)
    topic_id = control("_data", DataControls.topic_id)
    produce = control("_data", DataControls.produce)
    append = control("_data", DataControls.append)
    end_transaction = control("_data", DataControls.end_transaction)
    records = control("_data", DataControls.records)
    offsets = control("_data", DataControls.offsets)
    forget_producers = control("_data", DataControls.forget_producers)

    committed = control("_groups", GroupControls.committed)
    rebalance = control("_groups", GroupControls.rebalance)
    hold_loading = control("_groups", GroupControls.hold_loading)
