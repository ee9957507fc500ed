"""kafka-groups and the tools of consumer, share, and streams groups beside `groups`."""

from __future__ import annotations

import asyncio
import csv
import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import KafkaCluster
from kafka_harness.probe import wait_until
from tool_sides import Sides

from aiokclient import Admin, Client, Coordinator, Producer, TopicPartition
from aiokclient.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ShareGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequest,
)
from aiokclient.protocol.messages import streams_group_heartbeat as parts

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
BEGIN = round(time.time() * 1000) - 7_200_000
OLD_TIME = "2020-01-01T00:00:00.000"
CONSUMER, SHARE, STREAMS = "kafka-consumer-groups", "kafka-share-groups", "kafka-streams-groups"
TYPES = {CONSUMER: "classic,consumer", SHARE: "share", STREAMS: "streams"}
Row = dict[str, str]


def table(text: str) -> list[Row]:
    """Return the rows of a table that a tool of groups has printed, by its heading."""
    joined = re.sub(r" +\((\w+)\)", r"(\1)", text)
    heading: list[str] = []
    rows = []
    for line in joined.splitlines():
        words = line.split()
        if words[:1] == ["GROUP"] or words[:2] == ["TOPIC", "PARTITION"]:
            heading = words
        elif heading and words:
            rows.append(dict(zip(heading, words, strict=False)))
    return rows


def numbers(rows: list[Any], *names: str) -> list[tuple[Any, ...]]:
    """Return these fields of our rows as texts, with the dash of Kafka's tools for null."""
    return sorted(
        tuple("-" if row[name] is None else str(row[name]) for name in names) for row in rows
    )


def columns(rows: list[Row], *names: str) -> list[tuple[str, ...]]:
    return sorted(tuple(row[name] for name in names) for row in rows)


@pytest.fixture
def topic(tool_kafka: KafkaCluster) -> str:
    """A topic with three partitions: six records in two hours, one record, and none."""
    name = tool_kafka.create_topic(None, 3)

    async def write() -> None:
        async with Producer(bootstrap_servers=tool_kafka.bootstrap) as producer:
            for n in range(6):
                await producer.send(name, b"v", partition=0, timestamp=BEGIN + n * 1_200_000)
            await producer.send(name, b"v", partition=1, timestamp=BEGIN)

    asyncio.run(write())
    return name


@pytest.fixture
def new_group(tool_kafka: KafkaCluster, topic: str) -> Callable[[], str]:
    """Return a function that creates a group with offsets of the first two partitions."""

    def create() -> str:
        name = f"typed-{uuid.uuid4().hex[:12]}"

        async def commit() -> None:
            async with Admin(bootstrap_servers=tool_kafka.bootstrap) as admin:
                offsets = {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 0}
                (await admin.alter_consumer_group_offsets(name, offsets)).raise_for_errors()

        asyncio.run(commit())
        return name

    return create


@pytest.fixture
def new_share_group(tool_kafka: KafkaCluster, topic: str) -> Callable[[], str]:
    """Return a function that creates a share group with starts of the first two partitions."""

    def create() -> str:
        name = f"typed-{uuid.uuid4().hex[:12]}"

        async def alter() -> None:
            async with Admin(bootstrap_servers=tool_kafka.bootstrap) as admin:
                starts = {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 0}
                (await admin.alter_share_group_offsets(name, starts)).raise_for_errors()

        asyncio.run(alter())
        return name

    return create


def heartbeats_of(kafka: KafkaCluster, group: str, *requests: Any) -> list[Any]:
    """Send requests to the coordinator of a group, and return the answers."""

    async def send() -> list[Any]:
        async with Client(bootstrap_servers=kafka.bootstrap, client_id="w") as client:
            return [await client.request(each, Coordinator("group", group)) for each in requests]

    answers = asyncio.run(send())
    assert {each.error_code for each in answers} == {0}
    return answers


def streams_member(group: str, topic: str, epoch: int, tasks: list[Any] | None) -> Any:
    subtopology = parts.Subtopology(subtopology_id="0", source_topics=[topic])
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="m1",
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        topology=None if epoch else parts.Topology(epoch=1, subtopologies=[subtopology]),
        active_tasks=tasks,
        standby_tasks=[],
        warmup_tasks=[],
        process_id=None if epoch else "p",
        client_tags=None if epoch else [],
    )


