"""Count words exactly once: consume, transform, and produce in transactions (KIP-1050).

Each poll is one transaction, with the counts of its words and the offsets of its records. So the
sum of the counts of a word is the number of its occurrences, whatever fails: each `except` clause
says what to do after one category of errors. A restart, or the look-up of the committed positions,
fails after a minute of an outage. It is repeated in the next round, so that no outage ends the
program. Stop it with SIGINT or SIGTERM. Instances that share the work have the same group, and each
has a transactional id of its own.

python examples/word_count.py [BOOTSTRAP] [INPUT] [OUTPUT] [GROUP] [TRANSACTIONAL_ID]
"""

import asyncio
import signal
import sys
from collections import Counter

from aiokclient import Consumer, Producer
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    InvalidConfigurationError,
    RetriableError,
)

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


async def count_words(
    consumer: Consumer[bytes, str], producer: Producer[str, str], output: str
) -> None:
    """Process the records of one poll in one transaction."""
    records = await consumer.poll(timeout=60)
    # If this member loses its partitions from now on, the group refuses its offsets.
    member = consumer.group_metadata()
    counts = Counter(word for record in records for word in record.value.split())

    await producer.begin_transaction()
    for word, count in counts.items():
        producer.send(output, key=word, value=str(count))
    await producer.send_offsets_to_transaction(records.offsets(), member)
    await producer.commit_transaction()


async def reset_to_last_committed_positions(consumer: Consumer[bytes, str]) -> None:
    committed = await consumer.committed(consumer.assignment())
    for tp in consumer.assignment() & committed.keys():
        offset = committed[tp]
        if offset is None:
            consumer.seek_to_beginning([tp])
        else:
            consumer.seek(tp, offset)


async def main(
    bootstrap: str = "localhost:9092",
    source: str = "input",
    output: str = "output",
    group: str = "word-count",
    transactional_id: str = "word-count-1",
) -> None:
    async with (
        Consumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            value_deserializer=bytes.decode,
            shutdown_timeout_ms=10_000,
        ) as consumer,
        Producer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            key_serializer=str.encode,
            value_serializer=str.encode,
            shutdown_timeout_ms=10_000,
        ) as producer,
    ):
        running, must_restart, must_reset = True, False, False
        pause_s = SHORTEST_PAUSE_S

        def stop() -> None:
            nonlocal running
            running = False
            consumer.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        print("counting", flush=True)

        while running:
            try:
                try:
                    if must_restart:
                        await producer.restart()
                        must_restart = False
                    if must_reset:
                        await reset_to_last_committed_positions(consumer)
                        must_reset = False
                    await count_words(consumer, producer, output)
                    pause_s = SHORTEST_PAUSE_S
                    continue
                except AbortableError as error:
                    # The transaction cannot be committed. Abort it, and process the records again.
                    print(f"aborting: {error}", flush=True)
                    must_reset = True
                    await producer.abort_transaction()  # This never raises an AbortableError.
            except InvalidConfigurationError as error:
                # Something outside of the program must be corrected, such as a permission.
                print(f"giving up: {error}", flush=True)
                raise
            except ApplicationRecoverableError as error:
                # The producer is no longer usable. Begin again with a new epoch.
                print(f"restarting: {error}", flush=True)
                must_restart = must_reset = True
            except RetriableError as error:
                # The committed positions are not known yet.
                print(f"waiting: {error}", flush=True)
                must_reset = True
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
