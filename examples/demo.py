"""The main job, end to end: a million records through a cluster that loses a broker half way.

Without arguments it starts an embedded cluster of three brokers. Coroutines produce records that
carry their number and a checksum, readers consume and check each of them at the same time, and
half way one broker is stopped and started again. It ends with a summary and exits non-zero when
one record is missing, came twice, out of order or damaged.

    python examples/demo.py                     an embedded cluster, no Java
    BOOTSTRAP=host:9092 python examples/demo.py a real Kafka (no broker is stopped there)
    python examples/demo.py --drop-one          leaves one record out on purpose: must fail
"""

import argparse
import asyncio
import os
import struct
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from aiokclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from aiokclient.testing import EmbeddedCluster

PARTITIONS = 6
READERS = 3
WRITERS = 10
PADDING = b"." * 84
RECORD = struct.Struct(">IQI")  # writer, number, checksum of both


def encode(writer: int, number: int) -> bytes:
    checksum = zlib.crc32(b"%d/%d" % (writer, number))
    return RECORD.pack(writer, number, checksum) + PADDING


@dataclass
class Ledger:
    """Who sent and who saw what."""

    total: int
    times_seen: bytearray = field(default_factory=bytearray)
    sent: int = 0
    read: int = 0
    damaged: int = 0
    disordered: int = 0
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    last: dict[tuple[int, int], int] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.times_seen = bytearray(self.total)

    def check(self, partition: int, value: bytes | None) -> None:
        if value is None or len(value) != RECORD.size + len(PADDING):
            self.damaged += 1
            return
        writer, number, checksum = RECORD.unpack_from(value)
        if checksum != zlib.crc32(b"%d/%d" % (writer, number)) or number >= self.total:
            self.damaged += 1
            return
        if self.times_seen[number] < 255:
            self.times_seen[number] += 1
        key = (writer, partition)
        if self.last.get(key, -1) >= number:
            self.disordered += 1
        self.last[key] = number

    async def until(self, predicate: Callable[[], bool]) -> None:
        while not predicate():
            self.changed.clear()
            await self.changed.wait()

    @property
    def missing(self) -> int:
        return self.times_seen.count(0)

    @property
    def twice(self) -> int:
        return self.total - self.missing - self.times_seen.count(1)

    @property
    def flawless(self) -> bool:
        return not (self.missing or self.twice or self.damaged or self.disordered)


async def write(
    producer: Producer[bytes, bytes], topic: str, writer: int, ledger: Ledger, drop: int | None
) -> None:
    for number in range(writer, ledger.total, WRITERS):
        if number == drop:
            continue
        delivery = producer.send(topic, encode(writer, number))
        if number % 1000 == writer:
            began = time.perf_counter()
            delivery.add_done_callback(
                lambda _, began=began: ledger.latencies.append(time.perf_counter() - began)
            )
        ledger.sent += 1
        ledger.changed.set()
        if producer.full:
            await producer.drain()
        elif ledger.sent % 200 == 0:
            await asyncio.sleep(0)


async def read(consumer: Consumer[bytes, bytes], ledger: Ledger) -> None:
    async for records in consumer.batches(max_records=2000):
        for record in records:
            ledger.check(record.partition, record.value)
        ledger.read += len(records)
        for tp, position in records.offsets().items():
            ledger.ends[tp] = position.offset
        ledger.changed.set()