@pytest.fixture
def live_streams_group(tool_kafka: KafkaCluster, topic: str) -> str:
    """A streams group with a member that has a task for each partition."""
    group = f"typed-{uuid.uuid4().hex[:12]}"
    (joined,) = heartbeats_of(tool_kafka, group, streams_member(group, topic, 0, []))
    answers = [joined]

    def has_tasks() -> bool:
        beat = StreamsGroupHeartbeatRequest(
            group_id=group, member_id="m1", member_epoch=answers[-1].member_epoch
        )
        answers.extend(heartbeats_of(tool_kafka, group, beat))
        return bool(answers[-1].active_tasks)

    wait_until("tasks of the member", has_tasks, 60)
    tasks = [parts.TaskIds(subtopology_id="0", partitions=[0, 1, 2])]
    heartbeats_of(tool_kafka, group, streams_member(group, topic, answers[-1].member_epoch, tasks))
    return group


def leave_streams(kafka: KafkaCluster, group: str) -> None:
    leave = StreamsGroupHeartbeatRequest(group_id=group, member_id="m1", member_epoch=-1)
    heartbeats_of(kafka, group, leave)


@pytest.fixture
def streams_group(tool_kafka: KafkaCluster, live_streams_group: str, topic: str) -> str:
    """A streams group whose member has left, with offsets of all partitions."""
    leave_streams(tool_kafka, live_streams_group)

    async def commit() -> None:
        async with Admin(bootstrap_servers=tool_kafka.bootstrap) as admin:
            (await admin.reset_offsets(live_streams_group, 0, topics=[topic])).raise_for_errors()
            place = TopicPartition(topic, 0)
            (await admin.reset_offsets(live_streams_group, 2, topics=[place])).raise_for_errors()

    asyncio.run(commit())
    return live_streams_group


# -- lists ---------------------------------------------------------------------------------------


def test_groups_of_each_type_are_listed_alike(
    sides: Sides, new_group: Any, new_share_group: Any, streams_group: str
) -> None:
    classic, share = new_group(), new_share_group()

    def ours(*words: str) -> list[tuple[str, ...]]:
        return numbers(sides.ours("groups", "list", *words), "group_id", "type")

    def theirs(*words: str) -> list[tuple[str, ...]]:
        rows = table(sides.theirs("kafka-groups", "--list", *words))
        return sorted((row["GROUP"], row["TYPE"].lower()) for row in rows)

    assert {(classic, "classic"), (share, "share"), (streams_group, "streams")} <= {*theirs()}
    assert theirs() == ours()
    for their_words, our_words in (
        ("--group-type classic", "--type classic"),
        ("--share", "--type share"),
        ("--streams", "--type streams"),
        ("--protocol share", "--protocol share"),
    ):
        assert theirs(*their_words.split()) == ours(*our_words.split()) != []
    # Groups that only store offsets count as consumer groups for theirs.
    consumers = {*theirs("--consumer")}
    assert (classic, "classic") in consumers
    assert consumers <= {*ours("--type", "consumer,classic")}


def test_groups_are_listed_with_state_and_type_alike(
    sides: Sides, new_group: Any, new_share_group: Any, streams_group: str
) -> None:
    made = {CONSUMER: new_group(), SHARE: new_share_group(), STREAMS: streams_group}
    for tool, types in TYPES.items():
        rows = sides.ours("groups", "list", "--type", types)
        names = sides.theirs(tool, "--list").split()
        assert sorted(names) == sorted(row["group_id"] for row in rows)
        assert made[tool] in names
        states = table(sides.theirs(tool, "--list", "--state"))
        assert columns(states, "GROUP", "STATE") == numbers(rows, "group_id", "state")
        chosen = table(sides.theirs(tool, "--list", "--state", "Empty"))
        rows = sides.ours("groups", "list", "--type", types, "--state", "Empty")
        assert columns(chosen, "GROUP", "STATE") == numbers(rows, "group_id", "state") != []
    listed = table(sides.theirs(CONSUMER, "--list", "--type", "classic"))
    rows = sides.ours("groups", "list", "--type", "classic")
    assert [(group, kind.lower()) for group, kind in columns(listed, "GROUP", "TYPE")] == (
        numbers(rows, "group_id", "type")
    )


