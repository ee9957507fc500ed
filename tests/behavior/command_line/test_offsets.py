"""The commands of offsets, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from prepared import write_records

from aiokclient import Producer
from aiokclient.cli.nouns.offsets import PartitionRanges

Run = Callable[..., Any]
BEGIN = round(time.time() * 1000) - 3_600_000


@pytest.fixture
def topic(cluster_servers: Any) -> str:
    """A topic with three partitions, the first of which has five records a second apart."""
    name = cluster_servers.kafka.create_topic(None, 3)
    write_records(cluster_servers.bootstrap, name, {0: [BEGIN + n * 1000 for n in range(5)]})
    return str(name)


def test_offsets_list_has_the_ends_of_all_partitions(run: Run, topic: str) -> None:
    done = run("offsets", "list", topic)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "topic\tpartition\toffset\ttimestamp_iso",
        f"{topic}\t0\t5\t-",
        f"{topic}\t1\t0\t-",
        f"{topic}\t2\t0\t-",
    ]
    assert f"{topic}\t0\t5\t-" in run("offsets", "list").out.splitlines()


@pytest.mark.parametrize(
    ("at", "offset"),
    [
        ("start", 0),
        ("end", 5),
        ("latest", 5),
        ("-1", 5),
        ("-2", 0),
        ("max-timestamp", 4),
        ("-3", 4),
        ("local-start", 0),
        ("tiered", None),
        ("pending-upload", None),
        pytest.param(f"@{BEGIN + 2500}", 3, id="time"),
        pytest.param(str(BEGIN + 1000), 1, id="number"),
        ("-2h", 0),
        ("+1h", None),
        ("2020-01-01", 0),
    ],
)
def test_offsets_list_takes_positions_and_times(
    run: Run, topic: str, at: str, offset: int | None
) -> None:
    done = run("offsets", "list", f"{topic}:0", "--at", at, "--json")
    assert (done.code, done.err) == (0, "")
    (row,) = json.loads(done.out)
    assert (row["topic"], row["partition"], row["offset"]) == (topic, 0, offset)
    if row["timestamp"] is not None:
        assert row["timestamp"] == BEGIN + 1000 * row["offset"]
        assert row["timestamp_iso"].endswith("Z")


def test_offsets_list_selects_partitions_as_kafkas_tool_does(run: Run, topic: str) -> None:
    def partitions(*words: str) -> list[int]:
        done = run("offsets", "list", *words, "--json")
        return [row["partition"] for row in json.loads(done.out) if row["topic"] == topic]

    assert partitions(f"{topic}:0,2") == [0, 2]
    assert partitions(f"{topic}:0-2") == [0, 1]
    assert partitions(f"{topic}:1-") == [1, 2]
    assert partitions(f"{topic}:-1") == [0]
    assert partitions(":1") == [1]
    assert partitions(f"{topic[:-1]}.:2", "--regex") == [2]
    assert partitions(f"(?:{topic}|absent)", "--regex") == [0, 1, 2]


def test_offsets_list_ends_with_3_for_a_partition_that_does_not_exist(run: Run, topic: str) -> None:
    done = run("offsets", "list", f"{topic}:0,9", f"{topic}-absent")
    assert done.code == 3
    assert done.out.splitlines()[1:] == [f"{topic}\t0\t5\t-"]
    assert len(done.err.splitlines()) == 2
    assert "The topic has 3 partitions" in done.err


@pytest.mark.parametrize("words", [("orders:x",), ("orders", "--at", "noon"), ("orders:1-x",)])
def test_offsets_list_refuses_what_is_no_partition_or_position(
    run: Run, words: tuple[str, ...]
) -> None:
    done = run("offsets", "list", *words)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)


def test_offsets_list_committed_ends_before_an_open_transaction(
    cluster_servers: Any, run: Run, topic: str
) -> None:
    async def ask() -> list[str]:
        async with Producer(
            bootstrap_servers=cluster_servers.bootstrap, transactional_id=topic
        ) as producer:
            await producer.begin_transaction()
            await producer.send(topic, b"open", partition=0)
            outputs = [
                (await asyncio.to_thread(run, "offsets", "list", f"{topic}:0", *words)).out
                for words in ((), ("--committed",))
            ]
            await producer.abort_transaction()
            return outputs

    ends = [out.splitlines()[1].split("\t")[2] for out in asyncio.run(ask())]
    assert ends == ["6", "5"]


def test_ranges_of_partitions_end_where_the_topic_does() -> None:
    assert PartitionRanges("a:1-9,0").select(3) == [1, 2, 0]
    assert PartitionRanges("a:-").select(2) == [0, 1]
    assert PartitionRanges("a:7").select(2) == [7]
    assert list(PartitionRanges("a").select(2)) == [0, 1]
