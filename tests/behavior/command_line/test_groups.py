"""The commands of groups, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prepared import commit_offsets, write_records

from aiokclient import Consumer, TopicPartition
from aiokclient.cli import main
from aiokclient.errors import GroupAuthorizationError
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

Run = Callable[..., Any]
LAG = ("committed", "end", "lag", "member_id", "client_id", "host")


@pytest.fixture
def topic(cluster_servers: Any) -> str:
    """A topic with five records in each of two partitions."""
    name = cluster_servers.kafka.create_topic(None, 2)
    write_records(cluster_servers.bootstrap, name, {0: [None] * 5, 1: [None] * 5})
    return str(name)


@asynccontextmanager
async def member(servers: Any, group: str, topic: str, **options: Any) -> AsyncIterator[Any]:
    """Run a member of a group that has all partitions of the topic."""
    async with Consumer(
        topic,
        group_id=group,
        client_id="reader",
        enable_auto_commit=False,
        bootstrap_servers=servers.bootstrap,
        **options,
    ) as consumer:
        while len(consumer.assignment()) < 2:
            await consumer.poll(timeout=0.1)
        yield consumer


def beside_member(servers: Any, group: str, topic: str, *commands: Sequence[str]) -> list[int]:
    """Run commands while a group has a member, and return their exit codes."""

    async def ask() -> list[int]:
        async with member(servers, group, topic):
            return [await asyncio.to_thread(main, words) for words in commands]

    return asyncio.run(ask())


def test_groups_list_has_the_type_and_the_state_of_each_group(
    cluster_servers: Any, run: Run, group: str, topic: str
) -> None:
    commit_offsets(cluster_servers.bootstrap, group, {TopicPartition(topic, 0): 1})
    done = run("groups", "list", "--json")
    assert (done.code, done.err) == (0, "")
    row = next(each for each in json.loads(done.out) if each["group_id"] == group)
    assert (row["type"], row["protocol_type"], row["state"]) == ("classic", "", "Empty")
    assert set(row["coordinator"]) == {"node_id", "host", "port", "rack", "fenced"}
    heading, *lines = run("groups", "list", "--type", "classic,consumer").out.splitlines()
    assert heading.split("\t") == ["group_id", "type", "protocol_type", "state", "coordinator"]
    assert group in [line.split("\t")[0] for line in lines]
    for words, is_listed in (
        (("--type", "share"), False),
        (("--state", "empty"), True),
        (("--state", "Stable"), False),
        (("--protocol", "consumer,"), True),
        (("--protocol", "connect"), False),
    ):
        assert (group in run("groups", "list", "-q", *words).out.split()) is is_listed
    done = run("groups", "list", "--type", "clasic")
    assert done.code == 2
    assert "none of classic, consumer, share, streams" in done.err


def test_groups_list_lag_has_the_largest_lag_first(
    cluster_servers: Any, run: Run, group: str, topic: str
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    offsets = {f"{group}-1": {first: 4}, f"{group}-2": {first: 1, second: 2}}
    for name, each in offsets.items():
        commit_offsets(cluster_servers.bootstrap, name, each)
    done = run("groups", "list", "--lag", "--json")
    rows = [each for each in json.loads(done.out) if each["group_id"] in offsets]
    assert [(each["group_id"], each["lag"], each["partition_count"]) for each in rows] == [
        (f"{group}-2", 7, 2),
        (f"{group}-1", 1, 1),
    ]
    heading = run("groups", "list", "--lag").out.splitlines()[0]
    assert heading.split("\t") == ["group_id", "type", "state", "lag", "partition_count"]


def test_groups_describe_has_the_lag_of_each_partition(
    cluster_servers: Any, run: Run, group: str, topic: str
) -> None:
    commit_offsets(
        cluster_servers.bootstrap, group, {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 5}
    )
    done = run("groups", "describe", group)
    assert (done.code, done.err) == (0, "")
    assert [line.split("\t") for line in done.out.splitlines()] == [
        ["group_id", "topic", "partition", *LAG],
        [group, topic, "0", "3", "5", "2", "-", "-", "-"],
        [group, topic, "1", "5", "5", "0", "-", "-", "-"],
    ]
    rows = json.loads(run("groups", "describe", group, "--wide", "--json").out)
    assert [(row["lag"], row["metadata"]) for row in rows] == [(2, ""), (0, "")]
    assert {"leader_epoch"} < set(rows[0])
    found = run("groups", "describe", "--regex", f"{group[:-1]}.", "--show", "state", "-q")
    assert found.out.split() == [group]
    assert group in run("groups", "describe", "--all", "-q").out.split()


def test_groups_describe_shows_the_members_and_the_state(
    cluster_servers: Any, run: Run, group: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("groups", "describe", group)  # It sets the environment of the commands.
    show = ("groups", "describe", group, "--jsonl", "--show")
    codes = beside_member(
        cluster_servers,
        group,
        topic,
        [*show, "members"],
        [*show, "state"],
        [*show[:3], "--show", "members", "--wide"],
        show[:4],
    )
    assert codes == [0, 0, 0, 0]
    described, state, heading, row, *lags = capsys.readouterr().out.splitlines()
    found = json.loads(described)
    assert (found["group_id"], found["client_id"]) == (group, "reader")
    assert {"topic": topic, "partition": 1} in found["partitions"]
    found = json.loads(state)
    assert (found["state"], found["type"], found["member_count"]) == ("Stable", "classic", 1)
    assert found["protocol"]
    assert found["coordinator"]["port"]
    assert dict(zip(heading.split("\t"), row.split("\t"), strict=True))["partitions"] == (
        f"{topic}:0,1"
    )
    assert [json.loads(each)["client_id"] for each in lags] == ["reader", "reader"]


def test_groups_describe_ends_with_3_for_a_group_that_does_not_exist(
    cluster_servers: Any, run: Run, group: str, topic: str
) -> None:
    commit_offsets(cluster_servers.bootstrap, group, {TopicPartition(topic, 0): 0})
    for shown in ("offsets", "members", "state"):
        done = run("groups", "describe", f"{group}-absent", group, "--show", shown)
        assert done.code == 3, shown
        (line,) = done.err.splitlines()
        assert line.startswith(f"aiokclient: {group}-absent: ")
    # Only groups of Kafka Streams have a topology.
    done = run("groups", "describe", group, "--show", "topology")
    assert done.code == 3
    assert "It is a classic group, and only streams groups have a topology" in done.err
    assert run("groups", "describe").code == 2
    assert run("groups", "describe", group, "--all").code == 2


def test_groups_delete_asks_and_leaves_groups_with_members(
    cluster_servers: Any, run: Run, group: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = f"{group}-empty"
    commit_offsets(cluster_servers.bootstrap, empty, {TopicPartition(topic, 0): 0})
    assert run("groups", "delete", empty).code == 2
    delete = ["groups", "delete", group, empty, "--jsonl"]
    codes = beside_member(cluster_servers, group, topic, [*delete, "--dry-run"], [*delete, "--yes"])
    assert codes == [1, 1]
    out, err = capsys.readouterr()
    row = {"group_id": empty, "type": "classic"}
    assert [json.loads(line) for line in out.splitlines()] == [row, row]
    assert err.count(f"aiokclient: {group}: ") == 2
    assert run("groups", "delete", empty, "--yes").code == 3
    assert run("groups", "delete", empty, "--yes", "--if-exists").code == 0
    assert run("groups", "delete", "-", "--yes", typed=f"{group}\n").code == 0


def test_groups_delete_offsets_deletes_those_of_partitions_or_topics(
    cluster_servers: Any, run: Run, group: str, topic: str
) -> None:
    commit_offsets(
        cluster_servers.bootstrap, group, {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 5}
    )
    delete = ("groups", "delete-offsets", group)
    assert run(*delete, f"{topic}:0").code == 2
    row = f"{topic}\t0\t3"
    assert run(*delete, f"{topic}:0", "--dry-run").out.splitlines()[1:] == [row]
    done = run(*delete, f"{topic}:0,7", f"{topic}-absent", "--yes")
    assert (done.code, done.out.splitlines()[1:]) == (3, [row])
    assert len(done.err.splitlines()) == 2
    left = json.loads(run("groups", "describe", group, "--json").out)
    assert [each["partition"] for each in left] == [1]
    assert run(*delete, "--all-topics", "-y").out.splitlines()[1:] == [f"{topic}\t1\t5"]
    assert run(*delete).code == 2
    assert run("groups", "delete-offsets", f"{group}-absent", topic, "-y").code == 3


def test_groups_remove_members_removes_those_that_are_named(
    cluster_servers: Any, run: Run, group: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("groups", "describe", group)
    remove = ["groups", "remove-members", group]

    async def ask() -> list[int]:
        async with member(cluster_servers, group, topic, group_instance_id="one"):
            return [
                await asyncio.to_thread(main, [*remove, *words])
                for words in (["--dry-run"], [], ["nobody"], ["one", "--json"])
            ]

    assert asyncio.run(ask()) == [0, 2, 3, 0]
    out, err = capsys.readouterr()
    (removed,) = json.loads(out[out.index("[") :])
    assert (removed["group_instance_id"], removed["client_id"]) == ("one", "reader")
    assert "Remove all 1 members" in err
    assert run(*remove, "--yes").code in (0, 3)


@pytest.mark.parametrize(
    "regex",
    [
        "orders-.*",
        r"^a|b$",
        r"(?i)orders(?P<n>\d+)(?:x|)",
        r"(?<n>a{2,3}?)",
        r"[^]a-c\d[:alpha:]-]+",
        r"\Qa(b\E\z\pL\p{^Greek}\x{1F600}\.\_",
        "a{,3}{",
        "a(?i)*",
    ],
)
def test_groups_check_regex_accepts_re2(run: Run, regex: str) -> None:
    done = run("groups", "check-regex", "--json", "--", regex)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == [{"regex": regex}]


@pytest.mark.parametrize(
    ("regex", "position"),
    [
        ("a(?=b)", 1),
        ("(?<!b)", 0),
        (r"(a)\1", 3),
        ("a**", 2),
        ("a{2}{3}", 4),
        ("*a", 0),
        ("a|+", 2),
        ("(a", 0),
        ("a)", 1),
        ("[a", 0),
        ("[b-a]", 4),
        ("[[:nope:]]", 1),
        ("a{3,2}", 1),
        ("a{1001}", 1),
        ("a++", 2),
        ("(?>a)", 0),
        ("(?P<n>a)(?P<n>b)", 8),
        ("(?x)a", 0),
        (r"\Z", 0),
        (r"\pX", 0),
        ("(?i)*", 4),
        ("a\\", 1),
    ],
)
def test_groups_check_regex_names_the_position_of_what_is_not_re2(
    run: Run, regex: str, position: int
) -> None:
    done = run("groups", "check-regex", "--", regex)
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert f"is no regular expression of RE2. Position {position}: " in line


def test_groups_of_an_older_broker_that_do_not_exist_are_told(
    kafka_old: Any, run_on: Callable[[str], Run], group: str
) -> None:
    run = run_on(kafka_old.bootstrap)
    topic = kafka_old.create_topic(None, 1)
    assert run("groups", "describe", group).code == 3
    assert run("groups", "delete-offsets", group, topic, "--yes").code == 3
    done = run("groups", "reset", group, topic, "--to", "start", "--yes")
    assert (done.code, done.out.splitlines()[1:]) == (0, [f"{group}\t{topic}\t0\t-\t0"])
    assert run("groups", "delete", group, "--yes").code == 0


def test_groups_that_the_user_may_not_describe_are_refused_by_that_name(
    run_on: Callable[[str], Run], group: str
) -> None:
    with EmbeddedCluster() as cluster:
        run = run_on(cluster.bootstrap_servers)
        for words in (("describe", group), ("delete-offsets", group, "orders", "--yes")):
            with cluster.fail(ApiKey.DESCRIBE_GROUPS, GroupAuthorizationError):
                done = run("groups", *words)
            assert (done.code, len(done.err.splitlines())) == (1, 1)
            assert "GROUP_AUTHORIZATION_FAILED" in done.err
