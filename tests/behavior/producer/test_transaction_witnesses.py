"""Transactions of three clients on a real Kafka: this library, Java's client, and confluent-kafka.

Each client reads with read_committed exactly the records that the others have committed. So the
tests find mistakes that this library's producer and consumer have in common.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka_harness import KAFKA, ExternalKafka, JavaTool
from kafka_harness.files import CACHE, REPOSITORY, prepared
from kafka_harness.java import find
from open_transactions import none_open

from aiokclient import Consumer, GroupMetadata, Producer, TopicPartition

confluent = pytest.importorskip("confluent_kafka")

SOURCE = REPOSITORY / "tests" / "java" / "TransactionalWriter.java"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2


class Planned(NamedTuple):
    """One transaction: the values of its records, and whether it is committed."""

    values: list[str]
    committed: bool

    @property
    def end(self) -> str:
        return "commit" if self.committed else "abort"


def plan(name: str, count: int) -> list[Planned]:
    """Return transactions of 1 to 60 records; the last and about a third are aborted."""
    chance = random.Random(name)
    last = count - 1
    return [
        Planned(
            [f"{name}-{number}-{n}-{'x' * 40}" for n in range(chance.randint(1, 60))],
            number == 0 or (number < last and chance.random() < 0.66),
        )
        for number in range(count)
    ]


def partition_of(index: int) -> int:
    return index % PARTITIONS


def committed(plans: list[Planned]) -> list[list[str]]:
    """Return the values of the committed transactions in order, for each partition."""
    assert {each.committed for each in plans} == {True, False}
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for each in plans:
        for index, value in enumerate(each.values if each.committed else ()):
            found[partition_of(index)].append(value)
    return found


async def write_here(bootstrap: str, topic: str, plans: list[Planned], **options: Any) -> None:
    async with Producer(bootstrap_servers=bootstrap, **options) as producer:
        for each in plans:
            await producer.begin_transaction()
            for index, value in enumerate(each.values):
                producer.send(topic, value.encode(), partition=partition_of(index))
            # The records of aborted transactions must be in the log, too.
            await producer.flush()
            if each.committed:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()


async def read_here(bootstrap: str, topic: str, level: str = "read_committed") -> list[list[str]]:
    """Return the values in the topic, for each partition."""
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    await none_open(bootstrap, topic, range(PARTITIONS))
    async with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        isolation_level=level,
        auto_offset_reset="earliest",
        value_deserializer=bytes.decode,
    ) as consumer:
        async for record in consumer.until_end():
            assert record.value is not None
            found[record.partition].append(record.value)
    return found


class JavaWriter:
    """Java's transactional producer, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, *commands: str) -> None:
        """Execute the commands, and wait until they are done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for command in commands:
            self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        for command in commands:
            assert self._process.stdout.readline() == command + "\n"


@contextmanager
def java_writer(bootstrap: str, **options: str) -> Iterator[JavaWriter]:
    def compile_into(folder: Path) -> None:
        folder.mkdir()
        command = [find("javac"), "-nowarn", "-cp", jars, "-d", str(folder), str(SOURCE)]
        subprocess.run(command, check=True)

    jars = KAFKA.class_path()
    classes = prepared(CACHE / f"transactional-writer-{SOURCE.stat().st_mtime_ns}", compile_into)
    named = {name.replace("_", "."): value for name, value in options.items()}
    pairs = [f"{n}={v}" for n, v in {"bootstrap.servers": bootstrap, **named}.items()]
    jvm = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    command = [find("java"), *jvm, "-cp", f"{jars}:{classes}", "TransactionalWriter", *pairs]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield JavaWriter(process)
        finally:
            process.kill()


def java_write(bootstrap: str, topic: str, plans: list[Planned], name: str, codec: str) -> None:
    with java_writer(bootstrap, transactional_id=name, compression_type=codec) as writer:
        for each in plans:
            sends = [f"send {topic} {partition_of(i)} {v}" for i, v in enumerate(each.values)]
            writer.do("begin", *sends, "flush", each.end)


def confluent_write(
    bootstrap: str, topic: str, plans: list[Planned], name: str, codec: str
) -> None:
    options = {"bootstrap.servers": bootstrap, "transactional.id": name, "compression.type": codec}
    producer = confluent.Producer(options)
    producer.init_transactions(30)
    for each in plans:
        producer.begin_transaction()
        for index, value in enumerate(each.values):
            producer.produce(topic, value=value.encode(), partition=partition_of(index))
        assert producer.flush(30) == 0
        if each.committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


@pytest.fixture
def topic(kafka: ExternalKafka) -> str:
    return kafka.create_topic(partitions=PARTITIONS)


async def test_the_console_consumer_sees_exactly_our_committed_records(
    kafka: ExternalKafka, kafka_tools_jars: list[Path], topic: str
) -> None:
    """Five producers with different codecs write transactions one after the other."""
    plans = [(codec, plan(f"{topic}-{codec}", 8)) for codec in CODECS]
    for codec, transactions in plans:
        options = {"transactional_id": f"{topic}-{codec}", "compression_type": codec}
        await write_here(kafka.bootstrap, topic, transactions, **options)
    expected = committed([each for _, transactions in plans for each in transactions])
    everything = await read_here(kafka.bootstrap, topic, "read_uncommitted")
    assert sum(map(len, everything)) > sum(map(len, expected))
    assert await asyncio.to_thread(console_read, kafka.bootstrap, topic) == expected


def console_read(bootstrap: str, topic: str) -> list[list[str]]:
    """Read until no record has come for three seconds, so that no record is left."""
    tool = JavaTool(
        *("console-consumer", "--bootstrap-server", bootstrap, "--topic", topic),
        *("--from-beginning", "--timeout-ms", "3000", "--isolation-level", "read_committed"),
        *("--formatter-property", "print.partition=true"),
    )
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for line in tool.run().decode().splitlines():
        partition, value = line.removeprefix("Partition:").split("\t")
        found[int(partition)].append(value)
    return found


@pytest.mark.parametrize("codec", CODECS)
async def test_our_consumer_sees_exactly_the_committed_records_of_confluent_kafka(
    kafka: ExternalKafka, topic: str, codec: str
) -> None:
    plans = plan(topic + codec, 12)
    name = f"{topic}-confluent"
    await asyncio.to_thread(confluent_write, kafka.bootstrap, topic, plans, name, codec)
    assert await read_here(kafka.bootstrap, topic) == committed(plans)


async def test_our_consumer_sees_exactly_the_committed_records_of_java(
    kafka: ExternalKafka, kafka_jars: list[Path], topic: str
) -> None:
    plans: list[Planned] = []
    for codec in ("none", "zstd"):
        transactions = plan(topic + codec, 8)
        name = f"{topic}-java"
        await asyncio.to_thread(java_write, kafka.bootstrap, topic, transactions, name, codec)
        plans += transactions
    assert await read_here(kafka.bootstrap, topic) == committed(plans)


async def test_our_producer_and_java_commit_offsets_of_one_group_in_turns(
    kafka: ExternalKafka, kafka_jars: list[Path], topic: str
) -> None:
    """Each client sees the committed offsets of the other one, but not the aborted ones."""
    group, tp = f"g-{uuid.uuid4().hex[:12]}", TopicPartition(topic, 0)
    bootstrap = kafka.bootstrap
    with java_writer(bootstrap, transactional_id=f"{topic}-java") as java:
        async with (
            Producer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-ours") as ours,
            Consumer(bootstrap_servers=bootstrap, group_id=group) as reader,
        ):

            async def offset() -> int | None:
                found = (await reader.committed([tp]))[tp]
                return found and found.offset

            for turn in range(1, 4):
                async with ours.transaction() as tx:
                    await tx.send_offsets({tp: 10 * turn}, GroupMetadata(group))
                assert await offset() == 10 * turn
                for end, expected in (("abort", 10 * turn), ("commit", 10 * turn + 1)):
                    send = f"offset {group} {topic} 0 {10 * turn + 1}"
                    await asyncio.to_thread(java.do, "begin", send, end)
                    assert await offset() == expected
                await ours.begin_transaction()
                await ours.send_offsets_to_transaction({tp: 999}, GroupMetadata(group))
                await ours.abort_transaction()
                assert await offset() == 10 * turn + 1
