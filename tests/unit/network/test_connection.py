"""Tests of a connection over a transport in memory: order, deadlines, throttling, bad frames."""

import asyncio
import gc
import struct
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import MemoryTransport, frame, response_frame

from aiokclient.errors import (
    ApiTimeoutError,
    DisconnectedError,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
)
from aiokclient.network.connection import BrokerConnection
from aiokclient.protocol.messages.describe_groups import DescribeGroupsRequest
from aiokclient.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from aiokclient.testing.simulation.loop import VirtualLoop

Connect = Callable[..., tuple[BrokerConnection, MemoryTransport]]

VERSION = ListGroupsRequest.max_version


def answer(number: int, name: str = "", throttle_ms: int = 0) -> bytes:
    # The length of a string is limited, so a long text is split into several strings.
    parts = [name[start : start + 30_000] for start in range(0, len(name), 30_000)]
    groups = [ListedGroup(group_id=part) for part in parts or [""]]
    response = ListGroupsResponse(groups=groups, throttle_time_ms=throttle_ms)
    return response_frame(number, response, VERSION)


def text(response: ListGroupsResponse) -> str:
    return "".join(group.group_id for group in response.groups)


def ask(connection: BrokerConnection, timeout_s: float = 30) -> asyncio.Future[ListGroupsResponse]:
    return connection.send(ListGroupsRequest(), timeout_s=timeout_s)


async def test_responses_are_matched_with_their_requests(connect: Connect) -> None:
    connection, transport = connect()
    futures = [ask(connection) for _ in range(3)]
    transport.feed(b"".join(answer(number, f"g{number}") for number in range(3)))
    assert [(await future).groups[0].group_id for future in futures] == ["g0", "g1", "g2"]
    assert connection.in_flight == 0
    connection.close()


@pytest.mark.fault(12)
@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 64, 10_000])
async def test_responses_are_read_for_any_slicing_of_the_stream(
    connect: Connect, piece: int
) -> None:
    connection, transport = connect()
    futures = [ask(connection) for _ in range(5)]
    names = ["", "x", "y" * 300, "z" * 70_000, "end"]
    transport.feed(b"".join(answer(n, name) for n, name in enumerate(names)), piece)
    assert [text(await future) for future in futures] == names
    connection.close()


@pytest.mark.fault(12)
@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 100_000), min_size=1, max_size=6),
    pieces=st.lists(st.integers(1, 70_000), min_size=1, max_size=20),
)
def test_responses_are_read_for_random_slicings(sizes: list[int], pieces: list[int]) -> None:
    async def main() -> None:
        connection = BrokerConnection(1, "memory", 9092, client_id="test")
        transport = MemoryTransport(connection)
        connection.end_setup({16: (0, 99)}, 1 << 20)
        futures = [ask(connection) for _ in sizes]
        data = b"".join(answer(n, "a" * size) for n, size in enumerate(sizes))
        turn = 0
        while data:
            piece = pieces[turn % len(pieces)]
            transport.feed(data[:piece])
            data, turn = data[piece:], turn + 1
        assert [len(text(await future)) for future in futures] == sizes
        connection.close()

    asyncio.run(main())


@pytest.mark.fault(11)
async def test_requests_fail_when_the_connection_is_reset_at_each_byte(connect: Connect) -> None:
    data = answer(0, "group")
    for cut in range(len(data)):
        connection, transport = connect()
        future = ask(connection)
        transport.feed(data[:cut])
        connection.connection_lost(ConnectionResetError("reset"))
        with pytest.raises(DisconnectedError, match="reset") as caught:
            await future
        assert caught.value.api == "ListGroups"
        assert caught.value.broker == 1
        assert connection.closed


async def test_a_lost_transport_is_released_without_the_garbage_collector() -> None:
    """A TLS transport has a buffer of 256 KiB, and refers to its connection."""
    connection = BrokerConnection(1, "memory", 9092, client_id="test")
    transport = MemoryTransport(connection)
    lost = weakref.ref(transport)
    gc.disable()
    try:
        connection.connection_lost(ConnectionResetError("reset"))
        del transport
        assert lost() is None
    finally:
        gc.enable()
    await connection.wait_closed()
    with pytest.raises(DisconnectedError, match="reset"):
        await connection.exchange_frame([b"request"])


@pytest.mark.parametrize("how", ["ready", "connected", "never connected"])
async def test_a_closed_connection_is_freed_without_the_garbage_collector(how: str) -> None:
    connection = BrokerConnection(1, "memory", 9092, client_id="test", idle_s=60)
    if how != "never connected":
        MemoryTransport(connection)
    if how == "ready":
        connection.end_setup({}, 1 << 20)
    freed = weakref.ref(connection)
    gc.disable()
    try:
        connection.close(DisconnectedError("gone"))
        del connection
        await asyncio.sleep(0)  # The transport reports its end in the next iteration of the loop.
        assert freed() is None
    finally:
        gc.enable()


