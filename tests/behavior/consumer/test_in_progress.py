"""Records in progress, delivered records, loops that are left and resumed, and the one reader."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from importlib.util import find_spec
from typing import Any

import pytest

from aiokclient import Consumer
from aiokclient.errors import ConcurrentReadError, UsageError

Reads = Callable[[Consumer[Any, Any]], Any]


async def anext_of(iterable: Any) -> Any:
    return await anext(aiter(iterable))


READS: dict[str, Reads] = {
    "poll": lambda consumer: consumer.poll(timeout=60),
    "get": lambda consumer: consumer.get(timeout=60),
    "async for": anext_of,
    "batches": lambda consumer: anext_of(consumer.batches()),
    "until_end": lambda consumer: anext_of(consumer.until_end()),
}
if find_spec("pyarrow"):
    READS["arrow_batches"] = lambda consumer: anext_of(consumer.arrow_batches())


@contextlib.asynccontextmanager
async def reading(consumer: Consumer[Any, Any], read: Reads) -> AsyncIterator[asyncio.Task[Any]]:
    """Run the block while a task waits for records that never arrive."""
    task = asyncio.create_task(read(consumer))
    for _ in range(5):
        await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


class TestOneReader:
    @pytest.mark.parametrize("second", [name for name in READS if name != "until_end"])
    @pytest.mark.parametrize("first", [name for name in READS if name != "until_end"])
    async def test_a_second_reader_is_refused(self, stage: Any, first: str, second: str) -> None:
        async with stage.consumer() as consumer:
            async with reading(consumer, READS[first]) as task:
                with pytest.raises(ConcurrentReadError) as raised:
                    await READS[second](consumer)
                assert isinstance(raised.value, UsageError)
                assert isinstance(raised.value, RuntimeError)
                stage.fill(1)
                assert await task
            stage.fill(1)
            assert await consumer.get(timeout=20)

    async def test_two_requests_of_one_iterator_at_a_time_are_refused(self, stage: Any) -> None:
        async with stage.consumer() as consumer:
            iterator = aiter(consumer)
            waiting = asyncio.create_task(anext_of(iterator))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentReadError):
                await anext(iterator)
            stage.fill(2)
            assert (await waiting).offset == 0
            assert (await anext(iterator)).offset == 1

    async def test_only_the_first_of_gathered_reads_is_allowed(self, stage: Any) -> None:
        stage.fill(5)
        async with stage.consumer() as consumer:
            found = await asyncio.gather(
                consumer.poll(timeout=20), consumer.poll(), consumer.get(), return_exceptions=True
            )
            assert [type(each) for each in found[1:]] == [ConcurrentReadError] * 2
            assert len(found[0]) == 5  # type: ignore[arg-type]

    async def test_a_reader_is_refused_during_the_loop_body_of_another_task(
        self, stage: Any
    ) -> None:
        stage.fill(3)
        inside, go_on = asyncio.Event(), asyncio.Event()
        seen: list[int] = []

        async def loop(consumer: Consumer[Any, Any]) -> None:
            async for record in consumer:
                seen.append(record.offset)
                inside.set()
                await go_on.wait()
                if record.offset == 2:
                    return

        async with stage.consumer() as consumer:
            task = asyncio.create_task(loop(consumer))
            await inside.wait()
            for read in READS.values():
                with pytest.raises(ConcurrentReadError):
                    await read(consumer)
            assert consumer.consumed()[stage.tp()].offset == 1
            go_on.set()
            await task
            assert seen == [0, 1, 2]

    async def test_tasks_may_read_one_after_the_other(self, stage: Any) -> None:
        stage.fill(20)
        async with stage.consumer() as consumer:
            offsets = []
            for _ in range(10):
                offsets.append((await asyncio.create_task(anext_of(consumer))).offset)
                offsets.append((await asyncio.create_task(consumer.get(timeout=20))).offset)
        assert offsets == list(range(20))

    async def test_a_refused_reader_loses_no_record(self, stage: Any) -> None:
        stage.fill(10)
        async with stage.consumer() as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                with pytest.raises(ConcurrentReadError):
                    await asyncio.create_task(consumer.poll())
                assert consumer.consumed()[stage.tp()].offset == record.offset + 1
                if record.offset == 9:
                    break
        assert seen == list(range(10))


async def broken(consumer: Consumer[Any, Any], seen: list[int], at: int) -> None:
    async for record in consumer:
        seen.append(record.offset)
        if record.offset == at:
            raise ZeroDivisionError


class TestLeavingAndComingBack:
    async def test_a_loop_left_by_break_continues_after_its_record(self, stage: Any) -> None:
        stage.fill(100, batch=7)
        seen: list[int] = []
        async with stage.consumer() as consumer:
            for at in (0, 1, 13, 14, 50, 99):
                async for record in consumer:
                    seen.append(record.offset)
                    if record.offset == at:
                        break
                assert consumer.consumed()[stage.tp()].offset == at + 1
        assert seen == list(range(100))

    async def test_a_loop_left_by_an_exception_continues_after_its_record(self, stage: Any) -> None:
        """If an exception ends the loop, the record in progress counts as delivered.

        A seek delivers the record again.
        """
        stage.fill(10)
        seen: list[int] = []
        async with stage.consumer() as consumer:
            for at in (3, 4):
                with pytest.raises(ZeroDivisionError):
                    await broken(consumer, seen, at)
            assert seen == [0, 1, 2, 3, 4]
            record = await consumer.get(timeout=20)
            assert record.offset == 5

    async def test_a_seek_after_an_exception_delivers_the_record_again(self, stage: Any) -> None:
        stage.fill(10)
        seen: list[int] = []
        async with stage.consumer() as consumer:
            async for record in consumer:
                seen.append(record.offset)
                if seen.count(record.offset) < 3:
                    consumer.seek(record)
                    assert consumer.consumed()[stage.tp()].offset == record.offset
                    assert await consumer.position(stage.tp()) == record.offset
                elif record.offset == 9:
                    break
        assert seen == [offset for offset in range(10) for _ in range(3)]

    async def test_a_seek_to_the_first_record_of_a_list_delivers_it_again(self, stage: Any) -> None:
        stage.fill(10)
        async with stage.consumer() as consumer:
            records = await consumer.poll(timeout=20, max_records=5)
            consumer.seek(records[0])
            assert await consumer.poll(timeout=20, max_records=5) == records
            consumer.seek(records[3])
            assert (await consumer.get(timeout=20)) == records[3]

    async def test_each_way_to_read_continues_where_the_one_before_ended(self, stage: Any) -> None:
        stage.fill(200, batch=3)
        async with stage.consumer() as consumer:
            offsets: list[int] = []
            while len(offsets) < 150:
                for read in READS.values():
                    found = await read(consumer)
                    if hasattr(found, "column"):
                        offsets += found.column("offset").to_pylist()
                    else:
                        offsets += [
                            r.offset for r in (found if isinstance(found, list) else [found])
                        ]
                    if len(offsets) >= 150:
                        break
                    assert consumer.consumed()[stage.tp()].offset == len(offsets)
        assert offsets == list(range(len(offsets)))

    async def test_a_kept_iterator_continues_between_polls(self, stage: Any) -> None:
        """One iterator may be kept and advanced several times in a task, with polls in between."""
        stage.fill(30)
        async with stage.consumer() as consumer:
            iterator = aiter(consumer)
            offsets = []
            for _ in range(10):
                offsets.append((await anext(iterator)).offset)
                offsets.append((await consumer.get(timeout=20)).offset)
                offsets.append((await anext(iterator)).offset)
        assert offsets == list(range(30))


class TestConsumed:
    async def test_consumed_returns_the_offsets_after_delivered_records(self, stage: Any) -> None:
        stage.new_topic(2)
        stage.fill(10)
        async with stage.consumer(stage.tp(0), stage.tp(1)) as consumer:
            assert {tp: o.offset for tp, o in consumer.consumed().items()} == {
                stage.tp(0): 0,
                stage.tp(1): 0,
            }
            async for record in consumer:
                assert consumer.consumed()[stage.tp()].offset == record.offset + 1
                assert consumer.consumed()[stage.tp()].leader_epoch == record.leader_epoch
                if record.offset == 4:
                    break
            records = await consumer.poll(timeout=20)
            assert consumer.consumed()[stage.tp()] == records.offsets()[stage.tp()]
            consumer.seek(stage.tp(), 2)
            assert consumer.consumed()[stage.tp()].offset == 2
            assert consumer.consumed()[stage.tp(1)].offset == 0

    async def test_consumed_is_unchanged_by_an_empty_poll(self, stage: Any) -> None:
        stage.fill(3)
        async with stage.consumer() as consumer:
            await stage.drain(consumer, 3)
            assert await consumer.poll(timeout=0.01) == []
            assert consumer.consumed()[stage.tp()].offset == 3
