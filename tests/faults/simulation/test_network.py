"""The simulated event loop and network: time, order, and faults."""

import asyncio
import itertools
import random
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokclient.testing.simulation.loop import SimulationError, VirtualLoop
from aiokclient.testing.simulation.network import NameFault, VirtualNetwork, Weather

ADDRESS = ("127.0.0.1", 9092)
BROKER = "127.0.0.1:9092"


class End(asyncio.BufferedProtocol):
    """One side of a connection, which keeps the bytes of each read, and echoes them if asked to."""

    def __init__(self, echo: bool = False, size: int = 16) -> None:
        self.echo, self.buffer = echo, bytearray(size)
        self.reads: list[bytes] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self.paused = False
        self.ended = False

    @property
    def data(self) -> bytes:
        return b"".join(self.reads)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.reads.append(bytes(self.buffer[:nbytes]))
        if self.echo:
            self.transport.write(self.reads[-1])

    def eof_received(self) -> None:
        self.ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False


class Wired:
    """A network with one server, and the server's end of each connection that was made."""

    def __init__(self, network: VirtualNetwork, echo: bool) -> None:
        self.network, self.echo = network, echo
        self.servers: list[End] = []

    def accept(self) -> End:
        self.servers.append(End(self.echo))
        return self.servers[-1]

    async def connect(self) -> End:
        client = End()
        connector = self.network.connector()
        await connector.connect(ADDRESS, lambda: client, tls=None, server_hostname=None)
        return client


def simulate(
    test: Callable[[Wired], Coroutine[Any, Any, None]],
    *,
    seed: int = 1,
    weather: Weather | None = None,
    echo: bool = False,
) -> None:
    async def main() -> None:
        wired = Wired(VirtualNetwork(random.Random(seed), weather), echo)
        wired.network.listen(*ADDRESS, wired.accept)
        await test(wired)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> tuple[float, object]:
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(None, sum, [1, 2])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await loop.create_future()
        return loop.time(), await done

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == (3600, 3)


def test_a_task_that_waits_forever_is_named() -> None:
    async def main() -> None:
        await asyncio.create_task(asyncio.Event().wait(), name="the sleeper")

    with (
        pytest.raises(SimulationError, match="the sleeper"),
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
    ):
        runner.run(main())


def test_a_task_in_a_busy_loop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokclient.testing.simulation.loop.IDLE_TURNS", 1000)

    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with (
        pytest.raises(SimulationError, match="without time passing"),
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
    ):
        runner.run(main())


@pytest.mark.parametrize("slicing", [0.0, 0.5, 1.0])
def test_bytes_arrive_completely_and_in_order(slicing: float) -> None:
    sent = [random.Random(i).randbytes(i) for i in range(60)]

    async def test(wired: Wired) -> None:
        client = await wired.connect()
        for piece in sent:
            client.transport.write(piece)
        await asyncio.sleep(10)
        assert wired.servers[0].data == client.data == b"".join(sent)

    simulate(test, weather=Weather(slicing=slicing), echo=True)


def test_a_buffer_that_is_changed_too_early_is_detected() -> None:
    async def test(wired: Wired) -> None:
        client = await wired.connect()
        buffer = bytearray(b"right")
        client.transport.write(buffer)
        buffer[:] = b"wrong"
        await asyncio.sleep(1)
        assert wired.servers[0].data == b"wrong"

    simulate(test)


@pytest.mark.parametrize("byte", [0, 1, 5, 9])
def test_a_connection_is_reset_at_the_given_byte(byte: int) -> None:
    async def test(wired: Wired) -> None:
        wired.network.cut_next(requests=byte)
        client = await wired.connect()
        client.transport.write(b"0123456789")
        assert isinstance(await client.lost, ConnectionResetError)
        assert isinstance(await wired.servers[0].lost, ConnectionResetError)
        assert wired.servers[0].data == b"0123456789"[:byte]

    simulate(test)


def test_written_bytes_arrive_after_a_close() -> None:
    async def test(wired: Wired) -> None:
        client = await wired.connect()
        client.transport.write(b"last words")
        client.transport.close()
        assert await client.lost is None
        assert await wired.servers[0].lost is None
        assert (wired.servers[0].data, wired.servers[0].ended) == (b"last words", True)
        assert not wired.network.connections

    simulate(test)


def test_an_abort_discards_bytes_and_resets() -> None:
    async def test(wired: Wired) -> None:
        client = await wired.connect()
        client.transport.write(b"never heard")
        client.transport.abort()
        assert await client.lost is None
        assert isinstance(await wired.servers[0].lost, ConnectionResetError)
        assert wired.servers[0].data == b""

    simulate(test)


def test_a_paused_reader_pauses_the_writer() -> None:
    async def test(wired: Wired) -> None:
        client = await wired.connect()
        server = wired.servers[0]
        server.transport.pause_reading()
        client.transport.write(bytes(1_000_000))
        await asyncio.sleep(1)
        assert client.paused
        assert server.data == b""
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert not client.paused
        assert len(server.data) == 1_000_000

    simulate(test)


def test_a_network_partition_delays_bytes_and_connections() -> None:
    async def test(wired: Wired) -> None:
        client = await wired.connect()
        wired.network.part({"client"}, {BROKER})
        client.transport.write(b"late")
        another = asyncio.create_task(wired.connect())
        await asyncio.sleep(60)
        assert wired.servers[0].data == b""
        assert not another.done()
        wired.network.heal()
        await another
        await asyncio.sleep(1)
        assert wired.servers[0].data == b"late"

    simulate(test)


def test_connections_are_refused_and_names_resolved_as_configured() -> None:
    async def test(wired: Wired) -> None:
        network = wired.network
        network.refuse(BROKER)
        with pytest.raises(ConnectionRefusedError):
            await wired.connect()
        network.refuse(BROKER, False)
        await wired.connect()
        network.names |= {"kafka": ["10.0.0.1"], "empty": NameFault.EMPTY, "bad": NameFault.FAIL}
        network.names["slow"] = NameFault.BLOCK
        assert await network.resolve("kafka", 1) == [("10.0.0.1", 1)]
        assert await network.resolve("127.0.0.1", 1) == [("127.0.0.1", 1)]
        assert await network.resolve("empty", 1) == []
        for name in ("bad", "unheard-of"):
            with pytest.raises(socket.gaierror):
                await network.resolve(name, 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await network.resolve("slow", 1)

    simulate(test)


@pytest.mark.parametrize("seed", range(20))
def test_random_resets_deliver_only_prefixes(seed: int) -> None:
    async def test(wired: Wired) -> None:
        for number in range(10):
            client = await wired.connect()
            sent = random.Random(number).randbytes(300)
            for at in range(0, 300, 30):
                client.transport.write(sent[at : at + 30])
                await asyncio.sleep(0.001)
            await asyncio.sleep(1)
            assert sent.startswith(wired.servers[number].data)
            assert wired.servers[number].data == sent or client.lost.done()

    simulate(test, seed=seed, weather=Weather(loss=0.1, slicing=0.3))
