"""Many handlers share the jobs of a topic as a queue. A job that fails is delivered again.

python examples/share_worker.py localhost:9092
"""

import asyncio
import sys

from aiokclient import Admin, Producer, ShareConsumer, ShareRecord

JOBS = 20


async def main(servers: str) -> None:
    async with Admin(bootstrap_servers=servers) as admin:
        # The start of the group is stored, so that no job is skipped before its first consumer.
        await admin.create_share_group("resizers", ["jobs"], start="earliest")
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.gather([producer.send("jobs", b"image %d" % n) for n in range(JOBS)])

    done: set[bytes | None] = set()
    async with ShareConsumer("jobs", group_id="resizers", bootstrap_servers=servers) as consumer:

        async def work(record: ShareRecord[bytes, bytes]) -> None:
            # Done at the end of the body, released by an exception, cancelled if the lock is lost.
            async with consumer.processing(record, on_lost="return"):
                if record.delivery_count == 1 and record.value == b"image 7":
                    raise ValueError("the first attempt fails")
                done.add(record.value)
            if len(done) == JOBS:
                consumer.stop()

        tasks = []
        async for record in consumer.tracked(max_outstanding=10):
            tasks.append(asyncio.create_task(work(record)))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [error for error in results if error is not None]
    print(f"{len(done)} jobs done, {len(tasks)} deliveries, {len(failed)} failed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
