"""Tests of a large group in one process, with five partitions for each member.

`make test-all` runs it with 200 members, and `make test` with 60.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from loop_time import check_held, held_times, measured

from aiokclient import Client, Consumer, TopicPartition
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

MEMBERS = 200 if os.environ.get("AIOKCLIENT_EXPLORE") else 60
PARTITIONS = 5 * MEMBERS
BEAT_MS, SESSION_MS = 1_000, 30_000
TIMES = {"heartbeat_interval_ms": BEAT_MS, "session_timeout_ms": SESSION_MS}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": "range", **TIMES},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky", **TIMES},
    "kip848": {"group_protocol": "consumer"},
}
# `make test-all` also runs the eager protocol.
TESTED = [name for name in PROTOCOLS if name != "eager" or os.environ.get("AIOKCLIENT_EXPLORE")]
BEATS = (ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
PATIENCE_S = 120
"""A timeout for steps that take a second or two on an idle machine."""


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    configs = {
        "group.consumer.heartbeat.interval.ms": BEAT_MS,
        "group.consumer.session.timeout.ms": SESSION_MS,
    }
    with EmbeddedCluster(brokers=1, topics={"t": PARTITIONS}, configs=configs) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def modules() -> None:
    """Import everything that the first consumer of a process imports."""

    async def consume(servers: str, options: dict[str, Any]) -> None:
        async with Consumer("t", bootstrap_servers=servers, group_id="g", **options):
            pass

    with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        for options in PROTOCOLS.values():
            asyncio.run(consume(cluster.bootstrap_servers, options))


class Changes:
    """A listener for all members.

    `until` checks its condition again after each assignment.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self.assigned = 0
        """Number of partitions that were assigned, including those that moved on later."""

    def on_assigned(self, tps: Sequence[TopicPartition]) -> None:
        self.assigned += len(tps)
        self._changed.set()

    async def until(self, right: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not right():
                self._changed.clear()
                await self._changed.wait()


def is_shared(members: Sequence[Consumer[Any, Any]]) -> bool:
    """Return whether each partition has one owner and all members own about equally many."""
    sizes = [len(member.assignment()) for member in members]
    owned = {tp for member in members for tp in member.assignment()}
    return sum(sizes) == len(owned) == PARTITIONS and max(sizes) - min(sizes) <= 1


class Answers:
    """A counter of the partitions for which committed offsets were returned."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.partitions = 0
        cluster.alter(ApiKey.OFFSET_FETCH, self._see)

    def _see(self, request: Any, response: Any) -> Any:
        for group in response.groups:
            if group.error_code == 0:  # A request with an old member epoch fails and is repeated.
                self.partitions += sum(len(topic.partitions) for topic in group.topics)
        return response


class Beats:
    """A condition that holds when each member has sent `count` more heartbeats.

    The heartbeats are counted as they arrive, because the cluster keeps only the last 10,000
    requests.
    """

    def __init__(self, cluster: EmbeddedCluster, count: int) -> None:
        self._seen = Counter[str]()
        self._count, self._done = count, 0
        for api in BEATS:
            cluster.alter(api, self._see)

    def _see(self, request: Any, response: Any) -> Any:
        self._seen[request.member_id] += 1
        self._done += self._seen[request.member_id] == self._count
        return response

    def __call__(self) -> bool:
        return self._done == MEMBERS


@measured
@pytest.mark.parametrize("protocol", TESTED)
async def test_it_settles_and_its_heartbeats_hold(cluster: EmbeddedCluster, protocol: str) -> None:
    servers = cluster.bootstrap_servers
    async with Client(bootstrap_servers=servers) as client, AsyncExitStack() as stack:
        options = {"client": client, "auto_offset_reset": "earliest", **PROTOCOLS[protocol]}
        members: list[Consumer[Any, Any]] = []
        changes, answers = Changes(), Answers(cluster)
        with held_times(collecting=False) as held:
            for _ in range(MEMBERS):
                members.append(Consumer("t", group_id="g", listener=changes, **options))
                await asyncio.sleep(0)
            await asyncio.gather(*(stack.enter_async_context(member) for member in members))
            await changes.until(lambda: is_shared(members))
            # With KIP-848, a member has its partitions before its next heartbeat confirms them.
            await cluster.until(lambda: cluster.groups["g"].state == "Stable", PATIENCE_S)
            before = cluster.groups["g"]
            owned = [member.assignment() for member in members]
            assert len(before.members) == MEMBERS
            await cluster.until(Beats(cluster, 3), PATIENCE_S)
            await cluster.until(lambda: answers.partitions >= PARTITIONS, PATIENCE_S)
        after = cluster.groups["g"]
        assert (after.state, after.generation) == (before.state, before.generation)
        assert list(after.members) == list(before.members)
        assert [member.assignment() for member in members] == owned
        # Only the owner of a partition requests its committed offset, and only once.
        assert PARTITIONS <= answers.partitions <= changes.assigned
        check_held(held)