# -- descriptions --------------------------------------------------------------------------------


def test_consumer_groups_are_described_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_group: Any, topic: str
) -> None:
    group = new_group()
    names = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    fields = ("partition", "committed", "end", "lag")
    describe = (CONSUMER, "--describe", "--timeout", "20000", "--group", group)
    for words in ((), ("--offsets",)):
        rows = sides.ours("groups", "describe", group, "--show", "offsets", "--timeout", "20")
        shown = table(sides.theirs(*describe, *words))
        assert columns(shown, *names) == numbers(rows, *fields)
        assert len(rows) == 2
    rows = sides.ours("groups", "describe", group, "-w")
    wide = table(sides.theirs(*describe, "--verbose"))
    assert columns(wide, *names, "LEADER-EPOCH") == numbers(rows, *fields, "leader_epoch")
    everything = table(sides.theirs(CONSUMER, "--describe", "--all-groups", "--offsets"))
    rows = [row for row in sides.ours("groups", "describe", "--all") if "committed" in row]
    found = {*numbers(rows, "group_id", *fields)}
    assert {*columns(everything, "GROUP", *names)} <= found
    assert {row[0] for row in columns(everything, "GROUP")} >= {group}
    absent = sides.run_theirs(CONSUMER, "--describe", "--group", "absent")
    assert "GroupIdNotFoundException" in absent.out
    assert sides.run_ours("groups", "describe", "absent").code == 3


def test_members_and_states_of_consumer_groups_are_shown_alike(
    sides: Sides, tool_kafka: KafkaCluster, topic: str
) -> None:
    group = f"typed-{uuid.uuid4().hex[:12]}"
    join = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m1",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    heartbeats_of(tool_kafka, group, join)
    (shown,) = table(sides.theirs(CONSUMER, "--describe", "--group", group, "--members"))
    (row,) = sides.ours("groups", "describe", group, "--show", "members")
    assert columns([shown], "CONSUMER-ID", "HOST", "CLIENT-ID") == (
        numbers([row], "member_id", "host", "client_id")
    )
    assert int(shown["#PARTITIONS"]) == len(row["partitions"]) == 3
    words = ("--describe", "--group", group, "--members", "--verbose")
    (shown,) = table(sides.theirs(CONSUMER, *words))
    assert shown["CURRENT-EPOCH"] == str(row["epoch"])
    places = ",".join(str(each["partition"]) for each in row["target"])
    assert shown["TARGET-ASSIGNMENT"] == f"{topic}:{places}"
    (shown,) = table(sides.theirs(CONSUMER, "--describe", "--group", group, "--state"))
    (row,) = sides.ours("groups", "describe", group, "--show", "state")
    assert shown == {
        "GROUP": group,
        "COORDINATOR(ID)": "{host}:{port}({node_id})".format(**row["coordinator"]),
        "ASSIGNMENT-STRATEGY": row["protocol"],
        "STATE": row["state"],
        "#MEMBERS": str(row["member_count"]),
    }
    leave = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m1", member_epoch=-1)
    heartbeats_of(tool_kafka, group, leave)


def test_share_groups_are_described_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_share_group: Any, topic: str
) -> None:
    group = new_share_group()
    describe = (SHARE, "--describe", "--timeout", "20000", "--group", group)
    names, fields = ("PARTITION", "START-OFFSET", "LAG"), ("partition", "start_offset", "lag")
    for words in ((), ("--offsets",)):
        rows = sides.ours("groups", "describe", group, "--show", "offsets", "--timeout", "20")
        assert columns(table(sides.theirs(*describe, *words)), *names) == numbers(rows, *fields)
        assert len(rows) == 2
    rows = sides.ours("groups", "describe", group, "-w")
    wide = table(sides.theirs(*describe, "--verbose"))
    assert columns(wide, *names, "LEADER-EPOCH") == numbers(rows, *fields, "leader_epoch")
    everything = table(sides.theirs(SHARE, "--describe", "--all-groups"))
    rows = [row for row in sides.ours("groups", "describe", "--all") if "start_offset" in row]
    assert columns(everything, "GROUP", *names) == numbers(rows, "group_id", *fields)
    join = ShareGroupHeartbeatRequest(
        group_id=group, member_id="m1", member_epoch=0, subscribed_topic_names=[topic]
    )
    heartbeats_of(tool_kafka, group, join)
    (shown,) = table(sides.theirs(*describe, "--members"))
    (row,) = sides.ours("groups", "describe", group, "--show", "members")
    assert columns([shown], "CONSUMER-ID", "HOST", "CLIENT-ID") == (
        numbers([row], "member_id", "host", "client_id")
    )
    (shown,) = table(sides.theirs(*describe, "--state"))
    (row,) = sides.ours("groups", "describe", group, "--show", "state")
    assert (shown["STATE"], shown["#MEMBERS"]) == (row["state"], str(row["member_count"]))
    assert shown["COORDINATOR(ID)"] == "{host}:{port}({node_id})".format(**row["coordinator"])
    leave = ShareGroupHeartbeatRequest(group_id=group, member_id="m1", member_epoch=-1)
    heartbeats_of(tool_kafka, group, leave)


