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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokclient.background import import_late
from aiokclient.errors import IllegalStateError
from aiokclient.testing.cluster import EmbeddedCluster
from aiokclient.testing.exploration.history import History
from aiokclient.testing.simulation.asgi import Application, ServiceConditions, make_http_client
from aiokclient.testing.simulation.loop import VirtualLoop
from aiokclient.testing.simulation.network import VirtualConnector, VirtualNetwork, Weather
from aiokclient.testing.simulation.patches import patch_time, run_threads_in_loop
from aiokclient.types import public_in

if TYPE_CHECKING:
    from aiokclient.testing.exploration.running import ServiceInstance

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

    ``network`` has the faults, ``rng`` is for the program's own random choices, and ``options`` are
    those of clients: ``clock`` and ``connector``. They exist only during `run`. ``state`` is a dict
    for the program; with `explore`, it outlives restarts of the service, as a database does.

    With ``patch_clocks``, `time.time`, `time.monotonic`, `time.perf_counter`, their variants in
    nanoseconds, and `time.sleep` have virtual time while the simulation runs, for modules that call
    them as attributes of `time`. `time.sleep` blocks the event loop.
    """

    network: VirtualNetwork
    clock: VirtualClock
    connector: VirtualConnector
    loop: VirtualLoop
    rng: random.Random
    kafka: EmbeddedCluster
    """The cluster that `cluster` has made last."""
    history: History
    """What `handled` and `handling` were called with. `explore` adds what it sees."""
    conditions: ServiceConditions
    context: Context
    instance: ServiceInstance | None = None

    def __init__(
        self,
        seed: int,
        *,
        weather: Weather | None = None,
        limit_s: float = 7 * 86400.0,
        patch_clocks: bool = False,
    ) -> None:
        self.seed, self._weather, self._limit_s = seed, weather, limit_s
        self._patch_clocks = patch_clocks
        self.state: dict[str, Any] = {}

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
            with (
                run_threads_in_loop(),
                asyncio.Runner(loop_factory=self._make_loop) as runner,
                patch_time(runner.get_loop(), EPOCH_MS / 1000, self._patch_clocks),
            ):
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
        self.kafka = EmbeddedCluster(listener=self.network, **options)
        self.history = History(self.kafka)
        return self.kafka

    # -- for services --------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers of `kafka`."""
        return self.kafka.bootstrap_servers

    @property
    def options(self) -> dict[str, Any]:
        """The options of each client: ``connector`` and ``clock``."""
        return {"connector": self.connector, "clock": self.clock}

    def http(self, app: Application, **options: Any) -> Any:
        """Return a client of an ASGI application, whose requests stay in memory.

        It is an `AsyncClient` of httpx2 or httpx, whichever the program has imported or is
        installed, with these options of its constructor; without them, a small client with the same
        methods, which raises ConnectionError and TimeoutError. Timeouts are in virtual time. The
        application is another process: it goes on if its client is cancelled or killed. With
        ``async with``, it is a part of the service, and its lifespan begins with the block, and
        ends with it, after the requests that are being served.
        """
        return make_http_client(self, app, options)

    def handled(self, *records: Any) -> None:
        """Note that the service has done what it does for these records.

        Call it when their effect is final, and before their offsets are committed.
        """
        if self.is_killed:
            return
        task = self.note_task()
        for record in records:
            self.history.add_handled(self.loop.time(), self._name, record, task)
        self.on_moment("handled")

    @contextmanager
    def handling(self, *records: Any) -> Iterator[None]:
        """Note that records are in hand within the block, and handled if it ends normally."""
        name = self._name
        self.note_task()
        for _ in records:
            self.history.begin_record(self.loop.time(), name)
        try:
            yield
            self.handled(*records)
        finally:
            for _ in records:
                self.history.end_record(name)

    async def work(self, seconds: float = 0.01) -> None:
        """Sleep as a handler that works so long. The fault `SlowHandlers` makes it longer."""
        self.note_task()
        await asyncio.sleep(seconds + self.conditions.work_delay)

    async def stopped(self) -> None:
        """Wait until the service is asked to end, as by SIGTERM.

        `explore` cancels the task of a service that does not await this. Without `explore`, it
        waits forever.
        """
        if self.instance is None:
            await self.loop.create_future()
            return
        self.instance.awaits_stop = True
        await self.instance.stop_requested.wait()

    @property
    def is_killed(self) -> bool:
        """Whether the process of this instance of the service was killed."""
        return self.instance is not None and self.instance.is_killed

    def on_moment(self, moment: str) -> None:
        """Tell the faults of `explore` that something happened for which they may wait."""
        if self.instance is not None:
            self.instance.run.on_moment(moment)

    def note_task(self) -> str:
        """Tell `explore` that the current task belongs to the service, and return its name.

        The name is "" for the first task of an instance.
        """
        return "" if self.instance is None else self.instance.note_current_task()

    def keep_task(self, task: asyncio.Task[Any]) -> None:
        """Tell `explore` that a task is the server's, and not one that a fault may cancel."""
        if self.instance is not None:
            self.instance.kept_tasks.add(task)

    def note_error(self, track: str, text: str) -> None:
        """Add an error to the history."""
        self.history.add_event(self.loop.time(), track, "error", text)

    @property
    def _name(self) -> str:
        return "program" if self.instance is None else self.instance.name

    @property
    def trace(self) -> str:
        """A hash of all requests so far: their bytes, connections, and virtual times."""
        return self.network.trace.hexdigest()

    def _make_loop(self) -> VirtualLoop:
        loop = self.loop = VirtualLoop(self._limit_s)
        self.rng = self._make_generator("program")
        self.history, self.conditions = History(), ServiceConditions()
        self.context = copy_context()
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
