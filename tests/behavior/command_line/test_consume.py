"""Records are read from where, up to where, and in the form that was asked for."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokclient.testing import EmbeddedCluster

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no line about the connection, however slow the machine is."""
    monkeypatch.setattr("aiokclient.cli.connection.NOTICE_S", 600.0)


ALL = ("-o", "start", "--until", "end")


def new_topic(run: Run, partitions: int = 1, *more: str) -> str:
    name = f"records-{uuid.uuid4().hex[:12]}"
    ended = run("topics", "create", name, "-p", str(partitions), "-r", "1", *more)
    assert ended.code == 0, ended.err
    return name


def produce(run: Run, topic: str, lines: list[str], *more: str) -> None:
    ended = run("produce", topic, *more, typed="".join(f"{line}\n" for line in lines))
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def consume(run: Run, *words: str) -> list[str]:
    ended = run("consume", *words)
    assert (ended.code, ended.err) == (0, "")
    lines: list[str] = ended.out.splitlines()
    return lines


def jsonl(run: Run, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in consume(run, *words, "--jsonl")]


def test_records_are_read_from_the_start_to_the_end_of_now(run: Run) -> None:
    topic = new_topic(run, 2)
    produce(run, topic, ["a", "b"], "-p", "0")
    produce(run, topic, ["c"], "-p", "1")
    assert sorted(consume(run, topic, *ALL)) == ["a", "b", "c"]
    assert consume(run, topic, *ALL, "-p", "1") == ["c"]
    assert consume(run, f"{topic}:1", *ALL) == ["c"]
    assert consume(run, new_topic(run), *ALL) == []


def test_positions_are_those_that_were_typed(run: Run) -> None:
    topic = new_topic(run)
    lines = [json.dumps({"value": str(n), "timestamp": 1000 * n}) for n in range(1, 6)]
    produce(run, topic, lines, "--jsonl")
    until = ("--until", "end")
    assert consume(run, topic, "-o", "3", *until) == ["4", "5"]
    assert consume(run, topic, "-o", "-2", *until) == ["4", "5"]
    assert consume(run, topic, "-o", "-99", *until) == ["1", "2", "3", "4", "5"]
    assert consume(run, topic, "-o", "+2", *until) == ["3", "4", "5"]
    assert consume(run, topic, "-o", "+99", *until) == []
    assert consume(run, topic, "-o", "+1", "--until", "+3") == ["2", "3"]
    assert consume(run, topic, "-o", "99", *until) == []
    assert consume(run, topic, "-o", "@3000", *until) == ["3", "4", "5"]
    assert consume(run, topic, "-o", "@3001", *until) == ["4", "5"]
    assert consume(run, topic, "-o", "start", "--until", "2") == ["1", "2"]
    assert consume(run, topic, "-o", "start", "--until", "@3000") == ["1", "2"]
    assert consume(run, topic, "-o", "1970-01-01T00:00:02", "--until", "-1") == ["2", "3", "4"]
    assert consume(run, topic, "-o", "-10m", *until) == []
    assert consume(run, topic, *until) == []


def test_limits_end_the_reading(run: Run) -> None:
    topic = new_topic(run, 2)
    produce(run, topic, ["a", "b", "c"], "-p", "0")
    produce(run, topic, ["d", "e", "f"], "-p", "1")
    assert len(consume(run, topic, "-o", "start", "-n", "4")) == 4
    assert sorted(consume(run, topic, "-o", "start", "--per-partition", "1")) == ["a", "d"]
    assert len(consume(run, topic, "-o", "start", "--idle", "0.2s")) == 6
    assert consume(run, topic, "-p", "0", "-o", "start", "-n", "2") == ["a", "b"]


def test_ends_in_the_future_are_waited_for(run: Run) -> None:
    topic = new_topic(run)
    produce(run, topic, ["a"])
    assert consume(run, topic, "-o", "start", "--until", "+300ms") == ["a"]
    assert consume(run, topic, "-o", "start", "--until", "5", "--idle", "0.2") == ["a"]


