"""Consume a whole topic, from its beginning to its present end.

python examples/consume.py [BOOTSTRAP] [TOPIC]
"""

import asyncio
import sys

from aiokclient import Consumer


async def main(bootstrap: str = "localhost:9092", topic: str = "orders") -> None:
    async with Consumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        count = 0
        async for record in consumer.until_end():
            count += 1
            if count <= 3:
                print(f"{record.topic}-{record.partition} at {record.offset}: {record.value!r}")
        print(f"{count} records read")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
