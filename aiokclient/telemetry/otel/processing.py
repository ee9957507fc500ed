"""The span of what the application processes, current in the body of a loop.

Theory of operation. `TracedIterator` stands between a loop and the iterator of the consumer. When
it delivers records, it makes their span the current one in the context of the task, which is that
of the loop's body and of the tasks started there. The next request ends that: it restores the
context, then ends the span. So does the end of the iterator, which a loop drops when its body is
left in any other way (see `leaving`). Each loop therefore has an iterator of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import time_ns
from types import CodeType, FrameType
from typing import Any, Self

from opentelemetry.context import Context
from opentelemetry.trace import Span

from aiokclient.telemetry.otel.leaving import left_by
from aiokclient.telemetry.otel.spans import attach, fail, restore

__all__ = ["Processing", "TracedIterator"]


class Processing:
    """Records that are being processed. Their span is current until `leave`.

    With `ends`, `leave` also ends the span.
    """

    __slots__ = ("_before", "_context", "_ends", "span")

    def __init__(self, span: Span, context: Context, *, ends: bool = True) -> None:
        self.span = span
        self._context = context
        self._ends = ends
        self._before = attach(context)

    def leave(self) -> None:
        """End the processing in the present task."""
        restore(self._context, self._before)
        if self._ends:
            self.span.end()


Begin = Callable[[Any, int], Processing | None]
"""Begins to process what an iterator has returned, requested at a time in nanoseconds."""
Failed = Callable[[BaseException, int], None]
"""Records that a request at a time has failed."""


class TracedIterator:
    """An iterator over what another one returns, for one loop."""

    __slots__ = ("__weakref__", "_begin", "_code", "_failed", "_inner", "_present")

    def __init__(self, inner: Any, begin: Begin, failed: Failed) -> None:
        self._inner = inner
        self._begin = begin
        self._failed = failed
        self._present: Processing | None = None
        self._code: CodeType | None = None
        """The code of the function with the loop."""

    def __aiter__(self) -> Self:
        return type(self)(self._inner, self._begin, self._failed)

    async def __anext__(self) -> Any:
        self._leave()
        self._code = _calling_code()
        began_ns = time_ns()
        try:
            taken = await self._inner.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self._failed(error, began_ns)
            del self
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


def _calling_code() -> CodeType | None:
    """Return the code of the function, outside of this library, that requests something."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _is_own(frame):
        frame = frame.f_back
    return None if frame is None else frame.f_code


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("aiokclient.")
