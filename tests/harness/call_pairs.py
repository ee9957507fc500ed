"""Seeded pairs of public calls of clients of all kinds, cancelled at their awaits.

Each program opens clients of several kinds, which may share a client, and runs pairs of calls
beside each other. It starts the second call, and cancels either of them, after random numbers of
iterations of the event loop. These must hold:

    D       every call ends, and the close by its time limit
    H       nothing is left when all objects are closed: no task, and no connection
    K       a call raises only errors of the library and its own cancellation
    G       a new member owns and reads the partitions of the group when all others have gone
    L       no background task has died, and no task keeps an error that nobody retrieves

``python tests/harness/call_pairs.py SEED`` runs one seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ledger import BrokenInvariantError
from owned import check_successor

from aiokclient import (
    Admin,
    Client,
    Consumer,
    GroupMember,
    GroupProtocol,
    Producer,
    ShareConsumer,
    State,
    TopicPartition,
)
from aiokclient.errors import KafkaError
from aiokclient.testing import EmbeddedCluster, Simulation

T0 = TopicPartition("t", 0)
PAIRS = 8
CLOSE_S = 8.0
Call = Callable[[Any], Awaitable[Any]]

LIFECYCLE: Mapping[str, Call] = {
    "start": lambda c: c.start(),
    "start without waiting": lambda c: c.start(wait=False),
    "close": lambda c: c.close(),
    "close at once": lambda c: c.close(0.0),
    "leave after an error": lambda c: c.__aexit__(LookupError, LookupError("no"), None),
    "client_instance_id": lambda c: c.client_instance_id(timeout=1.0),
}
"""The calls that every object has."""

CALLS: Mapping[type[Any], Mapping[str, Call]] = {
    Client: {},
    Admin: {
        "list_topics": lambda c: c.list_topics(),
        "describe_groups": lambda c: c.describe_groups(["g"]),
        "list_share_group_offsets": lambda c: c.list_share_group_offsets({"s": [T0]}),
        "create_share_group": lambda c: c.create_share_group("s", ["t"], "latest"),
        "delete_records": lambda c: c.delete_records({T0: 0}),
        "describe_producers": lambda c: c.describe_producers([T0]),
        "fence_producers": lambda c: c.fence_producers(["x"]),
    },
    Producer: {
        "send": lambda c: c.send_and_wait("t", b"x"),
        "flush": lambda c: c.flush(),
    },
    Consumer: {
        "poll": lambda c: c.poll(timeout=0.5),
        "position": lambda c: c.position(T0),
    },
    ShareConsumer: {
        "poll": lambda c: c.poll(timeout=0.5, tracked=True),
        "get": lambda c: c.get(timeout=0.5),
        "batch": lambda c: asyncio.wait_for(anext(c.batches(3)), 0.5),
        "tracked": lambda c: asyncio.wait_for(anext(c.tracked(2)), 0.5),
        "processing": lambda c: process(c),
        "done and commit": lambda c: settle(c),
        "renew and commit": lambda c: renew(c),
        "mark_processed": lambda c: mark_processed(c),
        "drain": lambda c: c.drain(0.5),
        "lag": lambda c: c.lag(timeout=1.0),
        "lock_lost": lambda c: wait_for_loss(c),
        "stop": lambda c: stop(c),
        "subscribe": lambda c: subscribe(c),
    },
    GroupMember: {
        "next generation": lambda c: asyncio.wait_for(anext(c.generations()), 1.0),
        "rejoin": lambda c: rejoin(c),
    },
}
"""The other calls of each kind."""


class Nothing(GroupProtocol):
    """A group protocol that assigns nothing."""

    name = "nothing"

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return {}


async def take(consumer: ShareConsumer[Any, Any]) -> list[Any]:
    return await consumer.poll(timeout=0.5, max_records=2, tracked=True)


async def process(consumer: ShareConsumer[Any, Any]) -> None:
    for record in await take(consumer):
        async with consumer.processing(record):
            await asyncio.sleep(0.01)


async def settle(consumer: ShareConsumer[Any, Any]) -> None:
    consumer.done(await take(consumer))
    await consumer.commit(timeout=1.0)


async def renew(consumer: ShareConsumer[Any, Any]) -> None:
    consumer.renew(await take(consumer))
    await consumer.commit(timeout=1.0)


async def mark_processed(consumer: ShareConsumer[Any, Any]) -> None:
    consumer.mark_processed()


async def wait_for_loss(consumer: ShareConsumer[Any, Any]) -> None:
    for record in await take(consumer):
        await asyncio.wait_for(consumer.lock_lost(record), 0.5)


async def stop(consumer: ShareConsumer[Any, Any]) -> None:
    consumer.stop()


async def subscribe(consumer: ShareConsumer[Any, Any]) -> None:
    consumer.unsubscribe()
    await asyncio.sleep(0.01)
    consumer.subscribe(["t"])


async def rejoin(member: GroupMember) -> None:
    member.rejoin("a pair of calls")


class Outcome(NamedTuple):
    """The outcome of a run, which is equal for equal seeds."""

    seed: int
    trace: str
    account: list[str]


class Logged(logging.Handler):
    """The lines of the log about errors, without those about failed deliveries."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", None) != "deliveries_failed":
            self.lines.append(record.getMessage())

    def check(self, seed: int) -> None:
        """L: raise BrokenInvariantError if anything was logged."""
        if self.lines:
            raise BrokenInvariantError(f"L: seed {seed}: {self.lines[:3]}")


