"""The event loop of the tests, which the environment variable ``AIOKCLIENT_TEST_LOOP`` selects.

- ``eager``: asyncio's loop, and the simulation's, with ``asyncio.eager_task_factory``
- ``debug``: both in asyncio's debug mode; ``PYTHONDEVMODE=1`` adds Python's other checks
- ``uvloop``: uvloop's loop; the simulation has its own
- unset: asyncio's loop

``install`` replaces ``asyncio.new_event_loop``, so that ``asyncio.run``, ``asyncio.Runner``,
pytest-asyncio, and the threads of embedded clusters use it. Tests that name a loop keep that loop.
"""

import asyncio
import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from aiokclient.testing.simulation.loop import VirtualLoop

VARIABLE = "AIOKCLIENT_TEST_LOOP"
Loop = asyncio.AbstractEventLoop


def eager(loop: Loop) -> None:
    """Let tasks start eagerly; skip the test in uvloop.

    uvloop passes an option that the eager task factory of Python 3.13.0 does not accept.
    """
    if os.environ.get(VARIABLE) == "uvloop":
        pytest.skip("uvloop cannot use asyncio.eager_task_factory of every Python")
    loop.set_task_factory(asyncio.eager_task_factory)


def debug(loop: Loop) -> None:
    loop.set_debug(True)


def install() -> None:
    """Create the loops that the environment selects. Raises ValueError for an unknown kind."""
    chosen = os.environ.get(VARIABLE, "")
    make: Callable[[], Loop] = asyncio.new_event_loop
    match chosen:
        case "":
            return
        case "eager" if not hasattr(asyncio, "eager_task_factory"):
            raise ValueError(f"{VARIABLE}=eager needs Python 3.12 or later.")
        case "eager":
            change = eager
        case "debug":
            change = debug
        case "uvloop":
            import uvloop

            make, change = uvloop.new_event_loop, close_whole
        case _:
            raise ValueError(f"{VARIABLE} must be eager, debug or uvloop, not {chosen!r}")

    def new_event_loop() -> Loop:
        loop = make()
        change(loop)
        return loop

    asyncio.new_event_loop = asyncio.events.new_event_loop = new_event_loop
    initialize = VirtualLoop.__init__

    def changed(self: VirtualLoop, *args: Any, **options: Any) -> None:
        initialize(self, *args, **options)
        change(self)

    VirtualLoop.__init__ = changed  # type: ignore[method-assign]


def close_whole(loop: Loop) -> None:
    """Let a loop of uvloop warn about open transports only after it is closed.

    If the warning is raised as an error, uvloop does not close the transport, and waits for it
    forever.
    """
    if isinstance(loop, VirtualLoop):
        return
    close = loop.close

    def close_and_warn() -> None:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            close()
        for warning in found:
            warnings.warn(warning.message, stacklevel=2)

    loop.close = close_and_warn  # type: ignore[method-assign]
