"""What an error keeps alive.

A traceback holds the variables of all functions that it goes through, and `sys.last_exc`, a
notebook, or a finished task holds the traceback. A consumer that the program has dropped would
live on in it, and keep its partitions from the group. So errors that leave a call of a consumer
do not hold the consumer.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar, cast

__all__ = ["let_go", "lets_go"]

F = TypeVar("F", bound=Callable[..., Any])

OWN = __name__.partition(".")[0]


def let_go(error: BaseException, one: object) -> None:
    """Clear the functions of the library that an error went through and that refer to `one`.

    To be called where the error leaves the library. The variables of the application's functions
    stay, so that they can be examined. The caller must delete its own variable.
    """
    running = set()
    caller: FrameType | None = sys._getframe(1)
    while caller is not None:
        running.add(caller)
        caller = caller.f_back
    errors: list[BaseException | None] = [error]
    seen: set[int] = set()
    while errors:
        found = errors.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        errors += [found.__cause__, found.__context__]
        traceback = found.__traceback__
        while traceback is not None:
            frame = traceback.tb_frame
            if frame not in running and is_own(frame):
                clear(frame, one)
            traceback = traceback.tb_next


def is_own(frame: FrameType) -> bool:
    """Return whether this is a function of the library."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == OWN


def clear(frame: FrameType, one: object) -> None:
    """Clear the variables of the function if one of them is this object."""
    variables = frame.f_locals
    if not any(value is one for value in variables.values()):
        return
    try:
        frame.clear()
    except RuntimeError:
        pass  # It waits for something: the error has come another way.
    if isinstance(variables, dict):
        variables.clear()  # Up to Python 3.12 this is a copy, which the frame keeps.


def lets_go(method: F) -> F:
    """Decorate a method so that what it raises does not keep its object alive."""
    call: Any = method
    if inspect.iscoroutinefunction(method):

        async def awaited(self: Any, *args: Any, **named: Any) -> Any:
            try:
                return await call(self, *args, **named)
            except BaseException as error:
                let_go(error, self)
                del self
                raise

        return cast(F, functools.wraps(method)(awaited))

    def called(self: Any, *args: Any, **named: Any) -> Any:
        try:
            return call(self, *args, **named)
        except BaseException as error:
            let_go(error, self)
            del self
            raise

    return cast(F, functools.wraps(method)(called))
