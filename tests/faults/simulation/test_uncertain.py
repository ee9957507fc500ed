"""A process that is suspended while it delivers records delivers at most one more."""

import asyncio
import math
from typing import Any

import pytest
from group_world import fill, member
from world import World, simulate

from aiokclient.consumer.state.subscription import SubscriptionState


@pytest.mark.fault(18)
@pytest.mark.parametrize("how", ["__aiter__", "tracked"])
def test_the_session_ends_between_a_look_and_the_records(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 50)
        async with member(world) as consumer:
            records: Any = getattr(consumer, how)()
            await anext(records)
            # Wait so long that the next delivery checks the session again.
            await asyncio.sleep(0.02)
            looks = iter([math.inf])
            monkeypatch.setattr(
                SubscriptionState, "get_confirmed_until", lambda _: next(looks, -math.inf)
            )
            assert (await anext(records)).offset == 1
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 5.0)
        monkeypatch.undo()

    simulate(scenario, topics={"t": 1})