async def lose_a_broker(cluster: EmbeddedCluster, ledger: Ledger, console: Console) -> None:
    """Stops broker 1 when half of the records were sent; starts it again at three quarters."""
    await ledger.until(lambda: ledger.sent >= ledger.total // 2)
    await asyncio.to_thread(cluster.stop, 1)
    console.print(f"broker 1 stopped after {ledger.sent:,} records sent")
    await ledger.until(lambda: ledger.sent >= ledger.total * 3 // 4)
    await asyncio.to_thread(cluster.start, 1)
    console.print(f"broker 1 started again after {ledger.sent:,} records sent")


async def show(ledger: Ledger, console: Console) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        sent = progress.add_task("sent", total=ledger.total)
        read_ = progress.add_task("read", total=ledger.total)
        next_line = 0.0
        while True:
            progress.update(sent, completed=ledger.sent)
            progress.update(read_, completed=ledger.read)
            if not console.is_terminal and time.monotonic() >= next_line:
                console.print(f"sent {ledger.sent:>9,}   read {ledger.read:>9,}")
                next_line = time.monotonic() + 2
            await asyncio.sleep(0.1)


async def read_to_the_end(reader: Consumer[bytes, bytes], ledger: Ledger) -> None:
    """Waits until all that the log holds was read, then stops the reader."""
    ends = await reader.end_offsets(reader.assignment())
    await ledger.until(lambda: all(ledger.ends.get(tp, 0) >= end for tp, end in ends.items()))
    reader.stop()


async def job(
    bootstrap: str, topic: str, ledger: Ledger, cluster: EmbeddedCluster | None, drop: int | None
) -> dict[str, object]:
    console = Console()
    async with AsyncExitStack() as stack:
        producer: Producer[bytes, bytes] = await stack.enter_async_context(
            Producer(bootstrap_servers=bootstrap, linger_ms=20, buffer_memory=4 << 20)
        )
        readers: list[Consumer[bytes, bytes]] = []
        for number in range(READERS):
            reader: Consumer[bytes, bytes] = Consumer(
                bootstrap_servers=bootstrap, auto_offset_reset="earliest"
            )
            reader.assign([TopicPartition(topic, p) for p in range(number, PARTITIONS, READERS)])
            readers.append(await stack.enter_async_context(reader))
        async with asyncio.TaskGroup() as tasks:
            progress = tasks.create_task(show(ledger, console))
            reading = [tasks.create_task(read(reader, ledger)) for reader in readers]
            if cluster is not None:
                chaos = tasks.create_task(lose_a_broker(cluster, ledger, console))
            async with asyncio.TaskGroup() as writers:
                for writer in range(WRITERS):
                    writers.create_task(write(producer, topic, writer, ledger, drop))
            await producer.flush()
            await asyncio.gather(*(read_to_the_end(reader, ledger) for reader in readers))
            await asyncio.wait(reading)
            if cluster is not None:
                await chaos
            progress.cancel()
        return dict(producer.metrics())


def percentile(values: list[float], share: float) -> str:
    if not values:
        return "-"
    return f"{sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000:.1f} ms"


def summary(ledger: Ledger, seconds: float, metrics: dict[str, object]) -> None:
    table = Table(title="aiokclient demo", show_header=False)
    table.add_row("records", f"{ledger.total:,}")
    table.add_row("time", f"{seconds:.1f} s")
    table.add_row("rate", f"{ledger.total / seconds:,.0f} records/s produced, read and checked")
    shares = ", ".join(
        f"p{int(s * 100)} {percentile(ledger.latencies, s)}" for s in (0.5, 0.9, 0.99)
    )
    table.add_row("send to acknowledgement", shares)
    retries = Counter({k: v for k, v in metrics.items() if "retries" in k and v})
    table.add_row("retries", ", ".join(f"{k}: {v}" for k, v in retries.items()) or "none")
    table.add_row("missing", str(ledger.missing))
    table.add_row("twice", str(ledger.twice))
    table.add_row("damaged", str(ledger.damaged))
    table.add_row("out of order", str(ledger.disordered))
    Console().print(table)


async def run(records: int, drop_one: bool) -> int:
    ledger = Ledger(records)
    drop = records // 3 if drop_one else None
    began = time.perf_counter()
    bootstrap = os.environ.get("BOOTSTRAP")
    if bootstrap is None:
        with EmbeddedCluster(brokers=3, topics={"demo": PARTITIONS}) as cluster:
            metrics = await job(cluster.bootstrap_servers, "demo", ledger, cluster, drop)
    else:
        topic = f"aiokclient-demo-{os.getpid()}"
        async with Admin(bootstrap_servers=bootstrap) as admin:
            created = await admin.create_topics([NewTopic(topic, PARTITIONS)])
            created.raise_for_errors()
            try:
                metrics = await job(bootstrap, topic, ledger, None, drop)
            finally:
                await admin.delete_topics([topic])
    summary(ledger, time.perf_counter() - began, metrics)
    print("every record was read once, in order" if ledger.flawless else "FAILED", flush=True)
    return 0 if ledger.flawless else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--drop-one", action="store_true", help="leave one record out on purpose")
    options = parser.parse_args()
    try:
        return asyncio.run(asyncio.wait_for(run(options.records, options.drop_one), timeout=85))
    except TimeoutError:
        print("FAILED: not done within 85 s", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
