"""`aiokclient reassign` and `brokers drain`, on three embedded brokers and on a real Kafka."""

from __future__ import annotations

import asyncio
import json
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokclient import TopicPartition
from aiokclient.admin import PartitionReassignment, ReassignmentProgress
from aiokclient.cli.nouns.reassign import ProgressLines, say_what_was_undone
from aiokclient.testing import EmbeddedCluster

SMALL_RATE = "1kB"


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


class Stage:
    """Three brokers, and a function that types commands for them."""

    def __init__(
        self, run: Any, file: Path, await_all_brokers: Callable[[], Any] = lambda: None
    ) -> None:
        self.run, self.file, self.await_all_brokers = run, file, await_all_brokers

    def create_topic(self, *replicas: str) -> str:
        name = f"moved-{time.time_ns()}"
        deadline = time.monotonic() + 30
        code, _, err = self.run("topics", "create", name, "--assign", ",".join(replicas))
        # On a loaded machine, the controller may have no heartbeats of a broker for a moment.
        while code and "fenced" in err and time.monotonic() < deadline:
            code, _, err = self.run("topics", "create", name, "--assign", ",".join(replicas))
        assert (code, err) == (0, "")
        self.await_all_brokers()
        return name

    def replicas(self, name: str) -> list[list[int]]:
        """Return the replicas of each partition, as they are after all commands before."""
        self.await_all_brokers()
        out = self.run("topics", "describe", name, "--json").out
        (topic,) = json.loads(out)
        return [each["replicas"] for each in topic["partitions"]]

    def write_plan(self, name: str, *replicas: list[int]) -> str:
        partitions = [
            {"topic": name, "partition": number, "replicas": each}
            for number, each in enumerate(replicas)
        ]
        self.file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return str(self.file)

    def wait_for_status(self, plan: str) -> Any:
        deadline = time.monotonic() + 30
        while True:
            code, out, err = self.run("reassign", "status", plan, "--json")
            assert code == 0, err
            if json.loads(out)["is_complete"]:
                self.await_all_brokers()
                return json.loads(out), err
            assert time.monotonic() < deadline


@pytest.fixture(params=["embedded", "kafka3"])
def stage(request: pytest.FixtureRequest, run_on: Any, tmp_path: Path) -> Stage:
    cluster = request.getfixturevalue(request.param)
    file = tmp_path / "plan.json"
    if request.param == "kafka3":
        return Stage(run_on(cluster.bootstrap), file, cluster.await_all_brokers)
    return Stage(run_on(cluster.bootstrap_servers), file)


def test_reassign_plan_is_started_and_completed(stage: Stage) -> None:
    name = stage.create_topic("1", "1", "1")
    code, out, err = stage.run("reassign", "plan", name, "--json", "--out", str(stage.file))
    assert (code, err) == (0, "")
    plan = json.loads(out)
    assert json.loads(stage.file.read_text()) == plan
    assert set(plan["partitions"][0]) >= {"topic", "partition", "replicas", "before"}
    assert stage.replicas(name) == [[1], [1], [1]]
    code, _, err = stage.run("reassign", "start", str(stage.file), "--dry-run")
    assert code == 0
    assert "dry run" in err
    assert stage.replicas(name) == [[1], [1], [1]]
    assert stage.run("reassign", "start", str(stage.file)).code == 0
    progress, err = stage.wait_for_status(str(stage.file))
    assert {row["state"] for row in progress["partitions"]} == {"complete"}
    assert "2 of 2 partitions have been moved" in err
    assert sorted(stage.replicas(name)) == [[1], [2], [3]]
    tables = stage.run("reassign", "plan", name).out.splitlines()
    assert tables[0] == "topic\tpartition\tbefore\tafter\tsize\tbytes_to_copy"
    brokers = stage.run("reassign", "plan", name, "--show", "brokers").out.splitlines()
    assert brokers[0].split("\t")[:3] == ["broker", "replica_count_before", "replica_count_after"]


def test_reassign_plan_moves_topics_of_a_file_to_the_brokers_that_are_named(stage: Stage) -> None:
    name = stage.create_topic("1", "1")
    stage.file.write_text(json.dumps({"topics": [{"topic": name}], "version": 1}))
    words = ("--from-file", str(stage.file), "--brokers", "3", "--json")
    plan = json.loads(stage.run("reassign", "plan", *words).out)
    assert [each["replicas"] for each in plan["partitions"]] == [[3], [3]]
    assert json.loads(stage.run("reassign", "plan", *words, "--ignore-racks").out) == plan
    code, _, err = stage.run("reassign", "plan", name, "--brokers", "77")
    assert code == 3
    assert "77" in err
    assert stage.run("reassign", "plan", "no-such-topic").code == 3


