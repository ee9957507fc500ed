"""Put dead letters back into the topics from which they came, after what has failed is mended.

It shows what is among the dead letters, and puts back those with an error of the given class, such
as TimeoutError. The group remembers where a replay has ended, so that the next one begins there.

python examples/replay.py [BOOTSTRAP] [TOPIC] [ERROR] [GROUP]
"""

import asyncio
import sys
from collections import Counter

from aiokclient import Client, ConsumerRecord
from aiokclient.worker import DeadLetterInfo, replay


async def main(
    bootstrap: str = "localhost:9092",
    topic: str = "orders.dead",
    error: str = "TimeoutError",
    group: str = "replays",
) -> None:
    found: Counter[str | None] = Counter()

    def is_wanted(record: ConsumerRecord[bytes, bytes]) -> bool:
        info = DeadLetterInfo.of(record)
        found[info.error_type] += 1
        return info.error_type == error

    async with Client(bootstrap_servers=bootstrap) as client:
        planned = await replay(topic, where=is_wanted, dry_run=True, client=client, group_id=group)
        for error_type, count in found.most_common():
            print(f"{error_type}: {count}")
        if planned.replayed:
            done = await replay(topic, where=is_wanted, client=client, group_id=group)
            for name, count in done.topics.items():
                print(f"put back into {name}: {count}")
            done.raise_for_errors()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