def test_a_group_commits_only_if_that_was_asked_for(run: Run) -> None:
    topic = new_topic(run)
    produce(run, topic, ["a", "b", "c"])
    group = f"group-{topic}"
    read = (topic, "-g", group, "--until", "end")
    assert consume(run, *read, "-o", "start", "-n", "2") == ["a", "b"]
    assert consume(run, *read, "-o", "start", "-n", "2", "--commit") == ["a", "b"]
    assert consume(run, *read) == ["c"]
    assert consume(run, *read, "--commit", "--grep", "v:nothing") == []
    assert consume(run, *read) == []
    assert consume(run, *read, "-o", "start") == ["a", "b", "c"]


def test_a_limit_with_a_condition_commits_what_was_written(run: Run) -> None:
    topic = new_topic(run)
    produce(run, topic, ["a1", "b", "a2", "a3"])
    read = (topic, "-g", f"group-{topic}", "--until", "end")
    grep = ("-o", "start", "--grep", "v:^a", "-n", "2", "--commit")
    assert consume(run, *read, *grep) == ["a1", "a2"]
    assert consume(run, *read) == ["a3"]


def test_a_transaction_without_records_at_the_end_does_not_keep_it_open(run: Run) -> None:
    topic = new_topic(run)
    produce(run, topic, ["a"], "--transactional-id", f"id-{topic}")
    # The end of the transaction is written a moment after its commit has returned.
    read = (topic, "-o", "start", "--isolation-level", "read_committed")
    assert consume(run, *read, "-n", "1") == ["a"]
    for level in ("read_committed", "read_uncommitted"):
        assert consume(run, topic, *ALL, "--isolation-level", level) == ["a"]


def test_json_has_all_fields(run: Run) -> None:
    topic = new_topic(run)
    line = {"key": "k", "value": {"base64": "/w=="}, "timestamp": 5, "headers": [["h", None]]}
    produce(run, topic, [json.dumps(line), '{"value": null, "timestamp": 6}'], "--jsonl")
    first, second = jsonl(run, topic, *ALL)
    assert first == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": 5,
        "timestamp_iso": "1970-01-01T00:00:00.005Z",
        "timestamp_type": "create_time",
        "key": "k",
        "value": {"base64": "/w=="},
        "headers": [["h", None]],
        "leader_epoch": 0,
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, [])
    ended = run("consume", topic, *ALL, "--json")
    assert json.loads(ended.out) == [first, second]
    assert json.loads(run("consume", topic, *ALL, "--json", "-n", "1", "-o", "99").out) == []
    ended = run("consume", topic, *ALL, "--csv", "--columns", "offset,key,value")
    rows = list(csv.reader(io.StringIO(ended.out)))
    assert rows == [["offset", "key", "value"], ["0", "k", '{"base64": "/w=="}'], ["1", "", ""]]
    ended = run("consume", topic, *ALL, "--yaml", "--columns", "offset,value", "-o", "1")
    assert ended.out == "- offset: 1\n  value: null\n"


def test_formats_are_those_of_kcat(run: Run) -> None:
    topic = new_topic(run)
    line = {"key": "k", "value": "tea", "timestamp": 5, "headers": [["a", "1"], ["b", None]]}
    produce(run, topic, [json.dumps(line), '{"value": null, "timestamp": 6}'], "--jsonl")

    def shown(text: str, *more: str) -> list[str]:
        return consume(run, topic, *ALL, "-f", text + r"\n", *more)

    assert shown("%t %p %o %k %K %s %S %T") == [
        f"{topic} 0 0 k 1 tea 3 5",
        f"{topic} 0 1  -1  -1 6",
    ]
    assert shown("%h|%H") == ["a=1,b=NULL|2", "|0"]
    assert shown("%h{%k:%v;}%i%%", "--null", "none") == ["a:1;b:none;1%", "2%"]
    assert shown("%s{hex} %v{base64}", "--null", "-") == ["746561 dGVh", "- -"]
    assert shown("%d %d{%Y} %e") == [
        "1970-01-01T00:00:00.005Z 1970 0",
        "1970-01-01T00:00:00.006Z 1970 0",
    ]
    assert shown(r"\x41\065\t%o") == ["A5\t0", "A5\t1"]
    assert consume(run, topic, *ALL, "-K", ":", "--null", "NULL") == ["k:tea", "NULL:NULL"]
    assert consume(run, topic, *ALL, "-K", ":", "-O", "-D", ";") == ["0:k:tea;1::;"]


