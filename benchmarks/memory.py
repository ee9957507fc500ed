"""How much memory does it take to send ten million records with drain(), and to read them?

A separate process sends numbered 100-byte records, with `drain()` for backpressure, and reads all
of them by `async for`, by `batches()` and by `arrow_batches()`, with default options. The brokers
run in another process. Every record is checked: none is missing or repeated, and all are in order
within their partition. The output is the peak resident memory of the process, without the memory
that importing pyarrow takes.

    python benchmarks/memory.py [--records N] [--bootstrap HOST:PORT]

Without --bootstrap an embedded cluster is started in another process.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokclient import Admin, Consumer, NewTopic, Producer

PARTITIONS = 6
LIMIT_MB = 200
PADDING = b"." * 92


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB."""
    try:
        # Not getrusage: its peak may be that of the process that started this one.
        with open("/proc/self/status") as status:
            peak_kib = next(line.split()[1] for line in status if line.startswith("VmHWM"))
            return int(peak_kib) * 1024 / 1e6
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


class Check:
    """A check that each number comes once, in increasing order within its partition."""

    def __init__(self, total: int) -> None:
        self.seen = bytearray((total + 7) // 8)
        self.last: dict[int, int] = {}
        self.count = 0

    def record(self, partition: int, number: int) -> None:
        if number <= self.last.get(partition, -1):
            raise SystemExit(
                f"Record {number} of partition {partition} was read after {self.last[partition]}."
            )
        self.last[partition] = number
        byte, bit = number >> 3, 1 << (number & 7)
        if self.seen[byte] & bit:
            raise SystemExit(f"Record {number} was read twice.")
        self.seen[byte] |= bit
        self.count += 1


async def send(bootstrap: str, topic: str, total: int) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(total):
            producer.send(topic, number.to_bytes(8, "big") + PADDING)
            if producer.full:
                await producer.drain()
        await producer.flush()


@asynccontextmanager
async def reader(bootstrap: str, topic: str) -> AsyncIterator[Consumer[bytes, bytes]]:
    async with Consumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        yield consumer


async def read_records(bootstrap: str, topic: str, check: Check, total: int) -> None:
    async with reader(bootstrap, topic) as consumer:
        async for record in consumer:
            check.record(record.partition, int.from_bytes((record.value or b"")[:8], "big"))
            if check.count == total:
                break


async def read_batches(bootstrap: str, topic: str, check: Check, total: int) -> None:
    async with reader(bootstrap, topic) as consumer:
        async for records in consumer.batches():
            for record in records:
                check.record(record.partition, int.from_bytes((record.value or b"")[:8], "big"))
            if check.count == total:
                break


async def read_arrow(bootstrap: str, topic: str, check: Check, total: int) -> None:
    async with reader(bootstrap, topic) as consumer:
        async for table in consumer.arrow_batches():
            partition = table.column("partition")[0].as_py()
            for value in table.column("value"):
                check.record(partition, int.from_bytes(value.as_buffer()[:8], "big"))
            if check.count == total:
                break


READERS = {"async for": read_records, "batches": read_batches, "arrow_batches": read_arrow}


async def job(bootstrap: str, total: int) -> dict[str, float]:
    topic = f"memory-{total}"
    before = resident_mb()
    import pyarrow  # noqa: F401  (only its cost)

    arrow = resident_mb() - before
    figures = {"import pyarrow MB": arrow}
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (await admin.create_topics([NewTopic(topic, PARTITIONS)])).raise_for_errors()
    began = time.perf_counter()
    await send(bootstrap, topic, total)
    figures["send s"] = time.perf_counter() - began
    figures["send peak MB"] = peak_mb() - arrow
    for name, read in READERS.items():
        began, check = time.perf_counter(), Check(total)
        await read(bootstrap, topic, check, total)
        figures[f"{name} s"] = time.perf_counter() - began
        figures[f"{name} peak MB"] = peak_mb() - arrow
    return figures


def resident_mb() -> float:
    """Return the current resident memory in MB, or the peak if the system has only that."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize() / 1e6
    except OSError:
        return peak_mb()


def measure(records: int, bootstrap: str | None) -> dict[str, float]:
    """Run the job in a separate process. `bootstrap=None` starts an embedded cluster for it."""
    broker = None
    if bootstrap is None:
        command = [sys.executable, "-m", "aiokclient.testing", "--brokers", "1", "--port", "0"]
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert broker.stdout is not None
        bootstrap = next(
            word for word in broker.stdout.readline().split() if word.startswith("127.0.0.1:")
        )
    try:
        job = [sys.executable, __file__, "--job", "--bootstrap", bootstrap]
        done = subprocess.run([*job, "--records", str(records)], stdout=subprocess.PIPE, check=True)
        return dict(json.loads(done.stdout))
    finally:
        if broker is not None:
            broker.terminate()
            broker.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--bootstrap")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(asyncio.run(job(options.bootstrap, options.records))))
        return 0
    figures = measure(options.records, options.bootstrap)
    for name, figure in figures.items():
        print(f"{name:<24}{figure:>10.1f}")
    peak = max(v for k, v in figures.items() if k.endswith("peak MB"))
    print(f"{'peak':<24}{peak:>10.1f} MB, limit {LIMIT_MB}")
    return 0 if peak < LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
