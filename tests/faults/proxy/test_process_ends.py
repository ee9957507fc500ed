"""The process forks, or the interpreter or the event loop ends, while clients are open (fault 55).

Each test runs `harness/process_end.py`, whose deadline of a minute passes only if it hangs.
"""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aiokclient.testing import EmbeddedCluster

HARNESS = Path(__file__).resolve().parents[2] / "harness"
KINDS = ["Producer", "Consumer", "Consumer", "Producer", "Admin"]

pytestmark = pytest.mark.fault(55)


LOOPS = ("asyncio", "uvloop")


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    return str(request.param)


def with_loops(*cases: str) -> list[tuple[str, str]]:
    """Return each case with the loops, which take turns unless everything is explored."""
    if os.environ.get("AIOKCLIENT_EXPLORE"):
        return list(itertools.product(cases, LOOPS))
    return list(zip(cases, itertools.cycle(LOOPS), strict=False))


def run(cluster: EmbeddedCluster, how: str, loop: str) -> "subprocess.CompletedProcess[str]":
    """Run the process to its end, with every ResourceWarning shown."""
    # Ignore Python's warning about a fork in a process with threads. The threads are idle here.
    options = ["-W", "always::ResourceWarning", "-W", "ignore::DeprecationWarning"]
    command = [sys.executable, *options, str(HARNESS / "process_end.py")]
    command += [cluster.bootstrap_servers, how, loop]
    paths = os.pathsep.join([str(HARNESS), str(HARNESS.parents[1])])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment, check=False
    )


def unexpected(stderr: str) -> list[str]:
    """Return the lines that are neither warnings about open clients nor logs of these clients."""
    usual = (
        r".*: ResourceWarning: .*",
        r"  .*",  # The source line of a warning.
        r"ResourceWarning: Enable tracemalloc .*",
        r"client .* was not closed before its event loop ended",
        r"client .* record\(s\) for topic t were not delivered: .* The event loop has ended.*",
        r"client .*: the event loop stood still for .*",  # On a loaded machine.
    )
    return [line for line in stderr.splitlines() if not re.fullmatch("|".join(usual), line)]


FORKED = "raised ClosedError This process is a fork of the one in which this client was started"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")
@pytest.mark.parametrize(
    ("how", "loop"),
    with_loops("fork_and_go_on", "fork_and_run_another", "fork_within", "fork_and_exit"),
    indirect=["loop"],
)
def test_a_forked_process_cannot_touch_the_clients_of_its_parent(how: str, loop: str) -> None:
    """Clients of the parent raise errors in the child.

    If the child could send, brokers would discard later records of the parent as duplicates.
    """
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        done = run(cluster, how, loop)
        values = [record.value for record in cluster.records("t")]
    lines = done.stdout.splitlines()
    assert lines.pop(0) == "parent: connected True", done.stderr
    assert lines.pop(0) == "child: connected 0"
    calls = ["send", "send_threadsafe", "poll", "commit", "commit_transaction", "describe_cluster"]
    for call in calls if how != "fork_and_exit" else []:
        assert lines.pop(0) == f"child: {call} {FORKED}"
    assert lines == ["child ended with 0", "parent: offset 2", "parent: brokers 1", "over"]
    assert done.returncode == 0
    assert values == [b"first", b"in a transaction", b"second"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")
def test_a_forked_process_may_exit_within_the_blocks_of_its_parents_clients(loop: str) -> None:
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        done = run(cluster, "fork_and_sys_exit", loop)
        values = {record.value for record in cluster.records("t")}
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["child ended with 3", "parent: brokers 1", "over"]
    assert values == {b"in a transaction", b"second", b"third"}
    assert unexpected(done.stderr) == []


@pytest.mark.parametrize(
    ("how", "loop"),
    with_loops("exit_without_closing_the_loop", "exit_within", "exit_beside_the_loop"),
    indirect=["loop"],
)
def test_the_interpreter_exits_while_clients_are_open(how: str, loop: str) -> None:
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        done = run(cluster, how, loop)
    assert done.returncode == (7 if how == "exit_within" else 0), done.stderr
    assert unexpected(done.stderr) == []


def test_an_interrupted_program_ends_while_clients_are_open(loop: str) -> None:
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        done = run(cluster, "interrupt", loop)
    traceback, _, rest = done.stderr.rpartition("\nKeyboardInterrupt")
    assert traceback
    assert unexpected(rest.lstrip()) == []


def test_a_loop_that_is_closed_early_leaves_no_thread_and_no_error(loop: str) -> None:
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        done = run(cluster, "close_the_loop", loop)
    assert done.returncode == 0, done.stderr
    refused = [f"{kind} WrongLoopError" for kind in KINDS for _ in range(2)]
    *lines, threads, over = done.stdout.splitlines()
    assert lines == [*refused, "send_threadsafe ClosedError"]
    assert (threads, over) == ("threads: MainThread", "over")
    assert unexpected(done.stderr) == []
    for kind in ("Producer", "Consumer", "Admin"):
        assert f"ResourceWarning: <{kind} " in done.stderr
