"""The tools of the cluster beside `cluster`, `brokers`, `features`, `quorum`, and `log-dirs`.

They are kafka-cluster, kafka-broker-api-versions, kafka-features, kafka-metadata-quorum, and
kafka-log-dirs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_harness import KAFKA, OLD, KafkaCluster, ToolHost
from kafka_harness.probe import wait_until
from tool_sides import Sides

from aiokclient.cli.nouns.features import RELEASES

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
FEATURES, QUORUM = "kafka-features", "kafka-metadata-quorum"


def endpoints(sides: Sides, *words: str) -> list[tuple[str, ...]]:
    """Return the id, host, port, and state of the brokers that Kafka's tool lists."""
    lines = sides.theirs("kafka-cluster", "list-endpoints", *words).splitlines()
    rows = [line.split() for line in lines if line[:1].isdigit()]
    return [(*row[:3], row[4]) for row in rows]


def brokers(sides: Sides, *words: str) -> list[tuple[str, ...]]:
    return [
        (
            str(each["node_id"]),
            each["host"],
            str(each["port"]),
            "fenced" if each["fenced"] else "unfenced",
        )
        for each in sides.ours("brokers", "list", *words)
    ]


def test_clusters_are_described_alike(sides: Sides) -> None:
    printed = sides.theirs("kafka-cluster", "cluster-id")
    assert printed.split()[-1] == sides.ours("cluster", "describe")["cluster_id"]
    assert endpoints(sides) == brokers(sides) != []


def test_brokers_are_shown_as_fenced_and_unregistered_alike(
    sides: Sides, tool_kafka: KafkaCluster
) -> None:
    absent = sides.run_theirs("kafka-cluster", "unregister", "--id", "77")
    assert "BrokerIdNotRegisteredException" in absent.err
    assert sides.run_ours("brokers", "unregister", "77", "--yes").code == 3

    def all_known() -> list[str]:
        shown = endpoints(sides, "--include-fenced-brokers")
        assert shown == brokers(sides, "--fenced")
        return [f"{each[0]} {each[-1]}" for each in shown]

    try:
        for unregister in (
            lambda: sides.theirs("kafka-cluster", "unregister", "--id", "2"),
            lambda: sides.ours("brokers", "unregister", "2", "--yes"),
        ):
            tool_kafka.stop(2)
            wait_until("the fence", lambda: all_known() == ["1 unfenced", "2 fenced"], 30)
            assert [each[0] for each in endpoints(sides)] == ["1"]
            assert endpoints(sides) == brokers(sides)
            unregister()
            wait_until("the end of broker 2", lambda: all_known() == ["1 unfenced"], 30)
            tool_kafka.heal()
    finally:
        tool_kafka.heal()


def test_versions_of_apis_are_shown_alike(sides: Sides) -> None:
    printed = sides.theirs("kafka-broker-api-versions")
    pattern = re.compile(r"^\s+(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[", re.MULTILINE)
    theirs = {
        int(key): (name, int(low), int(high or low))
        for name, key, low, high in pattern.findall(printed)
    }
    rows = sides.ours("brokers", "versions")
    ours = {row["api_key"]: (row["name"], row["min_version"], row["max_version"]) for row in rows}
    assert len(theirs) > 70
    # Ours has no names for requests that brokers send to each other.
    assert theirs == {
        key: (ours[key][0] or name, *ours[key][1:]) for key, (name, *_) in theirs.items()
    }


# -- features ------------------------------------------------------------------------------------


def features(sides: Sides, *words: str) -> dict[str, tuple[str, ...]]:
    """Return the lowest, highest, and finalized level of the features that Kafka's tool shows."""
    found = {}
    for line in sides.theirs(FEATURES, "describe", *words).splitlines():
        if row := dict(re.findall(r"(\w+): ((?:UNKNOWN )?\S+)", line)):
            name = row.pop("Feature")
            found[name] = (*row.values(),)
    # Of this one, the tool prints releases.
    return {name: row for name, row in found.items() if name != "metadata.version"}


def ours_features(sides: Sides, *words: str) -> dict[str, tuple[str, ...]]:
    described = sides.ours("features", "describe", *words)
    return {
        name: (
            str(levels["lowest"]),
            str(levels["highest"]),
            str(described["finalized"].get(name, 0)),
            str(described["epoch"]),
        )
        for name, levels in described["supported"].items()
        if name != "metadata.version"
    }


def test_features_are_described_alike(sides: Sides) -> None:
    assert features(sides) == ours_features(sides) != {}
    assert features(sides, "--node-id", "2") == ours_features(sides, "--node", "2") != {}


@pytest.fixture(scope="module")
def upgraded_kafka(java: str) -> Iterator[KafkaCluster]:
    """A broker whose features still have the levels of an older release."""
    with KafkaCluster(KAFKA, formatted_by=OLD) as cluster:
        yield cluster


