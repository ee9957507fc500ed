"""The shared state of the brokers of an embedded cluster: topics, leaders, coordinators, ids.

Where Kafka has a controller and a replicated metadata log, this is one object in one event loop,
and every broker sees a change immediately. All of it runs in that loop. Nothing here may be called
from another thread.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from aiokclient.protocol import ApiKey
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.codes import Refused as Refused
from aiokclient.testing.broker.configs import (
    TOPIC_OPTIONS,
    BrokerConfigSource,
    BrokerOption,
    Configs,
    ConfigValueError,
)
from aiokclient.testing.broker.connections.turns import Turns
from aiokclient.testing.broker.faults import Faults
from aiokclient.testing.broker.internal.topics import InternalTopics
from aiokclient.testing.broker.node import Node
from aiokclient.testing.broker.requests import RequestLog
from aiokclient.testing.broker.security.state import Security
from aiokclient.testing.broker.share.states import ShareStates
from aiokclient.testing.broker.telemetry.subscriptions import MetricsSubscriptions
from aiokclient.testing.broker.topics.internal_partition import InternalPartition
from aiokclient.testing.broker.topics.topics import (
    INTERNAL,
    BrokerTopic,
    Partition,
    hash_string,
)
from aiokclient.testing.broker.topics.views import ClusterView, HeldCluster
from aiokclient.testing.broker.versions import BrokerVersions
from aiokclient.testing.runner import Watch
from aiokclient.types import is_topic_name

if TYPE_CHECKING:
    from aiokclient.clock import Clock
    from aiokclient.protocol import framing
    from aiokclient.protocol.fields import Buffer
    from aiokclient.testing.broker.telemetry.receiver import ClientTelemetryReceiver

_log = logging.getLogger(__name__)

MOST_PARTITIONS = 10_000
_DASH = 62
"""The six bits that base64url writes as a dash."""
"""The maximum number of partitions that one request creates, as in Kafka."""


class Groups(Protocol):
    """The groups of a cluster, as seen by the rest of the brokers."""

    persist: bool
    resync: bool

    def make_replacement(self) -> Groups:
        """Cancel all timers, and return a new object with the same settings and without groups."""

    def move_to_coordinators(self) -> None:
        """Move each group to its coordinator, after brokers or coordinators changed."""

    def on_topic_deleted(self, topic: str) -> None:
        """Remove the offsets of a topic."""

    def find_configs(self, group_id: str, *, keep: bool) -> Configs:
        """Return the configs of a group, or new ones if it has none.

        If `keep` is true, the new ones are stored as those of the group.
        """
        ...

    @property
    def ids_with_configs(self) -> list[str]:
        """The ids of the groups that have configs of their own."""

    def close(self) -> None:
        """Cancel all timers."""


class Transactions(Protocol):
    """The transactional ids of a cluster, as seen by the rest of the brokers."""

    level: int

    def make_replacement(self) -> Transactions:
        """Cancel all timers, and return a new object with the same level and without ids."""

    def move_to_coordinators(self) -> None:
        """Move each transactional id to its coordinator, and write markers that can be written."""

    def on_topic_deleted(self, topic: str) -> None:
        """Continue with transactions that were to write markers to a deleted topic."""

    def close(self) -> None:
        """Cancel all timers."""


class ClusterState:
    """The shared state of the brokers. `loop` and `clock` are set when the cluster starts."""

    loop: asyncio.AbstractEventLoop
    clock: Clock

    def __init__(
        self,
        rng: random.Random,
        post: Callable[[Callable[[], None]], None],
        announced: Mapping[ApiKey, tuple[int, int]],
        new_groups: Callable[[ClusterState], Groups],
        new_transactions: Callable[[ClusterState], Transactions],
        *,
        options: Mapping[str, BrokerOption],
        telemetry: ClientTelemetryReceiver | None,
        hidden: Collection[ApiKey],
    ) -> None:
        """`post` runs a function in the cluster's loop. Any thread may call `post`.

        `options` are those of the brokers, with their defaults. The APIs in `hidden` are answered
        although they are not announced.
        """
        self.rng = rng
        self.versions = BrokerVersions(announced, hidden)
        self.cluster_id = self._new_cluster_id()
        self.static_configs = Configs(options, BrokerConfigSource.STATIC_BROKER)
        self.configs = Configs(
            options, BrokerConfigSource.DYNAMIC_DEFAULT_BROKER, self.static_configs
        )
        self.brokers: dict[int, Node] = {}
        self.topics: dict[str, BrokerTopic] = {}
        self.topics_by_id: dict[UUID, BrokerTopic] = {}
        self.internal = InternalTopics(self)
        self.topology = 0
        """The number of changes of topics and their partitions so far."""
        self.faults = Faults(post)
        self.requests = RequestLog()
        self.turns = Turns()
        self.watch = Watch()
        self.groups = new_groups(self)
        self.transactions = new_transactions(self)
        self.share_states = ShareStates(self)
        self.share_level = 2
        """The level of the feature share.version. With 0, share groups are disabled."""
        self.features_epoch = 0
        """The number of changes of the finalized features."""
        self.security = Security(
            rng, now=lambda: self.loop.time(), time_ms=lambda: self.clock.time_ms()
        )
        self.telemetry = telemetry
        """The receiver of pushed metrics. Without one, clients cannot push."""
        self.metrics_subscriptions = MetricsSubscriptions()
        self.bug: Exception | None = None
        """The exception of a handler: a bug in the embedded cluster, not in the tested client."""
        self.held: dict[int, HeldCluster] = {}
        """The metadata that a test has frozen, by broker id."""
        self._coordinators: dict[str, int] = {}

    def wipe(self, *, same_id: bool) -> None:
        """Remove everything except the brokers and the configs."""
        self.groups = self.groups.make_replacement()
        self.transactions = self.transactions.make_replacement()
        self.share_states = ShareStates(self)
        for topic in list(self.topics.values()):
            self.delete_topic(topic)
        self.held.clear()
        self._coordinators.clear()
        if not same_id:
            self.cluster_id = self._new_cluster_id()
        self.notify_tests()

    def make_view(self, node_id: int) -> ClusterView:
        """Return the cluster as a broker describes it."""
        return self.held.get(node_id) or self

    def _new_cluster_id(self) -> str:
        return base64.urlsafe_b64encode(self.make_topic_id().bytes).decode().rstrip("=")

    def make_topic_id(self) -> UUID:
        """Return a random id. As in Kafka, no text of one begins with a dash (KAFKA-13741)."""
        while (bits := self.rng.getrandbits(128)) >> 122 == _DASH:
            continue
        return UUID(int=bits, version=4)

    # -- brokers ---------------------------------------------------------------------------

    @property
    def alive(self) -> dict[int, Node]:
        """The registered brokers that listen, by id."""
        return {
            node: broker
            for node, broker in self.brokers.items()
            if broker.alive and broker.registered
        }

    @property
    def registered(self) -> dict[int, Node]:
        """The brokers that the cluster knows, by id."""
        return {node: broker for node, broker in self.brokers.items() if broker.registered}

    @property
    def controller(self) -> int:
        """The id of the broker that is reported as the controller; -1 while none is running."""
        return min(self.alive, default=-1)

    def on_broker_started(self, broker: Node) -> None:
        """Handle the start of a broker. It catches up, and may lead partitions without a leader."""
        for partition in self.list_partitions():
            if broker.node_id in partition.replicas:
                self.settle_partition(partition)
        self.settle_coordinators()
        self.notify_tests()

    def on_broker_stopped(self, node_id: int) -> None:
        """Handle the stop of a broker: other in-sync replicas lead its partitions."""
        for partition in self.list_partitions():
            if node_id in partition.replicas:
                self.settle_partition(partition)
        self.settle_coordinators()
        self.notify_tests()

    def unregister_broker(self, node_id: int) -> None:
        """Remove a broker from the metadata, until it starts again."""
        self.brokers[node_id].registered = False
        self.on_broker_stopped(node_id)

    def settle_partition(self, partition: Partition) -> None:
        """Elect a leader if the partition needs one, and let running replicas catch up."""
        alive = self.alive
        partition.elect_leader(alive)
        for node_id in partition.replicas:
            if node_id in alive:
                partition.catch_up_replica(node_id)
            else:
                partition.remove_from_isr(node_id)

    def find_coordinator(self, key: str) -> Node | None:
        """Return the coordinator of a group, a transactional id, or a share partition."""
        alive = self.alive
        if not alive:
            return None
        moved = self._coordinators.get(key)
        if moved in alive:
            return alive[moved]
        nodes = sorted(self.brokers)
        first = hash_string(key) % len(nodes)
        return next(alive[each] for each in nodes[first:] + nodes[:first] if each in alive)

    def settle_coordinators(self) -> None:
        """Move each group and each transactional id to its coordinator."""
        self.groups.move_to_coordinators()
        self.transactions.move_to_coordinators()

    def move_coordinator(self, key: str, to: int | None) -> int:
        """Move `key` to another broker, or to the broker `to`, and return its id."""
        now = self.find_coordinator(key)
        choices = [each for each in self.alive if now is None or each != now.node_id]
        target = to if to is not None else min(choices, default=-1)
        if target not in self.brokers:
            raise ValueError("No other broker is running.")
        self._coordinators[key] = target
        self.settle_coordinators()
        self.notify_tests()
        return target

    def set_share_level(self, level: int) -> None:
        """Change the level of share.version. Level 0 ends all share sessions."""
        if level == self.share_level:
            return
        self.share_level = level
        self.features_epoch += 1
        if not level:
            for broker in self.brokers.values():
                broker.shares.drop_all()

    # -- topics ----------------------------------------------------------------------------

    def list_partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions

    def find_partition(self, topic: str, partition: int) -> Partition | None:
        found = self.topics.get(topic)
        return None if found is None else found.find_partition(partition)

    def check_new_topic(
        self,
        name: str,
        assignment: Sequence[Sequence[int]],
        configs: Mapping[str, str],
    ) -> None:
        """Raise Refused if a topic cannot be created with these arguments."""
        if not is_topic_name(name):
            raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name.")
        if name in self.topics:
            raise Refused(Code.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if (other := self._find_collision(name)) is not None:
            text = f"Topic '{name}' collides with existing topic: {other}"
            raise Refused(Code.INVALID_TOPIC_EXCEPTION, text)
        self.check_replicas(assignment)
        try:
            Configs(TOPIC_OPTIONS, BrokerConfigSource.TOPIC, self.configs, configs)
        except ConfigValueError as error:
            raise Refused(Code.INVALID_CONFIG, str(error)) from None

    def _find_collision(self, name: str) -> str | None:
        """Return a topic whose name differs only in periods and underscores.

        Kafka refuses such names, because they are the same in the names of its metrics.
        """
        count = name.count(".") + name.count("_")
        if not count:
            return None
        if count > 6:
            alike = name.replace(".", "_")
            return next((each for each in self.topics if each.replace(".", "_") == alike), None)
        parts = re.split(r"[._]", name)
        for marks in itertools.product("._", repeat=count):
            other = "".join(map("".join, zip(parts, (*marks, ""), strict=True)))
            if other in self.topics:
                return other
        return None

    def check_replicas(self, assignment: Sequence[Sequence[int]]) -> None:
        for replicas in assignment:
            known = all(each in self.registered for each in replicas)
            if not replicas or len(dict.fromkeys(replicas)) != len(replicas) or not known:
                raise Refused(
                    Code.INVALID_REPLICA_ASSIGNMENT, f"Replicas cannot be on {list(replicas)}."
                )

    def assign_replicas(self, partitions: int, replication: int, first: int = 0) -> list[list[int]]:
        """Return the replicas of new partitions, with the leaders spread over the brokers.

        For both numbers, -1 stands for the cluster's default. `first` is the index of the first new
        partition.
        """
        if partitions == -1:
            partitions = self.configs.read_number("num.partitions")
        nodes = sorted(self.registered)
        if replication == -1:
            replication = min(self.configs.read_number("default.replication.factor"), len(nodes))
        if partitions <= 0:
            raise Refused(Code.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
        if partitions > MOST_PARTITIONS:
            raise Refused(
                Code.POLICY_VIOLATION, "Excessively large number of partitions per request."
            )
        if not 0 < replication <= len(nodes):
            raise Refused(
                Code.INVALID_REPLICATION_FACTOR,
                f"Replication factor {replication} is not possible with {len(nodes)} brokers.",
            )
        return [
            [nodes[(index + step) % len(nodes)] for step in range(replication)]
            for index in range(first, first + partitions)
        ]

    def create_topic(
        self,
        name: str,
        assignment: Sequence[Sequence[int]],
        configs: Mapping[str, str] = {},
        topic_id: UUID | None = None,
    ) -> BrokerTopic:
        """Create a topic with these replicas of each partition. Raises Refused."""
        self.check_new_topic(name, assignment, configs)
        topic = BrokerTopic(
            name,
            topic_id or self.make_topic_id(),
            Configs(TOPIC_OPTIONS, BrokerConfigSource.TOPIC, self.configs, configs),
            InternalPartition if name in INTERNAL else Partition,
        )
        self.topics[name] = topic
        self.topics_by_id[topic.topic_id] = topic
        self.add_partitions(topic, assignment)
        return topic

    def add_partitions(self, topic: BrokerTopic, assignment: Iterable[Sequence[int]]) -> None:
        for replicas in assignment:
            topic.add_partition(replicas)
            self.settle_partition(topic.partitions[-1])
        self.topology += 1
        self.notify_tests()

    def delete_topic(self, topic: BrokerTopic) -> None:
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        self.topology += 1
        topic.on_deleted()
        self.groups.on_topic_deleted(topic.name)
        self.share_states.delete_topic(topic.topic_id)
        self.transactions.on_topic_deleted(topic.name)
        self.notify_tests()

    # -- observation by tests ------------------------------------------------------------------

    def store_request(self, broker: Node, received: framing.DecodedRequest, frame: Buffer) -> None:
        """Store a request for tests to inspect."""
        self.requests.add_request(
            received.header, received.request, frame, broker.node_id, self.loop.time()
        )

    def notify_tests(self) -> None:
        """Notify waiting tests of a change."""
        self.watch.call_callbacks()

    def call_guarded(self, step: Callable[[], None]) -> None:
        """Call a function from a timer; report an exception as a bug in the embedded cluster."""
        try:
            step()
        except Exception as error:
            _log.exception("The embedded cluster failed in a timer.")
            self.bug = self.bug or error
