"""Tests of what a pool knows of its broker, and of the ends of its connections, in memory."""

import asyncio
import logging
import random
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from scripted import MemoryTransport, ScriptedBroker

from aiokclient.clock import SystemClock
from aiokclient.errors import (
    ClosedError,
    DisconnectedError,
    KafkaError,
    ResponseTooLargeError,
    SaslAuthenticationError,
    TopicAuthorizationError,
)
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.diagnosis import ClosedEarlyError, WrongBrokerError
from aiokclient.network.event_hub import EventHub
from aiokclient.network.login import Sasl
from aiokclient.network.pool import ConnectionPool, PoolOwner, Purpose
from aiokclient.network.sasl import Login
from aiokclient.network.setup import ConnectionSettings
from aiokclient.policy import Backoff
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.framing import ServerFraming
from aiokclient.protocol.messages.metadata import MetadataRequest
from aiokclient.protocol.messages.sasl_handshake import SaslHandshakeResponse
from aiokclient.testing.simulation.loop import VirtualLoop

Settings = Callable[..., ConnectionSettings]
FRAMING = ServerFraming()


class Answering(MemoryTransport):
    """A transport to a broker that answers in the next turn of the loop."""

    def __init__(self, protocol: asyncio.BufferedProtocol, broker: ScriptedBroker) -> None:
        self.broker = broker
        super().__init__(protocol)

    def write(self, data: Any) -> None:
        super().write(data)
        (size,) = struct.unpack(">i", bytes(data)[:4])
        received = FRAMING.decode_request(bytes(data)[4 : 4 + size])
        self.broker.seen.append(received)
        answer = self.broker._answer(received)
        if isinstance(answer, type):
            self._loop.call_soon(self._end)
        elif answer is not None:
            self._loop.call_soon(self.feed, self.broker._bytes(received, answer))


class Line:
    """A connector to a scripted broker, which accepts after `accepts_s` seconds."""

    def __init__(self, broker: ScriptedBroker, accepts_s: float = 0.0) -> None:
        self.broker, self.accepts_s = broker, accepts_s
        self.transports: list[Answering] = []
        self.error: Exception | None = None

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        return [(host, port)]

    async def connect(self, address: Any, factory: Any, **_: Any) -> Any:
        await asyncio.sleep(self.accepts_s)
        if self.error is not None:
            raise self.error
        self.transports.append(Answering(factory(), self.broker))
        return self.transports[-1]


class World(PoolOwner):
    """A broker, and a pool with what it reports."""

    def __init__(
        self, settings: Settings, *, node_id: int = 1, first: bool = True, accepts_s: float = 0.0,
        **changes: Any,
    ) -> None:  # fmt: skip
        self.broker = ScriptedBroker()
        self.broker.handlers[ApiKey.SASL_HANDSHAKE] = lambda *_: SaslHandshakeResponse(
            error_code=33, mechanisms=[]
        )
        self.line = Line(self.broker, accepts_s)
        self.reports: list[Any] = []
        self.names: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.pool = ConnectionPool(
            node_id, "memory", 9092, settings(connector=self.line, **changes),
            owner=self, backoff=Backoff(0.5, 4.0, jitter=0.0), setup=Backoff(5.0, 5.0, jitter=0.0),
            rng=random.Random(1), is_first_contact=first,
        )  # fmt: skip

    def on_pool_failure(self) -> None:
        self.reports.append("failure")

    def on_broker_reachable(self, pool: ConnectionPool) -> None:
        self.reports.append(("success", pool))

    def on_connection_end(self) -> None:
        self.reports.append("close")

    def on_wrong_broker(self) -> None:
        self.reports.append("wrong broker")

    def on_refused_login(self, purpose: Purpose, error: KafkaError) -> None:
        self.reports.append((purpose, error))

    def spawn(self, function: Callable[..., Any], *args: Any, name: str) -> None:
        self.names.append(name)
        self.tasks.append(asyncio.create_task(function(*args), name=name))

    def lose(self, index: int = -1) -> None:
        self.line.transports[index]._end()

    async def end(self) -> None:
        self.pool.close()
        await asyncio.gather(*self.tasks)


async def turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def ask(connection: BrokerConnection) -> asyncio.Future[Any]:
    return connection.send(MetadataRequest(topics=[]), timeout_s=30)


# -- states ---------------------------------------------------------------------------------------


