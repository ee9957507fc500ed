"""Tests of requests with a callback in place of a future."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from scripted import MemoryTransport, response_frame

from aiokclient.errors import (
    ApiTimeoutError,
    DisconnectedError,
    KafkaError,
    UnsupportedVersionError,
)
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.transport import JOINED
from aiokclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

Connect = Callable[..., tuple[BrokerConnection, MemoryTransport]]
VERSION = ListGroupsRequest.max_version


def answer(number: int) -> bytes:
    return response_frame(number, ListGroupsResponse(error_code=number), VERSION)


class Outcomes:
    """The outcomes of several requests, in the order of their callbacks."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, KafkaError | None]] = []

    def __call__(self, response: Any, error: KafkaError | None) -> None:
        self.found.append((response, error))

    @property
    def error(self) -> KafkaError | None:
        return self.found[0][1]


async def test_a_callback_runs_while_its_response_is_read(connect: Connect) -> None:
    connection, transport = connect()
    outcomes = Outcomes()
    for _ in range(3):
        connection.send_with_callback(ListGroupsRequest(), outcomes, timeout_s=30)
    transport.feed(b"".join(map(answer, range(3))))
    assert [response.error_code for response, _ in outcomes.found] == [0, 1, 2]
    connection.close()


async def test_a_callback_may_send_the_next_request(connect: Connect) -> None:
    connection, transport = connect()
    seen: list[int] = []

    def answered(response: Any, error: KafkaError | None) -> None:
        seen.append(response.error_code)
        connection.send_with_callback(ListGroupsRequest(), answered, timeout_s=30)

    connection.send_with_callback(ListGroupsRequest(), answered, timeout_s=30)
    for number in range(5):
        transport.feed(answer(number))
    assert seen == [0, 1, 2, 3, 4]
    connection.close()


async def test_a_failure_is_reported_in_a_later_iteration(connect: Connect) -> None:
    connection, _ = connect()
    outcomes = Outcomes()
    connection.send_with_callback(ListGroupsRequest(), outcomes, timeout_s=30)
    connection.close()
    connection.send_with_callback(ListGroupsRequest(), outcomes, timeout_s=30)
    assert not outcomes.found
    await asyncio.sleep(0)
    assert [type(error) for _, error in outcomes.found] == [DisconnectedError] * 2


async def test_a_deadline_is_reported_once(connect: Connect) -> None:
    connection, _ = connect()
    ended = asyncio.get_running_loop().create_future()
    connection.on_close(lambda *_: ended.set_result(None))
    outcomes = Outcomes()
    connection.send_with_callback(ListGroupsRequest(), outcomes, timeout_s=0.01)
    await ended
    await asyncio.sleep(0)
    assert len(outcomes.found) == 1
    assert isinstance(outcomes.error, ApiTimeoutError)


async def test_call_reports_a_version_that_the_broker_lacks(connect: Connect) -> None:
    connection, _ = connect()
    connection.end_setup({}, 1 << 20)
    outcomes = Outcomes()
    connection.send_with_callback(ListGroupsRequest(), outcomes, timeout_s=30)
    await asyncio.sleep(0)
    assert isinstance(outcomes.error, UnsupportedVersionError)
    assert outcomes.error.broker == 1
    connection.close()


async def test_a_request_without_a_response_completes_soon(connect: Connect) -> None:
    connection, _ = connect()
    outcomes = Outcomes()
    connection.send_with_callback(
        ListGroupsRequest(), outcomes, timeout_s=30, expect_response=False
    )
    assert not outcomes.found
    await asyncio.sleep(0)
    assert outcomes.found == [(None, None)]
    connection.close()


async def test_a_draining_connection_is_closed_before_the_last_answer(connect: Connect) -> None:
    connection, transport = connect()
    closed: list[bool] = []
    connection.send_with_callback(
        ListGroupsRequest(), lambda *_: closed.append(connection.closed), timeout_s=30
    )
    connection.close_when_idle()
    transport.feed(answer(0))
    assert closed == [True]


@pytest.mark.parametrize("size", [100, JOINED, 100_000])
async def test_large_segments_are_not_copied(connect: Connect, size: int) -> None:
    connection, transport = connect()
    topic = TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=0, records=bytes(size))]
    )
    written: list[int] = []
    transport.write = lambda data: written.append(len(data))  # type: ignore[method-assign]
    transport.writelines = lambda data: written.extend(  # type: ignore[method-assign]
        len(part) for part in data
    )
    request = ProduceRequest(topic_data=[topic])
    connection.send_with_callback(request, Outcomes(), timeout_s=30, version=9)
    assert len(written) == (1 if size < JOINED - 100 else 3)
    connection.close()
