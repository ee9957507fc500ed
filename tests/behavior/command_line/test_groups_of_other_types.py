"""The commands of groups for share groups and streams groups, on a real Kafka.

The embedded cluster has neither.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from prepared import write_records
from streams_member import StreamsMember

from aiokclient import Admin, Client, TopicPartition
from aiokclient.cli import main

Run = Callable[..., Any]


@pytest.fixture
def topic(kafka: Any) -> str:
    """A topic with five records in its first partition."""
    name = kafka.create_topic(None, 2)
    write_records(kafka.bootstrap, name, {0: [None] * 5})
    return str(name)


@pytest.fixture
def share_group(kafka: Any, topic: str, group: str) -> str:
    """A share group without members, which begins at offset 2 of the first partition."""

    async def alter() -> None:
        async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            starts = {TopicPartition(topic, 0): 2}
            (await admin.alter_share_group_offsets(group, starts)).raise_for_errors()

    asyncio.run(alter())
    return group


def test_share_groups_are_listed_and_described_with_their_lag(
    run_kafka: Run, share_group: str, topic: str
) -> None:
    listed = run_kafka("groups", "list", "--type", "share", "--lag", "--json")
    row = next(each for each in json.loads(listed.out) if each["group_id"] == share_group)
    assert (row["type"], row["state"], row["lag"]) == ("share", "Empty", 3)
    done = run_kafka("groups", "describe", share_group, "--show", "offsets")
    assert done.out.splitlines() == [
        "group_id\ttopic\tpartition\tstart_offset\tlag",
        f"{share_group}\t{topic}\t0\t2\t3",
    ]
    state = run_kafka("groups", "describe", share_group, "--show", "state", "--jsonl")
    assert json.loads(state.out)["type"] == "share"
    assert run_kafka("groups", "describe", share_group, "--show", "members").code == 0


def test_share_groups_are_reset_and_lose_the_offsets_of_whole_topics(
    run_kafka: Run, share_group: str, topic: str
) -> None:
    reset = ("groups", "reset", share_group, "--yes", "--json")
    (row,) = json.loads(run_kafka(*reset, "--to", "end").out)
    assert (row["before"], row["after"]) == (2, 5)
    (row,) = json.loads(run_kafka(*reset, "--to", "start", f"{topic}:0").out)
    assert (row["before"], row["after"]) == (5, 0)
    delete = ("groups", "delete-offsets", share_group, "--yes")
    done = run_kafka(*delete, f"{topic}:0")
    assert done.code == 2
    assert "is a share group" in done.err
    assert run_kafka(*delete, "--all-topics").out == f"topic\n{topic}\n"
    assert run_kafka(*delete, topic).code == 3
    assert run_kafka("groups", "delete", share_group, "-y").code == 0


def test_streams_groups_are_described_with_their_tasks(
    kafka: Any, run_kafka: Run, group: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_kafka("groups", "list")  # It sets the environment of the commands.
    describe = ("groups", "describe", group, "--jsonl", "--show")

    async def ask() -> tuple[str, list[int]]:
        async with Client(bootstrap_servers=kafka.bootstrap) as client:
            member = StreamsMember(client, group, topic)
            await member.join()
            await member.own_tasks(await member.wait_for_tasks())
            codes = [
                await asyncio.to_thread(main, [*describe, shown])
                for shown in ("offsets", "members", "state", "topology")
            ]
            await member.leave()
            return member.member_id, codes

    member, codes = asyncio.run(ask())
    assert codes == [0, 0, 0, 0]
    first, second, members, state, topology = map(json.loads, capsys.readouterr().out.splitlines())
    assert [(row["partition"], row["end"], row["lag"]) for row in (first, second)] == [
        (0, 5, None),
        (1, 0, None),
    ]
    assert first["member_id"] == members["member_id"] == member
    assert members["tasks"]["active"] == {"0": [0, 1]}
    assert (state["type"], state["member_count"]) == ("streams", 1)
    assert topology["subtopologies"][0]["source_topics"] == [topic]
    assert topology["topology_description_status"] == "not_stored"
    reset = run_kafka("groups", "reset", group, topic, "--to", "3", "--yes", "--json")
    assert [row["after"] for row in json.loads(reset.out)] == [3, 0]
    deleted = run_kafka("groups", "delete", group, "--internal-topics", "--yes", "--json")
    assert json.loads(deleted.out) == [
        {"group_id": group, "type": "streams", "internal_topics": []}
    ]
