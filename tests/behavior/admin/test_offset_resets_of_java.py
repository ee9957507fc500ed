"""Resets of offsets by this library and by Kafka's tool, which must lead to the same offsets."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kafka_harness import ToolHost

from aiokclient import Admin, Producer, TopicPartition
from aiokclient.admin import Shift

pytestmark = pytest.mark.timeout(280)

T0 = 1_700_000_000_000
MOMENT = datetime.fromtimestamp(T0 / 1000, UTC)


def java_time(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00")


def reset_by_tool(
    host: ToolHost, bootstrap: str, group: str, topic: str, *to: str
) -> dict[int, int]:
    """Return the offset of each partition in the plan of Kafka's tool."""
    written = host.run(
        "kafka-consumer-groups",
        *("--bootstrap-server", bootstrap, "--group", group, "--topic", topic),
        *("--reset-offsets", "--export", "--dry-run", *to),
    )
    rows = (line.replace('"', "").split(",") for line in written.out.splitlines())
    return {int(row[1]): int(row[2]) for row in rows if row[0] == topic}


async def test_the_plan_is_that_of_kafkas_tool(kafka: Any, tool_host: ToolHost) -> None:
    topic = await asyncio.to_thread(kafka.create_topic, None, 3, 1, {"retention.ms": -1})
    first, second, third = (TopicPartition(topic, index) for index in range(3))
    group = f"tool-{uuid.uuid4().hex[:12]}"
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        for n in range(5):
            await producer.send(topic, b"v", partition=0, timestamp=T0 + 10 * n)
        for n in range(3):
            await producer.send(topic, b"v", partition=1, timestamp=T0 - 10 * n)
    within, beyond = (MOMENT + timedelta(milliseconds=ms) for ms in (35, 41))
    targets: list[tuple[Any, list[str]]] = [
        ("earliest", ["--to-earliest"]),
        ("latest", ["--to-latest"]),
        ("current", ["--to-current"]),
        (3, ["--to-offset", "3"]),
        (9, ["--to-offset", "9"]),
        (Shift(1), ["--shift-by", "1"]),
        (Shift(-3), ["--shift-by", "-3"]),
        (within, ["--to-datetime", java_time(within)]),
        (beyond, ["--to-datetime", java_time(beyond)]),
        (timedelta(hours=1), ["--by-duration", "PT1H"]),
    ]
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        (await admin.delete_records({first: 2})).raise_for_errors()
        committed = {first: 4, second: 1, third: 0}
        (await admin.alter_consumer_group_offsets(group, committed)).raise_for_errors()
        for to, options in targets:
            plan = await admin.reset_offsets(group, to, topics=[topic], dry_run=True)
            ours = {tp.partition: each.after for tp, each in plan.raise_for_errors().items()}
            theirs = await asyncio.to_thread(
                reset_by_tool, tool_host, kafka.bootstrap, group, topic, *options
            )
            assert ours == theirs, options
