"""Committed offsets while a transaction that commits offsets of the group is open (KIP-447)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from raw_transactions import RawTransaction

from aiokclient import Admin, Client, Consumer, Producer, TopicPartition
from aiokclient.errors import ApiTimeoutError, UnstableOffsetCommitError

BEFORE, IN_TRANSACTION = 1, 4


class Site:
    """A topic with ten records, a group that has committed, and a transaction for its offsets."""

    def __init__(self, client: Client, admin: Admin, topic: str) -> None:
        self.client, self.admin = client, admin
        self.topic, self.group, self.tp = topic, f"group-of-{topic}", TopicPartition(topic, 0)
        self.transaction = RawTransaction(client, f"t-{topic}")

    def consumer(self, *topics: str) -> Consumer[Any, Any]:
        return Consumer(
            *topics,
            client=self.client,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            default_api_timeout_ms=10_000,
        )

    async def commit_in_transaction(self) -> None:
        await self.transaction.begin()
        await self.transaction.commit_offsets(self.group, {self.tp: IN_TRANSACTION})

    async def refuses(self, consumer: Consumer[Any, Any]) -> None:
        """Check that the coordinator returns no offsets, because the transaction is open."""
        with pytest.raises(ApiTimeoutError) as refused:
            await consumer.committed([self.tp], timeout=1.5)
        assert isinstance(refused.value.__cause__, UnstableOffsetCommitError)


@pytest.fixture
async def site(cluster_servers: Any) -> AsyncIterator[Site]:
    topic = await cluster_servers.new_topic(1)
    async with (
        Client(bootstrap_servers=cluster_servers.bootstrap) as client,
        Admin(client=client) as admin,
        Producer(client=client) as producer,
    ):
        await producer.gather(producer.send_many(topic, [b"%d" % i for i in range(10)]))
        site = Site(client, admin, topic)
        async with site.consumer() as consumer:
            await consumer.commit({site.tp: BEFORE})
        yield site


ENDS = pytest.mark.parametrize(
    ("commit", "expected"), [(True, IN_TRANSACTION), (False, BEFORE)], ids=["commit", "abort"]
)


@ENDS
async def test_committed_waits_for_the_end_of_the_transaction(
    site: Site, commit: bool, expected: int
) -> None:
    await site.commit_in_transaction()
    async with site.consumer() as consumer:
        waiting = asyncio.create_task(consumer.committed([site.tp]))
        await site.refuses(consumer)
        assert not waiting.done()
        await site.transaction.end(commit=commit)
        stored = (await waiting)[site.tp]
        assert stored is not None
        assert stored.offset == expected


@ENDS
async def test_a_member_starts_at_the_offset_after_the_transaction(
    site: Site, commit: bool, expected: int
) -> None:
    await site.commit_in_transaction()
    async with site.consumer(site.topic) as consumer:
        reading = asyncio.create_task(consumer.get(timeout=60))
        await site.refuses(consumer)
        assert [why for why in consumer.health().reasons if "UNSTABLE_OFFSET_COMMIT" in why]
        assert not reading.done()
        await site.transaction.end(commit=commit)
        record = await reading
        assert record is not None
        assert record.offset == expected


@ENDS
async def test_rewind_group_waits_for_the_end_of_the_transaction(
    site: Site, commit: bool, expected: int
) -> None:
    """The rewind begins after the end of the transaction, so the transaction cannot undo it."""
    async with site.consumer(site.topic) as consumer:
        assert len(await consumer.poll(timeout=60)) > 0
        await site.commit_in_transaction()
        reading = asyncio.create_task(consumer.poll(timeout=60))
        rewinding = asyncio.create_task(consumer.rewind_group({site.tp: 2}))
        await site.refuses(consumer)
        assert not rewinding.done()
        await site.transaction.end(commit=commit)
        assert await rewinding == {site.tp: 2}
        stored = (await consumer.committed([site.tp]))[site.tp]
        assert stored is not None
        assert stored.offset == 2
        assert [record.offset for record in await reading][:1] == [2]


@ENDS
async def test_the_admin_client_waits_only_on_request(
    site: Site, commit: bool, expected: int
) -> None:
    await site.commit_in_transaction()
    listed = site.admin.list_consumer_group_offsets
    found = (await listed([site.group])).raise_for_errors()[site.group]
    assert found[site.tp].offset == BEFORE
    refused = (await listed([site.group], require_stable=True, timeout=1.5))[site.group]
    assert isinstance(refused, ApiTimeoutError)
    assert isinstance(refused.__cause__, UnstableOffsetCommitError)
    waiting = asyncio.create_task(listed([site.group], require_stable=True))
    await site.transaction.end(commit=commit)
    assert (await waiting).raise_for_errors()[site.group][site.tp].offset == expected
