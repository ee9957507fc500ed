"""The CPU time for which callbacks block a loop. It hardly depends on the machine's load."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from garbage import excluded
from loops import VARIABLE
from stolen_time import StolenTime

LIMIT_S = 0.050
"""The longest time for which the library may block a loop."""
measured = pytest.mark.flaky(reruns=2, only_rerun=["HeldTooLong"])
"""A mark for tests that call `check_held`: they fail if three runs in a row are too long.

The CPU time of a callback includes what other programs do to the caches and the processor. They can
only make it longer.
"""
SHORT_S = 0.005
"""Pauses of a virtual machine are subtracted only from CPU times that are longer than this."""


class HeldTooLong(AssertionError):
    """An error raised when a callback has blocked the loop for too long."""


def check_held(times: Sequence[float], limit_s: float = LIMIT_S, what: str = "a callback") -> None:
    """Raise HeldTooLong if any callback took `limit_s` or more, and AssertionError if none ran."""
    assert times
    if max(times) >= limit_s:
        raise HeldTooLong(f"{what} took {max(times):.3f} s of {limit_s:.3f} s")


@contextmanager
def held_times(collecting: bool = True) -> Iterator[list[float]]:
    """Yield a list that grows by the CPU seconds of each callback that runs in this thread.

    Without `collecting`, the garbage collector is disabled meanwhile. A collection may run in any
    thread that allocates an object. It examines all objects of the process, which may be many.
    """
    with _measured(asyncio.Handle, "_run", collecting) as times:
        yield times


@contextmanager
def iteration_times(collecting: bool = True) -> Iterator[list[float]]:
    """Yield a list that grows by the CPU seconds of each loop iteration, with all its callbacks."""
    with _measured(asyncio.BaseEventLoop, "_run_once", collecting) as times:
        yield times


@contextmanager
def _measured(owner: type, method: str, collecting: bool) -> Iterator[list[float]]:
    if os.environ.get(VARIABLE) in ("uvloop", "debug"):
        pytest.skip("uvloop has no handles to measure, and the debug mode takes time of its own")
    times: list[float] = []
    run, here = getattr(owner, method), threading.get_ident()
    stolen = StolenTime()

    def measured(part: Any) -> Any:
        if threading.get_ident() != here:
            return run(part)  # The embedded cluster has its own loop in its own thread.
        stolen.begin()
        began = time.thread_time()
        try:
            run(part)
        finally:
            took = time.thread_time() - began
            times.append(took if took < SHORT_S else max(took - stolen.seconds(), 0.0))

    # The collector must not examine the objects of earlier tests while this one is measured.
    gc.collect()
    gc.freeze()
    enabled = gc.isenabled()
    if not collecting:
        gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, method, measured)
            yield times
    finally:
        if enabled:
            gc.enable()
        # `gc.freeze` has excluded the objects of this test, too. Include them again, in time.
        excluded.end()
