"""The example of a job queue in a web service, with a real HTTP client and signals."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiokclient.testing import EmbeddedCluster

pytest.importorskip("fastapi", reason="only the newest Python has the dependencies of the examples")

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 90
COUNT = 60


class Running(NamedTuple):
    """A process of the service, and its address."""

    process: subprocess.Popen[str]
    address: str


@contextmanager
def serve(cluster: EmbeddedCluster) -> Iterator[Running]:
    """Run a process of the service."""
    command = [sys.executable, "-m", "uvicorn", "examples.share_jobs:app", "--port", "0"]
    with subprocess.Popen(
        [*command, "--no-access-log"],
        cwd=ROOT,
        env={**os.environ, "BOOTSTRAP": cluster.bootstrap_servers},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            printed: list[str] = []
            address = None
            for line in process.stdout:
                printed.append(line)
                if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                    break
            assert address, "".join(printed)
            yield Running(process, address[0])
        finally:
            process.kill()


async def add(http: Any, text: str, seconds: float) -> str:
    response = await http.post("/jobs", json={"text": text, "seconds": seconds})
    assert response.status_code == 202, response.text
    name: str = response.json()["id"]
    return name


async def wait_for_end(http: Any, name: str) -> dict[str, Any]:
    """Return the status of a job once it is not waiting any more."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            body: dict[str, Any] = (await http.get(f"/jobs/{name}")).json()
            if body["state"] != "waiting":
                return body
            await asyncio.sleep(0.05)


@pytest.fixture
def running() -> Iterator[tuple[EmbeddedCluster, list[Running]]]:
    """Two processes of the service on one cluster."""
    with EmbeddedCluster() as cluster, ExitStack() as processes:
        yield cluster, [processes.enter_context(serve(cluster)) for _ in range(2)]


async def test_jobs_of_a_process_that_ends_are_done_by_another(
    running: tuple[EmbeddedCluster, list[Running]],
) -> None:
    import httpx2

    cluster, (first, second) = running
    async with (
        httpx2.AsyncClient(base_url=first.address, timeout=LIMIT_S) as http,
        httpx2.AsyncClient(base_url=second.address, timeout=LIMIT_S) as other,
    ):
        poor = await add(http, "", 0.0)
        texts = [" ".join(["word"] * number) for number in range(1, COUNT + 1)]
        names = await asyncio.gather(
            *(add(http, text, number / 20) for number, text in enumerate(texts, 1))
        )
        # One is done, and handlers of the first process have begun others.
        await wait_for_end(other, names[0])
        first.process.send_signal(signal.SIGTERM)
        printed, _ = await asyncio.to_thread(first.process.communicate, timeout=LIMIT_S)
        assert first.process.returncode in (0, -signal.SIGTERM)
        assert "Application shutdown complete" in printed
        # Each process tells what became of jobs that were asked of another.
        for number, name in enumerate(names, 1):
            body = await wait_for_end(other, name)
            assert body == {"state": "done", "result": {"words": number}, "error": None}
        body = await wait_for_end(other, poor)
        assert body == {"state": "failed", "result": None, "error": "There is no text."}
        assert (await other.get("/ready")).status_code == 200
    second.process.send_signal(signal.SIGTERM)
    printed, _ = await asyncio.to_thread(second.process.communicate, timeout=LIMIT_S)
    assert "Application shutdown complete" in printed
    written = [record for part in range(3) for record in cluster.records("results", part)]
    assert {record.key for record in written} == {name.encode() for name in names}
