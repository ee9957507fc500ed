"""Resets and copies of offsets, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prepared import commit_offsets, write_records

from aiokclient import Consumer, TopicPartition
from aiokclient.cli import main

Run = Callable[..., Any]
BEGIN = round(time.time() * 1000) - 7_200_000


@pytest.fixture
def topic(cluster_servers: Any) -> str:
    """A topic with six records, twenty minutes apart, from two hours ago on."""
    name = cluster_servers.kafka.create_topic(None, 2)
    times = [BEGIN + n * 1_200_000 for n in range(6)]
    write_records(cluster_servers.bootstrap, name, {0: times})
    return str(name)


@pytest.fixture
def group(cluster_servers: Any, topic: str) -> str:
    """A group without members, which has committed offset 2 of partition 0."""
    name = f"typed-{uuid.uuid4().hex[:12]}"
    commit_offsets(cluster_servers.bootstrap, name, {TopicPartition(topic, 0): 2})
    return name


def seconds_to_the_fourth_record() -> int:
    """Return the seconds from ten minutes before the fourth record until now."""
    return round(time.time() - BEGIN / 1000) - 50 * 60


def committed(run: Run, group: str) -> dict[int, int]:
    """Return the committed offsets of a group by partition."""
    rows = json.loads(run("groups", "describe", group, "--json").out)
    return {row["partition"]: row["committed"] for row in rows}


@pytest.mark.parametrize(
    ("words", "offset"),
    [
        (("--to", "start"), 0),
        (("--to", "end"), 6),
        (("--to", "current"), 2),
        (("--to", "4"), 4),
        (("--to", "+3"), 5),
        (("--to", "-1"), 1),
        (("--shift", "-1"), 1),
        (("--shift-by", "2"), 4),
        (("--to", "-{}s"), 3),
        (("--to", "-PT{}S"), 3),
        (("--to", f"@{BEGIN + 1}"), 1),
        (("--to", "2020-01-01"), 0),
        (("--to", "max-timestamp"), 5),
        (("--to", "99"), 6),
    ],
)
def test_groups_reset_moves_the_group_as_the_dry_run_says(
    run: Run, group: str, topic: str, words: tuple[str, ...], offset: int
) -> None:
    words = tuple(each.format(seconds_to_the_fourth_record()) for each in words)
    reset = ("groups", "reset", group, *words)
    planned = run(*reset, "--dry-run", "--json")
    assert planned.code == 0
    (row,) = json.loads(planned.out)
    assert (row["group_id"], row["topic"], row["partition"]) == (group, topic, 0)
    assert (row["before"], row["after"], row["created_group"]) == (2, offset, False)
    assert row["requested"] == (99 if words[1] == "99" else None)
    assert committed(run, group) == {0: 2}
    refused = run(*reset)
    assert (refused.code, refused.out) == (2, "")
    assert f"Set 1 offset of the group {group}" in refused.err
    assert run(*reset, "--yes").out.splitlines() == [
        "group_id\ttopic\tpartition\tbefore\tafter",
        f"{group}\t{topic}\t0\t2\t{offset}",
    ]
    assert committed(run, group) == {0: offset}


def test_groups_reset_takes_topics_and_partitions_and_creates_a_group(
    run: Run, group: str, topic: str
) -> None:
    done = run("groups", "reset", group, f"{topic}:0,1", "--to", "end", "-y", "--json")
    rows = json.loads(done.out)
    assert [(row["partition"], row["before"], row["after"]) for row in rows] == [
        (0, 2, 6),
        (1, None, 0),
    ]
    created = f"{group}-new"
    done = run("groups", "reset", created, topic, "--to", "start", "--yes")
    assert done.code == 0
    assert f"{created} did not exist, and was created" in done.err
    assert committed(run, created) == {0: 0, 1: 0}
    assert run("groups", "reset", f"{group}-absent", "--to", "start", "--yes").code == 3
    done = run("groups", "reset", group, f"{topic}:0", f"{topic}-absent", "--to", "1", "--yes")
    assert done.code == 3
    assert len(done.out.splitlines()) == 2


def test_groups_reset_reads_the_plan_that_it_has_printed(
    run: Run, group: str, topic: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(run("groups", "reset", group, "--to", "5", "--dry-run", "--csv").out)
    reset = ("groups", "reset", group, "--yes", "--from-file")
    assert run(*reset, str(plan)).code == 0
    assert committed(run, group) == {0: 5}
    # The lines of Kafka's tool have no heading.
    for lines in (f'"{topic}",0,3\n', f"{group},{topic},0,3\nother,{topic},0,1\n"):
        assert run(*reset, "-", typed=lines).code == 0
        assert committed(run, group) == {0: 3}
    assert run("groups", "reset", "--all", "--from-file", str(plan), "--yes").code == 0
    assert committed(run, group) == {0: 5}
    for wrong in ("", f"{topic},x,3\n", f"other,{topic},0,3\n", f"{topic},0\n"):
        assert run(*reset, "-", typed=wrong).code == 2, wrong


def test_groups_reset_refuses_a_group_with_members_and_names_them(
    cluster_servers: Any, run: Run, group: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("groups", "list")  # It sets the environment of the commands.

    async def ask() -> int:
        async with Consumer(
            topic,
            group_id=group,
            client_id="busy-reader",
            enable_auto_commit=False,
            bootstrap_servers=cluster_servers.bootstrap,
        ) as consumer:
            while len(consumer.assignment()) < 2:
                await consumer.poll(timeout=0.1)
            return await asyncio.to_thread(main, ["groups", "reset", group, "--to", "0", "-y"])

    assert asyncio.run(ask()) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "busy-reader on " in line
    assert "rewind_group" in line
    assert committed(run, group) == {0: 2}


@pytest.mark.parametrize(
    "words",
    [
        ("g",),
        ("--to", "start"),
        ("g", "--to", "start", "--shift", "1"),
        ("g", "--to", "sooner"),
        ("g", "--to", "start", "--from-file", "-"),
        ("g", "t", "--all-topics", "--to", "end"),
        ("g", "--to"),
    ],
)
def test_groups_reset_refuses_what_does_not_belong_together(
    run: Run, words: tuple[str, ...]
) -> None:
    done = run("groups", "reset", *words, "--yes")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)


def test_groups_reset_deletes_the_internal_topics_of_an_application(
    cluster_servers: Any, run: Run, group: str, topic: str
) -> None:
    create = cluster_servers.kafka.create_topic
    internal = [f"{group}-store-{ending}" for ending in ("changelog", "repartition")]
    others = [f"{group}-results", f"other-{group}-store-changelog"]
    for name in [*internal, *others]:
        create(name, 1)
    reset = ("groups", "reset", group, "--to", "start")
    done = run(*reset, "--internal-topics", "--dry-run")
    assert done.code == 0
    assert all(name in done.err for name in internal)
    assert run("topics", "list", *internal).code == 0
    assert run(*reset, "--internal-topic", topic, "--yes").code == 2
    assert run(*reset, "--internal-topic", internal[0], "--yes").code == 0
    assert run(*reset, "--internal-topics", "--yes").code == 0
    done = run("topics", "list", "-q", *internal, *others)
    assert sorted(done.out.split()) == sorted(others)
    assert committed(run, group) == {0: 0}


def test_groups_copy_offsets_asks_before_it_overwrites(run: Run, group: str, topic: str) -> None:
    copy = ("groups", "copy-offsets", group, f"{group}-copy")
    done = run(*copy, "--dry-run")
    assert done.code == 0
    assert f"{group}-copy does not exist, and would be created" in done.err
    assert run("groups", "describe", f"{group}-copy").code == 3
    done = run(*copy, "--json")
    (row,) = json.loads(done.out)
    assert (done.code, row["before"], row["after"], row["created_group"]) == (0, None, 2, True)
    assert committed(run, f"{group}-copy") == {0: 2}
    assert run(*copy).code == 2
    assert run(*copy, topic, "--yes").out.splitlines()[1].endswith("\t0\t2\t2")
    assert run("groups", "copy-offsets", f"{group}-absent", group, "-y").code == 3
