"""A whole run: start, the first minute, the rest, a quiet end, and the comparison of usage."""

import asyncio
import gc
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokclient import threads
from aiokclient.events import Event

from .checks import RunChecks
from .entries import Entry, Logged, Trouble
from .faults import Breaker, ClientConnector, Network
from .measures import Usage, Watch, return_free_memory, usage
from .members import Members
from .sabotage import Sabotage
from .schedule import GROUPS, Fault, schedule
from .site import Site
from .workload import Workload

MINUTE = 60.0
WARM_UP_S = 5.0
QUIET_S = 12.0
"""Seconds without faults, at the end of the first minute and at the end of the last minute."""
RECOVERY_S = 60.0
"""Seconds after the last fault within which everything is settled, and usage is back to normal."""
COLLECTION_S = 10.0
"""Seconds between two collections of all garbage.

Python would collect all garbage about every two minutes here, first in the second minute. Until
then, reference cycles of closed clients add up to a third of all objects. The allocator keeps the
memory of the peak number of objects, because each of its arenas still contains some objects. So a
run would use more memory than after its first minute, although not more after ten minutes than
after five.
"""
IDLE_MS = 4_000
"""Milliseconds after which an idle connection is closed, so that usage can be compared."""
MEMBERS = {"classic": 2, "kip848": 2, "transform": 1}
LIMITS = {"attempts to connect": 60.0, "requests without records": 200.0}
"""How often one client may do these things in a second. After a lost connection, a client tries
each of three brokers five times in the first second, by the address in the metadata and as a
bootstrap server."""
WITH_RECORDS = ("Produce", "Fetch")
EXPECTED = ("Authenticated again", "Rebootstrapped", "Rebalanced", "LeaderMoved", "Disconnected")
"""Events that must occur in every run. A run without one of them has not tested enough."""


@dataclass
class Pace:
    """The speed of the workload: seconds between records, transactions, and observations."""

    record_s: float = 0.02
    transaction_s: float = 0.15
    observation_s: float = 1.0


