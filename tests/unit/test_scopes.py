"""Tests of cancel scopes and task groups: those of anyio, and those without anyio do the same."""

import asyncio

import pytest

from aiokclient import scopes
from aiokclient.scopes import (
    AnyioScope,
    AsyncioGroup,
    AsyncioScope,
    new_group,
    new_scope,
    new_scope_of,
)


@pytest.fixture(params=["anyio", "asyncio"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the library whose scopes and groups are used."""
    monkeypatch.setattr(scopes, "is_anyio_used", lambda: request.param == "anyio")
    return str(request.param)


async def wait_forever() -> None:
    await asyncio.get_running_loop().create_future()


def is_untouched() -> bool:
    """Return whether no cancellation of the current task is left."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling() == 0 and task not in scopes._innermost


async def test_the_kind_is_that_of_the_program(kind: str) -> None:
    is_own = kind == "asyncio"
    assert isinstance(new_scope(), AsyncioScope) is is_own
    assert isinstance(new_group(), AsyncioGroup) is is_own


async def test_a_cancelled_scope_ends_its_body_and_nothing_else() -> None:
    steps = []
    with new_scope() as scope:
        asyncio.get_running_loop().call_soon(scope.cancel)
        steps.append("began")
        await wait_forever()
        steps.append("went on")
    await asyncio.sleep(0)
    assert steps == ["began"]
    assert is_untouched()


async def test_a_scope_that_is_cancelled_before_its_body_ends_the_first_await() -> None:
    scope = new_scope()
    scope.cancel()
    steps = []
    with scope:
        steps.append("began")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        steps.append("went on")
    assert steps == ["began"]
    assert is_untouched()


async def test_a_scope_that_its_own_body_cancels_ends_at_the_next_await() -> None:
    steps = []
    with new_scope() as scope:
        scope.cancel()
        steps.append("cancelled")
        await wait_forever()
    assert steps == ["cancelled"]
    assert is_untouched()


async def test_a_deadline_cancels_the_scope_and_can_be_moved() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with new_scope(deadline=began + 3600) as scope:
        scope.deadline = began
        await wait_forever()
    with new_scope_of(0.0):
        await wait_forever()
    with new_scope_of(3600):
        await asyncio.sleep(0)
    assert is_untouched()


async def test_a_cancelled_scope_cancels_each_await_of_its_body() -> None:
    caught = 0
    with new_scope() as scope:
        scope.cancel()
        while caught < 3:
            try:
                await wait_forever()
            except asyncio.CancelledError:
                caught += 1
        await wait_forever()
    assert caught == 3
    assert is_untouched()


async def test_a_shield_keeps_a_cancellation_from_its_body_alone() -> None:
    steps = []
    with new_scope() as outer:
        outer.cancel()
        with new_scope(shield=True):
            for _ in range(3):
                await asyncio.sleep(0)
            steps.append("shielded")
        await wait_forever()
        steps.append("went on")
    assert steps == ["shielded"]
    assert is_untouched()


async def test_the_outer_scope_ends_if_both_are_cancelled() -> None:
    steps = []
    with new_scope() as outer:
        with new_scope() as inner:
            outer.cancel()
            inner.cancel()
            await wait_forever()
        steps.append("between")
        await wait_forever()
        steps.append("went on")
    assert "went on" not in steps
    assert is_untouched()


async def test_an_inner_scope_ends_alone() -> None:
    steps = []
    with new_scope():
        with new_scope() as inner:
            asyncio.get_running_loop().call_soon(inner.cancel)
            await wait_forever()
        await asyncio.sleep(0)
        steps.append("went on")
    assert steps == ["went on"]
    assert is_untouched()


async def test_a_cancellation_of_the_task_leaves_a_cancelled_scope() -> None:
    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        with new_scope() as scope:
            loop = asyncio.get_running_loop()
            loop.call_soon(scope.cancel)
            loop.call_soon(task.cancel)
            await wait_forever()
        pytest.fail("The cancellation of the task was swallowed.")

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    assert task.cancelled()


async def test_an_error_of_the_body_leaves_a_cancelled_scope() -> None:
    async def run() -> None:
        with new_scope() as scope:
            scope.cancel()
            try:
                await wait_forever()
            except asyncio.CancelledError:
                raise ValueError("wrong") from None

    with pytest.raises(ValueError, match="wrong"):
        await run()
    assert is_untouched()


async def test_a_result_that_is_there_is_not_lost() -> None:
    got = []
    with new_scope() as scope:
        future = asyncio.get_running_loop().create_future()

        def set_and_cancel() -> None:
            future.set_result("result")
            scope.cancel()

        asyncio.get_running_loop().call_soon(set_and_cancel)
        got.append(await future)
        await wait_forever()
    assert got == ["result"]


async def test_a_timeout_within_a_scope_is_a_timeout() -> None:
    with new_scope():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await wait_forever()
        await asyncio.sleep(0)
    assert is_untouched()


async def test_a_group_waits_for_its_tasks() -> None:
    ended = []

    async def run(name: str) -> None:
        await asyncio.sleep(0)
        ended.append(name)

    async with new_group() as group:
        group.start_soon(run, "a")
        group.start_soon(run, "b")
    assert sorted(ended) == ["a", "b"]


async def test_the_error_of_a_task_ends_the_others_and_is_raised_in_a_group() -> None:
    ended = []

    async def fail() -> None:
        raise ValueError("wrong")

    async def run() -> None:
        try:
            await wait_forever()
        finally:
            ended.append("run")

    async def run_all() -> None:
        async with new_group() as group:
            group.start_soon(run)
            await asyncio.sleep(0)
            group.start_soon(fail)
            await wait_forever()

    with pytest.raises(ExceptionGroup) as raised:
        await run_all()
    assert [type(error) for error in raised.value.exceptions] == [ValueError]
    assert ended == ["run"]
    assert is_untouched()


@pytest.mark.parametrize("is_host_waiting", [False, True])
@pytest.mark.parametrize("is_also_own", [False, True])
async def test_a_cancellation_of_the_task_leaves_a_group(
    is_host_waiting: bool, is_also_own: bool
) -> None:
    ended = []

    async def run() -> None:
        try:
            await wait_forever()
        finally:
            ended.append("run")

    async def host() -> None:
        with new_scope_of(60):
            async with new_group() as group:
                group.start_soon(run)
                task = asyncio.current_task()
                assert task is not None
                loop = asyncio.get_running_loop()
                for call in [group.cancel_scope.cancel] * is_also_own + [task.cancel]:
                    # After the first step of the other task.
                    loop.call_later(0.01, call)
                if is_host_waiting:
                    await wait_forever()
        pytest.fail("The cancellation of the task was swallowed.")

    task = asyncio.create_task(host())
    await asyncio.wait([task])
    assert task.cancelled()
    assert ended == ["run"]


@pytest.mark.parametrize("is_host_waiting", [False, True])
async def test_a_task_that_cancels_the_scope_of_its_group_ends_the_others(
    is_host_waiting: bool,
) -> None:
    ended = []

    async def run() -> None:
        try:
            await wait_forever()
        finally:
            ended.append("run")

    async def win() -> None:
        await asyncio.sleep(0)
        group.cancel_scope.cancel()
        ended.append("win")

    async with new_group() as group:
        group.start_soon(run)
        group.start_soon(win)
        if is_host_waiting:
            await wait_forever()
    assert sorted(ended) == ["run", "win"]
    assert is_untouched()


async def test_a_cancellation_of_the_task_ends_its_group_and_is_raised() -> None:
    ended = []

    async def run() -> None:
        try:
            await wait_forever()
        finally:
            ended.append("run")

    async def host() -> None:
        async with new_group() as group:
            group.start_soon(run)

    task = asyncio.create_task(host())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert ended == ["run"]


async def test_a_deadline_around_a_group_ends_its_tasks() -> None:
    ended = []

    async def run() -> None:
        try:
            await wait_forever()
        finally:
            ended.append("run")

    with new_scope_of(0.01):
        async with new_group() as group:
            group.start_soon(run)
    assert ended == ["run"]
    assert is_untouched()


async def test_the_scopes_of_a_task_stay_of_one_kind(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = new_scope()
    with outer:
        monkeypatch.setattr(scopes, "is_anyio_used", lambda: True)
        assert isinstance(new_scope(), AsyncioScope) is (kind == "asyncio")
    assert isinstance(new_scope(), AnyioScope)


async def test_a_scope_knows_whether_its_end_caught_the_cancellation() -> None:
    loop = asyncio.get_running_loop()
    with new_scope() as cancelled:
        loop.call_soon(cancelled.cancel)
        await wait_forever()
    assert cancelled.cancelled_caught
    with new_scope() as late:
        late.cancel()
    assert not late.cancelled_caught
    with pytest.raises(ValueError), new_scope() as failed:  # noqa: PT012
        failed.cancel()
        raise ValueError
    assert not failed.cancelled_caught

    async def host() -> None:
        with both:
            await wait_forever()

    both = new_scope()
    task = asyncio.create_task(host())
    await asyncio.sleep(0)
    both.cancel()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not both.cancelled_caught
