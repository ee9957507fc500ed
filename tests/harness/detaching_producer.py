"""A process that writes a transaction, prints the pickle of its handle, and waits to be killed.

python tests/harness/detaching_producer.py BOOTSTRAP TRANSACTIONAL_ID TOPIC GROUP
"""

import asyncio
import pickle
import sys

from aiokclient import GroupMetadata, Producer, TopicPartition


async def main(bootstrap: str, name: str, topic: str, group: str) -> None:
    async with (
        Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer,
        producer.transaction() as tx,
    ):
        for partition in range(2):
            tx.send(topic, b"written", partition=partition)
        await tx.send_offsets({TopicPartition(topic, 0): 7}, GroupMetadata(group))
        handle = await tx.detach()
        sys.stdout.write(pickle.dumps(handle).hex() + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