def test_values_have_the_form_that_was_asked_for(run: Run) -> None:
    topic = new_topic(run)
    lines = [{"key": {"base64": "AAAAAQ=="}, "value": "[1, 2]"}, {"key": "abcd", "value": "{}"}]
    produce(run, topic, [json.dumps(line) for line in lines], "--jsonl")
    first, second = jsonl(run, topic, *ALL, "--key-format", "int", "--value-format", "json")
    assert (first["key"], first["value"], second["value"]) == (1, [1, 2], {})
    assert consume(run, topic, *ALL, "-s", "key=h H", "-f", r"%k\n") == ["0 1", "24930 25444"]
    assert consume(run, topic, *ALL, "-s", "value=cs$", "-n", "1") == ["[1, 2]"]
    ended = run("consume", topic, *ALL, "-s", "value=i$")
    assert (ended.code, ended.out) == (1, "")
    assert "offset 0" in ended.err
    assert ended.err.count("\n") == 1
    ended = run("consume", topic, *ALL, "--value-format", "int", "--skip-errors")
    assert (ended.code, ended.out, ended.err.count("\n")) == (0, "31613\n", 1)


def test_only_matching_records_are_written(run: Run) -> None:
    topic = new_topic(run)
    lines = [
        {"key": k, "value": v, "headers": [["h", v]]} for k, v in zip("aab", "xyx", strict=True)
    ]
    produce(run, topic, [json.dumps(line) for line in lines], "--jsonl")

    def matching(*conditions: str) -> list[str]:
        words = [word for each in conditions for word in ("--grep", each)]
        return consume(run, topic, *ALL, *words, "-f", r"%k%s\n")

    assert matching("k:a") == ["ax", "ay"]
    assert matching("k:a", "v:x") == ["ax"]
    assert matching("!v:x") == ["ay"]
    assert matching("h:h=^y$") == ["ay"]
    assert matching("hk:h", "hv:x", f"t:{topic}") == ["ax", "bx"]


def test_patterns_choose_topics(run: Run) -> None:
    topic = new_topic(run)
    produce(run, topic, ["a"])
    assert consume(run, f"{topic[:-1]}.", "--regex", *ALL) == ["a"]
    ended = run("consume", f"no-{topic}.*", "--regex", *ALL)
    assert ended.code == 3


def test_committed_offsets_are_decoded(run: Run) -> None:
    topic = new_topic(run)
    produce(run, topic, ["a"])
    group = f"group-{topic}"
    consume(run, topic, "-g", group, "-o", "start", "--until", "end", "--commit")
    found = [
        record
        for record in jsonl(run, "__consumer_offsets", *ALL)
        if isinstance(record["key"], dict) and record["key"].get("group") == group
    ]
    commits = [each for each in found if each["key"]["type"] == "offset_commit"]
    assert commits[-1]["key"] == {
        "type": "offset_commit",
        "group": group,
        "topic": topic,
        "partition": 0,
    }
    assert commits[-1]["value"]["offset"] == 1
    members = [each for each in found if each["key"]["type"] == "group_metadata" and each["value"]]
    assert any(each["value"]["protocol_type"] == "consumer" for each in members)
    line = consume(run, "__consumer_offsets", *ALL, "--grep", f"k:{group}")[-1]
    assert json.loads(line)["key"]["group"] == group
    line = consume(run, "__consumer_offsets", *ALL, "--grep", f"k:{group}", "-f", r"%k\n")[0]
    assert json.loads(line)["group"] == group


