"""The word count counts each record exactly once while brokers and its own process are killed.

`examples/word_count.py` runs as a process of its own. `make eos RUNS=30` runs each case with 30
seeds, from SEED on. A seed determines the input, and the moment and the target of the fault.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import KafkaCluster
from open_transactions import none_open
from transaction_levels import set_level
from word_count_process import POINTS

import aiokclient
from aiokclient import Client, Consumer, Producer, TopicPartition

PROGRAM = Path(__file__).resolve().parents[2] / "harness" / "word_count_process.py"
IN_SYNC = {"min.insync.replicas": 2}
PARTITIONS = 3
LINES = 240
WORDS = ("salt", "tea", "rice", "milk", "bread", "honey", "plum", "leek")
ROLES = ("transaction coordinator", "partition leader", "group coordinator")
DEADLINE = 40.0
"""Seconds that the word count may take after the fault."""
TIMEOUT = 3.0
"""Seconds after which the coordinator aborts a transaction, in the tests of suspended brokers."""

FIRST = int(os.environ.get("AIOKCLIENT_EOS_SEED") or 1)
SEEDS = range(FIRST, FIRST + int(os.environ.get("AIOKCLIENT_EOS_RUNS") or 1))
LEVELS = [2, 0]
EVERY_LEVEL = any(map(os.environ.get, ("AIOKCLIENT_EOS_RUNS", "AIOKCLIENT_EXPLORE")))
"""Whether each fault has both levels. In each run of all tests, some have the newer level alone."""
at_the_newer_level = pytest.mark.parametrize(
    "level", LEVELS if EVERY_LEVEL else LEVELS[:1], indirect=True
)

pytestmark = pytest.mark.timeout(180)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


class Counting:
    """A process that counts words."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self._log = process, log

    def printed(self) -> str:
        return self._log.read_text()

    async def until_printed(self, text: str) -> None:
        """Wait until the process has printed this text."""
        async with asyncio.timeout(DEADLINE):
            while text not in self.printed():
                self.check_running()
                await asyncio.sleep(0.01)

    def check_running(self) -> None:
        assert self.process.poll() is None, self.printed()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    async def stop(self) -> None:
        """End the process as a user would, by SIGTERM, and check that it ends without an error."""
        self.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(self.process.wait, DEADLINE) == 0, self.printed()


