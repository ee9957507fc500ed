"""Work that is divided among several processes by weight, and rarely moves between them.

Start this program several times.

python examples/work_pool.py localhost:9092
"""

import asyncio
import os
import sys
from contextlib import aclosing

import anyio

from aiokclient.patterns import work_pool

SERVERS = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
SITES = {"news": 5, "shop": 3, "wiki": 2, "blog": 1, "forum": 1}


async def crawl(site: str) -> None:
    # Fetch, parse, and store, forever. It is cancelled when another process gets the site.
    await asyncio.Event().wait()


async def main() -> None:
    pool = work_pool("crawlers", SITES, bootstrap_servers=SERVERS, shutdown_timeout_ms=20_000)
    with anyio.move_on_after(SECONDS):
        async with aclosing(pool):  # Leave the group when the loop ends.
            async for items in pool:
                async with items as mine, asyncio.TaskGroup() as tasks:
                    print(f"{os.getpid()} crawls {', '.join(mine) or 'nothing'}", flush=True)
                    for site in mine:
                        tasks.create_task(crawl(site))


asyncio.run(main())
