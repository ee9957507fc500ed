"""`stop()`, `close()`, cancellation, and yielding to the event loop."""

import asyncio
import itertools
import os
import signal
import threading
from importlib.util import find_spec
from typing import Any

import anyio
import pytest
from world import World, simulate

from aiokclient import Consumer, State
from aiokclient.errors import ClosedError, WrongThreadError
from aiokclient.protocol import ApiKey


async def follow(consumer: Consumer[Any, Any], seen: list[int]) -> str:
    async for record in consumer:
        seen.append(record.offset)
    return "ended"


async def follow_lists(consumer: Consumer[Any, Any], seen: list[int]) -> str:
    async for records in consumer.batches(max_records=2):
        seen += [record.offset for record in records]
    return "ended"


async def follow_tables(consumer: Consumer[Any, Any], seen: list[int]) -> str:
    async for table in consumer.arrow_batches():
        seen += table.column("offset").to_pylist()
    return "ended"


WAYS = [follow, follow_lists]
if find_spec("pyarrow"):
    WAYS.append(follow_tables)


async def caught_up(stage: Any, seen: list[int], count: int) -> None:
    await stage.cluster.until(lambda: len(seen) == count, 20)


class TestStop:
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("where", ["loop", "thread"])
    async def test_stop_ends_a_waiting_iteration(self, stage: Any, way: Any, where: str) -> None:
        stage.fill(5)
        seen: list[int] = []
        async with stage.consumer() as consumer:
            task = asyncio.create_task(way(consumer, seen))
            await caught_up(stage, seen, 5)
            if where == "loop":
                assert not consumer.stop()
            else:
                await asyncio.to_thread(consumer.stop)
            async with asyncio.timeout(10):
                assert await task == "ended"
            stage.fill(5)
            assert await consumer.poll(timeout=30) == []
            assert await consumer.get(timeout=30) is None
            assert await way(consumer, seen) == "ended"
            assert [r async for r in consumer.until_end()] == []
            assert [rs async for rs in consumer.batches(until_end=True)] == []
        assert seen == list(range(5))

    @pytest.mark.parametrize("how", ["signal.signal", "add_signal_handler"])
    async def test_stop_works_in_a_signal_handler(self, stage: Any, how: str) -> None:
        stage.fill(5)
        seen: list[int] = []
        loop = asyncio.get_running_loop()
        async with stage.consumer() as consumer:
            old = signal.getsignal(signal.SIGUSR1)
            if how == "signal.signal":
                signal.signal(signal.SIGUSR1, lambda *_: consumer.stop())
            else:
                loop.add_signal_handler(signal.SIGUSR1, consumer.stop)
            try:
                task = asyncio.create_task(follow(consumer, seen))
                await caught_up(stage, seen, 5)
                os.kill(os.getpid(), signal.SIGUSR1)
                async with asyncio.timeout(10):
                    assert await task == "ended"
            finally:
                loop.remove_signal_handler(signal.SIGUSR1)
                signal.signal(signal.SIGUSR1, old)

    async def test_stop_during_start_leads_to_an_empty_iteration(self, stage: Any) -> None:
        """`stop()` may be called while `start` is in progress.

        An iteration that begins after `stop()` is empty.
        """
        stage.fill(5)
        consumer = stage.consumer()
        starting = asyncio.create_task(consumer.start())
        await asyncio.sleep(0)
        consumer.stop()
        await starting
        assert await consumer.poll(timeout=30) == []
        await consumer.close()
        consumer.stop()

    async def test_stop_ends_the_loop_after_the_record_in_progress(self, stage: Any) -> None:
        stage.fill(50)
        seen: list[int] = []
        async with stage.consumer() as consumer:
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 7:
                    thread = threading.Thread(target=consumer.stop)
                    thread.start()
                    thread.join()
            assert seen == list(range(8))
            assert consumer.consumed()[stage.tp()].offset == 8

    async def test_stop_may_be_called_repeatedly(self, stage: Any) -> None:
        async with stage.consumer() as consumer:
            for _ in range(3):
                consumer.stop()
            assert consumer.state is State.RUNNING
            assert await consumer.end_offsets([stage.tp()]) == {stage.tp(): 0}

    async def test_stop_loses_no_record_of_a_list_that_waits_for_more(self, stage: Any) -> None:
        """`stop()` does not lose the records that a list has gathered but not yet delivered."""
        stage.fill(3)
        async with stage.consumer() as consumer:
            lists = aiter(consumer.batches(max_records=10, max_wait=60.0))
            task = asyncio.create_task(anext(lists, None))  # type: ignore[arg-type]
            await stage.cluster.until(
                lambda: sum(r.api == ApiKey.FETCH for r in stage.cluster.requests) > 1
            )
            consumer.stop()
            async with asyncio.timeout(10):
                records = await task
            assert consumer.consumed()[stage.tp()].offset == len(records or [])


