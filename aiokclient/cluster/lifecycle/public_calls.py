"""Calls of public methods, and calls of functions of the application.

Cancelled calls are counted, and wrong arguments explained. Calls from a wrong thread or event loop
get errors that name the alternative.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokclient.errors import (
    IllegalStateError,
    KafkaError,
    UnsupportedVersionError,
    UsageError,
    WrongLoopError,
    WrongThreadError,
)


def running_loop(name: str) -> asyncio.AbstractEventLoop:
    """Return the running event loop. Raise WrongLoopError, which names asyncio, without one."""
    loop = asyncio._get_running_loop()
    if loop is None:
        raise WrongLoopError(
            f"No asyncio event loop is running, and this {name} needs one. The library is for "
            "asyncio, and does not run under trio. Run the program by asyncio.run()."
        )
    return loop


def wrong_caller(name: str, loop: asyncio.AbstractEventLoop | None, thread: int) -> UsageError:
    """Return the error for a call from outside the event loop. Its text names the alternative."""
    if threading.get_ident() != thread:
        return WrongThreadError(
            f"This {name} belongs to the thread of its event loop. From another thread use "
            "asyncio.run_coroutine_threadsafe, or send_threadsafe of a producer."
        )
    if loop is not None and loop.is_closed():
        return WrongLoopError(
            f"The event loop that this {name} was started in is closed. Make a new one."
        )
    if asyncio._get_running_loop() is None:
        return WrongLoopError(
            f"No event loop is running here. Use this {name} in coroutines of the loop that "
            "it was started in."
        )
    return WrongLoopError(
        f"This {name} was started in another event loop. Make one for each loop, or use "
        "asyncio.run_coroutine_threadsafe with the loop that it was started in."
    )


@contextmanager
def own_cancellation(function: str, kind: type[KafkaError] = IllegalStateError) -> Iterator[None]:
    """Run a block that calls a function of the application in a task of the library.

    A CancelledError that the function raises although this task was not cancelled, for example
    because it has awaited a cancelled future, becomes an error of the given kind. It would
    otherwise end the task as if the task had been cancelled.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling() > before:
            raise
        raise kind(
            f"{function} raised CancelledError, but it was not cancelled. It may have awaited a "
            "future that was cancelled."
        ) from error


C = TypeVar("C", bound=type)

COUNTED = "_counted_by_aiokclient"
"""The name of the attribute that marks a cancellation as counted."""


def watch_calls(
    *, apart: Collection[str] = (), explained: Collection[str] = ()
) -> Callable[[C], C]:
    """Return a decorator for a class whose public methods are called by the application.

    It counts the cancelled calls of the public coroutine functions of the class itself, and adds a
    hint to the error of a call with the arguments of another client. The coroutine functions in
    `apart` are called for each record, so they count their cancellations themselves. The functions
    in `explained` are synchronous, and only get hints.
    """

    def watch(owner: C) -> C:
        for name, method in list(vars(owner).items()):
            if name in explained:
                setattr(owner, name, _explained(method))
            elif inspect.iscoroutinefunction(method) and is_public(name) and name not in apart:
                setattr(owner, name, _counted(method))
        return owner

    return watch


def need_brokers(*, apart: Collection[str]) -> Callable[[C], C]:
    """Return a decorator for a class whose objects may be connected to controllers.

    All public coroutine functions of the class itself refuse such an object, except those in
    `apart`, which controllers answer.
    """

    def refuse(owner: C) -> C:
        for name, method in list(vars(owner).items()):
            if inspect.iscoroutinefunction(method) and is_public(name) and name not in apart:
                setattr(owner, name, _of_brokers(method))
        return owner

    return refuse


def _of_brokers(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def called(self: Any, *args: Any, **named: Any) -> Any:
        if self._config.uses_controllers:
            raise UnsupportedVersionError(
                f"Controllers do not answer {method.__name__}. Use an {type(self).__name__} with "
                "bootstrap_servers."
            )
        return await method(self, *args, **named)

    return called


def is_public(name: str) -> bool:
    """Return whether the application calls a method of this name, directly or by `async with`."""
    return not name.startswith("_") or name in ("__aenter__", "__aexit__")


def count_cancelled(error: asyncio.CancelledError, one: Any) -> None:
    """Count a cancelled call of the object once, even if its public methods call each other."""
    if not hasattr(error, COUNTED):
        setattr(error, COUNTED, True)
        one._count_cancelled()


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def counted(self: Any, *args: Any, **named: Any) -> Any:
        try:
            return await method(self, *args, **named)
        except asyncio.CancelledError as error:
            count_cancelled(error, self)
            raise
        except TypeError as error:
            _explain(error, method.__name__, args, named)
            raise

    return counted


def _explained(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def explained(self: Any, *args: Any, **named: Any) -> Any:
        try:
            return method(self, *args, **named)
        except TypeError as error:
            _explain(error, method.__name__, args, named)
            raise

    return explained


def _explain(error: TypeError, method: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Add a hint to an error about the arguments of a call, if another client takes them."""
    traceback = error.__traceback__
    if traceback is not None and traceback.tb_next is None:  # The method was not entered.
        from aiokclient.log.hints.names import argument_hint

        hint = argument_hint(method, len(args), named)
        if hint is not None:
            text = str(error)  # It can end with a suggestion by Python.
            error.args = (f"{text}{'' if text.endswith('?') else '.'} {hint}",)
