"""Records are sent as they were typed, and the exit code says whether all were acknowledged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokclient.errors import RecordTooLargeError
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no line about the connection, however slow the machine is."""
    monkeypatch.setattr("aiokclient.cli.connection.NOTICE_S", 600.0)


ALL = ("-o", "start", "--until", "end")


def new_topic(run: Run, partitions: int = 1) -> str:
    name = f"produced-{uuid.uuid4().hex[:12]}"
    ended = run("topics", "create", name, "-p", str(partitions), "-r", "1")
    assert ended.code == 0, ended.err
    return name


def read(run: Run, topic: str, *fields: str) -> list[Any]:
    ended = run("consume", topic, *ALL, "--jsonl")
    assert (ended.code, ended.err) == (0, "")
    rows = [json.loads(line) for line in ended.out.splitlines()]
    return [tuple(row[name] for name in fields) for row in rows]


def test_lines_are_values_as_they_are(run: Run) -> None:
    topic = new_topic(run)
    assert run("produce", topic, typed="a\r\n\nb").code == 0
    assert read(run, topic, "key", "value") == [(None, "a\r"), (None, ""), (None, "b")]


def test_keys_headers_and_nulls_are_those_that_were_typed(run: Run) -> None:
    topic = new_topic(run)
    words = ("-K", ":", "-k", "fixed", "-H", "a=1", "-H", "a=", "--null", "NULL")
    assert run("produce", topic, *words, typed="k:v:w\nalone\nk:NULL\nNULL:x\n").code == 0
    headers = [["a", "1"], ["a", ""]]
    assert read(run, topic, "key", "value", "headers") == [
        ("k", "v:w", headers),
        ("fixed", "alone", headers),
        ("k", None, headers),
        (None, "x", headers),
    ]


def test_a_delimiter_separates_records(run: Run) -> None:
    topic = new_topic(run)
    assert run("produce", topic, "-D", r"\0--", typed="a\nb\0--c").code == 0
    assert read(run, topic, "value") == [("a\nb",), ("c",)]


def test_files_are_lines_or_whole_records(run: Run, tmp_path: Path) -> None:
    topic = new_topic(run)
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"a\nb\n")
    second.write_bytes(b"c")
    assert run("produce", topic, str(first), "-", str(second), typed="x\n").code == 0
    assert read(run, topic, "value") == [("a",), ("b",), ("x",), ("c",)]
    whole = new_topic(run)
    assert run("produce", whole, "--whole-files", str(first), str(second)).code == 0
    assert read(run, whole, "value") == [("a\nb\n",), ("c",)]


def test_partitions_follow_the_key_unless_they_are_kept(run: Run) -> None:
    topic = new_topic(run, 3)
    assert run("produce", topic, "-p", "2", typed="a\n").code == 0
    assert read(run, topic, "partition") == [(2,)]
    line = '{"key": "k", "value": "v", "partition": 1}\n'
    kept, moved = new_topic(run, 3), new_topic(run, 3)
    assert run("produce", kept, "--jsonl", "--keep-partitions", typed=line).code == 0
    assert read(run, kept, "partition") == [(1,)]
    assert run("produce", moved, "--jsonl", typed=line * 2).code == 0
    assert len(set(read(run, moved, "partition"))) == 1


def test_objects_of_json_are_sent_as_json(run: Run) -> None:
    topic = new_topic(run)
    line = '{"value": {"b": [1, "é"]}, "headers": {"h": "x"}}\n\n'
    assert run("produce", topic, "--jsonl", typed=line).code == 0
    assert read(run, topic, "value", "headers") == [('{"b":[1,"é"]}', [["h", "x"]])]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "Line 2"),
        ("[]", "no JSON object"),
        ('{"key": "k"}', 'no "value"'),
        ('{"value": {"base64": "?"}}', "Line 2"),
        ('{"value": "v", "timestamp": "now"}', "timestamp"),
        ('{"value": "v", "headers": [["a"]]}', "headers"),
    ],
)
def test_a_wrong_line_ends_the_sending_and_says_what_was_sent(
    run: Run, line: str, reason: str
) -> None:
    topic = new_topic(run)
    ended = run("produce", topic, "--jsonl", typed=f'{{"value": "a"}}\n{line}\n{{"value": "b"}}\n')
    assert (ended.code, ended.out) == (1, "")
    assert reason in ended.err
    assert "1 of 1 record was acknowledged" in ended.err
    assert read(run, topic, "value") == [("a",)]
    ended = run("produce", topic, "--jsonl", typed=f"{line}\n")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_a_transaction_is_all_or_nothing(run: Run) -> None:
    topic = new_topic(run)
    words = ("produce", topic, "--transactional-id", f"id-{topic}", "--jsonl")
    ended = run(*words, typed='{"value": "a"}\nwrong\n')
    assert ended.code == 1
    assert "not committed" in ended.err
    assert run(*words, typed='{"value": "b"}\n{"value": "c"}\n').code == 0
    ended = run("consume", topic, "-o", "start", "-n", "2", "--isolation-level", "read_committed")
    assert ended.out == "b\nc\n"