@dataclass
class Settings:
    """The settings of a run."""

    minutes: float = 1.0
    seed: int = 1
    sabotage: str = ""

    def faults(self) -> list[list[Fault]]:
        """Return the faults of the first minute, and those of the rest of the run.

        A shorter run has those of the first minute that end before it does.
        """
        end = MINUTE * self.minutes
        first = schedule(self.seed, WARM_UP_S, MINUTE - QUIET_S)
        first = [fault for fault in first if fault.at + fault.seconds < end]
        return [first, schedule(self.seed, MINUTE, end - QUIET_S) if self.minutes > 1 else []]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Soak:
    """One run."""

    def __init__(self, settings: Settings, site: Site) -> None:
        self.settings, self.site = settings, site
        self.checks = RunChecks(site.search())
        self._sabotage = Sabotage(settings.sabotage.replace("H", ""), site.password)
        self.watch = Watch(self.note)
        self.network = Network()
        self.workload = Workload(self._options, self.note, Pace(), random.Random(settings.seed))
        self.members = Members(self.workload, self.note)
        self.events: Counter[str] = Counter()
        self._connectors: dict[str, ClientConnector] = {}
        self._began = time.monotonic()

    def note(self, entry: Entry) -> None:
        for each in self._sabotage(entry):
            self.checks.note(each)

    def say(self, text: str) -> None:
        say(f"{time.monotonic() - self._began:6.1f} s  {text}")

    def _options(self, number: int, name: str) -> dict[str, Any]:
        connector = self._connectors[name] = self.network.connector(number)
        return {
            **self.site.options(),
            "connector": connector,
            "request_timeout_ms": 8_000,
            "connections_max_idle_ms": IDLE_MS,
            # Less than the idle time, so that the connections for metadata are not closed.
            "metadata_max_age_ms": 3_000,
        }

    async def run(self) -> None:
        """Run everything, and raise BrokenInvariantError if a promise was broken."""
        loop = asyncio.get_running_loop()
        say(f"seed {self.settings.seed}: repeat the faults with `make soak SEED=...`")
        async with self.site.running():
            addresses = [
                (host, int(port))
                for host, _, port in (
                    server.rpartition(":")
                    for server in self.site.options()["bootstrap_servers"].split(",")
                )
            ]
            await self.network.prepare(addresses)
            await fill_thread_pools()
            self._began = time.monotonic()
            before = await resting_usage()
            with self.watch.watching(loop):
                await self._with_clients()
                await self._check_left(before)
            await self.network.close()
        self._check_met()
        self.checks.check()

    async def _with_clients(self) -> None:
        self.workload.on_opened(self._listen)
        async with self.workload.running():
            for group in GROUPS:
                for number in range(MEMBERS[group]):
                    self.members.join(group, number)
            await self.members.started()
            sampler = asyncio.get_running_loop().create_task(self._sample(), name="sampler")
            try:
                await self._disturbed(sampler)
                await self._finish()
                if sampler.done():
                    sampler.result()  # The sampler ends early only with an error.
            finally:
                sampler.cancel()
                await asyncio.wait([sampler])

    async def _disturbed(self, sampler: asyncio.Task[None]) -> None:
        """Perform the faults, and compare the resources in use before and after them."""
        breaker = Breaker(self.site, self.network, self.members)
        first, rest = self.settings.faults()
        whole = self.settings.minutes > 1
        if not whole:
            baseline = await self._settled("after the warm-up")
        await self._unless_broken(breaker.run(first, self.say), sampler)
        if whole:
            baseline = await self._settled("after the first minute")
            await self._unless_broken(breaker.run(rest, self.say), sampler)
        if self.settings.sabotage == "H":
            self._leave_open()
        await self._like(baseline, with_memory=whole)
        counts = Counter(fault.kind for fault in breaker.done)
        self.say(f"{len(breaker.done)} faults: {_listed(counts)}")

    async def _unless_broken(self, work: Awaitable[None], sampler: asyncio.Task[None]) -> None:
        """Await the work, but stop it as soon as the sampler has found a broken promise."""
        task = asyncio.ensure_future(work)
        await asyncio.wait([task, sampler], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
            sampler.result()
        await task

    def _leave_open(self) -> None:
        """Leave ten sockets open, so that the comparison must fail (promise H)."""
        self._forgotten = [socket.socket() for _ in range(10)]

    # -- quiet moments

    async def _settled(self, when: str) -> Usage:
        """Wait until nothing is in progress, and return the resources that are then in use."""
        await self._all_started()
        last, same = await resting_usage(), 0
        async with asyncio.timeout(RECOVERY_S):
            while same < 2:
                # Idle connections are closed in the meantime.
                await asyncio.sleep(IDLE_MS / 1000)
                now = await resting_usage()
                same = 0 if now.differences(last, with_memory=False) else same + 1
                last = now
        self.say(f"{when}: {last}")
        return last

    async def _all_started(self) -> None:
        await self.site.in_sync()
        await self.site.spread_leaders()
        await self.members.started()

    async def _like(self, baseline: Usage, *, with_memory: bool) -> None:
        """Wait until the usage is within 5% of the baseline. If it stays different, H is broken."""
        await self._all_started()
        deadline = time.monotonic() + RECOVERY_S
        while True:
            now = await resting_usage()
            differences = now.differences(baseline, with_memory=with_memory)
            if not differences or time.monotonic() > deadline:
                break
            await asyncio.sleep(1)
        self.say(f"at the end: {now}")
        for difference in differences:
            self.note(Trouble("H", f"The usage has changed. {difference}"))

    async def _finish(self) -> None:
        """Stop sending, wait until everything is settled, and let all members leave."""
        self.workload.sending = False
        deadline = time.monotonic() + RECOVERY_S
        while True:
            if not self.checks.open or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.2)
        self.checks.finish()
        self.workload.sample()
        for name, client in self.workload.clients.items():
            if client.state.name != "RUNNING":
                reasons = client.health().reasons
                self.note(Trouble("E", f"{name} is {client.state.name} at the end: {reasons}"))
        await self.members.leave_all()

    async def _check_left(self, before: Usage) -> None:
        """Check that closed clients have left nothing open (promise H)."""
        deadline = time.monotonic() + 10
        while True:
            now = await resting_usage()
            more = any(new > old for new, old in zip(now[:3], before[:3], strict=True))
            if not more or time.monotonic() > deadline:
                break
        if more:
            names = [task.get_name() for task in asyncio.all_tasks()]
            text = f"Open after all clients were closed: {now}; before: {before}; tasks: {names}"
            self.note(Trouble("H", text))

    def _check_met(self) -> None:
        self.say(f"events: {_listed(self.events)}")
        self.say(f"log: {_listed(self.watch.log_events)}")
        self.say(f"busiest second: {_listed(self.watch.busiest)}")
        if self.workload.counts:
            self.say(_listed(self.workload.counts))
        self.say(self.checks.summary())
        missing = [name for name in EXPECTED if not self.events[name]]
        if missing and not self.checks.broken:
            text = f"This run has met none of these events: {', '.join(missing)}"
            self.note(Trouble("E", text))

    # -- beside the faults

    def _listen(self, name: str, client: Any) -> None:
        """Count the events of a client until it closes."""
        events = client.events()

        async def listen() -> None:
            async for event in events:
                self.events[_kind(event)] += 1
                self.note(Logged(repr(event)))

        self.workload.spawn(f"events of {name}", listen())

    async def _sample(self) -> None:
        """Sample all clients once a second, until a promise is broken."""
        before, then, shown = self._counts(), time.monotonic(), time.monotonic()
        collected = then
        while not self.checks.broken:
            await asyncio.sleep(1)
            if time.monotonic() - collected > COLLECTION_S:
                collected = time.monotonic()
                gc.collect()
            if time.monotonic() - shown > MINUTE:
                shown += MINUTE
                self.say(f"in use: {usage()}")
            self.workload.sample()
            counts, now = self._counts(), time.monotonic()
            for (name, what), count in counts.items():
                if (name, what) in before:
                    rate = (count - before[name, what]) / (now - then)
                    self.watch.rate(name, what, rate, LIMITS[what])
            before, then = counts, now
        self.checks.check()

    def _counts(self) -> dict[tuple[str, str], int]:
        """Return how often each client has tried to connect, and sent requests without records."""
        counts = {}
        for name, client in list(self.workload.clients.items()):
            if client.state.name in ("RUNNING", "DEGRADED"):
                attempts, requests = LIMITS
                counts[name, requests] = sum(
                    metric.value["count"]
                    for metric in client.metric_values("client.request.seconds")
                    if metric.labels["api"] not in WITH_RECORDS
                )
                if name in self._connectors:
                    counts[name, attempts] = self._connectors[name].attempts
        return counts


