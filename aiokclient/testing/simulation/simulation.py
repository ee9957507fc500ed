"""A simulation of clients, brokers, and a faulty network in one thread, with virtual time.

    async def main(sim: Simulation) -> None:
        async with sim.cluster(brokers=3, topics={"orders": 6}) as cluster:
            options = {"connector": sim.connector, "clock": sim.clock}
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
                sim.network.weather.loss = 0.01
                await producer.send("orders", b"hello")

    Simulation(seed=7).run(main)

The seed determines everything: with the same seed, a program sends the same requests, byte for byte
and at the same virtual times. `sim.trace` is a hash of them. Time jumps from one event to the next.
Functions for threads run in the event loop. Exceptions carry the seed in a note.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from aiokclient.background import import_late
from aiokclient.errors import IllegalStateError
from aiokclient.testing.cluster import EmbeddedCluster
from aiokclient.testing.simulation.loop import VirtualLoop
from aiokclient.testing.simulation.network import VirtualConnector, VirtualNetwork, Weather
from aiokclient.types import public_in

T = TypeVar("T")
EPOCH_MS: Final = 1_700_000_000_000
"""The time of the wall clock when a simulation starts, in milliseconds since the Unix epoch."""


class VirtualClock:
    """The `Clock` of simulated clients: the loop's time, and a wall clock that can be set."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self._loop, self._rng = loop, rng
        self._offset_s = 0.0

    @property
    def rng(self) -> random.Random:
        return self._rng

    def monotonic(self) -> float:
        return self._loop.time()

    def time_ms(self) -> int:
        return EPOCH_MS + int((self._loop.time() + self._offset_s) * 1000)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back if `seconds` is negative.

        The monotonic clock does not change.
        """
        self._offset_s += seconds


@public_in("aiokclient.testing")
class Simulation:
    """One run with one seed. ``limit_s`` is the limit of its virtual time, in seconds.

    ``network`` has the faults, ``rng`` is for the program's own random choices, and ``clock`` and
    ``connector`` are options for clients. They exist only during `run`.
    """

    network: VirtualNetwork
    clock: VirtualClock
    connector: VirtualConnector
    loop: VirtualLoop
    rng: random.Random

    def __init__(
        self, seed: int, *, weather: Weather | None = None, limit_s: float = 7 * 86400.0
    ) -> None:
        self.seed, self._weather, self._limit_s = seed, weather, limit_s

    def run(self, main: Callable[[Simulation], Coroutine[Any, Any, T]]) -> T:
        """Run ``main(self)`` to its end and return its result.

        Raises the exception of ``main``, or `SimulationError` if the program is deadlocked, spins,
        or reaches the time limit. A note of each exception names the seed. Raises IllegalStateError
        in a thread that runs an event loop.
        """
        if asyncio._get_running_loop() is not None:
            text = "a simulation has a loop of its own: run it where no event loop runs"
            raise IllegalStateError(text)
        import_late()  # Otherwise, the start of a client would import modules in a thread.
        try:
            with asyncio.Runner(loop_factory=self._make_loop) as runner:
                return runner.run(self._run_main(main))
        except BaseException as error:
            error.add_note(self._describe_events())
            raise

    def cluster(self, **options: Any) -> EmbeddedCluster:
        """Return an embedded cluster on this network.

        Use it as ``async with sim.cluster(brokers=3) as cluster``. The options are those of
        `EmbeddedCluster`. Several clusters may run, each with its own addresses.
        """
        options.setdefault("seed", self._cluster_seeds.getrandbits(32))
        options.setdefault("clock", VirtualClock(self.loop, self._make_generator("broker clock")))
        return EmbeddedCluster(listener=self.network, **options)

    @property
    def trace(self) -> str:
        """A hash of all requests so far: their bytes, connections, and virtual times."""
        return self.network.trace.hexdigest()

    def _make_loop(self) -> VirtualLoop:
        loop = self.loop = VirtualLoop(self._limit_s)
        self.rng = self._make_generator("program")
        self._cluster_seeds = self._make_generator("clusters")
        self.network = VirtualNetwork(self._make_generator("network"), self._weather)
        self.clock = VirtualClock(loop, self._make_generator("clock"))
        self.connector = self.network.connector()
        loop.resolver = self.network.resolve
        return loop

    async def _run_main(self, main: Callable[[Simulation], Coroutine[Any, Any, T]]) -> T:
        return await main(self)

    def _make_generator(self, purpose: str) -> random.Random:
        """Return the random generator of one purpose, which is independent of the others."""
        return random.Random(f"{self.seed} {purpose}")

    def _describe_events(self) -> str:
        lines = [f"simulation seed {self.seed}, at {self.loop.time():.3f} virtual seconds;"]
        lines.append("the last events of the network:")
        lines += [f"  {when:12.6f} {what}" for when, what in list(self.network.events)[-15:]]
        return "\n".join(lines)
