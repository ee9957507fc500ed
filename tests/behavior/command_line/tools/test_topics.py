"""kafka-topics, kafka-delete-records, and kafka-get-offsets beside `topics` and `offsets`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka_harness import KafkaCluster
from kafka_harness.probe import wait_until
from tool_sides import Sides

from aiokclient import Producer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
BEGIN = 1_700_000_000_000
TOPICS = "kafka-topics"


class Shown(NamedTuple):
    """The description of a topic by Kafka's tool."""

    topic_id: str
    partitions: dict[int, tuple[str, str, str]]
    """The leader, the replicas, and the replicas that are in sync of each partition."""
    configs: dict[str, str]


def read_shown(text: str) -> dict[str, Shown]:
    """Return the topics that `kafka-topics --describe` has printed."""
    found: dict[str, Shown] = {}
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+): ([^\t]*)", line))
        if "Partition" in fields:
            shown = found.setdefault(fields["Topic"], Shown("", {}, {}))
            values = (fields["Leader"], fields["Replicas"], fields["Isr"])
            shown.partitions[int(fields["Partition"])] = values
        elif "TopicId" in fields:
            configs = dict(part.split("=", 1) for part in fields["Configs"].split(",") if part)
            found[fields["Topic"]] = Shown(fields["TopicId"], {}, configs)
    return found


def ours_shown(rows: list[Any]) -> dict[str, dict[int, tuple[str, str, str]]]:
    return {
        row["name"]: {
            each["index"]: (
                "none" if each["leader"] is None else str(each["leader"]),
                ",".join(map(str, each["replicas"])),
                ",".join(map(str, each["isr"])),
            )
            for each in row["partitions"]
        }
        for row in rows
    }


def await_topic(cluster: KafkaCluster, name: str, partitions: int) -> None:
    cluster.await_partitions(name, partitions)


