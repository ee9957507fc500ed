"""Tracebacks that do not keep clients alive.

A traceback refers to the local variables of its functions, and `sys.last_exc`, a notebook, or a
finished task keeps the traceback. It would keep alive a client, producer, or consumer that the
program has dropped, with its connections, and a consumer with its partitions. Therefore errors
that are raised by a method of such an object do not refer to the object.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import sys
from collections.abc import Callable
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any, TypeVar, cast

from aiokclient.errors import KafkaError
from aiokclient.log.kept_errors import bare, chain

__all__ = ["let_go", "lets_go"]

F = TypeVar("F", bound=Callable[..., Any])

COUNTED = "_counted_by_aiokclient"
"""The name of the attribute that marks a cancellation as counted."""
OWN = __name__.partition(".")[0]


def let_go(error: BaseException, one: object) -> None:
    """Clear the local variables of a traceback's functions if they refer to the object `one`.

    Only functions of the library are cleared. The variables of the application's functions remain,
    so that they can be examined. This must be called where the error leaves the library, and the
    caller must delete its own variable.

    A nested function refers to variables of the outer function, which other functions may share and
    which cannot be cleared. If there is such a function in the traceback, the error loses its
    tracebacks. Only an error that a bug has caused keeps them, because they are needed to find the
    bug.
    """
    if type(error) is asyncio.CancelledError:
        note_cancelled(error, one)
    running = set()
    caller: FrameType | None = sys._getframe(1)
    while caller is not None:
        running.add(caller)
        caller = caller.f_back
    nested = False
    for found in chain(error):
        traceback = found.__traceback__
        while traceback is not None:
            frame = traceback.tb_frame
            if frame not in running and is_own(frame):
                nested = clear(frame, one) or nested
            traceback = traceback.tb_next
    if nested and isinstance(error, KafkaError | asyncio.CancelledError):
        bare(error)


def note_cancelled(error: asyncio.CancelledError, one: object) -> None:
    """Count a cancelled call of the object only once, even if public methods call each other."""
    count = getattr(one, "_note_cancelled", None)
    if count is not None and not hasattr(error, COUNTED):
        setattr(error, COUNTED, True)
        count()


def is_own(frame: FrameType) -> bool:
    """Return whether this is the frame of a function of the library."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == OWN


def clear(frame: FrameType, one: object) -> bool:
    """Clear the local variables of a function if one of them refers to this object.

    Returns whether the function still refers to it afterwards, as a nested function does. A
    function that has not returned is left alone: the error did not end it.
    """
    function = ended(frame)
    variables = frame.f_locals
    if function is None or not any(refers(value, one) for value in variables.values()):
        return False
    frame.clear()
    if isinstance(variables, dict):
        variables.clear()  # Before Python 3.13, this is a copy, which the frame keeps.
    return refers(function, one)


def ended(frame: FrameType) -> FunctionType | None:
    """Return the function of the frame, or None if the function has not returned.

    Before Python 3.13, clearing the frame of a suspended coroutine would close the coroutine.
    """
    for found in gc.get_referents(frame):  # Only a frame that has ended owns its function.
        if isinstance(found, FunctionType) and found.__code__ is frame.f_code:
            return found
    return None


def refers(value: object, one: object) -> bool:
    """Return whether this is the object, one of its methods, or a function nested in one."""
    left = [value]
    seen: set[int] = set()
    while left:
        found = left.pop()
        if found is one or (type(found) is MethodType and found.__self__ is one):
            return True
        if isinstance(found, FunctionType) and id(found) not in seen:
            seen.add(id(found))
            left += [cell.cell_contents for cell in filled(found)]
    return False


def filled(function: FunctionType) -> list[CellType]:
    """Return the variables of outer functions that a nested function uses, if they are set."""
    return [cell for cell in function.__closure__ or () if gc.get_referents(cell)]


def lets_go(method: F) -> F:
    """Decorate a method so that the errors it raises do not keep its object alive."""
    call: Any = method
    if inspect.iscoroutinefunction(method):

        async def awaited(self: Any, *args: Any, **named: Any) -> Any:
            try:
                return await call(self, *args, **named)
            except BaseException as error:
                if type(error) is TypeError:
                    explain(error, method, args, named)
                let_go(error, self)
                del self
                raise

        return cast(F, functools.wraps(method)(awaited))

    def called(self: Any, *args: Any, **named: Any) -> Any:
        try:
            return call(self, *args, **named)
        except BaseException as error:
            if type(error) is TypeError:
                explain(error, method, args, named)
            let_go(error, self)
            del self
            raise

    return cast(F, functools.wraps(method)(called))


def explain(
    error: TypeError, method: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """Add a hint to an error about the arguments of a call, if another client takes them."""
    traceback = error.__traceback__
    if traceback is not None and traceback.tb_next is None:  # The method was not entered.
        from aiokclient.log.hints.names import argument_hint

        hint = argument_hint(method.__name__, len(args), named)
        if hint is not None:
            text = str(error)  # It can end with a suggestion by Python.
            error.args = (f"{text}{'' if text.endswith('?') else '.'} {hint}",)