def test_new_pool_knows_nothing_bad_of_its_broker(settings: Settings) -> None:
    async def main() -> None:
        world = World(settings)
        pool = world.pool
        assert pool.reachable
        assert pool.last_error is None
        assert (pool.resolved, pool.confirmed, pool.refused, pool.busy) == (False,) * 4
        assert (pool.failed_at, pool.not_before, pool.in_flight) == (0.0, 0.0, 0)
        assert (pool.advice, pool.progress) == ("", "")
        assert repr(pool) == "<ConnectionPool 1 memory:9092, reachable>"
        await world.end()

    in_virtual_time(main)


def test_connection_that_is_ready_is_a_success_and_its_loss_a_failure(settings: Settings) -> None:
    async def main() -> None:
        world = World(settings, node_id=-1)
        pool = world.pool
        connection = await pool.get_connection(Purpose.CONTROL)
        assert pool.request_connection(Purpose.CONTROL).result() is connection
        assert world.reports == [("success", pool)]
        assert connection.broker.session_lifetime_ms == 0
        pool.set_broker_id(7)
        pool.mark_confirmed()
        assert (pool.node_id, connection.broker.node_id, pool.confirmed) == (7, 7, True)
        await ask(connection)
        assert pool.progress == ""
        world.broker.handlers[ApiKey.METADATA] = lambda *_: None
        waiting = ask(connection)
        assert pool.progress == "accepted the connection, but has not answered Metadata yet"
        assert pool.in_flight == 1
        await asyncio.sleep(3.0)
        world.lose()
        with pytest.raises(DisconnectedError):
            await waiting
        assert world.reports[1:] == ["failure", "close"]
        assert (pool.reachable, pool.refused, pool.failed_at) == (False, False, 3.0)
        assert pool.find_connection(Purpose.CONTROL) is None
        assert not pool.busy
        assert pool.not_before == 3.5
        pool.mark_reachable()
        assert (pool.reachable, pool.refused, pool.last_error) == (True, False, None)
        assert world.reports[3:] == [("success", pool)]
        assert world.names == ["connect to memory:9092 for control"]
        await world.end()

    in_virtual_time(main)


def test_backoff_begins_again_after_a_connection(settings: Settings) -> None:
    async def main() -> None:
        world = World(settings)
        world.line.error = ConnectionRefusedError(111, "refused")
        for backoff_s in (0.5, 1.0):
            with pytest.raises(DisconnectedError):
                await world.pool.get_connection(Purpose.CONTROL)
            assert world.pool.not_before == asyncio.get_running_loop().time() + backoff_s
        assert world.pool.refused
        world.line.error = None
        await world.pool.get_connection(Purpose.CONTROL)
        assert not world.pool.refused
        assert world.pool._not_connected == 0
        assert world.pool.not_before == 0.0
        world.lose()
        await turns()
        assert world.pool.not_before == asyncio.get_running_loop().time() + 0.5
        await world.end()

    in_virtual_time(main)


