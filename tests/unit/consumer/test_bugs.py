"""Tests that a bug in a callback of the event loop fails the consumer or member. Nothing hangs."""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Client, Consumer, GroupMember, Producer, State
from aiokclient.consumer.delivery.unpack import Unpacker
from aiokclient.consumer.fetching.manager import FetchManager
from aiokclient.consumer.membership.classic import TopicWatch
from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.group.engine import GroupEngine, Heartbeats


class BugError(Exception):
    pass


def bug(*_: Any, **__: Any) -> None:
    raise BugError("a bug")


CALLBACKS = [
    (SubscriptionState, "report_now"),
    (FetchManager, "on_metadata"),
    (FetchManager, "find_node"),
    (TopicWatch, "_read_layout"),
    (TopicWatch, "_report_change"),
    (Heartbeats, "_update_confirmed"),
    (Unpacker, "_on_job_done"),
]


async def provoke(world: World, consumer: Any) -> None:
    """Change the assignment, the metadata, and the records, and read."""
    consumer.pause(consumer.assignment())
    consumer.resume(consumer.assignment())
    world.cluster.produce("t", [os.urandom(5_000_000)])
    world.cluster.create_topic("t2")
    await consumer.partitions_for("t2")
    while True:
        await consumer.get(1.0)


@pytest.mark.parametrize(("owner", "name"), CALLBACKS)
def test_a_callback_that_raises_fails_the_consumer(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    unhandled: list[object] = []

    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()
        async with Client(**world.options(metadata_max_age_ms=2_000)) as client:
            bystander = await Producer(client=client)
            consumer: Any = Consumer(
                re.compile("t.*"),
                client=client,
                group_id="g",
                auto_offset_reset="earliest",
                session_timeout_ms=6_000,
            )
            await consumer.start()
            loop.set_exception_handler(lambda _, context: unhandled.append(context))
            monkeypatch.setattr(owner, name, bug)
            async with asyncio.timeout(100):
                with pytest.raises(BugError):
                    await provoke(world, consumer)
            monkeypatch.undo()
            assert consumer.state is State.FAILED
            assert "died" in caplog.text
            assert bystander.state is State.RUNNING, "other consumers of the client keep running"
            await consumer.close()

    simulate(scenario)
    assert not unhandled


async def until_it_fails(member: GroupMember) -> None:
    while True:
        try:
            await anext(member.generations())
        except ZeroDivisionError:
            continue


class Unwilling:
    name = "unwilling"

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Any) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("owner", "name"), [(Heartbeats, "_update_confirmed"), (GroupEngine, "rejoin")]
)
def test_a_callback_that_raises_fails_the_member_of_a_group(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unhandled: list[object] = []

    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()
        member = GroupMember("g", protocol_type="p", protocols=[Unwilling()], **world.options())
        await member.start()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        monkeypatch.setattr(owner, name, bug)
        async with asyncio.timeout(100):
            with pytest.raises(BugError):
                await until_it_fails(member)
        monkeypatch.undo()
        assert member.state is State.FAILED
        await member.close()

    simulate(scenario)
    assert not unhandled