class Site:
    """An input of random words, an output, and the processes that count."""

    def __init__(self, kafka: KafkaCluster, seed: str, folder: Path) -> None:
        self.kafka, self.bootstrap, self.folder = kafka, kafka.bootstrap, folder
        self.random = random.Random(seed)
        self.group = self.id = f"eos-{uuid.uuid4().hex[:12]}"
        # Each line has a word of its own, so that every record that is lost or repeated is seen.
        self.lines = [
            " ".join([f"line-{n}", *self.random.choices(WORDS, k=self.random.randint(0, 5))])
            for n in range(LINES)
        ]
        self.source, self.output = (
            kafka.create_topic(None, PARTITIONS, 3, IN_SYNC) for _ in range(2)
        )

    async def fill(self, lines: Sequence[str]) -> None:
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            await producer.gather(
                producer.send(self.source, line.encode(), partition=n % PARTITIONS)
                for n, line in enumerate(lines)
            )

    @contextmanager
    def counting(self, **settings: Any) -> Iterator[Counting]:
        """Run a process that counts until the end of the block."""
        consumer = {"max_poll_records": 5, "session_timeout_ms": 4000, "heartbeat_interval_ms": 500}
        settings = {"consumer": consumer, **settings}
        command = [sys.executable, str(PROGRAM), json.dumps(settings)]
        command += [self.bootstrap, self.source, self.output, self.group, self.id]
        log = self.folder / f"{uuid.uuid4().hex[:6]}.log"
        # The process imports the same package as the test.
        env = {**os.environ, "PYTHONPATH": str(Path(aiokclient.__file__).parents[1])}
        with (
            log.open("wb") as file,
            subprocess.Popen(command, stdout=file, stderr=file, env=env) as process,
        ):
            counting = Counting(process, log)
            try:
                yield counting
            finally:
                process.kill()
                say(counting.printed())

    async def until_done(self, counting: Counting, share: float = 1.0) -> None:
        """Wait until the group's committed offsets cover this share of the input."""
        tps = [TopicPartition(self.source, index) for index in range(PARTITIONS)]
        async with (
            Consumer(bootstrap_servers=self.bootstrap, group_id=self.group) as consumer,
            asyncio.timeout(DEADLINE),
        ):
            while True:
                counting.check_running()
                found = await consumer.committed(tps, timeout=DEADLINE)
                if sum(each.offset for each in found.values() if each) >= share * LINES:
                    return
                await asyncio.sleep(0.02)

    async def counts(self) -> Counter[str]:
        """Return the sums of the counts in the output, after all transactions have ended."""
        await none_open(self.bootstrap, self.output, range(PARTITIONS))
        found: Counter[str] = Counter()
        async with Consumer(
            bootstrap_servers=self.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign([TopicPartition(self.output, index) for index in range(PARTITIONS)])
            async with asyncio.timeout(DEADLINE):
                async for record in consumer.until_end():
                    assert record.key is not None
                    assert record.value is not None
                    found[record.key.decode()] += int(record.value)
        return found

    async def check(self) -> None:
        expected = Counter(word for line in self.lines for word in line.split())
        found = await self.counts()
        differences = {
            word: (expected[word], found[word])
            for word in sorted(expected | found)
            if expected[word] != found[word]
        }
        assert differences == {}, "words with their expected and found counts"

    async def finish(self, counting: Counting) -> None:
        """Wait until the whole input is processed, end the process, and check its counts."""
        await self.until_done(counting)
        await counting.stop()
        await self.check()

    def moment(self) -> float:
        """Return the share of the input that is processed when the fault begins."""
        return self.random.uniform(0.05, 0.5)

    def choose(self, among: Sequence[str]) -> str:
        chosen = self.random.choice(among)
        say(f"chosen: {chosen}")
        return chosen

    async def coordinator(self, kind: str, key: str) -> int:
        async with Client(bootstrap_servers=self.bootstrap) as client:
            return await client.cluster.coordinators.locate_coordinator(kind, key)

    async def broker(self, role: str) -> int:
        """Return the id of the broker with this role."""
        if role == "transaction coordinator":
            return await self.coordinator("transaction", self.id)
        if role == "group coordinator":
            return await self.coordinator("group", self.group)
        topic = self.random.choice([self.source, self.output])
        return self.kafka.leader(topic, self.random.randrange(PARTITIONS))


@pytest.fixture(params=LEVELS)
async def level(request: pytest.FixtureRequest, kafka3: KafkaCluster) -> AsyncIterator[int]:
    """The level of transaction.version, which is 2 again after the test."""
    if request.param != 2:
        await set_level(kafka3, request.param)
    yield request.param
    if request.param != 2:
        await asyncio.to_thread(kafka3.heal)
        await set_level(kafka3, 2)


@pytest.fixture(params=SEEDS, ids=lambda seed: f"seed{seed}")
async def site(
    request: pytest.FixtureRequest, kafka3: KafkaCluster, level: int
) -> AsyncIterator[Site]:
    say(f"{request.node.name}: seed {request.param}, transaction.version {level}")
    for topic in ("__transaction_state", "__consumer_offsets"):
        for index in range(3):
            await asyncio.to_thread(kafka3.await_in_sync, topic, index)
    with tempfile.TemporaryDirectory() as folder:
        site = Site(kafka3, request.node.name, Path(folder))
        yield site


@pytest.mark.parametrize(
    ("level", "role"),
    [
        (level, role)
        for level, role in itertools.product(LEVELS, ROLES)
        if EVERY_LEVEL or level == LEVELS[0] or role == ROLES[0]
    ],
    indirect=["level"],
)
async def test_each_record_is_counted_once_when_a_broker_dies(site: Site, role: str) -> None:
    await site.fill(site.lines)
    with site.counting() as counting:
        await site.until_done(counting, site.moment())
        await asyncio.to_thread(site.kafka.kill, await site.broker(role))
        await site.finish(counting)


@pytest.mark.fault(51)
async def test_each_record_is_counted_once_when_the_process_dies(site: Site) -> None:
    await site.fill(site.lines)
    point = site.choose(POINTS)
    with site.counting(hold=[point, site.random.randint(1, 24)]) as counting:
        await counting.until_printed("holding")
        if point == "committing":  # Kill the process before, during, or after the commit.
            await asyncio.sleep(site.random.uniform(0, 0.02))
        counting.kill()
    with site.counting() as counting:
        await site.finish(counting)


@at_the_newer_level
async def test_each_record_is_counted_once_when_a_broker_hangs(site: Site) -> None:
    await site.fill(site.lines)
    options = {"transaction_timeout_ms": int(TIMEOUT * 1000)}
    with site.counting(producer=options) as counting:
        await site.until_done(counting, site.moment())
        broken = await site.broker(site.choose(ROLES))
        site.kafka.pause(broken)
        await asyncio.sleep(TIMEOUT * 2)
        site.kafka.resume(broken)
        await site.finish(counting)


@pytest.mark.fault(7)
async def test_each_record_is_counted_once_when_two_processes_have_one_id(site: Site) -> None:
    """Each process fences the other one and is fenced by it, and restarts, until one is killed."""
    ended = site.choose(("first", "second"))
    half = LINES // 2
    await site.fill(site.lines[:half])
    with site.counting() as first:
        await site.until_done(first, site.moment())
        with site.counting() as second:
            await second.until_printed("counting")
            # The first process is fenced now, but still owns at least one of the partitions.
            await site.fill(site.lines[half:])
            await first.until_printed("restarting: ")
            (first if ended == "first" else second).kill()
            await site.finish(second if ended == "first" else first)


@at_the_newer_level
async def test_the_check_fails_when_offsets_are_committed_outside_of_the_transaction(
    site: Site,
) -> None:
    """The other tests would detect a program that commits offsets outside the transaction."""
    await site.fill(site.lines)
    with site.counting(outside=True, hold=["offsets", 5]) as counting:
        await counting.until_printed("holding")
        counting.kill()
    with site.counting(outside=True) as counting:
        await site.until_done(counting)
        await counting.stop()
    with pytest.raises(AssertionError, match="line-"):
        await site.check()
