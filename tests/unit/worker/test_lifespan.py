"""The lifespan of web services: what it starts, drains, and closes, and in which order."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokclient import Admin, Client, Consumer, Producer, State
from aiokclient.errors import BootstrapError, IllegalStateError
from aiokclient.testing import EmbeddedCluster
from aiokclient.worker import Retry, Worker, lifespan


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 2, "mail": 2}) as cluster:
        yield cluster


@pytest.fixture
async def sigterms() -> AsyncIterator[asyncio.Event]:
    """An event that is set when the process gets a SIGTERM."""
    received, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, received.set)
    yield received
    loop.remove_signal_handler(signal.SIGTERM)


def make_consumer(client: Client, *topics: str, group: str = "billing") -> Consumer[Any, Any]:
    return Consumer(*topics, client=client, group_id=group, auto_offset_reset="earliest")


async def test_workers_run_on_one_client_until_the_end(cluster: EmbeddedCluster) -> None:
    client = Client(bootstrap_servers=cluster.bootstrap_servers)
    seen: dict[str, asyncio.Future[Any]] = {
        topic: asyncio.get_running_loop().create_future() for topic in ("orders", "mail")
    }

    async def handle(record: Any) -> None:
        seen[record.topic].set_result(record.value)

    workers = [
        Worker(make_consumer(client, topic, group=f"both-{topic}"), handle) for topic in seen
    ]
    producer = Producer(client=client)
    async with lifespan(*workers, producer)(None):
        for topic in seen:
            await producer.send(topic, topic.encode())
        assert await asyncio.gather(*seen.values()) == [b"orders", b"mail"]
    assert [x.state for x in (client, producer)] == [State.CLOSED] * 2
    assert [worker._consumer.state for worker in workers] == [State.CLOSED] * 2
    # Both workers have committed what they did.
    assert any(each.offset for each in cluster.committed("both-orders").values())
    assert any(each.offset for each in cluster.committed("both-mail").values())


async def test_a_worker_finishes_what_it_has_begun_and_clients_close_after_it(
    cluster: EmbeddedCluster,
) -> None:
    client = Client(bootstrap_servers=cluster.bootstrap_servers)
    begun, states = asyncio.Event(), []

    async def handle(record: Any) -> None:
        begun.set()
        await stopping.wait()
        await asyncio.sleep(0)  # Meanwhile the end of the service begins.
        states.append((consumer.state, producer.state, client.state))

    stopping = asyncio.Event()
    consumer, producer = make_consumer(client, "orders", group="slow"), Producer(client=client)
    async with lifespan(producer, Worker(consumer, handle))(None):
        await producer.send("orders", b"slow")
        await begun.wait()
        stopping.set()
    assert set(states) == {(State.RUNNING, State.RUNNING, State.RUNNING)}
    assert client.state is State.CLOSED


async def test_a_client_that_was_started_before_is_not_closed(cluster: EmbeddedCluster) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        admin = Admin(client=client)
        async with lifespan(admin, client)(None):
            assert admin.state is State.RUNNING
        assert admin.state is State.CLOSED
        assert client.state is State.RUNNING


async def test_the_process_gets_sigterm_and_the_end_raises_when_a_worker_fails(
    cluster: EmbeddedCluster, sigterms: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(bootstrap_servers=cluster.bootstrap_servers)

    async def handle(record: Any) -> None:
        raise ArithmeticError("no such order")

    worker = Worker(make_consumer(client, "orders", group="failing"), handle, retry=Retry(1))
    cluster.produce("orders", [b"bad"])

    async def serve() -> None:
        async with lifespan(worker)(None):
            await sigterms.wait()

    caplog.set_level(logging.ERROR, "aiokclient.worker")
    with pytest.raises(ArithmeticError, match="no such order"):
        await serve()
    (logged,) = [line for line in caplog.records if getattr(line, "event", "") == "worker_failed"]
    assert "The worker failing has failed." in logged.getMessage()
    assert logged.exc_info is not None
    assert client.state is State.CLOSED


async def test_the_process_gets_sigterm_when_the_task_of_a_worker_is_cancelled_from_outside(
    cluster: EmbeddedCluster, sigterms: asyncio.Event
) -> None:
    client = Client(bootstrap_servers=cluster.bootstrap_servers)

    async def handle(record: Any) -> None: ...

    async def serve() -> None:
        async with lifespan(Worker(make_consumer(client, "orders", group="lost"), handle))(None):
            (run,) = [each for each in asyncio.all_tasks() if each.get_name() == "worker lost"]
            run.cancel()
            await sigterms.wait()

    with pytest.raises(IllegalStateError, match="worker lost was cancelled from outside"):
        await serve()
    assert client.state is State.CLOSED


async def test_a_failed_start_closes_what_was_started(cluster: EmbeddedCluster) -> None:
    good = Producer(bootstrap_servers=cluster.bootstrap_servers)
    absent = Consumer("orders", bootstrap_servers="localhost:1", default_api_timeout_ms=100)
    steps = []

    @asynccontextmanager
    async def resource() -> AsyncIterator[None]:
        steps.append("open")
        try:
            yield
        finally:
            steps.append(f"closed after {good.state.name}")

    with pytest.raises(BootstrapError):
        async with lifespan(good, absent, resource())(None):
            raise AssertionError("The lifespan has begun.")
    assert steps == ["open", "closed after CLOSED"]


async def test_a_cancelled_service_cancels_its_handlers(cluster: EmbeddedCluster) -> None:
    client = Client(bootstrap_servers=cluster.bootstrap_servers)
    begun, ended = asyncio.Event(), []

    async def handle(record: Any) -> None:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)

    async def serve() -> None:
        async with lifespan(worker)(None):
            await asyncio.get_running_loop().create_future()

    worker = Worker(make_consumer(client, "orders", group="cancelled"), handle)
    cluster.produce("orders", [b"long"])
    service = asyncio.create_task(serve())
    await begun.wait()
    service.cancel()
    with pytest.raises(asyncio.CancelledError):
        await service
    assert ended
    assert client.state is State.CLOSED


def test_lifespans_of_starlette_can_be_nested_with_a_state(cluster: EmbeddedCluster) -> None:
    pytest.importorskip(
        "starlette", reason="only the newest Python has the dependencies of the examples"
    )
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Mount, Route
    from starlette.testclient import TestClient

    from aiokclient.worker import asgi

    client = Client(bootstrap_servers=cluster.bootstrap_servers)
    producer = Producer(client=client)
    worker = Worker(make_consumer(client, "orders", group="nested"), lambda record: None)

    @asynccontextmanager
    async def with_state(app: Any) -> AsyncIterator[dict[str, Any]]:
        async with lifespan(worker, producer)(app):
            yield {"producer": producer}

    async def order(request: Request) -> JSONResponse:
        metadata = await request.state.producer.send("orders", b"tea", partition=1)
        return JSONResponse({"partition": metadata.partition})

    app = Starlette(
        routes=[Route("/order", order), Mount("/worker", asgi(worker))], lifespan=with_state
    )
    with TestClient(app) as web:
        assert web.get("/order").json() == {"partition": 1}
        assert web.get("/worker/live").json()["live"] is True
        assert web.get("/worker/nothing").status_code == 404
        assert "# TYPE aiokclient_client_connections gauge" in web.get("/worker/metrics").text
    assert client.state is State.CLOSED


def test_lifespan_refuses_what_cannot_be_started() -> None:
    with pytest.raises(TypeError, match="cannot be started with workers"):
        lifespan("billing")
