"""The commands of groups for share groups and streams groups.

The embedded cluster has no streams groups.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prepared import write_records
from share_member import SharingMember
from streams_member import StreamsMember

from aiokclient import Admin, Client, TopicPartition
from aiokclient.cli import main

Run = Callable[..., Any]


@pytest.fixture
def topic(cluster_servers: Any) -> str:
    """A topic with five records in its first partition."""
    name = asyncio.run(cluster_servers.new_topic(2))
    write_records(cluster_servers.bootstrap, name, {0: [None] * 5})
    return str(name)


@pytest.fixture
def kafka_topic_of_two(kafka: Any) -> str:
    name = kafka.create_topic(None, 2)
    write_records(kafka.bootstrap, name, {0: [None] * 5})
    return str(name)


@pytest.fixture
def share_group(cluster_servers: Any, topic: str, group: str) -> str:
    """A share group without members, which begins at offset 2 of the first partition."""

    async def alter() -> None:
        async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
            starts = {TopicPartition(topic, 0): 2}
            (await admin.alter_share_group_offsets(group, starts)).raise_for_errors()

    asyncio.run(alter())
    return group


def test_share_groups_are_listed_and_described_with_their_lag(
    run: Run, share_group: str, topic: str
) -> None:
    listed = run("groups", "list", "--type", "share", "--lag", "--json")
    row = next(each for each in json.loads(listed.out) if each["group_id"] == share_group)
    assert (row["type"], row["state"], row["lag"]) == ("share", "Empty", 3)
    done = run("groups", "describe", share_group, "--show", "offsets")
    assert done.out.splitlines() == [
        "group_id\ttopic\tpartition\tstart_offset\tlag",
        f"{share_group}\t{topic}\t0\t2\t3",
    ]
    state = run("groups", "describe", share_group, "--show", "state", "--jsonl")
    assert json.loads(state.out)["type"] == "share"
    assert run("groups", "describe", share_group, "--show", "members").code == 0


def test_share_groups_are_reset_and_lose_the_offsets_of_whole_topics(
    run: Run, share_group: str, topic: str
) -> None:
    reset = ("groups", "reset", share_group, "--yes", "--json")
    (row,) = json.loads(run(*reset, "--to", "end").out)
    assert (row["before"], row["after"]) == (2, 5)
    (row,) = json.loads(run(*reset, "--to", "start", f"{topic}:0").out)
    assert (row["before"], row["after"]) == (5, 0)
    delete = ("groups", "delete-offsets", share_group, "--yes")
    done = run(*delete, f"{topic}:0")
    assert done.code == 2
    assert "is a share group" in done.err
    done = run(*delete, topic, "nothing", "--dry-run")
    assert (done.code, done.out) == (3, f"topic\n{topic}\n")
    assert "nothing: The group has no offsets of this topic." in done.err
    assert run(*delete, "--all-topics").out == f"topic\n{topic}\n"
    assert run(*delete, topic).code == 3
    # A group without offsets has the columns of its type, too.
    described = run("groups", "describe", share_group)
    assert (described.code, described.out) == (0, "group_id\ttopic\tpartition\tstart_offset\tlag\n")
    assert run("groups", "delete", share_group, "-y").code == 0


def test_a_share_group_is_created_once_and_keeps_its_starts(
    run: Run, topic: str, group: str, tmp_path: Path
) -> None:
    create = ("groups", "create-share", group, topic)
    done = run(*create, "--from", "end", "--dry-run")
    table = f"group_id\ttopic\tpartition\tbefore\tafter\n{group}\t{topic}\t0\t-\t5\n"
    assert (done.code, done.out) == (0, f"{table}{group}\t{topic}\t1\t-\t0\n")
    assert f"The group {group} does not exist, and would be created." in done.err
    assert "dry run" in done.err
    assert run("groups", "describe", group).code == 3
    done = run(*create, "-o", "end", "--json")
    assert [(row["before"], row["after"]) for row in json.loads(done.out)] == [(None, 5), (None, 0)]
    assert f"The group {group} did not exist, and was created." in done.err
    done = run(*create, "--from", "start", "--json")
    assert [(row["before"], row["after"]) for row in json.loads(done.out)] == [(5, 5), (0, 0)]
    assert done.err == ""
    other, plan = f"{group}-file", tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,3\n")
    done = run("groups", "create-share", other, topic, "--from-file", str(plan), "--json")
    assert [row["after"] for row in json.loads(done.out)] == [3]
    assert done.code == 1
    assert f"{topic}-1: " in done.err
    assert "start has no offset of this partition" in done.err


def test_wrong_use_of_a_creation_is_refused_with_an_exit_code(
    run: Run, topic: str, group: str
) -> None:
    create = ("groups", "create-share", group, topic)
    for words, text in (
        ((), "Give the start by either --from or --from-file."),
        (("--from", "3"), "--from is start, end, or a time. Offsets need --from-file."),
        (("--from", "current"), "--from is start, end, or a time."),
        (("--from", "nonsense"), "'nonsense' is no time"),
    ):
        done = run(*create, *words)
        assert done.code == 2
        assert text in done.err
    done = run("groups", "create-share", group, "no-such-topic", "--from", "start")
    assert done.code == 3
    assert "no-such-topic: " in done.err
    commit = ("groups", "reset", f"{group}-classic", topic, "--to", "start", "--yes")
    assert run(*commit).code == 0
    done = run("groups", "create-share", f"{group}-classic", topic, "--from", "start")
    assert done.code == 1
    assert "The group is not a share group, but a classic group." in done.err


def test_a_share_group_with_members_is_described_and_not_changed(
    cluster_servers: Any,
    run: Run,
    share_group: str,
    topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("groups", "list")  # It sets the environment of the commands.
    codes: list[int] = []

    async def type_command(*words: str) -> tuple[str, str]:
        codes.append(await asyncio.to_thread(main, ["groups", *words]))
        return capsys.readouterr()

    async def ask() -> None:
        servers = cluster_servers.bootstrap
        async with Client(bootstrap_servers=servers, client_id="worker-3") as client:
            member = SharingMember(client, share_group, topic)
            await member.join()
            shown, _ = await type_command("describe", share_group, "--show", "members", "--jsonl")
            row = json.loads(shown)
            assert (row["member_id"], row["client_id"]) == (member.id, "worker-3")
            assert row["subscribed"] == [topic]
            shown, _ = await type_command(
                "describe", share_group, "--show", "members", "--wide", "--columns", "partitions"
            )
            assert shown.startswith(f"partitions\n{topic}:0")
            for words in (
                ("reset", share_group, "--to", "start"),
                ("delete-offsets", share_group, topic),
                ("delete", share_group),
            ):
                for dry_run in ((), ("--dry-run",)):
                    _, error = await type_command(*words, "--yes", *dry_run)
                    assert error
            await member.leave()

    asyncio.run(ask())
    assert codes[:2] == [0, 0]
    assert codes[2:8] == [1] * 6


def test_streams_groups_are_described_with_their_tasks(
    kafka: Any,
    run_kafka: Run,
    group: str,
    kafka_topic_of_two: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = kafka_topic_of_two
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
