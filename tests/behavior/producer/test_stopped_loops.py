"""Sends from other threads to an event loop that stops."""

import asyncio
import concurrent.futures
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from aiokclient import Producer
from aiokclient.errors import ClosedError
from aiokclient.producer import threadsafe
from aiokclient.testing import EmbeddedCluster

Make = Callable[..., Producer[Any, Any]]
LOOPS: list[Any] = [asyncio.new_event_loop]
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS.append(uvloop.new_event_loop)


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"][: len(LOOPS)])
def factory(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PERIOD_S", "UNSENT_S", "UNKNOWN_S"):
        monkeypatch.setattr(threadsafe, name, 0.02)


def test_send_threadsafe_fails_when_the_loop_is_closed_before_it_takes_the_record(
    make: Make, topic: str, values: Any, factory: Any
) -> None:
    producer = make()
    loop = factory()
    loop.run_until_complete(producer.start())
    futures = [producer.send_threadsafe(topic, b"v") for _ in range(3)]
    with warnings.catch_warnings():
        # uvloop warns of open connections. If the warning is raised as an error, `close` never
        # returns.
        warnings.simplefilter("ignore", ResourceWarning)
        loop.close()
    for future in futures:
        with pytest.raises(ClosedError, match="not sent"):
            future.result(30)
    assert values(topic) == []
    held = [producer, *futures]
    del producer, futures, future
    with pytest.warns(ResourceWarning, match="was dropped without close"):
        held.clear()


def test_send_threadsafe_fails_when_the_loop_stops_and_the_record_is_never_sent(
    make: Make, topic: str, values: Any, factory: Any
) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        producer = make()
        runner.run(producer.start())
        refused, cancelled = (producer.send_threadsafe(topic, b"refused") for _ in range(2))
        cancelled.cancel()
        done, _ = concurrent.futures.wait([refused, cancelled], 30)
        assert done == {refused, cancelled}
        with pytest.raises(ClosedError, match="has stopped"):
            refused.result()

        async def more() -> None:
            future = producer.send_threadsafe(topic, b"taken")
            assert (await asyncio.wrap_future(future)).offset == 0
            await producer.close()

        runner.run(more())
    assert values(topic) == [b"taken"]


def test_send_threadsafe_fails_when_the_loop_stops_before_the_outcome(
    make: Make, topic: str, cluster: EmbeddedCluster, factory: Any
) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        producer = make(close_timeout_ms=0)

        async def begin() -> concurrent.futures.Future[Any]:
            await producer.start()
            await producer.prepare(topic)
            cluster.pause(1)
            future = producer.send_threadsafe(topic, b"v")
            await asyncio.sleep(0)
            assert future.running()
            return future

        future = runner.run(begin())
        with pytest.raises(ClosedError, match="unknown"):
            future.result(30)
        runner.run(producer.close(0))


def test_the_watching_thread_ends_with_the_last_future(make: Make, topic: str) -> None:
    def watching() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if "threadsafe" in thread.name]

    async def main() -> None:
        async with make() as producer:
            for _ in range(2):
                futures = [producer.send_threadsafe(topic, b"v") for _ in range(20)]
                (thread,) = watching()
                await asyncio.gather(*map(asyncio.wrap_future, futures))
                await asyncio.to_thread(thread.join, 30)
                assert not watching()

    asyncio.run(main())
