"""Tests of what a connection tells about its requests. All times are virtual."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from scripted import MemoryTransport, response_frame

from aiokclient.errors import ApiTimeoutError, DisconnectedError
from aiokclient.metrics import Metrics
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.traffic import Traffic
from aiokclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokclient.testing.simulation.loop import VirtualLoop

Connect = Callable[..., tuple[BrokerConnection, MemoryTransport]]
VERSION = ListGroupsRequest.max_version


def answer(number: int, throttle_ms: int = 0) -> bytes:
    response = ListGroupsResponse(throttle_time_ms=throttle_ms)
    return response_frame(number, response, VERSION)


def ask(connection: BrokerConnection, timeout_s: float = 30) -> asyncio.Future[Any]:
    return connection.send(ListGroupsRequest(), timeout_s=timeout_s)


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def test_oldest_unanswered_request_tells_for_how_long(connect: Connect) -> None:
    async def main() -> None:
        connection, transport = connect()
        assert connection.measure_unanswered_s() == 0.0
        first = ask(connection)
        await asyncio.sleep(2.0)
        second = ask(connection)
        await asyncio.sleep(3.0)
        assert connection.measure_unanswered_s() == 5.0
        transport.feed(answer(0))
        await first
        assert connection.measure_unanswered_s() == 3.0
        transport.feed(answer(1))
        await second
        assert connection.measure_unanswered_s() == 0.0
        connection.close()

    in_virtual_time(main)


def test_connection_is_busy_while_the_client_may_not_send(connect: Connect) -> None:
    async def main() -> None:
        connection, transport = connect()
        first = ask(connection)
        assert not connection.is_busy
        transport.feed(answer(0, throttle_ms=1000))
        await first
        assert not connection.is_busy
        held = ask(connection)
        assert connection.is_busy
        await asyncio.sleep(1.0)
        assert not connection.is_busy
        transport.feed(answer(1))
        await held
        connection.close()

    in_virtual_time(main)


def test_response_arrives_for_its_own_request_only(connect: Connect) -> None:
    async def main() -> None:
        connection, transport = connect(1 << 24)
        first, second = ask(connection), ask(connection)
        assert not connection.is_arriving(first)
        size = 1 << 23
        transport.feed(size.to_bytes(4, "big") + (0).to_bytes(4, "big") + bytes(1000))
        assert connection.is_busy
        assert connection.is_arriving(first)
        assert not connection.is_arriving(second)
        connection.close()
        for each in (first, second):
            with pytest.raises(DisconnectedError):
                await each

    in_virtual_time(main)


def test_transport_and_socket_are_known_while_there_is_a_transport(connect: Connect) -> None:
    async def main() -> None:
        unconnected = BrokerConnection(1, "memory", 9092, client_id="test")
        assert not unconnected.connected
        assert unconnected.read_info("socket") is None
        connection, transport = connect()
        transport._extra["socket"] = "socket"  # type: ignore[attr-defined]
        assert connection.connected
        assert connection.read_info("socket") == "socket"
        connection.close()
        await connection.wait_closed()
        assert not connection.connected

    in_virtual_time(main)


def test_renamed_connection_counts_for_its_broker(connect: Connect) -> None:
    async def main() -> None:
        traffic = Traffic(Metrics(), "test")
        connection, _ = connect(traffic=traffic)
        connection.set_broker_id(7)
        assert connection.broker.node_id == 7
        assert connection._meter is traffic.get_meter(7)
        connection.close()

    in_virtual_time(main)


def test_request_before_all_others_fails_on_a_closed_connection(connect: Connect) -> None:
    async def main() -> None:
        connection, _ = connect()
        connection.close()
        with pytest.raises(DisconnectedError):
            await connection.send_first(ListGroupsRequest(), version=VERSION, timeout_s=5.0)

    in_virtual_time(main)


def test_request_before_all_others_times_out_after_its_own_time(connect: Connect) -> None:
    async def main() -> None:
        connection, _ = connect()
        with pytest.raises(ApiTimeoutError):
            await connection.send_first(ListGroupsRequest(), version=VERSION, timeout_s=5.0)
        assert asyncio.get_running_loop().time() == 5.0

    in_virtual_time(main)


def test_throttle_time_postpones_deadlines_by_ten_minutes_at_most(connect: Connect) -> None:
    async def main() -> None:
        connection, transport = connect()
        first, second = ask(connection), ask(connection)
        transport.feed(answer(0, throttle_ms=3_600_000))
        await first
        with pytest.raises(ApiTimeoutError):
            await second
        assert asyncio.get_running_loop().time() == 630.0
        assert connection.closed

    in_virtual_time(main)
