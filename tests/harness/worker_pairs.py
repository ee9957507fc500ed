"""Seeded calls of workers beside each other, cancelled at their awaits.

Each round makes a worker of some kind over a topic of its own, and makes two or three calls of the
worker, of its consumer, and of their clients. It starts each call, and cancels some of them, after
random numbers of iterations of the event loop. At last the worker is stopped, and another one of
its group follows. These must hold:

    D       every call ends within the bound of a stop, and every close within its time limit
    H       nothing is left: no task, no connection, and no handler of a signal
    K       a call raises only errors of the library and its own cancellation
    L       no background task has died, and no task keeps an error that nobody retrieves
    R       no commit is beyond the lowest record not done, and with the worker that follows, each
            record is done or in the dead letters; in transactions each result is there once

``python tests/harness/worker_pairs.py SEED`` runs one seed.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from call_pairs import logging_errors
from interrupt import Interrupted, interrupt
from ledger import BrokenInvariantError

from aiokclient import Admin, Client, Consumer, Producer, ShareConsumer, TopicPartition
from aiokclient.errors import KafkaError
from aiokclient.testing import EmbeddedCluster, Simulation
from aiokclient.worker import Batch, BatchError, Exponential, Retry, Worker

ROUNDS = 5
RECORDS = 14
"""The records of each of the two partitions."""
DRAIN_S, CLOSE_S = 2.0, 3.0
QUICK = Exponential(0.05, max=0.1)

KINDS: Mapping[str, Mapping[str, Any]] = {
    "partition": {},
    "key": {"order": "key", "concurrency": 3},
    "none": {"order": None, "concurrency": 5},
    "batch": {"order": None, "batch": Batch(3, max_wait=0.02)},
    "topics": {"order": None, "topics": True},
    "transactions": {"order": None, "transactions": True, "concurrency": 4},
    "transactions by key": {"order": "key", "transactions": True},
    "share": {"share": True, "concurrency": 4},
}


class Poison(Exception):
    """The exception of a record that always fails."""


class Round:
    """A worker, its consumer, and their clients, over a topic of their own."""

    def __init__(self, program: Program, number: int, kind: str, is_shared: bool) -> None:
        self.program, self.kind, self.options = program, kind, dict(KINDS[kind])
        self.cluster = program.cluster
        self.topic, self.out = f"t{number}", f"out{number}"
        self.dead, self.again = f"dead{number}", f"again{number}"
        self.group = f"g{number}"
        self.shares = bool(self.options.pop("share", False))
        self.topics = bool(self.options.pop("topics", False))
        self.transactions = bool(self.options.pop("transactions", False))
        self.runs: Counter[int] = Counter()
        self.done: set[int] = set()
        self.client = Client(**program.options()) if is_shared else None
        self.producer: Producer[Any, Any] | None = None

    async def prepare(self) -> None:
        for topic in (self.topic, self.out, self.dead, self.again):
            self.cluster.create_topic(topic, partitions=2 if topic == self.topic else 1)
        if self.shares:
            async with Admin(**self.program.options()) as admin:
                await admin.create_share_group(self.group, [self.topic], start="earliest")
        for partition in range(2):
            values = [partition * RECORDS + number for number in range(RECORDS)]
            records = [(b"%d" % (value % 3), b"%d" % value) for value in values]
            self.cluster.produce(self.topic, records, partition)
        if self.client is not None:
            await self.client.start()
        self.make_worker(self.client)

    def make_worker(self, client: Client | None) -> None:
        shared = {"client": client} if client is not None else self.program.options()
        self.consumer: Any
        if self.shares:
            self.consumer = ShareConsumer(self.topic, group_id=self.group, **shared)
        else:
            self.consumer = Consumer(
                self.topic,
                group_id=self.group,
                auto_offset_reset="earliest",
                enable_auto_commit=not self.transactions,
                auto_commit_interval_ms=100,
                session_timeout_ms=6000,
                heartbeat_interval_ms=500,
                **shared,
            )
        if self.transactions:
            self.producer = Producer(transactional_id=self.group, **shared)
        topics = [(0.2, self.again)] if self.topics else None
        self.worker = Worker(
            self.consumer,
            self.handle_list if "batch" in self.options else self.handle,
            retry=Retry(3, QUICK, topic=topics),
            dead_letter=self.dead,
            producer=self.producer,
            drain_timeout=DRAIN_S,
            name=self.group,
            **self.options,
        )

    # -- handlers

    async def handle_list(self, records: list[Any], worker: Worker) -> None:
        failed: dict[Any, BaseException] = {}
        for record in records:
            try:
                await self.handle(record, worker)
            except Exception as error:
                failed[record] = error
        if failed:
            raise BatchError(failed)

    async def handle(self, record: Any, worker: Worker) -> None:
        value = int(record.value)
        self.runs[value] += 1
        fate = value % 7
        if fate == 0:
            await asyncio.sleep(0.02)
        elif fate == 1:
            raise Poison(f"{value}")
        elif fate == 2 and self.runs[value] == 1:
            raise ValueError(f"{value} fails once")
        elif fate == 3:
            try:
                await asyncio.sleep(0.03)
            finally:
                await asyncio.sleep(0.01)
        elif fate == 4:
            try:
                await asyncio.sleep(0.03)
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)
                return  # It ignores its cancellation, so that its record is not done.
        worker.send(self.out, record.value)
        self.done.add(value)

    # -- checks

    def list_values(self, topic: str) -> list[int]:
        return [int(record.value or b"") for record in self.cluster.records(topic)]

    def check_commits(self) -> None:
        """R: check that no commit is beyond the lowest record that is not done."""
        if self.shares or self.topics:
            return
        done = self.done | set(self.list_values(self.dead))
        for tp, stored in self.cluster.committed(self.group).items():
            first = tp.partition * RECORDS
            lowest = next((n for n in range(RECORDS) if first + n not in done), RECORDS)
            # Each transaction has also a marker, but in another topic.
            if stored.offset > lowest:
                text = f"R: {tp}: {stored.offset} is committed, beyond {lowest}"
                raise BrokenInvariantError(text)

    def is_complete(self) -> bool:
        values = set(range(2 * RECORDS))
        dead = {value for value in values if value % 7 == 1}
        if {*self.list_values(self.out)} < values - dead or {*self.list_values(self.dead)} < dead:
            return False
        if self.shares:
            return True
        committed = self.cluster.committed(self.group)
        tps = [TopicPartition(self.topic, index) for index in range(2)]
        return all(tp in committed and committed[tp].offset == RECORDS for tp in tps)

    async def check_results(self) -> None:
        """R: let another worker follow, and check that each record is done or dead."""
        self.make_worker(None)
        running = asyncio.create_task(self.worker.run())
        for _ in range(1200):
            if self.is_complete() or running.done():
                break
            await asyncio.sleep(0.1)
        else:
            raise BrokenInvariantError(f"R: the next worker is not done: {self.worker.health()}")
        await self.worker.drain()
        await running
        if self.producer is not None:
            await self.producer.close()
        self.check_commits()
        if not self.transactions:
            return
        for topic in (self.out, self.dead):
            options: dict[str, Any] = {"isolation_level": "read_committed"}
            options |= {"auto_offset_reset": "earliest", **self.program.options()}
            async with Consumer[Any, Any](topic, **options) as reader:
                counts = Counter([int(record.value or b"") async for record in reader.until_end()])
            if set(counts.values()) != {1}:
                raise BrokenInvariantError(f"R: results are there twice in {topic}: {counts}")


async def stop(each: Round) -> None:
    each.worker.stop()


async def stop_consumer(each: Round) -> None:
    each.consumer.stop()


async def show_health(each: Round) -> None:
    for _ in range(5):
        assert each.worker.health().name == each.group
        await asyncio.sleep(0.01)


async def send(each: Round) -> None:
    each.worker.send(each.out, b"0")


async def signal_worker(each: Round) -> None:
    each.worker.on_signal(signal.SIGTERM)


async def close_client(each: Round) -> None:
    if each.client is not None:
        await each.client.close()


async def close_producer(each: Round) -> None:
    if each.producer is not None:
        await each.producer.close()


CALLS: Mapping[str, Callable[[Round], Awaitable[Any]]] = {
    "run": lambda each: each.worker.run(),
    "stop": stop,
    "drain": lambda each: each.worker.drain(),
    "drain at once": lambda each: each.worker.drain(0),
    "health": show_health,
    "send": send,
    "signal": signal_worker,
    "consumer starts": lambda each: each.consumer.start(),
    "consumer stops": stop_consumer,
    "consumer closes": lambda each: each.consumer.close(),
    "producer closes": close_producer,
    "client closes": close_client,
}
"""The calls, which have the round as their argument."""


class Outcome(NamedTuple):
    """The outcome of a run, which is equal for equal seeds."""

    seed: int
    trace: str
    account: list[str]


class Program:
    """One run."""

    sim: Simulation
    cluster: EmbeddedCluster

    def __init__(self) -> None:
        self.account: list[str] = []

    async def main(self, sim: Simulation) -> Outcome:
        self.sim = sim
        async with sim.cluster(brokers=2, topics={}) as self.cluster:
            for number in range(ROUNDS):
                await self.run_round(number)
        return Outcome(sim.seed, sim.trace, self.account)

    def options(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "connector": self.sim.connector,
            "clock": self.sim.clock,
            "request_timeout_ms": 2_000,
            "default_api_timeout_ms": 8_000,
            "close_timeout_ms": int(CLOSE_S * 1000),
        }

    async def run_round(self, number: int) -> None:
        rng = self.sim.rng
        each = Round(self, number, rng.choice(list(KINDS)), rng.random() < 0.4)
        await each.prepare()
        if rng.random() < 0.4:
            await each.consumer.start()
        names = ["run", *(rng.choice(list(CALLS)) for _ in range(rng.choice([1, 2, 2])))]
        self.account.append(f"{each.kind}: {', '.join(names)}")
        tasks: list[asyncio.Task[Any]] = []
        for name in names:
            tasks.append(asyncio.create_task(self.guarded(name, each)))
            await self.wait_a_little()
            if rng.random() < 0.4:
                rng.choice(tasks).cancel()
                await self.wait_a_little()
        each.worker.stop()
        _, late = await asyncio.wait(tasks, timeout=DRAIN_S + CLOSE_S + 1.0)
        if late:
            raise BrokenInvariantError(f"D: {late} go on: {self.account[-1]}")
        for task in tasks:
            if not task.cancelled():
                task.result()
        each.check_commits()
        await self.close_all([each.consumer, each.producer, each.client])
        await self.check_leaks()
        await each.check_results()
        await self.check_leaks()

    async def close_all(self, objects: list[Any]) -> None:
        for client in objects:
            if client is not None:
                began = self.sim.loop.time()
                await client.close()
                if self.sim.loop.time() - began > CLOSE_S + 0.5:
                    raise BrokenInvariantError(f"D: {client!r} closed late: {self.account[-1]}")

    async def wait_a_little(self) -> None:
        """Wait for some iterations of the loop, or for some milliseconds."""
        rng = self.sim.rng
        if rng.random() < 0.5:
            for _ in range(rng.randrange(20)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(rng.choice((0.01, 0.1, 1.0)) * rng.random())

    async def guarded(self, name: str, each: Round) -> None:
        """K: await a call, which may raise errors of the library."""
        try:
            await CALLS[name](each)
        except KafkaError:
            return
        except Exception as error:
            raise BrokenInvariantError(f"K: {name} raised {error!r}: {self.account[-1]}") from error

    async def check_leaks(self) -> None:
        await asyncio.sleep(0.5)  # The brokers notice closed connections.
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if tasks or self.sim.network.connections:
            text = f"H: tasks or connections are left: {tasks}: {self.account[-1]}"
            raise BrokenInvariantError(text)
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            raise BrokenInvariantError(f"H: a handler of SIGTERM is left: {self.account[-1]}")


def cancel_run(kind: str, way: str, suspension: int) -> Interrupted:
    """Cancel the run of a worker at a suspension, and check what must hold. See `interrupt`."""

    async def main(sim: Simulation) -> Interrupted:
        program = Program()
        program.sim = sim
        program.account.append(f"{kind}: {way}, suspension {suspension}")
        async with sim.cluster(brokers=2, topics={}) as program.cluster:
            each = Round(program, 0, kind, is_shared=False)
            await each.prepare()
            stopping = asyncio.get_running_loop().call_later(1.0, each.worker.stop)
            outcome = await interrupt(each.worker.run(), way=way, suspension=suspension)
            stopping.cancel()
            each.check_commits()
            await program.close_all([each.consumer, each.producer])
            await program.check_leaks()
            await each.check_results()
            await program.check_leaks()
        return outcome

    with logging_errors() as logged:
        outcome = Simulation(1, limit_s=3600).run(main)
        gc.collect()
    logged.check(1)
    return outcome


def run(seed: int) -> Outcome:
    """Run one seed. If the run fails, raise its error with the seed in a note."""
    with logging_errors() as logged:
        outcome = Simulation(seed, limit_s=3600).run(Program().main)
        gc.collect()
    logged.check(seed)
    return outcome


if __name__ == "__main__":
    sys.stdout.write(f"{run(int(sys.argv[1]))}\n")
