"""Retry topics and dead letters on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import Any

import pytest

from aiokclient import Admin, Client, Consumer, ConsumerRecord, Producer
from aiokclient.admin import NewTopic
from aiokclient.worker import DeadLetter, DeadLetterInfo, Retry, Worker, replay

Record = ConsumerRecord[bytes, bytes]


@pytest.mark.parametrize("protocol", ["consumer"])
async def test_failed_records_run_again_from_retry_topics_and_end_as_dead_letters(
    cluster_servers: Any, protocol: Any
) -> None:
    name = f"work-{uuid.uuid4().hex[:12]}"
    retried, dead = f"{name}.retry", f"{name}.dead"
    counts: Counter[bytes] = Counter()
    late_ms: list[int] = []
    ended = asyncio.Event()
    is_mended = False

    async def handle(record: Record) -> None:
        counts[record.value] += 1
        if record.topic == retried:
            now_ms = worker._consumer._cluster.clock.time_ms()
            late_ms.append(now_ms - int(dict(record.headers)["aiokclient.due"] or 0))
        if record.value == b"poison" and not is_mended:
            if counts[record.value] == 2:
                ended.set()
            raise ValueError("not yet")
        if counts[b"poison"] == 3:
            ended.set()

    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        async with Admin(client=client) as admin:
            (await admin.create_topics([NewTopic(name, 3, 1)])).raise_for_errors()
        async with Producer(client=client) as producer:
            values = [b"1", b"2", b"poison", b"3"]
            await producer.gather([producer.send(name, v, partition=2) for v in values])
        options: dict[str, Any] = {"group_protocol": protocol, "auto_offset_reset": "earliest"}
        async with Consumer(name, client=client, group_id=name, **options) as consumer:
            worker = Worker(
                consumer,
                handle,
                retry=Retry(2, topic=[(1.0, retried)], create=True),
                dead_letter=DeadLetter(dead, create=True),
            )
            running = asyncio.create_task(worker.run())
            await asyncio.wait_for(ended.wait(), 60)
            await worker.drain()
            await running
            assert counts == Counter(values) + Counter([b"poison"])
            assert min(late_ms) >= 0
            is_mended = True
            ended.clear()
            assert (await replay(dead, client=client)).topics == {name: 1}
            running = asyncio.create_task(worker.run())
            await asyncio.wait_for(ended.wait(), 60)
            await worker.drain()
            await running
        assert counts == Counter(values) + Counter([b"poison"] * 2)
        options = {"auto_offset_reset": "earliest"}
        async with Consumer(dead, client=client, **options) as reader:
            (letter,) = [record async for record in reader.until_end()]
            assert len(await reader.partitions_for(dead)) == 3
    info = DeadLetterInfo.of(letter)
    assert (letter.partition, info.origin_topic, info.origin_partition) == (2, name, 2)
    assert (info.origin_offset, info.attempts, info.error_message) == (2, 2, "not yet")
