"""Tests of `ReadThreshold`, with TLS over real sockets."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

import pytest
import trustme

import aiokclient.network.flow as module
from aiokclient.errors import DisconnectedError
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.flow import ATTEMPTS, MARGIN, THRESHOLD, ReadThreshold
from aiokclient.testing.simulation.loop import VirtualLoop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="The option is used on Linux only.")

FRAME = os.urandom(1_000_000)
SENT = struct.pack(">i", len(FRAME)) + FRAME
PART = 300_000
"""The size of the first part of a frame. The rest is larger than the threshold."""


class Ends(NamedTuple):
    """Both ends of a connection. The test controls the broker's end."""

    client: BrokerConnection
    broker: asyncio.StreamWriter

    def threshold(self) -> int:
        """Return the threshold of the client's socket."""
        assert self.client._transport is not None
        sock = self.client._transport.get_extra_info("socket")
        return int(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))

    async def send(self, data: bytes) -> None:
        self.broker.write(data)
        await self.broker.drain()

    async def send_part(self) -> asyncio.Future[Any]:
        """Send the first part of a frame, and wait until the threshold is raised."""
        frame = self.client.exchange_frame([b"request"])
        await self.send(SENT[:PART])
        await until(lambda: self.threshold() == THRESHOLD)
        return frame


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the kernel and the sockets have no event
        await asyncio.sleep(0.001)


async def connected(tls: bool) -> AsyncIterator[Ends]:
    loop, authority = asyncio.get_running_loop(), trustme.CA()
    at_broker = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(at_broker)
    at_client = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    writers: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(
        lambda _, writer: writers.put_nowait(writer),
        "127.0.0.1",
        0,
        ssl=at_broker if tls else None,
    )
    port = server.sockets[0].getsockname()[1]
    _, client = await loop.create_connection(
        lambda: BrokerConnection(1, "localhost", port, client_id="test"),
        "127.0.0.1",
        port,
        ssl=at_client if tls else None,
        server_hostname="localhost" if tls else None,
    )
    broker = await writers.get()
    try:
        yield Ends(client, broker)
    finally:
        client.abort()
        await client.wait_closed()
        broker.transport.abort()
        server.close()


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    async for made in connected(tls=True):
        yield made


