"""Simulated clients whose bootstrap name leads to another cluster after a while."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from rebootstrapping import OLD, bootstrap_servers, name_leads_to
from world import World, simulate

from aiokclient import Consumer
from aiokclient.protocol import ApiKey

VERSIONS = {
    "Kafka 4.4": {},
    "before ids of brokers": {ApiKey.API_VERSIONS: (0, 4)},
    "before ids of topics": {
        ApiKey.API_VERSIONS: (0, 3),
        ApiKey.METADATA: (0, 9),
        ApiKey.PRODUCE: (3, 9),
        ApiKey.FETCH: (4, 11),
        ApiKey.OFFSET_COMMIT: (2, 8),
        ApiKey.OFFSET_FETCH: (1, 7),
    },
}
"""Limits of the brokers' API versions, on which the ways to detect another cluster depend."""

EVERY_CLUSTER = pytest.mark.parametrize("limits", VERSIONS.values(), ids=VERSIONS)
EVERY_STRATEGY = pytest.mark.parametrize("strategy", ["rebootstrap", "none"])

Work = Callable[[World, dict[str, Any]], Coroutine[Any, Any, None]]


def in_two_clusters(
    work: Work, limits: dict[Any, Any], strategy: str = "rebootstrap", **options: Any
) -> None:
    """Run `work(world, options)` with a name that leads to brokers of limited versions."""

    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        world.cluster.limit_versions(limits)
        given = world.options(
            bootstrap_servers=bootstrap_servers(world),
            metadata_recovery_strategy=strategy,
            **options,
        )
        await work(world, given)

    simulate(scenario, brokers=3, topics={"t": 3}, replication=3)


def replace_cluster(world: World, records: int = 0) -> str:
    """Replace the cluster with another one that has as many records. Return the former id."""
    former = world.cluster.cluster_id
    world.cluster.wipe({"t": 3})
    for partition in range(3):
        for number in range(records):
            world.cluster.produce("t", [b"new %d" % number], partition)
    return former


async def read(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            record = await consumer.get(timeout=30)
            if record is not None:
                found.append(record)
    return found
