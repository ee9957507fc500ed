"""Runs of a streaming query from Kafka to Kafka, in which processes and brokers are killed.

A run arms one point for each of its batches (see `aiokclient.spark.kill_points`) and kills a victim
there: the Python worker that reaches the point kills itself; for an executor, the driver, or a
broker, the worker waits at the point until it is killed from here.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from aiokclient import Consumer
from aiokclient.testing import EmbeddedCluster

__all__ = ["SCOPES", "VICTIMS", "Kill", "Outcome", "plan", "run"]

ROOT = Path(__file__).resolve().parents[2]
SCOPES = ("batch", "task")
VICTIMS = ("worker", "executor", "driver", "broker")
# An executor of its own takes Spark a long time to start.
QUICK = ("worker", "worker", "driver", "broker", "worker")
ROWS_IN_BATCH = 20
WAIT_S = 800.0
POLL_S = 0.05
BROKERS = 3


@dataclass(frozen=True)
class Kill:
    """A victim that is killed at a point of a batch."""

    point: str
    victim: str
    batch: int
    partition: int | None = None

    @property
    def name(self) -> str:
        """The name of the file that arms the point."""
        return f"{self.point}.{self.batch}" + (
            "" if self.partition is None else f".{self.partition}"
        )


@dataclass
class Outcome:
    """What a run has written."""

    expected: Counter[bytes]
    found: Counter[bytes]
    reached: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[bytes]:
        return sorted((self.expected - self.found).elements())

    @property
    def duplicates(self) -> list[bytes]:
        return sorted((self.found - self.expected).elements())


def plan(number: int, scope: str) -> list[Kill]:
    """Return the kills of a run: each point once.

    Run 0 kills no executor, so that it is faster. Four runs after it have each victim at each
    point.
    """
    in_driver = scope == "batch"
    points = [
        ("before-flush", 0, 0),
        ("before-handoff", 1, 1),
        ("between-commits", 2, None if in_driver else 1),
        ("after-commit", 3, None),
        # The log of batch 4 is written when batch 5 begins.
        ("after-log", 5, 0),
    ]
    return [
        Kill(point, VICTIMS[(number + index) % 4] if number else QUICK[index], batch, partition)
        for index, (point, batch, partition) in enumerate(points)
    ]


def run(
    folder: Path, kills: list[Kill], *, scope: str | None, batches: int = 6, **options: str
) -> Outcome:
    """Copy a topic while the victims are killed. `scope` None is a copy at least once."""
    armed = folder / "points"
    armed.mkdir(parents=True)
    for kill in kills:
        (armed / kill.name).write_text("kill" if kill.victim == "worker" else "wait")
    rows = ROWS_IN_BATCH * batches
    values = [b"%06d" % number for number in range(rows)]
    with EmbeddedCluster(brokers=BROKERS, topics={"in": 2, "out": 2}) as cluster:
        for partition in range(2):
            cluster.produce("in", values[partition::2], partition=partition)
        bootstrap = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        sink = {
            **bootstrap,
            "topic": "out",
            "checkpointLocation": str(folder / "checkpoint"),
            "aiokclient.test.points": str(armed),
            **options,
        }
        if scope is not None:
            sink |= {"deliveryGuarantee": "exactly-once", "commitScope": scope}
        source = {
            **bootstrap,
            "subscribe": "in",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(ROWS_IN_BATCH),
        }
        failures = _Runner(folder, cluster, kills, {"source": source, "sink": sink}).complete()
        found = asyncio.run(_committed(cluster.bootstrap_servers))
    reached = [kill.name for kill in kills if (armed / f"{kill.name}.reached").exists()]
    return Outcome(Counter(values), found, reached, failures)


async def _committed(bootstrap: str) -> Counter[bytes]:
    async with Consumer(
        "out",
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        return Counter([record.value async for record in consumer.until_end() if record.value])


class _Runner:
    """The process of the query, and the killing."""

    def __init__(
        self,
        folder: Path,
        cluster: EmbeddedCluster,
        kills: list[Kill],
        settings: dict[str, dict[str, str]],
    ) -> None:
        self._folder = folder
        self._cluster = cluster
        self._left = list(kills)
        executors = any(kill.victim == "executor" for kill in kills)
        # Four attempts for each task, as in a cluster.
        self._settings = {
            **settings,
            "master": "local-cluster[1,2,1024]" if executors else "local[2,4]",
            "configs": {"spark__executor__memory": "512m"} if executors else {},
            "folder": str(folder / "spark"),
            "restarts": len(kills) + 3,
        }
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def complete(self) -> list[str]:
        """Run the query until everything is copied, and return the failures that it had."""
        deadline = time.monotonic() + WAIT_S
        try:
            while True:
                process = self._process = self._process or self._started()
                self._kill_reached()
                code = process.poll()
                if code == 0:
                    return self._failures()
                if code is not None and self._process is process:
                    raise AssertionError(f"The query ended with {code}:\n{self._tail()}")
                if time.monotonic() > deadline:
                    left = [kill.name for kill in self._left]
                    raise AssertionError(f"No end in time; left: {left}\n{self._tail()}")
                time.sleep(POLL_S)
        finally:
            if self._process is not None:
                self._end_process(self._process)

    def _started(self) -> subprocess.Popen[bytes]:
        self._starts += 1
        # The workers of Spark find the data source by the path that they inherit.
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "harness")])
        with (self._folder / f"output.{self._starts}").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "spark_eos_query", json.dumps(self._settings)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": paths},
                start_new_session=True,
            )

    def _kill_reached(self) -> None:
        armed = self._folder / "points"
        for kill in list(self._left):
            if not (armed / f"{kill.name}.reached").exists():
                continue
            self._left.remove(kill)
            if kill.victim == "driver" and self._process is not None:
                self._end_process(self._process)
                self._process = None
            elif kill.victim == "executor":
                for pid in _executors(self._process):
                    os.kill(pid, signal.SIGKILL)
                (armed / f"{kill.name}.go").touch()
            elif kill.victim == "broker":
                broker = kill.batch % BROKERS + 1
                self._cluster.stop(broker)
                (armed / f"{kill.name}.go").touch()
                time.sleep(1.0)
                self._cluster.start(broker)
            elif kill.victim == "late":
                # The coordinator aborts the transaction, which is open for too long.
                self._cluster.wait_for(self._aborted, timeout=60.0)
                (armed / f"{kill.name}.go").touch()

    def _aborted(self) -> bool:
        states = {each.state for each in self._cluster.transactions.values()}
        return any("Abort" in str(state) for state in states)

    def _end_process(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _failures(self) -> list[str]:
        return [
            line
            for number in range(1, self._starts + 1)
            for line in (self._folder / f"output.{number}")
            .read_text("utf-8", "replace")
            .splitlines()
            if line.startswith("failed ")
        ]

    def _tail(self) -> str:
        path = self._folder / f"output.{self._starts}"
        return path.read_text("utf-8", "replace")[-6000:]


def _executors(driver: subprocess.Popen[bytes] | None) -> list[int]:
    """Return the processes of the executors in the session of the driver's process."""
    found = []
    for entry in Path("/proc").iterdir():
        if driver is not None and entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
                session = os.getsid(int(entry.name))
            except OSError:
                continue
            if session == driver.pid and b"CoarseGrainedExecutorBackend" in command:
                found.append(int(entry.name))
    return found
