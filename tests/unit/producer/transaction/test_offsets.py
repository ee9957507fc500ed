"""Tests of the offsets in transactions: at which levels, and how often, their group is added."""

from __future__ import annotations

import pytest
from world import World, simulate

from aiokclient import Admin, GroupMetadata, TopicPartition
from aiokclient.protocol import ApiKey

INPUT, MEMBER = TopicPartition("t", 0), GroupMetadata("g")


@pytest.mark.parametrize(("level", "added"), [(0, 2), (2, 0)])
def test_group_is_added_to_each_transaction_and_only_once(level: int, added: int) -> None:
    """From level 2 on, the group's coordinator adds it."""

    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1") as producer:
            for number in (1, 2):
                async with producer.transaction() as tx:
                    await tx.send_offsets({INPUT: 10 * number}, MEMBER)
                    await tx.send_offsets({INPUT: 10 * number + 1}, MEMBER)
                    assert len(world.requests(ApiKey.ADD_OFFSETS_TO_TXN)) == added * number // 2
        async with Admin(**world.options()) as admin:
            (offsets,) = (await admin.list_consumer_group_offsets(["g"])).values()
            assert offsets[INPUT].offset == 21

    simulate(scenario, transaction_version=level)
