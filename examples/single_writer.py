"""Several processes of which only one writes. If it stops, another one takes over.

Start this program several times.

python examples/single_writer.py localhost:9092
"""

import asyncio
import os
import sys

from aiokclient.errors import NotWriterError
from aiokclient.patterns import single_writer

SERVERS = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
ENTRIES = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000


async def write_ledger() -> None:
    """Write entries. If another process becomes the writer, the block is cancelled."""
    options = {"bootstrap_servers": SERVERS, "shutdown_timeout_ms": 20_000}
    async with single_writer("ledger", **options) as producer:
        print(f"{os.getpid()} writes", flush=True)
        for number in range(ENTRIES):
            await producer.send("ledger", b"entry %d by %d" % (number, os.getpid()))
        print(f"{os.getpid()} has written {ENTRIES} entries", flush=True)


async def main() -> None:
    while True:
        try:
            return await write_ledger()
        except NotWriterError:
            print(f"{os.getpid()} is no longer the writer and waits again", flush=True)


asyncio.run(main())
