"""The owner of background tasks."""

import asyncio

import anyio
import pytest

from aiokclient.cluster import supervisor as module
from aiokclient.cluster.supervisor import Supervisor
from aiokclient.errors import ClosedError


async def die() -> None:
    raise ZeroDivisionError("bug")


async def test_tasks_run_and_end_with_it() -> None:
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


async def test_the_first_failure_is_kept_and_told(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor("test")
    await supervisor.start()
    told: list[BaseException] = []
    failed = asyncio.Event()
    supervisor.on_failure(lambda _: failed.set())
    supervisor.on_failure(told.append)
    end = supervisor.on_failure(told.append)
    end()
    for _ in range(2):
        supervisor.spawn(die, name="mortal")
    await failed.wait()
    assert told == [supervisor.failure]
    assert "mortal" in caplog.text
    supervisor.on_failure(told.append)
    assert told == [supervisor.failure] * 2
    await supervisor.stop()
    assert len(told) == 2


async def test_it_is_started_in_a_scope_that_ends_before_it() -> None:
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