def test_the_copy_on_standard_output_is_what_was_sent(run: Run) -> None:
    topic = new_topic(run)
    ended = run("produce", topic, "--tee", "-n", "2", typed="a\nb\nc\n")
    assert (ended.code, ended.out) == (0, "a\nb\n")
    assert read(run, topic, "value") == [("a",), ("b",)]


def test_a_dry_run_sends_nothing(run: Run) -> None:
    topic = new_topic(run)
    ended = run("produce", topic, "--dry-run", "-k", "k", typed="a\n")
    assert json.loads(ended.out) == {
        "topic": topic,
        "partition": None,
        "timestamp": None,
        "key": "k",
        "value": "a",
        "headers": [],
    }
    assert ended.code == 0
    assert "nothing was changed" in ended.err
    assert read(run, topic, "value") == []


def test_options_of_the_producer_are_used(run: Run) -> None:
    topic = new_topic(run)
    more = ("-z", "zstd", "--acks", "1", "--sync", "--rate", "1000")
    assert run("produce", topic, *more, typed="a\nb\n").code == 0
    assert read(run, topic, "value") == [("a",), ("b",)]


@pytest.mark.parametrize(
    "words",
    [
        ("produce",),
        ("produce", "t", "--keep-partitions"),
        ("produce", "t", "--jsonl", "-K", ":"),
        ("produce", "t", "--jsonl", "--keep-partitions", "-p", "1"),
        ("produce", "t", "--whole-files"),
        ("produce", "t", "-H", "noequals"),
        ("produce", "t", "-p", "-2"),
        ("produce", "t", "--rate", "0"),
        ("produce", "t", "-K", ""),
    ],
)
def test_wrong_use_of_produce_is_refused_in_one_line(
    run_on: Callable[[str], Run], words: tuple[str]
) -> None:
    ended = run_on("127.0.0.1:1")(*words)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_a_file_that_cannot_be_read_is_named(run: Run) -> None:
    ended = run("produce", new_topic(run), "/nothing/here")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "/nothing/here" in ended.err


# -- on the embedded cluster, which can be made to fail


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"t": 1, "piped": 1}) as cluster:
        yield cluster


@pytest.fixture
def run_embedded(embedded: EmbeddedCluster, run_on: Callable[[str], Run]) -> Run:
    return run_on(embedded.bootstrap_servers)


def test_records_that_are_refused_end_with_one_and_a_number(
    embedded: EmbeddedCluster, run_embedded: Run
) -> None:
    with embedded.fail(ApiKey.PRODUCE, RecordTooLargeError, times=1):
        ended = run_embedded("produce", "t", typed="a\n")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "0 of 1 record was acknowledged" in ended.err


def test_a_commit_without_an_answer_has_an_exit_code_of_its_own(
    embedded: EmbeddedCluster, run_embedded: Run
) -> None:
    words = ("--transactional-id", "unanswered", "--timeout", "1", "-X", "close.timeout.ms=500")
    with embedded.drop(ApiKey.END_TXN, when="after"):
        ended = run_embedded("produce", "t", *words, typed="a\n")
    assert (ended.code, ended.out, ended.err.count("\n")) == (4, "", 1)
    assert "It is not known whether the transaction was committed." in ended.err


def test_an_interrupt_says_how_many_were_acknowledged(embedded: EmbeddedCluster) -> None:
    command = [sys.executable, "-m", "aiokclient", "produce", "piped"]
    with subprocess.Popen(
        [*command, "-b", embedded.bootstrap_servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        os.write(process.stdin.fileno(), b"a\nb\n")
        embedded.wait_for(lambda: len(embedded.records("piped", 0)) == 2, 30)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert b"2 of 2 records were acknowledged. Interrupted." in process.stderr.read()


def test_a_topic_that_does_not_exist_ends_with_three(run_on: Callable[[str], Run]) -> None:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        ended = run_on(cluster.bootstrap_servers)("produce", "nothing", typed="a\n")
    assert (ended.code, ended.out, ended.err.count("\n")) == (3, "", 1)
