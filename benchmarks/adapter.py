"""How much CPU do programs for aiokafka take there, on the adapter, and moved to aiokclient?

Each row is the same program on each. The output is the CPU time of the process for each record, in
microseconds, the least of several runs, and its ratio to aiokafka's. The brokers run in another
process.

    python benchmarks/adapter.py [--records N] [--runs N] [--bootstrap HOST:PORT]

Without --bootstrap an embedded cluster is started in another process.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

VALUE = b"." * 100
AT_ONCE = 500
TOPIC = "adapter-benchmark"
LIBRARIES = {"aiokafka": "aiokafka", "adapter": "aiokclient.adapters.aiokafka"}

Measured = Callable[[str, str, int], Coroutine[Any, Any, float]]


def clients(library: str) -> Any:
    return import_module(LIBRARIES[library])


async def send_and_gather(library: str, servers: str, count: int) -> float:
    if library == "native":
        from aiokclient import Producer

        async with Producer(bootstrap_servers=servers) as producer:
            await producer.send(TOPIC, VALUE)
            start = time.process_time()
            for _ in range(count // AT_ONCE):
                await producer.gather([producer.send(TOPIC, VALUE) for _ in range(AT_ONCE)])
            return time.process_time() - start
    async with clients(library).AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(TOPIC, VALUE)
        start = time.process_time()
        for _ in range(count // AT_ONCE):
            futures = [await producer.send(TOPIC, VALUE) for _ in range(AT_ONCE)]
            await asyncio.gather(*futures)
        return time.process_time() - start


async def send_and_wait(library: str, servers: str, count: int) -> float:
    single = count // 20
    if library == "native":
        from aiokclient import Producer

        made: Any = Producer(bootstrap_servers=servers)
    else:
        made = clients(library).AIOKafkaProducer(bootstrap_servers=servers)
    async with made as producer:
        await producer.send_and_wait(TOPIC, VALUE)
        start = time.process_time()
        for _ in range(single):
            await producer.send_and_wait(TOPIC, VALUE)
        return (time.process_time() - start) * count / single


def consumer_of(library: str, servers: str) -> Any:
    if library == "native":
        from aiokclient import Consumer

        return Consumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest")
    return clients(library).AIOKafkaConsumer(
        TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest"
    )


async def getmany(library: str, servers: str, count: int) -> float:
    async with consumer_of(library, servers) as consumer:
        start, read = time.process_time(), 0
        while read < count:
            if library == "native":
                lists = [await consumer.poll(1.0)]
            else:
                lists = [*(await consumer.getmany(timeout_ms=1000, max_records=500)).values()]
            for records in lists:
                for record in records:
                    read += bool(record.value)
        return (time.process_time() - start) * count / read


async def async_for(library: str, servers: str, count: int) -> float:
    async with consumer_of(library, servers) as consumer:
        start, read = time.process_time(), 0
        async for record in consumer:
            read += bool(record.value)
            if read >= count:
                break
        return time.process_time() - start


ROWS: tuple[Measured, ...] = (send_and_gather, send_and_wait, getmany, async_for)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--bootstrap")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        row, library = arguments.one
        measured = {each.__name__: each for each in ROWS}[row]
        print(asyncio.run(measured(library, arguments.bootstrap, arguments.records)))
        return
    servers, cluster = arguments.bootstrap, None
    if servers is None:
        port = 19092
        command = [sys.executable, "-m", "aiokclient.testing", "--port", str(port)]
        cluster = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        servers = f"127.0.0.1:{port}"
        time.sleep(3)
    try:
        print(f"{'CPU, µs a record':20}{'aiokafka':>16}{'adapter':>16}{'native':>16}")
        for row in ROWS:
            best: dict[str, float] = {}
            for _ in range(arguments.runs):
                for library in ("aiokafka", "adapter", "native"):
                    took = run_one(row.__name__, library, servers, arguments.records)
                    best[library] = min(took, best.get(library, took))
            cells = [f"{best[name] / arguments.records * 1e6:.2f}" for name in best]
            ratios = [f"{best[name] / best['aiokafka']:.2f}" for name in best]
            shown = [f"{c} ({r})" for c, r in zip(cells, ratios, strict=True)]
            print(f"{row.__name__:20}" + "".join(f"{each:>16}" for each in shown))
    finally:
        if cluster is not None:
            cluster.terminate()
            cluster.wait()


def run_one(row: str, library: str, servers: str, records: int) -> float:
    """Measure one row in a process of its own."""
    command = [sys.executable, __file__, "--one", row, library, "--bootstrap", servers]
    done = subprocess.run(
        [*command, "--records", str(records)], capture_output=True, check=True, text=True
    )
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