def failed_write(transport: MemoryTransport) -> ConnectionResetError:
    """Return an error as asyncio reports it, with a traceback that refers to the transport."""
    try:
        raise ConnectionResetError(f"{transport!r} was reset")
    except ConnectionResetError as error:
        return error


async def test_the_error_of_a_failed_write_does_not_keep_its_transport_alive() -> None:
    """The error is kept until the broker answers again, and must not keep the TLS buffer alive."""
    connection = BrokerConnection(1, "memory", 9092, client_id="test")
    transport = MemoryTransport(connection)
    lost = weakref.ref(transport)
    gc.disable()
    try:
        connection.connection_lost(failed_write(transport))
        del transport
        assert lost() is None
    finally:
        gc.enable()
    assert connection.reason is not None
    assert isinstance(connection.reason.__cause__, ConnectionResetError)


@pytest.mark.fault(19)
@pytest.mark.parametrize("number", [1, 2, -1, 2**31 - 1])
async def test_a_response_with_a_wrong_correlation_id_closes_the_connection(
    connect: Connect, number: int
) -> None:
    connection, transport = connect()
    futures = [ask(connection), ask(connection)]
    transport.feed(answer(number))
    for future in futures:
        with pytest.raises(DisconnectedError) as caught:
            await future
        assert isinstance(caught.value.__cause__, ProtocolError)
    assert connection.closed
    assert transport.closing


@pytest.mark.fault(19)
async def test_a_response_without_a_request_closes_the_connection(connect: Connect) -> None:
    connection, transport = connect()
    transport.feed(answer(0))
    assert isinstance(connection.reason, ProtocolError)
    assert transport.closing


@pytest.mark.fault(30)
@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, (1 << 20) + 1])
async def test_a_hostile_frame_length_closes_the_connection(connect: Connect, length: int) -> None:
    connection, transport = connect(limit=1 << 20)
    future = ask(connection)
    transport.feed(struct.pack(">i", length) + b"x" * 100)
    with pytest.raises(DisconnectedError) as caught:
        await future
    assert isinstance(caught.value.__cause__, ProtocolError)


@pytest.mark.fault(30)
async def test_a_response_shorter_than_its_message_closes_the_connection(connect: Connect) -> None:
    connection, transport = connect()
    future = ask(connection)
    whole = answer(0, "group")[4:]
    transport.feed(frame(whole[:-3]))
    with pytest.raises(DisconnectedError):
        await future
    assert isinstance(connection.reason, ProtocolError)


@pytest.mark.fault(31)
@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=60))
def test_any_bytes_lead_to_a_response_or_a_closed_connection(body: bytes) -> None:
    async def main() -> None:
        connection = BrokerConnection(1, "memory", 9092, client_id="test")
        transport = MemoryTransport(connection)
        connection.end_setup({16: (0, 99)}, 1 << 20)
        future = ask(connection)
        transport.feed(frame(struct.pack(">i", 0) + body))
        assert future.done()
        assert future.exception() is None or isinstance(future.exception(), DisconnectedError)
        connection.close()

    asyncio.run(main())


@pytest.mark.fault(13)
async def test_a_late_answer_closes_the_connection(connect: Connect) -> None:
    connection, transport = connect()
    late, other = ask(connection, timeout_s=0.01), ask(connection, timeout_s=30)
    with pytest.raises(ApiTimeoutError) as caught:
        await late
    assert caught.value.api == "ListGroups"
    with pytest.raises(DisconnectedError, match="did not answer"):
        await other
    assert transport.closing


async def test_one_timer_for_many_requests(connect: Connect) -> None:
    connection, transport = connect()
    for _ in range(100):
        ask(connection)
    timer = connection._timer._timer
    assert timer is not None
    for number in range(100):
        transport.feed(answer(number))
    assert connection._timer._timer is timer
    connection.close()


async def test_a_cancelled_wait_leaves_the_order_intact(connect: Connect) -> None:
    connection, transport = connect()
    first, second = ask(connection), ask(connection)
    first.cancel()
    transport.feed(answer(0, "first") + answer(1, "second"))
    assert (await second).groups[0].group_id == "second"
    connection.close()


