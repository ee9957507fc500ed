"""Tests of the flag by which the tasks of a consumer wake each other."""

import asyncio

from aiokclient.background import Wakeup


async def test_a_flag_set_before_the_wait_wakes_it() -> None:
    signal = Wakeup()
    signal.set()
    assert await signal.wait()
    assert not await signal.wait(asyncio.get_running_loop().time() + 0.001)


async def test_all_waiting_tasks_are_woken() -> None:
    signal = Wakeup()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    signal.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert not await signal.wait(0.0)


async def test_a_wait_until_a_past_time_returns() -> None:
    assert not await Wakeup().wait(0.0)


async def test_a_cancelled_wait_takes_no_signal_away() -> None:
    signal = Wakeup()
    first = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    signal.set()
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    assert await signal.wait(asyncio.get_running_loop().time() + 1)


async def test_a_cancelled_wait_leaves_nothing() -> None:
    signal = Wakeup()
    first = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert not await signal.wait(asyncio.get_running_loop().time() + 0.001)
