"""A member of a share group (KIP-932), without a share consumer, and a simulated world for it."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast
from uuid import UUID

from world import World, simulate

from aiokclient import TopicPartition
from aiokclient.cluster.client import ClusterClient
from aiokclient.config.share import ShareConsumerConfig
from aiokclient.errors import KafkaError
from aiokclient.group.heartbeats import make_member_id
from aiokclient.metrics import OwnMetrics
from aiokclient.network.event_hub import EventSource
from aiokclient.protocol import ApiKey
from aiokclient.share.membership import ShareMembership

HEARTBEAT = ApiKey.SHARE_GROUP_HEARTBEAT
ALL = [("t", 0), ("t", 1), ("t", 2), ("t", 3)]


class ShareMeterOwner:
    """The metrics of a member."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.own_metrics = OwnMetrics(cluster.metrics, "consumer", "consumer")


class ShareGroupMember:
    """A member for `async with`, which leaves at the end. It is the engine of its membership."""

    def __init__(self, options: dict[str, Any], *topics: str, **more: Any) -> None:
        self.config = ShareConsumerConfig.build({"group_id": "g", **options, **more})
        self.cluster = ClusterClient(self.config)
        self.group_id = self.config.group_id
        self.member_id = make_member_id(self.cluster.clock)
        self.supervisor = self.cluster.supervisor
        self.log = self.cluster.make_log("share", self.group_id)
        self.events = EventSource(self.cluster.events, self)
        self.meters = ShareMeterOwner(self.cluster)
        self.topics = frozenset(topics)
        self.wants_topics = True
        self.assignment: Mapping[TopicPartition, UUID] = {}
        self.history: list[list[tuple[str, int]]] = []
        """The assignments, in order."""
        self.failures: list[KafkaError] = []
        self.membership = ShareMembership(cast(Any, self))
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "ShareGroupMember":
        await self.cluster.start()
        self.want_topics()
        self.supervisor.spawn(self.membership.run, name="share group")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.membership.leave(5.0)
        await self.cluster.close()

    async def kill(self) -> None:
        """End without leaving, as if the process had ended."""
        await self.cluster.close()

    def subscribe(self, *topics: str) -> None:
        self.topics = frozenset(topics)
        self.want_topics()
        self.membership.on_subscription_changed()

    def want_topics(self) -> None:
        if not self.wants_topics:
            return
        self.cluster.updater.unwant_topics(self)
        for topic in sorted({*self.topics, *(tp.topic for tp in self.assignment)}):
            self.cluster.updater.want_topic(topic, self)

    def on_assignment(self, assignment: Mapping[TopicPartition, UUID]) -> None:
        self.assignment = dict(assignment)
        self.want_topics()
        self.history.append(self.has)
        self._changed.set()

    def on_member_failed(self, error: KafkaError) -> None:
        self.failures.append(error)
        self._changed.set()

    @property
    def has(self) -> list[tuple[str, int]]:
        return sorted(self.assignment)

    async def until(self, check: Callable[[], Any], timeout: float = 60.0) -> None:
        """Wait for a condition, which is checked after each change and each 50 ms."""
        async with asyncio.timeout(timeout):
            while not check():
                self._changed.clear()
                try:
                    async with asyncio.timeout(0.05):
                        await self._changed.wait()
                except TimeoutError:
                    pass


class ShareGroupWorld:
    """A factory for members of one share group."""

    def __init__(self, world: World) -> None:
        self.world, self.cluster = world, world.cluster

    def member(self, *topics: str, **options: Any) -> ShareGroupMember:
        return ShareGroupMember(self.world.options(), *(topics or ("t",)), **options)

    def beats(self, since: float = 0.0) -> list[Any]:
        return [each.message for each in self.world.requests(HEARTBEAT, since)]

    @property
    def view(self) -> Any:
        return self.cluster.groups["g"]


def run(
    scenario: Callable[[ShareGroupWorld], Coroutine[Any, Any, None]],
    *,
    topics: dict[str, int] | None = None,
    **options: Any,
) -> None:
    """Run a scenario with a topic "t" of four partitions, with Kafka's intervals."""

    async def main(world: World) -> None:
        await scenario(ShareGroupWorld(world))

    configs = {
        "group.share.heartbeat.interval.ms": 5000,
        "group.share.assignment.interval.ms": 1000,
        **options.pop("configs", {}),
    }
    wanted = {"t": 4} if topics is None else topics
    simulate(main, topics=wanted, configs=configs, **options)
