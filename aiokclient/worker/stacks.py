"""The stack of a handler that runs, as text."""

from __future__ import annotations

import sys
import traceback
from types import FrameType
from typing import Any

FRAMES = 30
"""The most frames that a text has."""


def format_task(task: Any, thread_id: int | None) -> str:
    """Return the stack of a task, the innermost frame last; or that of its thread, if it has one.

    A suspended task knows only its outermost frame, so what it awaits is followed.
    """
    if thread_id is not None:
        frame = sys._current_frames().get(thread_id)
        return "" if frame is None else "".join(traceback.format_stack(frame, FRAMES))
    frames: list[FrameType] = []
    awaited = None if task is None else task.get_coro()
    while awaited is not None and len(frames) < FRAMES:
        for prefix in ("cr", "gi", "ag"):
            frame = getattr(awaited, f"{prefix}_frame", None)
            if frame is not None:
                frames.append(frame)
                awaited = getattr(awaited, f"{prefix}_await", None)
                break
        else:
            break
    lines: list[str] = []
    for frame in frames:
        summary = traceback.extract_stack(frame, 1)
        lines += traceback.format_list(summary)
    return "".join(lines)
