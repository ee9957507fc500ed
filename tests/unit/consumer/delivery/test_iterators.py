"""Tests of the cursor that `async for` uses, in native code and in Python."""

import asyncio
import gc
import importlib.util
import inspect
import sys
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aiokclient._native import in_use
from aiokclient.consumer.delivery import iterators


def in_python() -> Any:
    spec = importlib.util.spec_from_file_location("pure_cursor", iterators.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aiokclient._native.WANTED", False)
        spec.loader.exec_module(module)
    return module.RecordCursor


KINDS = {"pure": in_python(), "native" if in_use() else "pure": iterators.RecordCursor}


class Source:
    """The state that the cursors of one test share.

    It has chunks, a gate before each one, and counts of calls.
    """

    def __init__(self, *chunks: Any) -> None:
        self.chunks = list(chunks)
        self.gate: asyncio.Event | None = None
        self.asked = 0
        self.waiting = 0
        self.seconds = 3600.0
        self.left: Iterator[Any] = iter(())
        self.error: Exception | None = None


@pytest.fixture(params=KINDS, ids=str)
def make(request: pytest.FixtureRequest) -> Any:
    base: Any = KINDS[request.param]

    class Cursor(base):
        __slots__ = ("source",)

        def __init__(self, source: Source, loop: Any = None) -> None:
            super().__init__(loop)
            self.source = source

        async def _advance(self) -> Any:
            source = self.source
            source.asked += 1
            if source.gate is not None:
                source.waiting += 1
                try:
                    await source.gate.wait()
                finally:
                    source.waiting -= 1
            if source.error is not None:
                raise source.error
            for record in source.left:
                self.expose(source.left, source.seconds)
                return record
            if not source.chunks:
                raise StopAsyncIteration
            source.left = iter(source.chunks.pop(0))
            self.expose(source.left, source.seconds)
            return next(source.left)

    return Cursor


async def test_all_in_order_and_asked_once_a_chunk(make: Any) -> None:
    source = Source(range(5), range(5, 300), [None, (1,), ValueError("a value")])
    found = [record async for record in make(source)]
    assert found[:300] == list(range(300))
    assert found[300:302] == [None, (1,)]
    assert isinstance(found[302], ValueError)
    assert source.asked == 4
    with pytest.raises(StopAsyncIteration):
        await anext(make(Source()))
    assert await anext(make(Source()), "default") == "default"


async def test_advance_is_called_when_the_time_is_over(make: Any) -> None:
    now = 0.0
    source = Source(range(10))
    source.seconds = 1.0
    cursor = make(source, SimpleNamespace(time=lambda: now))
    found = []
    async for record in cursor:
        found.append(record)
        now += 0.3
    assert found == list(range(10))
    # The cursor asked the source after the 1st, 5th, and 9th record, and at the end.
    assert source.asked == 4


async def test_the_real_clock_limits_the_time(make: Any) -> None:
    for seconds, asked in ((3600.0, 2), (0.0, 11)):
        source = Source(range(10))
        source.seconds = seconds
        assert [record async for record in make(source)] == list(range(10))
        assert source.asked == asked


async def test_advance_is_called_after_an_interrupt(make: Any) -> None:
    source = Source(range(6))
    cursor = make(source)
    assert await anext(cursor) == 0
    assert await anext(cursor) == 1
    pending = anext(cursor)
    cursor.interrupt()
    assert source.asked == 1
    assert await pending == 2
    assert source.asked == 2
    assert [record async for record in cursor] == [3, 4, 5]
    assert source.asked == 3


async def test_several_awaitables_may_be_outstanding(make: Any) -> None:
    cursor = make(Source([0, 1], [2, 3]))
    assert await anext(cursor) == 0
    first, second, third = anext(cursor), anext(cursor), anext(cursor)
    assert [await second, await first, await third] == [1, 2, 3]
    for done in (first, second):
        with pytest.raises(RuntimeError):
            await done
    third.close()
    with pytest.raises(StopAsyncIteration):
        await anext(cursor)


async def test_awaitables_work_with_all_ways_to_wait(make: Any) -> None:
    source = Source([0, 1, 2, 3])
    cursor = make(source)
    assert inspect.isawaitable(waiting := anext(cursor))
    assert await waiting == 0
    assert await asyncio.wait_for(anext(cursor), 5) == 1
    assert await asyncio.gather(anext(cursor), anext(cursor)) == [2, 3]
    source.chunks, source.gate = [[4, 5]], asyncio.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(cursor), 0.001)
    assert source.waiting == 0
    asyncio.get_running_loop().call_soon(source.gate.set)
    assert [record async for record in cursor] == [4, 5]


async def test_a_cancelled_wait_loses_no_record(make: Any) -> None:
    source = Source([0, 1])
    source.gate = asyncio.Event()
    cursor = make(source)

    async def read() -> list[Any]:
        return [record async for record in cursor]

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    assert source.waiting == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.waiting == 0
    source.gate.set()
    assert await read() == [0, 1]


