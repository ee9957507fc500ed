"""The commands of groups, offsets, and topics beside Kafka's own tools, on a real Kafka."""

from __future__ import annotations

import asyncio
import csv
import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import JavaTool
from prepared import commit_offsets, write_records

from aiokclient import Admin, TopicPartition

Run = Callable[..., Any]
Offsets = dict[tuple[str, int], int]
BEGIN = round(time.time() * 1000) - 7_200_000
PACKAGE = "org.apache.kafka.tools"

pytestmark = pytest.mark.usefixtures("kafka_tools_jars")


@pytest.fixture
def run_tool(kafka: Any) -> Callable[..., str]:
    """Run a tool of Kafka, and return its output."""

    def run(name: str, *options: str) -> str:
        servers = ("--bootstrap-server", kafka.bootstrap)
        return JavaTool(f"{PACKAGE}.{name}", *servers, *options).run().decode()

    return run


@pytest.fixture
def topic(kafka: Any) -> str:
    """A topic with three partitions, the first of which has six records in two hours."""
    name = kafka.create_topic(None, 3)

    times = [BEGIN + n * 1_200_000 for n in range(6)]
    write_records(kafka.bootstrap, name, {0: times, 1: [BEGIN]})
    return str(name)


@pytest.fixture
def group(kafka: Any, topic: str) -> str:
    """A group without members, which has committed offsets of two partitions."""
    name = f"typed-{uuid.uuid4().hex[:12]}"
    offsets = {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 0}
    commit_offsets(kafka.bootstrap, name, offsets)
    return name


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (("--topic", "TOPIC"), ("TOPIC",)),
        (("--topic", "TOPIC", "--time", "-2"), ("TOPIC", "--at", "start")),
        (("--topic", "TOPIC", "--time", str(BEGIN + 1)), ("TOPIC", "--at", f"@{BEGIN + 1}")),
        (("--topic", "TOPIC", "--partitions", "0,2"), ("TOPIC:0,2",)),
        (("--topic-partitions", "TOPIC:0-2"), ("TOPIC:0-2",)),
        (("--topic-partitions", "TOPIC:1-"), ("TOPIC:1-",)),
    ],
)
def test_offsets_list_has_the_offsets_of_get_offsets(
    run_kafka: Run, run_tool: Any, topic: str, theirs: tuple[str, ...], ours: tuple[str, ...]
) -> None:
    lines = run_tool("GetOffsetShell", *(each.replace("TOPIC", topic) for each in theirs))
    expected = [line.split(":") for line in lines.split()]
    done = run_kafka("offsets", "list", *(each.replace("TOPIC", topic) for each in ours), "--json")
    rows = json.loads(done.out)
    # Kafka's tool prints nothing where there is no such record.
    found = [row for row in rows if row["offset"] is not None]
    assert expected
    assert [[row["topic"], str(row["partition"]), str(row["offset"])] for row in found] == expected


def test_groups_describe_has_the_lag_of_consumer_groups(
    run_kafka: Run, run_tool: Any, topic: str, group: str
) -> None:
    table = run_tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    heading, *lines = [
        line.split() for line in table.splitlines() if topic in line or "LAG" in line
    ]
    names = {"PARTITION": "partition", "CURRENT-OFFSET": "committed", "LOG-END-OFFSET": "end"}
    names["LAG"] = "lag"
    expected = [
        {names[key]: int(each) for key, each in zip(heading, line, strict=True) if key in names}
        for line in lines
    ]
    rows = json.loads(run_kafka("groups", "describe", group, "--json").out)
    found = [{name: row[name] for name in names.values()} for row in rows]
    assert found == sorted(expected, key=lambda row: row["partition"])
    assert len(found) == 2


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (("--to-earliest",), ("--to", "start")),
        (("--to-latest",), ("--to", "end")),
        (("--to-current",), ("--to", "current")),
        (("--to-offset", "4"), ("--to", "4")),
        (("--shift-by=-1",), ("--shift", "-1")),
        (("--by-duration", "PT1H10M"), ("--to", "-PT1H10M")),
        (("--to-datetime", "2020-01-01T00:00:00.000"), ("--to", "2020-01-01T00:00:00.000")),
    ],
)
def test_groups_reset_plans_what_consumer_groups_plans(
    run_kafka: Run,
    run_tool: Any,
    topic: str,
    group: str,
    theirs: tuple[str, ...],
    ours: tuple[str, ...],
) -> None:
    # Neither of the two shifts an offset where there is none, as in the third partition.
    selected = f"{topic}:0,1"
    options = ("--reset-offsets", "--group", group, "--topic", selected, "--dry-run", "--export")
    printed = run_tool("consumer.group.ConsumerGroupCommand", *options, *theirs)
    lines = [line for line in printed.splitlines() if line.count(",") == 2]
    expected = {(name, int(index)): int(offset) for name, index, offset in csv.reader(lines)}
    done = run_kafka("groups", "reset", group, selected, *ours, "--dry-run", "--json")
    found: Offsets = {
        (row["topic"], row["partition"]): row["after"] for row in json.loads(done.out)
    }
    assert found == expected
    assert len(found) == 2
    # The file that Kafka's tool writes is a plan for ours.
    plan = "".join(f"{line}\n" for line in lines)
    reset = ("groups", "reset", group, "--from-file", "-", "--yes", "--json")
    rows = json.loads(run_kafka(*reset, typed=plan).out)
    assert {(row["topic"], row["partition"]): row["after"] for row in rows} == expected


