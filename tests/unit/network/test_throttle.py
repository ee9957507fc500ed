"""Tests that a throttle does not use up the timeout of the requests that it delays.

All times are virtual.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from scripted import MemoryTransport, response_frame

from aiokclient.errors import ApiTimeoutError
from aiokclient.metrics import Metrics
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.traffic import Traffic
from aiokclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokclient.testing.simulation.loop import VirtualLoop

Connect = Callable[..., tuple[BrokerConnection, MemoryTransport]]
VERSION = ListGroupsRequest.max_version


def answer(number: int, throttle_s: float = 0.0) -> bytes:
    response = ListGroupsResponse(throttle_time_ms=int(throttle_s * 1000))
    return response_frame(number, response, VERSION)


def ask(connection: BrokerConnection, timeout_s: float = 30) -> asyncio.Future[Any]:
    return connection.send(ListGroupsRequest(), timeout_s=timeout_s)


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


@pytest.mark.parametrize("expect_response", [True, False])
def test_request_keeps_its_timeout_when_a_throttle_delays_it_to_its_deadline(
    connect: Connect, expect_response: bool
) -> None:
    async def main() -> None:
        connection, transport = connect()
        first = ask(connection)
        transport.feed(answer(0, throttle_s=29.9))
        await first
        delayed = connection.send(
            ListGroupsRequest(), timeout_s=30, expect_response=expect_response
        )
        await asyncio.sleep(58)
        assert not connection.closed
        if expect_response:
            transport.feed(answer(1))
        await delayed
        connection.close()

    in_virtual_time(main)


def test_delayed_request_still_times_out_when_no_answer_comes_after_the_throttle(
    connect: Connect,
) -> None:
    async def main() -> None:
        connection, transport = connect()
        first = ask(connection)
        transport.feed(answer(0, throttle_s=20))
        await first
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(ApiTimeoutError, match="did not answer"):
            await ask(connection)
        assert loop.time() - began == pytest.approx(50)
        assert connection.closed

    in_virtual_time(main)


def test_requests_in_flight_keep_their_timeout_when_an_earlier_one_is_throttled(
    connect: Connect,
) -> None:
    async def main() -> None:
        connection, transport = connect()
        futures = [ask(connection) for _ in range(5)]
        await asyncio.sleep(10)
        transport.feed(answer(0, throttle_s=40))
        await asyncio.sleep(65)
        assert not connection.closed
        transport.feed(b"".join(answer(number) for number in range(1, 5)))
        await asyncio.gather(*futures)
        connection.close()

    in_virtual_time(main)


def test_requests_in_flight_time_out_when_the_throttle_is_absurd(connect: Connect) -> None:
    async def main() -> None:
        connection, transport = connect()
        futures = [ask(connection), ask(connection)]
        transport.feed(answer(0, throttle_s=2_000_000))
        with pytest.raises(ApiTimeoutError):
            await futures[1]
        assert asyncio.get_running_loop().time() < 1000

    in_virtual_time(main)


def test_request_keeps_its_timeout_when_a_full_transport_delays_it(connect: Connect) -> None:
    async def main() -> None:
        connection, transport = connect()
        connection.pause_writing()
        delayed = ask(connection)
        await asyncio.sleep(29.9)
        connection.resume_writing()
        await asyncio.sleep(29)
        transport.feed(answer(0))
        await delayed
        connection.close()

    in_virtual_time(main)


def test_each_throttle_is_measured_even_the_shortest(connect: Connect) -> None:
    async def main() -> None:
        metrics = Metrics()
        connection, transport = connect(traffic=Traffic(metrics, "test"))
        for number, throttle_s in enumerate((0.0, 0.001, 0.25)):
            sent = ask(connection)
            transport.feed(answer(number, throttle_s=throttle_s))
            await sent
            await asyncio.sleep(throttle_s)
        found = metrics.take_snapshot()["client.throttle.seconds{broker=1}"]
        assert isinstance(found, dict)
        assert found["count"] == 2
        assert found["sum"] == pytest.approx(0.251)
        connection.close()

    in_virtual_time(main)
