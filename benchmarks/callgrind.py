"""Count the instructions of the client for each message, batch, and import, by callgrind.

    python benchmarks/callgrind.py [CHECKOUT ...] [--rows ROW ...] [--limit 1.03] [--markdown FILE]

Each row is a program as users write it. It runs with two sizes, and the difference of the two
counts is what the additional messages cost, without the start of the interpreter and the client.
The brokers are an embedded cluster in another process, which is not counted. The counts do not
depend on the load of the machine. Those of one checkout differ by about one percent between runs.

With several checkouts, the table has a column for each of them, with its ratio to the first. With
`--limit`, the program fails if a ratio of the last checkout exceeds the limit in three runs.

Time passes about fifty times more slowly for a program in valgrind, so that lingering, timers, and
slices of the loop's time end early: the rows wait by awaiting or flushing, never by time, and none
calls `drain`. Those that consume lengthen the interval after which a consumer yields to the loop.
Needs valgrind (`.ci/need-valgrind`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))
from measuring.machine import optimizations  # noqa: E402

COPY_BY_VECTORS = ":".join(
    f"glibc.cpu.x86_rep_{what}_threshold={1 << 30}" for what in ("movsb", "stosb")
)
"""A setting of glibc for copies of over 2 KiB. It would use `rep movsb`, one instruction for the
processor, which callgrind counts once for each byte: 120,000 for a copy of a batch, not 8,000."""
RUNS = 3
"""The number of measurements after which a row over the limit counts as slower."""
START = """
import asyncio, sys
size = int(sys.argv[1])
servers = sys.argv[2]
"""
PRODUCER = """
from aiokclient import Producer
async def main():
    async with Producer(bootstrap_servers=servers, enable_metrics_push=False{options}) as producer:
        {warm}
        value = b"x" * {bytes}
        {body}