class TestClose:
    @pytest.mark.parametrize("way", WAYS)
    async def test_close_from_another_task_ends_the_iteration(self, stage: Any, way: Any) -> None:
        stage.fill(5)
        seen: list[int] = []
        consumer = await stage.consumer()
        task = asyncio.create_task(way(consumer, seen))
        await caught_up(stage, seen, 5)
        await consumer.close()
        async with asyncio.timeout(10):
            assert await task == "ended"
        assert consumer.state is State.CLOSED
        assert seen == list(range(5))

    @pytest.mark.parametrize("call", ["poll", "get"])
    async def test_close_ends_a_waiting_poll(self, stage: Any, call: str) -> None:
        consumer = await stage.consumer()
        task = asyncio.create_task(getattr(consumer, call)(timeout=60))
        await asyncio.sleep(0)
        await consumer.close()
        async with asyncio.timeout(10):
            assert not await task

    async def test_close_from_inside_the_loop_ends_the_iteration(self, stage: Any) -> None:
        stage.fill(50)
        seen: list[int] = []
        consumer = await stage.consumer()
        async with asyncio.timeout(20):
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 3:
                    await consumer.close()
        assert seen == [0, 1, 2, 3]

    async def test_leaving_async_with_ends_a_reader_in_another_task(self, stage: Any) -> None:
        seen: list[int] = []
        async with stage.consumer() as consumer:
            task = asyncio.create_task(follow(consumer, seen))
            stage.fill(3)
            await caught_up(stage, seen, 3)
        async with asyncio.timeout(10):
            assert await task == "ended"

    async def test_every_call_of_a_closed_consumer_raises(self, stage: Any) -> None:
        async with stage.consumer() as consumer:
            iterator = aiter(consumer)
        tps = [stage.tp()]
        plain = [
            lambda: consumer.subscribe([stage.topic]),
            lambda: consumer.unsubscribe(),
            lambda: consumer.assign(tps),
            lambda: consumer.assignment(),
            lambda: consumer.seek(stage.tp(), 0),
            lambda: consumer.seek_to_beginning(tps),
            lambda: consumer.seek_to_end(tps),
            lambda: consumer.pause(tps),
            lambda: consumer.resume(tps),
            lambda: consumer.paused(),
            lambda: consumer.consumed(),
            lambda: aiter(consumer),
            lambda: consumer.batches(),
            lambda: consumer.until_end(),
        ]
        for call in plain:
            with pytest.raises(ClosedError):
                call()
        for waiting in (
            consumer.start(),
            consumer.poll(),
            consumer.get(),
            consumer.position(stage.tp()),
            consumer.beginning_offsets(tps),
            consumer.end_offsets(tps),
            consumer.offsets_for_times({stage.tp(): 0}),
            consumer.lag(),
            consumer.partitions_for(stage.topic),
            consumer.list_topics(),
            consumer.commit(),
        ):
            with pytest.raises(ClosedError):
                await waiting
        assert [record async for record in iterator] == []
        consumer.stop()
        await consumer.close()
        await consumer.close(timeout=0)

    async def test_close_does_not_wait_for_the_body_of_a_loop(self, stage: Any) -> None:
        """`close()` does not wait for the body of a loop, and the body may run to its end."""
        stage.fill(5)
        inside, go_on = asyncio.Event(), asyncio.Event()
        seen: list[int] = []

        async def loop(consumer: Consumer[Any, Any]) -> str:
            async for record in consumer:
                inside.set()
                await go_on.wait()
                seen.append(record.offset)
            return "ended"

        consumer = await stage.consumer()
        task = asyncio.create_task(loop(consumer))
        await inside.wait()
        await consumer.close(timeout=0.05)
        go_on.set()
        assert await task == "ended"
        assert seen == [0]


class TestElsewhere:
    async def test_calls_of_a_consumer_from_another_thread_raise(self, stage: Any) -> None:
        async with stage.consumer() as consumer:
            for call in (
                consumer.assignment,
                consumer.consumed,
                consumer.paused,
                lambda: consumer.seek(stage.tp(), 0),
                lambda: consumer.pause([stage.tp()]),
                lambda: consumer.subscribe([stage.topic]),
                consumer.batches,
                consumer.until_end,
                lambda: aiter(consumer),
            ):
                with pytest.raises(WrongThreadError):
                    await asyncio.to_thread(call)


