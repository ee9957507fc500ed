"""Tests of the handles of responses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokclient.cluster.requests.pending import PendingResponse


async def test_callback_gets_the_handle_when_the_response_arrives() -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    handle: PendingResponse[Any] = PendingResponse(future)
    called: list[Any] = []
    handle.add_done_callback(called.append)
    assert not handle.done()
    future.set_result("response")
    assert handle.done()
    assert await handle == "response"
    await asyncio.sleep(0)
    assert called == [handle]
    handle.add_done_callback(called.append)
    await asyncio.sleep(0)
    assert called == [handle, handle]


async def test_removed_callback_is_not_called() -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    handle: PendingResponse[Any] = PendingResponse(future)
    called: list[Any] = []
    kept: list[Any] = []
    handle.add_done_callback(called.append)
    handle.add_done_callback(kept.append)
    handle.add_done_callback(called.append)
    assert handle.remove_done_callback(called.append) == 2
    assert handle.remove_done_callback(called.append) == 0
    future.set_result("response")
    await asyncio.sleep(0)
    assert (called, kept) == ([], [handle])


async def test_callback_of_another_handle_is_not_removed() -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    one: PendingResponse[Any] = PendingResponse(future)
    other: PendingResponse[Any] = PendingResponse(future)
    called: list[Any] = []
    one.add_done_callback(called.append)
    assert other.remove_done_callback(called.append) == 0
    future.set_result("response")
    await asyncio.sleep(0)
    assert called == [one]


async def test_callback_that_cannot_be_called_is_refused() -> None:
    handle: PendingResponse[Any] = PendingResponse(asyncio.get_running_loop().create_future())
    with pytest.raises(TypeError, match="takes a function of one response"):
        handle.add_done_callback("text")  # type: ignore[arg-type]
