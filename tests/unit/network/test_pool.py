"""Tests of the connections to one broker: shared attempts, owners, backoff, and reachability."""

import asyncio
import logging
import random
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from scripted import ScriptedBroker

from aiokclient.errors import ClosedError, ConnectionSetupError, DisconnectedError, KafkaError
from aiokclient.log.kept_errors import chain
from aiokclient.network.pool import ConnectionPool, PoolOwner, Purpose
from aiokclient.network.setup import ConnectionSettings
from aiokclient.policy import Backoff
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.metadata import MetadataRequest

Settings = Callable[..., ConnectionSettings]
MakePool = Callable[..., ConnectionPool]

QUICK = Backoff(0.001, 0.004)


@pytest.fixture
async def make_pool(settings: Settings) -> AsyncIterator[MakePool]:
    """Return a function that makes pools with a short backoff, whose tasks end with the test."""
    tasks: list[asyncio.Task[None]] = []
    pools: list[ConnectionPool] = []

    class Owner(PoolOwner):
        def spawn(
            self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any, name: str
        ) -> None:
            tasks.append(asyncio.create_task(function(*args), name=name))

    owner = Owner()

    def made(port: int, backoff: Backoff = QUICK) -> ConnectionPool:
        setup = Backoff(5, 5)
        rng = random.Random(1)
        pool = ConnectionPool(
            1, "127.0.0.1", port, settings(), owner=owner, backoff=backoff, setup=setup, rng=rng
        )
        pools.append(pool)
        return pool

    yield made
    for pool in pools:
        pool.close()
    await asyncio.gather(*tasks)


async def test_concurrent_callers_share_one_connection_attempt(make_pool: MakePool) -> None:
    async with ScriptedBroker() as broker:
        pool = make_pool(broker.port)
        asked = [pool.get_connection(Purpose.CONTROL) for _ in range(10)]
        connections = await asyncio.gather(*asked)
        assert len(set(map(id, connections))) == 1
        assert broker.opened == 1
        assert pool.find_connection(Purpose.CONTROL) is connections[0]


async def test_each_purpose_and_owner_has_its_own_connection(make_pool: MakePool) -> None:
    async with ScriptedBroker() as broker:
        pool = make_pool(broker.port)
        one, other = object(), object()
        slots = [
            (Purpose.CONTROL, None),
            (Purpose.PRODUCE, None),
            (Purpose.FETCH, one),
            (Purpose.FETCH, other),
        ]
        connections = [await pool.get_connection(*slot) for slot in slots]
        assert broker.opened == 4
        pool.release_owner(one)
        assert [connection.closed for connection in connections] == [False, False, True, False]
        assert pool.find_connection(Purpose.FETCH, one) is None
        assert pool.reachable


async def test_a_cancelled_waiter_does_not_end_the_attempt(make_pool: MakePool) -> None:
    async with ScriptedBroker() as broker:
        pool = make_pool(broker.port)
        impatient = asyncio.create_task(pool.get_connection(Purpose.CONTROL))
        patient = asyncio.create_task(pool.get_connection(Purpose.CONTROL))
        await asyncio.sleep(0)
        impatient.cancel()
        assert not (await patient).closed
        assert impatient.cancelled()
        assert broker.opened == 1


async def test_an_attempt_without_waiters_still_completes(
    make_pool: MakePool,
) -> None:
    async with ScriptedBroker() as broker:
        pool = make_pool(broker.port)
        impatient = asyncio.create_task(pool.get_connection(Purpose.CONTROL))
        await asyncio.sleep(0)
        impatient.cancel()
        assert not (await pool.get_connection(Purpose.CONTROL)).closed
        assert broker.opened == 1


async def test_failures_back_off_until_a_success(make_pool: MakePool, unused_tcp_port: int) -> None:
    pool = make_pool(unused_tcp_port, Backoff(0.001, 1000.0, jitter=0.0))
    for attempt in range(5):
        began = max(pool.not_before, asyncio.get_running_loop().time())
        with pytest.raises(DisconnectedError):
            await pool.get_connection(Purpose.CONTROL)
        early_s = 0.001  # uvloop rounds to whole milliseconds.
        assert pool.not_before >= began + 0.001 * 2**attempt - early_s
        assert not pool.reachable
    broker = ScriptedBroker()
    broker.port = unused_tcp_port
    async with broker:
        await pool.get_connection(Purpose.CONTROL)
        assert pool.reachable
        assert pool.not_before == 0.0