@pytest.fixture
def old_sides(
    upgraded_kafka: KafkaCluster, tool_host: ToolHost, run_on: Callable[[str], Any]
) -> Sides:
    return Sides(tool_host, run_on(upgraded_kafka.bootstrap), upgraded_kafka.bootstrap)


def levels(sides: Sides) -> dict[str, int]:
    finalized: dict[str, int] = sides.ours("features", "describe")["finalized"]
    return finalized


def becomes(sides: Sides, name: str, level: int) -> None:
    """Wait until a feature has a level. A broker may learn of a change a moment later."""
    wait_until(f"{name}={level}", lambda: levels(sides).get(name, 0) == level, 30)


def said_levels(text: str) -> dict[str, int]:
    """Return the levels to which Kafka's tool has changed features, or would."""
    pattern = r"^(\S+) (?:was|can be) (?:up|down)graded to (\d+)"
    found = {name: int(level) for name, level in re.findall(pattern, text, re.MULTILINE)}
    disabled = re.findall(r"^(\S+) (?:was|can be) disabled", text, re.MULTILINE)
    return found | dict.fromkeys(disabled, 0)


def test_features_are_changed_alike(old_sides: Sides) -> None:
    sides = old_sides
    before = levels(sides)

    def ours(*words: str) -> dict[str, int]:
        return {row["name"]: row["after"] for row in sides.ours("features", *words)}

    dry_runs = [
        (("--release-version", "4.1"), ("--release", "4.1")),
        (("--metadata", "4.0"), ("metadata.version=25",)),
        (("--feature", "metadata.version=23"), ("metadata.version=23",)),
    ]
    for theirs_words, words in dry_runs:
        said = said_levels(sides.theirs(FEATURES, "upgrade", "--dry-run", *theirs_words))
        planned = ours("upgrade", "--dry-run", *words)
        assert planned != {}
        # Ours leaves out what has the level already.
        assert planned == {name: level for name, level in said.items() if before.get(name) != level}
    assert levels(sides) == before
    said = said_levels(sides.theirs(FEATURES, "upgrade", "--feature", "metadata.version=22"))
    assert said == {"metadata.version": 22}
    becomes(sides, "metadata.version", 22)
    assert ours("upgrade", "--release", "4.1")["metadata.version"] == 27
    becomes(sides, "metadata.version", 27)
    group, transaction = "group.version", "transaction.version"
    assert (levels(sides)[group], levels(sides)[transaction]) == (1, 2)
    for command, unsafe in (("downgrade", ()), ("downgrade", ("--unsafe",))):
        words = (command, *unsafe, "--dry-run")
        said = said_levels(sides.theirs(FEATURES, *words, "--feature", f"{transaction}=1"))
        assert said == ours(*words, f"{transaction}=1", "--yes") == {transaction: 1}
    # What is refused is refused for the same reason.
    for command, theirs_words, words in (
        ("downgrade", ("--metadata", "3.8"), ("metadata.version=20",)),
        ("upgrade", ("--release-version", "3.9"), ("--release", "3.9")),
    ):
        refused = sides.run_theirs(FEATURES, command, "--dry-run", *theirs_words)
        ended = sides.run_ours("features", command, "--dry-run", *words, "--yes")
        assert refused.code == ended.code == 1
        (reason, *_) = re.findall(r"had an error: (.*)", refused.out)
        assert reason in ended.err
    # Kafka's tool asks for all levels of a release, even for those that are lower now, which the
    # controller refuses. Ours asks for those that are higher now.
    said_of = sides.run_theirs(FEATURES, "downgrade", "--dry-run", "--release-version", "4.0").out
    assert set(re.findall(r"had an error: (.*)", said_of)) <= {
        "Invalid update version 1 for feature kraft.version. Can't downgrade to a newer version."
    }
    pattern = r"^(?:Can not downgrade )?(\S+) (?:can be downgraded )?to (\d+)"
    asked = re.findall(pattern, said_of, re.MULTILINE)
    assert len(asked) > 4
    now = levels(sides)
    assert ours("downgrade", "--dry-run", "--release", "4.0", "--yes") == {
        name: int(level) for name, level in asked if int(level) < now.get(name, 0)
    }
    sides.theirs(FEATURES, "downgrade", "--feature", f"{transaction}=1")
    becomes(sides, transaction, 1)
    sides.ours("features", "downgrade", f"{transaction}=0", "--yes")
    becomes(sides, transaction, 0)
    for unsafe in ((), ("--unsafe",)):
        words = ("disable", "--dry-run", *unsafe)
        said = said_levels(sides.theirs(FEATURES, *words, "--feature", group))
        assert said == ours(*words, group, "--yes") == {group: 0}
    sides.theirs(FEATURES, "disable", "--feature", group)
    becomes(sides, group, 0)
    sides.ours("features", "upgrade", f"{group}=1")
    becomes(sides, group, 1)
    sides.ours("features", "disable", group, "--yes")
    becomes(sides, group, 0)


