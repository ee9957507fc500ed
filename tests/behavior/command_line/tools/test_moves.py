"""kafka-reassign-partitions and kafka-leader-election beside `reassign` and `elect`."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import KafkaCluster
from kafka_harness.probe import wait_until
from tool_sides import Sides

from aiokclient import Producer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
REASSIGN, ELECT = "kafka-reassign-partitions", "kafka-leader-election"
THROTTLED = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class Site:
    """Two topics: one is for Kafka's tool, the other one for ours."""

    def __init__(self, kafka: KafkaCluster, sides: Sides, folder: Path) -> None:
        self.kafka, self.sides, self._folder = kafka, sides, folder
        self.first = self.second = ""

    def create(self, assignment: str) -> None:
        for name in ("first", "second"):
            setattr(self, name, self.kafka.create_topic())
            topic = f"{getattr(self, name)}-x"
            self.sides.ours("topics", "create", topic, "--assign", assignment)
            self.kafka.await_partitions(topic, assignment.count(",") + 1)
            setattr(self, name, topic)

    @property
    def topics(self) -> tuple[str, str]:
        return self.first, self.second

    def plan(self, topic: str, *replicas: list[int]) -> str:
        """Write a plan, and return the name of the file."""
        partitions = [
            {"topic": topic, "partition": number, "replicas": each}
            for number, each in enumerate(replicas)
        ]
        return self.file(f"{topic}.json", {"version": 1, "partitions": partitions})

    def file(self, name: str, document: Any) -> str:
        path = self._folder / name
        path.write_text(json.dumps(document))
        return str(path)

    def replicas(self) -> list[list[list[int]]]:
        """Return the replicas of the partitions of both topics, as Kafka's tool shows them."""
        found = []
        for topic in self.topics:
            text = self.sides.theirs("kafka-topics", "--describe", "--topic", topic)
            lists = re.findall(r"\tReplicas: (\S+)", text)
            found.append([[int(each) for each in one.split(",")] for one in lists])
        return found

    def leaders(self) -> list[list[str]]:
        found = []
        for topic in self.topics:
            text = self.sides.theirs("kafka-topics", "--describe", "--topic", topic)
            found.append(re.findall(r"\tLeader: (\S+)", text))
        return found

    def fill(self) -> None:
        """Write five megabytes to each topic: more than a follower gets before it is throttled."""

        async def write() -> None:
            async with Producer(bootstrap_servers=self.kafka.bootstrap) as producer:
                for topic in self.topics:
                    for _ in range(50):
                        await producer.send(topic, b"v" * 100_000, partition=0)

        asyncio.run(write())

    def throttles(self) -> list[str]:
        """Return the throttles of the brokers and of both topics, without their names."""
        found = []
        for broker in ("1", "2"):
            text = self.sides.theirs("kafka-configs", "--describe", "--broker", broker)
            found += [f"{name}={rate}" for name, rate in re.findall(r"(\S+rate)=(\d+) s", text)]
        for topic in self.topics:
            text = self.sides.theirs("kafka-configs", "--describe", "--topic", topic)
            found += re.findall(r"(\S+throttled.replicas=\S+) s", text)
        return found


@pytest.fixture
def site(tool_kafka: KafkaCluster, sides: Sides, tmp_path: Path) -> Site:
    return Site(tool_kafka, sides, tmp_path)


def test_plans_are_made_alike(site: Site) -> None:
    site.create("1,2,1")
    topics = {"topics": [{"topic": site.first}], "version": 1}
    file = site.file("topics.json", topics)
    words = ("--generate", "--topics-to-move-json-file", file, "--broker-list")
    for brokers, *options in (("1",), ("2",), ("1,2", "--disable-rack-aware")):
        printed = site.sides.theirs(REASSIGN, *words, brokers, *options).splitlines()
        theirs = json.loads(
            printed[printed.index("Proposed partition reassignment configuration") + 1]
        )
        now = json.loads(printed[printed.index("Current partition replica assignment") + 1])
        ours = site.sides.ours(
            *("reassign", "plan", "--from-file", file, "--brokers", brokers),
            *(["--ignore-racks"] if options else []),
        )

        def placed(plan: Any, field: str = "replicas") -> dict[int, list[int]]:
            return {each["partition"]: each[field] for each in plan["partitions"]}

        # Ours names what moves, and moves as little as possible; theirs names all partitions.
        moved = placed(now) | placed(ours)
        assert placed(ours, "before").items() <= placed(now).items()
        if "," not in brokers:
            assert moved == placed(theirs)
        for plan in (moved, placed(theirs)):
            assert {broker for each in plan.values() for broker in each} == {
                int(each) for each in brokers.split(",")
            }
            assert plan.keys() == {0, 1, 2}


