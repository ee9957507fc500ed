"""kcat beside `produce`, `consume`, `topics`, `brokers`, and `offsets`."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import KafkaCluster
from tool_sides import Sides

from aiokclient import Producer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
BEGIN = 1_700_000_000_000
ALL = ("-o", "start", "--until", "end")


@pytest.fixture
def new_topic(tool_kafka: KafkaCluster) -> Callable[[], str]:
    return lambda: tool_kafka.create_topic(None, 1, 1)


@pytest.fixture
def filled(tool_kafka: KafkaCluster, new_topic: Callable[[], str]) -> str:
    """A topic with six records, a minute apart: keys, values, headers, and a null."""
    topic = new_topic()

    async def write() -> None:
        async with Producer(bootstrap_servers=tool_kafka.bootstrap) as producer:
            for n in range(6):
                value = None if n == 4 else b"value %d" % n
                headers = [("a", b"1"), ("b", b"2")] if n == 1 else []
                key = None if n == 5 else b"k%d" % n
                stamp = BEGIN + n * 60_000
                await producer.send(topic, value, key, timestamp=stamp, headers=headers)

    asyncio.run(write())
    return topic


def rows(sides: Sides, topic: str) -> list[Any]:
    ended = sides.run_ours("consume", topic, *ALL, "--jsonl")
    assert (ended.code, ended.err) == (0, "")
    return [json.loads(line) for line in ended.out.splitlines()]


def contents(sides: Sides, topic: str) -> list[tuple[Any, ...]]:
    return [(row["key"], row["value"], row["headers"]) for row in rows(sides, topic)]


READINGS = [
    ("-o beginning -e", "-o start --until end"),
    ("-o 2 -e", "-o 2 --until end"),
    ("-o -2 -e", "-o -2 --until end"),
    ("-o end -e", "-o end --until end"),
    (f"-o s@{BEGIN + 60_000} -e", f"-o @{BEGIN + 60_000} --until end"),
    (
        f"-o s@{BEGIN + 60_000} -o e@{BEGIN + 180_000}",
        f"-o @{BEGIN + 60_000} --until @{BEGIN + 180_000}",
    ),
    ("-o beginning -c 3", "-o start -n 3"),
    ("-p 0 -o beginning -c 3", "-p 0 -o start -n 3"),
    ("-o beginning -e -K :", "-o start --until end -K :"),
    ("-o beginning -e -D ;", "-o start --until end -D ;"),
    ("-o beginning -e -Z", "-o start --until end --null NULL"),
    ("-o beginning -e -u", "-o start --until end -u"),
    ("-o beginning -e -f %s|%S|%k|%K|%T|%h|%t|%p|%o\\n", ""),
    ("-o beginning -e -f \\x41\\t%s\\r\\n", ""),
    ("-o beginning -c 4 -f %R%s", "-o start -n 4 -f %R%s"),
    ("-o beginning -e -X fetch.wait.max.ms=50", "-o start --until end -X fetch.max.wait.ms=50"),
    ("-o beginning -e -m 20", "-o start --until end --timeout 20"),
]
"""Options of kcat and of ours, which are the same where nothing else stands."""


def test_records_are_consumed_as_by_kcat(sides: Sides, filled: str) -> None:
    for theirs, ours in READINGS:
        words = theirs.replace("-e", "--until end", 1).replace("beginning", "start").split()
        expected = sides.kcat("-C", "-q", "-t", filled, *theirs.split())
        ended = sides.run_ours("consume", filled, *(ours.split() or words))
        assert (ended.code, ended.out.encode()) == (0, expected), theirs
        assert (expected == b"") is ("-o end" in theirs), theirs


def test_records_are_shown_as_json_alike(sides: Sides, filled: str) -> None:
    printed = sides.kcat("-C", "-q", "-J", "-t", filled, "-o", "beginning", "-e")
    theirs = [json.loads(line) for line in printed.splitlines()]
    assert [
        (
            *(row[name] for name in ("topic", "partition", "offset", "ts", "key", "payload")),
            row.get("headers", []),
        )
        for row in theirs
    ] == [
        (
            *(row[name] for name in ("topic", "partition", "offset", "timestamp", "key", "value")),
            [each for header in row["headers"] for each in header],
        )
        for row in rows(sides, filled)
    ]


def test_records_of_groups_are_consumed_alike(sides: Sides, filled: str) -> None:
    groups = [f"{filled}-theirs", f"{filled}-ours"]
    reset = "auto.offset.reset=earliest"
    printed = sides.kcat("-q", "-X", reset, "-c", "4", "-G", groups[0], filled)
    ended = sides.run_ours("consume", filled, "-X", reset, "-n", "4", "-g", groups[1], "--commit")
    assert (ended.code, ended.out.encode()) == (0, printed)
    described = sides.ours("groups", "describe", *groups)
    assert [row["committed"] for row in described] == [4, 4]
    # A pattern of topics; the group continues where it was.
    printed = sides.kcat("-q", "-X", reset, "-c", "1", "-G", groups[0], f"^{filled}")
    words = ("--regex", "-n", "1", "-g", groups[1], "--commit")
    ended = sides.run_ours("consume", f"{filled}.*", *words)
    assert (ended.code, ended.out.encode()) == (0, printed)


def test_committed_offsets_are_where_both_begin(sides: Sides, filled: str) -> None:
    group = f"{filled}-stored"
    reset = ("groups", "reset", group, filled, "--to", "3", "--yes")
    sides.ours(*reset)
    words = ("-o", "stored", "-e", "-X", f"group.id={group}")
    printed = sides.kcat("-C", "-q", "-t", filled, *words)
    sides.ours(*reset)  # kcat commits what it has read.
    ended = sides.run_ours("consume", filled, "-g", group, "-o", "committed", "--until", "end")
    assert (ended.code, ended.out.encode()) == (0, printed)
    assert printed.splitlines() == [b"value 3", b"", b"value 5"]


SENDINGS = [
    ("", "", b"one\ntwo\n"),
    ("-p 0", "-p 0", b"one\ntwo\n"),
    ("-K :", "-K :", b"a:1\nb:2\n"),
    ("-D ;", "-D ;", b"one;two"),
    ("-k fixed", "-k fixed", b"one\ntwo\n"),
    ("-H a=1 -H b=2", "-H a=1 -H b=2", b"one\ntwo\n"),
    ("-K : -Z", "-K : --null ", b"a:\nb:2\n"),
    ("-z gzip", "-z gzip", b"one\ntwo\n"),
    ("-c 1", "-n 1", b"one\ntwo\n"),
    ("-X acks=1", "-X acks=1", b"one\ntwo\n"),
    ("-E -q", "", b"one\ntwo\n"),
]


def test_records_are_produced_as_by_kcat(sides: Sides, new_topic: Callable[[], str]) -> None:
    for theirs, ours, typed in SENDINGS:
        topics = new_topic(), new_topic()
        sides.kcat("-P", "-t", topics[0], *theirs.split(), stdin=typed)
        words = ours.split(" ") if ours else []
        ended = sides.run_ours("produce", topics[1], *words, typed=typed.decode())
        assert (ended.code, ended.err) == (0, ""), ours
        assert contents(sides, topics[0]) == contents(sides, topics[1]) != [], theirs


def test_files_are_sent_alike(sides: Sides, new_topic: Callable[[], str], tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("first", "second")]
    for file in files:
        file.write_text(f"{file.name} line\nand another")
    names = list(map(str, files))
    for theirs, ours in (((names), ("--whole-files", *names)), (("-l", names[0]), (names[0],))):
        topics = new_topic(), new_topic()
        sides.kcat("-P", "-t", topics[0], *theirs)
        assert sides.run_ours("produce", topics[1], *ours).code == 0
        assert contents(sides, topics[0]) == contents(sides, topics[1])
        assert len(contents(sides, topics[1])) == 2


def test_what_was_sent_is_written_alike(sides: Sides, new_topic: Callable[[], str]) -> None:
    topics = new_topic(), new_topic()
    printed = sides.kcat("-P", "-T", "-t", topics[0], stdin=b"one\ntwo\n")
    ended = sides.run_ours("produce", topics[1], "--tee", typed="one\ntwo\n")
    # kcat writes no delimiters here.
    assert ended.out.split() == ["one", "two"]
    assert printed == b"onetwo"


def test_records_are_sent_in_one_transaction_alike(
    sides: Sides, new_topic: Callable[[], str]
) -> None:
    topics = new_topic(), new_topic()
    ids = [f"{topic}-kcat" for topic in topics]
    option = f"transactional.id={ids[0]}"
    sides.kcat("-P", "-t", topics[0], "-X", option, stdin=b"one\ntwo\n")
    words = ("--transactional-id", ids[1])
    assert sides.run_ours("produce", topics[1], *words, typed="one\ntwo\n").code == 0
    assert contents(sides, topics[0]) == contents(sides, topics[1])
    states = [row["state"] for row in sides.ours("transactions", "describe", *ids)]
    assert [state in ("CompleteCommit", "PrepareCommit") for state in states] == [True, True]


def test_metadata_is_listed_alike(sides: Sides, tool_kafka: KafkaCluster) -> None:
    topic = tool_kafka.create_topic(None, 3, 2)
    found = json.loads(sides.kcat("-L", "-J", "-t", topic))
    (theirs,) = found["topics"]
    (row,) = sides.ours("topics", "describe", topic)
    assert [
        (
            each["partition"],
            each["leader"],
            [replica["id"] for replica in each["replicas"]],
            sorted(replica["id"] for replica in each["isrs"]),
        )
        for each in theirs["partitions"]
    ] == [
        (each["index"], each["leader"], each["replicas"], sorted(each["isr"]))
        for each in row["partitions"]
    ]
    brokers = sides.ours("brokers", "list")
    assert sorted((each["id"], each["name"]) for each in found["brokers"]) == [
        (each["node_id"], f"{each['host']}:{each['port']}") for each in brokers
    ]


def test_offsets_of_times_are_queried_alike(sides: Sides, filled: str) -> None:
    for time, position in (
        (BEGIN + 60_001, f"@{BEGIN + 60_001}"),
        (BEGIN, f"@{BEGIN}"),
        (-2, "start"),
        (-1, "end"),
    ):
        printed = sides.kcat("-Q", "-t", f"{filled}:0:{time}").decode()
        (row,) = sides.ours("offsets", "list", f"{filled}:0", "--at", position)
        (offset,) = re.findall(r"offset (\d+)", printed)
        assert row["offset"] == int(offset)


def test_files_of_options_are_read_alike(
    sides: Sides, tool_kafka: KafkaCluster, filled: str, tmp_path: Path
) -> None:
    """The file names the servers, which are given in no other way."""
    file = tmp_path / "kcat.conf"
    file.write_text(f"bootstrap.servers={tool_kafka.bootstrap}\nclient.id=from-file\n")
    words = ("-o", "beginning", "-e", "-q")
    printed = sides.kcat("-F", str(file), "-C", "-t", filled, *words)
    ended = sides.run_ours("consume", filled, "--config", str(file), *ALL)
    assert (ended.code, ended.out.encode()) == (0, printed)


def test_data_that_is_no_text_is_written_alike(sides: Sides, new_topic: Callable[[], str]) -> None:
    # The sign for little endian changes nothing in kcat 1.7.1.
    topic = new_topic()
    row = {"value": {"base64": base64.b64encode(bytes(range(1, 9))).decode()}}
    sides.run_ours("produce", topic, "--jsonl", typed=json.dumps(row))
    for pack in (">q", ">hhi", ">bBhHH", "c>i"):
        words = ("-s", f"value={pack}", "-f", "%s\\n")
        printed = sides.kcat("-C", "-q", "-t", topic, "-o", "beginning", "-c", "1", *words)
        ended = sides.run_ours("consume", topic, "-o", "start", "-n", "1", *words)
        assert (ended.code, ended.out.encode()) == (0, printed), pack
