"""The exception with which the body of a loop was left.

A loop says nothing to its iterator when its body is left by `break`, `return`, or an exception.
But it drops its reference to the iterator at once, so that the iterator's `__del__` is called from
the frame of the loop. The instruction that the frame then executes shows how the body was left:
`break` and `return` pop the iterator by an instruction of their own, and an exception leaves the
frame at the instruction that has raised it.

The exception itself is not passed to `__del__`. Since Python 3.12, it can be found: it is one of
the newest objects, and its traceback begins in this frame. In Python 3.11, it has no traceback yet,
so only its occurrence is known. An exception that is not found counts as a failure, unless the task
is being cancelled, or the loop is in an asynchronous generator, which may be being closed.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import opcode
from types import FrameType
from typing import Final

__all__ = ["Left", "left_by"]

POPS: Final = frozenset(
    opcode.opmap[name] for name in ("POP_TOP", "POP_ITER") if name in opcode.opmap
)


MOST_OBJECTS: Final = 20_000
"""Maximum number of new objects among which an exception is searched for."""


class Left:
    """Whether an exception has left a body. `error` is the exception, or None if it is unknown."""

    __slots__ = ("error", "failed")

    def __init__(self, failed: bool, error: BaseException | None = None) -> None:
        self.failed = failed
        self.error = error


def left_by(frame: FrameType) -> Left:
    """Return how the loop in this frame was left. Call it while the loop drops its iterator."""
    instruction = frame.f_code.co_code[frame.f_lasti]
    if instruction in POPS:
        return Left(False)
    error = _newest_from(frame)
    if error is not None:
        return Left(True, error)
    in_generator = frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR
    return Left(not in_generator and not _is_cancelled())


def _newest_from(frame: FrameType) -> BaseException | None:
    """Return the exception that is leaving this frame, or None if it is not found."""
    if gc.get_count()[0] > MOST_OBJECTS:
        return None  # The program has disabled garbage collection, so a search would take too long.
    for found in gc.get_objects(generation=0):
        if issubclass(type(found), BaseException):
            traceback = found.__traceback__
            if traceback is not None and traceback.tb_frame is frame:
                error: BaseException = found
                return error
    return None


def _is_cancelled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0
