"""Tests of the time that it takes to open clients, in virtual time."""

import re
from typing import Any

import pytest
from thinned import in_turns
from world import World, simulate

from aiokclient import Consumer


@pytest.mark.parametrize(("pattern", "group"), in_turns(2, [False, True], [False, True]))
def test_opening_takes_no_longer_when_many_consumers_share_a_client(
    pattern: bool, group: bool
) -> None:
    async def scenario(world: World) -> None:
        options: dict[str, Any] = {"auto_offset_reset": "earliest"}
        world.cluster.produce("t", [b"v"])
        opened = []
        async with world.client() as client:
            for number in range(30):
                began = world.now
                if group:
                    options["group_id"] = f"g{number}"
                consumer = Consumer(client=client, **options)
                opened.append(consumer)
                consumer.subscribe(re.compile("t.*") if pattern else ["t"])
                await consumer.start()
                assert world.now - began < (0.5 if group else 0.1)
                assert await consumer.get(timeout=5) is not None

    simulate(scenario)