async def test_the_error_of_an_attempt_does_not_keep_its_connection_alive(
    make_pool: MakePool, unused_tcp_port: int
) -> None:
    pool = make_pool(unused_tcp_port)
    with pytest.raises(DisconnectedError):
        await pool.get_connection(Purpose.CONTROL)
    assert pool.last_error is not None
    frames = [
        frame.f_code.co_name
        for error in chain(pool.last_error)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    assert "get_connection" in frames  # It raised the error after the attempt.
    assert not {"open_connection", "connect", "create_connection"} & set(frames)


async def test_a_broker_is_unreachable_between_two_connections(make_pool: MakePool) -> None:
    async with ScriptedBroker() as broker:
        pool = make_pool(broker.port)
        first = await pool.get_connection(Purpose.CONTROL)
        broker.cut()
        await first.wait_closed()
        assert not pool.reachable
        assert pool.find_connection(Purpose.CONTROL) is None
        second = await pool.get_connection(Purpose.CONTROL)
        assert second is not first
        assert pool.reachable


@pytest.mark.parametrize(
    ("answer", "level"),
    [(ConnectionError, logging.INFO), (bytes([0, 0, 0, 4, 0, 0, 0, 99]), logging.WARNING)],
    ids=["hung up", "no answer to this"],
)
async def test_the_reason_of_a_lost_connection_is_reported(
    make_pool: MakePool, caplog: pytest.LogCaptureFixture, answer: Any, level: int
) -> None:
    caplog.set_level(logging.INFO)
    async with ScriptedBroker() as broker:
        connection = await make_pool(broker.port).get_connection(Purpose.CONTROL)
        broker.handlers[ApiKey.METADATA] = lambda *_: answer
        with pytest.raises(KafkaError):
            await connection.send(MetadataRequest(topics=[]), timeout_s=5)
        assert [record.levelno for record in caplog.records] == [level]


async def test_an_old_broker_is_reached_after_it_hung_up(make_pool: MakePool) -> None:
    async with ScriptedBroker() as broker:
        broker.handlers[ApiKey.API_VERSIONS] = lambda request, version: (
            ConnectionError if version > 0 else broker.api_versions(request, version)
        )
        pool = make_pool(broker.port)
        for _ in range(2):
            with pytest.raises(DisconnectedError):
                await pool.get_connection(Purpose.CONTROL)
        await pool.get_connection(Purpose.CONTROL)


async def test_all_waiters_get_the_failure(make_pool: MakePool) -> None:
    async with ScriptedBroker() as broker:
        broker.handlers[ApiKey.API_VERSIONS] = lambda *_: b"HTTP/1.1 400 Bad Request"
        pool = make_pool(broker.port)
        asked = [pool.get_connection(Purpose.CONTROL) for _ in range(3)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionSetupError] * 3


async def test_a_pool_can_be_closed_while_it_connects(make_pool: MakePool) -> None:
    async with ScriptedBroker() as broker:
        broker.handlers[ApiKey.API_VERSIONS] = lambda *_: None
        pool = make_pool(broker.port)
        asked = asyncio.create_task(pool.get_connection(Purpose.CONTROL))
        await broker.until(lambda: bool(broker.seen))
        pool.close()
        with pytest.raises(ClosedError):
            await asked
        with pytest.raises(ClosedError):
            await pool.get_connection(Purpose.CONTROL)
        broker.cut()


async def test_a_retired_pool_lets_requests_end(make_pool: MakePool) -> None:
    async with ScriptedBroker() as broker:
        pool = make_pool(broker.port)
        connection = await pool.get_connection(Purpose.CONTROL)
        pool.close_gracefully()
        await connection.wait_closed()
        assert pool.reachable
