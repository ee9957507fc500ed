"""A worker with a transactional producer, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import Any

from aiokclient import Admin, Client, Consumer, ConsumerRecord, Producer, TopicPartition
from aiokclient.admin import NewTopic
from aiokclient.worker import DeadLetter, Exponential, Retry, Worker

Record = ConsumerRecord[bytes, bytes]


async def read_committed(client: Client, topic: str) -> list[bytes | None]:
    options: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
    }
    async with Consumer(topic, client=client, **options) as reader:
        return [record.value async for record in reader.until_end()]


async def test_each_record_has_its_result_or_its_dead_letter_exactly_once(
    cluster_servers: Any,
) -> None:
    name = f"exact-{uuid.uuid4().hex[:12]}"
    out, dead = f"{name}.out", f"{name}.dead"
    runs: Counter[bytes] = Counter()
    ended = asyncio.Event()

    async def handle(record: Record, worker: Worker) -> None:
        runs[record.value] += 1
        worker.send(out, record.value)
        if record.value == b"poison" or (record.value == b"2" and runs[b"2"] == 1):
            raise ValueError("not yet")
        if record.value == b"last":
            ended.set()

    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        async with Admin(client=client) as admin:
            topics = [NewTopic(name, 1, 1), NewTopic(out, 1, 1)]
            (await admin.create_topics(topics)).raise_for_errors()
        values = [b"1", b"2", b"3", b"poison", b"4", b"last"]
        async with Producer(client=client) as producer:
            await producer.gather([producer.send(name, value) for value in values])
        options: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
        async with (
            Consumer(name, client=client, group_id=name, **options) as consumer,
            Producer(client=client, transactional_id=name) as producer,
        ):
            worker = Worker(
                consumer,
                handle,
                producer=producer,
                retry=Retry(2, Exponential(0.1)),
                dead_letter=DeadLetter(dead, create=True),
            )
            running = asyncio.create_task(worker.run())
            waiting = asyncio.create_task(ended.wait())
            await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
            await worker.drain()
            await running
            await waiting
        assert await read_committed(client, out) == [b"1", b"2", b"3", b"4", b"last"]
        assert await read_committed(client, dead) == [b"poison"]
        async with Consumer(client=client, group_id=name, **options) as reader:
            tp = TopicPartition(name, 0)
            stored = (await reader.committed([tp]))[tp]
            assert stored is not None
            assert stored.offset == len(values)
