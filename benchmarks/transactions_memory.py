"""Does the memory of a producer stay the same over many transactions?

A producer commits transactions with one record each. The cluster runs in another process. The
output is the growth of the traced memory of the client's process after the first tenth of the
transactions.

    python benchmarks/transactions_memory.py [--transactions N] [--bootstrap HOST:PORT]

Without --bootstrap an embedded cluster is started in another process.
"""

import argparse
import asyncio
import gc
import subprocess
import sys
import tracemalloc
import uuid

from aiokclient import Admin, NewTopic, Producer

LIMIT_KIB = 64


async def growth_kib(bootstrap: str, transactions: int) -> float:
    """Return by how many KiB the memory has grown after the first tenth of the transactions."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (await admin.create_topics([NewTopic(name, 1)])).raise_for_errors()
    async with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:

        async def commit(count: int) -> None:
            for _ in range(count):
                async with producer.transaction() as tx:
                    tx.send(name, b"." * 100)

        tracemalloc.start()
        await commit(transactions // 10)
        before = traced()
        await commit(transactions - transactions // 10)
        return (traced() - before) / 1024


def traced() -> int:
    """Return the traced memory in bytes, without garbage."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--bootstrap")
    given = parser.parse_args()
    broker, bootstrap = None, given.bootstrap
    if bootstrap is None:
        command = [sys.executable, "-m", "aiokclient.testing", "--brokers", "1", "--port", "0"]
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert broker.stdout is not None
        bootstrap = next(
            word for word in broker.stdout.readline().split() if word.startswith("127.0.0.1:")
        )
    try:
        grown = asyncio.run(growth_kib(bootstrap, given.transactions))
    finally:
        if broker is not None:
            broker.terminate()
            broker.communicate()
    print(f"{given.transactions} transactions: {grown:.1f} KiB more, limit {LIMIT_KIB}")
    return 0 if grown < LIMIT_KIB else 1


if __name__ == "__main__":
    sys.exit(main())
