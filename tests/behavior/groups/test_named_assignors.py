"""The assignors that Kafka does not have: they can be imported, and selected by name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from aiokclient import Consumer, CoPartitioned, Redundant
from aiokclient.errors import ConfigError
from aiokclient.testing import EmbeddedCluster

OPTIONS: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 200}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"a": 4, "b": 4}) as started:
        yield started


async def assignments(
    cluster: EmbeddedCluster, strategy: Any, topics: tuple[str, ...], total: int
) -> list[set[tuple[str, int]]]:
    """Return what two members have once they have `total` partitions in all."""
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(
                Consumer(
                    *topics,
                    bootstrap_servers=cluster.bootstrap_servers,
                    partition_assignment_strategy=strategy,
                    **OPTIONS,
                )
            )
            for _ in range(2)
        ]
        async with asyncio.timeout(30):
            while True:
                found = [{(tp.topic, tp.partition) for tp in m.assignment()} for m in members]
                if all(found) and sum(map(len, found)) == total:
                    return found
                await asyncio.gather(*(member.poll(timeout=0.05) for member in members))


@pytest.mark.parametrize("strategy", ["redundant", Redundant, Redundant(2)], ids=repr)
async def test_redundant_gives_each_partition_to_two_members(
    cluster: EmbeddedCluster, strategy: Any
) -> None:
    one, two = await assignments(cluster, strategy, ("a",), 8)
    assert one == two == {("a", partition) for partition in range(4)}


@pytest.mark.parametrize("strategy", ["co-partitioned", CoPartitioned("a", "b")], ids=repr)
async def test_co_partitioned_gives_equal_numbers_to_one_member(
    cluster: EmbeddedCluster, strategy: Any
) -> None:
    for member in await assignments(cluster, strategy, ("a", "b"), 8):
        assert {number for topic, number in member if topic == "a"} == {
            number for topic, number in member if topic == "b"
        }


def test_redundant_by_name_turns_automatic_commits_off() -> None:
    def commits(strategy: Any, **options: Any) -> bool:
        consumer = Consumer(
            "a",
            bootstrap_servers="localhost:1",
            group_id="g",
            partition_assignment_strategy=strategy,
            **options,
        )
        return bool(consumer._config.enable_auto_commit)

    assert not commits("redundant")
    assert not commits(["range", "redundant"])
    assert not commits(Redundant(3))
    assert commits("redundant", enable_auto_commit=True)
    assert commits("co-partitioned")


def test_names_can_be_given_in_properties() -> None:
    properties = {
        "bootstrap.servers": "localhost:1",
        "group.id": "g",
        "partition.assignment.strategy": "co-partitioned,redundant",
    }
    consumer = Consumer.from_properties(properties, "a")
    assert consumer._config.partition_assignment_strategy == ("co-partitioned", "redundant")
    with pytest.raises(ConfigError, match="'redundant', 'co-partitioned'"):
        Consumer.from_properties({**properties, "partition.assignment.strategy": "redundancy"}, "a")