def test_reassign_start_waits_and_ends_its_throttle(stage: Stage) -> None:
    name = stage.create_topic("1:2", "2:1")
    plan = stage.write_plan(name, [3, 2], [2, 3])
    code, out, err = stage.run(
        "reassign", "start", plan, "--wait", "--throttle", "50MB", "--show", "moves"
    )
    assert code == 0
    assert "2 of 2 partitions have been moved" in err
    assert out.splitlines()[1].startswith(f"{name}\t0\t1,2\t3,2\t")
    assert stage.replicas(name) == [[3, 2], [2, 3]]
    assert json.loads(stage.run("reassign", "throttle", "none", "--dry-run", "--json").out) == []


def test_reassign_start_without_waiting_leaves_the_throttle_to_status(stage: Stage) -> None:
    name = stage.create_topic("1", "2")
    plan = stage.write_plan(name, [3], [3])
    code, _, _ = stage.run("reassign", "start", plan, "--throttle", "50MB")
    assert code == 0
    deadline = time.monotonic() + 30
    while True:
        code, out, err = stage.run("reassign", "status", plan, "--keep-throttles", "--json")
        if json.loads(out)["is_complete"]:
            break
        assert time.monotonic() < deadline
    stage.await_all_brokers()
    throttled = ("reassign", "throttle", "none", "--dry-run", "--json")
    assert json.loads(stage.run(*throttled).out) != []
    _, err = stage.wait_for_status(plan)
    assert "throttles of reassignments were removed" in err
    deadline = time.monotonic() + 30
    while json.loads(stage.run(*throttled).out):
        assert time.monotonic() < deadline


def test_reassign_start_refuses_another_number_of_replicas_if_told(stage: Stage) -> None:
    name = stage.create_topic("1")
    plan = stage.write_plan(name, [1, 2])
    code, _, err = stage.run("reassign", "start", plan, "--same-factor")
    assert code == 1
    assert "from 1 to 2" in err
    assert stage.replicas(name) == [[1]]
    assert stage.run("reassign", "start", "-", "--wait", typed=stage.file.read_text()).code == 0
    assert stage.replicas(name) == [[1, 2]]


def test_reassign_cancel_restores_the_order_of_replicas(
    embedded: EmbeddedCluster, run_on: Any, tmp_path: Path
) -> None:
    stage = Stage(run_on(embedded.bootstrap_servers), tmp_path / "plan.json")
    name = stage.create_topic("1:2")
    plan = stage.write_plan(name, [2, 3])
    embedded.stop(3)  # So the move stays in progress.
    try:
        # A plan for a broker that does not run is refused, so it begins without the command.
        move(embedded, name, (2, 3))
        listed = json.loads(stage.run("reassign", "list", "--json").out)
        assert listed == [
            {
                "topic": name,
                "partition": 0,
                "replicas": [2, 3, 1],
                "adding": [3],
                "removing": [1],
                "target": [2, 3],
            }
        ]
        assert stage.run("reassign", "status", "-q").out == f"{name}\n"
        status = json.loads(stage.run("reassign", "status", plan, "--json").out)
        assert status["partitions"][0]["state"] == "moving"
        assert not status["is_complete"]
        file = json.loads(stage.file.read_text())
        file["partitions"][0]["before"] = [1, 2]
        stage.file.write_text(json.dumps(file))
        code, out, err = stage.run("reassign", "cancel", plan, "--dry-run", "-q")
        assert (code, out) == (0, f"{name}\n")
        assert stage.run("reassign", "list", "-q").out == f"{name}\n"
        code, out, err = stage.run("reassign", "cancel", plan, "-q")
        assert (code, out, err) == (0, f"{name}\n", "")
        assert stage.replicas(name) == [[1, 2]]
        move(embedded, name, (2, 3))
        assert stage.run("reassign", "cancel", "-q").out == f"{name}\n"
        assert stage.run("reassign", "list", "-q").out == ""
    finally:
        embedded.start(3)


