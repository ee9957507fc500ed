"""The example of a web service, with a real HTTP client, and signals to its process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiokclient import TopicPartition
from aiokclient.errors import TopicAuthorizationError
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

pytest.importorskip("fastapi", reason="only the newest Python has the dependencies of the examples")

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60
POSTS = 20
"""Number of requests in flight."""


class Service(NamedTuple):
    """A process of the service, its HTTP client, and its cluster."""

    cluster: EmbeddedCluster
    process: subprocess.Popen[str]
    http: Any

    async def order(self, item: str) -> int:
        """Order something, and return the status of the response."""
        order = {"customer": f"customer {len(item)}", "item": item}
        response = await self.http.post("/orders", json=order)
        return int(response.status_code)

    async def answers(self, path: str, status: int) -> dict[str, Any]:
        """Request the path until the response has this status, and return its body."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                response = await self.http.get(path)
                if response.status_code == status:
                    body: dict[str, Any] = response.json()
                    return body

    def items(self) -> list[str]:
        """Return the items of all receipts."""
        return [
            (record.value or b"").decode()
            for partition in range(6)
            for record in self.cluster.records("receipts", partition)
        ]


@pytest.fixture
def process() -> Iterator[tuple[EmbeddedCluster, subprocess.Popen[str], str]]:
    """A process of the service, with its cluster and its address."""
    topics = {"orders": 6, "receipts": 6, "orders.dead": 1}
    command = [sys.executable, "-m", "uvicorn", "examples.fastapi_service:app", "--port", "0"]
    with (
        EmbeddedCluster(brokers=1, topics=topics) as cluster,
        subprocess.Popen(
            [*command, "--no-access-log"],
            cwd=ROOT,
            env={**os.environ, "BOOTSTRAP": cluster.bootstrap_servers},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            address = None
            for line in process.stdout:
                if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                    break
            assert address
            yield cluster, process, address[0]
        finally:
            process.kill()


@pytest.fixture
async def service(
    process: tuple[EmbeddedCluster, subprocess.Popen[str], str],
) -> AsyncIterator[Service]:
    """A running service with its cluster."""
    import httpx2

    cluster, running, address = process
    async with httpx2.AsyncClient(base_url=address, timeout=LIMIT_S) as http:
        yield Service(cluster, running, http)


async def many(count: int, order: Callable[[int], Awaitable[int]]) -> dict[int, int]:
    """Order `count` times, `POSTS` at a time. Return the status of each response by number."""
    statuses: dict[int, int] = {}

    async def post(first: int) -> None:
        for number in range(first, count, POSTS):
            statuses[number] = await order(number)

    async with asyncio.TaskGroup() as group:
        for first in range(POSTS):
            group.create_task(post(first))
    return statuses


async def test_orders_survive_the_death_of_the_cluster_and_a_sigterm_under_load(
    service: Service,
) -> None:
    cluster = service.cluster
    await service.answers("/ready", 200)
    first = await many(200, lambda number: service.order(f"early {number}"))
    assert set(first.values()) == {201}

    cluster.stop(1)
    body = await service.answers("/ready", 503)
    assert body["reasons"]
    assert (await service.answers("/live", 200))["live"] is True
    assert await service.order("lost") == 503  # Within the delivery timeout.
    cluster.start(1)
    await service.answers("/ready", 200)

    begun = asyncio.Event()

    async def order(number: int) -> int:
        if number > 50:
            begun.set()
        try:
            return await service.order(f"late {number}")
        except Exception:  # The server accepts no connections any more.
            return 0

    load = asyncio.create_task(many(2_000, order))
    await begun.wait()
    service.process.send_signal(signal.SIGTERM)
    late = await load
    printed, _ = await asyncio.to_thread(service.process.communicate, timeout=LIMIT_S)
    assert service.process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in printed

    accepted = {f"early {number}" for number in first}
    accepted |= {f"late {number}" for number, status in late.items() if status == 201}
    assert any(item.startswith("late") for item in accepted)
    assert 0 in late.values()
    written: dict[TopicPartition, list[Any]] = {
        TopicPartition("orders", partition): cluster.records("orders", partition)
        for partition in range(6)
    }
    stored = " ".join(record.value.decode() for records in written.values() for record in records)
    assert [item for item in accepted if f'"{item}"' not in stored] == []
    # What is committed was done.
    receipts = set(service.items())
    committed = cluster.committed("receipts")
    for partition, records in written.items():
        end = committed[partition].offset if partition in committed else 0
        done = [re.findall(r'"item":"([^"]+)"', record.value.decode())[0] for record in records]
        assert set(done[:end]) <= receipts
    assert cluster.groups["receipts"].members == {}


async def test_an_order_that_cannot_be_read_becomes_a_dead_letter(service: Service) -> None:
    service.cluster.produce("orders", [b"\xff\xfe"], partition=0)
    assert await service.order("tea") == 201
    await asyncio.to_thread(service.cluster.wait_for, lambda: "tea" in service.items(), LIMIT_S)
    dead = lambda: service.cluster.records("orders.dead", 0)  # noqa: E731
    await asyncio.to_thread(service.cluster.wait_for, dead, LIMIT_S)
    assert [record.value for record in dead()] == [b"\xff\xfe"]
    service.process.send_signal(signal.SIGTERM)
    printed, _ = await asyncio.to_thread(service.process.communicate, timeout=LIMIT_S)
    assert "Application shutdown complete" in printed


async def test_the_process_ends_if_the_worker_cannot_read_any_more(service: Service) -> None:
    with service.cluster.fail(ApiKey.FETCH, TopicAuthorizationError):
        printed, _ = await asyncio.to_thread(service.process.communicate, timeout=LIMIT_S)
    assert service.process.returncode != 0
    assert "The worker receipts has failed." in printed
