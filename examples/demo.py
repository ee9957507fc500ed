"""An end-to-end demo: a million records are produced and consumed while a broker and a member fail.

Without arguments, the demo starts an embedded cluster of three brokers. Coroutines produce records
with a number and a checksum. At the same time, the three members of a consumer group read and check
the records. When half of the records are sent, one broker is stopped; it is started again later.
When half of the records are read, one member, which runs in its own process, is killed; the two
others continue at its committed offsets. The demo ends with a summary and a verdict. It exits with
a nonzero status if a record is missing, is twice in the log, is out of order, or is damaged. It
also does so if a record was read again although its first reader had committed it, or is still
running.

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
import traceback
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from rich.align import Align
from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from aiokclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from aiokclient.testing import EmbeddedCluster

PARTITIONS = 6
WRITERS = 10
PADDING = b"." * 84
RECORD = struct.Struct(">IQI")  # writer, number, checksum of both
SEEN = struct.Struct("<Hqq")  # partition, offset, number (-1: damaged), from a reader's process
SESSION_MS = 6000  # the shortest session timeout that Kafka permits by default
MEMBERS = ("A", "B", "C")  # client ids; C runs in a separate process
LETTERS = {
    "A": (" ### ", "#   #", "#####", "#   #", "#   #"),
    "D": ("#### ", "#   #", "#   #", "#   #", "#### "),
    "E": ("#####", "#    ", "###  ", "#    ", "#####"),
    "F": ("#####", "#    ", "###  ", "#    ", "#    "),
    "I": ("#####", "  #  ", "  #  ", "  #  ", "#####"),
    "L": ("#    ", "#    ", "#    ", "#    ", "#####"),
    "P": ("#### ", "#   #", "#### ", "#    ", "#    "),
    "S": (" ####", "#    ", " ### ", "    #", "#### "),
}


def encode(writer: int, number: int) -> bytes:
    checksum = zlib.crc32(b"%d/%d" % (writer, number))
    return RECORD.pack(writer, number, checksum) + PADDING


def decode(value: bytes | None) -> int:
    """Return the number of an undamaged record, or -1 for a damaged one."""
    if value is None or len(value) != RECORD.size + len(PADDING):
        return -1
    writer, number, checksum = RECORD.unpack_from(value)
    intact = checksum == zlib.crc32(b"%d/%d" % (writer, number)) and number % WRITERS == writer
    return number if intact else -1


@dataclass
class Ledger:
    """The counts of the records that were sent and read, for the checks."""

    total: int
    position: array[int] = field(default_factory=lambda: array("q"))  # -1 if not seen
    sent: int = 0
    read: int = 0
    again: int = 0
    twice: int = 0
    damaged: int = 0
    disordered: int = 0
    unexpected: int = 0
    # By partition: the first offset that may be read again, because its reader was killed.
    may_repeat: dict[int, int] = field(default_factory=dict)
    next_offset: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    latencies: list[float] = field(default_factory=list)
    last: dict[tuple[int, int], int] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.position = array("q", [-1]) * self.total

    def check(self, partition: int, offset: int, number: int) -> None:
        if not 0 <= number < self.total:
            self.damaged += 1
            return
        position = offset * PARTITIONS + partition
        if self.position[number] == position:
            self.again += 1
            self.unexpected += offset < self.may_repeat.get(partition, sys.maxsize)
            return
        self.twice += self.position[number] >= 0
        self.position[number] = position
        self.read += 1
        self.next_offset[partition] = offset + 1
        key = (number % WRITERS, partition)
        self.disordered += self.last.get(key, -1) >= number
        self.last[key] = number

    async def until(self, predicate: Callable[[], bool]) -> None:
        while not predicate():
            self.changed.clear()
            await self.changed.wait()

    @property
    def missing(self) -> int:
        return self.position.count(-1)

    @property
    def flawless(self) -> bool:
        wrong = (self.missing, self.twice, self.damaged, self.disordered, self.unexpected)
        return not any(wrong)


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
            ledger.check(record.partition, record.offset, decode(record.value))
        ledger.changed.set()


def member(
    bootstrap: str, topic: str, name: str, listener: object = None
) -> Consumer[bytes, bytes]:
    """Return a reader: one member of the group."""
    consumer: Consumer[bytes, bytes] = Consumer(
        bootstrap_servers=bootstrap,
        client_id=name,
        group_id=topic,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1000,
        auto_commit_interval_ms=500,
    )
    consumer.subscribe([topic], listener)
    return consumer


async def read_for_another(bootstrap: str, topic: str) -> None:
    """Read as the member in the separate process, and write the results to standard output."""
    async with member(bootstrap, topic, MEMBERS[-1]) as consumer:
        async for records in consumer.batches(max_records=2000):
            seen = [SEEN.pack(r.partition, r.offset, decode(r.value)) for r in records]
            os.write(sys.stdout.fileno(), b"".join(seen))


async def listen(process: asyncio.subprocess.Process, ledger: Ledger) -> None:
    """Check what the reader in another process has read, until that process has ended."""
    assert process.stdout is not None
    rest = b""
    while data := await process.stdout.read(1 << 18):
        whole = len(rest := rest + data) // SEEN.size * SEEN.size
        for seen in SEEN.iter_unpack(rest[:whole]):
            ledger.check(*seen)
        rest = rest[whole:]
        ledger.changed.set()


class Balance:
    """A listener that waits until the members in this process have their share of partitions."""

    def __init__(self, topic: str) -> None:
        self.all = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        self.owned: set[TopicPartition] = set()
        self.changed = asyncio.Event()

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        self.owned.update(partitions)
        self.changed.set()

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        self.owned.difference_update(partitions)
        self.changed.set()

    on_lost = on_revoked

    async def reached(self, count: int) -> None:
        while len(self.owned) != count:
            self.changed.clear()
            await self.changed.wait()


async def lose_a_reader(
    process: asyncio.subprocess.Process,
    listening: asyncio.Task[None],
    balance: Balance,
    survivors: list[Consumer[bytes, bytes]],
    ledger: Ledger,
    console: Console,
) -> None:
    """Kill the process when half of the records were read, and wait for the others to take over."""
    lost = [tp for tp in balance.all if tp not in balance.owned]
    await ledger.until(lambda: ledger.read >= ledger.total // 2)
    process.kill()
    await process.wait()
    await listening  # Check the records that the process had reported.
    console.print(
        f"member {MEMBERS[-1]} (process {process.pid}) was killed after {ledger.read:,} records "
        f"read; it held {names(lost)}"
    )
    committed = await survivors[0].committed(lost)
    for tp in lost:
        stored = committed.get(tp)
        ledger.may_repeat[tp.partition] = 0 if stored is None else stored.offset
    began = time.perf_counter()
    await balance.reached(PARTITIONS)
    taken = (
        f"member {name} {names([tp for tp in lost if tp in each.assignment()])}"
        for name, each in zip(MEMBERS, survivors, strict=False)
        if any(tp in each.assignment() for tp in lost)
    )
    seconds = time.perf_counter() - began
    console.print(f"after {seconds:.1f} s the others took over: {', '.join(taken)}")


async def lose_a_broker(
    cluster: EmbeddedCluster, balance: Balance, ledger: Ledger, console: Console
) -> None:
    """Stop broker 1 when half of the records were sent; start it again at three quarters."""

    def leaders() -> dict[TopicPartition, int]:
        return {tp: cluster.leader(*tp) for tp in balance.all}

    await ledger.until(lambda: ledger.sent >= ledger.total // 2)
    led = [tp for tp, leader in leaders().items() if leader == 1]
    await asyncio.to_thread(cluster.stop, 1)
    moved = ", ".join(f"{tp.partition} to broker {leaders()[tp]}" for tp in led)
    console.print(f"broker 1 stopped after {ledger.sent:,} records sent; partitions moved: {moved}")
    await ledger.until(lambda: ledger.sent >= ledger.total * 3 // 4)
    await asyncio.to_thread(cluster.start, 1)
    console.print(f"broker 1 started again after {ledger.sent:,} records sent")


def names(partitions: Iterable[TopicPartition]) -> str:
    """Return a text that names the partitions by their numbers."""
    numbers = ", ".join(str(tp.partition) for tp in sorted(partitions))
    return f"partitions {numbers}" if "," in numbers else f"partition {numbers or 'none'}"


async def describe(
    bootstrap: str, topic: str, process: asyncio.subprocess.Process, console: Console
) -> None:
    """Print the brokers, the partitions with their leaders, and the members with their shares."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        cluster = await admin.describe_cluster()
        partitions = (await admin.describe_topics([topic]))[topic].partitions
        members = (await admin.describe_groups([topic]))[topic].members
    brokers = Table("broker", "address", f"leads of topic {topic}")
    for broker in cluster.brokers:
        led = [TopicPartition(topic, p.index) for p in partitions if p.leader == broker.node_id]
        brokers.add_row(str(broker.node_id), f"{broker.host}:{broker.port}", names(led))
    readers = Table("member", "where", f"reads of topic {topic}")
    for each in sorted(members, key=lambda each: each.client_id):
        apart = each.client_id == MEMBERS[-1]
        where = f"process {process.pid}, to be killed" if apart else f"process {os.getpid()}"
        readers.add_row(each.client_id, where, names(each.partitions))
    console.print(brokers, readers)


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