@pytest.mark.fault(49)
def test_a_throttle_delays_the_following_requests(connect: Connect) -> None:
    async def main() -> None:
        connection, transport = connect()
        first = ask(connection)
        transport.feed(answer(0, throttle_ms=3000))
        await first
        written = len(transport.sent)
        second, third = ask(connection), ask(connection)
        await asyncio.sleep(2.9)
        assert len(transport.sent) == written
        assert connection.in_flight == 2
        await asyncio.sleep(0.2)
        assert len(transport.sent) > written
        transport.feed(answer(1) + answer(2))
        await asyncio.gather(second, third)
        connection.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


@pytest.mark.fault(49)
async def test_a_request_that_expires_while_throttled_leaves_the_connection_open(
    connect: Connect,
) -> None:
    connection, transport = connect()
    first = ask(connection)
    transport.feed(answer(0, throttle_ms=60_000))
    await first
    with pytest.raises(ApiTimeoutError, match="throttle"):
        await ask(connection, timeout_s=0.01)
    assert not connection.closed
    connection.close()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_requests_expire_when_hardly_any_time_is_left(connect: Connect, loop: str) -> None:
    """In uvloop, a timer of less than half a millisecond has a delay of zero."""

    async def main() -> None:
        connection, _ = connect()
        requests = [ask(connection, timeout_s) for timeout_s in (0.0003, 0.0)]
        for request in requests:
            with pytest.raises((ApiTimeoutError, DisconnectedError)):
                await request
        assert connection.closed

    factory = None if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


async def test_writes_wait_while_the_transport_is_full(connect: Connect) -> None:
    connection, transport = connect()
    connection.pause_writing()
    future = ask(connection)
    assert transport.sent == b""
    connection.resume_writing()
    assert transport.sent != b""
    transport.feed(answer(0))
    await future
    connection.close()


async def test_a_transport_that_stays_full_closes_the_connection(connect: Connect) -> None:
    connection, transport = connect()
    connection.pause_writing()
    with pytest.raises(ApiTimeoutError, match="read nothing"):
        await ask(connection, timeout_s=0.01)
    assert transport.closing
    assert isinstance(connection.reason, DisconnectedError)


async def test_an_idle_connection_closes(connect: Connect) -> None:
    connection, transport = connect(idle_s=0.01)
    closed = asyncio.get_running_loop().create_future()
    connection.on_close(lambda _, reason: closed.set_result(reason))
    assert await closed is None
    assert transport.closing


async def test_requests_after_close_fail(connect: Connect) -> None:
    connection, _ = connect()
    connection.close()
    connection.close()
    with pytest.raises(DisconnectedError):
        await ask(connection)


async def test_request_raises_for_a_version_that_the_broker_lacks(connect: Connect) -> None:
    connection, _ = connect()
    connection.end_setup({16: (90, 99)}, 1 << 20)
    with pytest.raises(UnsupportedVersionError, match=r"90 to 99.*0 to 5") as caught:
        await ask(connection)
    assert caught.value.broker == 1
    assert not connection.closed
    connection.close()


async def test_a_request_that_cannot_be_encoded_fails_with_the_id_of_the_broker(
    connect: Connect,
) -> None:
    connection, transport = connect()
    with pytest.raises(KafkaError) as caught:
        await connection.send(DescribeGroupsRequest(groups=["\ud800"]), timeout_s=5)
    assert caught.value.broker == 1
    assert transport.sent == b""
    assert not connection.closed
    connection.close()


async def test_a_request_without_a_response_completes_immediately(connect: Connect) -> None:
    connection, transport = connect()
    future = connection.send(ListGroupsRequest(), timeout_s=30, expect_response=False)
    assert await future is None
    second = ask(connection)
    transport.feed(answer(1, "second"))
    assert (await second).groups[0].group_id == "second"
    connection.close()


async def test_draining_closes_after_the_last_answer(connect: Connect) -> None:
    connection, transport = connect()
    future = ask(connection)
    connection.close_when_idle()
    assert not connection.closed
    transport.feed(answer(0, "last"))
    assert (await future).groups[0].group_id == "last"
    assert connection.closed


async def test_draining_closes_after_the_last_write(connect: Connect) -> None:
    """The request expects no response, so nothing else keeps the connection open."""
    connection, transport = connect()
    connection.pause_writing()
    future = connection.send(ListGroupsRequest(), timeout_s=30, expect_response=False)
    connection.close_when_idle()
    assert not connection.closed
    connection.resume_writing()
    assert await future is None
    assert transport.sent != b""
    assert connection.closed


async def test_a_removed_callback_is_not_called(connect: Connect) -> None:
    connection, _ = connect()
    closed: list[str] = []
    take_back = connection.on_close(lambda *_: closed.append("one"))
    connection.on_close(lambda *_: closed.append("other"))
    take_back()
    take_back()
    connection.close()
    assert closed == ["other"]
