"""Tests of the bodies of generations."""

import asyncio

import pytest

from aiokclient import scopes
from aiokclient.group.generation import GroupGeneration
from aiokclient.group.handler import Generation
from aiokclient.types import GroupMetadata


@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
@pytest.mark.parametrize("lost", [False, True])
async def test_a_cancellation_in_the_iteration_that_ends_a_generation_is_kept(
    kind: str, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes, "is_anyio_used", lambda: kind == "anyio")
    generation = GroupGeneration(Generation(GroupMetadata("g"), "p", "m", b""))
    entered = asyncio.Event()

    async def work() -> None:
        async with generation:
            entered.set()
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(work())
    await entered.wait()
    generation.end(lost=lost)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await generation.wait_until_left()
