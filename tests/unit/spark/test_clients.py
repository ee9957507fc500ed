"""The pooled clients of a worker process, and its loop."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from aiokclient import AnyBroker, Client, State
from aiokclient.errors import ApiTimeoutError, BootstrapError, ClosedError
from aiokclient.events import Disconnected
from aiokclient.protocol import messages
from aiokclient.spark import clients
from aiokclient.spark.clients import run, stream, submit
from aiokclient.spark.option_reader import Properties
from aiokclient.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        yield cluster


@pytest.fixture
def properties(cluster: EmbeddedCluster) -> Properties:
    return (("bootstrap.servers", cluster.bootstrap_servers), ("enable.metrics.push", "false"))


async def itself(client: Client) -> Client:
    return client


async def broker_count(client: Client) -> int:
    return len((await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())).brokers)


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


def test_run_returns_the_result_and_keeps_the_client(properties: Properties) -> None:
    assert run(properties, broker_count) == 1
    first = run(properties, itself)
    assert run(properties, itself) is first
    other = (*properties, ("client.id", "other"))
    assert run(other, itself) is not first


def test_threads_share_a_client(properties: Properties) -> None:
    mine = (*properties, ("client.id", "threads"))
    found = set[Client]()
    threads = [threading.Thread(target=lambda: found.add(run(mine, itself))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1


def test_client_is_closed_when_it_is_idle_and_not_before(
    cluster: EmbeddedCluster, properties: Properties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "IDLE_S", 0.0)
    mine = (*properties, ("client.id", "idle"))
    entered, leave = threading.Event(), asyncio.Event()

    async def stay(client: Client) -> Client:
        entered.set()
        await leave.wait()
        return client

    staying = submit(mine, stay)
    assert entered.wait(30)
    client = run(mine, itself)
    assert client.state is State.RUNNING
    clients._current().loop.call_soon_threadsafe(leave.set)
    assert staying.result(30) is client
    cluster.wait_for(lambda: client.state is State.CLOSED, 30)
    assert run(mine, itself) is not client


def test_idle_client_is_closed_without_a_warning_when_the_cluster_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with EmbeddedCluster(brokers=1) as going:
        servers = ("bootstrap.servers", going.bootstrap_servers)
        client = run((servers,), itself)
        assert client.state is State.RUNNING
        caplog.set_level(logging.WARNING, "aiokclient")
        going.stop(1)
        going.wait_for(lambda: client.state is State.CLOSED, 30)
    assert caplog.records == []


def test_client_in_use_stays_when_it_loses_a_connection() -> None:
    with EmbeddedCluster(brokers=1) as going:
        properties = (("bootstrap.servers", going.bootstrap_servers),)

        async def stay(client: Client) -> Client:
            events = client.events()
            going.stop(1)
            async for event in events:
                if isinstance(event, Disconnected):
                    break
            going.start(1)
            await broker_count(client)
            return client

        # The client was idle before each call.
        client = run(properties, itself)
        assert run(properties, stay) is client
        assert run(properties, itself) is client


def test_check_of_the_brokers_has_a_limit_of_its_own(properties: Properties) -> None:
    clients.connect(properties, 5.0)
    # Without the limit, the call would take longer than the timeout of the test.
    nowhere = (("bootstrap.servers", "127.0.0.1:1"), ("default.api.timeout.ms", "900000"))
    with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1"):
        clients.connect(nowhere, 0.1)
    nowhere = (("bootstrap.servers", "127.0.0.1:1"), ("default.api.timeout.ms", "100"))
    with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1"):
        clients.connect(nowhere, 900.0)


def test_timeout_says_what_the_last_error_was(properties: Properties) -> None:
    async def fail(client: Client) -> None:
        raise ApiTimeoutError("Too late.") from ClosedError("Gone.")

    with pytest.raises(
        ApiTimeoutError, match=r"Too late\. The last error was ClosedError: "
    ) as late:
        run(properties, fail)
    assert not hasattr(late.value, "__notes__")


def test_errors_name_options_as_a_program_gives_them_to_spark(properties: Properties) -> None:
    async def fail(client: Client) -> None:
        raise ClosedError("Raise max_request_size.") from ValueError("linger_ms")

    with pytest.raises(ClosedError, match=r"Raise kafka\.max\.request\.size") as caught:
        run(properties, fail)
    assert caught.value.__notes__ == ["The cause is ValueError: kafka.linger.ms"]


def test_stream_yields_in_order_and_reads_ahead_by_a_bounded_number(
    properties: Properties,
) -> None:
    made = []

    async def counting(client: Client) -> AsyncIterator[int]:
        async for number in numbers(100):
            made.append(number)
            yield number

    items = stream(properties, counting)
    for expected in range(100):
        assert next(items) == expected
        # One more waits for room, and the reader has one.
        assert len(made) <= expected + 1 + clients.AHEAD + 2
    assert list(items) == []


def test_closing_a_stream_ends_its_function(properties: Properties) -> None:
    ended = threading.Event()

    async def endless(client: Client) -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    items = stream(properties, endless)
    assert next(items) == 1
    items.close()  # type: ignore[attr-defined]
    assert ended.wait(30)


def test_errors_have_no_chain(properties: Properties) -> None:
    async def fail(client: Client) -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ClosedError("outer") from error

    async def fail_later(client: Client) -> AsyncIterator[int]:
        yield 1
        await fail(client)

    with pytest.raises(ClosedError) as caught:
        run(properties, fail)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert caught.value.__notes__ == ["The cause is KeyError: 'inner'"]
    with pytest.raises(ClosedError):
        list(stream(properties, fail_later))


def test_unreachable_broker_is_an_error_and_the_next_call_tries_again() -> None:
    nowhere = (("bootstrap.servers", "127.0.0.1:1"), ("default.api.timeout.ms", "200"))
    for _ in range(2):
        with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1"):
            run(nowhere, itself)


def test_timeout_cancels_the_function(properties: Properties) -> None:
    cancelled = threading.Event()

    async def forever(client: Client) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError):
        run(properties, forever, timeout=0.05)
    assert cancelled.wait(30)


FORK = """
import os, sys
from aiokclient.spark.clients import run
properties = (("bootstrap.servers", sys.argv[1]), ("enable.metrics.push", "false"))
async def itself(client):
    return client
mine = run(properties, itself)
child = os.fork()
if child == 0:
    assert run(properties, itself) is not mine
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
# The loop of this process is as it was.
assert run(properties, itself) is mine
assert run((*properties, ("client.id", "new")), itself) is not mine
print("ends")
"""


def test_fork_has_clients_of_its_own_and_exit_does_not_hang(cluster: EmbeddedCluster) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK]
    done = subprocess.run(
        [*command, cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
