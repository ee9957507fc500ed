"""The commands of clusters, features, transactions, and elections beside Kafka's tools."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import JavaTool
from raw_transactions import RawTransaction

from aiokclient import Client, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_tools_jars")]


class Tools:
    """Kafka's tools and our commands for one real broker."""

    def __init__(self, bootstrap: str, run: Any) -> None:
        self.bootstrap, self._run = bootstrap, run

    def theirs(self, name: str, *words: str) -> list[str]:
        """Return the lines that a tool of Kafka prints. Its name is that of its class."""
        main = f"org.apache.kafka.tools.{name}"
        return (
            JavaTool(main, "--bootstrap-server", self.bootstrap, *words).run().decode().split("\n")
        )

    def ours(self, *words: str) -> Any:
        code, out, err = self._run(*words, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)


@pytest.fixture
def tools(kafka: Any, run_on: Any) -> Tools:
    return Tools(kafka.bootstrap, run_on(kafka.bootstrap))


def test_clusters_are_what_kafka_cluster_shows(tools: Tools) -> None:
    words = ("--bootstrap-server", tools.bootstrap)
    main = "org.apache.kafka.tools.ClusterTool"
    printed = JavaTool(main, "cluster-id", *words).run().decode()
    described = tools.ours("cluster", "describe")
    assert printed.split()[-1] == described["cluster_id"]
    printed = JavaTool(main, "list-endpoints", *words, "--include-fenced-brokers").run().decode()
    rows = [line.split() for line in printed.splitlines() if line[:1].isdigit()]
    listed = tools.ours("brokers", "list", "--fenced")
    assert [row[:3] for row in rows] == [
        [str(each["node_id"]), each["host"], str(each["port"])] for each in listed
    ]


def test_features_are_what_kafka_features_shows(tools: Tools) -> None:
    printed = [
        dict(re.findall(r"(\w+): (\S+)", line))
        for line in tools.theirs("FeatureCommand", "describe")
        if line.startswith("Feature: ")
    ]
    described = tools.ours("features", "describe")
    for each in printed:
        name = each["Feature"]
        levels = described["supported"][name]
        if name == "metadata.version":
            continue  # The tool prints releases, and does not know the newest one.
        assert each["SupportedMinVersion"] == str(levels["lowest"])
        assert each["SupportedMaxVersion"] == str(levels["highest"])
        assert each["FinalizedVersionLevel"] == str(described["finalized"].get(name, 0))
        assert each["Epoch"] == str(described["epoch"])
    assert {each["Feature"] for each in printed} == set(described["supported"])


def test_replicas_of_the_quorum_are_what_kafka_metadata_quorum_shows(tools: Tools) -> None:
    lines = tools.theirs("MetadataQuorumCommand", "describe", "--replication")
    printed = [line.split() for line in lines if line[:1].isdigit()]
    described = tools.ours("quorum", "describe", "--show", "replication")
    replicas = [*described["voters"], *described["observers"]]
    assert [(row[0], row[-1].lower()) for row in printed] == [
        (str(each["replica_id"]), each["role"]) for each in replicas
    ]


def test_transactions_are_what_kafka_transactions_shows(tools: Tools, kafka: Any) -> None:
    topic = kafka.create_topic(None, 1, 1, None)

    async def begin() -> RawTransaction:
        async with Client(bootstrap_servers=kafka.bootstrap) as client:
            transaction = RawTransaction(client, f"{topic}-t")
            await transaction.begin()
            await transaction.produce(TopicPartition(topic, 0), b"a")
            return transaction

    transaction = asyncio.run(begin())

    def theirs(*words: str) -> list[list[str]]:
        lines = tools.theirs("TransactionsCommand", *words)
        return [line.split() for line in lines[1:] if topic in line or line[:1].isdigit()]

    (listed,) = tools.ours("transactions", "list", "--pattern", f"{topic}-.*")
    pattern = ("--transactional-id-pattern", f"{topic}-.*")
    assert theirs("list", *pattern) == [
        [
            listed["transactional_id"],
            str(listed["coordinator_id"]),
            str(listed["producer_id"]),
            listed["state"],
        ]
    ]
    (described,) = tools.ours("transactions", "describe", f"{topic}-t")
    ((coordinator, name, producer_id, epoch, state, timeout, *_),) = theirs(
        "describe", "--transactional-id", f"{topic}-t"
    )
    assert (coordinator, name) == (str(described["coordinator_id"]), f"{topic}-t")
    assert (producer_id, epoch) == (str(described["producer_id"]), str(described["producer_epoch"]))
    assert (state, timeout) == (described["state"], str(described["timeout_ms"]))
    (producer,) = tools.ours("transactions", "producers", f"{topic}:0")
    (row,) = theirs("describe-producers", "--topic", topic, "--partition", "0")
    assert row[:2] == [str(transaction.producer_id), str(producer["producer_epoch"])]
    assert row[-1] == str(producer["transaction_start_offset"])


def test_a_plan_is_a_file_that_kafka_reassign_partitions_verifies(
    tools: Tools, kafka: Any, tmp_path: Path
) -> None:
    topic = kafka.create_topic(None, 2, 1, None)
    (broker,) = [each["node_id"] for each in tools.ours("brokers", "list")]
    file = tmp_path / "plan.json"
    partitions = [{"topic": topic, "partition": n, "replicas": [broker]} for n in (0, 1)]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    file.write_text(json.dumps(tools.ours("reassign", "start", str(file))))
    lines = tools.theirs(
        "reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(file), "--verify"
    )
    for number in (0, 1):
        assert f"Reassignment of partition {topic}-{number} is completed." in lines
    printed = tools.theirs("reassign.ReassignPartitionsCommand", "--list")
    assert tools.ours("reassign", "list") == []
    assert any("No partition reassignments found." in line for line in printed)


def test_an_election_that_is_not_needed_is_none_for_kafka_leader_election(
    tools: Tools, kafka: Any, tmp_path: Path
) -> None:
    topic = kafka.create_topic(None, 1, 1, None)
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    words = ("--election-type", "preferred", "--path-to-json-file", str(file))
    printed = " ".join(tools.theirs("LeaderElectionCommand", *words))
    assert f"Valid replica already elected for partitions {topic}-0" in printed
    (row,) = tools.ours("elect", "preferred", "--from-file", str(file))
    assert row["outcome"] == "not needed"
