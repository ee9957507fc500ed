"""The options of all tools that say where the cluster is, and how to log in, beside ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import KafkaCluster
from kafka_harness.probe import wait_until
from tool_sides import Sides

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
READS = [
    ("kafka-topics --list", "topics list"),
    ("kafka-get-offsets --topic TOPIC", "offsets list TOPIC"),
    ("kafka-delete-records --offset-json-file FILE", "topics trim --from-file FILE --yes"),
    ("kafka-groups --list", "groups list"),
    ("kafka-consumer-groups --list", "groups list --type classic,consumer"),
    ("kafka-share-groups --list", "groups list --type share"),
    ("kafka-streams-groups --list", "groups list --type streams"),
    ("kafka-configs --describe --topic TOPIC", "configs describe topic:TOPIC"),
    ("kafka-client-metrics --list", "client-metrics list"),
    ("kafka-acls --list", "acls list"),
    ("kafka-broker-api-versions", "brokers versions"),
    ("kafka-cluster cluster-id", "cluster describe"),
    ("kafka-features describe", "features describe"),
    ("kafka-metadata-quorum describe --status", "quorum describe"),
    ("kafka-log-dirs --describe --topic-list TOPIC", "log-dirs describe --topics TOPIC"),
    ("kafka-transactions list", "transactions list"),
    ("kafka-reassign-partitions --list", "reassign list"),
    (
        "kafka-leader-election --election-type preferred --topic TOPIC --partition 0",
        "elect preferred TOPIC:0",
    ),
]
FORMER = {"kafka-cluster": "--config", "kafka-leader-election": "--admin.config"}
"""Options that are deprecated, and mean the same as --command-config."""


def stable(text: str) -> set[str]:
    """Return the parts of an output that do not differ between two listeners and two moments."""
    lines = text.splitlines()
    changing = r"HighWatermark|Lag|[Ll]og_?[Ee]nd|deprecated"
    kept = [line for line in lines if not re.search(changing, line)]
    return set(re.findall(r"[\w.-]+", re.sub(r"127\.0\.0\.1\W+\d+|\d{13}", "", "\n".join(kept))))


def without_times(result: Any) -> set[str]:
    """Return the values of one of our results that do not differ between two listeners."""
    if isinstance(result, dict):
        left = {
            name: value
            for name, value in result.items()
            if not re.search(r"port|timestamp|lag|watermark|log_end|directory", name)
        }
        return {word for value in left.values() for word in without_times(value)} | {*left}
    if isinstance(result, list):
        return {word for each in result for word in without_times(each)}
    return {str(result)}


@pytest.fixture
def topic(tool_kafka: KafkaCluster) -> str:
    return tool_kafka.create_topic(None, 1, 2, {"retention.ms": 12_345_678})


@pytest.fixture
def offsets_file(topic: str, tmp_path: Path) -> str:
    path = tmp_path / "offsets.json"
    places = [{"topic": topic, "partition": 0, "offset": 0}]
    path.write_text(json.dumps({"partitions": places, "version": 1}))
    return str(path)


def named(text: str, topic: str, file: str) -> list[str]:
    return text.replace("TOPIC", topic).replace("FILE", file).split()


def test_tools_connect_alike(
    sides: Sides,
    tool_kafka: KafkaCluster,
    topic: str,
    offsets_file: str,
    login_file: Callable[[str, str], str],
) -> None:
    """With the login of a file, both tools show what they show without one at another listener."""
    user = ("users", "set", "tool-ops", "--password-file", "-")
    assert sides.run_ours(*user, typed="p").code == 0
    login, servers = login_file("tool-ops", "p"), tool_kafka.listener("SASL")
    logged_in = ("-b", servers, "--config", login)
    wait_until("a login", lambda: sides.run_ours("topics", "list", *logged_in).code == 0, 30)
    sides.theirs(
        "kafka-acls",
        *["--add", "--allow-principal", "User:x", "--topic", "y", "--operation", "Read"],
    )
    for theirs, ours in READS:
        tool, *words = named(theirs, topic, offsets_file)
        subcommand = words[:1] if tool == "kafka-cluster" else []
        words = words[len(subcommand) :]
        where = ("--bootstrap-server", servers)
        options = ["--command-config", *([FORMER[tool]] if tool in FORMER else [])]
        shown = [
            stable(sides.theirs(tool, *subcommand, *where, option, login, *words))
            for option in options
        ]
        expected = stable(sides.theirs(tool, *subcommand, *words))
        assert [each ^ expected for each in shown] == [set()] * len(shown), tool
        our_words = named(ours, topic, offsets_file)
        found = sides.ours(*our_words, "-b", servers, "--config", login)
        without = sides.ours(*our_words, "-b", tool_kafka.bootstrap)
        assert without_times(found) == without_times(without), ours
    sides.ours("acls", "remove", "--allow", "User:x", "--yes")


def test_tools_connect_to_controllers_alike(sides: Sides, tool_kafka: KafkaCluster) -> None:
    where = ("--bootstrap-controller", tool_kafka.controllers)
    cluster = sides.theirs("kafka-cluster", "cluster-id", *where).split()[-1]
    assert sides.ours("cluster", "describe", *where)["cluster_id"] == cluster
    printed = sides.theirs("kafka-cluster", "list-endpoints", *where)
    listed = [line.split()[:3] for line in printed.splitlines() if line[:1].isdigit()]
    described = sides.ours("quorum", "describe", *where)
    assert listed == [
        [node, each["host"], str(each["port"])]
        for node, endpoints in described["endpoints"].items()
        for each in endpoints
    ]
    status = sides.theirs("kafka-metadata-quorum", *where, "describe", "--status")
    (leader,) = re.findall(r"LeaderId: +(\d+)", status)
    assert described["leader_id"] == int(leader)
    features = re.findall(
        r"Feature: (\S+).*FinalizedVersionLevel: (\d+)",
        sides.theirs("kafka-features", *where, "describe"),
    )
    finalized = sides.ours("features", "describe", *where)["finalized"]
    assert {name: int(level) for name, level in features if int(level)} == {
        name: level for name, level in finalized.items() if name != "metadata.version"
    }
    # At the controller, an ACL is known as soon as it is acknowledged.
    add = "--add --allow-principal User:at --topic y --operation Read"
    sides.theirs("kafka-acls", *where, *add.split())
    (row,) = sides.ours("acls", "list", "--principal", "User:at", *where)
    listed_acls = sides.theirs("kafka-acls", *where, "--list", "--principal", "User:at")
    assert "operation=READ" in listed_acls
    assert (row["operation"], row["resource"]) == ("read", "topic:y")
    sides.ours("acls", "remove", "--allow", "User:at", "--yes", *where)
    assert "READ" not in sides.theirs("kafka-acls", *where, "--list", "--principal", "User:at")
    said = sides.theirs("kafka-reassign-partitions", *where, "--list")
    assert "No partition reassignments found." in said
    assert sides.ours("reassign", "list", *where) == []
    broker = ("--entity-type", "brokers", "--entity-name", "100")
    configs = sides.theirs("kafka-configs", *where, "--describe", "--all", *broker)
    theirs = dict(re.findall(r"^  ([\w.]+)=(.*?) sensitive=false", configs, re.MULTILINE))
    rows = sides.ours("configs", "describe", "broker:100", "--all", *where)
    ours = {row["name"]: "null" if row["value"] is None else row["value"] for row in rows}
    assert len(theirs) > 100
    assert {name: ours[name] for name in theirs} == theirs