async def test_errors_of_advance_are_raised(make: Any) -> None:
    source = Source([0, 1])
    cursor = make(source)
    assert await anext(cursor) == 0
    source.error = ValueError("once")
    assert await anext(cursor) == 1
    with pytest.raises(ValueError, match="once"):
        await anext(cursor)
    source.error = None
    with pytest.raises(StopAsyncIteration):
        await anext(cursor)


def broken() -> Iterator[int]:
    yield 1
    raise ValueError("a broken iterator")


async def test_an_error_of_the_exposed_iterator_is_raised(make: Any) -> None:
    cursor = make(Source(broken()))
    assert await anext(cursor) == 1
    with pytest.raises(ValueError, match="broken"):
        await anext(cursor)


async def test_an_awaitable_can_be_driven_by_hand(make: Any) -> None:
    source = Source([0, 1, 2])
    source.gate = asyncio.Event()
    waiting = anext(make(source)).__await__()
    assert inspect.isawaitable(waiting) or hasattr(waiting, "send")
    future = waiting.send(None)
    assert source.waiting == 1
    with pytest.raises(KeyError):
        waiting.throw(KeyError("thrown in"))
    assert source.waiting == 0
    future.cancel()
    closed = anext(make(source)).__await__()
    future = closed.send(None)
    closed.close()
    assert source.waiting == 0
    future.cancel()
    source.gate = None
    with pytest.raises(StopIteration) as done:
        anext(make(source)).__await__().send(None)
    assert done.value.value == 0
    with pytest.raises(KeyError):
        anext(make(source)).__await__().throw(KeyError("before it began"))


async def test_an_awaitable_can_be_dropped_while_it_waits(make: Any) -> None:
    source = Source([0])
    source.gate = asyncio.Event()
    cursor = make(source)
    waiting = anext(cursor).__await__()
    future = waiting.send(None)
    assert source.waiting == 1
    del waiting
    assert source.waiting == 0
    future.cancel()


async def test_a_cursor_is_freed_when_the_loop_is_left(make: Any) -> None:
    cursor = make(Source(range(9)))
    gone = weakref.ref(cursor)
    async for record in cursor:
        if record == 5:
            break
    del cursor
    assert gone() is None


class Thing:
    pass


async def test_iterators_leak_no_memory(make: Any) -> None:
    async def go(times: int) -> None:
        for _ in range(times):
            things = [Thing() for _ in range(50)]
            cursor = make(Source(things))
            async for _ in cursor:
                pass
            unused = anext(cursor)
            unused.close()

    async def grown() -> int:
        gc.collect()
        before = sys.getallocatedblocks()
        await go(300)
        gc.collect()
        return sys.getallocatedblocks() - before

    # A leak would show in each run. Free lists, including Python's own, grow only in the first
    # runs.
    assert min([await grown() for _ in range(4)]) < 100
    assert not any(isinstance(thing, Thing) for thing in gc.get_objects())


def test_only_a_loop_with_a_time_of_its_own_is_virtual() -> None:
    async def find() -> asyncio.AbstractEventLoop | None:
        return iterators.virtual_loop()

    class Virtual(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return 5.0

    with asyncio.Runner() as runner:
        assert runner.run(find()) is None
    with asyncio.Runner(loop_factory=Virtual) as runner:
        assert runner.run(find()) is runner.get_loop()


async def test_the_cursor_may_go_before_its_awaitable(make: Any) -> None:
    cursor = make(Source([1, 2, 3]))
    assert await anext(cursor) == 1
    waiting, gone = anext(cursor), weakref.ref(cursor)
    del cursor
    assert await waiting == 2
    del waiting
    gc.collect()
    assert gone() is None


async def test_a_record_that_reads_on_when_it_goes(make: Any) -> None:
    class Reading:
        def __del__(self) -> None:
            try:
                anext(cursor).__await__().send(None)
            except StopIteration as stop:
                if not isinstance(stop.value, Reading):
                    found.append(stop.value)
            except StopAsyncIteration:
                pass

    found: list[Any] = []
    cursor = make(Source(Reading() if number in (1, 4, 5) else number for number in range(20)))
    async for record in cursor:
        if not isinstance(record, Reading):
            found.append(record)
        del record
    assert sorted(found) == [number for number in range(20) if number not in (1, 4, 5)]


def test_an_awaitable_that_nobody_awaits_is_no_cycle_for_ever(make: Any) -> None:
    async def begin() -> Any:
        cursor = make(Source(range(5)))
        assert await anext(cursor) == 0
        return cursor

    cursor = asyncio.run(begin())
    waiting: Any = anext(cursor)
    gone = weakref.ref(cursor)
    if hasattr(waiting, "close"):
        waiting.close()
    again: Any = anext(cursor)
    del waiting, cursor
    if inspect.iscoroutine(again):
        again.close()
    del again
    gc.collect()
    assert gone() is None