@pytest.fixture
def new_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Return a function that makes a name for a topic of the test."""
    return lambda name: f"{request.node.name[5:25]}-{name}"


def test_topics_are_created_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_name: Callable[[str], str]
) -> None:
    pairs = [
        (
            "--partitions 3 --replication-factor 2 --config retention.ms=5000 "
            "--config cleanup.policy=compact",
            "-p 3 -r 2 --config retention.ms=5000 --config cleanup.policy=compact",
            3,
        ),
        ("--replica-assignment 2:1,1:2", "--assign 2:1,1:2", 2),
        ("--partitions 1 --if-not-exists", "-p 1 --if-not-exists", 1),
    ]
    for number, (theirs, ours, partitions) in enumerate(pairs):
        first, second = new_name(f"t{number}"), new_name(f"o{number}")
        sides.theirs(TOPICS, "--create", "--topic", first, *theirs.split())
        sides.ours("topics", "create", second, *ours.split())
        for name in (first, second):
            await_topic(tool_kafka, name, partitions)
        shown = read_shown(sides.theirs(TOPICS, "--describe"))
        assert shown[first].configs == shown[second].configs
        assert len(shown[first].partitions) == len(shown[second].partitions) == partitions
        if "--assign" in ours:
            assert shown[first].partitions == shown[second].partitions
        replicas = {len(each[1].split(",")) for each in shown[second].partitions.values()}
        assert replicas == {len(each[1].split(",")) for each in shown[first].partitions.values()}
    # A second time, both are content with --if-not-exists, and refuse without.
    sides.theirs(TOPICS, "--create", "--topic", first, "--if-not-exists", "--partitions", "9")
    sides.ours("topics", "create", second, "--if-not-exists", "-p", "9")
    assert sides.run_theirs(TOPICS, "--create", "--topic", first).code == 1
    assert sides.run_ours("topics", "create", second).code == 1
    again = read_shown(sides.theirs(TOPICS, "--describe"))
    assert (again[first], again[second]) == (shown[first], shown[second])


def test_partitions_are_added_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_name: Callable[[str], str]
) -> None:
    first, second = new_name("t"), new_name("o")
    for name in (first, second):
        tool_kafka.create_topic(name, 1)
    alter = (TOPICS, "--alter", "--topic", first)
    sides.theirs(*alter, "--partitions", "3")
    sides.ours("topics", "set-partitions", second, "3")
    sides.theirs(*alter, "--partitions", "4", "--replica-assignment", "1,1,1,2")
    sides.ours("topics", "set-partitions", second, "4", "--assign", "2")
    for name in (first, second):
        await_topic(tool_kafka, name, 4)
    shown = read_shown(sides.theirs(TOPICS, "--describe"))
    assert len(shown[first].partitions) == len(shown[second].partitions) == 4
    assert shown[first].partitions[3] == shown[second].partitions[3] == ("2", "2", "2")
    absent = new_name("absent")
    words = ("--alter", "--topic", absent, "--partitions", "2")
    assert sides.run_theirs(TOPICS, *words).code == 1
    assert sides.run_ours("topics", "set-partitions", absent, "2").code == 3
    sides.theirs(TOPICS, *words, "--if-exists")
    sides.ours("topics", "set-partitions", absent, "2", "--if-exists")


def test_topics_are_deleted_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_name: Callable[[str], str]
) -> None:
    first, second = new_name("t"), new_name("o")
    for name in (first, second):
        tool_kafka.create_topic(name, 1)
    sides.theirs(TOPICS, "--delete", "--topic", first)
    sides.ours("topics", "delete", second, "--yes")

    def listed() -> set[str]:
        return set(sides.theirs(TOPICS, "--list").split())

    wait_until("both topics to go", lambda: not listed() & {first, second}, 30)
    assert sides.run_theirs(TOPICS, "--delete", "--topic", first).code == 1
    assert sides.run_ours("topics", "delete", second, "--yes").code == 3
    sides.theirs(TOPICS, "--delete", "--topic", first, "--if-exists")
    sides.ours("topics", "delete", second, "--yes", "--if-exists")


def test_topics_are_listed_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_name: Callable[[str], str]
) -> None:
    name = tool_kafka.create_topic(new_name("one"), 1)
    tool_kafka.create_topic(new_name("two"), 1)

    def ours(*words: str) -> list[str]:
        return [row["name"] for row in sides.ours("topics", "list", *words)]

    with_internal = sorted(sides.theirs(TOPICS, "--list").split())
    assert "__consumer_offsets" in with_internal
    assert ours("--internal") == with_internal
    without = sorted(sides.theirs(TOPICS, "--list", "--exclude-internal").split())
    assert ours() == without
    assert name in without
    pattern = f"{new_name('')}(one|three)"
    assert ours("--regex", pattern) == sides.theirs(TOPICS, "--list", "--topic", pattern).split()
    assert ours("--regex", pattern) == [name]


def test_topics_are_described_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_name: Callable[[str], str]
) -> None:
    name = tool_kafka.create_topic(new_name("plain"), 3, 2)
    tool_kafka.create_topic(new_name("set"), 1, configs={"retention.ms": 7000})
    describe = (TOPICS, "--describe")
    shown = read_shown(sides.theirs(*describe, "--topic", name))
    (row,) = sides.ours("topics", "describe", name)
    assert ours_shown([row]) == {name: shown[name].partitions}
    assert row["topic_id"] == shown[name].topic_id
    by_id = read_shown(sides.theirs(*describe, "--topic-id", row["topic_id"]))
    assert ours_shown(sides.ours("topics", "describe", f"id:{row['topic_id']}")) == {
        name: by_id[name].partitions
    }
    # A page of one partition for them; ours asks for as many pages as there are.
    paged = sides.theirs(*describe, "--topic", name, "--partition-size-limit-per-response", "1")
    assert read_shown(paged) == shown
    everything = read_shown(sides.theirs(*describe, "--exclude-internal"))
    rows = sides.ours("topics", "describe")
    assert ours_shown(rows) == {key: each.partitions for key, each in everything.items()}
    changed = read_shown(sides.theirs(*describe, "--topics-with-overrides", "--exclude-internal"))
    rows = sides.ours("topics", "describe", "--only", "overrides")
    # Theirs counts what the brokers' files change for all topics, too.
    assert new_name("set") in {row["name"] for row in rows} <= changed.keys()
    absent = new_name("absent")
    assert sides.run_theirs(*describe, "--topic", absent).code == 1
    assert sides.run_ours("topics", "describe", absent).code == 3
    assert sides.theirs(*describe, "--topic", absent, "--if-exists").strip() == ""
    assert sides.ours("topics", "describe", absent, "--if-exists") == []


def test_partitions_in_trouble_are_selected_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_name: Callable[[str], str]
) -> None:
    whole = tool_kafka.create_topic(new_name("whole"), 2, 2)
    strict = tool_kafka.create_topic(new_name("strict"), 1, 2, {"min.insync.replicas": 2})
    single = new_name("single")
    sides.ours("topics", "create", single, "--assign", "2")
    tool_kafka.await_partitions(single, 1)
    names = (whole, strict, single)
    states = ("under-replicated", "under-min-isr", "at-min-isr", "offline")
    options = dict.fromkeys(states, "")
    options |= {state: f"--{state}-partitions" for state in states[:3]}
    options["offline"] = "--unavailable-partitions"

    def theirs(state: str) -> dict[str, set[int]]:
        shown = read_shown(sides.theirs(TOPICS, "--describe", options[state]))
        return {name: set(shown[name].partitions) for name in names if name in shown}

    def ours(state: str) -> dict[str, set[int]]:
        rows = sides.ours("topics", "describe", "--only", state)
        return {
            row["name"]: {each["index"] for each in row["partitions"]}
            for row in rows
            if row["name"] in names
        }

    assert [theirs(state) for state in states] == [ours(state) for state in states]
    try:
        tool_kafka.stop(2)
        wait_until("the loss", lambda: theirs("offline") == {single: {0}}, 30)
        for state in states:
            assert ours(state) == theirs(state), state
        assert ours("under-min-isr") == {strict: {0}, single: {0}}
        assert ours("under-replicated") == {whole: {0, 1}, strict: {0}, single: {0}}
    finally:
        tool_kafka.heal()
    for name, partitions in ((whole, 2), (strict, 1)):
        for partition in range(partitions):
            tool_kafka.await_in_sync(name, partition)


@pytest.fixture
def filled(tool_kafka: KafkaCluster, new_name: Callable[[str], str]) -> str:
    """A topic of three partitions: six records in two hours, one record, and none."""
    name = tool_kafka.create_topic(new_name("filled"), 3)

    async def write() -> None:
        async with Producer(bootstrap_servers=tool_kafka.bootstrap) as producer:
            for n in range(6):
                await producer.send(name, b"v", partition=0, timestamp=BEGIN + n * 1_200_000)
            await producer.send(name, b"v", partition=1, timestamp=BEGIN)

    asyncio.run(write())
    return name


def test_offsets_are_listed_alike(sides: Sides, filled: str) -> None:
    pairs = [
        (f"--topic {filled}", filled),
        (f"--topic {filled} --time -1", f"{filled} --at end"),
        (f"--topic {filled} --time -2", f"{filled} --at start"),
        (f"--topic {filled} --time earliest", f"{filled} --at start"),
        (f"--topic {filled} --time -3", f"{filled} --at max-timestamp"),
        (f"--topic {filled} --time -4", f"{filled} --at local-start"),
        (f"--topic {filled} --time {BEGIN + 1}", f"{filled} --at @{BEGIN + 1}"),
        (f"--topic {filled} --partitions 0,2", f"{filled}:0,2"),
        (f"--topic-partitions {filled}:0-2", f"{filled}:0-2"),
        (f"--topic-partitions {filled}:1-", f"{filled}:1-"),
        (f"--topic {filled[:-3]}.*", f"--regex {filled[:-3]}.*"),
        ("--exclude-internal-topics", ""),
        ("", "--internal"),
    ]
    for theirs, ours in pairs:
        printed = sides.theirs("kafka-get-offsets", *theirs.split())
        expected = sorted(tuple(line.split(":")) for line in printed.split())
        rows = sides.ours("offsets", "list", *ours.split())
        # Kafka's tool prints nothing where there is no such record.
        found = [row for row in rows if row["offset"] is not None]
        assert expected
        assert expected == sorted(
            (row["topic"], str(row["partition"]), str(row["offset"])) for row in found
        ), theirs


def test_records_are_deleted_alike(
    sides: Sides, tool_kafka: KafkaCluster, filled: str, tmp_path: Path
) -> None:
    path = tmp_path / "offsets.json"

    def write(offset: int) -> str:
        places = [{"topic": filled, "partition": 0, "offset": offset}]
        path.write_text(json.dumps({"partitions": places, "version": 1}))
        return str(path)

    said = sides.theirs("kafka-delete-records", "--offset-json-file", write(2))
    assert f"{filled}-0\tlow_watermark: 2" in said
    starts = ("kafka-get-offsets", "--topic", filled, "--time", "-2")
    assert f"{filled}:0:2" in sides.theirs(*starts).split()
    (row,) = sides.ours("topics", "trim", "--from-file", write(4), "--yes")
    assert (row["before"], row["after"]) == (2, 4)
    assert f"{filled}:0:4" in sides.theirs(*starts).split()
