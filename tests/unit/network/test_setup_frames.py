"""Tests of the frames of a setup when its connection ends."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from aiokclient.errors import DisconnectedError, KafkaError, ProtocolError
from aiokclient.network.diagnosis import SetupFrames


@pytest.mark.parametrize("reason", [None, ProtocolError("broken")])
async def test_end_fails_the_frame_that_is_awaited(reason: KafkaError | None) -> None:
    frames = SetupFrames("b:9092")
    frames.fail_expected_frame(reason)
    frame = frames.expect_frame()
    frames.fail_expected_frame(reason)
    with pytest.raises(DisconnectedError if reason is None else ProtocolError) as caught:
        await frame
    assert reason is None or caught.value is reason
    frames.fail_expected_frame(reason)


async def test_end_of_a_cancelled_setup_is_not_reported_by_the_loop() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    frames = SetupFrames("b:9092")
    frames.expect_frame()
    frames.fail_expected_frame(None)
    del frames
    await asyncio.sleep(0)
    gc.collect()
    assert reported == []


async def test_frame_that_is_not_awaited_is_refused() -> None:
    frames = SetupFrames("b:9092")
    with pytest.raises(ProtocolError, match="matches no request") as caught:
        frames.on_frame(b"frame")
    assert caught.value.broker == "b:9092"
    frame = frames.expect_frame()
    frames.on_frame(b"frame")
    assert await frame == b"frame"
    with pytest.raises(ProtocolError, match="matches no request"):
        frames.on_frame(b"frame")
