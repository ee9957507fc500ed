"""Start it several times: the sites are spread over the processes, by weight, and stay put.

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
    # Fetch, parse, store, for ever. When the site goes to another process this is cancelled.
    await asyncio.Event().wait()


async def main() -> None:
    pool = work_pool("crawlers", SITES, bootstrap_servers=SERVERS)
    with anyio.move_on_after(SECONDS):
        async with aclosing(pool):  # so that it leaves the group as soon as the loop is left
            async for items in pool:
                async with items as mine, asyncio.TaskGroup() as tasks:
                    print(f"{os.getpid()} crawls {', '.join(mine) or 'nothing'}", flush=True)
                    for site in mine:
                        tasks.create_task(crawl(site))


asyncio.run(main())
