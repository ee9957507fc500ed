"""Tests of responses that are so large that they are decoded in a thread."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from scripted import MemoryTransport, response_frame

from aiokclient.errors import ApiTimeoutError, DisconnectedError, KafkaError, ProtocolError
from aiokclient.network.connection import LARGE, BrokerConnection
from aiokclient.protocol.framing import InFlight
from aiokclient.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

Connect = Callable[..., tuple[BrokerConnection, MemoryTransport]]
VERSION = ListGroupsRequest.max_version


def answer(number: int, size: int) -> bytes:
    groups = [ListedGroup(group_id="g" * 1000)] * (size // 1000)
    response = ListGroupsResponse(error_code=number, groups=groups)
    return response_frame(number, response, VERSION)


def cut(frame: bytes) -> bytes:
    return (len(frame) - 5).to_bytes(4, "big") + frame[4:-1]


class Outcomes:
    def __init__(self, expected: int) -> None:
        self.responses: list[int] = []
        self.errors: list[type[KafkaError]] = []
        self.all_there = asyncio.Event()
        self._left = expected

    def __call__(self, response: Any, error: KafkaError | None) -> None:
        if error is None:
            self.responses.append(response.error_code)
        else:
            self.errors.append(type(error))
        self._left -= 1
        if not self._left:
            self.all_there.set()


def ask(connection: BrokerConnection, count: int) -> Outcomes:
    outcomes = Outcomes(count)
    for _ in range(count):
        connection.send_with_callback(ListGroupsRequest(), outcomes, timeout_s=30)
    return outcomes


@pytest.mark.parametrize("sizes", [(2 * LARGE, 0, 0), (0, 2 * LARGE, 0), (3 * LARGE, LARGE, 0)])
async def test_responses_are_delivered_in_order(connect: Connect, sizes: tuple[int, ...]) -> None:
    connection, transport = connect()
    outcomes = ask(connection, 3)
    transport.feed(b"".join(answer(number, size) for number, size in enumerate(sizes)))
    assert len(outcomes.responses) < 3
    assert connection.in_flight == 3 - len(outcomes.responses)
    await outcomes.all_there.wait()
    assert outcomes.responses == [0, 1, 2]
    assert connection.in_flight == 0
    connection.close()


async def test_responses_being_decoded_fail_when_the_connection_closes(connect: Connect) -> None:
    connection, transport = connect()
    outcomes = ask(connection, 2)
    transport.feed(answer(0, 2 * LARGE) + answer(1, 0))
    connection.close()
    await outcomes.all_there.wait()
    assert outcomes.errors == [DisconnectedError, DisconnectedError]


@pytest.mark.parametrize("broken", [0, 1])
async def test_a_malformed_response_closes_the_connection(connect: Connect, broken: int) -> None:
    connection, transport = connect()
    outcomes = ask(connection, 3)
    frames = [answer(0, 2 * LARGE), answer(1, 0), answer(2, 0)]
    frames[broken] = cut(frames[broken])
    transport.feed(b"".join(frames))
    await outcomes.all_there.wait()
    assert outcomes.responses == list(range(broken))
    assert outcomes.errors == [DisconnectedError] * (3 - broken)
    assert isinstance(connection.reason, ProtocolError)


async def test_connection_closes_when_decoding_in_a_thread_has_a_bug(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open connection would take the next response for the response to an earlier request."""
    connection, transport = connect()
    outcomes = ask(connection, 2)
    decode = InFlight.decode

    def decode_or_die(asked: InFlight, frame: Any) -> Any:
        if len(frame) >= LARGE:
            raise MemoryError
        return decode(asked, frame)

    monkeypatch.setattr(InFlight, "decode", decode_or_die)
    transport.feed(answer(0, 2 * LARGE) + answer(1, 0))
    await outcomes.all_there.wait()
    assert outcomes.errors == [DisconnectedError] * 2
    assert isinstance(connection.reason, ProtocolError)
    assert isinstance(connection.reason.__cause__, MemoryError)


async def test_request_does_not_time_out_when_its_response_takes_long_to_decode(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, transport = connect()
    may_go_on = threading.Event()
    decode = InFlight.decode

    def decode_later(asked: InFlight, frame: Any) -> Any:
        may_go_on.wait()
        return decode(asked, frame)

    monkeypatch.setattr(InFlight, "decode", decode_later)
    first = connection.send(ListGroupsRequest(), timeout_s=0.01)
    transport.feed(answer(0, 2 * LARGE))
    assert connection.is_arriving(first)
    assert connection.measure_unanswered_s() == 0.0
    other = connection.send(ListGroupsRequest(), timeout_s=0.05)
    assert not connection.is_arriving(other)
    with pytest.raises(ApiTimeoutError):
        await other
    assert isinstance(first.exception(), DisconnectedError)
    may_go_on.set()


async def test_connection_stays_when_a_response_takes_long_to_decode(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, transport = connect()
    loop, decode = asyncio.get_running_loop(), InFlight.decode
    expired, begun = threading.Event(), asyncio.Event()

    def decode_later(asked: InFlight, frame: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        expired.wait()
        return decode(asked, frame)

    monkeypatch.setattr(InFlight, "decode", decode_later)
    waiting = connection.send(ListGroupsRequest(), timeout_s=0.01)
    transport.feed(answer(0, 2 * LARGE))
    await begun.wait()
    loop.call_later(0.05, expired.set)
    assert (await waiting).error_code == 0
    assert not connection.closed
    connection.close()


async def test_response_is_arriving_when_a_part_of_it_has_come(connect: Connect) -> None:
    connection, transport = connect()
    waiting = connection.send(ListGroupsRequest(), timeout_s=30)
    assert not connection.is_arriving(waiting)
    data = answer(0, 2 * LARGE)
    transport.feed(data[: 2 * LARGE])
    assert connection.is_arriving(waiting)
    transport.feed(data[2 * LARGE :])
    await waiting
    connection.close()
