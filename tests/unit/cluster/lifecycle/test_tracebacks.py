"""Tests of how errors let go of the object that raised them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokclient.cluster.lifecycle.tracebacks import clear, is_own, let_go, lets_go, refers
from aiokclient.errors import KafkaError


class Owner:
    """An object whose errors must not keep it alive."""

    def __init__(self) -> None:
        self.cancellations = 0

    def _note_cancelled(self) -> None:
        self.cancellations += 1

    def method(self) -> None:
        """Do nothing."""

    @lets_go
    async def wait(self) -> None:
        await self.wait_inside()

    @lets_go
    async def wait_inside(self) -> None:
        await asyncio.get_running_loop().create_future()

    def nested(self) -> Callable[[], Any]:
        def inner() -> Any:
            return self

        return inner

    def twice_nested(self) -> Callable[[], Any]:
        inner = self.nested()

        def outer() -> Any:
            return inner()

        return outer


def recursive(value: object) -> Callable[[int], Any]:
    def inner(depth: int) -> Any:
        return value if depth == 0 else inner(depth - 1)

    return inner


@pytest.mark.parametrize("form", ["itself", "method", "nested", "twice_nested", "recursive"])
def test_refers_finds_an_object_in_each_form(form: str) -> None:
    owner, other = Owner(), Owner()
    forms: dict[str, Callable[[Owner], object]] = {
        "itself": lambda one: one,
        "method": lambda one: one.method,
        "nested": Owner.nested,
        "twice_nested": Owner.twice_nested,
        "recursive": recursive,
    }
    value = forms[form](owner)
    assert refers(value, owner)
    assert not refers(value, other), "it ends, also for a function that refers to itself"


def test_refers_ignores_variables_that_are_not_set_yet() -> None:
    def inner() -> object:
        return late

    assert not refers(inner, Owner())
    late = object()
    assert inner() is late


@pytest.mark.parametrize("calls", [1, 2])
async def test_cancellation_is_counted_once_when_methods_call_each_other(calls: int) -> None:
    owner = Owner()
    for _ in range(calls):
        task = asyncio.ensure_future(owner.wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert owner.cancellations == calls


def frame_of(error: BaseException, name: str) -> Any:
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name == name:
            return traceback.tb_frame
        traceback = traceback.tb_next
    raise AssertionError(name)


def fail_with(one: object, error: BaseException) -> None:
    raise error


def fail_nested(one: object, error: BaseException) -> None:
    def inner() -> None:
        assert one is not None
        raise error

    inner()


def test_clear_leaves_functions_alone_that_do_not_know_the_object() -> None:
    owner, other = Owner(), Owner()
    with pytest.raises(KafkaError) as caught:
        fail_with(owner, KafkaError("broken"))
    frame = frame_of(caught.value, "fail_with")
    assert not clear(frame, other)
    assert frame.f_locals["one"] is owner
    assert not clear(frame, owner)
    assert "one" not in frame.f_locals


@pytest.mark.parametrize(("raised", "kept"), [(KafkaError, False), (ValueError, True)])
def test_tracebacks_with_nested_functions_remain_only_when_a_bug_needs_them(
    raised: type[Exception], kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiokclient.cluster.lifecycle.tracebacks.OWN", __name__.partition(".")[0])
    owner = Owner()
    with pytest.raises(raised) as caught:
        fail_nested(owner, raised("broken"))
    error = caught.value
    let_go(error, owner)
    assert (error.__traceback__ is not None) is kept


@pytest.mark.parametrize("raised", [KafkaError, ValueError])
def test_tracebacks_without_nested_functions_remain(
    raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiokclient.cluster.lifecycle.tracebacks.OWN", __name__.partition(".")[0])
    owner = Owner()
    with pytest.raises(raised) as caught:
        fail_with(owner, raised("broken"))
    let_go(caught.value, owner)
    assert "one" not in frame_of(caught.value, "fail_with").f_locals


def test_only_functions_of_the_library_are_cleared() -> None:
    class Broken(Owner):
        @lets_go
        def fail(self) -> None:
            raise KafkaError("broken")

    with pytest.raises(KafkaError) as caught:
        Broken().fail()
    assert is_own(frame_of(caught.value, "called"))
    assert not is_own(frame_of(caught.value, "fail"))
