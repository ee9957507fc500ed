"""A member of a consumer group under KIP-848, without a consumer."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any, cast

from aiokclient import TopicPartition
from aiokclient.background import Wakeup
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.targets import AnyBroker, Broker
from aiokclient.config.client import ClientConfig
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.membership.kip848.membership import Kip848Membership
from aiokclient.consumer.state.offset_reset import EARLIEST
from aiokclient.consumer.state.subscription import Reports, Subscription, SubscriptionState
from aiokclient.consumer.topics import SubscribedTopics
from aiokclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aiokclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

GROUP = 32


class Owners:
    """The owner of each partition, over all members of a group.

    A member may take a partition from an owner only while that owner delivers no records. An
    owner stops delivering when the coordinator has not confirmed its membership for too long.
    """

    def __init__(self) -> None:
        self.of: dict[TopicPartition, str] = {}
        self.reads: dict[str, Callable[[], bool]] = {}
        self.breaches: list[str] = []

    def take(self, name: str, tp: TopicPartition) -> None:
        if tp in self.of and self.reads[self.of[tp]]():
            self.breaches.append(f"{name} takes {tp}, which {self.of[tp]} has")
        self.of[tp] = name

    def give(self, name: str, tp: TopicPartition) -> None:
        if self.of.get(tp) == name:
            del self.of[tp]


class Reading:
    """A reconciler that takes partitions, and revokes them only while the event `hold` is set."""

    def __init__(self, name: str, owners: Owners) -> None:
        self.name, self.owners = name, owners
        self.has: dict[TopicPartition, None] = {}
        self.log: list[tuple[str, list[TopicPartition]]] = []
        self.deadlines: list[float] = []
        self.revoking = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()
        self.changed = asyncio.Event()

    def list_owned(self) -> list[TopicPartition]:
        return list(self.has)

    async def revoke_partitions(self, tps: Collection[TopicPartition], *, deadline: float) -> None:
        self.deadlines.append(deadline)
        self.revoking.set()
        await self.hold.wait()
        self._drop("revoke", tps)

    async def conclude_rebalance(self) -> None:
        """Do nothing.

        A consumer would call its listener here after a rebalance that changes nothing.
        """

    async def lose_partitions(self, tps: Collection[TopicPartition]) -> None:
        self._drop("lose", tps)

    def _drop(self, how: str, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            del self.has[tp]
            self.owners.give(self.name, tp)
        self._note(how, tps)

    async def take_partitions(self, tps: Collection[TopicPartition]) -> None:
        for tp in tps:
            assert tp not in self.has
            self.has[tp] = None
            self.owners.take(self.name, tp)
        self._note("assign", tps)

    def _note(self, how: str, tps: Iterable[TopicPartition]) -> None:
        self.log.append((how, sorted(tps)))
        self.changed.set()


class Member:
    """A member for `async with Member(options, ...) as member`, which leaves at the end."""

    def __init__(self, options: dict[str, Any], owners: Owners, name: str, **more: Any) -> None:
        settings = {"group_id": "g", "group_protocol": "consumer", **options, **more}
        self.config = ConsumerConfig.build(settings)
        self.cluster = ClusterClient(self.config)
        self.reading = Reading(name, owners)
        self.reports: list[Exception] = []
        self.changes = 0
        self.group_id = self.config.group_id
        self.rebalancer = self.reading
        self.subscription = SubscriptionState(EARLIEST)
        reports = Reports(Wakeup(), self.subscription)
        self.topics = SubscribedTopics(self.cluster, self.config, reports)
        self._subscription: Subscription | None = None
        self._running = False
        owners.reads[name] = self._reads

    def _reads(self) -> bool:
        return self.membership.confirmed_until > self.cluster.clock.monotonic()

    async def __aenter__(self) -> "Member":
        await self.cluster.start()
        self.supervisor = self.cluster.supervisor
        self.membership = Kip848Membership(cast(Any, self))
        self.cluster.supervisor.spawn(self.membership.run, name="membership")
        self._running = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Revoke all partitions and leave the group, as `Consumer.close` does."""
        self._running = False
        has = list(self.reading.has)
        if has:
            self.reading.hold.set()
            await self.reading.revoke_partitions(has, deadline=0.0)
        await self.membership.leave(5.0)
        await self.cluster.close()

    async def kill(self) -> None:
        """End without leaving, as if the process had ended.

        After that, its partitions have no owner.
        """
        self._running = False
        self.reading._drop("lose", list(self.reading.has))
        await self.cluster.close()

    def on_group_error(self, error: Exception) -> None:
        self.reports.append(error)

    def on_identity_changed(self) -> None:
        self.changes += 1
        self.reading.changed.set()

    async def subscribe(self, *topics: Any) -> None:
        """Subscribe to topic names or one pattern; without arguments, unsubscribe."""
        wanted = topics[0] if topics and not isinstance(topics[0], str) else topics
        subscription = Subscription(wanted)
        self._subscription = subscription
        self.subscription.subscribe(subscription)
        await self.topics.follow_topics(subscription)
        self.membership.on_subscription_changed()

    @property
    def running(self) -> bool:
        """Whether the member has started, and has neither left, failed, nor been killed."""
        return self._running and self.failure is None

    def reads_topic(self, topic: str) -> bool:
        """Return whether the member has subscribed to a topic, by its name or by a pattern."""
        wanted = self._subscription
        internal = topic.startswith("__")
        return wanted is not None and wanted.matches(topic, internal=internal)

    @property
    def has(self) -> list[tuple[str, int]]:
        return sorted(self.reading.has)

    @property
    def epoch(self) -> int:
        return self.membership.metadata.generation_id

    @property
    def failure(self) -> BaseException | None:
        return self.cluster.supervisor.failure

    async def until(self, check: Any, timeout: float = 60.0) -> None:
        """Wait for a condition about this member."""
        await until(check, [self], timeout)


