"""An asyncio event loop on which time is a number.

While a callback is ready the clock stands still; when none is, it jumps to the next timer. So
an hour of timeouts takes a moment, and the order of all that happens depends on the program
alone: no sockets, no threads, no operating system. ``run_in_executor`` calls the function in
the loop itself, at its next turn, and names are resolved by whoever set ``resolver``.

A program that would wait for ever does not: when nothing is ready and no timer is set,
``SimulationError`` names the tasks and where they wait. So it does for a program that turns
round and round without time passing, and past a limit of virtual time.
"""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final

__all__ = ["SimulationError", "VirtualLoop"]

IDLE_TURNS: Final = 200_000
"""Turns of the loop at one instant, beyond which the program is taken to spin."""


class SimulationError(Exception):
    """The simulated program waits for ever, spins, or reached the limit of virtual time."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. ``limit_s`` bounds virtual time, in seconds since its start at 0.

    ``resolver(host, port)`` answers ``getaddrinfo``; without one every name fails.
    """

    def __init__(self, limit_s: float = 7 * 86400.0) -> None:
        super().__init__()
        self.resolver: Callable[[str, int], Awaitable[list[tuple[str, int]]]] | None = None
        self._now = 0.0
        self._limit_s = limit_s
        self._turns = 0
        # asyncio's loop asks its selector to wait for IO until the next timer: that is the
        # one place where time passes, so the selector is what moves the clock.
        self._selector = self
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def leap(self, seconds: float) -> None:
        """Let time pass with nothing running: a suspended process, a stalled loop."""
        self._now += seconds

    def select(self, timeout: float | None) -> list[Any]:
        """Nothing comes from outside; move the clock instead. Called by asyncio's run loop."""
        if timeout is None:
            raise SimulationError(f"all wait for ever at {self._now:.3f} s:{self._waiting()}")
        if timeout <= 0:
            self._turns += 1
            if self._turns > IDLE_TURNS:
                raise SimulationError(f"time stands still at {self._now:.3f} s:{self._waiting()}")
            return []
        self._turns = 0
        self._now += timeout
        if self._now > self._limit_s:
            self._limit_s = float("inf")  # what is left may still clean up
            raise SimulationError(f"still running after {self._now:.0f} s:{self._waiting()}")
        return []

    def _waiting(self) -> str:
        """A line a task: its name and the line at which it waits."""
        lines = []
        for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
            frames = task.get_stack(limit=1)
            place = traceback.format_stack(frames[-1], limit=1)[0].strip() if frames else "?"
            lines.append(f"\n  {task.get_name()}: {place}")
        return "".join(lines)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call the function in the loop, at its next turn; not at all if cancelled before."""
        future = self.create_future()
        self.call_soon(self._run_inline, future, func, args)
        return future

    def _run_inline(
        self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        if future.done():
            return
        try:
            result = func(*args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        """What the simulated resolver says, as stream addresses."""
        if self.resolver is None:
            raise socket.gaierror(socket.EAI_NONAME, f"no simulated resolver knows {host!r}")
        found = await self.resolver(str(host), int(port or 0))
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place) for place in found
        ]

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
