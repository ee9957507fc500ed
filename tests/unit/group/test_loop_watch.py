"""Tests of the watch on the event loop, in virtual time and in loops that really stand still."""

import asyncio
import gc
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvloop
from world import World, simulate

from aiokclient.group.loop_watch import INNERMOST, OUTERMOST, LoopWatch, described, readers
from aiokclient.metrics import Metrics


def test_a_stall_is_told_once_for_all_groups_of_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()

    async def scenario(world: World) -> None:
        async with asyncio.TaskGroup() as tasks:
            watches = []
            for number in range(20):
                watches.append(tasks.create_task(LoopWatch(metrics, f"g{number}").run()))
                await asyncio.sleep(0.01)
            for _ in range(2):
                await asyncio.sleep(3)
                world.sim.loop.leap(5)
            await asyncio.sleep(3)
            for watch in watches:
                watch.cancel()

    caplog.set_level(logging.WARNING, "aiokclient.group")
    simulate(scenario)
    texts = [r.getMessage() for r in caplog.records if r.name == "aiokclient.group"]
    assert len(texts) == 2
    assert all("the event loop stood still for " in text for text in texts)
    assert all(text.startswith("client aiokclient, group g") for text in texts)
    (held,) = [v for k, v in metrics.take_snapshot().items() if "blocked" in k]
    assert held["count"] == 40


def stand_still(loop: asyncio.AbstractEventLoop) -> None:
    """Block the event loop until its stack was read, and for another second."""
    secret = Held()
    reader = readers[loop]
    began = time.monotonic()
    while not reader.find_stack_since(began):
        time.sleep(0.05)
    time.sleep(1.2)
    del secret


class Held:
    """An object of the application in a frame that blocks the event loop."""


def nested(depth: int, loop: asyncio.AbstractEventLoop) -> None:
    """Block the event loop in a deep stack."""
    if depth:
        nested(depth - 1, loop)
    else:
        stand_still(loop)


def reader_thread(loop: asyncio.AbstractEventLoop) -> threading.Thread:
    """Return the thread that reads the stack of a loop."""
    thread = readers[loop]._thread
    assert thread is not None
    return thread


def watched(
    depth: int, change: Callable[[asyncio.AbstractEventLoop], None]
) -> Coroutine[Any, Any, None]:
    async def block() -> None:
        loop = asyncio.get_running_loop()
        change(loop)
        metrics = Metrics()
        watches = [asyncio.create_task(LoopWatch(metrics, f"g{n}").run()) for n in range(3)]
        await asyncio.sleep(0.01)
        thread = reader_thread(loop)
        nested(depth, loop)
        await asyncio.sleep(0.2)
        watches.pop().cancel()
        await asyncio.sleep(0)
        assert reader_thread(loop) is thread
        assert thread.is_alive()
        for watch in watches:
            watch.cancel()
        await asyncio.wait(watches)
        assert loop not in readers
        thread.join(30)
        assert not thread.is_alive()

    return block()


def eager(loop: asyncio.AbstractEventLoop) -> None:
    if hasattr(asyncio, "eager_task_factory"):
        loop.set_task_factory(asyncio.eager_task_factory)


@pytest.mark.parametrize(
    ("kind", "depth"), [("plain", 200), ("eager", 0), ("debug", 0), ("uvloop", 0), ("thread", 0)]
)
def test_a_stall_is_logged_with_the_stack_that_blocked_the_loop(
    kind: str, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aiokclient.group")
    change = eager if kind == "eager" else id
    if kind == "uvloop":
        uvloop.run(watched(depth, change))
    elif kind == "thread":
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, watched(depth, change)).result()
    else:
        asyncio.run(watched(depth, change), debug=kind == "debug")
    records = [r for r in caplog.records if getattr(r, "event", "") == "loop_blocked"]
    assert [r.levelno for r in records].count(logging.WARNING) == 1
    for record in records:
        text, stack = record.getMessage(), record.__dict__["stack"]
        assert "innermost frame first" in text
        assert "group/test_loop_watch.py:" in text
        assert stack[0].endswith(" stand_still")
        assert stack[1].endswith(" nested")
        assert stack[-1].endswith(" block")
        assert len(stack) <= INNERMOST + OUTERMOST + 1
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Held]


def test_a_loop_that_waits_for_events_has_no_stack_that_blocked_it() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        watch = asyncio.create_task(LoopWatch(Metrics(), "g").run())
        await asyncio.sleep(0)
        reader = readers[loop]
        frame = sys._current_frames()[threading.get_ident()]
        assert described(frame)[0].endswith(" scenario")
        idle = await asyncio.to_thread(wait_for_idle, threading.main_thread().ident)
        assert idle == ()
        assert reader.find_stack_since(0.0) == ()
        watch.cancel()

    asyncio.run(scenario())


def wait_for_idle(thread: int | None) -> tuple[str, ...]:
    """Read the stack of a thread when its event loop waits for events."""
    assert thread is not None
    while True:
        frame = sys._current_frames()[thread]
        if frame.f_code.co_name == "select":
            return described(frame)
        time.sleep(0.01)


def test_a_loop_that_was_dropped_with_its_watch_leaves_no_thread() -> None:
    loop = asyncio.new_event_loop()
    watch = loop.create_task(LoopWatch(Metrics(), "g").run())
    loop.run_until_complete(asyncio.sleep(0))
    thread = reader_thread(loop)
    loop.set_exception_handler(lambda *_: None)
    loop._ready.clear()  # type: ignore[attr-defined]
    loop._scheduled.clear()  # type: ignore[attr-defined]
    loop.close()
    del loop, watch
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
