"""Tests of the fault proxy alone, in front of an echo server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from aiokclient.testing.proxy import FaultProxy, ProxyConnector, ProxyFaults

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    address: tuple[str, int] = server.sockets[0].getsockname()
    async with FaultProxy(address) as proxy:
        yield proxy
    server.close()


async def connect(proxy: FaultProxy) -> Stream:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def close(stream: Stream) -> None:
    stream[1].close()
    try:
        await stream[1].wait_closed()
    except ConnectionError:
        pass


@pytest.mark.parametrize(
    "faults", [ProxyFaults(), ProxyFaults(slice_bytes=1), ProxyFaults(latency_s=0.01)], ids=repr
)
async def test_all_bytes_pass_in_order(proxy: FaultProxy, faults: ProxyFaults) -> None:
    proxy.faults = faults
    stream = reader, writer = await connect(proxy)
    sent = bytes(range(256)) * 20
    writer.write(sent)
    assert await reader.readexactly(len(sent)) == sent
    writer.write_eof()
    await close(stream)


async def test_much_frozen_data_arrives_after_the_thaw(proxy: FaultProxy) -> None:
    proxy.faults.frozen = True
    stream = reader, writer = await connect(proxy)
    sent = bytes(30_000_000)
    writer.write(sent)
    await asyncio.sleep(0.02)
    proxy.faults.frozen = False
    proxy.changed()
    assert await reader.readexactly(len(sent)) == sent
    await close(stream)


@pytest.mark.parametrize("at", [0, 1, 7])
async def test_a_connection_is_reset_at_a_byte_of_the_response(proxy: FaultProxy, at: int) -> None:
    proxy.faults.reset_responses_at = at
    stream = reader, writer = await connect(proxy)
    writer.write(b"0123456789")
    assert await reader.readexactly(at) == b"0123456789"[:at]
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    await close(stream)


async def test_frozen_data_arrives_after_the_thaw(proxy: FaultProxy) -> None:
    stream = reader, writer = await connect(proxy)
    writer.write(b"a")
    assert await reader.readexactly(1) == b"a"
    proxy.faults.frozen = True
    writer.write(b"b")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await reader.readexactly(1)
    proxy.faults.frozen = False
    proxy.changed()
    assert await reader.readexactly(1) == b"b"
    await close(stream)


async def test_a_half_open_connection_stays_silent(proxy: FaultProxy) -> None:
    stream = reader, writer = await connect(proxy)
    writer.write(b"a")
    assert await reader.readexactly(1) == b"a"
    proxy.faults.half_open = True
    proxy.changed()
    writer.write(b"b")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await reader.read(1)
    await close(stream)


async def test_connections_are_limited_cut_and_refused(proxy: FaultProxy) -> None:
    proxy.faults.lifetime_s = (0.01, 0.02)
    streams = [await connect(proxy)]
    with pytest.raises(ConnectionResetError):
        await streams[0][0].read(1)
    proxy.faults.lifetime_s = None
    streams.append(await connect(proxy))
    streams[1][1].write(b"a")
    assert await streams[1][0].read(1) == b"a"
    assert proxy.cut() == 1
    with pytest.raises(ConnectionResetError):
        await streams[1][0].read(1)
    proxy.faults.refuse = True
    streams.append(await connect(proxy))
    with pytest.raises(ConnectionResetError):
        await streams[2][0].read(1)
    for stream in streams:
        await close(stream)
    assert not proxy.connections


class Reply(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.buffer = bytearray(10)
        self.replied: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.replied.set_result(bytes(self.buffer[:nbytes]))


async def test_a_connector_uses_one_proxy_for_each_address(proxy: FaultProxy) -> None:
    async with ProxyConnector() as connector:
        reply = Reply()
        transport = await connector.connect(
            proxy.target, lambda: reply, tls=None, server_hostname=None
        )
        transport.write(b"x")
        assert await reply.replied == b"x"
        assert list(connector.proxies) == [proxy.target]
        assert connector.cut() == 1
