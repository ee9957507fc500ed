"""The pipeline with retries and dead letters runs, and so does the replay of its dead letters."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiokclient.testing import EmbeddedCluster

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def pipeline(cluster: EmbeddedCluster) -> Iterator[None]:
    """Run the pipeline, and stop it by SIGTERM."""
    command = [sys.executable, "examples/pipeline.py", cluster.bootstrap_servers]
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


def order(customer: str, item: str = "tea", count: int = 2) -> bytes:
    return json.dumps({"customer": customer, "item": item, "count": count}).encode()


def test_orders_become_invoices_or_dead_letters_which_a_replay_puts_back() -> None:
    with EmbeddedCluster(topics={"orders": 2, "invoices": 1}) as cluster:
        orders = [order("Ada"), b"no order", order("Bob", "coal"), order("Who?"), order("Eve")]
        with pipeline(cluster):
            cluster.produce("orders", orders)

            def letters() -> list[bytes | None]:
                if "orders.dead" not in cluster.topics:
                    return []
                return [r.value for p in range(2) for r in cluster.records("orders.dead", p)]

            cluster.wait_for(lambda: len(letters()) == 3, 60)
            assert sorted(filter(None, letters())) == sorted(orders[1:4])
        invoices = [json.loads(record.value or b"") for record in cluster.records("invoices")]
        assert sorted(invoices, key=str) == [
            {"customer": "Ada", "total": "6.40"},
            {"customer": "Eve", "total": "6.40"},
        ]
        assert sorted(replay_timeouts(cluster)) == [
            "TimeoutError: 1",
            "aiokclient.errors.RecordError: 1",
            "aiokclient.worker.Reject: 1",
            "put back into orders: 1",
        ]
        assert len(cluster.records("orders")) + len(cluster.records("orders", 1)) == 6
        assert replay_timeouts(cluster) == []