class TestCancellation:
    @pytest.mark.parametrize("way", ["timeout", "wait_for", "move_on_after", "cancel"])
    async def test_reads_cut_short_in_each_way_lose_no_record(self, stage: Any, way: str) -> None:
        """No record is lost when reads are cancelled again and again while records arrive."""
        seen: list[int] = []
        cut = 0
        async with stage.consumer() as consumer:
            iterator = aiter(consumer)
            for turn in itertools.count():
                if len(seen) >= 300:
                    break
                moment = 0.0005 * (turn % 3)
                if len(seen) + 5 > stage.cluster.offsets(stage.topic)[1]:
                    stage.fill(11, batch=4)
                try:
                    if way == "wait_for":
                        seen.append((await asyncio.wait_for(anext(iterator), moment)).offset)
                    elif way == "timeout":
                        async with asyncio.timeout(moment):
                            await follow(consumer, seen)
                    elif way == "move_on_after":
                        with anyio.move_on_after(moment):
                            await follow(consumer, seen)
                        cut += 1
                    else:
                        task = asyncio.create_task(follow(consumer, seen))
                        await asyncio.sleep(0)
                        task.cancel()
                        await task
                except (TimeoutError, asyncio.CancelledError):
                    cut += 1
        assert cut
        assert seen == list(range(len(seen)))

    @pytest.mark.parametrize("way", ["poll", "get", "batches", "arrow"])
    async def test_cancelled_list_reads_lose_no_record(self, stage: Any, way: str) -> None:
        if way == "arrow":
            pytest.importorskip("pyarrow")
        stage.fill(3_000, batch=40, compression="gzip")
        seen: list[int] = []
        async with stage.consumer(
            fetch_max_bytes=4_000, max_partition_fetch_bytes=4_000
        ) as consumer:
            turns = 0
            while len(seen) < 3_000:
                turns += 1
                with anyio.move_on_after(0.0001 * (turns % 30)):
                    seen += await offsets_by(way, consumer)
        assert seen == list(range(3_000))


async def offsets_by(way: str, consumer: Consumer[Any, Any]) -> list[int]:
    if way == "poll":
        return [r.offset for r in await consumer.poll(timeout=30, max_records=17)]
    if way == "get":
        record = await consumer.get(timeout=30)
        return [] if record is None else [record.offset]
    if way == "arrow":
        return list((await anext(consumer.arrow_batches())).column("offset").to_pylist())
    return [r.offset for r in await anext(consumer.batches(max_records=17))]


class TestYielding:
    @pytest.fixture
    def slow(self) -> float:
        """Seconds for which the program blocks the event loop to process each record."""
        return 0.002

    @pytest.mark.parametrize("seed", range(1, 6))
    @pytest.mark.parametrize("batch", [3, 2_000])
    @pytest.mark.parametrize("way", ["iteration", "batches", "poll", "get"])
    def test_reading_yields_to_the_loop_at_least_every_ten_milliseconds(
        self, way: str, slow: float, batch: int, seed: int
    ) -> None:
        """The event loop runs at least every 10 ms, even if the program reads without a pause."""

        async def scenario(world: World) -> None:
            for _ in range(0, 2_000, batch):
                world.cluster.produce("t", [b"v"] * batch)
            turns: list[float] = []

            async def watch() -> None:
                while True:
                    turns.append(world.now)
                    await asyncio.sleep(0)

            async with world.consumer("t") as consumer:
                await consumer.get()
                watching = asyncio.create_task(watch())
                count = 0
                while count < 500:
                    if way == "iteration":
                        async for _ in consumer:
                            world.sim.loop.leap(slow)
                            count += 1
                            if count >= 500:
                                break
                    elif way == "get":
                        assert await consumer.get()
                        world.sim.loop.leap(slow)
                        count += 1
                    else:
                        lists = consumer.batches(max_records=2)
                        records = await (
                            consumer.poll(max_records=2) if way == "poll" else anext(lists)
                        )
                        world.sim.loop.leap(slow)
                        count += len(records)
                watching.cancel()
                gaps = [b - a for a, b in itertools.pairwise(turns)]
                assert max(gaps) <= 0.0121

        simulate(scenario, seed=seed)
