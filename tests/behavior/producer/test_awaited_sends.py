"""Tests of a task that awaits each of its sends, on real connections with and without TLS."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokclient import Producer, State
from aiokclient.protocol import ApiKey
from aiokclient.testing import BrokerListener, EmbeddedCluster

RUNNERS: dict[str, Callable[..., Any]] = {"asyncio": asyncio.Runner}
if sys.platform != "win32":
    import uvloop

    RUNNERS["uvloop"] = lambda **options: asyncio.Runner(
        loop_factory=uvloop.new_event_loop, **options
    )

LISTENERS = {"SSL": BrokerListener(tls=True)}


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"t": 2}, listeners=LISTENERS) as cluster:
        yield cluster


@pytest.fixture(params=["PLAINTEXT", "SSL"])
def options(request: pytest.FixtureRequest, brokers: EmbeddedCluster) -> dict[str, Any]:
    if request.param == "PLAINTEXT":
        return {"bootstrap_servers": brokers.bootstrap_servers}
    return {
        "bootstrap_servers": brokers.bootstrap_servers_for("SSL"),
        "security": brokers.client_tls,
    }


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with RUNNERS[request.param](debug=True) as runner:
        yield runner


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exit_after_an_awaited_send_leaves_the_connection_open(
    runner: asyncio.Runner,
    options: dict[str, Any],
    brokers: EmbeddedCluster,
    error: type[BaseException],
) -> None:
    producer: Producer[Any, Any] | None = None

    async def start() -> None:
        nonlocal producer
        producer = await Producer(**options)
        await producer.send("t", b"first")
        await producer.send("t", b"second")

    async def leave() -> None:
        assert producer is not None
        await producer.send("t", b"third")
        raise error

    async def go_on() -> None:
        assert producer is not None
        for _ in range(10):
            await producer.send("t", b"v")
        assert producer.state is State.RUNNING
        await producer.close()

    runner.run(start())
    brokers.reset()
    with pytest.raises(error):
        runner.get_loop().run_until_complete(leave())
    runner.run(go_on())
    assert {request.api for request in brokers.requests} == {ApiKey.PRODUCE}


def test_a_woken_task_closes_the_producer(runner: asyncio.Runner, options: dict[str, Any]) -> None:
    async def main() -> None:
        producer = await Producer(**options)
        waiting = [asyncio.ensure_future(_awaited(producer)) for _ in range(20)]
        await producer.send("t", b"v")
        await producer.send("t", b"v")
        await producer.close()
        assert all(offset >= 0 for offset in await asyncio.gather(*waiting))

    runner.run(main())


async def _awaited(producer: Producer[Any, Any]) -> int:
    return (await producer.send("t", b"v")).offset
