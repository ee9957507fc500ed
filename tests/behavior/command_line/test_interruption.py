"""Ctrl-C while a command runs."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = (
    # A shell lets the programs that it runs in the background ignore SIGINT, and so the tests.
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from aiokclient.cli import main; main()"
)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        yield cluster


def start(cluster: EmbeddedCluster, *words: str, **streams: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, *words, "-b", cluster.bootstrap_servers]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **streams)


def is_received(cluster: EmbeddedCluster, key: ApiKey) -> bool:
    return any(request.api is key for request in cluster.requests)


def test_ctrl_c_says_that_a_change_which_was_sent_may_be_made(cluster: EmbeddedCluster) -> None:
    words = ("topics", "delete", "orders", "--yes")
    with (
        cluster.drop(ApiKey.DELETE_TOPICS, when="after"),
        start(cluster, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        cluster.wait_for(lambda: is_received(cluster, ApiKey.DELETE_TOPICS), 60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert b"aiokclient: Interrupted. What was sent may still be done" in err
    assert b"Traceback" not in err


def test_ctrl_c_at_the_question_says_that_nothing_was_changed(cluster: EmbeddedCluster) -> None:
    ours, theirs = pty.openpty()
    words = ("topics", "delete", "orders")
    with start(cluster, *words, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while b"Interrupted" not in shown:
            shown += os.read(ours, 65536)
        process.wait(timeout=60)
    os.close(ours)
    assert process.returncode == 130
    assert b"Interrupted. Nothing was changed." in shown
    assert not is_received(cluster, ApiKey.DELETE_TOPICS)