@pytest.mark.parametrize("regex", ["orders-(?i)*", r"(?<n>\pL)\_", r"\pX", "a{1001}"])
def test_groups_check_regex_judges_as_consumer_groups(
    run_kafka: Run, run_tool: Any, regex: str
) -> None:
    said = run_tool("consumer.group.ConsumerGroupCommand", "--validate-regex", regex)
    is_valid = said.strip().endswith("is valid.")
    assert (run_kafka("groups", "check-regex", regex).code == 0) is is_valid


def test_topics_list_has_the_names_of_kafkas_tool(
    run_kafka: Run, run_tool: Any, topic: str
) -> None:
    theirs = run_tool("TopicCommand", "--list", "--exclude-internal").split()
    assert run_kafka("topics", "list", "-q").out.split() == sorted(theirs)
    described = run_tool("TopicCommand", "--describe", "--topic", topic)
    (ours,) = json.loads(run_kafka("topics", "describe", topic, "--json").out)
    assert f"TopicId: {ours['topic_id']}\tPartitionCount: 3\tReplicationFactor: 1" in described
    for each in ours["partitions"]:
        replicas = ",".join(map(str, each["replicas"]))
        assert f"Partition: {each['index']}\tLeader: {each['leader']}\tReplicas: {replicas}" in (
            described
        )


def test_topics_describe_only_has_the_partitions_of_kafkas_tool(
    run_kafka: Run, run_tool: Any, topic: str
) -> None:
    for theirs, ours in (("at-min-isr", "at-min-isr"), ("under-replicated", "under-replicated")):
        told = run_tool("TopicCommand", "--describe", "--topic", topic, f"--{theirs}-partitions")
        words = ("topics", "describe", topic, "--only", ours)
        partitions = run_kafka(*words).out.splitlines()[1:]
        assert len(partitions) == told.count("Partition: ")


def test_topics_trim_takes_the_file_of_delete_records(
    run_kafka: Run, run_tool: Any, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "offsets.json"
    for theirs, offset in ((True, 2), (False, 4)):
        places = [{"topic": topic, "partition": 0, "offset": offset}]
        path.write_text(json.dumps({"partitions": places, "version": 1}))
        if theirs:
            said = run_tool("DeleteRecordsCommand", "--offset-json-file", str(path))
            assert f"{topic}-0\tlow_watermark: 2" in said
        else:
            done = run_kafka("topics", "trim", "--from-file", str(path), "--yes", "--json")
            (row,) = json.loads(done.out)
            assert (row["before"], row["after"]) == (2, 4)


def test_share_groups_are_described_as_by_share_groups(
    kafka: Any, run_kafka: Run, run_tool: Any, topic: str
) -> None:
    name = f"typed-{uuid.uuid4().hex[:12]}"

    async def alter() -> None:
        async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            starts = {TopicPartition(topic, 0): 2}
            (await admin.alter_share_group_offsets(name, starts)).raise_for_errors()

    asyncio.run(alter())
    tool = "consumer.group.ShareGroupCommand"
    line = next(
        each.split()
        for each in run_tool(tool, "--describe", "--group", name).splitlines()
        if topic in each
    )
    assert line[:4] == [name, topic, "0", "2"]
    (row,) = json.loads(run_kafka("groups", "describe", name, "--json").out)
    assert (row["partition"], row["start_offset"], row["lag"]) == (0, 2, 4)
    listed = run_tool(tool, "--list").split()
    assert run_kafka("groups", "list", "--type", "share", "-q").out.split() == sorted(listed)
    options = ("--reset-offsets", "--group", name, "--topic", topic, "--to-latest", "--dry-run")
    planned = [each.split() for each in run_tool(tool, *options).splitlines() if topic in each]
    done = run_kafka("groups", "reset", name, topic, "--to", "end", "--dry-run", "--json")
    expected = {(each[2], each[3]) for each in planned}
    assert {(str(each["partition"]), str(each["after"])) for each in json.loads(done.out)} == (
        expected
    )
