"""The replacements that hold while a simulation runs, in the thread that runs it.

A simulation has one thread, because the order of several is not its own to decide. So a thread that
the program starts itself is refused, and functions that anyio would call in a thread are called in
the event loop, as those of `run_in_executor` and `asyncio.to_thread` are. With `explore`, a signal
that the program sends to itself ends the simulated process, not that of the test. On request, the
functions of the module `time` have virtual time.

Other threads of the process see the originals.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import wraps
from typing import Any, Final

from aiokclient.testing.simulation.loop import SimulationError, VirtualLoop

_lock: Final = threading.Lock()
_simulating: Final[set[int]] = set()
"""The threads that run simulations."""
_undo: Final[list[tuple[Any, str, Any]]] = []
"""The present replacements: objects, names of their attributes, and the originals."""
_loops: Final[dict[int, tuple[asyncio.AbstractEventLoop, float]]] = {}
"""The loops whose time is that of the module `time`, with their epochs, by thread."""
_CLOCKS: Final = ("monotonic", "perf_counter", "process_time")


@contextmanager
def run_threads_in_loop() -> Iterator[None]:
    """Refuse threads within the block, and let the event loop run the functions of anyio's."""
    ident = threading.get_ident()
    with _lock:
        if not _undo:
            _replace(threading.Thread, "start", _refuse_thread)
            _replace(signal, "raise_signal", _raise_simulated)
            if (backend := _find_anyio()) is not None:
                _replace(backend, "run_sync_in_worker_thread", _run_inline)
        _simulating.add(ident)
    try:
        yield
    finally:
        with _lock:
            _simulating.discard(ident)
            if not _simulating:
                while _undo:
                    owner, name, original = _undo.pop()
                    setattr(owner, name, original)


@contextmanager
def patch_time(loop: asyncio.AbstractEventLoop, epoch_s: float, wanted: bool) -> Iterator[None]:
    """Let the functions of the module `time` have the time of a loop within the block."""
    if not wanted:
        yield
        return
    ident = threading.get_ident()
    with _lock:
        _loops[ident] = loop, epoch_s
        for name in (*_CLOCKS, "time"):
            _replace_clock(name, nanoseconds=False)
            _replace_clock(f"{name}_ns", nanoseconds=True)
        _replace(time, "sleep", _block_loop)
    try:
        yield
    finally:
        with _lock:
            del _loops[ident]


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace an attribute, unless that was done before."""
    original = owner.__dict__[name]
    if not any(each[:2] == (owner, name) for each in _undo):
        _undo.append((owner, name, original))
        setattr(owner, name, make(original))


def _refuse_thread(original: Callable[[threading.Thread], None]) -> Callable[[Any], None]:
    @wraps(original)
    def start(thread: threading.Thread) -> None:
        target = getattr(thread, "_target", None)
        # The thread of a client that reads the stack of a blocked loop changes nothing in it.
        own = (getattr(target, "__module__", None) or "").startswith("aiokclient.")
        if own or threading.get_ident() not in _simulating:
            original(thread)
            return
        what = getattr(target, "__qualname__", None) or type(thread).__qualname__
        raise SimulationError(
            f"The program started the thread {thread.name!r}, which runs {what}. A simulation has "
            f"one thread. Use asyncio.to_thread, loop.run_in_executor, or anyio.to_thread, whose "
            f"functions a simulation calls in its event loop."
        )

    return start


def _raise_simulated(original: Callable[[int], None]) -> Callable[[int], None]:
    @wraps(original)
    def raise_signal(number: int) -> None:
        loop = asyncio._get_running_loop()
        if isinstance(loop, VirtualLoop) and loop.on_signal is not None:
            loop.on_signal(number)
        else:
            original(number)

    return raise_signal


def _find_anyio() -> Any:
    """Return anyio's backend for asyncio, or None if the program has not imported anyio."""
    if "anyio" not in sys.modules:
        return None
    try:
        from anyio._backends._asyncio import AsyncIOBackend
    except ImportError:  # The module is private: a newer anyio may lack it.
        return None
    return AsyncIOBackend


def _run_inline(original: Any) -> Any:
    async def run_sync_in_worker_thread(
        cls: Any, func: Callable[..., Any], args: tuple[Any, ...], *more: Any, **options: Any
    ) -> Any:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            return await original.__func__(cls, func, args, *more, **options)
        await cls.checkpoint()
        context = copy_context()
        limiter = options.get("limiter") or (more[1] if len(more) > 1 else None)
        async with limiter or cls.current_default_thread_limiter():
            return await loop.run_in_executor(None, context.run, func, *args)

    return classmethod(run_sync_in_worker_thread)


def _replace_clock(name: str, *, nanoseconds: bool) -> None:
    counts_from_epoch = name.startswith("time")

    def make(original: Callable[[], float]) -> Callable[[], float]:
        def read() -> float:
            found = _loops.get(threading.get_ident())
            if found is None:
                return original()
            loop, epoch_s = found
            seconds = loop.time() + (epoch_s if counts_from_epoch else 0.0)
            return int(seconds * 1e9) if nanoseconds else seconds

        return read

    _replace(time, name, make)


def _block_loop(original: Callable[[float], None]) -> Callable[[float], None]:
    def sleep(seconds: float) -> None:
        found = _loops.get(threading.get_ident())
        if found is None:
            original(seconds)
        elif isinstance(found[0], VirtualLoop):
            found[0].leap(seconds)

    return sleep