def test_streams_groups_are_described_alike(
    sides: Sides, tool_kafka: KafkaCluster, live_streams_group: str, topic: str
) -> None:
    group = live_streams_group
    describe = (STREAMS, "--describe", "--timeout", "20000", "--group", group)
    (shown,) = table(sides.theirs(*describe, "--members"))
    (row,) = sides.ours("groups", "describe", group, "--show", "members", "--timeout", "20")
    assert columns([shown], "MEMBER", "PROCESS", "CLIENT-ID") == (
        numbers([row], "member_id", "process_id", "client_id")
    )
    assert row["tasks"]["active"] == {"0": [0, 1, 2]}
    assert "ACTIVE: 0:[0,1,2]" in sides.theirs(*describe, "--members")
    (shown,) = table(sides.theirs(*describe, "--state", "--verbose"))
    (row,) = sides.ours("groups", "describe", group, "--show", "state", "-w")
    assert shown == {
        "GROUP": group,
        "COORDINATOR(ID)": "{host}:{port}({node_id})".format(**row["coordinator"]),
        "STATE": row["state"],
        "GROUP-EPOCH": str(row["epoch"]),
        "TARGET-ASSIGNMENT-EPOCH": str(row["assignment_epoch"]),
        "#MEMBERS": str(row["member_count"]),
    }
    # Theirs counts all records as lag where nothing is committed; ours has none there.
    names, fields = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET"), ("committed", "end")
    rows = sides.ours("groups", "describe", group, "--show", "offsets")
    shown_offsets = table(sides.theirs(*describe, "--offsets", "--verbose"))
    assert columns(shown_offsets, *names) == numbers(rows, "partition", *fields)
    everything = table(sides.theirs(STREAMS, "--describe", "--all-groups", "--members"))
    members = sides.ours("groups", "describe", "--all", "--show", "members")
    ours = {row["member_id"] for row in members if "process_id" in row}
    assert {row["MEMBER"] for row in everything} == ours
    leave_streams(tool_kafka, group)


# -- resets --------------------------------------------------------------------------------------

RESETS = [
    ("--to-earliest", "--to start"),
    ("--to-latest", "--to end"),
    ("--to-current", "--to current"),
    ("--to-offset 4", "--to 4"),
    ("--shift-by 1", "--shift 1"),
    ("--by-duration PT1H10M", "--to -PT1H10M"),
    (f"--to-datetime {OLD_TIME}", f"--to {OLD_TIME}"),
]
SHARE_RESETS = [RESETS[0], RESETS[1], RESETS[-1]]


def planned(text: str) -> dict[tuple[str, int], int]:
    """Return the new offsets that a tool has printed, as a table or as CSV."""
    if "NEW-OFFSET" in text:
        rows = table(text)
        return {(row["TOPIC"], int(row["PARTITION"])): int(row["NEW-OFFSET"]) for row in rows}
    lines = [line for line in text.splitlines() if line.count(",") == 2]
    return {(name, int(number)): int(offset) for name, number, offset in csv.reader(lines)}


def after(rows: list[Any]) -> dict[tuple[str, int], int]:
    return {(row["topic"], row["partition"]): row["after"] for row in rows}