@pytest.fixture
async def plain_ends() -> AsyncIterator[Ends]:
    async for made in connected(tls=False):
        yield made


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a threshold wait for longer than a test takes."""
    monkeypatch.setattr(module, "PATIENCE_S", 3600.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("patient")
async def test_frames_arrive_in_parts_of_any_size(ends: Ends, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        size = rng.choice((1, 50_000, 65_532, 65_533, THRESHOLD + MARGIN, 250_000, len(FRAME)))
        content = FRAME[:size]
        data = struct.pack(">i", size) + content
        frame = ends.client.exchange_frame([b"request"])
        start = 0
        while start < len(data):
            end = start + rng.choice((1, 100, 16_384, 20_000, THRESHOLD, 400_000))
            await ends.send(data[start:end])
            await asyncio.sleep(0)
            start = end
        assert bytes(await frame) == content
        assert ends.threshold() == 1


@pytest.mark.usefixtures("patient")
async def test_the_threshold_is_raised_while_much_of_a_frame_is_missing(ends: Ends) -> None:
    frame = await ends.send_part()
    await ends.send(SENT[PART:-1])
    await until(lambda: ends.client._reader.missing == 1)
    assert ends.threshold() == 1
    await ends.send(SENT[-1:])
    assert bytes(await frame) == FRAME


async def test_the_threshold_is_lowered_when_nothing_arrives(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    frame = await ends.send_part()
    await until(lambda: ends.threshold() == 1)
    await until(lambda: ends.client._reader.missing == len(SENT) - PART)
    await ends.send(SENT[PART : PART + 10])
    await until(lambda: ends.client._reader.missing == len(SENT) - PART - 10)
    assert ends.threshold() == 1, "it stays lowered until the end of this frame"
    await ends.send(SENT[PART + 10 :])
    assert bytes(await frame) == FRAME
    # For the next frame, the threshold is raised again.
    await ends.send_part()


async def test_a_connection_whose_frames_all_stall_gets_no_threshold_any_more(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    for _ in range(ATTEMPTS):
        frame = await ends.send_part()
        await until(lambda: ends.threshold() == 1)
        await ends.send(SENT[PART:])
        await frame
    frame = ends.client.exchange_frame([b"request"])
    await ends.send(SENT[:PART])
    await until(lambda: 0 < ends.client._reader.missing <= len(SENT) - PART)
    assert ends.threshold() == 1
    await ends.send(SENT[PART:])
    assert bytes(await frame) == FRAME


@pytest.mark.usefixtures("patient")
async def test_a_raised_threshold_does_not_hide_the_end_of_the_connection(ends: Ends) -> None:
    frame = await ends.send_part()
    ends.broker.transport.abort()
    with pytest.raises(DisconnectedError):
        await frame


@pytest.mark.usefixtures("patient")
async def test_a_connection_with_a_raised_threshold_can_be_closed(ends: Ends) -> None:
    frame = await ends.send_part()
    ends.client.abort()
    await ends.client.wait_closed()
    with pytest.raises(DisconnectedError):
        await frame


async def test_there_is_no_threshold_without_tls(plain_ends: Ends) -> None:
    frame = plain_ends.client.exchange_frame([b"request"])
    await plain_ends.send(SENT[:PART])
    await until(lambda: 0 < plain_ends.client._reader.missing <= len(SENT) - PART)
    assert plain_ends.threshold() == 1
    await plain_ends.send(SENT[PART:])
    assert bytes(await frame) == FRAME


# -- in virtual time, with a socket that only keeps the option


class Options:
    """The socket option of a connection, as the kernel keeps it."""

    def __init__(self) -> None:
        self.threshold = 1
        self.calls = 0
        self.refuses = False

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.calls += 1
        if self.refuses:
            raise OSError("not supported")
        self.threshold = value


LARGE = THRESHOLD + MARGIN


def with_threshold(
    main: Callable[[ReadThreshold, Options], Coroutine[Any, Any, None]],
) -> None:
    async def run() -> None:
        options = Options()
        await main(ReadThreshold(options, asyncio.get_running_loop()), options)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_threshold_is_raised_only_while_more_than_it_can_be_missing() -> None:
    async def main(threshold: ReadThreshold, options: Options) -> None:
        for missing, expected in (
            (0, 1), (LARGE - 1, 1), (LARGE, THRESHOLD), (LARGE, THRESHOLD), (LARGE - 1, 1), (0, 1),
        ):  # fmt: skip
            threshold.expect_bytes(missing)
            assert options.threshold == expected
        assert options.calls == 2, "it was set although it had the value"

    with_threshold(main)


def test_threshold_is_lowered_when_nothing_is_read_for_a_tenth_of_a_second() -> None:
    async def main(threshold: ReadThreshold, options: Options) -> None:
        for frame in range(2):
            threshold.expect_bytes(LARGE + 50)
            # The first check sees what is missing, the second one that nothing was read.
            await asyncio.sleep(0.19)
            assert options.threshold == THRESHOLD, f"lowered too early in frame {frame}"
            await asyncio.sleep(0.02)
            assert options.threshold == 1
            threshold.expect_bytes(LARGE + 10)
            assert options.threshold == 1, "it stays lowered until the end of the frame"
            threshold.expect_bytes(0)
        for missing in range(LARGE + 100, LARGE, -1):
            threshold.expect_bytes(missing)
            await asyncio.sleep(0.09)
            assert options.threshold == THRESHOLD, "lowered although something is read"

    with_threshold(main)


@pytest.mark.parametrize(("stalls", "then"), [(1, THRESHOLD), (2, THRESHOLD), (3, 1), (4, 1)])
def test_threshold_is_not_raised_after_three_frames_that_stalled(stalls: int, then: int) -> None:
    async def main(threshold: ReadThreshold, options: Options) -> None:
        for _ in range(stalls):
            threshold.expect_bytes(LARGE)
            await asyncio.sleep(1)
            threshold.expect_bytes(0)
        threshold.expect_bytes(LARGE)
        assert options.threshold == then

    with_threshold(main)


def test_frame_that_does_not_stall_ends_the_row_of_those_that_did() -> None:
    async def main(threshold: ReadThreshold, options: Options) -> None:
        for stalls in (True, True, False, True, True, False, True):
            threshold.expect_bytes(LARGE)
            assert options.threshold == THRESHOLD
            await asyncio.sleep(1 if stalls else 0)
            threshold.expect_bytes(0)
            assert options.threshold == 1

    with_threshold(main)


def test_threshold_that_the_system_refuses_is_not_tried_again() -> None:
    async def main(threshold: ReadThreshold, options: Options) -> None:
        options.refuses = True
        for _ in range(3):
            threshold.expect_bytes(LARGE)
            await asyncio.sleep(1)
            threshold.expect_bytes(0)
        assert options.calls == 1

    with_threshold(main)


def test_threshold_of_a_closed_connection_does_not_change() -> None:
    async def main(threshold: ReadThreshold, options: Options) -> None:
        threshold.expect_bytes(LARGE)
        threshold.stop_adapting()
        await asyncio.sleep(1)
        assert options.calls == 1
        threshold = ReadThreshold(options, asyncio.get_running_loop())
        threshold.stop_adapting()
        threshold.expect_bytes(LARGE)
        assert options.calls == 1

    with_threshold(main)
