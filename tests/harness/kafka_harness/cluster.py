"""A cluster of real brokers, and the same interface for a cluster that is already running."""

import contextlib
import functools
import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from .distribution import KAFKA, Distribution, identify_directory, random_id
from .node import KafkaNode, ReservedPort
from .probe import KafkaProbeError, Partition, Picture, Probe, wait_until
from .properties import node_properties
from .telemetry import compiled_forwarder, forwarder_properties

CONTROLLER = 100
LOOPBACK = "127.0.0.1"

UNPLACED = "Unable to replicate the partition"
"""The answer of a controller without heartbeats of enough brokers, as on a loaded machine."""


class ExternalKafka:
    """A cluster known by its bootstrap servers only, without control over its processes."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def addresses(self) -> list[tuple[str, int]]:
        pairs = (server.strip().rsplit(":", 1) for server in self.bootstrap.split(","))
        return [(host, int(port)) for host, port in pairs]

    def metadata(self, topics: list[str] | None = None) -> Picture:
        """Return the metadata from the first broker that responds.

        ``topics=None`` requests all topics.
        """
        found: list[Picture] = []

        def asked() -> bool:
            for address in self.addresses():
                with contextlib.suppress(OSError):
                    found.append(Probe(*address).metadata(topics))
                    return True
            return False

        wait_until(f"a broker that answers at {self.bootstrap}", asked, 30)
        return found[0]

    def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        replication: int = 1,
        configs: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic, wait until all brokers know its leaders, and return its name."""
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        settings = {key: str(value) for key, value in (configs or {}).items()}

        def created() -> bool:
            address = self._controller()
            if address is None:
                return False  # The sessions of all brokers have ended, as after a suspension.
            try:
                Probe(*address, timeout=60).create_topic(name, partitions, replication, settings)
            except KafkaProbeError as error:
                if UNPLACED not in str(error):
                    raise
                return False
            return True

        wait_until(f"brokers that can get {name}", created, 30)
        self.await_partitions(name, partitions)
        return name

    def await_partitions(self, topic: str, count: int) -> None:
        """Wait until all brokers know this number of partitions of the topic, and their leaders."""
        wait_until(f"{count} partitions of {topic}", lambda: self._knows(topic, count), 30)

    def await_all_brokers(self) -> None:
        """Wait until all brokers know what the controller has decided before this call.

        A command that changes something ends when the controller has done so, and the brokers learn
        of it one by one. They learn of all changes in their order, so whoever knows a topic that is
        created now knows all earlier changes. A broker that has just been stopped counts until it
        is no longer in the metadata.
        """
        name = f"sync-{uuid.uuid4().hex[:12]}"

        def created() -> bool:
            return self._change_topic(lambda probe: probe.create_topic(name, 1, 1, {}))

        def deleted() -> bool:
            return self._change_topic(lambda probe: probe.delete_topic(name))

        wait_until(f"a broker that creates {name}", created, 30)
        wait_until(f"all brokers to know {name}", lambda: self._is_known(name), 30)
        wait_until(f"a broker that deletes {name}", deleted, 30)

    def _change_topic(self, change: Callable[[Probe], object]) -> bool:
        """Make a change by the first broker that answers."""
        for address in self.addresses():
            with contextlib.suppress(OSError):
                change(Probe(*address, timeout=60))
                return True
        return False

    def _is_known(self, topic: str) -> bool:
        brokers = self.metadata([]).brokers.values()
        with contextlib.suppress(OSError):
            return all(topic in Probe(*address).metadata([topic]).topics for address in brokers)
        return False

    def _controller(self) -> tuple[str, int] | None:
        picture = self.metadata([])
        found = picture.brokers.get(picture.controller)
        return found or next(iter(picture.brokers.values()), None)

    def _knows(self, name: str, partitions: int) -> bool:
        brokers = self.metadata([]).brokers
        pictures = [Probe(*a).metadata([name]) for a in brokers.values()]
        found = [picture.topics.get(name, {}) for picture in pictures]
        if not found or any(
            len(ps) != partitions or any(p.leader < 0 for p in ps.values()) for ps in found
        ):
            return False
        # A broker announces that it is the leader a moment before it acts as one. Records that it
        # receives in between are lost if the producer waits for no acknowledgement.
        led: dict[int, list[int]] = {}
        for index, partition in found[0].items():
            led.setdefault(partition.leader, []).append(index)
        return all(
            node in brokers and Probe(*brokers[node]).leads(name, indexes)
            for node, indexes in led.items()
        )

    def partition(self, topic: str, partition: int) -> Partition:
        found = self.metadata([topic]).topics.get(topic, {})
        return found.get(partition) or Partition(-1, -1, [], [])

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader's node id, or -1 if there is none."""
        return self.partition(topic, partition).leader