def committed(sides: Sides, tool: str, group: str) -> dict[tuple[str, int], int]:
    """Return the offsets of a group as Kafka's tool describes them."""
    rows = table(sides.theirs(tool, "--describe", "--group", group))
    name = "START-OFFSET" if tool == SHARE else "CURRENT-OFFSET"
    return {(row["TOPIC"], int(row["PARTITION"])): int(row[name]) for row in rows}


def test_consumer_groups_are_reset_alike(
    sides: Sides, new_group: Any, topic: str, tmp_path: Path
) -> None:
    first, second = new_group(), new_group()
    chosen = f"{topic}:0,1"
    for theirs, ours in RESETS:
        words = ("--reset-offsets", "--group", first, "--topic", chosen, *theirs.split())
        plan = planned(sides.theirs(CONSUMER, *words, "--dry-run"))
        rows = sides.ours("groups", "reset", second, chosen, *ours.split(), "--dry-run")
        assert after(rows) == plan, theirs
        assert len(plan) == 2
    assert committed(sides, CONSUMER, first) == committed(sides, CONSUMER, second)
    everywhere = ("--reset-offsets", "--all-topics", "--to-earliest", "--group", first)
    everywhere += ("--timeout", "20000")
    sides.theirs(CONSUMER, *everywhere, "--execute")
    sides.ours(
        *("groups", "reset", second, "--all-topics", "--to", "start", "--yes"),
        *("--timeout", "20"),
    )
    assert committed(sides, CONSUMER, first) == committed(sides, CONSUMER, second)
    assert {*committed(sides, CONSUMER, second).values()} == {0}
    # The file that Kafka's tool writes is a plan for both.
    words = ("--reset-offsets", "--group", first, "--topic", topic, "--to-latest")
    exported = sides.theirs(CONSUMER, *words, "--dry-run", "--export")
    csv_words = ("--dry-run", "--csv", "--columns", "topic,partition,after")
    ended = sides.run_ours("groups", "reset", second, topic, "--to", "end", *csv_words)
    assert planned(ended.out.partition("\n")[2]) == planned(exported)
    path = tmp_path / "plan.csv"
    path.write_text("".join(f"{line}\n" for line in exported.splitlines() if "," in line))
    words = ("--reset-offsets", "--group", first, "--from-file", str(path), "--execute")
    sides.theirs(CONSUMER, *words)
    sides.ours("groups", "reset", second, "--from-file", str(path), "--yes")
    assert committed(sides, CONSUMER, first) == planned(exported)
    assert committed(sides, CONSUMER, second) == planned(exported)


def test_share_groups_are_reset_alike(sides: Sides, new_share_group: Any, topic: str) -> None:
    first, second = new_share_group(), new_share_group()
    for theirs, ours in SHARE_RESETS:
        words = ("--reset-offsets", "--group", first, "--topic", topic, *theirs.split())
        plan = planned(sides.theirs(SHARE, *words, "--dry-run"))
        rows = sides.ours("groups", "reset", second, topic, *ours.split(), "--dry-run")
        assert after(rows) == plan, theirs
        assert len(plan) == 3
    everywhere = ("--reset-offsets", "--all-topics", "--to-latest", "--group", first)
    sides.theirs(SHARE, *everywhere, "--timeout", "20000", "--execute")
    sides.ours(
        *("groups", "reset", second, "--all-topics", "--to", "end", "--yes"),
        *("--timeout", "20"),
    )
    starts = committed(sides, SHARE, second)
    assert starts[topic, 0] == 6
    assert {key: value for key, value in committed(sides, SHARE, first).items() if value} == {
        key: value for key, value in starts.items() if value
    }


