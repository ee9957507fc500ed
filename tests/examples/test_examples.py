"""Every example runs, as a user would run it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from registry_stub import StubThread

from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=EXAMPLES.parent,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_example_consumer_reads_what_the_example_producer_wrote() -> None:
    with EmbeddedCluster(brokers=3, topics={"orders": 6}) as cluster:
        produced = run("examples/produce.py", cluster.bootstrap_servers)
        assert produced.returncode == 0, produced.stderr
        assert "10000 acknowledged" in produced.stdout
        consumed = run("examples/consume.py", cluster.bootstrap_servers)
        assert consumed.returncode == 0, consumed.stderr
        assert "10001 records read" in consumed.stdout


def test_share_worker() -> None:
    with EmbeddedCluster(brokers=3, topics={"jobs": 3}) as cluster:
        done = run("examples/share_worker.py", cluster.bootstrap_servers)
        assert done.returncode == 0, done.stderr
        assert "20 jobs done, 21 deliveries, 1 failed" in done.stdout


def test_schemas() -> None:
    with EmbeddedCluster(topics={"orders": 1}) as cluster, StubThread() as registry:
        done = run("examples/schemas.py", cluster.bootstrap_servers, registry.url)
        assert done.returncode == 0, done.stderr
        refused, *read, subjects = done.stdout.splitlines()
        assert "it is of type dict, not Order" in refused
        assert read == ["0: 1 x tea", "1: 2 x tea", "2: 3 x tea"]
        assert subjects == "subjects: orders-value"


def test_low_level() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        done = run("examples/low_level.py", cluster.bootstrap_servers)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("speaks") == 2


def test_tracing() -> None:
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        done = run("examples/tracing.py", cluster.bootstrap_servers)
        assert done.returncode == 0, done.stderr
        spans = [line.split() for line in done.stdout.splitlines()[1:]]
        assert [name for _, _, name, *_ in spans] == ["send", "order", "brew", "process"]
        assert len({trace_id for trace_id, *_ in spans}) == 1


def test_single_writer() -> None:
    with EmbeddedCluster(topics={"ledger": 1}) as cluster:
        for turn in (1, 2):
            done = run("examples/single_writer.py", cluster.bootstrap_servers, "100")
            assert done.returncode == 0, done.stderr
            assert "has written 100 entries" in done.stdout
            assert len(cluster.records("ledger")) == 100 * turn


def test_work_pool() -> None:
    with EmbeddedCluster() as cluster:
        command = [sys.executable, "examples/work_pool.py", cluster.bootstrap_servers]
        with subprocess.Popen(command, cwd=EXAMPLES.parent, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                assert b"crawls blog, forum, news, shop, wiki" in process.stdout.readline()
                assert cluster.groups["crawlers"].members
            finally:
                process.send_signal(signal.SIGINT)
        assert cluster.groups["crawlers"].members == {}


def wait_for_answer(client: Any, status: int, reason: str = "") -> Any:
    """Ask until the status is this one, and one of the reasons, if given, has the text."""
    for _ in range(20_000):
        response = client.get("/ready")
        if response.status_code == status and reason in "\n".join(response.json()["reasons"]):
            return response.json()
    raise AssertionError(response.json())


def test_health(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(
        "fastapi", reason="only the newest Python has the dependencies of the examples"
    )
    from fastapi.testclient import TestClient

    with EmbeddedCluster(brokers=1, topics={"orders": 1}) as cluster:
        cluster.stop(1)
        monkeypatch.setenv("BOOTSTRAP", cluster.bootstrap_servers)
        monkeypatch.syspath_prepend(str(EXAMPLES))
        import health

        with TestClient(health.app) as client:
            assert client.get("/live").json() == {"state": "STARTING"}
            early = client.get("/ready")
            assert early.status_code == 503
            assert "no broker has responded yet" in early.json()["reasons"][0]
            assert client.post("/orders/tea").status_code == 202
            cluster.start(1)
            cluster.wait_for(lambda: cluster.records("orders", 0), 30)
            assert wait_for_answer(client, 200) == {
                "state": "RUNNING",
                "reasons": [],
                "brokers": {"1": "connected"},
            }
            cluster.stop(1)
            assert wait_for_answer(client, 503)["state"] == "DEGRADED"
            assert client.get("/live").status_code == 200


def test_health_is_not_ready_while_a_leader_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip(
        "fastapi", reason="only the newest Python has the dependencies of the examples"
    )
    from fastapi.testclient import TestClient

    with EmbeddedCluster(brokers=1, topics={"orders": 1}) as cluster:
        monkeypatch.setenv("BOOTSTRAP", cluster.bootstrap_servers)
        monkeypatch.syspath_prepend(str(EXAMPLES))
        import health

        with TestClient(health.app) as client:
            wait_for_answer(client, 200)
            with cluster.drop(ApiKey.PRODUCE, when="before"):
                assert client.post("/orders/tea").status_code == 202
                # Each cut makes the client DEGRADED for other reasons, too.
                wait_for_answer(client, 503, "a record for orders-0 has not been acknowledged")
            assert client.get("/live").status_code == 200
            cluster.wait_for(lambda: cluster.records("orders", 0), 60)
            assert wait_for_answer(client, 200)["reasons"] == []


def test_notebook() -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert json.dumps(code[3].outputs).count("1001") >= 1


def verdict(printed: str) -> str:
    """Return the word that the last lines of the output show in large letters."""
    lines = printed.rstrip().splitlines()[-10:]
    large = [line for line in lines if line.count("\u2588") >= 12]
    assert len(large) == 5, printed
    return lines[-3].strip(" \u2502").partition(":")[0]


def test_demo_finds_nothing_wrong() -> None:
    done = run("examples/demo.py", "--records", "60000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every record was written once and read, in order" in done.stdout
    assert "stopped after" in done.stdout
    assert "killed after" in done.stdout
    # The output names brokers, members, and partitions, and the member that takes over.
    assert len(re.findall(r"127\.0\.0\.1:\d+ .* partitions \d, \d", done.stdout)) == 3
    assert len(re.findall(r"[ABC] .* process \d+.* partitions \d, \d", done.stdout)) == 3
    assert re.search(r"the others took over: member [AB] partition", done.stdout)
    assert verdict(done.stdout) == "PASSED"


def test_demo_finds_the_record_that_was_left_out() -> None:
    done = run("examples/demo.py", "--records", "30000", "--drop-one")
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "missing" in done.stdout
    assert verdict(done.stdout) == "FAILED"


def test_demo_ends_with_its_verdict_when_it_cannot_start() -> None:
    done = run("examples/demo.py", "--records", "1000", BOOTSTRAP="localhost:99999")
    assert done.returncode == 1
    assert verdict(done.stdout) == "FAILED"
