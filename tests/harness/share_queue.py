"""A topic that a share group reads from its beginning, on an embedded cluster or a real Kafka."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokclient import Admin, Producer, ShareConsumer, TopicPartition
from aiokclient.admin import ConfigResource

TIMEOUT_S = 20.0
_numbers = itertools.count(1)


class Queue:
    """A topic with a share group that reads it from its beginning."""

    def __init__(self, bootstrap: str, topic: str, group: str, admin: Admin) -> None:
        self.topic, self.group, self.admin = topic, group, admin
        self.options: dict[str, Any] = {"bootstrap_servers": bootstrap}

    async def fill(self, count: int, **options: Any) -> None:
        """Write `count` numbers to partition 0, or to another one."""
        at = {"topic": self.topic, "partition": 0, **options}
        async with Producer(**self.options) as producer:
            values = [b"%d" % number for number in range(count)]
            await producer.gather([producer.send(value=value, **at) for value in values])

    def consumer(self, *topics: str, **options: Any) -> ShareConsumer[Any, Any]:
        return ShareConsumer(
            *(topics or (self.topic,)), group_id=self.group, **{**self.options, **options}
        )

    async def configure(self, **configs: str) -> None:
        """Set configurations of the group, whose names begin with `share.`."""
        named = {f"share.{name.replace('_', '.')}": value for name, value in configs.items()}
        resource = ConfigResource.group(self.group)
        (await self.admin.alter_configs({resource: named})).raise_for_errors()

    async def lag(self, partition: int = 0) -> int | None:
        listed = await self.admin.list_share_group_offsets([self.group])
        found = listed.raise_for_errors()[self.group]
        stored = found[TopicPartition(self.topic, partition)]
        return None if stored is None else stored.lag


@asynccontextmanager
async def queue_on(bootstrap: str, topic: str) -> AsyncIterator[Queue]:
    """Create a share group that reads a topic from its beginning."""
    group = f"share-{time.time_ns()}-{next(_numbers)}"
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (await admin.create_share_group(group, [topic], start="earliest")).raise_for_errors()
        yield Queue(bootstrap, topic, group, admin)


async def take(consumer: ShareConsumer[Any, Any], count: int, **options: Any) -> list[Any]:
    """Read `count` records."""
    found: list[Any] = []
    while len(found) < count:
        records = await consumer.poll(TIMEOUT_S, count - len(found), **options)
        assert records, f"{len(found)} of {count} records arrived"
        found += records
    return found
