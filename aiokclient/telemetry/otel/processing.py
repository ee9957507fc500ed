"""The span of the records that the application processes, current in the body of a loop.

`TracedIterator` stands between a loop and the iterator of the consumer. When it delivers records,
it makes their span the current one in the context of the task. The span is then also current in the
body of the loop, and in the tasks that the body starts. The next request for records restores the
context, and then ends the span. The deletion of the iterator does the same: a loop drops its
iterator when its body is left in any other way (see below). Each loop therefore has an
iterator of its own.

The context is restored in the task that makes the next request, and only if the span's context is
the current one there. A task may also request from several iterators in turn. Then the processing
that ends last restores the context that was current before all of them. Tasks that were started in
the body of a loop keep their context after the body has ended.

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
import sys
import weakref
from collections.abc import Callable
from time import time_ns
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final, Self

from opentelemetry import context as current_context
from opentelemetry.context import Context, create_key, get_value, set_value
from opentelemetry.trace import Span

from aiokclient.telemetry.otel.spans import fail

if TYPE_CHECKING:
    from aiokclient.telemetry.otel.consuming import ConsumerTracing

__all__ = ["Processing", "TracedIterator"]


PROCESSING: Final = create_key("aiokclient-processing")
"""The key under which a context has the `Processing` that made the context current."""


class Processing:
    """Records that are being processed. Their span is current until `leave`.

    With `ends`, `leave` also ends the span.
    """

    __slots__ = ("_before", "_context", "_ends", "_is_over", "_task", "span")

    def __init__(self, span: Span, context: Context, *, ends: bool = True) -> None:
        self.span = span
        self._ends = ends
        self._is_over = False
        self._task = _present_task()
        self._before = current_context.get_current()
        outer = get_value(PROCESSING, self._before)
        if isinstance(outer, Processing):
            outer._forget_ended()
        within = set_value(PROCESSING, self, context)
        self._context = weakref.ref(within)
        current_context.attach(within)

    def leave(self) -> None:
        """End the processing, and restore the context of the present task."""
        self._is_over = True
        present = current_context.get_current()
        restored = self._without_ended(present)
        if restored is not present:
            current_context.attach(restored)
        if self._ends:
            self.span.end()

    def _forget_ended(self) -> None:
        """Drop contexts whose processing has ended. Otherwise, a chain of them stays in memory."""
        self._before = self._without_ended(self._before)

    def _without_ended(self, context: Context) -> Context:
        """Go back from this context to the newest one whose processing has not ended. Return it.

        Stop at a context that another task made, even if its processing has ended.
        """
        while True:
            found = get_value(PROCESSING, context)
            if not isinstance(found, Processing) or found._context() is not context:
                return context
            if not found._is_over or found._task is not self._task:
                return context
            context = found._before


Begin = Callable[[Any, int], Processing | None]
"""A function that begins to process a result. Its arguments: the result, the request time in ns."""


class TracedIterator:
    """An iterator for one loop, which yields the results of another iterator."""

    __slots__ = ("__weakref__", "_begin", "_code", "_inner", "_present", "_tracing")

    def __init__(self, inner: Any, begin: Begin, tracing: ConsumerTracing) -> None:
        self._inner = inner
        self._begin = begin
        self._tracing = tracing
        self._present: Processing | None = None
        self._code: CodeType | None = None
        """The code of the function with the loop."""

    def __aiter__(self) -> Self:
        return type(self)(self._inner, self._begin, self._tracing)

    async def __anext__(self) -> Any:
        self._leave()
        self._code = _calling_code()
        began_ns = time_ns()
        try:
            taken = await self._inner.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self._tracing.on_request_failed(error, began_ns)
            raise
        self._present = self._begin(taken, began_ns)
        return taken

    def _leave(self) -> None:
        present, self._present = self._present, None
        if present is not None:
            present.leave()

    def __del__(self) -> None:
        present = self._present
        if present is None:
            return
        frame = sys._getframe(1)
        if frame.f_code is self._code:
            left = left_by(frame)
            if left.failed:
                fail(present.span, left.error)
        self._leave()


def _present_task() -> weakref.ref[asyncio.Task[Any]] | None:
    """Return a weak reference to the present task. All calls in a task return the same object."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else weakref.ref(task)


def _calling_code() -> CodeType | None:
    """Return the code of the nearest calling function outside of this library, or None."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _is_own(frame):
        frame = frame.f_back
    return None if frame is None else frame.f_code


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("aiokclient.")


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
