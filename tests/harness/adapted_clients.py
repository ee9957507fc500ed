"""Topics and clients for programs that run with aiokafka, or with its adapter."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from aiokclient.testing import EmbeddedCluster

_numbers = itertools.count(1)


class Stage:
    """A topic, a group, and clients of one of the two libraries."""

    def __init__(self, cluster: EmbeddedCluster, kafka: ModuleType) -> None:
        number = next(_numbers)
        self.cluster = cluster
        self.kafka = kafka
        self.topic, self.group = f"adapted-{number}", f"group-{number}"
        cluster.create_topic(self.topic, 3)

    def tp(self, partition: int) -> Any:
        return self.kafka.TopicPartition(self.topic, partition)

    def producer(self, **options: Any) -> Any:
        return self.kafka.AIOKafkaProducer(
            bootstrap_servers=self.cluster.bootstrap_servers, **options
        )

    def consumer(self, *topics: str, **options: Any) -> Any:
        options.setdefault("auto_offset_reset", "earliest")
        return self.kafka.AIOKafkaConsumer(
            *topics, bootstrap_servers=self.cluster.bootstrap_servers, **options
        )

    def fill(self, count: int, partition: int = 0) -> None:
        self.cluster.produce(self.topic, [b"%d" % i for i in range(count)], partition)

    def partitions(self, tps: Any) -> list[int]:
        return sorted(tp.partition for tp in tps)


async def error_of(awaitable: Awaitable[Any]) -> str:
    try:
        await awaitable
    except (Exception, asyncio.CancelledError) as error:
        return type(error).__name__
    return "none"


async def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return function(*arguments, **options)
