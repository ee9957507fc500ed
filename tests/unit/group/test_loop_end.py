"""Tests that members leave their group when the end of the event loop cancels them."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from aiokclient import Consumer
from aiokclient.group.generation import GroupProtocol
from aiokclient.group.member import GroupMember
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster


class Idle(GroupProtocol):
    name = "idle"

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return {}


def consumer(protocol: str, servers: str, **options: Any) -> Any:
    return Consumer(
        "t", group_id="g", group_protocol=protocol, bootstrap_servers=servers, **options
    )


def member(servers: str, **options: Any) -> Any:
    return GroupMember(
        "g", protocol_type="idle", protocols=[Idle()], bootstrap_servers=servers, **options
    )


async def read(made: Any, begun: asyncio.Event) -> None:
    async with made:
        if isinstance(made, Consumer):
            begun.set()
            await made.poll()
        async for _ in made.generations():
            begun.set()


@pytest.mark.parametrize("kind", ["classic", "consumer", "member"])
def test_a_member_leaves_when_asyncio_run_cancels_its_task(kind: str) -> None:
    """`asyncio.run` cancels the background tasks of the client at the same time."""
    joined = []

    async def main(servers: str) -> asyncio.Task[None]:
        made = member(servers) if kind == "member" else consumer(kind, servers)
        begun = asyncio.Event()
        task = asyncio.create_task(read(made, begun))
        await begun.wait()
        joined.append(len(cluster.groups["g"].members))
        return task

    with EmbeddedCluster(topics={"t": 1}) as cluster:
        task = asyncio.run(main(cluster.bootstrap_servers))
        assert task.cancelled()
        assert joined == [1]
        assert not cluster.groups["g"].members


def test_a_static_member_stays_in_the_group_when_asyncio_run_cancels_its_task() -> None:
    async def main(servers: str) -> asyncio.Task[None]:
        made = consumer("classic", servers, group_instance_id="i")
        begun = asyncio.Event()
        task = asyncio.create_task(read(made, begun))
        await begun.wait()
        return task

    with EmbeddedCluster(topics={"t": 1}) as cluster:
        task = asyncio.run(main(cluster.bootstrap_servers))
        assert task.cancelled()
        assert len(cluster.groups["g"].members) == 1


def test_the_loop_ends_in_time_when_the_coordinator_does_not_answer() -> None:
    async def main(servers: str) -> asyncio.Task[None]:
        made = consumer("classic", servers, close_timeout_ms=500)
        begun = asyncio.Event()
        task = asyncio.create_task(read(made, begun))
        await begun.wait()
        return task

    with EmbeddedCluster(topics={"t": 1}) as cluster:
        began = time.monotonic()
        with cluster.delay(ApiKey.LEAVE_GROUP, 60.0):
            task = asyncio.run(main(cluster.bootstrap_servers))
        assert task.cancelled()
        assert time.monotonic() - began < 50  # The answer takes 60 s.
