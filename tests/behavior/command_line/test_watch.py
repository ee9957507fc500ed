"""The option --watch, which shows a result again and again."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokclient.cli.grammar import parse_words
from aiokclient.cli.nouns.topics import DescribeTopics

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = (
    # A shell lets the programs that it runs in the background ignore SIGINT, and so the tests.
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from aiokclient.cli import main; main()"
)


def start(servers: Any, *words: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, *words, "-b", servers.bootstrap]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
    return subprocess.Popen(command, env=environment, **options)


def test_watch_follows_each_result_by_the_next_in_a_pipe_until_ctrl_c(
    embedded_servers: Any,
) -> None:
    topic = embedded_servers.kafka.create_topic(None, 1)
    words = ("topics", "describe", topic, "--watch", "0.05", "--jsonl")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(embedded_servers, *words, **pipes) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert [json.loads(line)["name"] for line in lines] == [topic] * 3
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_watch_replaces_each_result_by_the_next_on_a_terminal(embedded_servers: Any) -> None:
    topic = embedded_servers.kafka.create_topic(None, 1)
    ours, theirs = pty.openpty()
    words = ("topics", "describe", topic, "--watch", "0.05")
    with start(embedded_servers, *words, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while shown.count(b"Every 0.05 s") < 3:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    os.close(ours)
    screens = shown.split(b"\x1b[H")[1:3]
    assert [topic.encode() in screen for screen in screens] == [True, True]
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("words", "seconds", "names"),
    [
        (["--watch"], 2.0, []),
        (["--watch", "orders"], 2.0, ["orders"]),
        (["orders", "--watch", "0.5"], 0.5, ["orders"]),
        (["--watch=5", "orders"], 5.0, ["orders"]),
        (["--watch", "--if-exists"], 2.0, []),
    ],
)
def test_watch_has_seconds_only_if_a_number_follows(
    words: list[str], seconds: float, names: list[str]
) -> None:
    given = parse_words("topics", DescribeTopics, words)
    assert (given.watch, given.name) == (seconds, names)


def test_watch_refuses_no_time_between_two_results(
    run_on: Callable[[str], Any], embedded_servers: Any
) -> None:
    done = run_on(embedded_servers.bootstrap)("topics", "describe", "--watch", "0")
    assert (done.code, done.out) == (2, "")
    assert "above 0" in done.err