async def read_to_the_end(
    topic: str, readers: list[Consumer[bytes, bytes]], ledger: Ledger
) -> None:
    """Wait until all records in the log were read, and then stop the readers."""
    tps = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    ends = await readers[0].end_offsets(tps)
    await ledger.until(lambda: all(ledger.next_offset[tp.partition] >= ends[tp] for tp in tps))
    for reader in readers:
        reader.stop()


async def start_readers(
    stack: AsyncExitStack, bootstrap: str, topic: str, balance: Balance
) -> tuple[list[Consumer[bytes, bytes]], asyncio.subprocess.Process]:
    """Start two members of the group in this process, and one in another."""
    command = (sys.executable, __file__, "--reader", bootstrap, topic)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    stack.callback(lambda: process.returncode is None and process.kill())
    readers = [
        await stack.enter_async_context(member(bootstrap, topic, name, balance))
        for name in MEMBERS[:-1]
    ]
    await balance.reached(PARTITIONS * 2 // 3)
    return readers, process


async def job(
    bootstrap: str, topic: str, ledger: Ledger, cluster: EmbeddedCluster | None, drop: int | None
) -> dict[str, object]:
    console = Console()
    balance = Balance(topic)
    async with AsyncExitStack() as stack:
        producer: Producer[bytes, bytes] = await stack.enter_async_context(
            Producer(bootstrap_servers=bootstrap, linger_ms=20, buffer_memory=4 << 20)
        )
        console.print(f"members {', '.join(MEMBERS)} of group {topic} are joining ...")
        readers, process = await start_readers(stack, bootstrap, topic, balance)
        await describe(bootstrap, topic, process, console)
        console.print(f"{WRITERS} writers send {ledger.total:,} records")
        async with asyncio.TaskGroup() as tasks:
            progress = tasks.create_task(show(ledger, console))
            listening = tasks.create_task(listen(process, ledger))
            reading = [tasks.create_task(read(reader, ledger)) for reader in readers]
            chaos: list[asyncio.Task[Any]] = [
                tasks.create_task(
                    lose_a_reader(process, listening, balance, readers, ledger, console)
                )
            ]
            if cluster is not None:
                chaos.append(tasks.create_task(lose_a_broker(cluster, balance, ledger, console)))
            async with asyncio.TaskGroup() as writers:
                for writer in range(WRITERS):
                    writers.create_task(write(producer, topic, writer, ledger, drop))
            await producer.flush()
            await asyncio.gather(*chaos)
            await read_to_the_end(topic, readers, ledger)
            await asyncio.wait(reading)
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
    table.add_row("twice in the log", str(ledger.twice))
    table.add_row("read again, not committed by the dead", f"{ledger.again - ledger.unexpected:,}")
    table.add_row("read again without need", str(ledger.unexpected))
    table.add_row("damaged", str(ledger.damaged))
    table.add_row("out of order", str(ledger.disordered))
    Console().print(table)


async def run(records: int, drop_one: bool) -> int:
    ledger = Ledger(records)
    drop = records // 3 if drop_one else None
    began = time.perf_counter()
    bootstrap = os.environ.get("BOOTSTRAP")
    if bootstrap is None:
        Console().print("starting an embedded cluster of 3 brokers ...")
        with EmbeddedCluster(brokers=3, topics={"demo": PARTITIONS}) as cluster:
            metrics = await job(cluster.bootstrap_servers, "demo", ledger, cluster, drop)
    else:
        topic = f"aiokclient-demo-{os.getpid()}"
        Console().print(f"creating topic {topic} on {bootstrap} ...")
        async with Admin(bootstrap_servers=bootstrap) as admin:
            created = await admin.create_topics([NewTopic(topic, PARTITIONS)])
            created.raise_for_errors()
            try:
                metrics = await job(bootstrap, topic, ledger, None, drop)
            finally:
                await admin.delete_topics([topic])
                await admin.delete_groups([topic])
    summary(ledger, time.perf_counter() - began, metrics)
    if ledger.flawless:
        verdict("PASSED", "every record was written once and read, in order")
        return 0
    verdict("FAILED", "the summary shows what is wrong")
    return 1


def verdict(word: str, reason: str) -> None:
    """Print a word in large letters, and the reason below it."""
    console = Console()
    block = "\u2588" if "utf" in console.encoding.lower() else "#"
    wide = 2 if console.width >= 80 else 1
    rows = (" ".join(LETTERS[letter][row] for letter in word) for row in range(5))
    letters = "\n".join(
        "".join(wide * (block if cell == "#" else " ") for cell in row) for row in rows
    )
    color = "green" if word == "PASSED" else "red"
    text = Group("", Align.center(letters), "", Align.center(f"{word}: {reason}"), "")
    console.print(Panel(text, style=f"bold {color}"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--drop-one", action="store_true", help="leave one record out on purpose")
    parser.add_argument("--reader", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.records < WRITERS:
        parser.error(f"--records must be at least {WRITERS}")
    if options.reader is not None:
        asyncio.run(read_for_another(*options.reader))
        return 0
    try:
        return asyncio.run(asyncio.wait_for(run(options.records, options.drop_one), timeout=85))
    except TimeoutError:
        verdict("FAILED", "not done within 85 s")
        return 1
    except Exception:
        traceback.print_exc()
        verdict("FAILED", "the error above ended the demo")
        return 1


if __name__ == "__main__":
    sys.exit(main())
