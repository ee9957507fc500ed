"""The producer with threads, several event loops, anyio, and uvloop."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from loops import eager

from aiokclient import Admin, AnyBroker, Client, Producer, RecordMetadata
from aiokclient.errors import (
    BufferExhaustedError,
    ClosedError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    TopicAuthorizationError,
    WrongLoopError,
    WrongThreadError,
)
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster

Make = Callable[..., Producer[Any, Any]]


def elsewhere(call: Callable[[], Any]) -> Any:
    """Call a function in a new event loop, and return its result, which is awaited if possible."""

    async def main() -> Any:
        result = call()
        return await result if hasattr(result, "__await__") else result

    return asyncio.run(main())


class TestFromElsewhere:
    @pytest.mark.parametrize(
        "call",
        [
            lambda p, t: p.send(t, b"v"),
            lambda p, t: p.send_many(t, [b"v"]),
            lambda p, t: p.send_and_wait(t, b"v"),
            lambda p, t: p.send_all(t, [b"v"]),
            lambda p, t: p.gather([]),
            lambda p, t: p.flush(),
            lambda p, t: p.drain(),
            lambda p, t: p.prepare(t),
            lambda p, t: p.close(),
            lambda p, t: p.start(),
        ],
    )
    async def test_calls_from_another_thread_are_refused(
        self, make: Make, topic: str, call: Any
    ) -> None:
        async with make() as producer:
            with pytest.raises(WrongThreadError, match="send_threadsafe"):
                await asyncio.to_thread(elsewhere, lambda: call(producer, topic))
            assert (await producer.send(topic, b"v")).offset == 0

    async def test_calls_from_another_thread_without_a_loop_are_refused(
        self, make: Make, topic: str
    ) -> None:
        async with make() as producer:
            for send in (producer.send, lambda t, v: producer.send_many(t, [v])):
                with pytest.raises(WrongThreadError, match="send_threadsafe"):
                    await asyncio.to_thread(send, topic, b"v")

    def test_calls_from_another_loop_are_refused(self, make: Make, topic: str) -> None:
        producer = make()
        with asyncio.Runner() as home, asyncio.Runner() as other:
            home.run(producer.start())
            delivery: Any = None

            async def send() -> Any:
                return producer.send(topic, b"v")

            with pytest.raises(WrongLoopError, match="loop"):
                producer.send(topic, b"v")  # No event loop is running.
            with pytest.raises(WrongLoopError, match="loop"):
                other.run(send())
            with pytest.raises(WrongLoopError):
                other.run(producer.close())
            delivery = home.run(send())

            async def wait() -> Any:
                return await delivery

            if not delivery.done():
                with pytest.raises(WrongLoopError):
                    other.run(wait())
            assert home.run(wait()).offset == 0
            home.run(producer.close())

    async def test_calls_of_a_client_and_its_handles_from_elsewhere_are_refused(
        self, cluster: EmbeddedCluster
    ) -> None:
        request = messages.DescribeClusterRequest()
        async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
            for call in (
                lambda: client.send(request, to=AnyBroker()),
                lambda: client.request(request, to=AnyBroker()),
                lambda: client.close(),
            ):
                with pytest.raises(WrongThreadError):
                    await asyncio.to_thread(elsewhere, call)
            cluster.pause(1)
            handle = client.send(request, to=AnyBroker())
            with pytest.raises((WrongThreadError, WrongLoopError)):
                await asyncio.to_thread(elsewhere, lambda: handle)
            cluster.resume(1)
            await handle

    async def test_calls_of_an_admin_from_elsewhere_are_refused(
        self, cluster: EmbeddedCluster
    ) -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            with pytest.raises(WrongThreadError, match="run_coroutine_threadsafe"):
                await asyncio.to_thread(elsewhere, admin.list_topics)


class TestSendThreadsafe:
    async def test_send_threadsafe_works_from_many_threads(
        self, make: Make, topic: str, values: Any
    ) -> None:
        async with make() as producer:

            def work(number: int) -> list[int]:
                futures = [
                    producer.send_threadsafe(topic, b"%d-%d" % (number, i)) for i in range(50)
                ]
                assert isinstance(futures[0], concurrent.futures.Future)
                results = [future.result(30) for future in futures]
                assert isinstance(results[0], RecordMetadata)
                return [metadata.offset for metadata in results]

            found = await asyncio.gather(*(asyncio.to_thread(work, i) for i in range(4)))
        assert all(offsets == sorted(offsets) for offsets in found)
        assert len(set(values(topic))) == 200

    async def test_send_threadsafe_takes_all_arguments(
        self, make: Make, wide: str, cluster: EmbeddedCluster
    ) -> None:
        async with make() as producer:
            future = producer.send_threadsafe(
                wide, b"v", key=b"k", partition=2, timestamp=5, headers=[("h", b"w")]
            )
            assert await asyncio.wrap_future(future) == (wide, 2, 0, 5)
        (record,) = cluster.records(wide)
        assert (record.key, record.value, list(record.headers)) == (b"k", b"v", [("h", b"w")])

    async def test_send_threadsafe_returns_failures(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make() as producer:
            bad = producer.send_threadsafe("bad topic", b"v")
            with pytest.raises(InvalidTopicError):
                await asyncio.wrap_future(bad)
            cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError, times=1)
            failed = producer.send_threadsafe(topic, b"v")
            with pytest.raises(TopicAuthorizationError):
                await asyncio.to_thread(failed.result, 30)

    async def test_send_threadsafe_fails_when_the_overflow_queue_is_full(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make(buffer_memory=10_000, close_timeout_ms=0) as producer:
            await producer.send(topic, b"v")
            cluster.pause(1)
            futures = [producer.send_threadsafe(topic, bytes(900)) for _ in range(40)]
            refused = [f for f in futures if isinstance(await outcome_now(f), BufferExhaustedError)]
            assert refused
            cluster.resume(1)
            taken = [f for f in futures if f not in refused]
            await asyncio.gather(*map(asyncio.wrap_future, taken))

    async def test_send_threadsafe_fails_after_close(self, make: Make, topic: str) -> None:
        producer = make()
        with pytest.raises(IllegalStateError):
            producer.send_threadsafe(topic, b"v").result(0)
        await producer.start()
        await producer.close()
        with pytest.raises(ClosedError):
            producer.send_threadsafe(topic, b"v").result(0)

    def test_send_threadsafe_fails_when_the_loop_is_closed(self, make: Make, topic: str) -> None:
        producer = make()
        with asyncio.Runner() as runner:
            runner.run(producer.start())
            runner.run(producer.close())
        with pytest.raises(ClosedError):
            producer.send_threadsafe(topic, b"v").result(0)


async def outcome_now(future: Any) -> BaseException | None:
    """Return the error of a future if it has failed by now, and None otherwise."""
    for _ in range(3):
        await asyncio.sleep(0)
    return future.exception(0) if future.done() else None


async def send_in_no_time(producer: Producer, topic: str) -> None:
    """Send until a limit of zero ends it. A response may arrive before the limit is noticed."""
    with anyio.fail_after(0):
        while True:
            await producer.send(topic, b"6")


async def whole_life(servers: str, topic: str) -> None:
    """Use all producer calls of a typical program, under any runner."""
    async with Producer(bootstrap_servers=servers) as producer:
        assert (await producer.send(topic, b"1")).offset == 0
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(producer.send_and_wait, topic, b"2")
        with anyio.move_on_after(30) as scope:
            await producer.gather(producer.send_many(topic, [b"3"] * 1000))
            await producer.send_all(topic, [b"4"] * 1000)
            await producer.drain()
            await producer.flush()
        assert not scope.cancelled_caught
        with anyio.CancelScope() as scope:
            scope.cancel()
            await producer.send(topic, b"5")
        assert scope.cancelled_caught
        with anyio.CancelScope() as scope:
            scope.cancel()
            await producer.flush()
        await producer.flush()
        with pytest.raises(TimeoutError):
            await send_in_no_time(producer, topic)
        with anyio.CancelScope(shield=True):
            assert (await producer.send(topic, b"7")).topic == topic


class TestRunners:
    def test_all_calls_work_under_asyncio(
        self, cluster: EmbeddedCluster, topic: str, values: Any
    ) -> None:
        asyncio.run(whole_life(cluster.bootstrap_servers, topic))
        assert len([value for value in values(topic) if value != b"6"]) == 1 + 10 + 2000 + 2

    def test_all_calls_work_under_anyio(
        self, cluster: EmbeddedCluster, topic: str, values: Any
    ) -> None:
        anyio.run(whole_life, cluster.bootstrap_servers, topic)
        assert len([value for value in values(topic) if value != b"6"]) == 1 + 10 + 2000 + 2

    def test_all_calls_work_under_uvloop(
        self, cluster: EmbeddedCluster, topic: str, values: Any
    ) -> None:
        uvloop = pytest.importorskip("uvloop")
        options = {"loop_factory": uvloop.new_event_loop}
        anyio.run(
            whole_life, cluster.bootstrap_servers, topic, backend="asyncio", backend_options=options
        )
        assert len([value for value in values(topic) if value != b"6"]) == 1 + 10 + 2000 + 2

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def test_records_for_unknown_topics_fail_when_no_time_is_left(
        self, make: Make, loop: str
    ) -> None:
        """`send` works even if a timer's delay is shorter than the resolution of uvloop."""

        async def main() -> None:
            async with make(max_block_ms=0) as producer:
                deliveries = [producer.send(f"unknown-{i}", b"v") for i in range(3)]
                for delivery in deliveries:
                    with pytest.raises(KafkaError):
                        await delivery

        factory = None if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    def test_all_calls_work_with_eager_tasks(self, cluster: EmbeddedCluster, topic: str) -> None:
        if not hasattr(asyncio, "eager_task_factory"):
            pytest.skip("needs Python 3.12 or later")

        async def main() -> None:
            eager(asyncio.get_running_loop())
            await whole_life(cluster.bootstrap_servers, topic)

        asyncio.run(main())

    def test_all_calls_work_in_debug_mode(self, cluster: EmbeddedCluster, topic: str) -> None:
        asyncio.run(whole_life(cluster.bootstrap_servers, topic), debug=True)

    def test_each_thread_may_have_a_producer_of_its_own(
        self, cluster: EmbeddedCluster, wide: str, topic: str
    ) -> None:
        failed: list[BaseException] = []

        def run(work: Coroutine[Any, Any, None]) -> None:
            try:
                asyncio.run(work)
            except BaseException as error:
                failed.append(error)

        threads = [
            threading.Thread(target=run, args=[self.send_some(cluster.bootstrap_servers, name)])
            for name in (wide, topic, wide)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed

    async def send_some(self, servers: str, topic: str) -> None:
        async with Producer(bootstrap_servers=servers) as producer:
            await producer.gather(producer.send_many(topic, [b"v"] * 100))
