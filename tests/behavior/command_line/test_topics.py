"""The commands of topics, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokclient import Producer
from aiokclient.errors import UnknownTopicOrPartitionError
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

Run = Callable[..., Any]


@pytest.fixture
def topic(cluster_servers: Any) -> str:
    """A topic with two partitions and one config of its own."""
    configs = {"retention.ms": 86_400_000}
    return str(cluster_servers.kafka.create_topic(None, 2, 1, configs))


@pytest.fixture
def name() -> str:
    return f"typed-{uuid.uuid4().hex[:12]}"


def write(servers: Any, topic: str, count: int, timestamp: int | None = None) -> None:
    """Write records to partition 0, whose times are a second apart from `timestamp` on."""

    async def send() -> None:
        async with Producer(bootstrap_servers=servers.bootstrap) as producer:
            for n in range(count):
                at = None if timestamp is None else timestamp + n * 1000
                await producer.send(topic, b"%d" % n, partition=0, timestamp=at)

    asyncio.run(send())


def test_topics_list_has_a_name_in_each_line(run: Run, topic: str) -> None:
    done = run("topics", "list")
    assert (done.code, done.err) == (0, "")
    heading, *names = done.out.splitlines()
    assert heading == "name"
    assert topic in names
    assert names == sorted(names)
    assert "__consumer_offsets" not in names
    (row,) = json.loads(run("topics", "list", topic, "--json").out)
    assert row["name"] == topic
    assert row["internal"] is False
    assert len(row["topic_id"]) == 22
    assert run("topics", "list", "--regex", f"{topic[:-1]}.", "-q").out == f"{topic}\n"


def test_topics_list_ends_with_3_for_a_name_that_does_not_exist(
    run: Run, topic: str, name: str
) -> None:
    done = run("topics", "list", name, topic, "-q")
    assert (done.code, done.out) == (3, f"{topic}\n")
    (line,) = done.err.splitlines()
    assert line.startswith(f"aiokclient: {name}: ")
    assert "There is no such topic" in line
    done = run("topics", "list", "--regex", "(", topic)
    assert (done.code, done.out) == (2, "")
    assert "'(' is no regular expression" in done.err


def test_topics_create_ends_when_all_brokers_know_the_topic(
    run_on: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def deny(request: Any, response: Any) -> Any:
        """Answer as a broker that does not know the topic yet."""
        asked.append(response.topics[0].name)
        response.topics[0].error_code = UnknownTopicOrPartitionError.code
        response.topics[0].partitions = []
        return response

    def asks_for_it(request: Any) -> bool:
        return any(each.name.startswith(name) for each in request.topics or [])

    with EmbeddedCluster(brokers=2) as cluster:
        run = run_on(cluster.bootstrap_servers)
        with cluster.alter(ApiKey.METADATA, deny, broker=2, times=3, where=asks_for_it):
            done = run("topics", "create", name, "-q")
        assert (done.code, done.out, done.err) == (0, f"{name}\n", "")
        assert asked == [name] * 3
        # A broker that answers nothing delays the end, and does not change the result.
        with cluster.alter(ApiKey.METADATA, lambda *_: None, broker=2, where=asks_for_it):
            monkeypatch.setattr("aiokclient.cli.nouns.topics.KNOWN_WAIT_S", 0.2)
            done = run("topics", "create", f"{name}-2", name, "-q")
        assert (done.code, done.out) == (1, f"{name}-2\n")


def test_topics_describe_has_the_partitions_and_the_configs_of_a_topic(
    run: Run, topic: str
) -> None:
    (described,) = json.loads(run("topics", "describe", topic, "--json").out)
    assert described["name"] == topic
    assert (described["partition_count"], described["replication_factor"]) == (2, 1)
    assert described["configs"] == {"retention.ms": "86400000"}
    first = described["partitions"][0]
    assert (first["index"], first["replicas"]) == (0, [first["leader"]])
    assert (first["isr"], first["offline"]) == (first["replicas"], [])
    assert (first["adding"], first["removing"]) == ([], [])
    by_id = run("topics", "describe", f"id:{described['topic_id']}", "--json")
    assert json.loads(by_id.out)[0]["name"] == topic
    topics, partitions = run("topics", "describe", topic).out.split("\n\n")
    assert topics.splitlines()[1].split("\t")[0::2] == [topic, "2", "retention.ms=86400000"]
    assert len(partitions.splitlines()) == 3


def test_topics_describe_only_shows_the_partitions_in_that_state(run: Run, topic: str) -> None:
    def shown(state: str) -> Any:
        done = run("topics", "describe", topic, "--only", state, "--json")
        assert (done.code, done.err) == (0, "")
        return json.loads(done.out)

    # One replica is the least that must be in sync.
    assert [each["index"] for each in shown("at-min-isr")[0]["partitions"]] == [0, 1]
    assert shown("under-replicated") == shown("under-min-isr") == shown("offline") == []
    assert shown("overrides")[0]["configs"] == {"retention.ms": "86400000"}
    done = run("topics", "describe", topic, "--only", "bad")
    assert done.code == 2
    assert "under-replicated" in done.err


def test_topics_describe_ignores_only_absence_with_if_exists(
    run: Run, topic: str, name: str
) -> None:
    assert run("topics", "describe", name).code == 3
    done = run("topics", "describe", name, topic, "--if-exists", "--jsonl")
    assert (done.code, done.err, len(done.out.splitlines())) == (0, "", 1)


def test_topics_create_creates_what_a_dry_run_shows(run: Run, name: str) -> None:
    create = ("topics", "create", name, "-p", "3", "--config", "retention.ms=1000", "--json")
    planned = run(*create, "--dry-run")
    assert (planned.code, planned.err) == (
        0,
        "aiokclient: This was a dry run: nothing was changed.\n",
    )
    assert run("topics", "list", name).code == 3
    created = run(*create)
    assert (created.code, created.err) == (0, "")
    for done in (planned, created):
        (row,) = json.loads(done.out)
        assert (row["name"], row["partitions"]) == (name, 3)
        assert row["configs"]["retention.ms"] == "1000"
    again = run(*create)
    assert again.code == 1
    assert again.err.startswith(f"aiokclient: {name}: ")
    assert run(*create, "--if-not-exists").code == 0


def test_topics_create_tells_a_partial_failure_by_1(run: Run, name: str, topic: str) -> None:
    done = run("topics", "create", name, topic, "--assign", "1,1")
    assert done.code == 1
    assert done.out.splitlines()[1].split("\t")[0] == name
    (line,) = done.err.splitlines()
    assert topic in line
    assert run("topics", "create").code == 2
    assert run("topics", "create", name, "--assign", "1:x").code == 2


def test_topics_delete_refuses_without_yes_and_deletes_with_it(
    run: Run, topic: str, name: str
) -> None:
    done = run("topics", "delete", topic)
    assert (done.code, done.out) == (2, "")
    assert f"Delete the topic {topic} and all records? Without a terminal" in done.err
    assert run("topics", "delete", topic, "--dry-run").code == 0
    assert run("topics", "list", topic).code == 0
    done = run("topics", "delete", "-", name, "--yes", typed=f"{topic}\n")
    assert (done.code, done.out) == (3, f"name\n{topic}\n")
    assert run("topics", "delete", topic, "-y", "--if-exists").code == 0


def test_topics_set_partitions_adds_partitions(run: Run, topic: str, name: str) -> None:
    grow = ("topics", "set-partitions", topic, "4", "--json")
    for dry_run in (True, False):
        done = run(*grow, *(["--dry-run"] if dry_run else []))
        assert json.loads(done.out) == [{"name": topic, "before": 2, "after": 4}]
    # The brokers refuse the number of partitions that there is already.
    assert run(*grow).code == 1
    done = run("topics", "set-partitions", f"{topic}.*", "5", "--regex", "--json")
    assert json.loads(done.out) == [{"name": topic, "before": 4, "after": 5}]
    assert run("topics", "set-partitions", name, "5").code == 3
    assert run("topics", "set-partitions", name, "5", "--if-exists").code == 0


def test_topics_trim_deletes_the_records_before_an_offset(
    cluster_servers: Any, run: Run, topic: str
) -> None:
    write(cluster_servers, topic, 6)
    trim = ("topics", "trim", f"{topic}:0", "--json")
    assert run(*trim, "--before", "2").code == 2
    row = {"topic": topic, "partition": 0, "before": 0, "after": 2}
    assert json.loads(run(*trim, "--before", "2", "--dry-run").out) == [row]
    assert json.loads(run(*trim, "--before", "2", "--yes").out) == [row]
    # The last record remains, then none.
    assert json.loads(run(*trim, "--before", "-1", "--yes").out)[0]["after"] == 5
    done = run("topics", "trim", topic, "--before", "end", "-y")
    assert done.out.splitlines()[1:] == [f"{topic}\t0\t5\t6", f"{topic}\t1\t0\t0"]
    # What is deleted already stays so, and nothing is asked.
    assert json.loads(run(*trim, "--before", "1").out)[0]["after"] == 6
    done = run(*trim, "--before", "9", "--yes")
    assert done.code == 1
    assert "Offset 9 is after 6, the end of the partition" in done.err


def test_topics_trim_takes_a_time_and_the_file_of_kafkas_tool(
    cluster_servers: Any, run: Run, topic: str, tmp_path: Path
) -> None:
    begin = round(time.time() * 1000) - 3_600_000
    write(cluster_servers, topic, 4, begin)
    done = run("topics", "trim", f"{topic}:0", "--before", f"@{begin + 1500}", "--yes", "--json")
    assert json.loads(done.out)[0]["after"] == 2
    path = tmp_path / "offsets.json"
    offsets = [{"topic": topic, "partition": 0, "offset": 3}]
    path.write_text(json.dumps({"partitions": offsets, "version": 1}))
    trim = ("topics", "trim", "--json", "--yes", "--from-file")
    assert json.loads(run(*trim, str(path)).out)[0]["after"] == 3
    # Kafka's tool has -1 for the end.
    typed = json.dumps({"partitions": [{**offsets[0], "offset": -1}]})
    assert json.loads(run(*trim, "-", typed=typed).out)[0]["after"] == 4
    for wrong in ("[]", "{", '{"partitions": [{"topic": "a"}]}'):
        assert run(*trim, "-", typed=wrong).code == 2
    assert run(*trim, str(tmp_path / "absent")).code == 2


def test_topics_trim_needs_topics_and_a_place_in_them(run: Run, topic: str, name: str) -> None:
    assert run("topics", "trim", topic).code == 2
    assert run("topics", "trim", "--before", "end").code == 2
    assert run("topics", "trim", topic, "--before", "committed").code == 2
    done = run("topics", "trim", topic, name, f"{topic}:7", "--before", "end", "--yes")
    assert done.code == 3
    assert {line.split(": ")[1] for line in done.err.splitlines()} == {name, f"{topic}-7"}


def test_topics_copy_config_sets_what_the_first_topic_has(
    cluster_servers: Any, run: Run, topic: str
) -> None:
    other = cluster_servers.kafka.create_topic(None, 1, 1, {"segment.ms": 60_000})
    copy = ("topics", "copy-config", topic, other, "--json")
    row = {"name": "retention.ms", "before": None, "after": "86400000"}
    for dry_run in (("--dry-run",), ()):
        assert json.loads(run(*copy, *dry_run).out) == [row]

    def configs() -> Any:
        return json.loads(run("topics", "describe", other, "--json").out)[0]["configs"]

    # A broker follows the change a moment after it has acknowledged it.
    while len(configs()) < 2:
        pass
    assert configs() == {"retention.ms": "86400000", "segment.ms": "60000"}
    assert json.loads(run(*copy, "--exact").out) == [
        {"name": "segment.ms", "before": "60000", "after": None}
    ]
    assert run("topics", "copy-config", topic, f"{other}-absent").code == 3
