"""A group of workers under faults, with a record of what each handler did.

Each record has a fate, which its number and the seed determine: it is handled at once, or its
handler fails a few times before that, or it always fails. So each record must be done, or be in the
dead letters, exactly as its fate says, although processes are killed and partitions move.

Whenever a handler begins and ends, and each quarter of a second, `WorkerFleet` checks:

- the commit of a partition, as the coordinator has it, is not beyond its lowest record not done;
- all earlier records of the lane were done before a handler began, whichever process had them;
- one process handles one record of a lane at a time.

A record is done when its handler has ended without an error, and what it has sent is in the log, or
when its dead letter is in the log.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Hashable
from typing import Any

from group_world import PROTOCOLS
from schema_values import Schemas
from world import World

from aiokclient import Consumer, TopicPartition
from aiokclient.worker import Batch, BatchError, Exponential, Retry, Worker

KEYS = 7
PARTITIONS = 6
SENDS = 4
"""Each SENDS-th record is sent on by its handler."""
SHORT = Exponential(0.1, max=1.0)
IDS = 40
"""Each so many records of a partition have a schema of their own, if there is a registry."""


class Poison(Exception):
    """The exception of a record that always fails."""


VARIANTS: list[dict[str, Any]] = [
    {"protocol": "eager"},
    {"protocol": "kip848"},
    {"protocol": "cooperative", "registry": True},
    {"protocol": "kip848", "registry": True},
]
"""Options of fleets, which the runs of many seeds take in turn."""


def place_in(value: Any) -> tuple[int, int]:
    """Return the partition and the offset that a value names, with or without a schema's id."""
    text = value if isinstance(value, str) else (value or b"").decode()
    number, _, offset = text.rpartition(":")[2].partition("-")
    return int(number), int(offset)


class Registry(dict[bytes, BaseException]):
    """The errors of a registry, which are the same for all ids while it is down."""

    is_down = False

    def __contains__(self, schema: object) -> bool:
        return self.is_down

    def __getitem__(self, schema: bytes) -> BaseException:
        return ConnectionError("the registry is down")


