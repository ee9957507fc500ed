"""Consume, transform, and produce exactly once, with `transform`, which handles the errors.

Stop the program with SIGINT or SIGTERM: it ends after the current transaction.

python examples/transform.py [BOOTSTRAP] [INPUT] [OUTPUT] [GROUP] [TRANSACTIONAL_ID]
"""

import asyncio
import signal
import sys

from aiokclient import Consumer, Producer, transform


async def main(
    bootstrap: str = "localhost:9092",
    source: str = "input",
    output: str = "output",
    group: str = "shouting",
    transactional_id: str = "shouting-1",
) -> None:
    async with (
        Consumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            shutdown_timeout_ms=10_000,
        ) as consumer,
        Producer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            shutdown_timeout_ms=10_000,
        ) as producer,
    ):
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, consumer.stop)
        print("transforming", flush=True)
        async with transform(consumer, producer) as stream:
            async for batch in stream:
                for record in batch:
                    batch.send(output, key=record.key, value=record.value.upper())
        print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