@contextlib.contextmanager
def logging_errors() -> Iterator[Logged]:
    """Collect what the library and asyncio log about errors within the block."""
    logged = Logged()
    loggers = [logging.getLogger(name) for name in ("aiokclient", "asyncio")]
    for logger in loggers:
        logger.addHandler(logged)
    try:
        yield logged
    finally:
        for logger in loggers:
            logger.removeHandler(logged)


def run(seed: int) -> Outcome:
    """Run one seed. If the run fails, raise its error with the seed in a note."""
    with logging_errors() as logged:
        outcome = Simulation(seed, limit_s=3600).run(Program().main)
        gc.collect()
    logged.check(seed)
    return outcome


class Program:
    """One run."""

    sim: Simulation
    cluster: EmbeddedCluster

    def __init__(self) -> None:
        self.account: list[str] = []

    async def main(self, sim: Simulation) -> Outcome:
        self.sim = sim
        async with sim.cluster(brokers=2, topics={"t": 1}) as self.cluster:
            async with Admin(**self.options()) as admin:
                await admin.create_share_group("s", ["t"], start="earliest")
            for _ in range(PAIRS):
                await self.pair()
            await asyncio.sleep(1)
            self.check_leaks()
            account = sim.trace, self.account
            if "c" in self.cluster.groups:
                await check_successor(self, "c", **self.options())
        return Outcome(sim.seed, *account)

    def options(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "connector": self.sim.connector,
            "clock": self.sim.clock,
        }

    def made(self, kind: type[Any], shared: Client | None) -> Any:
        """Return a new object, which is not started."""
        options = self.options()
        if shared is not None and kind is not Client:
            options = {"client": shared}
        else:
            options |= {"request_timeout_ms": 2_000, "default_api_timeout_ms": 4_000}
        if kind is GroupMember:
            return kind("g", protocol_type="t", protocols=[Nothing()], **options)
        if kind is ShareConsumer:
            return kind("t", group_id="s", **options)
        if kind is Consumer:
            return kind("t", group_id=self.sim.rng.choice([None, "c"]), **options)
        return kind(**options)

    async def pair(self) -> None:
        """Run two calls beside each other, of one object or of a client and its child."""
        rng = self.sim.rng
        kind = rng.choice(list(CALLS))
        if kind is ShareConsumer:
            self.cluster.produce("t", [b"x"] * 6)
        shared = self.made(Client, None) if rng.random() < 0.3 and kind is not Client else None
        client = self.made(kind, shared)
        if shared is not None:
            await shared.start()
        if rng.random() < 0.5:
            await client.start()
        calls = {**LIFECYCLE, **CALLS[kind]}
        names = [rng.choice(list(calls)) for _ in range(rng.choice([2, 2, 3]))]
        self.account.append(f"{kind.__name__}: {', '.join(names)}")
        tasks: list[asyncio.Task[Any]] = []
        for name in names:
            on = shared if shared is not None and name == "close" and rng.random() < 0.5 else client
            tasks.append(asyncio.create_task(self.guarded(calls[name], on, name)))
            await self.wait_a_little()
            if rng.random() < 0.4:
                rng.choice(tasks).cancel()
                await self.wait_a_little()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()
        for each in (client, shared):
            if each is not None:
                began = self.sim.loop.time()
                await self.guarded(lambda c: c.close(5.0), each, "close")
                if self.sim.loop.time() - began > CLOSE_S or each.state is not State.CLOSED:
                    raise BrokenInvariantError(f"D: {each!r} did not close: {self.account[-1]}")

    async def wait_a_little(self) -> None:
        """Wait for some iterations of the loop, or for some milliseconds."""
        rng = self.sim.rng
        if rng.random() < 0.6:
            for _ in range(rng.randrange(12)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(rng.uniform(0.0, 0.03))

    async def guarded(self, call: Call, client: Any, name: str) -> None:
        """K: await a call, which may raise errors of the library."""
        try:
            await call(client)
        except (KafkaError, TimeoutError, StopAsyncIteration):
            return
        except Exception as error:
            raise BrokenInvariantError(f"K: {name} raised {error!r}: {self.account[-1]}") from error

    def check_leaks(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if tasks or self.sim.network.connections:
            raise BrokenInvariantError(f"H: Tasks or connections are left: {tasks}")


if __name__ == "__main__":
    sys.stdout.write(f"{run(int(sys.argv[1]))}\n")