def test_levels_of_releases_and_their_dependencies_are_known_alike(sides: Sides) -> None:
    known = [name for name in RELEASES if name < "4.4"]  # The tools are those of 4.3.
    for release in (known[0], "3.9-IV0", "4.0-IV0", "4.0-IV3", known[-1]):
        printed = sides.theirs(FEATURES, "version-mapping", "--release-version", release).split()
        theirs = dict(word.split("=") for word in printed if "=" in word)
        rows = sides.ours("features", "of-release", release)
        assert {row["name"]: str(row["level"]) for row in rows} == theirs
    for level in ("transaction.version=2", "eligible.leader.replicas.version=1"):
        printed = sides.theirs(FEATURES, "feature-dependencies", "--feature", level)
        (row,) = sides.ours("features", "dependencies", level)
        needed = dict(re.findall(r"^\s+(\S+)=(\d+)", printed, re.MULTILINE))
        assert {name: str(need) for name, need in row["dependencies"].items()} == needed


# -- the quorum ----------------------------------------------------------------------------------


def test_the_quorum_is_described_alike(sides: Sides) -> None:
    printed = dict(
        line.split(":", 1)
        for line in sides.theirs(QUORUM, "describe", "--status").splitlines()
        if ":" in line
    )
    described = sides.ours("quorum", "describe", "--show", "status")
    assert int(printed["LeaderId"]) == described["leader_id"]
    assert int(printed["LeaderEpoch"]) == described["leader_epoch"]
    voters = json.loads(printed["CurrentVoters"])
    assert [each["id"] for each in voters] == [each["replica_id"] for each in described["voters"]]
    assert [
        f"{each['listener']}://{each['host']}:{each['port']}"
        for each in described["endpoints"][str(voters[0]["id"])]
    ] == voters[0]["endpoints"]
    observers = [
        (each["id"], each["directoryId"]) for each in json.loads(printed["CurrentObservers"])
    ]
    assert [(each["replica_id"], each["directory_id"]) for each in described["observers"]] == (
        observers
    )
    described = sides.ours("quorum", "describe", "--show", "replication")
    replicas = [
        (str(each["replica_id"]), each["role"])
        for each in (*described["voters"], *described["observers"])
    ]
    for human in ((), ("--human-readable",)):
        lines = sides.theirs(QUORUM, "describe", "--replication", *human).splitlines()
        rows = [line.split() for line in lines if line[:1].isdigit()]
        assert [(row[0], row[-1].lower()) for row in rows] == replicas
        # Ours has a number for programs and an age for people in the same result.
        assert all(("ago" in row) is bool(human) for row in rows)
    assert all(each["lag_ms"] >= 0 for each in described["observers"])


def test_changes_of_a_quorum_with_static_voters_are_refused_alike(
    sides: Sides, tool_kafka: KafkaCluster
) -> None:
    """Voters of `controller.quorum.voters` cannot be changed; the controller says why to both."""
    words = ("--controller-id", "100", "--controller-directory-id", "b12FhdVvS5KmGP7MMZFEQA")
    refused = sides.run_theirs(QUORUM, "remove-controller", *words)
    ended = sides.run_ours(
        "quorum", "remove", "100", "--directory-id", "b12FhdVvS5KmGP7MMZFEQA", "--yes"
    )
    assert refused.code == ended.code == 1
    assert "UnsupportedVersionException" in refused.err
    assert "UNSUPPORTED_VERSION" in ended.err
    properties = tool_kafka.nodes[100].folder / "node.properties"
    refused = sides.run_theirs(QUORUM, "--command-config", str(properties), "add-controller")
    ended = sides.run_ours(
        *("quorum", "add", "101", "--endpoint", "CONTROLLER://127.0.0.1:1"),
        *("--directory-id", "fKQ_u10lRe2W-92rt4TUgQ"),
    )
    assert refused.code == ended.code == 1
    assert "UnsupportedVersionException" in refused.err
    assert "UNSUPPORTED_VERSION" in ended.err


# -- log directories -----------------------------------------------------------------------------


def test_log_directories_are_described_alike(sides: Sides, tool_kafka: KafkaCluster) -> None:
    first, second = (tool_kafka.create_topic(None, 2, 2) for _ in range(2))
    for theirs_words, words in (
        (("--topic-list", first), ("--topics", first)),
        (("--topic-list", f"{first},{second}"), ("--topics", f"{first},{second}")),
        (("--broker-list", "2", "--topic-list", first), ("--brokers", "2", "--topics", first)),
        ((), ()),
    ):
        printed = sides.theirs("kafka-log-dirs", "--describe", *theirs_words)
        (document,) = [line for line in printed.splitlines() if line.startswith("{")]
        theirs = {
            (broker["broker"], directory["logDir"], part["partition"], part["size"])
            for broker in json.loads(document)["brokers"]
            for directory in broker["logDirs"]
            for part in directory["partitions"]
        }
        ours = {
            (each["broker"], each["path"], f"{r['topic']}-{r['partition']}", r["size"])
            for each in sides.ours("log-dirs", "describe", *words)
            for r in each["replicas"]
        }
        assert ours == theirs != set()
