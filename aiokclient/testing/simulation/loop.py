"""An asyncio event loop with virtual time.

While a callback is ready, the clock stands still. When no callback is ready, the clock jumps to the
next timer. So an hour of timeouts takes a moment. The order of events depends on the program alone,
because there are no sockets, threads, or operating system calls. ``run_in_executor`` calls the
function in the loop itself, in the next iteration. ``resolver`` resolves names.

A deadlocked program ends: when nothing is ready and no timer is set, ``SimulationError`` lists the
tasks and the lines at which they wait. The same happens to a program that keeps iterating without
time passing, and to one that exceeds the limit of virtual time.
"""

from __future__ import annotations

import asyncio
import random
import socket
import traceback
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, Final

from aiokclient.types import public_in

JITTER_S: Final = 0.0005
"""The most seconds by which timers are late if the loop has a `jitter`."""
IDLE_TURNS: Final = 200_000
"""Number of iterations at the same virtual time after which the program is considered to spin."""


@public_in("aiokclient.testing")
class SimulationError(Exception):
    """The simulated program is deadlocked, spins, or reached the limit of virtual time."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of a simulation. ``limit_s`` limits its virtual time, in seconds from 0.

    ``resolver(host, port)`` implements ``getaddrinfo``. Without it, no name can be resolved.
    """

    def __init__(self, limit_s: float = 7 * 86400.0) -> None:
        super().__init__()
        self.resolver: Callable[[str, int], Awaitable[list[tuple[str, int]]]] | None = None
        self.jitter: random.Random | None = None
        """A generator that makes timers late, so that those of the same time have any order."""
        self.on_signal: Callable[[int], None] | None = None
        """The receiver of signals that the program sends to itself, in place of its process."""
        self._now = 0.0
        self._limit_s = limit_s
        self._turns = 0
        # asyncio's loop asks its selector to wait for IO until the next timer. Time passes nowhere
        # else, so the selector advances the clock.
        self._selector = self
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        return self._now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a timer. With `jitter`, it is late, as timers of operating systems are."""
        if self.jitter is not None:
            when += self.jitter.random() * JITTER_S
        return super().call_at(when, callback, *args, context=context)

    def leap(self, seconds: float) -> None:
        """Advance the time at once, as if the process was suspended or the loop was stalled."""
        self._now += seconds

    def select(self, timeout: float | None) -> list[Any]:
        """Advance the clock, and return no events, because there is no IO.

        Called by the run loop of asyncio.
        """
        if timeout is None:
            raise SimulationError(
                f"All tasks wait forever at {self._now:.3f} s:{self._describe_tasks()}"
            )
        before = self._now
        self._now += max(timeout, 0.0)
        self._reach_timer()
        if self._now > before:
            self._turns = 0
        else:
            self._turns += 1
            if self._turns > IDLE_TURNS:
                raise SimulationError(
                    f"The program spins without time passing at {self._now:.3f} s:"
                    f"{self._describe_tasks()}"
                )
            return []
        if self._now > self._limit_s:
            self._limit_s = float("inf")  # The remaining tasks can clean up.
            raise SimulationError(
                f"The program is still running after {self._now:.0f} s:{self._describe_tasks()}"
            )
        return []

    def _reach_timer(self) -> None:
        """Advance the clock to the next timer if that is less than the clock's resolution away.

        asyncio calls such a timer now. Without this, code that compares the time with the timer's
        would find that it is too early, and set the same timer again, forever.
        """
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if timers and self._now < timers[0].when() < self._now + self._clock_resolution:
            self._now = timers[0].when()

    def _describe_tasks(self) -> str:
        """Return a line for each task, with its name and the line of code at which it waits."""
        lines = []
        for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
            frames = task.get_stack(limit=1)
            line = traceback.format_stack(frames[-1], limit=1)[0].strip() if frames else "?"
            lines.append(f"\n  {task.get_name()}: {line}")
        return "".join(lines)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call the function in the next iteration of the loop, unless it is cancelled before."""
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
        """Return the result of the simulated resolver as stream addresses."""
        if self.resolver is None:
            raise socket.gaierror(socket.EAI_NONAME, f"The simulation cannot resolve {host!r}.")
        found = await self.resolver(str(host), int(port or 0))
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)
            for address in found
        ]

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