def test_streams_groups_are_reset_alike(
    sides: Sides, streams_group: str, topic: str, tmp_path: Path
) -> None:
    group = streams_group
    reset = ("--reset-offsets", "--group", group)
    for theirs, ours in RESETS:
        if "shift" in theirs:
            theirs, ours = "--shift-by 0", "--shift 0"
        words = (*reset, "--input-topic", topic, *theirs.split(), "--dry-run")
        plan = planned(sides.theirs(STREAMS, *words))
        rows = sides.ours("groups", "reset", group, topic, *ours.split(), "--dry-run")
        assert after(rows) == plan, theirs
        assert len(plan) == 3
    words = (*reset, "--all-input-topics", "--to-latest", "--timeout", "20000")
    exported = sides.theirs(STREAMS, *words, "--export", "--dry-run")
    assert planned(exported)[topic, 0] == 6
    sides.theirs(STREAMS, *words, "--execute")
    now = ("groups", "reset", group, "--to", "current", "--dry-run", "--timeout", "20")
    assert after(sides.ours(*now)) == planned(exported)
    sides.ours("groups", "reset", group, "--all-topics", "--to", "start", "--yes")
    current = (*reset, "--all-input-topics", "--to-current", "--dry-run")
    assert {*planned(sides.theirs(STREAMS, *current)).values()} == {0}
    path = tmp_path / "plan.csv"
    path.write_text("".join(f"{line}\n" for line in exported.splitlines() if "," in line))
    planned_by_ours = sides.ours("groups", "reset", group, "--from-file", str(path), "--dry-run")
    sides.theirs(STREAMS, *reset, "--from-file", str(path), "--execute")
    assert after(sides.ours(*now)) == after(planned_by_ours) == planned(exported)
    ended = sides.run_ours(
        *("groups", "reset", group, "--to", "end", "--dry-run", "--csv"),
        *("--columns", "topic,partition,after"),
    )
    assert planned(ended.out.partition("\n")[2]) == planned(exported)


# -- deletions -----------------------------------------------------------------------------------


def test_groups_and_their_offsets_are_deleted_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_group: Any, new_share_group: Any, topic: str
) -> None:
    for tool, make in ((CONSUMER, new_group), (SHARE, new_share_group)):
        first, second = make(), make()
        delete = ("--delete-offsets", "--topic", topic, "--timeout", "20000")
        sides.theirs(tool, *delete, "--group", first)
        sides.ours("groups", "delete-offsets", second, topic, "--yes", "--timeout", "20")
        for group in (first, second):
            assert table(sides.theirs(tool, "--describe", "--group", group)) == []
            assert sides.run_ours("groups", "describe", group).out.count("\n") <= 1
        sides.theirs(tool, "--delete", "--group", first)
        sides.ours("groups", "delete", second, "--yes")
        names = {*sides.theirs(tool, "--list").split()}
        assert not names & {first, second}
        assert sides.run_ours("groups", "delete", second, "--yes").code == 3
        again = sides.run_theirs(tool, "--delete", "--group", first)
        assert "failed" in again.out + again.err


def test_streams_groups_and_their_topics_are_deleted_alike(
    sides: Sides, tool_kafka: KafkaCluster, topic: str
) -> None:
    groups = [f"typed-{uuid.uuid4().hex[:12]}" for _ in range(3)]
    endings = ("a-changelog", "b-changelog")
    for group in groups:
        subtopology = parts.Subtopology(
            subtopology_id="0",
            source_topics=[topic],
            state_changelog_topics=[
                parts.TopicInfo(name=f"{group}-{ending}", partitions=0, replication_factor=1)
                for ending in endings
            ],
        )
        for ending in endings:
            tool_kafka.create_topic(f"{group}-{ending}", 3)
        join = streams_member(group, topic, 0, [])
        join.topology.subtopologies = [subtopology]
        heartbeats_of(tool_kafka, group, join)
        leave_streams(tool_kafka, group)

        async def commit(group: str = group) -> None:
            async with Admin(bootstrap_servers=tool_kafka.bootstrap) as admin:
                (await admin.reset_offsets(group, 2, topics=[topic])).raise_for_errors()

        asyncio.run(commit())
    first, second, third = groups

    def offsets_of(group: str) -> list[Any]:
        ended = sides.run_ours("groups", "describe", group, "--jsonl")
        return re.findall(r'"committed": *(\d+)', ended.out)

    assert len(offsets_of(first)) == len(offsets_of(second)) == 3

    def left() -> set[str]:
        """Return the internal topics that there are, by the number of the group."""
        names = sides.theirs("kafka-topics", "--list").split()
        found = [
            (name, name.replace(group, str(n))) for n, group in enumerate(groups) for name in names
        ]
        return {short for name, short in found if name != short}

    sides.theirs(
        *(STREAMS, "--reset-offsets", "--group", first, "--input-topic", topic, "--to-earliest"),
        *("--execute", "--delete-internal-topic", f"{first}-a-changelog"),
    )
    sides.ours(
        *("groups", "reset", second, topic, "--to", "start", "--yes"),
        *("--internal-topic", f"{second}-a-changelog"),
    )
    kept = {"0-b-changelog", "1-b-changelog", "2-a-changelog", "2-b-changelog"}
    wait_until("one topic of each group to go", lambda: left() == kept, 30)
    sides.theirs(STREAMS, "--delete-offsets", "--group", first, "--input-topic", topic)
    sides.theirs(STREAMS, "--delete-offsets", "--group", third, "--all-input-topics")
    sides.ours("groups", "delete-offsets", second, topic, "--yes")
    assert [offsets_of(group) for group in groups] == [[], [], []]
    sides.theirs(STREAMS, "--delete", "--group", first, "--delete-all-internal-topics")
    sides.ours("groups", "delete", second, "--internal-topics", "--yes")
    sides.theirs(STREAMS, "--delete", "--group", third)
    listed = {*sides.theirs(STREAMS, "--list").split()}
    assert not listed & {*groups}

    kept = {"2-a-changelog", "2-b-changelog"}
    wait_until("the topics of two groups to go", lambda: left() == kept, 30)


