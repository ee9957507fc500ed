"""Tests of the supervisor, which owns background tasks and callbacks."""

import asyncio
import importlib
import logging
import types
from contextvars import ContextVar
from functools import partial

import anyio
import pytest
from loops import eager

from aiokclient.cluster.lifecycle import supervisor as module
from aiokclient.cluster.lifecycle.supervisor import Callbacks, Supervisor
from aiokclient.errors import ClosedError


async def die() -> None:
    raise ZeroDivisionError("bug")


async def test_tasks_run_until_their_supervisor_ends() -> None:
    before = asyncio.all_tasks()
    supervisor = Supervisor("test")
    await supervisor.start()
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(name)

    for name in "ab":
        supervisor.spawn(work, name, name=name)
    await asyncio.sleep(0)
    await supervisor.stop()
    await supervisor.stop()
    assert ended == ["a", "b"]
    assert asyncio.all_tasks() == before
    with pytest.raises(ClosedError):
        supervisor.spawn(die, name="late")


async def test_the_first_failure_is_kept_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor("test")
    await supervisor.start()
    told: list[BaseException] = []
    failed = asyncio.Event()
    supervisor.add_failure_listener(lambda _: failed.set())
    supervisor.add_failure_listener(told.append)
    end = supervisor.add_failure_listener(told.append)
    end()
    for _ in range(2):
        supervisor.spawn(die, name="mortal")
    await failed.wait()
    assert told == [supervisor.failure]
    assert "mortal" in caplog.text
    supervisor.add_failure_listener(told.append)
    assert told == [supervisor.failure] * 2
    await supervisor.stop()
    assert len(told) == 2


async def test_a_supervisor_outlives_the_scope_of_its_start() -> None:
    supervisor = Supervisor("test")
    with anyio.CancelScope() as scope:
        await supervisor.start()
        scope.cancel()
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        done.set()

    supervisor.spawn(work, name="work")
    await done.wait()
    await supervisor.stop()


async def test_a_task_that_does_not_end_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.01)
    supervisor = Supervisor("test")
    await supervisor.start()
    release = asyncio.Event()

    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    supervisor.spawn(stubborn, name="stubborn")
    await asyncio.sleep(0)
    await supervisor.stop()
    assert "stubborn" in caplog.text
    release.set()
    await supervisor.stop()


class OnlyInTasks(types.ModuleType):
    """A `sniffio` module whose context variable no other package has set."""

    class AsyncLibraryNotFoundError(RuntimeError):
        pass

    current_async_library_cvar: ContextVar[str | None] = ContextVar("library", default=None)

    @classmethod
    def current_async_library(cls) -> str:
        if asyncio.current_task() is None:
            raise cls.AsyncLibraryNotFoundError("not in a task")
        return "asyncio"


async def test_a_callback_can_start_a_task_when_anyio_uses_sniffio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module_name in ("anyio._core._eventloop", "anyio._core._synchronization"):
        used = importlib.import_module(module_name)
        monkeypatch.setattr(used, "sniffio", OnlyInTasks("sniffio"), raising=False)
    supervisor = Supervisor("test")
    await supervisor.start()
    done = asyncio.get_running_loop().create_future()

    async def work() -> None:
        async with anyio.create_task_group():
            done.set_result(None)

    asyncio.get_running_loop().call_soon(partial(supervisor.spawn, work, name="work"))
    async with asyncio.timeout(10):
        await done
    await supervisor.stop()


async def test_a_task_begins_after_the_call_that_starts_it_under_any_task_factory() -> None:
    if hasattr(asyncio, "eager_task_factory"):
        eager(asyncio.get_running_loop())
    supervisor = Supervisor("test")
    await supervisor.start()
    order: list[str] = []

    async def work() -> None:
        order.append("begun")

    supervisor.spawn(work, name="work")
    order.append("spawned")
    await asyncio.sleep(0)
    assert order == ["spawned", "begun"]
    await supervisor.stop()


async def test_tasks_run_in_the_context_of_the_start() -> None:
    supervisor = Supervisor("test")
    request: ContextVar[str] = ContextVar("request", default="none")
    await supervisor.start()
    request.set("of a web server")
    seen = asyncio.get_running_loop().create_future()

    async def work() -> None:
        seen.set_result(request.get())

    supervisor.spawn(work, name="work")
    assert await seen == "none"
    await supervisor.stop()


async def test_a_task_that_was_started_just_before_the_stop_is_cancelled() -> None:
    supervisor = Supervisor("test")
    await supervisor.start()
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    supervisor.spawn(work, name="work")
    await supervisor.stop()
    assert ended == ["cancelled"]


async def test_a_callback_that_raises_counts_as_a_task_that_died(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unhandled: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unhandled.append(context))

    def bug(*_: object) -> None:
        raise ZeroDivisionError("bug")

    def begin(callbacks: Callbacks, way: str) -> None:
        match way:
            case "call_soon":
                callbacks.call_soon(bug)
            case "call_at":
                callbacks.call_at(loop.time(), bug)
            case "call_later":
                callbacks.call_later(0, bug)
            case "call_in_thread":
                callbacks.call_in_thread(int, then=bug)
            case "guard_function":
                callbacks.guard_function(bug)()

    for way in ("call_soon", "call_at", "call_later", "call_in_thread", "guard_function"):
        supervisor = Supervisor("test")
        await supervisor.start()
        failed = asyncio.Event()
        supervisor.add_failure_listener(lambda _, failed=failed: failed.set())  # type: ignore[misc]
        begin(supervisor.callbacks, way)
        async with asyncio.timeout(10):
            await failed.wait()
        assert isinstance(supervisor.failure, ZeroDivisionError), way
        await supervisor.stop()
    assert not unhandled


def test_the_end_of_the_loop_is_not_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """`asyncio.run` cancels all tasks at its end, which is not a failure."""
    supervisor = Supervisor("client")

    async def main() -> None:
        await supervisor.start()
        supervisor.spawn(asyncio.sleep, 1000, name="waits")
        await asyncio.sleep(0)

    asyncio.run(main())
    assert isinstance(supervisor.failure, ClosedError)
    assert [record.__dict__["event"] for record in caplog.records] == ["loop_ended"]


class Raising(logging.Filter):
    """A filter of the application that raises."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise LookupError("the filter is broken")


async def test_a_failure_is_recorded_when_the_log_of_the_application_raises() -> None:
    logger, broken = logging.getLogger("aiokclient"), Raising()
    supervisor = Supervisor("test")
    await supervisor.start()
    failed = asyncio.Event()
    supervisor.add_failure_listener(lambda _: failed.set())
    logger.addFilter(broken)
    try:
        supervisor.spawn(die, name="mortal")
        async with asyncio.timeout(5):
            await failed.wait()
    finally:
        logger.removeFilter(broken)
    assert isinstance(supervisor.failure, ZeroDivisionError)
    await supervisor.stop()


def test_an_ended_loop_is_recorded_when_the_log_of_the_application_raises() -> None:
    logger, broken = logging.getLogger("aiokclient"), Raising()
    supervisor = Supervisor("test")

    async def main() -> None:
        await supervisor.start()
        supervisor.spawn(asyncio.sleep, 1000, name="sleeper")
        await asyncio.sleep(0)
        logger.addFilter(broken)

    try:
        asyncio.run(main())
    finally:
        logger.removeFilter(broken)
    assert isinstance(supervisor.failure, ClosedError)