class WorkerFleet:
    """Workers of one group that start, drain, are killed, and are cut off, as the seed says.

    With `registry`, values have ids of schemas, which each process asks for, and the registry is
    down at times.
    """

    def __init__(
        self,
        world: World,
        seed: int,
        order: Any,
        *,
        batch: bool = False,
        concurrency: int = 8,
        protocol: str = "eager",
        registry: bool = False,
    ) -> None:
        self.world, self.order, self.batch = world, order, batch
        self.concurrency, self.protocol = concurrency, protocol
        self.registry = Registry() if registry else None
        self.rng = random.Random(seed)
        self.running: dict[str, tuple[Worker, asyncio.Task[None]]] = {}
        self.made = 0
        self.records: dict[tuple[int, int], tuple[bytes, int]] = {}
        """The key and the number of failures of each record; -1 for one that always fails."""
        self.lanes: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
        self.position: Counter[Hashable] = Counter()
        """For each lane, the number of its first records that are done."""
        self.done: set[tuple[int, int]] = set()
        self.lowest: Counter[int] = Counter()
        self.failures: Counter[tuple[int, int]] = Counter()
        self.calls: Counter[tuple[str, Hashable]] = Counter()
        self.total = 0
        self.ends = {("dead", partition): 0 for partition in range(PARTITIONS)}
        self.ends["out", 0] = 0
        """The offsets up to which the logs of finished records were read."""
        self.violations: list[str] = []

    # -- records

    async def fill(self, count: int) -> None:
        """Write `count` records to each partition, and choose the fate of each."""
        for partition in range(PARTITIONS):
            values = []
            for offset in range(count):
                draw = self.rng.random()
                fate = -1 if draw < 0.02 else self.rng.choice((1, 2)) if draw < 0.12 else 0
                key = b"%d" % self.rng.randrange(KEYS)
                self.records[partition, offset] = key, fate
                self.lanes[self.name_lane(partition, key)].append((partition, offset))
                value = b"%d-%d" % (partition, offset)
                if self.registry is not None:
                    value = b"%d:%b" % (offset // IDS, value)
                values.append((key, value))
            self.world.cluster.produce("t", values, partition)
        self.total = PARTITIONS * count

    def name_lane(self, partition: int, key: bytes) -> Hashable:
        if self.order == "partition":
            return partition
        return (partition, key)

    # -- handlers

    async def handle_list(self, name: str, records: list[Any], worker: Worker) -> None:
        failed: dict[Any, BaseException] = {}
        for record in records:
            self.begin_record(name, record)
        try:
            await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.1)))
            for record in records:
                try:
                    self.decide_fate(record, worker)
                except Exception as error:
                    failed[record] = error
        finally:
            for record in records:
                self.end_record(name, record)
        for record in records:
            if record not in failed and not self.is_sent_on(record):
                self.mark_done((record.partition, record.offset))
        if failed:
            # What the others have sent must be acknowledged before they are done.
            raise BatchError(failed)

    async def handle(self, name: str, record: Any, worker: Worker) -> None:
        self.begin_record(name, record)
        try:
            await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.01, 0.1)))
            self.decide_fate(record, worker)
        finally:
            self.end_record(name, record)
        if not self.is_sent_on(record):
            self.mark_done((record.partition, record.offset))

    def is_sent_on(self, record: Any) -> bool:
        return bool(record.offset % SENDS == 0)

    def decide_fate(self, record: Any, worker: Worker) -> None:
        place = record.partition, record.offset
        key, failures = self.records[place]
        assert record.key == key
        if failures < 0:
            raise Poison(f"{place}")
        if self.failures[place] < failures:
            self.failures[place] += 1
            raise ValueError(f"{place} fails")
        if self.is_sent_on(record):
            worker.send("out", b"%d-%d" % place)

    def begin_record(self, name: str, record: Any) -> None:
        place = record.partition, record.offset
        if self.order is None:
            return
        lane = self.name_lane(record.partition, record.key)
        if not self.batch:
            self.calls[name, lane] += 1
            if self.calls[name, lane] != 1:
                self.violations.append(f"{name} handles two records of {lane} at a time: {place}")
        self.check()
        if self.batch:  # Earlier records of the same list are handled with it.
            return
        entries, first = self.lanes[lane], self.position[lane]
        while first < len(entries) and entries[first] in self.done:
            first += 1
        self.position[lane] = first
        if first < len(entries) and entries[first] < place:
            self.violations.append(f"{name} handles {place} before {entries[first]}")

    def end_record(self, name: str, record: Any) -> None:
        if self.order is not None and not self.batch:
            self.calls[name, self.name_lane(record.partition, record.key)] -= 1

    # -- checks

    def mark_done(self, place: tuple[int, int]) -> None:
        self.done.add(place)

    def read_logs(self) -> None:
        """Mark the records as done that are in the dead letters, or were sent on."""
        for topic, partition in self.ends:
            start = self.ends[topic, partition]
            for record in self.world.cluster.records(topic, partition, start=start):
                place = place_in(record.value)
                if topic == "dead" and self.records[place][1] >= 0:
                    self.violations.append(f"{place} is in the dead letters")
                self.mark_done(place)
                self.ends[topic, partition] = record.offset + 1

    def check(self) -> None:
        """Check that no commit is beyond the lowest record that is not done."""
        self.read_logs()
        for tp, stored in self.world.cluster.committed("g").items():
            lowest = self.lowest[tp.partition]
            while (tp.partition, lowest) in self.done:
                lowest += 1
            self.lowest[tp.partition] = lowest
            if stored.offset > lowest:
                self.violations.append(f"{tp}: {stored.offset} is committed, beyond {lowest}")

    # -- members

    def join(self) -> None:
        self.made += 1
        name = f"m{self.made}"
        consumer = self.make_consumer(name)

        async def call(given: Any, worker: Worker) -> None:
            if self.batch:
                await self.handle_list(name, given, worker)
            else:
                await self.handle(name, given, worker)

        worker = Worker(
            consumer,
            call,
            concurrency=self.concurrency,
            order=self.order,
            retry=Retry(3, SHORT, never=Poison),
            dead_letter="dead",
            batch=Batch(5, max_wait=0.05) if self.batch else None,
            drain_timeout=10.0,
            name=name,
        )
        self.running[name] = worker, asyncio.create_task(self.run_member(consumer, worker))

    def make_consumer(self, name: str, **more: Any) -> Consumer[Any, Any]:
        options: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
        options |= PROTOCOLS[self.protocol] | more
        if self.registry is not None:
            options["value_deserializer"] = schemas = Schemas()
            schemas.errors = self.registry
        return self.world.consumer(
            "t",
            group_id="g",
            client_id=name,
            connector=self.world.network.connector(name),
            auto_commit_interval_ms=1000,
            max_poll_interval_ms=20_000,
            checked=False,
            **options,
        )

    async def run_member(self, consumer: Consumer[Any, Any], worker: Worker) -> None:
        async with consumer:
            await worker.run()

    async def leave(self, name: str) -> None:
        worker, task = self.running.pop(name)
        await worker.drain()
        await task

    async def kill(self, name: str) -> None:
        """Kill a member as if its process died: none of its packets arrive any more."""
        _, task = self.running.pop(name)
        self.world.network.part([name], self.broker_addresses)
        task.cancel()
        await asyncio.wait([task])

    @property
    def broker_addresses(self) -> list[str]:
        return [self.world.address(broker) for broker in self.world.cluster.brokers]

    async def disturb(self) -> None:
        """Do to the fleet, or to its brokers, what the seed says."""
        names = list(self.running)
        actions = ["join", "join", "leave", "kill", "part", "coordinator", "broker"]
        if self.registry is not None:
            actions.append("registry")
        action = self.rng.choice(actions)
        if action == "join" or len(names) < 2:
            self.join()
        elif action == "leave":
            await self.leave(self.rng.choice(names))
        elif action == "kill":
            await self.kill(self.rng.choice(names))
        elif action == "part":
            self.world.network.part([self.rng.choice(names)], self.broker_addresses)
            await asyncio.sleep(self.rng.uniform(0.5, 10.0))
            self.world.network.heal()
        elif action == "coordinator":
            self.world.cluster.move_coordinator("g")
        elif action == "registry":
            assert self.registry is not None
            self.registry.is_down = True
            await asyncio.sleep(self.rng.uniform(0.5, 30.0))
            self.registry.is_down = False
        else:
            broker = self.rng.choice(self.world.cluster.brokers)
            self.world.cluster.stop(broker)
            await asyncio.sleep(self.rng.uniform(0.5, 8.0))
            self.world.cluster.start(broker)

    async def watch(self) -> None:
        while True:
            self.check()
            await asyncio.sleep(0.25)

    async def run(self, disturbances: int, pause_s: float) -> None:
        """Disturb the fleet, and return when all records are done and committed."""
        watching = asyncio.create_task(self.watch())
        self.join()
        for _ in range(disturbances):
            await asyncio.sleep(self.rng.uniform(0.1, pause_s))
            await self.disturb()
            self.raise_failures(watching)
        self.world.network.heal()
        if not self.running:
            self.join()
        async with asyncio.timeout(5000):
            while not self.is_complete():
                await asyncio.sleep(0.5)
                self.raise_failures(watching)
        for name in list(self.running):
            await self.leave(name)
        watching.cancel()
        await asyncio.wait([watching])
        self.check()
        assert not self.violations, self.violations[:5]

    def raise_failures(self, watching: asyncio.Task[None]) -> None:
        assert not self.violations, self.violations[:5]
        for task in [watching, *(task for _, task in self.running.values())]:
            if task.done():
                task.result()
                raise AssertionError("a worker has ended by itself")

    def is_complete(self) -> bool:
        committed = self.world.cluster.committed("g")
        each = self.total // PARTITIONS
        return all(
            (stored := committed.get(TopicPartition("t", partition))) is not None
            and stored.offset == each
            for partition in range(PARTITIONS)
        )