def test_plans_are_started_and_verified_alike(site: Site) -> None:
    site.create("1,2")
    plans = [site.plan(topic, [2], [1]) for topic in site.topics]
    site.sides.theirs(REASSIGN, "--execute", "--reassignment-json-file", plans[0])
    site.sides.ours("reassign", "start", plans[1])
    wait_until("the moves", lambda: site.replicas() == [[[2], [1]], [[2], [1]]], 60)
    for topic, plan in zip(site.topics, plans, strict=True):
        said = site.sides.theirs(REASSIGN, "--verify", "--reassignment-json-file", plan)
        status = site.sides.ours("reassign", "status", plan)
        assert {row["state"] for row in status["partitions"]} == {"complete"}
        for row in status["partitions"]:
            line = f"Reassignment of partition {topic}-{row['partition']} is completed."
            assert line in said
    assert "No partition reassignments found." in site.sides.theirs(REASSIGN, "--list")
    assert site.sides.ours("reassign", "list") == []


def test_throttles_are_set_kept_and_removed_alike(site: Site) -> None:
    site.create("1")
    plans = [site.plan(topic, [2]) for topic in site.topics]
    assert site.throttles() == []
    execute = ("--execute", "--reassignment-json-file", plans[0])
    site.sides.theirs(REASSIGN, *execute, "--throttle", "5000000")
    after_theirs = site.throttles()
    site.sides.ours("reassign", "start", plans[1], "--throttle", "5000000")
    wait_until("the moves", lambda: site.replicas() == [[[2]], [[2]]], 60)
    after_both = site.throttles()
    rates = [f"{name}=5000000" for name in THROTTLED]
    assert sorted(each for each in after_theirs if "rate" in each) == sorted(rates * 2)
    assert sorted(each for each in after_both if "rate" in each) == sorted(rates * 2)
    lists = [each for each in after_theirs if "replicas" in each]
    assert sorted(each for each in after_both if "replicas" in each) == sorted(lists * 2)
    for topic_plan in plans:
        words = ("--verify", "--preserve-throttles", "--reassignment-json-file", topic_plan)
        site.sides.theirs(REASSIGN, *words)
        site.sides.ours("reassign", "status", topic_plan, "--keep-throttles")
    assert site.throttles() == after_both
    site.sides.theirs(REASSIGN, "--verify", "--reassignment-json-file", plans[0])
    site.sides.ours("reassign", "status", plans[1])
    wait_until("the end of the throttles", lambda: site.throttles() == [], 30)


def test_plans_that_change_the_number_of_replicas_are_refused_alike(site: Site) -> None:
    site.create("1")
    plans = [site.plan(topic, [1, 2]) for topic in site.topics]
    words = ("--execute", "--reassignment-json-file", plans[0])
    refused = site.sides.run_theirs(REASSIGN, *words, "--disallow-replication-factor-change")
    ended = site.sides.run_ours("reassign", "start", plans[1], "--same-factor")
    assert (refused.code, ended.code) == (1, 1) or "factor" in refused.out + refused.err
    assert "factor" in (refused.out + refused.err).lower()
    assert "number of replicas" in ended.err
    assert site.replicas() == [[[1]], [[1]]]
    site.sides.theirs(REASSIGN, *words)
    site.sides.ours("reassign", "start", plans[1])
    wait_until("the new replicas", lambda: site.replicas() == [[[1, 2]], [[1, 2]]], 60)


def test_moves_are_listed_replaced_and_cancelled_alike(site: Site) -> None:
    site.create("1,1")
    site.fill()
    plans = [site.plan(topic, [2], [1]) for topic in site.topics]
    try:
        execute = ("--execute", "--reassignment-json-file")
        site.sides.theirs(REASSIGN, *execute, plans[0], "--throttle", "1000")
        # Kafka's tool refuses to begin more without --additional. Ours begins what is asked for.
        more = [site.plan(f"{site.second}", [2], [1])]
        refused = site.sides.run_theirs(REASSIGN, *execute, more[0])
        assert "--additional" in refused.out + refused.err
        site.sides.ours("reassign", "start", plans[1], "--throttle", "1000")
        listed = site.sides.theirs(REASSIGN, "--list")
        rows = site.sides.ours("reassign", "list")
        for topic in site.topics:
            assert f"{topic}-0: replicas: 2,1. adding: 2. removing: 1." in listed
        assert {
            row["topic"]: (row["replicas"], row["adding"], row["removing"]) for row in rows
        } == dict.fromkeys(site.topics, ([2, 1], [2], [1]))
        words = ("--additional", "--throttle", "1000", *execute)
        site.sides.theirs(REASSIGN, *words, plans[0])
        cancel = ("--cancel", "--reassignment-json-file")
        site.sides.theirs(REASSIGN, *cancel, plans[0], "--preserve-throttles")
        assert [row["topic"] for row in site.sides.ours("reassign", "list")] == [site.second]
        site.sides.ours("reassign", "cancel", plans[1], "--keep-throttles")
        assert site.sides.ours("reassign", "list") == []
        assert "No partition reassignments found." in site.sides.theirs(REASSIGN, "--list")
        wait_until("the former replicas", lambda: site.replicas() == [[[1], [1]], [[1], [1]]], 30)
        assert site.throttles() != []
    finally:
        site.sides.ours("reassign", "cancel", "--yes")
    site.sides.ours("reassign", "throttle", "none")
    wait_until("the end of the throttles", lambda: site.throttles() == [], 30)


