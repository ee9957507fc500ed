"""Repeated calls of a program: each call sends its own requests, and sends them without a delay."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin
from aiokclient.protocol import ApiKey

T0 = ("t", 0)
CALLS: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {
    "list_groups": lambda admin, consumer: admin.list_groups(),
    "delete_records": lambda admin, consumer: admin.delete_records({T0: 0}),
    "alter_consumer_group_offsets": lambda admin, consumer: admin.alter_consumer_group_offsets(
        "g", {T0: 0}
    ),
    "partitions_for": lambda admin, consumer: consumer.partitions_for("t"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_no_call_waits_because_of_the_one_before(
    call: Callable[[Any, Any], Awaitable[Any]],
) -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin, world.consumer() as consumer:
            await call(admin, consumer)
            began = world.now
            for _ in range(10):
                await call(admin, consumer)
            assert world.now - began < 1.0
            assert len(world.requests(ApiKey.METADATA, since=began)) >= 10

    simulate(scenario, brokers=3)