def move(cluster: EmbeddedCluster, name: str, replicas: tuple[int, ...]) -> None:
    """Begin to move a partition, to brokers that need not run."""
    import asyncio

    from aiokclient import Admin, TopicPartition

    async def begin() -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            moves = {TopicPartition(name, 0): replicas}
            (await admin.alter_partition_reassignments(moves)).raise_for_errors()

    asyncio.run(begin())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("start",), "PLAN"),
        (("start", "/nope"), "cannot be read"),
        (("start", "-"), "is not JSON"),
        (("throttle", "fast"), "no number of bytes"),
        (("throttle", "0"), "would stop all copies"),
        (("plan", "--brokers", "one"), "is not numbers"),
        (("plan", "--show", "all"), "moves"),
    ],
)
def test_reassign_refuses_wrong_use(
    embedded: EmbeddedCluster, run_on: Any, words: tuple[str, ...], text: str
) -> None:
    code, out, err = run_on(embedded.bootstrap_servers)("reassign", *words, typed="no plan")
    assert (code, out) == (2, "")
    assert text in err


def test_reassign_refuses_files_that_are_no_plan(stage: Stage) -> None:
    for text in ("{}", "[]", '{"version": 1, "partitions": [{"topic": "a"}]}'):
        stage.file.write_text(text)
        code, out, err = stage.run("reassign", "start", str(stage.file))
        assert (code, out) == (2, "")
        assert "plan.json" in err
    name = stage.create_topic("1")
    plan = stage.write_plan(name, [1])
    words = ("--keep-throttles", "--throttle", SMALL_RATE)
    code, _, err = stage.run("reassign", "start", plan, *words)
    assert code == 2
    assert "--keep-throttles excludes" in err


def test_brokers_drain_moves_all_replicas_off_a_broker(
    embedded: EmbeddedCluster, run_on: Any, tmp_path: Path
) -> None:
    stage = Stage(run_on(embedded.bootstrap_servers), tmp_path / "plan.json")
    name = stage.create_topic("3:1", "1:3", "2:1")
    code, out, err = stage.run("brokers", "drain", "3", "--dry-run", "--json")
    assert code == 0
    assert "dry run" in err
    planned = [each for each in json.loads(out)["partitions"] if each["topic"] == name]
    assert [each["before"] for each in planned] == [[3, 1], [1, 3]]
    assert not any(3 in each["replicas"] for each in planned)
    assert stage.replicas(name) == [[3, 1], [1, 3], [2, 1]]
    code, _, err = stage.run("brokers", "drain", "3")
    assert code == 0
    assert "partitions have been moved" in err
    assert not any(3 in each for each in stage.replicas(name))
    code, _, err = stage.run("brokers", "drain", "77")
    assert code == 3
    assert "Broker 77 is not in the cluster" in err


@pytest.mark.kafka
def test_brokers_drain_is_refused_if_too_few_brokers_are_left(kafka: Any, run_on: Any) -> None:
    kafka.create_topic(None, 1, 1, None)
    run = run_on(kafka.bootstrap)
    broker = str(json.loads(run("brokers", "list", "--json").out)[0]["node_id"])
    for more in ((), ("--dry-run",)):
        code, out, err = run("brokers", "drain", broker, *more)
        assert (code, out) == (1, "")
        assert "INVALID_REPLICA_ASSIGNMENT" in err


@pytest.mark.parametrize(("complete", "done"), [(2, "2 of 3 partitions have been moved"), (0, "0")])
def test_an_interrupted_move_says_what_was_moved_and_that_the_rest_was_moved_back(
    complete: int, done: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given, lines = Namespace(), ProgressLines()
    partitions = [TopicPartition("orders", number) for number in range(3)]
    moving = {tp: PartitionReassignment((1, 2), (2,), (1,)) for tp in partitions[complete:]}

    async def apply() -> None:
        lines(ReassignmentProgress(tuple(partitions[:complete]), moving, (), 1_000, 1_500_000))
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(say_what_was_undone(apply(), given, lines))
    assert given.left.startswith(done)
    assert given.left.endswith(", and what was not complete was moved back.")
    assert "1.0 kB of 1.5 MB were copied." in capsys.readouterr().err


def test_reassign_cancel_says_that_nothing_is_being_moved(
    embedded: EmbeddedCluster, run_on: Any
) -> None:
    code, out, err = run_on(embedded.bootstrap_servers)("reassign", "cancel", "--json")
    assert (code, json.loads(out)) == (0, [])
    assert err.startswith("aiokclient: Nothing is being moved.")


def test_reassign_start_says_how_to_follow_the_moves(
    embedded: EmbeddedCluster, run_on: Any, tmp_path: Path
) -> None:
    stage = Stage(run_on(embedded.bootstrap_servers), tmp_path / "plan.json")
    plan = stage.write_plan(stage.create_topic("1"), [2])
    assert f"'aiokclient reassign status {plan}' shows" in stage.run("reassign", "start", plan).err
    assert "The moves have begun" not in stage.run("reassign", "start", plan, "--wait").err
