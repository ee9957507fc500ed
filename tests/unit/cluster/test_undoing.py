"""Tests that a failed or cancelled start is undone completely, so that it can be repeated."""

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient import State
from aiokclient.cluster.lifecycle import Lifecycle
from aiokclient.config.client import ClientConfig


class Slow(Lifecycle):
    """An object that opens and ends only when the test says so.

    Its background task may fail while it opens.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(ClientConfig.build(options))
        self.log: list[str] = []
        self.opening, self.ending, self.dying = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.broken: Exception | None = None

    async def _open(self, wait: bool) -> None:
        self._supervisor.spawn(self._die, name="what dies")
        self.log.append("open")
        await self.opening.wait()
        if self.broken is not None:
            raise self.broken

    async def _die(self) -> None:
        await self.dying.wait()
        raise ZeroDivisionError

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        self.log.append("abort")
        await self.ending.wait()
        self.log.append("done")

    def _failed(self, error: BaseException) -> None:
        self.opening.set()


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("first", ["cancelled", "closed", "failed"])
@pytest.mark.parametrize("then", ["cancelled", "closed", "both"])
def test_a_cancelled_start_is_undone_completely(first: str, then: str) -> None:
    """An incomplete undo could leave a member in a group, for which other members would wait."""

    async def scenario(world: World) -> None:
        slow = Slow(world.options())
        slow.broken = ValueError("no")
        starting = asyncio.create_task(slow.start())
        tasks: list[asyncio.Task[None]] = [starting]
        await world.cluster.until(lambda: slow.log == ["open"])
        if first == "cancelled":
            starting.cancel()
        elif first == "closed":
            tasks.append(asyncio.create_task(slow.close()))
        else:
            slow.opening.set()
        await world.cluster.until(lambda: slow.log == ["open", "abort"])
        if then != "closed":
            starting.cancel()
        if then != "cancelled":
            tasks.append(asyncio.create_task(slow.close()))
        await asyncio.sleep(1)
        assert slow.log == ["open", "abort"]
        slow.ending.set()
        await asyncio.wait(tasks)
        assert slow.log == ["open", "abort", "done"]
        closed = "closed" in (first, then) or then == "both"
        assert slow.state is (State.CLOSED if closed else State.NEW)

    simulate(scenario)


@pytest.mark.fault(36)
def test_a_close_limits_the_time_of_the_undo() -> None:
    async def scenario(world: World) -> None:
        slow = Slow(world.options())
        starting = asyncio.create_task(slow.start())
        await world.cluster.until(lambda: slow.log == ["open"])
        starting.cancel()
        await world.cluster.until(lambda: slow.log == ["open", "abort"])
        began = world.now
        await slow.close(timeout=0.5)
        assert 0.4 < world.now - began < 0.6
        await asyncio.wait([starting])

    simulate(scenario)


def test_a_start_whose_task_died_may_be_repeated() -> None:
    async def scenario(world: World) -> None:
        slow = Slow(world.options())
        slow.dying.set()
        slow.ending.set()
        with pytest.raises(ZeroDivisionError):
            await slow.start()
        assert slow.state is State.NEW
        slow.dying.clear()
        async with slow:
            assert slow.state is State.RUNNING

    simulate(scenario)