async def until(check: Any, members: list[Member], timeout: float = 60.0) -> None:
    """Wait for a condition about some members, which is checked whenever one of them changes."""
    async with asyncio.timeout(timeout):
        while not check():
            for each in members:
                each.reading.changed.clear()
            waits = [asyncio.ensure_future(each.reading.changed.wait()) for each in members]
            try:
                await asyncio.wait(waits, return_when="FIRST_COMPLETED", timeout=0.05)
            finally:
                for wait in waits:
                    wait.cancel()
                await asyncio.gather(*waits, return_exceptions=True)


async def until_assigned(members: list[Member], count: int, timeout: float = 60.0) -> None:
    """Wait until these members own all `count` partitions, evenly divided."""
    least, extra = divmod(count, len(members))

    def even() -> bool:
        sizes = sorted((len(each.has) for each in members), reverse=True)
        return sizes == [least + 1] * extra + [least] * (len(members) - extra)

    await until(even, members, timeout)


async def configure(bootstrap: str, group_id: str, **configs: int) -> None:
    """Set configs of a group, such as `session_timeout_ms`. Targets are computed immediately.

    When the function returns, all brokers have applied the configs. The controller responds before
    that, and a broker reports a config before applying it. But a broker that reports a later change
    has applied all earlier ones. So the function makes a second change, and waits until all brokers
    report it.
    """
    client = ClusterClient(ClientConfig(bootstrap_servers=bootstrap))
    await client.start()
    try:
        await change(client, group_id, {"assignment_interval_ms": 1, **configs})
        await change(client, group_id, {"assignment_interval_ms": 0})
    finally:
        await client.close()


async def change(client: ClusterClient, group_id: str, configs: dict[str, int]) -> None:
    """Set configs of a group, and wait until all brokers report them."""
    wanted = {f"consumer.{name.replace('_', '.')}": str(configs[name]) for name in configs}
    resource = AlterConfigsResource(
        resource_type=GROUP,
        resource_name=group_id,
        configs=[
            AlterableConfig(name=name, config_operation=0, value=wanted[name]) for name in wanted
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await client.request(request, AnyBroker())
    assert [each.error_code for each in answer.responses] == [0], answer
    async with asyncio.timeout(60):
        for node_id in client.metadata.brokers:
            while await told(client, Broker(node_id), group_id, list(wanted)) != wanted:
                pass


async def told(
    client: ClusterClient, broker: Broker, group_id: str, names: list[str]
) -> dict[str, str | None]:
    """Return the configs of the group as a broker reports them."""
    resource = DescribeConfigsResource(
        resource_type=GROUP, resource_name=group_id, configuration_keys=names
    )
    answer = await client.request(DescribeConfigsRequest(resources=[resource]), broker)
    return {each.name: each.value for result in answer.results for each in result.configs}
