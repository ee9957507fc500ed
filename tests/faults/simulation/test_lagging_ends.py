"""`until_end` does not end early because a broker that lags has returned an end that is too low."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient.protocol import ApiKey

LATEST = -1


def asks_for_the_end(message: Any) -> bool:
    return any(p.timestamp == LATEST for topic in message.topics for p in topic.partitions)


def answer_too_low(request: Any, response: Any) -> Any:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.offset = 0
    return response


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("group", [{}, {"group_id": "g"}])
def test_until_end_reads_what_was_fetched_before_a_broker_returned_a_lower_end(
    group: dict[str, str], isolation_level: str
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"] * 5)
        options: dict[str, Any] = {**group, "isolation_level": isolation_level}
        async with world.consumer("t", **options) as consumer:
            await asyncio.sleep(2)  # The records are fetched, and none is delivered.
            world.cluster.alter(
                ApiKey.LIST_OFFSETS, answer_too_low, times=1, where=asks_for_the_end
            )
            began = world.now
            assert len([record async for record in consumer.until_end()]) == 5
            assert world.now - began < 2.5
            # Without a lag, there is only one answer.
            began = world.now
            assert [record async for record in consumer.until_end()] == []
            assert world.now - began < 0.5

    simulate(scenario)
