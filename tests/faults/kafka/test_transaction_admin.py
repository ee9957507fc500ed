"""The admin client's calls about transactions on three brokers, of which one is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from kafka_harness import KafkaCluster
from raw_transactions import RawTransaction

from aiokclient import Admin, Client, TopicPartition
from aiokclient.errors import IllegalStateError

COUNT = 6


class Site:
    """Open transactions of several ids, which all write to one topic."""

    def __init__(self, kafka: KafkaCluster, client: Client, admin: Admin, topic: str) -> None:
        self.kafka, self.client, self.admin, self.topic = kafka, client, admin, topic
        self.ids = [f"{topic}-{number}" for number in range(COUNT)]
        self.tps = [TopicPartition(topic, partition) for partition in range(3)]

    async def open(self) -> None:
        for number, name in enumerate(self.ids):
            transaction = RawTransaction(self.client, name)
            await transaction.begin()
            await transaction.produce(self.tps[number % 3], b"v")


@pytest.fixture
async def site(kafka3: KafkaCluster) -> AsyncIterator[Site]:
    topic = await asyncio.to_thread(kafka3.create_topic, None, 3, 3)
    async with (
        Client(bootstrap_servers=kafka3.bootstrap) as client,
        Admin(client=client) as admin,
    ):
        site = Site(kafka3, client, admin, topic)
        await site.open()
        yield site


async def test_transactions_and_producers_of_all_brokers_are_returned(site: Site) -> None:
    listed = await site.admin.list_transactions(pattern=f"{site.topic}-.*")
    assert list(listed) == site.ids
    described = (await site.admin.describe_transactions(site.ids)).raise_for_errors()
    for name, each in described.items():
        assert each.coordinator.node_id == listed[name].coordinator.node_id
        assert (each.state, each.producer_id) == ("Ongoing", listed[name].producer_id)
    producers = (await site.admin.describe_producers(site.tps)).raise_for_errors()
    assert [len(each) for each in producers.values()] == [2, 2, 2]


async def test_a_follower_describes_producers_and_a_broker_without_replica_does_not(
    site: Site,
) -> None:
    tp = site.tps[0]
    expected = (await site.admin.describe_producers([tp])).raise_for_errors()
    for node in (1, 2, 3):
        await asyncio.to_thread(site.kafka.await_in_sync, tp.topic, 0)
        results = await site.admin.describe_producers([tp], broker_id=node)
        assert results.raise_for_errors() == expected
    alone = TopicPartition(await asyncio.to_thread(site.kafka.create_topic, None, 1, 1), 0)
    leader = site.kafka.leader(alone.topic)
    for node in (1, 2, 3):
        refused = (await site.admin.describe_producers([alone], broker_id=node)).errors
        assert [type(error) for error in refused.values()] == (
            [] if node == leader else [IllegalStateError]
        )


@pytest.mark.fault(1)
async def test_calls_succeed_while_a_broker_is_killed(site: Site) -> None:
    """Coordinators and leaders on the killed broker move, and the calls follow them."""
    leader = site.kafka.leader(site.topic)
    await asyncio.to_thread(site.kafka.kill, leader)
    async with asyncio.TaskGroup() as tasks:
        describing = tasks.create_task(site.admin.describe_transactions(site.ids))
        observing = tasks.create_task(site.admin.describe_producers(site.tps))
        listing = tasks.create_task(site.admin.list_transactions(pattern=f"{site.topic}-.*"))
    described = describing.result().raise_for_errors()
    assert leader not in {each.coordinator.node_id for each in described.values()}
    assert [len(each) for each in observing.result().raise_for_errors().values()] == [2, 2, 2]
    assert set(listing.result()) <= set(site.ids)
    fenced = (await site.admin.fence_producers(site.ids)).raise_for_errors()
    assert list(fenced) == site.ids
    producers = (await site.admin.describe_producers(site.tps)).raise_for_errors()
    open_now = [
        producer
        for each in producers.values()
        for producer in each
        if producer.transaction_start_offset is not None
    ]
    assert open_now == []
