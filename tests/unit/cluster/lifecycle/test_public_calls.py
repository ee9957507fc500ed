"""Tests of the calls of public methods: which are counted, and which arguments are explained."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable

import pytest

from aiokclient.cluster.lifecycle.public_calls import count_cancelled, watch_calls


@watch_calls(apart=("read",), explained=("pause",))
class Caller:
    """An object with public methods that wait for something that never happens."""

    def __init__(self) -> None:
        self.cancellations = 0

    def _count_cancelled(self) -> None:
        self.cancellations += 1

    async def wait(self) -> None:
        await self.wait_inside()

    async def wait_inside(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def read(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as error:
            count_cancelled(error, self)
            raise

    async def _wait_unseen(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def subscribe(self, topics: list[str]) -> list[str]:
        return topics

    def pause(self, partitions: list[int]) -> list[int]:
        return partitions

    def resume(self, partitions: list[int]) -> list[int]:
        return partitions


async def cancel(call: Awaitable[None]) -> None:
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_public_calls_are_counted_once_when_they_call_each_other() -> None:
    caller = Caller()
    await cancel(caller.wait())
    assert caller.cancellations == 1
    await cancel(caller.wait())
    assert caller.cancellations == 2


async def test_calls_that_count_themselves_are_counted_once() -> None:
    caller = Caller()
    await cancel(caller.read())
    assert caller.cancellations == 1


async def test_entering_is_counted_and_private_calls_are_not() -> None:
    caller = Caller()
    await cancel(caller._wait_unseen())
    assert caller.cancellations == 0
    await cancel(caller.__aenter__())
    assert caller.cancellations == 1


async def test_watched_calls_return_what_the_methods_return() -> None:
    caller = Caller()
    assert await caller.subscribe(["a"]) == ["a"]
    assert caller.pause([1]) == [1]
    assert inspect.iscoroutinefunction(caller.subscribe)
    assert not inspect.iscoroutinefunction(caller.pause)
    assert caller.cancellations == 0


async def test_arguments_of_another_client_are_explained_when_the_call_is_wrong() -> None:
    caller = Caller()
    with pytest.raises(TypeError, match=r"pattern'\. Pass a compiled pattern"):
        await caller.subscribe(pattern="a.*")
    with pytest.raises(TypeError, match=r"Pass one list of partitions: pause\("):
        caller.pause(1, 2)
    with pytest.raises(TypeError) as caught:
        caller.resume(1, 2)
    assert "Pass" not in str(caught.value), "it is not among the functions to be explained"