class KafkaCluster(ExternalKafka):
    """A cluster of ``brokers`` nodes: one combined node, or brokers 1, 2, ... and a controller.

    With a separate controller (node 100), the death of a broker does not affect the quorum. There
    may be several ``controllers`` (nodes 100, 101, ...), which are never combined with brokers.
    ``properties`` apply to every node. ``listeners`` are additional listeners of the brokers, by
    name with their security protocol; `listener` returns their addresses. ``hosts`` maps some of
    these listeners to the host names for 127.0.0.1 that they advertise. If ``formatted_by`` is an
    older version, `change_version` can go back to that version. ``telemetry`` is the topic into
    which the brokers write the metrics that clients push; `pushed` reads its records. ``racks`` are
    the racks of the brokers in their order, and ``log_dirs`` is the number of log directories of
    each of them; `list_log_dirs` returns their paths. The cluster is a context manager. At its end,
    the nodes are killed by SIGKILL and all files are deleted.
    """

    def __init__(
        self,
        distribution: Distribution = KAFKA,
        brokers: int = 1,
        *,
        controllers: int = 1,
        port: int = 0,
        properties: Mapping[str, object] | None = None,
        listeners: Mapping[str, str] | None = None,
        hosts: Mapping[str, str] | None = None,
        jvm: tuple[str, ...] = (),
        archive: bool = True,
        formatted_by: Distribution | None = None,
        telemetry: str | None = None,
        racks: Sequence[str] = (),
        log_dirs: int = 1,
    ) -> None:
        self._racks, self._log_dir_count = dict(enumerate(racks, 1)), log_dirs
        self._template = formatted_by or distribution
        self.distribution, self.cluster_id = distribution, random_id()
        self.nodes: dict[int, KafkaNode] = {}
        self._extra = dict(properties or {})
        shared = [f"-XX:SharedArchiveFile={distribution.archive()}"] if archive else []
        self._jvm = (*shared, *jvm)
        self._ports = {i: ReservedPort(port + i - 1 if port else 0) for i in range(1, brokers + 1)}
        self._combined = brokers == controllers == 1
        ids = [1] if self._combined else range(CONTROLLER, CONTROLLER + controllers)
        self._controller_ports = {i: ReservedPort() for i in ids}
        self._protocols, self._hosts = dict(listeners or {}), dict(hosts or {})
        self._further = {name: {i: ReservedPort() for i in self._ports} for name in self._protocols}
        self._former: list[ReservedPort] = []
        self._was_paused = False
        """Whether a node was suspended since the brokers' sessions were last known to be alive."""
        super().__init__(self._servers())
        self._telemetry = telemetry
        self._plugins = () if telemetry is None else (compiled_forwarder(distribution),)

    def _servers(self) -> str:
        return ",".join(f"127.0.0.1:{self._ports[i].port}" for i in self._ports)

    def __enter__(self) -> Self:
        try:
            self._launch()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes.values():
            node.remove()
        further = [port for ports in self._further.values() for port in ports.values()]
        ports = (*self._ports.values(), *self._controller_ports.values())
        for port in (*ports, *further, *self._former):
            port.release()

    def listener(self, name: str) -> str:
        """Return the bootstrap servers of an additional listener."""
        host = self._hosts.get(name, LOOPBACK)
        return ",".join(f"{host}:{port.port}" for port in self._further[name].values())

    @property
    def controllers(self) -> str:
        """The addresses of the controllers' listeners."""
        return ",".join(f"{LOOPBACK}:{port.port}" for port in self._controller_ports.values())

    def start(self, node: int, timeout: float = 60) -> None:
        """Start a stopped or killed node again, and wait until it serves requests."""
        self.nodes[node].start()
        self._await_brokers(timeout)

    def kill(self, node: int) -> None:
        """Kill a node with SIGKILL."""
        self.nodes[node].kill()

    def stop(self, node: int, timeout: float = 30) -> None:
        """Stop a node with SIGTERM and wait; the broker first transfers its leaderships."""
        self.nodes[node].signal(signal.SIGTERM)
        self.nodes[node].wait(timeout)

    def move(self) -> None:
        """Give all brokers other ports, at which they listen after their next start.

        No broker may be running. The former ports refuse connections. The ports of additional
        listeners and of the controller do not change.
        """
        for node, port in self._ports.items():
            assert not self._serves(node), "a broker that runs cannot move"
            self._former.append(port)
            self._ports[node] = ReservedPort()
            properties = self._properties(node, self.nodes[node].folder)
            self.nodes[node].configure(properties)
        self.bootstrap = self._servers()

    def change_version(self, node: int, distribution: Distribution) -> None:
        """Stop a node cleanly, and start it with another version on the same data."""
        self.stop(node)
        self.nodes[node].use(distribution, (f"-XX:SharedArchiveFile={distribution.archive()}",))
        self.start(node)

    def pause(self, node: int) -> None:
        """Suspend a node with SIGSTOP. Its sockets stay open."""
        self.nodes[node].signal(signal.SIGSTOP)
        self._was_paused = True

    def resume(self, node: int) -> None:
        self.nodes[node].signal(signal.SIGCONT)

    def heal(self, timeout: float = 60) -> None:
        """Resume suspended nodes, restart ended ones, and wait until all brokers respond."""
        for node in self.nodes.values():
            node.signal(signal.SIGCONT)
            if not node.alive:
                node.start()
        self._await_brokers(timeout)
        if self._was_paused:
            self._was_paused = False
            self._await_sessions()

    def _await_sessions(self) -> None:
        """Wait until the controller counts all brokers as alive, after nodes were suspended.

        When a suspended controller goes on, it may find that the sessions of all brokers have
        ended. Until a broker has registered anew, it leads no partition that is created.
        """
        name = self.create_topic(replication=len(self._ports))
        self.await_in_sync(name)
        self._change_topic(lambda probe: probe.delete_topic(name))

    def await_leader(self, topic: str, partition: int = 0, *, other_than: int = -1) -> int:
        """Wait until the partition has a leader, other than ``other_than``, and return it."""
        wait_until(
            f"a leader of {topic}-{partition}",
            lambda: self.leader(topic, partition) not in (-1, other_than),
            30,
        )
        return self.leader(topic, partition)

    def await_in_sync(self, topic: str, partition: int = 0) -> None:
        """Wait until every replica of the partition is in sync."""

        def whole() -> bool:
            found = self.partition(topic, partition)
            return bool(found.replicas) and set(found.in_sync) == set(found.replicas)

        wait_until(f"the replicas of {topic}-{partition}", whole, 60)

    def addresses(self) -> list[tuple[str, int]]:
        """Return the addresses of the running nodes."""
        return [self.address(i) for i in self._ports if self._serves(i)]

    def address(self, node: int) -> tuple[str, int]:
        """Return the address of a broker."""
        return LOOPBACK, self._ports[node].port

    def _serves(self, node: int) -> bool:
        return node in self.nodes and self.nodes[node].alive

    def _launch(self) -> None:
        if not self._combined:
            for i in self._controller_ports:
                self._add(i)
        for i in self._ports:
            self._add(i)
        for node in self.nodes.values():
            node.start()
        self._await_brokers(120)
        self._warm_up()

    def _add(self, node_id: int) -> None:
        folder = self._template.node_folder(node_id, self.cluster_id)
        if node_id in self._ports:
            for path in self._find_log_dirs(folder)[1:]:
                identify_directory(path, node_id, self.cluster_id)
        properties = self._properties(node_id, folder)
        self.nodes[node_id] = KafkaNode(
            self.distribution, folder, properties, self._jvm, self._plugins
        )

    def _properties(self, node_id: int, folder: Path) -> dict[str, object]:
        is_broker = node_id in self._ports
        roles = "broker,controller" if self._combined else "broker" if is_broker else "controller"
        properties = node_properties(
            node_id,
            roles,
            major=self._template.major,
            brokers=len(self._ports),
            folder=str(folder / "data"),
            port=self._ports[node_id].port if is_broker else 0,
            controllers={i: port.port for i, port in self._controller_ports.items()},
            listeners={
                name: (protocol, self._further[name][node_id].port)
                for name, protocol in self._protocols.items()
                if is_broker
            },
            hosts=self._hosts,
        )
        if is_broker:
            properties["log.dirs"] = ",".join(map(str, self._find_log_dirs(folder)))
        if node_id in self._racks:
            properties["broker.rack"] = self._racks[node_id]
        if self._telemetry is not None:
            properties |= forwarder_properties(self._telemetry, self._servers())
        return properties | self._extra

    def list_log_dirs(self, node: int) -> list[str]:
        """Return the paths of the log directories of a broker."""
        return [str(path) for path in self._find_log_dirs(self.nodes[node].folder)]

    def _find_log_dirs(self, folder: Path) -> list[Path]:
        further = range(2, self._log_dir_count + 1)
        return [folder / "data", *(folder / f"data-{number}" for number in further)]

    def _await_brokers(self, timeout: float) -> None:
        """Wait until each running broker answers, and its response names all running brokers."""
        deadline = time.monotonic() + timeout
        expected = {i for i in self._ports if self._serves(i)}
        for i in expected:
            wait_until(
                f"broker {i} to serve{self._logs()}",
                functools.partial(self._sees, i, expected),
                max(0.0, deadline - time.monotonic()),
            )

    def _sees(self, node: int, expected: set[int]) -> bool:
        if not self.nodes[node].alive:
            raise KafkaProbeError(f"Node {node} ended unexpectedly.{self._logs()}")
        picture = Probe("127.0.0.1", self._ports[node].port).metadata([])
        return expected <= set(picture.brokers)

    def _warm_up(self) -> None:
        """Create the internal topics, because their first use takes seconds."""
        kinds = (0, 1, 2) if self._template.major >= 4 else (0, 1)
        for kind in kinds:
            wait_until("the coordinators", functools.partial(self._coordinates, kind), 60)
        wait_until("producer ids", lambda: self._probe().producer_id_error() == 0, 60)

    def _probe(self) -> Probe:
        return Probe(*self.addresses()[0])

    def _coordinates(self, kind: int) -> bool:
        return self._probe().coordinator_error(kind) == 0

    def _logs(self) -> str:
        return "".join(f"\n--- node {i}\n{n.tail()}" for i, n in self.nodes.items() if n.tail())