asyncio.run(main())
"""
WARM = 'await producer.send("produced", b"warm")'
GATHER = """for _ in range(size // 1000):
            deliveries = []
            for _ in range(1000):
                deliveries.append(producer.send("produced", value))
            await producer.gather(deliveries)"""
FLUSH = """for _ in range(size // 1000):
            deliveries = []
            for _ in range(1000):
                deliveries.append(producer.send("produced", value))
            await producer.flush()
            for delivery in deliveries:
                await delivery"""
BATCHES = """deliveries = []
        for _ in range(size):
            deliveries.append(producer.send("produced", value))
            if len(deliveries) == 50:
                await producer.gather(deliveries)
                deliveries = []"""
AWAITED = """for _ in range(size):
            await producer.send("produced", value)"""
TASKS = """async def work(count):
            for _ in range(count):
                await producer.send("produced", value)
        await asyncio.gather(*(work(size // 1000) for _ in range(1000)))"""
TRANSACTIONS = """for _ in range(size):
            async with producer.transaction() as tx:
                tx.send("produced", value)"""
CONSUMER = """
from aiokclient import Consumer
from aiokclient.consumer.delivery import reader
reader.YIELD_INTERVAL_S *= 50
async def main():
    async with Consumer("{topic}", bootstrap_servers=servers, enable_metrics_push=False,
                        auto_offset_reset="earliest") as consumer:
        count = length = 0
        {loop}
            if count >= size:
                break
asyncio.run(main())
"""
LISTS = """async for records in consumer.batches():
            for record in records:
                count += 1"""
EACH = """async for record in consumer:
            count += 1"""
LENGTHS = """async for record in consumer:
            count += 1
            length += len(record.value)"""
POLLED = """while True:
            for record in await consumer.poll():
                count += 1
                length += len(record.value)"""
IMPORT = """
if size:
    from aiokclient import {name}
"""
FIRST = """
if size:
    import asyncio
    from aiokclient import {name} as Client
    async def main():
        options = {{"bootstrap_servers": servers, "enable_metrics_push": False}}
        {body}
    asyncio.run(main())
"""
FIRST_SEND = """async with Client(**options) as producer:
            await producer.send("produced", b"first")"""
FIRST_READ = """async with Client("read", auto_offset_reset="earliest", **options) as consumer:
            await consumer.get(60)"""
FIRST_CALL = """async with Client(**options) as admin:
            await admin.list_topics()"""


@dataclass(frozen=True)
class Row:
    """A program, and the two numbers of messages, batches, or imports that are subtracted."""

    program: str
    small: int
    large: int
    has_brokers: bool = True
    """Whether the program connects to an embedded cluster."""


def produce(body: str, size: int = 100, options: str = "", warm: str = WARM) -> str:
    return PRODUCER.format(body=body, bytes=size, options=options, warm=warm)


def consume(loop: str, topic: str = "read") -> str:
    return CONSUMER.format(loop=loop, topic=topic)


ROWS = {
    "produce 100 B, gather": Row(produce(GATHER), 20_000, 60_000),
    "produce 100 B, flush, await each": Row(produce(FLUSH), 20_000, 60_000),
    "produce 1 KB, gather": Row(produce(GATHER, 1000), 20_000, 60_000),
    "produce 1 KB, flush, await each": Row(produce(FLUSH, 1000), 20_000, 60_000),
    "a batch of 120,000 B": Row(produce(BATCHES, 120_000), 200, 600),
    "an awaited send": Row(produce(AWAITED), 500, 1_500),
    "a send in 1,000 tasks": Row(produce(TASKS, options=", linger_ms=5"), 10_000, 30_000),
    "a transaction of one record": Row(
        produce(TRANSACTIONS, options=', transactional_id="counted"', warm=""),
        100,
        300,
    ),
    "consume 100 B, lists": Row(consume(LISTS), 20_000, 60_000),
    "consume 100 B, async for": Row(consume(EACH), 20_000, 60_000),
    "consume 1 KB, poll": Row(consume(POLLED, "read-1k"), 4_000, 12_000),
    "consume 1 KB, async for": Row(consume(LENGTHS, "read-1k"), 4_000, 12_000),
    "consume 1 KB lz4, poll": Row(consume(POLLED, "read-1k-lz4"), 4_000, 12_000),
    "consume 1 KB lz4, async for": Row(consume(LENGTHS, "read-1k-lz4"), 4_000, 12_000),
    "import asyncio": Row("if size:\n    import asyncio\n", 0, 1, False),
    "import Producer": Row(IMPORT.format(name="Producer"), 0, 1, False),
    "import Consumer": Row(IMPORT.format(name="Consumer"), 0, 1, False),
    "import Admin": Row(IMPORT.format(name="Admin"), 0, 1, False),
    "import and first message": Row(FIRST.format(name="Producer", body=FIRST_SEND), 0, 1),
    "import and first record": Row(FIRST.format(name="Consumer", body=FIRST_READ), 0, 1),
    "import and first admin call": Row(FIRST.format(name="Admin", body=FIRST_CALL), 0, 1),
}
BROKERS = """
import random, sys
from aiokclient.testing import EmbeddedCluster
sys.path.append("benchmarks")
from measuring.payloads import text
names = "produced", "read", "read-1k", "read-1k-lz4"
with EmbeddedCluster(brokers=1, topics=dict.fromkeys(names, 1)) as cluster:
    for _ in range(70):  # Each is one batch of about the size that producers make.
        cluster.produce("read", [b"x" * 100] * 1000)
    values = [text(random.Random(index), 1000) for index in range(100)]
    for _ in range(130):
        cluster.produce("read-1k", values)
        cluster.produce("read-1k-lz4", values, compression="lz4")
    print(cluster.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


def program_of(row: Row) -> str:
    """Return the source of a program. That of an import begins without asyncio."""
    start = START if row.small else START.replace("asyncio, ", "")
    return start + row.program


def count(checkout: Path, row: Row, size: int, servers: str) -> int:
    """Run a program in valgrind, and return the number of its instructions."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    python = [sys.executable, "-c", program_of(row), str(size), servers]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONHASHSEED": "0"}
    environment["GLIBC_TUNABLES"] = COPY_BY_VECTORS
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # The first run compiles modules that have changed.
    subprocess.run(python, cwd=checkout, env=environment, check=True)
    done = subprocess.run(
        [*valgrind, *python], cwd=checkout, env=environment, capture_output=True, text=True
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or found is None:
        sys.exit(done.stderr[-3000:])
    return int(found[1])


def measure(checkout: Path, row: Row) -> float:
    """Return the instructions for one more message, batch, or import."""
    if not row.has_brokers:
        return count(checkout, row, 1, "") - count(checkout, row, 0, "")
    command = [sys.executable, "-c", BROKERS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as brokers:
        assert brokers.stdout is not None
        servers = brokers.stdout.readline().strip()
        if not servers:
            sys.exit("the embedded cluster did not start")
        counts = [count(checkout, row, size, servers) for size in (row.small, row.large)]
        brokers.communicate("")
    return (counts[1] - counts[0]) / (row.large - row.small)


def measure_row(checkouts: Sequence[Path], row: Row, limit: float | None) -> list[float]:
    """Return the figure of each checkout, the smallest of several while the last is too high."""
    figures = [measure(checkout, row) for checkout in checkouts]
    for _ in range(RUNS - 1):
        if limit is None or figures[-1] <= limit * figures[0]:
            break
        again = (measure(checkout, row) for checkout in checkouts)
        figures = list(map(min, figures, again))
    return figures


def format_line(name: str, figures: Sequence[float]) -> str:
    width = max(map(len, ROWS))
    cells = "".join(f"{each:14,.0f}  {each / figures[0]:6.3f}" for each in figures)
    return f"{name:{width}}{cells}\n"


def describe_build() -> dict[str, str]:
    """Return what the figures depend on: the interpreter, its build, and the compilers."""
    compiler = sysconfig.get_config_var("CC") or "cc"
    version = subprocess.run(
        [*compiler.split()[:1], "--version"], capture_output=True, text=True, check=False
    ).stdout.split("\n")[0]
    return {
        "interpreter": f"{platform.python_implementation()} {platform.python_version()}",
        "build": " and ".join(optimizations()) or "without PGO and LTO",
        "compiler of the interpreter": platform.python_compiler(),
        "compiler of the native modules": version,
        "machine": platform.machine(),
    }


def write_markdown(path: Path, rows: dict[str, list[float]]) -> None:
    """Write the table of the last checkout."""
    lines = [
        "# Instructions of the client",
        "",
        "`make callgrind` writes this file. Each figure is what one more message costs, or what",
        "the row names: a batch, a transaction, an import. It includes the program's own loop.",
        "",
        "| what | instructions |",
        "| --- | ---: |",
        *(f"| {name} | {figures[-1]:,.0f} |" for name, figures in rows.items()),
        "",
        "| property | value |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in describe_build().items()),
        "",
    ]
    path.write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT])
    parser.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--limit", type=float, help="the highest ratio of the last checkout")
    parser.add_argument("--markdown", type=Path, help="write the table of the last checkout here")
    parser.add_argument("--json", type=Path, help="write the figures of all checkouts here")
    options = parser.parse_args()
    checkouts = [path.resolve() for path in options.checkouts]
    rows = {}
    for name in options.rows:
        rows[name] = measure_row(checkouts, ROWS[name], options.limit)
        sys.stdout.write(format_line(name, rows[name]))
        sys.stdout.flush()
    if options.markdown:
        write_markdown(options.markdown, rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.limit:
        slower = [name for name, each in rows.items() if each[-1] > options.limit * each[0]]
        if slower:
            sys.exit(f"over {options.limit} times the instructions: {', '.join(slower)}")


if __name__ == "__main__":
    main()
