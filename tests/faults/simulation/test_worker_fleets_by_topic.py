"""Groups of workers with retry topics, and in transactions, under kills, rebalances, and failures.

`make workers` runs more seeds.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from typing import Any

import pytest
from worker_fleet import PARTITIONS, VARIANTS, WorkerFleet, place_in
from world import World, simulate

from aiokclient import Producer, TopicPartition
from aiokclient.worker import DeadLetterInfo, Exponential, Retry, Worker

FIRST = int(os.environ.get("AIOKCLIENT_WORKER_SEED") or 0)
SEEDS = int(os.environ.get("AIOKCLIENT_WORKER_SEEDS") or 20)
RETRIES = ("again.1", "again.3")
TOPICS = {"t": PARTITIONS, "dead": PARTITIONS, "out": 1, RETRIES[0]: 3, RETRIES[1]: 2}


@pytest.fixture(autouse=True)
def failures_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Log no failed run. To format all tracebacks takes longer than the runs."""
    caplog.set_level(logging.ERROR, "aiokclient.worker")


class RetryFleet(WorkerFleet):
    """Workers with retry topics, or with transactions, whose records are in no order."""

    def __init__(
        self, world: World, seed: int, *, topics: bool, transactions: bool, **options: Any
    ) -> None:
        super().__init__(world, seed, None, **options)
        self.topics, self.transactions = topics, transactions
        self.runs: Counter[tuple[int, int]] = Counter()
        self.read_to: Counter[tuple[str, int]] = Counter()
        """The offsets up to which the logs of retry records and dead letters were read."""
        self.letters: set[tuple[int, int]] = set()

    async def handle(self, name: str, record: Any, worker: Worker) -> None:
        place = place_in(record.value)
        self.runs[place] += 1
        worker.send("out", b"%d-%d" % place)
        await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.01, 0.1)))
        _, failures = self.records[place]
        if failures < 0:
            raise ValueError(f"{place} always fails")
        if self.failures[place] < failures:
            self.failures[place] += 1
            raise ValueError(f"{place} fails")

    def check(self) -> None:
        """Check nothing while it runs: what is done is known at the end."""

    def join(self) -> None:
        self.made += 1
        name = f"m{self.made}"
        options: dict[str, Any] = {"enable_auto_commit": not self.transactions}
        if self.transactions:
            options["isolation_level"] = "read_committed"
        consumer = self.make_consumer(name, **options)
        producer: Producer[Any, Any] | None = None
        if self.transactions:
            producer = self.world.producer(
                client_id=name,
                connector=self.world.network.connector(name),
                transactional_id=name,
                transaction_timeout_ms=10_000,
            )

        async def call(record: Any, worker: Worker) -> None:
            await self.handle(name, record, worker)

        delays = [(1.0, RETRIES[0]), (3.0, RETRIES[1])] if self.topics else None
        worker = Worker(
            consumer,
            call,
            order=None,
            concurrency=self.concurrency,
            retry=Retry(3, Exponential(0.1, max=1.0), topic=delays),
            dead_letter="dead",
            producer=producer,
            drain_timeout=10.0,
            name=name,
        )
        self.running[name] = worker, asyncio.create_task(self.run_member(consumer, worker))

    def is_complete(self) -> bool:
        if not super().is_complete():
            return False
        # The ends of logs are no measure: transactions end with markers, which no commit counts.
        committed = self.world.cluster.committed("g")
        for name in RETRIES:
            for partition in range(TOPICS[name]):
                self.read_on(name, partition)
                stored = committed.get(TopicPartition(name, partition))
                end = self.read_to[name, partition]
                if end and (stored is None or stored.offset < end):
                    return False
        for partition in range(PARTITIONS):
            self.letters.update(self.read_on("dead", partition))
        return self.letters >= {place for place, (_, f) in self.records.items() if f < 0}

    def read_on(self, topic: str, partition: int) -> list[tuple[int, int]]:
        """Return what the log has had since the last call, which does not read it all again."""
        start = self.read_to[topic, partition]
        found = self.world.cluster.records(topic, partition, start=start)
        if found:
            self.read_to[topic, partition] = found[-1].offset + 1
        return [place_in(record.value) for record in found]

    async def read(self, topic: str) -> list[Any]:
        options: dict[str, Any] = {"isolation_level": "read_committed"}
        async with self.world.consumer(topic, checked=False, **options) as reader:
            return [record async for record in reader.until_end()]

    async def check_results(self) -> None:
        poison = {place for place, (_, fate) in self.records.items() if fate < 0}
        letters, results = await self.read("dead"), await self.read("out")
        assert {place_in(letter.value) for letter in letters} == poison
        for letter in letters:
            info = DeadLetterInfo.of(letter)
            assert (info.origin_partition, info.origin_offset) == place_in(letter.value)
            assert info.attempts >= 3
        counts = Counter(place_in(result.value) for result in results)
        assert counts.keys() >= self.records.keys() - poison
        if self.transactions:
            assert len(letters) == len(poison)
            assert counts == Counter(self.records.keys() - poison), "each result exactly once"


def run_fleet(seed: int, *, count: int, faults: int, **options: Any) -> None:
    """Let a fleet handle `count` records of each partition amid faults, and check the results."""

    async def scenario(world: World) -> None:
        fleet = RetryFleet(world, seed, **options)
        await fleet.fill(count)
        await fleet.run(faults, 3.0)
        await fleet.check_results()

    simulate(scenario, seed=seed, brokers=2, topics=TOPICS)


MODES = [(True, False), (False, True), (True, True)]
by_mode = pytest.mark.parametrize(("topics", "transactions"), MODES)


@pytest.mark.fault(5, 40, 41)
@by_mode
@pytest.mark.parametrize("protocol", ["eager", "kip848"])
def test_each_record_has_its_result_or_its_dead_letter(
    topics: bool, transactions: bool, protocol: str
) -> None:
    run_fleet(1, topics=topics, transactions=transactions, protocol=protocol, count=20, faults=5)


@pytest.mark.workers
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
@by_mode
def test_each_record_has_its_result_or_its_dead_letter_for_many_seeds(
    topics: bool, transactions: bool, seed: int
) -> None:
    variant = VARIANTS[seed % len(VARIANTS)]
    run_fleet(seed, topics=topics, transactions=transactions, count=100, faults=12, **variant)


@pytest.mark.workers
@by_mode
def test_a_hundred_thousand_records_have_their_results_or_dead_letters(
    topics: bool, transactions: bool
) -> None:
    run_fleet(
        FIRST,
        topics=topics,
        transactions=transactions,
        count=16_667,
        faults=60,
        concurrency=50,
        **VARIANTS[-1],
    )