@pytest.mark.parametrize(
    "words",
    [
        ("consume",),
        ("consume", "t", "--commit"),
        ("consume", "t", "-o", "committed"),
        ("consume", "t", "-o", "yesterday"),
        ("consume", "t", "-n", "0"),
        ("consume", "t", "-f", "%q"),
        ("consume", "t", "-f", "%s{wrong}"),
        ("consume", "t", "-f", "%D"),
        ("consume", "t", "-f", "%s", "-K", ":"),
        ("consume", "t", "--json", "--csv"),
        ("consume", "t", "--jsonl", "-f", "%s"),
        ("consume", "t", "--columns", "offset"),
        ("consume", "t", "--jsonl", "--columns", "ofset"),
        ("consume", "t", "--grep", "x"),
        ("consume", "t", "--grep", "v:("),
        ("consume", "(", "--regex"),
        ("consume", "t:x"),
        ("consume", "t", "-s", "key=z"),
        ("consume", "t", "-s", "key=i", "--key-format", "int"),
        ("consume", "t", "--value-format", "avro"),
        ("consume", "t", "--value-format", "protobuf:Order"),
        ("consume", "t", "--share-group", "g", "--until", "end"),
    ],
)
def test_wrong_use_of_consume_is_refused_in_one_line(
    run_on: Callable[[str], Run], words: tuple[str]
) -> None:
    ended = run_on("127.0.0.1:1")(*words)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_what_does_not_exist_ends_with_three(run: Run) -> None:
    topic = new_topic(run)
    for words in (("nothing-of-this-name",), (topic, "-p", "7")):
        ended = run("consume", *words, *ALL)
        assert (ended.code, ended.out, ended.err.count("\n")) == (3, "", 1)


# -- processes, whose output is a pipe


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"many": 1, "few": 1}) as cluster:
        cluster.produce("many", [b"%06d" % number for number in range(50_000)])
        cluster.produce("few", [b"a", b"b"])
        yield cluster


def start(cluster: EmbeddedCluster, *words: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "aiokclient", *words, "-b", cluster.bootstrap_servers]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def find_errors(err: bytes) -> list[bytes]:
    """Return the lines on standard error, without that of a connection that takes a second."""
    return [line for line in err.splitlines() if b"Connecting to" not in line]


def test_many_records_are_complete_and_in_order_in_a_pipe(embedded: EmbeddedCluster) -> None:
    with start(embedded, "consume", "many", *ALL) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, find_errors(err)) == (0, [])
    assert out.split() == [b"%06d" % number for number in range(50_000)]


def test_a_closed_pipe_ends_a_command_that_waits(embedded: EmbeddedCluster) -> None:
    with start(embedded, "consume", "few", "-o", "start") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a\n"
        process.stdout.close()
        assert process.wait(timeout=30) == 141
        assert find_errors(process.stderr.read()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_commits_what_was_written(
    embedded: EmbeddedCluster, number: signal.Signals, code: int
) -> None:
    group = f"interrupted-{number.name}"
    words = ("consume", "few", "-o", "start", "-g", group, "--commit")
    with start(embedded, *words) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"a\n", b"b\n"]
        process.send_signal(number)
        assert process.wait(timeout=30) == code
        assert find_errors(process.stderr.read()) == []
    (committed,) = embedded.committed(group).values()
    assert committed.offset == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_a_full_disk_ends_with_one_line(embedded: EmbeddedCluster) -> None:
    with open("/dev/full", "wb") as full:
        words = [sys.executable, "-m", "aiokclient", "consume", "many", *ALL]
        done = subprocess.run(
            [*words, "-b", embedded.bootstrap_servers], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    (line,) = find_errors(done.stderr)
    assert b"No space" in line


def test_records_are_written_as_they_come(embedded: EmbeddedCluster) -> None:
    embedded.create_topic("live", 1)
    with start(embedded, "consume", "live", "-o", "start") as process:
        assert process.stdout is not None
        for value in (b"a", b"b"):
            embedded.produce("live", [value])
            assert process.stdout.readline() == value + b"\n"
        process.kill()
        process.wait(timeout=time.monotonic())
