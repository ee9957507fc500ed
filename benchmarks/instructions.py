"""Count the instructions of the client for each message, request, and import, by callgrind.

    python benchmarks/instructions.py [CHECKOUT ...] [--rows ROW ...]

Each row is a program as users write it. It runs with two sizes, and the difference of the two
counts is what the additional messages cost, without the start of the interpreter and the client.
The brokers are an embedded cluster in another process, which is not counted. Counts of one checkout
differ by about one percent between runs, whatever else the machine does. With several checkouts,
the table has a column for each of them, with its ratio to the first. Needs valgrind.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START = """
import asyncio, sys
size = int(sys.argv[1])
servers = sys.argv[2]
"""
PRODUCE = """
from aiokclient import Producer
async def main():
    async with Producer(bootstrap_servers=servers, enable_metrics_push=False) as producer:
        await producer.send("produced", b"warm")
        value = b"x" * {bytes}
        for _ in range(size // 1000):
            deliveries = []
            for _ in range(1000):
                deliveries.append(producer.send("produced", value))
            await producer.gather(deliveries)
asyncio.run(main())
"""
AWAITED = """
from aiokclient import Producer
async def main():
    async with Producer(bootstrap_servers=servers, enable_metrics_push=False) as producer:
        for _ in range(size):
            await producer.send("produced", b"x" * 100)
asyncio.run(main())
"""
TASKS = """
from aiokclient import Producer
async def send(producer, count):
    for _ in range(count):
        await producer.send("produced", b"x" * 100)
async def main():
    async with Producer(bootstrap_servers=servers, enable_metrics_push=False,
                        linger_ms=5) as producer:
        await asyncio.gather(*(send(producer, size // 1000) for _ in range(1000)))
asyncio.run(main())
"""
CONSUME = """
from aiokclient import Consumer
async def main():
    async with Consumer("read", bootstrap_servers=servers, enable_metrics_push=False,
                        auto_offset_reset="earliest") as consumer:
        count = 0
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
TRANSACT = """
from aiokclient import Producer
async def main():
    async with Producer(bootstrap_servers=servers, enable_metrics_push=False,
                        transactional_id="counted") as producer:
        for _ in range(size):
            async with producer.transaction() as tx:
                tx.send("produced", b"x" * 100)
asyncio.run(main())
"""
IMPORT = """
import aiokclient
if size:
    from aiokclient import Consumer, Producer
"""
ROWS: dict[str, tuple[str, int, int]] = {
    "produce 100 B": (PRODUCE.format(bytes=100), 10_000, 40_000),
    "produce 1 KB": (PRODUCE.format(bytes=1000), 5_000, 20_000),
    "awaited send": (AWAITED, 200, 800),
    "1,000 tasks": (TASKS, 5_000, 20_000),
    "consume, lists": (CONSUME.format(loop=LISTS), 10_000, 40_000),
    "consume, async for": (CONSUME.format(loop=EACH), 10_000, 40_000),
    "transaction of one record": (TRANSACT, 50, 200),
    "import": (IMPORT, 0, 1),
}
"""The program of each row, and its two sizes."""
BROKERS = """
import sys, threading
from aiokclient.testing import EmbeddedCluster
with EmbeddedCluster(brokers=1, topics={"produced": 1, "read": 1}) as cluster:
    cluster.produce("read", [b"x" * 100] * 41_000)
    print(cluster.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


def count(checkout: Path, program: str, size: int, servers: str) -> int:
    """Run a program in valgrind, and return the number of instructions."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    python = [sys.executable, "-c", START + program, str(size), servers]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONHASHSEED": "0"}
    # The first run compiles modules that have changed.
    subprocess.run(python, cwd=checkout, env=environment, check=True)
    done = subprocess.run(
        [*valgrind, *python], cwd=checkout, env=environment, capture_output=True, text=True
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or found is None:
        sys.exit(done.stderr[-3000:])
    return int(found[1])


def measure(checkout: Path, row: str) -> float:
    """Return the instructions of one message in this row."""
    program, small, large = ROWS[row]
    command = [sys.executable, "-c", BROKERS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as brokers:
        assert brokers.stdout is not None
        servers = brokers.stdout.readline().strip()
        counts = [count(checkout, program, size, servers) for size in (small, large)]
        brokers.communicate("")
    return (counts[1] - counts[0]) / (large - small)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT])
    parser.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
    options = parser.parse_args()
    checkouts = [path.resolve() for path in options.checkouts]
    width = max(map(len, ROWS))
    for row in options.rows:
        counts = [measure(checkout, row) for checkout in checkouts]
        ratios = "".join(f"{each:14,.0f}  {each / counts[0]:6.3f}" for each in counts)
        sys.stdout.write(f"{row:{width}}{ratios}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