APPLICATION = "kafka-streams-application-reset"


def test_applications_of_streams_are_reset_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_group: Any, topic: str, tmp_path: Path
) -> None:
    """Applications with the classic protocol: a group, and topics whose names begin with its."""
    path = tmp_path / "plan.csv"
    path.write_text(f"{topic},0,5\n{topic},1,1\n{topic},2,0\n")
    nothing = tmp_path / "empty.properties"
    nothing.write_text("")
    first, second = new_group(), new_group()
    resets = [
        ("--to-earliest", "--to start"),
        ("--to-latest", "--to end"),
        ("--to-offset 1", "--to 1"),
        ("--shift-by 1", "--shift 1"),
        ("--by-duration PT1H10M", "--to -PT1H10M"),
        (f"--to-datetime {OLD_TIME}", f"--to {OLD_TIME}"),
        (f"--from-file {path}", f"--from-file {path}"),
    ]
    for theirs, ours in resets:
        words = ("--application-id", first, "--input-topics", topic, *theirs.split())
        sides.theirs(APPLICATION, *words, "--force", "--dry-run")
        before = committed(sides, CONSUMER, first)
        sides.theirs(APPLICATION, *words, "--command-config", str(nothing))
        chosen = () if "file" in ours else (topic,)
        sides.ours("groups", "reset", second, *chosen, *ours.split(), "--yes", "--dry-run")
        assert committed(sides, CONSUMER, second) == before, ours
        where = ("-b", tool_kafka.bootstrap, "--config", str(nothing))
        sides.ours("groups", "reset", second, *chosen, *ours.split(), "--yes", *where)
        assert committed(sides, CONSUMER, first) == committed(sides, CONSUMER, second), ours
        assert len(committed(sides, CONSUMER, first)) == 3
    kinds = ("store-changelog", "store-repartition", "KTABLE-changelog")
    for group in (first, second):
        for kind in kinds:
            tool_kafka.create_topic(f"{group}-{kind}", 1)

    def left(group: str) -> set[str]:
        names = sides.theirs("kafka-topics", "--list").split()
        return {name.removeprefix(group) for name in names if name.startswith(group)}

    one = f"{first}-{kinds[0]}"
    sides.theirs(APPLICATION, "--application-id", first, "--internal-topics", one)
    one = f"{second}-{kinds[0]}"
    words = ("--to", "current", "--internal-topic", one, "--yes")
    sides.ours("groups", "reset", second, *words)
    wait_until("one topic to go", lambda: left(first) == left(second) != set(), 30)
    assert len(left(first)) == 2
    sides.theirs(APPLICATION, "--application-id", first)
    sides.ours("groups", "reset", second, "--to", "current", "--internal-topics", "--yes")
    wait_until("all topics to go", lambda: left(first) == left(second) == set(), 30)


def test_regular_expressions_are_judged_alike(sides: Sides) -> None:
    for regex in ("orders-(?i)*", r"(?<n>\pL)\_", r"\pX", "a{1001}", "a.*"):
        said = sides.theirs(CONSUMER, "--validate-regex", regex)
        is_valid = said.strip().endswith("is valid.")
        assert (sides.run_ours("groups", "check-regex", regex).code == 0) is is_valid
