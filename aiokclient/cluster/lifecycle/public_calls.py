"""Calls of public methods: the cancelled ones are counted, and wrong arguments are explained."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar

__all__ = ["count_cancelled", "watch_calls"]

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