def _kind(event: Event) -> str:
    again = getattr(event, "again", False)
    return f"{type(event).__name__} again" if again else type(event).__name__


def _listed(counts: Any) -> str:
    return ", ".join(f"{name} {count:.0f}" for name, count in sorted(counts.items()))


async def resting_usage() -> Usage:
    """Return the lowest usage of twenty moments. Short-lived tasks and sockets do not count."""
    return_free_memory()
    found = []
    for _ in range(20):
        found.append(usage())
        await asyncio.sleep(0.05)
    return Usage(*map(min, zip(*found, strict=True)))


async def fill_thread_pools() -> None:
    """Start all threads of the library, which it otherwise starts when it first needs them."""
    for run, count in ((threads.run_blocking, threads.BLOCKING_THREADS), (threads.run, 64)):
        free = threading.Event()
        waiting = [run(free.wait) for _ in range(count)]
        await asyncio.sleep(0)
        free.set()
        await asyncio.gather(*waiting)


@asynccontextmanager
async def soaking(settings: Settings) -> AsyncIterator[Soak]:
    with tempfile.TemporaryDirectory() as folder:
        yield Soak(settings, Site(Path(folder)))


async def soak(settings: Settings, failed: Callable[[Soak], None]) -> None:
    """Run with these settings. Call `failed` before an error is raised."""
    async with soaking(settings) as one:
        try:
            await one.run()
        except BaseException:
            failed(one)
            raise