def test_replicas_are_moved_between_directories_alike(site: Site) -> None:
    site.create("1")
    site.fill()

    def described() -> list[Any]:
        rows: list[Any] = site.sides.ours("log-dirs", "describe", "--brokers", "1")
        return rows

    def directories() -> list[str]:
        """Return the directories of both topics, without those of copies that are not complete."""
        rows = described()
        return [
            row["path"]
            for topic in site.topics
            for row in rows
            if topic in {each["topic"] for each in row["replicas"] if not each["is_future"]}
        ]

    paths = [row["path"] for row in described()]
    now = directories()
    targets = [next(path for path in paths if path != each) for each in now]
    plans = []
    for topic, target in zip(site.topics, targets, strict=True):
        moved = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [target]}
        plans.append(site.file(f"{topic}.json", {"version": 1, "partitions": [moved]}))
    name = "replica.alter.log.dirs.io.max.bytes.per.second"

    def throttle() -> list[str]:
        text = site.sides.theirs("kafka-configs", "--describe", "--broker", "1")
        return re.findall(rf"{name}=(\d+) s", text)

    words = ("--execute", "--reassignment-json-file", plans[0], "--timeout", "20000")
    site.sides.theirs(REASSIGN, *words, "--replica-alter-log-dirs-throttle", "90000000")
    assert throttle() == ["90000000"]
    wait_until("the first move", lambda: directories() == [targets[0], now[1]], 60)
    site.sides.theirs(REASSIGN, "--verify", "--reassignment-json-file", plans[0])
    assert throttle() == []
    words = ("--log-dir-throttle", "90000000", "--timeout", "20")
    site.sides.ours("reassign", "start", plans[1], *words)
    assert throttle() == ["90000000"]
    wait_until("both moves", lambda: directories() == targets, 60)
    site.sides.ours("reassign", "status", plans[1])
    wait_until("the end of the throttle", lambda: throttle() == [], 30)


# -- elections -----------------------------------------------------------------------------------


@pytest.fixture
def moved(site: Site, tool_kafka: KafkaCluster) -> Site:
    """Two topics of three partitions that prefer broker 1, and have broker 2 as their leader."""
    site.create("1:2,1:2,1:2")
    tool_kafka.stop(1)
    tool_kafka.heal()
    for topic in site.topics:
        for partition in range(3):
            tool_kafka.await_in_sync(topic, partition)
    assert site.leaders() == [["2"] * 3] * 2
    return site


def test_preferred_leaders_are_elected_alike(moved: Site) -> None:
    preferred = ("--election-type", "preferred")

    def becomes(*leaders: str) -> None:
        wait_until(f"{leaders}", lambda: moved.leaders() == [[*leaders]] * 2, 30)

    first, second = moved.topics
    moved.sides.theirs(ELECT, *preferred, "--topic", first, "--partition", "0")
    (row,) = moved.sides.ours("elect", "preferred", second, "-p", "0")
    assert row["outcome"] == "elected"
    becomes("1", "2", "2")
    said = moved.sides.theirs(ELECT, *preferred, "--topic", first, "--partition", "0")
    assert f"Valid replica already elected for partitions {first}-0" in said.replace("[", "")
    (row,) = moved.sides.ours("elect", "preferred", f"{second}:0")
    assert row["outcome"] == "not needed"

    def file(topic: str) -> str:
        partitions = [{"topic": topic, "partition": 1}]
        return moved.file(f"{topic}-elect.json", {"partitions": partitions})

    moved.sides.theirs(ELECT, *preferred, "--path-to-json-file", file(first))
    moved.sides.ours("elect", "preferred", "--from-file", file(second))
    becomes("1", "1", "2")
    moved.sides.ours("elect", "preferred", "--all")
    becomes("1", "1", "1")
    said = moved.sides.theirs(ELECT, *preferred, "--all-topic-partitions")
    assert "Successfully completed leader election" not in said
    assert moved.sides.ours("elect", "preferred", "--all") == []


def test_leaders_are_elected_without_sync_alike(site: Site, tool_kafka: KafkaCluster) -> None:
    site.create("1:2")
    try:
        tool_kafka.stop(1)
        wait_until("the new leader", lambda: site.leaders() == [["2"]] * 2, 30)
        site.fill()
        tool_kafka.kill(2)
        tool_kafka.nodes[1].start()
        wait_until("no leader", lambda: site.leaders() == [["none"]] * 2, 60)
        unclean = ("--election-type", "unclean", "--topic", site.first, "--partition", "0")
        site.sides.theirs(ELECT, *unclean)
        (row,) = site.sides.ours("elect", "unclean", f"{site.second}:0", "--yes")
        assert row["outcome"] == "elected"
        wait_until("the elected leader", lambda: site.leaders() == [["1"]] * 2, 30)
    finally:
        tool_kafka.heal()
        for topic in site.topics:
            tool_kafka.await_in_sync(topic, 0)
