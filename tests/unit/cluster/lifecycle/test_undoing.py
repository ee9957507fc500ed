"""Tests that a failed or cancelled start is undone completely, so that it can be repeated."""

import asyncio
import gc
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Client, State
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
from aiokclient.config.client import ClientConfig
from aiokclient.errors import ClosedError


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

    def _on_failure(self, error: BaseException) -> None:
        self.opening.set()


async def cancel_start(world: World, slow: Slow) -> asyncio.Task[None]:
    """Cancel the start of an object, and return its task while the undo is in progress."""
    starting = asyncio.create_task(slow.start())
    await world.cluster.until(lambda: slow.log == ["open"])
    starting.cancel()
    await world.cluster.until(lambda: slow.log == ["open", "abort"])
    return starting


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
        starting = await cancel_start(world, slow)
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


@pytest.mark.parametrize("moment", range(12))
def test_a_start_beside_a_cancelled_one_that_is_being_undone_starts_anew(moment: int) -> None:
    async def scenario(world: World) -> None:
        client = world.client()
        first = asyncio.create_task(client.start())
        await asyncio.sleep(0.0012 * moment)
        first.cancel()
        for _ in range(moment % 4):
            await asyncio.sleep(0)
        await client.start()
        await asyncio.wait([first])
        assert client.state is State.RUNNING
        await client.close()

    simulate(scenario)


def test_a_start_waits_while_a_cancelled_one_is_being_undone() -> None:
    async def scenario(world: World) -> None:
        slow = Slow(world.options())
        first = await cancel_start(world, slow)
        others = [asyncio.create_task(slow.start()) for _ in range(3)]
        await asyncio.sleep(1)
        others[0].cancel()
        slow.ending.set()
        await world.cluster.until(lambda: slow.log == ["open", "abort", "done", "open"])
        slow.opening.set()
        await asyncio.wait([first, *others])
        assert [each.cancelled() for each in others] == [True, False, False]
        assert slow.state is State.RUNNING
        await slow.close()

    simulate(scenario)


def test_a_close_ends_the_starts_that_wait_for_an_undo() -> None:
    async def scenario(world: World) -> None:
        slow = Slow(world.options())
        first = await cancel_start(world, slow)
        second = asyncio.create_task(slow.start())
        await asyncio.sleep(0.1)
        slow.ending.set()
        await slow.close()
        with pytest.raises(ClosedError):
            await second
        await asyncio.wait([first])

    simulate(scenario)


@pytest.mark.parametrize("moment", range(5))
def test_a_second_start_that_is_cancelled_as_the_first_one_fails_leaves_nothing(
    moment: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        slow = Slow(world.options())
        slow.broken = ValueError("no")
        slow.ending.set()

        async def start_again() -> None:
            # This happens before the callers of the first start have run again.
            while slow.state is not State.NEW:  # noqa: ASYNC110
                await asyncio.sleep(0)
            slow.broken = None
            if moment == 0:
                second.cancel()
            begun.append(None)
            await slow.start()

        begun: list[None] = []
        first = [asyncio.create_task(slow.start()) for _ in range(3)]
        await world.cluster.until(lambda: slow.log == ["open"])
        second = asyncio.create_task(start_again())
        slow.opening.set()
        while not begun:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(moment):
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second, *first])
        assert all(isinstance(each.exception(), ValueError) for each in first)
        await asyncio.sleep(1)
        assert slow.state is State.NEW
        async with slow:
            pass

    simulate(scenario)
    gc.collect()
    assert not caplog.records


def test_an_object_may_be_closed_or_started_in_a_new_loop_after_a_start_that_failed() -> None:
    closed, started = (Client(bootstrap_servers="127.0.0.1:1") for _ in range(2))

    async def fail_by_cancellation(client: Client) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.start()

    for client in (closed, started):
        asyncio.run(fail_by_cancellation(client))
    asyncio.run(closed.close())
    assert closed.state is State.CLOSED
    asyncio.run(fail_by_cancellation(started))
    asyncio.run(started.close())
