"""`aiokclient log-dirs`, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from aiokclient import Admin, ConfigResource
from aiokclient.admin import ConfigSource

CORDONED = "cordoned.log.dirs"

DIRECTORY = (
    "broker",
    "path",
    "total_bytes",
    "usable_bytes",
    "is_cordoned",
    "error",
    "replica_count",
    "size",
    "replicas",
)


@pytest.fixture
def topic(cluster_servers: Any) -> str:
    name: str = cluster_servers.kafka.create_topic(None, 2, 1, None)
    return name


def test_log_dirs_describe_shows_directories_and_their_replicas(run: Any, topic: str) -> None:
    directories = json.loads(run("log-dirs", "describe", "--topics", topic, "--json").out)
    assert {tuple(each) for each in directories} == {DIRECTORY}
    assert sum(each["replica_count"] for each in directories) == 2
    replicas = [replica for each in directories for replica in each["replicas"]]
    assert {replica["partition"] for replica in replicas} == {0, 1}
    assert set(replicas[0]) == {"topic", "partition", "size", "offset_lag", "is_future"}
    assert all(each["usable_bytes"] <= each["total_bytes"] for each in directories)
    lines = run("log-dirs", "describe").out.splitlines()
    assert lines[0].split("\t")[:4] == ["broker", "path", "replica_count", "size"]
    lines = run("log-dirs", "describe", "--topics", topic, "--replicas").out.splitlines()
    assert lines[0].split("\t")[:4] == ["topic", "partition", "broker", "path"]
    assert len(lines) == 3


def test_log_dirs_describe_asks_only_the_brokers_that_are_named(run: Any) -> None:
    broker = json.loads(run("brokers", "list", "--json").out)[0]["node_id"]
    assert run("log-dirs", "describe", "--brokers", str(broker), "-q").out == f"{broker}\n"
    code, _, err = run("log-dirs", "describe", "--brokers", "one")
    assert code == 2
    assert "is not numbers, such as 1,2,3" in err
    code, _, err = run("log-dirs", "describe", "--topics", "no-such-topic")
    assert code == 3
    assert "no-such-topic" in err


def test_log_dirs_move_to_the_same_directory_changes_nothing(run: Any, topic: str) -> None:
    directories = json.loads(run("log-dirs", "describe", "--topics", topic, "--json").out)
    (directory,) = [
        each for each in directories if any(r["partition"] == 1 for r in each["replicas"])
    ]
    target = f"{directory['broker']}:{directory['path']}"
    row = {
        "topic": topic,
        "partition": 1,
        "broker": directory["broker"],
        "before": directory["path"],
        "after": directory["path"],
    }
    for more in (("--dry-run",), ()):
        code, out, err = run("log-dirs", "move", f"{topic}:1", target, "--json", *more)
        assert (code, json.loads(out)) == (0, [row])
        assert ("dry run" in err) == bool(more)


def test_log_dirs_move_names_what_does_not_exist(run: Any, topic: str) -> None:
    directory = json.loads(run("log-dirs", "describe", "--json").out)[0]
    broker, path = directory["broker"], directory["path"]
    for more in ((), ("--dry-run",)):
        code, out, _ = run("log-dirs", "move", f"{topic}:0", f"{broker}:/nope", "-q", *more)
        assert (code, out) == (3, "")
    code, _, err = run("log-dirs", "move", f"{topic}:9", f"{broker}:{path}")
    assert code == 3
    assert f"{topic}-9" in err
    for words, text in (
        ((topic, f"{broker}:{path}"), "Name partitions"),
        ((f"{topic}:0", "nope"), "is not BROKER:PATH"),
    ):
        code, _, err = run("log-dirs", "move", *words)
        assert code == 2
        assert text in err


def test_log_dirs_cordon_names_unknown_directories_and_brokers(run: Any) -> None:
    directory = json.loads(run("log-dirs", "describe", "--json").out)[0]
    code, _, err = run("log-dirs", "cordon", f"{directory['broker']}:/nope")
    assert code == 3
    assert directory["path"] in err
    code, _, err = run("log-dirs", "uncordon", "77:/nope")
    assert code == 3
    assert "No broker 77 is running." in err


@pytest.mark.kafka
def test_log_dirs_cordon_lasts_until_it_is_taken_back(kafka: Any, run_on: Any) -> None:
    run = run_on(kafka.bootstrap)
    directory = json.loads(run("log-dirs", "describe", "--json").out)[0]
    target = f"{directory['broker']}:{directory['path']}"

    def wait_for(is_cordoned: bool) -> None:
        deadline = time.monotonic() + 30
        while True:
            described = json.loads(run("log-dirs", "describe", "--json").out)[0]
            if described["is_cordoned"] is is_cordoned:
                return
            assert time.monotonic() < deadline

    row = {"broker": directory["broker"], "path": directory["path"]}
    code, out, _ = run("log-dirs", "cordon", target, "--dry-run", "--json")
    assert (code, json.loads(out)) == (0, [row | {"before": False, "after": True}])
    wait_for(False)
    try:
        code, out, err = run("log-dirs", "cordon", target, "--json")
        assert (code, json.loads(out)) == (0, [row | {"before": False, "after": True}]), err
        wait_for(True)
        assert run("topics", "create", "cordoned").code == 1
    finally:
        code, out, err = run("log-dirs", "uncordon", target, "--json")
    assert (code, json.loads(out)) == (0, [row | {"before": True, "after": False}]), err
    wait_for(False)
    assert asyncio.run(read_source(kafka.bootstrap, directory["broker"])) is ConfigSource.DEFAULT


async def read_source(bootstrap: str, broker: int) -> ConfigSource:
    """Return where the option with the cordoned directories is set."""
    resource = ConfigResource.broker(broker)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        described = await admin.describe_configs({resource: [CORDONED]})
        return described.raise_for_errors()[resource][CORDONED].source
