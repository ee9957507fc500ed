"""Tests of the times at which a pool connects, reports, and logs in again. All are virtual."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from scripted import MemoryTransport

from aiokclient import SaslPlain
from aiokclient.errors import ClosedError, DisconnectedError, KafkaError, TokenProviderError
from aiokclient.metrics import Metrics
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.diagnosis import NotConnectedError, TimedOutError
from aiokclient.network.login import Sasl
from aiokclient.network.pool import ConnectionPool, PoolOwner, Purpose
from aiokclient.network.sasl import Login
from aiokclient.network.setup import ConnectionSettings
from aiokclient.network.traffic import Traffic
from aiokclient.policy import Backoff
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages.metadata import MetadataRequest
from aiokclient.testing.simulation.loop import VirtualLoop

Settings = Callable[..., ConnectionSettings]
Connect = Callable[..., tuple[BrokerConnection, MemoryTransport]]
PLAIN = SaslPlain("alice", "secret")
HANDSHAKE = b"\0\0" + b"\0\0\0\0"
AUTHENTICATE = b"\0\0" + b"\xff\xff" + b"\0\0\0\0"


class Line:
    """A connector with addresses in memory. `connects` are its answers, one for each attempt."""

    def __init__(self, *connects: float | OSError) -> None:
        self.left = list(connects)
        self.began: list[float] = []

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        return [(host, port)]

    async def connect(self, address: Any, factory: Any, **_: Any) -> Any:
        self.began.append(asyncio.get_running_loop().time())
        answer = self.left.pop(0) if self.left else 1e6
        if isinstance(answer, OSError):
            raise answer
        await asyncio.sleep(answer)
        return MemoryTransport(factory())


class Tokens(Sasl):
    """A mechanism whose tokens arrive, or fail to arrive, after some seconds."""

    def __init__(self, *delays: float, error: KafkaError | None = None) -> None:
        super().__init__("PLAIN", PLAIN)
        self.delays, self.error = list(delays), error
        self.limits: list[float] = []

    async def prepare_login(self, host: str, timeout_s: float) -> Login:
        self.limits.append(timeout_s)
        await asyncio.sleep(self.delays.pop(0) if self.delays else 0.0)
        if self.error is not None:
            raise self.error
        return Login(PLAIN)


class Pool(PoolOwner):
    """A pool with what it reports, and with its tasks, which end with the pool."""

    def __init__(self, settings: ConnectionSettings, setup: Backoff, node_id: int = 1) -> None:
        self.reports: list[tuple[str, float]] = []
        self.names: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._now = asyncio.get_running_loop().time
        self.pool = ConnectionPool(
            node_id, "memory", 9092, settings, owner=self, backoff=Backoff(0.5, 4.0, jitter=0.0),
            setup=setup, rng=random.Random(1), is_first_contact=False,
        )  # fmt: skip

    def spawn(self, function: Callable[..., Any], *args: Any, name: str) -> None:
        self.names.append(name)
        self.tasks.append(asyncio.create_task(function(*args), name=name))

    def on_pool_failure(self) -> None:
        self.reports.append(("failure", self._now()))

    def on_broker_reachable(self, pool: ConnectionPool) -> None:
        self.reports.append(("success", self._now()))

    def on_slow_attempt(self) -> None:
        self.reports.append(("slow", self._now()))

    def on_connection_end(self) -> None:
        self.reports.append(("close", self._now()))

    def times(self, name: str) -> list[float]:
        return [at for each, at in self.reports if each == name]

    async def end(self) -> None:
        self.pool.close()
        await asyncio.gather(*self.tasks)


def setup(first_s: float, jitter: float = 0.0) -> Backoff:
    return Backoff(first_s, 1000.0, jitter=jitter)


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def written(transport: MemoryTransport) -> list[ApiKey]:
    """Return the APIs of the requests that were written."""
    data, apis = transport.sent, []
    while data:
        size = int.from_bytes(data[:4], "big")
        apis.append(ApiKey(int.from_bytes(data[4:6], "big")))
        data = data[4 + size :]
    return apis


def answer(transport: MemoryTransport, number: int, body: bytes) -> None:
    data = number.to_bytes(4, "big") + body
    transport.feed(len(data).to_bytes(4, "big") + data)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# -- connecting -----------------------------------------------------------------------------------


def test_slow_attempt_is_reported_again_and_again_until_it_ends(settings: Settings) -> None:
    async def main() -> None:
        made = Pool(settings(connector=Line()), setup(20.0))
        waiting = made.pool.request_connection(Purpose.CONTROL)
        await asyncio.sleep(5.0)
        assert made.pool.measure_attempt_s(Purpose.CONTROL) == 5.0
        assert made.pool.measure_attempt_s(Purpose.PRODUCE) == 0.0
        with pytest.raises(TimedOutError, match=r"within 20\.0 s"):
            await waiting
        await asyncio.sleep(30.0)
        assert made.pool.measure_attempt_s(Purpose.CONTROL) == 0.0
        assert made.times("slow") == [1.0, 3.0, 7.0, 11.0, 15.0, 19.0]
        assert made.times("failure") == [20.0]
        await made.end()

    in_virtual_time(main)


@pytest.mark.parametrize("end", ["close_gracefully", "close"])
def test_slow_attempt_is_not_reported_when_the_pool_has_ended(settings: Settings, end: str) -> None:
    async def main() -> None:
        made = Pool(settings(connector=Line()), setup(20.0))
        waiting = made.pool.request_connection(Purpose.CONTROL)
        await asyncio.sleep(2.0)
        getattr(made.pool, end)()
        with pytest.raises(ClosedError if end == "close" else DisconnectedError):
            await waiting
        await asyncio.sleep(10.0)
        assert made.times("slow") == [1.0]
        assert not made.pool.busy
        await made.end()

    in_virtual_time(main)


def test_setup_timeout_and_backoff_grow_with_the_failures_to_connect(settings: Settings) -> None:
    async def main() -> None:
        line = Line()
        made = Pool(settings(connector=line), setup(2.0))
        texts = []
        for _ in range(5):
            with pytest.raises(TimedOutError) as caught:
                await made.pool.get_connection(Purpose.CONTROL)
            texts.append(str(caught.value).partition("within ")[2][:4])
        assert texts == ["2.0 ", "4.0 ", "8.0 ", "16.0", "32.0"]
        # Each attempt begins after the backoff of 0.5, 1, 2, and 4 s.
        assert line.began == [0.0, 2.5, 7.5, 17.5, 37.5]
        assert made.names == ["connect to memory:9092 for control"] * 5
        await made.end()

    in_virtual_time(main)


def test_setup_timeout_begins_again_when_the_server_has_accepted_a_connection(
    settings: Settings,
) -> None:
    async def main() -> None:
        refused = ConnectionRefusedError(111, "refused")
        line = Line(refused, refused, 0.0, refused)
        made = Pool(settings(connector=line, request_s=3.0), setup(2.0))
        for kind in (NotConnectedError, NotConnectedError, DisconnectedError):
            with pytest.raises(kind):
                await made.pool.get_connection(Purpose.CONTROL)
        assert made.pool._not_connected == 0
        with pytest.raises(NotConnectedError):
            await made.pool.get_connection(Purpose.CONTROL)
        with pytest.raises(TimedOutError, match=r"within 4\.0 s"):
            await made.pool.get_connection(Purpose.CONTROL)
        await made.end()

    in_virtual_time(main)


def test_broker_is_unavailable_when_it_refuses_and_not_when_it_is_silent(
    settings: Settings,
) -> None:
    async def main() -> None:
        line = Line(ConnectionRefusedError(111, "refused"))
        made = Pool(settings(connector=line), setup(2.0))
        pool = made.pool
        assert not pool.is_unavailable(0.0)
        assert not pool.has_failed_since(0.0)
        await asyncio.sleep(10.0)
        with pytest.raises(NotConnectedError):
            await pool.get_connection(Purpose.CONTROL)
        assert pool.has_failed_since(10.0)
        assert not pool.has_failed_since(10.1)
        assert pool.is_unavailable(10.0)
        assert pool.is_unavailable(11.0)  # The backoff has not ended.
        await asyncio.sleep(0.5)
        assert pool.is_unavailable(10.0)
        assert not pool.is_unavailable(11.0)
        waiting = pool.request_connection(Purpose.CONTROL)
        await turns()
        assert not pool.is_unavailable(10.0)  # An attempt is in progress.
        with pytest.raises(TimedOutError):
            await waiting
        assert not pool.is_unavailable(0.0)
        assert pool.refused
        await made.end()

    in_virtual_time(main)


def test_server_that_is_silent_after_its_acceptance_is_named_as_the_progress(
    settings: Settings,
) -> None:
    async def main() -> None:
        made = Pool(settings(connector=Line(1.0), request_s=3.0), setup(2.0))
        assert made.pool.progress == ""
        waiting = made.pool.request_connection(Purpose.CONTROL)
        await asyncio.sleep(0.5)
        assert made.pool.progress == ""
        assert made.pool.busy
        await asyncio.sleep(1.0)
        assert made.pool.progress == (
            "accepted the connection, but has not answered ApiVersions yet"
        )
        assert made.pool.resolved
        with pytest.raises(DisconnectedError, match=r"did not answer ApiVersions within 3\.0 s"):
            await waiting
        assert made.pool.progress == ""
        assert not made.pool.is_unavailable(0.0)
        await made.end()

    in_virtual_time(main)


def test_token_that_does_not_arrive_is_no_refusal_of_the_broker(settings: Settings) -> None:
    async def main() -> None:
        sasl = Tokens(error=TokenProviderError("no token"))
        made = Pool(settings(connector=Line(), sasl=sasl), setup(2.0))
        with pytest.raises(TokenProviderError):
            await made.pool.get_connection(Purpose.CONTROL)
        assert not made.pool.refused
        assert not made.pool.has_failed_since(0.0)
        assert not made.pool.reachable
        await made.end()

    in_virtual_time(main)


# -- logging in again -----------------------------------------------------------------------------


def ready_to_log_in(connect: Connect, **options: Any) -> tuple[BrokerConnection, MemoryTransport]:
    connection, transport = connect(**options)
    connection.broker.api_versions = {
        ApiKey.SASL_AUTHENTICATE: (0, 0),
        ApiKey.SASL_HANDSHAKE: (0, 1),
        ApiKey.METADATA: (1, 1),
    }
    return connection, transport


def test_repeated_login_without_an_answer_ends_at_the_first_setup_timeout(
    connect: Connect, settings: Settings
) -> None:
    async def main() -> None:
        traffic = Traffic(Metrics(), "test")
        made = Pool(settings(), setup(5.0))
        connection, transport = ready_to_log_in(connect, traffic=traffic)
        renewal = asyncio.ensure_future(made.pool._log_in_again(connection, Tokens(), 100.0))
        await asyncio.sleep(4.9)
        assert written(transport) == [ApiKey.SASL_HANDSHAKE]
        assert not connection.closed
        assert not renewal.done()
        await renewal
        assert asyncio.get_running_loop().time() == 5.0
        assert connection.closed
        assert traffic.own_metrics.counter("reauthentications.failed").value == 1
        await made.end()

    in_virtual_time(main)


def test_repeated_login_is_counted_with_its_time_when_the_broker_accepts_it(
    connect: Connect, settings: Settings
) -> None:
    async def main() -> None:
        traffic = Traffic(Metrics(), "test")
        made = Pool(settings(), setup(5.0))
        connection, transport = ready_to_log_in(connect, traffic=traffic)
        connection.broker.session_lifetime_ms = 10_000
        renewal = asyncio.ensure_future(made.pool._log_in_again(connection, Tokens(1.0), 100.0))
        await asyncio.sleep(2.0)
        answer(transport, 0, HANDSHAKE)
        await asyncio.sleep(1.0)
        answer(transport, 1, AUTHENTICATE)
        await renewal
        assert not connection.closed
        assert not connection.is_suspended
        assert traffic.own_metrics.counter("reauthentications").value == 1
        assert traffic.own_metrics.counter("reauthentications.failed").value == 0
        connection.close()
        await made.end()

    in_virtual_time(main)


def test_token_of_a_repeated_login_has_the_time_until_the_session_ends(
    connect: Connect, settings: Settings
) -> None:
    async def main() -> None:
        made = Pool(settings(), setup(5.0))
        connection, _ = ready_to_log_in(connect)
        sasl = Tokens(2.0, 1.0, error=TokenProviderError("no token"))
        await made.pool._log_in_again(connection, sasl, 3.0)
        assert sasl.limits == [3.0, 1.0]
        assert not connection.closed
        # A session that has already ended leaves the time of an attempt.
        late = Tokens(error=TokenProviderError("no token"))
        await made.pool._log_in_again(connection, late, 3.0)
        assert late.limits == [5.0]
        # Requests that wait for the login end with its error.
        connection.hold_requests()
        held = connection.send(MetadataRequest(topics=[]), timeout_s=60.0)
        await made.pool._log_in_again(connection, late, 3.0)
        assert connection.closed
        with pytest.raises(KafkaError, match="no token"):
            await held
        await made.end()

    in_virtual_time(main)


def test_next_login_follows_after_most_of_the_session(connect: Connect, settings: Settings) -> None:
    async def main() -> None:
        sasl = Tokens()
        made = Pool(settings(sasl=sasl), setup(5.0))
        connection, transport = ready_to_log_in(connect)
        connection.broker.session_lifetime_ms = 100_000
        made.pool._plan_next_login(connection, again=False)
        await asyncio.sleep(84.9)
        assert written(transport) == []
        await asyncio.sleep(10.1)
        assert written(transport) == [ApiKey.SASL_HANDSHAKE]
        assert 5.0 <= sasl.limits[0] <= 15.0
        assert made.names == ["log in again to memory:9092"]
        connection.close()
        await made.end()

    in_virtual_time(main)


def test_session_of_a_second_or_more_is_not_renewed_within_a_second(
    connect: Connect, settings: Settings
) -> None:
    async def main() -> None:
        made = Pool(settings(sasl=Tokens()), setup(5.0))
        connection, transport = ready_to_log_in(connect)
        connection.broker.session_lifetime_ms = 1000
        made.pool._plan_next_login(connection, again=False)
        await asyncio.sleep(0.99)
        assert not connection.is_suspended
        assert written(transport) == []
        await asyncio.sleep(0.02)
        assert written(transport) == [ApiKey.SASL_HANDSHAKE]
        connection.close()
        assert made.pool.not_before == 0.0
        await made.end()

    in_virtual_time(main)


def test_requests_wait_for_the_next_login_when_a_session_is_shorter_than_a_second(
    connect: Connect, settings: Settings
) -> None:
    async def main() -> None:
        made = Pool(settings(sasl=Tokens()), setup(5.0))
        await asyncio.sleep(100.0)
        connection, transport = ready_to_log_in(connect)
        connection.broker.session_lifetime_ms = 500
        made.pool._plan_next_login(connection, again=False)
        await asyncio.sleep(0.42)
        assert not connection.is_suspended
        await asyncio.sleep(0.07)
        assert connection.is_suspended
        await asyncio.sleep(0.50)
        assert written(transport) == []
        await asyncio.sleep(0.02)
        assert written(transport) == [ApiKey.SASL_HANDSHAKE]
        connection.close()
        await made.end()

    in_virtual_time(main)


@pytest.mark.parametrize(("lifetime_ms", "again_at"), [(1, 101.0), (500, 101.0), (1500, 0.0)])
def test_login_does_not_follow_another_within_a_second_when_a_short_session_is_lost(
    connect: Connect, settings: Settings, lifetime_ms: int, again_at: float
) -> None:
    async def main() -> None:
        made = Pool(settings(sasl=Tokens()), setup(5.0))
        await asyncio.sleep(100.0)
        connection, transport = ready_to_log_in(connect)
        connection.broker.session_lifetime_ms = lifetime_ms
        made.pool._plan_next_login(connection, again=False)
        connection.close()
        assert made.pool.not_before == again_at
        await asyncio.sleep(5.0)
        assert written(transport) == []
        assert made.names == []
        await made.end()

    in_virtual_time(main)
