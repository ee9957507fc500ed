"""A process that writes records and offsets in a transaction, and then waits to be killed.

python tests/harness/dying_producer.py BOOTSTRAP TRANSACTIONAL_ID TOPIC GROUP
"""

import asyncio
import sys

from aiokclient import GroupMetadata, Producer, TopicPartition


async def main(bootstrap: str, name: str, topic: str, group: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        async with producer.transaction() as tx:
            tx.send(topic, b"kept", partition=0)
        await producer.begin_transaction()
        for partition in range(3):
            await producer.send(topic, b"lost", partition=partition)
        offsets = {TopicPartition(topic, 0): 99}
        await producer.send_offsets_to_transaction(offsets, GroupMetadata(group))
        sys.stdout.write("written\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