@pytest.mark.parametrize("node_id", [-1, 0, 1])
def test_loss_is_logged_once_for_a_broker_and_not_for_a_bootstrap_server(
    settings: Settings, caplog: pytest.LogCaptureFixture, node_id: int
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        world = World(settings, node_id=node_id, first=False)
        world.line.error = ConnectionRefusedError(111, "refused")
        for _ in range(2):
            with pytest.raises(DisconnectedError):
                await world.pool.get_connection(Purpose.CONTROL)
        assert len(caplog.records) == (1 if node_id >= 0 else 0)
        await world.end()

    in_virtual_time(main)


def test_server_that_closes_early_is_asked_in_an_older_version(settings: Settings) -> None:
    async def main() -> None:
        world = World(settings)
        world.broker.handlers[ApiKey.API_VERSIONS] = lambda *_: ConnectionError
        asked = []
        for _ in range(4):
            with pytest.raises(ClosedEarlyError):
                await world.pool.get_connection(Purpose.CONTROL)
            asked.append(world.broker.seen[-1].header.request_api_version)
        assert asked == [5, 3, 0, 5]
        assert not world.pool.is_unavailable(0.0) or world.pool.refused
        await world.end()

    in_virtual_time(main)


@pytest.mark.parametrize(("node_id", "told"), [(-1, None), (0, 0), (1, 1)])
def test_events_name_a_broker_and_no_bootstrap_server(
    settings: Settings, node_id: int, told: int | None
) -> None:
    async def main() -> None:
        hub = EventHub(SystemClock())
        reader = hub.open_reader()
        world = World(settings, node_id=node_id, first=False, events=hub)
        world.line.error = ConnectionRefusedError(111, "refused")
        with pytest.raises(DisconnectedError):
            await world.pool.get_connection(Purpose.CONTROL)
        world.line.error = None
        await world.pool.get_connection(Purpose.CONTROL)
        await world.end()
        events: list[Any] = [await anext(reader) for _ in range(3)]
        assert [type(event).__name__ for event in events] == [
            "Disconnected",
            "Connected",
            "Disconnected",
        ]
        assert [event.broker for event in events] == [told] * 3
        assert [getattr(event, "connected", None) for event in events] == [False, None, True]

    in_virtual_time(main)


# -- refusals -------------------------------------------------------------------------------------


class Refusing(Sasl):
    def __init__(self, error: KafkaError) -> None:
        super().__init__("PLAIN", None)
        self.error = error

    async def prepare_login(self, host: str, timeout_s: float) -> Login:
        raise self.error


def test_refused_login_is_reported_with_its_purpose_and_is_no_unavailability(
    settings: Settings,
) -> None:
    async def main() -> None:
        error = SaslAuthenticationError("refused")
        world = World(settings, sasl=Refusing(error))
        with pytest.raises(SaslAuthenticationError):
            await world.pool.get_connection(Purpose.FETCH, "owner")
        assert world.reports[0] == "failure"
        assert world.reports[1][0] is Purpose.FETCH
        assert isinstance(world.reports[1][1], SaslAuthenticationError)
        assert len(world.reports) == 2
        assert world.pool.refused
        assert not world.pool.is_unavailable(0.0)
        await world.end()

    in_virtual_time(main)


def test_wrong_broker_is_reported(settings: Settings) -> None:
    async def main() -> None:
        world = World(settings, sasl=Refusing(WrongBrokerError("wrong")))
        with pytest.raises(WrongBrokerError):
            await world.pool.get_connection(Purpose.CONTROL)
        assert world.reports == ["failure", "wrong broker"]
        await world.end()

    in_virtual_time(main)


def test_bug_of_an_attempt_reaches_its_callers(settings: Settings) -> None:
    async def main() -> None:
        world = World(settings)
        world.line.error = RuntimeError("bug")
        with pytest.raises(RuntimeError, match="bug"):
            await world.pool.get_connection(Purpose.CONTROL)
        assert not world.pool.busy
        world.pool.close()
        with pytest.raises(RuntimeError, match="bug"):
            await asyncio.gather(*world.tasks)

    in_virtual_time(main)


# -- responses that are too large -----------------------------------------------------------------


def test_first_response_of_each_api_that_is_too_large_is_logged(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    def too_large(api: str) -> ResponseTooLargeError:
        return ResponseTooLargeError(api=api, broker=1, size=2000, limit=1000)

    async def main() -> None:
        world = World(settings)
        for api in ("Fetch", "Metadata", "Metadata", "ListGroups", "Fetch"):
            (await world.pool.get_connection(Purpose.CONTROL)).close(too_large(api))
        texts = [record.getMessage() for record in caplog.records]
        assert [text.split(" to ")[1].split()[0] for text in texts] == ["Metadata", "ListGroups"]
        assert world.pool.reachable
        assert "failure" not in world.reports
        assert world.pool.not_before == 0.0
        await world.end()

    in_virtual_time(main)


# -- the end of connections -----------------------------------------------------------------------


def test_disconnecting_ends_connections_and_attempts_and_permits_new_ones(
    settings: Settings,
) -> None:
    async def main() -> None:
        world = World(settings)
        pool = world.pool
        world.broker.handlers[ApiKey.METADATA] = lambda *_: None
        connection = await pool.get_connection(Purpose.CONTROL)
        pool.mark_confirmed()
        waiting = ask(connection)
        world.line.accepts_s = 1.0
        connecting = pool.request_connection(Purpose.PRODUCE)
        await asyncio.sleep(0.5)
        pool.close_connections(DisconnectedError("The cluster has changed."))
        for each in (waiting, connecting):
            with pytest.raises(DisconnectedError, match="The cluster has changed"):
                await each
        assert connection.closed
        assert not pool.confirmed
        assert not pool.busy
        await asyncio.sleep(1.0)
        assert len(world.line.transports) == 1  # The attempt has ended, too.
        assert not (await pool.get_connection(Purpose.PRODUCE)).closed
        assert pool.find_connection(Purpose.PRODUCE) is not None
        await world.end()

    in_virtual_time(main)


@pytest.mark.parametrize("end", ["close_connections", "release_owner"])
def test_attempt_that_succeeds_at_the_moment_of_a_disconnection_is_closed(
    settings: Settings, end: str
) -> None:
    async def main() -> None:
        world = World(settings)
        owner = object()
        waiting = world.pool.request_connection(Purpose.FETCH, owner)
        slot = world.pool._slots[Purpose.FETCH, owner]
        if end == "release_owner":
            world.pool.release_owner(owner)
        else:
            world.pool.close_connections(DisconnectedError("The cluster has changed."))
        assert waiting.done()
        with pytest.raises(ClosedError if end == "release_owner" else DisconnectedError):
            await waiting
        connection = await World(settings).pool.get_connection(Purpose.CONTROL)
        assert isinstance(world.pool._install_connection(slot, connection), ClosedError)
        assert connection.closed
        await world.end()

    in_virtual_time(main)


def test_attempt_that_succeeds_in_a_retired_pool_is_closed(settings: Settings) -> None:
    async def main() -> None:
        world, other = World(settings), World(settings)
        await world.pool.get_connection(Purpose.CONTROL)
        slot = world.pool._slots[Purpose.CONTROL, None]
        world.pool.close_gracefully()
        connection = await other.pool.get_connection(Purpose.CONTROL)
        outcome = world.pool._install_connection(slot, connection)
        assert isinstance(outcome, DisconnectedError)
        assert "another address" in str(outcome)
        assert connection.closed
        assert "close" not in world.reports
        await world.end()
        await other.end()

    in_virtual_time(main)


def test_release_ends_the_connections_and_attempts_of_the_owner_only(settings: Settings) -> None:
    async def main() -> None:
        world = World(settings)
        pool, one, other = world.pool, object(), object()
        kept = await pool.get_connection(Purpose.FETCH, other)
        ended = await pool.get_connection(Purpose.FETCH, one)
        world.line.accepts_s = 1.0
        connecting = pool.request_connection(Purpose.JOIN, one)
        await asyncio.sleep(0.5)
        pool.release_owner(one)
        with pytest.raises(ClosedError):
            await connecting
        assert (kept.closed, ended.closed) == (False, True)
        assert list(pool._slots) == [(Purpose.FETCH, other)]
        assert world.reports.count("close") == 1
        await asyncio.sleep(1.0)
        assert len(world.line.transports) == 2
        await world.end()

    in_virtual_time(main)


@pytest.mark.parametrize("kind", ["connected", "connecting"])
def test_closed_pool_has_no_connection_and_makes_none(settings: Settings, kind: str) -> None:
    async def main() -> None:
        world = World(settings, accepts_s=0.0 if kind == "connected" else 1.0)
        pool = world.pool
        waiting = pool.request_connection(Purpose.CONTROL)
        await asyncio.sleep(0.5)
        pool.close()
        if kind == "connected":
            assert (await waiting).closed
        else:
            with pytest.raises(ClosedError):
                await waiting
        assert not pool.busy
        assert pool.open_connections() == []
        assert "close" not in world.reports
        later = pool.request_connection(Purpose.CONTROL)
        assert later.done()
        with pytest.raises(ClosedError):
            await later
        assert repr(pool) == "<ConnectionPool 1 memory:9092, closed>"
        await world.end()
        assert len(world.names) == 1

    in_virtual_time(main)


def test_retired_pool_closes_each_connection_after_its_requests(settings: Settings) -> None:
    async def main() -> None:
        world = World(settings)
        world.broker.handlers[ApiKey.METADATA] = lambda *_: None
        idle = await world.pool.get_connection(Purpose.CONTROL)
        busy = await world.pool.get_connection(Purpose.PRODUCE)
        waiting = ask(busy)
        world.line.accepts_s = 1.0
        connecting = world.pool.request_connection(Purpose.FETCH)
        await asyncio.sleep(0.5)
        world.pool.close_gracefully()
        with pytest.raises(DisconnectedError, match="another address"):
            await connecting
        assert (idle.closed, busy.closed) == (True, False)
        received = world.broker.seen[-1]
        response = world.broker.metadata(received.request, received.header.request_api_version)
        world.line.transports[1].feed(world.broker._bytes(received, response))
        await waiting
        assert busy.closed
        assert "close" not in world.reports
        await world.end()

    in_virtual_time(main)


# -- the advice about a missing login -------------------------------------------------------------


def without_answers(world: World, mechanisms: list[str]) -> None:
    """Let the broker close a connection at any request without a login."""
    world.broker.handlers[ApiKey.METADATA] = lambda *_: ConnectionError
    world.broker.versions[ApiKey.SASL_HANDSHAKE] = (0, 1)
    world.broker.handlers[ApiKey.SASL_HANDSHAKE] = lambda *_: SaslHandshakeResponse(
        error_code=33, mechanisms=mechanisms
    )


async def lost_request(world: World) -> KafkaError:
    connection = await world.pool.get_connection(Purpose.CONTROL)
    with pytest.raises(DisconnectedError) as caught:
        await ask(connection)
    return caught.value


@pytest.mark.parametrize(("node_id", "first"), [(-1, True), (0, False), (1, True)])
def test_broker_that_never_answers_is_asked_whether_it_requires_a_login(
    settings: Settings, node_id: int, first: bool
) -> None:
    async def main() -> None:
        world = World(settings, node_id=node_id, first=first)
        without_answers(world, ["PLAIN"])
        error = await lost_request(world)
        assert world.pool.advice == ""
        explained, is_known = await world.pool.explain_error(error)
        assert is_known
        assert "requires SASL with PLAIN" in str(explained)
        assert explained.broker == error.broker
        await turns()
        assert "requires SASL with PLAIN" in world.pool.advice
        assert "requires SASL with PLAIN" in str(world.pool.last_error)
        assert "ask memory:9092 for its mechanisms" in world.names
        # It is asked once, and each further loss gets the advice.
        again = await lost_request(world)
        await turns()
        assert str(world.pool.last_error).count("requires SASL with PLAIN") == 1
        assert "requires SASL" not in str(again)
        assert len([name for name in world.names if name.startswith("ask")]) == 1
        refused, is_known = await world.pool.explain_error(TopicAuthorizationError("no"))
        assert not is_known
        assert isinstance(refused, TopicAuthorizationError)
        await world.end()

    in_virtual_time(main)


def test_broker_without_mechanisms_gets_no_advice(settings: Settings) -> None:
    async def main() -> None:
        world = World(settings)
        without_answers(world, [])
        error = await lost_request(world)
        assert await world.pool.explain_error(error) == (error, False)
        await turns()
        assert world.pool.advice == ""
        assert "SASL" not in str(world.pool.last_error)
        await world.end()

    in_virtual_time(main)


@pytest.mark.parametrize("case", ["bootstrap server of a known cluster", "answered", "sasl"])
def test_broker_is_not_asked_for_mechanisms_when_the_login_is_not_in_doubt(
    settings: Settings, case: str
) -> None:
    async def main() -> None:
        known = case.startswith("bootstrap")
        world = World(settings, node_id=-1 if known else 1, first=not known)
        if case == "sasl":
            world.pool._advises = ConnectionPool(
                1, "memory", 9092, settings(sasl=Refusing(KafkaError("no"))),
                owner=world, backoff=Backoff(), setup=Backoff(), rng=random.Random(1),
            )._advises  # fmt: skip
        if case == "answered":
            other = await world.pool.get_connection(Purpose.PRODUCE)
            await ask(other)
        without_answers(world, ["PLAIN"])
        error = await lost_request(world)
        await turns()
        assert not [name for name in world.names if name.startswith("ask")]
        assert await world.pool.explain_error(error) == (error, False)
        if case == "answered":
            other.close()
            await lost_request(world)
            assert not [name for name in world.names if name.startswith("ask")]
        await world.end()

    in_virtual_time(main)


def test_advice_is_dropped_when_another_error_has_followed(settings: Settings) -> None:
    async def main() -> None:
        world = World(settings)
        without_answers(world, ["PLAIN"])
        await lost_request(world)
        world.pool.mark_reachable()
        await turns()
        assert world.pool.last_error is None
        assert world.pool.advice
        world.line.error = ConnectionRefusedError(111, "refused")
        with pytest.raises(DisconnectedError) as caught:
            await world.pool.get_connection(Purpose.CONTROL)
        world.pool._add_advice(world.pool.advice)
        assert world.pool.last_error is not None
        assert "SASL" not in str(world.pool.last_error)
        assert await world.pool.explain_error(caught.value) == (caught.value, False)
        await world.end()

    in_virtual_time(main)


def test_advice_follows_what_an_error_says_that_has_no_text_of_its_own(settings: Settings) -> None:
    async def main() -> None:
        world = World(settings)
        world.pool.last_error = error = DisconnectedError(broker=1)
        world.pool._add_advice("Log in.")
        assert world.pool.last_error.message == f"{error} Log in."
        await world.end()

    in_virtual_time(main)
