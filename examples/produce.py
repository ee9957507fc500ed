"""Produce: one record that is awaited, and many with backpressure.

python examples/produce.py [BOOTSTRAP] [TOPIC]
"""

import asyncio
import sys

from aiokclient import Producer


async def main(bootstrap: str = "localhost:9092", topic: str = "orders") -> None:
    async with Producer(bootstrap_servers=bootstrap, compression_type="lz4") as producer:
        # One record, acknowledged by all in-sync replicas before the next line runs.
        metadata = await producer.send(topic, b"first", key=b"customer-7")
        print(f"first: partition {metadata.partition}, offset {metadata.offset}")

        # Many: send() is synchronous; drain() waits while the buffer is full.
        deliveries = []
        for number in range(10_000):
            deliveries.append(producer.send(topic, b"record %d" % number))
            if producer.full:
                await producer.drain()
        results = await producer.gather(deliveries)  # Raises the first failure, if there is one.
        print(f"{len(results)} acknowledged")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
