"""The pipeline with retries and dead letters runs, and so does the replay of its dead letters."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from registry_stub import RegistryStub, StubThread

from aiokclient.testing import EmbeddedCluster

ROOT = Path(__file__).resolve().parents[2]
ORDER_ID = b"\x00\x00\x00\x00\x01"
ORDER_SCHEMA = {
    "title": "Order",
    "type": "object",
    "properties": {
        "customer": {"type": "string"},
        "item": {"type": "string"},
        "count": {"type": "integer", "exclusiveMinimum": 0},
    },
    "required": ["customer", "item", "count"],
}


@contextmanager
def pipeline(cluster: EmbeddedCluster, registry: RegistryStub) -> Iterator[None]:
    """Run the pipeline, and stop it by SIGTERM."""
    command = [sys.executable, "examples/pipeline.py", cluster.bootstrap_servers, registry.url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "writing invoices\n"
            yield
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == "stopped\n"
            assert process.wait(30) == 0
        finally:
            process.kill()


def replay_timeouts(cluster: EmbeddedCluster) -> list[str]:
    command = [sys.executable, "examples/replay.py", cluster.bootstrap_servers]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def register_orders(registry: RegistryStub) -> None:
    """Register the schema of orders, as the program that places them does; it gets the first id."""
    request = urllib.request.Request(
        f"{registry.url}/subjects/orders-value/versions",
        json.dumps({"schemaType": "JSON", "schema": json.dumps(ORDER_SCHEMA)}).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert b"\x00" + json.load(answer)["id"].to_bytes(4, "big") == ORDER_ID


def order(customer: str, item: str = "tea", count: int = 2) -> bytes:
    fields = {"customer": customer, "item": item, "count": count}
    return ORDER_ID + json.dumps(fields).encode()


def test_orders_become_invoices_or_dead_letters_which_a_replay_puts_back() -> None:
    with (
        EmbeddedCluster(topics={"orders": 2, "invoices": 1}) as cluster,
        StubThread() as registry,
    ):
        register_orders(registry)
        orders = [
            order("Ada"),
            b"no order",
            order("Bob", "coal"),
            order("Who?"),
            order("Zoe", count=0),
            order("Eve"),
        ]
        with pipeline(cluster, registry):
            cluster.produce("orders", orders)

            def letters() -> list[bytes | None]:
                if "orders.dead" not in cluster.topics:
                    return []
                return [r.value for p in range(2) for r in cluster.records("orders.dead", p)]

            cluster.wait_for(lambda: len(letters()) == 4, 60)
            assert sorted(filter(None, letters())) == sorted(orders[1:5])
        found = [record.value or b"" for record in cluster.records("invoices")]
        assert len({value[:5] for value in found}) == 1
        assert sorted((json.loads(value[5:]) for value in found), key=str) == [
            {"customer": "Ada", "total": "6.40"},
            {"customer": "Eve", "total": "6.40"},
        ]
        assert sorted(replay_timeouts(cluster)) == [
            "TimeoutError: 1",
            "aiokclient.errors.RecordError: 2",
            "aiokclient.worker.Reject: 1",
            "put back into orders: 1",
        ]
        assert len(cluster.records("orders")) + len(cluster.records("orders", 1)) == 7
        assert replay_timeouts(cluster) == []
