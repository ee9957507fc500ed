"""`aiokclient elect`, on an embedded cluster of three brokers and on a real Kafka.

A broker of a real Kafka takes seconds of processor time to start again, so one test alone stops
one. `tests/behavior/admin/test_reassignments.py` shows what brokers answer to other elections.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokclient.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


class Stage:
    """Three brokers that a test may stop, and a function that types commands for them."""

    def __init__(
        self,
        run: Any,
        stop: Callable[[int], Any],
        start: Callable[[int], Any],
        await_all_brokers: Callable[[], Any],
    ) -> None:
        self.run, self.stop, self.start = run, stop, start
        self.await_all_brokers = await_all_brokers

    def create_topic(self, name: str, *replicas: str) -> None:
        code, _, err = self.run("topics", "create", name, "--assign", ",".join(replicas))
        assert (code, err) == (0, "")
        self.await_all_brokers()
        self.wait_for_leaders(name, [int(each.split(":")[0]) for each in replicas])

    def leaders(self, name: str) -> list[int | None]:
        (topic,) = json.loads(self.run("topics", "describe", name, "--json").out)
        return [each["leader"] for each in topic["partitions"]]

    def wait_for_leaders(self, name: str, leaders: list[int | None]) -> None:
        """Wait until all brokers know these leaders."""
        self.wait_until(lambda: self.leaders(name) == leaders)

    def wait_until(self, is_reached: Callable[[], object]) -> None:
        """Wait until a broker says that a state is reached, and until all others know that."""
        deadline = time.monotonic() + 30
        while not is_reached():
            assert time.monotonic() < deadline
        self.await_all_brokers()

    def are_under_replicated(self, name: str) -> bool:
        return bool(self.run("topics", "describe", name, "--only", "under-replicated", "-q").out)

    def restart(self, broker: int, name: str, meanwhile: list[int | None]) -> None:
        """Stop a broker until the leaders are others, and wait until it is in sync again."""
        self.stop(broker)
        try:
            self.wait_for_leaders(name, meanwhile)
        finally:
            self.start(broker)
        self.wait_until(lambda: not self.are_under_replicated(name))


@pytest.fixture
def embedded_stage(embedded: EmbeddedCluster, run_on: Any) -> Stage:
    run = run_on(embedded.bootstrap_servers)
    return Stage(run, embedded.stop, embedded.start, lambda: None)


@pytest.fixture(params=["embedded", "kafka3"])
def stage(request: pytest.FixtureRequest, run_on: Any) -> Stage:
    if request.param == "embedded":
        found: Stage = request.getfixturevalue("embedded_stage")
        return found
    kafka = request.getfixturevalue("kafka3")
    return Stage(run_on(kafka.bootstrap), kafka.kill, kafka.start, kafka.await_all_brokers)


def test_elect_preferred_makes_the_first_replica_the_leader_again(stage: Stage) -> None:
    name = f"elect-{time.time_ns()}"
    stage.create_topic(name, "1:2", "2:1")
    stage.restart(1, name, [2, 2])
    rows = [
        {"topic": name, "partition": 0, "before": 2, "after": 1, "outcome": "elected"},
        {"topic": name, "partition": 1, "before": 2, "after": 2, "outcome": "not needed"},
    ]
    code, out, err = stage.run("elect", "preferred", name, "--dry-run", "--json")
    assert (code, json.loads(out)) == (0, rows)
    assert "dry run" in err
    assert stage.leaders(name) == [2, 2]
    code, out, err = stage.run("elect", "preferred", name, "--json")
    assert (code, json.loads(out), err) == (0, rows, "")
    stage.wait_for_leaders(name, [1, 2])


def test_elect_preferred_of_all_partitions_shows_only_those_that_needed_it(
    embedded_stage: Stage,
) -> None:
    name = f"elect-{time.time_ns()}"
    embedded_stage.create_topic(name, "3:1", "1:3")
    embedded_stage.restart(3, name, [1, 1])
    rows = json.loads(embedded_stage.run("elect", "preferred", "--all", "--json").out)
    assert [row for row in rows if row["topic"] == name] == [
        {"topic": name, "partition": 0, "before": 1, "after": 3, "outcome": "elected"}
    ]
    embedded_stage.await_all_brokers()
    assert json.loads(embedded_stage.run("elect", "preferred", "--all", "--json").out) == []


def test_elect_takes_partitions_from_files_options_and_standard_input(
    stage: Stage, tmp_path: Path
) -> None:
    name = f"elect-{time.time_ns()}"
    stage.create_topic(name, "1", "2", "3")
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": name, "partition": 1}]}))
    for words, typed, numbers in (
        (("--from-file", str(file)), "", [1]),
        (("--from-file", "-"), file.read_text(), [1]),
        ((name, "-p", "0,2"), "", [0, 2]),
        ((f"{name}:2,1",), "", [2, 1]),
        (("-",), f"{name}:0\n{name}:1\n", [0, 1]),
    ):
        code, out, _ = stage.run("elect", "preferred", *words, "--json", typed=typed)
        assert code == 0
        assert [row["partition"] for row in json.loads(out)] == numbers


def test_elect_unclean_elects_a_replica_that_lacks_records(embedded_stage: Stage) -> None:
    name = f"elect-{time.time_ns()}"
    embedded_stage.create_topic(name, "3:2", "1:2")
    embedded_stage.stop(2)
    stopped = [2]
    try:
        embedded_stage.wait_until(lambda: embedded_stage.are_under_replicated(name))
        embedded_stage.stop(3)
        stopped.append(3)
        embedded_stage.wait_for_leaders(name, [None, 1])
        embedded_stage.start(2)
        stopped.remove(2)
        embedded_stage.wait_until(
            lambda: '"node_id": 2' in embedded_stage.run("brokers", "list", "--json").out
        )
        code, out, err = embedded_stage.run("elect", "unclean", name)
        assert (code, out) == (2, "")
        assert "lose records" in err
        assert "needs --yes" in err
        code, out, _ = embedded_stage.run("elect", "unclean", name, "--dry-run", "--json")
        assert code == 0
        assert [row["outcome"] for row in json.loads(out)] == ["elected", "not needed"]
        assert embedded_stage.leaders(name) == [None, 1]
        code, out, err = embedded_stage.run("elect", "unclean", name, "--yes", "--json")
        assert (code, err) == (0, "")
        assert json.loads(out) == [
            {"topic": name, "partition": 0, "before": None, "after": 2, "outcome": "elected"},
            {"topic": name, "partition": 1, "before": 1, "after": 1, "outcome": "not needed"},
        ]
    finally:
        for broker in stopped:
            embedded_stage.start(broker)


def test_elect_fails_for_a_preferred_replica_that_does_not_run(embedded_stage: Stage) -> None:
    name = f"elect-{time.time_ns()}"
    embedded_stage.create_topic(name, "2:1", "1:2")
    embedded_stage.stop(2)
    try:
        embedded_stage.wait_for_leaders(name, [1, 1])
        code, out, err = embedded_stage.run("elect", "preferred", name, f"{name}:9", "nope", "-q")
        assert (code, out) == (1, f"{name}\n")
        failed = [line.split(": ")[1] for line in err.splitlines()]
        assert sorted(failed) == sorted(["nope", f"{name}-9", f"{name}-0"])
        assert embedded_stage.run("elect", "preferred", f"{name}:9").code == 3
    finally:
        embedded_stage.start(2)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "--all"),
        (("a", "--all"), "--all"),
        (("a:b",), "is not TOPIC or TOPIC:PARTITION"),
        (("a:0", "-p", "1"), "--partition is for topics"),
        (("--all", "-p", "1"), "--partition is for topics"),
        (("--from-file", "/nope"), "cannot be read"),
    ],
)
def test_elect_refuses_wrong_use(
    embedded: EmbeddedCluster, run_on: Any, words: tuple[str, ...], text: str
) -> None:
    run = run_on(embedded.bootstrap_servers)
    for verb in ("preferred", "unclean"):
        code, out, err = run("elect", verb, *words)
        assert (code, out) == (2, "")
        assert text in err


def test_elect_refuses_files_of_another_form(
    embedded: EmbeddedCluster, run_on: Any, tmp_path: Path
) -> None:
    run = run_on(embedded.bootstrap_servers)
    file = tmp_path / "partitions.json"
    for text in ("", "[]", '{"partitions": [{"topic": "a"}]}', '{"partitions": 1}'):
        file.write_text(text)
        code, out, err = run("elect", "preferred", "--from-file", str(file))
        assert (code, out) == (2, "")
        assert "partitions.json" in err
