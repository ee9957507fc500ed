"""Readers while a producer dies within a transaction, and another one takes over its id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from raw_transactions import RawTransaction

from aiokclient import Client, Consumer, TopicPartition
from aiokclient.errors import ApplicationRecoverableError

DEAD, NEXT = [b"dead 1", b"dead 2"], [b"next 1", b"next 2", b"next 3"]


@pytest.mark.fault(51)
async def test_readers_see_only_the_producer_that_takes_over(cluster_servers: Any) -> None:
    """The takeover aborts the dead producer's transaction, with its records and its offsets."""
    tp = TopicPartition(await cluster_servers.new_topic(1), 0)
    transactional_id = f"t-{tp.topic}"
    async with (
        Client(bootstrap_servers=cluster_servers.bootstrap) as client,
        Consumer(
            tp.topic,
            client=client,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as reader,
        Consumer(client=client, group_id=f"g-{tp.topic}", enable_auto_commit=False) as group,
    ):
        dead = RawTransaction(client, transactional_id)
        await dead.begin()
        await dead.produce(tp, *DEAD)
        await dead.commit_offsets(f"g-{tp.topic}", {tp: 1})
        assert await reader.end_offsets([tp]) == {tp: 0}
        reading = asyncio.create_task(reader.poll(timeout=60))
        asking = asyncio.create_task(group.committed([tp]))

        taking_over = RawTransaction(client, transactional_id)
        await taking_over.begin()  # Waits until the dead producer's transaction is aborted.
        assert await asking == {tp: None}
        await taking_over.produce(tp, *NEXT)
        await taking_over.commit_offsets(f"g-{tp.topic}", {tp: 3})
        assert not reading.done()
        for refused in (dead.produce(tp, b"late"), dead.end(commit=True)):
            with pytest.raises(ApplicationRecoverableError):
                await refused
        await taking_over.end(commit=True)

        assert [record.value for record in await reading] == NEXT
        stored = (await group.committed([tp]))[tp]
        assert stored is not None
        assert stored.offset == 3
