"""Runs of a streaming query from Kafka to Kafka, in which processes and brokers are killed.

A run arms one point for each of its batches (see `aiokclient.spark.sink.kill_points`) and kills a
victim there. A victim that is a Python worker kills itself when it reaches the point. If the victim
is an executor, the driver, or a broker, the worker waits at the point until this module has killed
it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kafka_harness import KafkaCluster
from open_transactions import none_open

from aiokclient import Consumer, Producer
from aiokclient.testing import EmbeddedCluster

__all__ = [
    "POINTS",
    "VICTIMS",
    "EmbeddedBrokers",
    "Kill",
    "Outcome",
    "Plan",
    "RealBrokers",
    "plan_of",
    "run",
]

ROOT = Path(__file__).resolve().parents[2]
VICTIMS = ("worker", "executor", "driver", "broker")
# Quick runs do not kill executors, because Spark starts separate executors slowly.
QUICK = ("worker", "worker", "driver", "broker", "worker")
POINTS = {
    "before-flush": 0,
    "before-handoff": 1,
    "between-commits": 2,
    "after-commit": 3,
    # This point is reached when batch 5 begins. Spark has then written the log of batch 4.
    "after-log": 5,
}
"""The batch in which each point is armed."""
ROWS_OF_PARTITION = 10
"""The number of rows that a batch has from each partition."""
STALLED_S = 300.0
"""The time without any progress after which a run fails."""
POLL_S = 0.02
BROKERS = 3
IN_SYNC = {"min.insync.replicas": 2}
# Optimizing compilers do not pay off in programs that run for seconds only.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True)
class Kill:
    """A victim that is killed at a point of a batch."""

    point: str
    victim: str
    batch: int
    partition: int | None = None
    """The Spark partition that reaches the point. If it is None, the driver reaches the point."""

    @property
    def name(self) -> str:
        """The name of the file that arms the point."""
        return f"{self.point}.{self.batch}" + (
            "" if self.partition is None else f".{self.partition}"
        )

    @property
    def fails_query(self) -> bool:
        """Whether the kill fails the query. Spark repeats tasks, but not the driver's commit."""
        return self.victim == "worker" and self.partition is None


@dataclass(frozen=True)
class Plan:
    """The kills of one run, and the data that it copies."""

    kills: tuple[Kill, ...]
    exactly_once: bool = True
    """Whether the query copies exactly once. Otherwise, it copies at least once."""
    is_real: bool = False
    """Whether the brokers are those of a real Kafka."""
    partitions: int = 2
    batches: int = 6
    seed: int = 0


def plan_of(number: int) -> Plan:
    """Return the plan of a run. It contains each point once.

    Runs 0 and 1 kill no executor, so that they are faster. In the runs 0 to 19, each victim is
    killed at each point, in an embedded cluster and in a real one.
    """
    turn = number // 2
    partitions = 2 + turn % 2
    kills = []
    for index, (point, batch) in enumerate(POINTS.items()):
        in_driver = point in ("after-commit", "between-commits")
        victim = VICTIMS[(turn + index) % 4] if turn else QUICK[index]
        partition = None if in_driver else (turn + index) % partitions
        kills.append(Kill(point, victim, batch, partition))
    return Plan(tuple(kills), is_real=bool(number % 2), partitions=partitions, seed=number)


@dataclass
class Outcome:
    """The rows that a run has written, the points that it has reached, and its failures."""

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


class EmbeddedBrokers:
    """The brokers of an embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap_servers

    def create_topic(self, name: str, partitions: int) -> None:
        self.cluster.create_topic(name, partitions)

    def kill(self, broker: int) -> None:
        self.cluster.stop(broker)

    def restart(self, broker: int) -> None:
        self.cluster.start(broker)


class RealBrokers:
    """The brokers of a real cluster."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap
        self._topics = ["__transaction_state", "__consumer_offsets"]

    def create_topic(self, name: str, partitions: int) -> None:
        self.cluster.create_topic(name, partitions, BROKERS, IN_SYNC)
        self._topics.append(name)

    def kill(self, broker: int) -> None:
        """Kill a broker after the other brokers have replicated everything from it."""
        self.cluster.heal()
        for topic in self._topics:
            for partition in self.cluster.metadata([topic]).topics[topic]:
                self.cluster.await_in_sync(topic, partition)
        self.cluster.kill(broker)

    def restart(self, broker: int) -> None:
        self.cluster.nodes[broker].start()


def run(
    folder: Path, plan: Plan, brokers: EmbeddedBrokers | RealBrokers, **options: str
) -> Outcome:
    """Copy a topic while the victims are killed. `options` are those of the sink."""
    armed = folder / "points"
    armed.mkdir(parents=True)
    for kill in plan.kills:
        (armed / kill.name).write_text("kill" if kill.victim == "worker" else "wait")
    source, target = f"in-{folder.name}", f"out-{folder.name}"
    values = _values(plan)
    for topic in (source, target):
        brokers.create_topic(topic, plan.partitions)
    asyncio.run(_write(brokers.bootstrap, source, plan.partitions, values))
    bootstrap = {"kafka.bootstrap.servers": brokers.bootstrap}
    sink = {
        **bootstrap,
        "topic": target,
        "checkpointLocation": str(folder / "checkpoint"),
        "aiokclient.test.points": str(armed),
        # On a busy machine, a batch in which an executor is killed takes long.
        "kafka.transaction.timeout.ms": "300000",
        **options,
    }
    if plan.exactly_once:
        sink |= {"deliveryGuarantee": "exactly-once"}
    settings = {
        "source": {
            **bootstrap,
            "subscribe": source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(ROWS_OF_PARTITION * plan.partitions),
        },
        "sink": sink,
    }
    failures = _Runner(folder, brokers, plan, settings).complete()
    found = asyncio.run(_committed(brokers.bootstrap, target))
    reached = [kill.name for kill in plan.kills if (armed / f"{kill.name}.reached").exists()]
    return Outcome(Counter(values), found, reached, failures)


def _values(plan: Plan) -> list[bytes]:
    """Return unique values of random lengths."""
    chosen = random.Random(plan.seed)
    count = ROWS_OF_PARTITION * plan.partitions * plan.batches
    return [b"%06d:" % number + chosen.randbytes(chosen.randint(0, 300)) for number in range(count)]


async def _write(bootstrap: str, topic: str, partitions: int, values: list[bytes]) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.gather(
            producer.send(topic, value, key=value[:5], partition=number % partitions)
            for number, value in enumerate(values)
        )


async def _committed(bootstrap: str, topic: str) -> Counter[bytes]:
    await none_open(bootstrap, topic)
    async with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        return Counter([record.value async for record in consumer.until_end() if record.value])


class _Runner:
    """A runner of the query's process, which also kills the victims."""

    def __init__(
        self,
        folder: Path,
        brokers: EmbeddedBrokers | RealBrokers,
        plan: Plan,
        settings: dict[str, dict[str, str]],
    ) -> None:
        self._folder = folder
        self._brokers = brokers
        self._plan = plan
        self._left = list(plan.kills)
        self._stopped: list[tuple[int, int]] = []
        """The killed brokers. Each one has the batch after whose commit it is restarted."""
        executors = any(kill.victim == "executor" for kill in plan.kills)
        # Four attempts for each task, as in a cluster.
        self._settings = {
            **settings,
            "master": "local-cluster[1,2,1024]" if executors else "local[2,4]",
            "configs": {
                "spark__driver__extraJavaOptions": JVM,
                "spark__executor__extraJavaOptions": JVM,
                "spark__executor__memory": "512m",
                "spark__jars": "",
            },
            "folder": str(folder / "spark"),
            "restarts": len(plan.kills) + 10,
        }
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def complete(self) -> list[str]:
        """Run the query until everything is copied, and return its failures."""
        progress, since = None, time.monotonic()
        try:
            while True:
                if progress != (progress := self._progress()):
                    since = time.monotonic()
                process = self._process = self._process or self._started()
                self._kill_reached()
                self._restart_brokers()
                code = process.poll()
                if code == 0:
                    return self._failures()
                if code is not None and self._process is process:
                    raise AssertionError(f"The query ended with {code}:\n{self._tail()}")
                if time.monotonic() - since > STALLED_S:
                    raise AssertionError(f"No progress since {progress}:\n{self._tail()}")
                time.sleep(POLL_S)
        finally:
            if self._process is not None:
                self._end_process(self._process)
            for broker, _ in self._stopped:
                self._brokers.restart(broker)

    def _progress(self) -> tuple[object, ...]:
        """Return a value that changes as long as the run makes progress."""
        files = [
            each.name
            for folder in ("points", "checkpoint/offsets", "checkpoint/commits")
            for each in sorted((self._folder / folder).glob("*"))
        ]
        return self._starts, *files

    def _started(self) -> subprocess.Popen[bytes]:
        self._starts += 1
        # Spark's workers inherit PYTHONPATH, and so find the data source.
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "harness")])
        command = [sys.executable, "-m", "spark_eos_query", json.dumps(self._settings)]
        # Where the system supports it, the query and Spark end even if the test is killed.
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with (self._folder / f"output.{self._starts}").open("wb") as output:
            return subprocess.Popen(
                command,
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
                continue
            if kill.victim == "executor":
                self._kill_executors()
            elif kill.victim == "broker":
                broker = (self._plan.seed + kill.batch) % BROKERS + 1
                self._brokers.kill(broker)
                self._stopped.append((broker, kill.batch + 1))
            elif kill.victim == "late":
                self._await_abort()
            (armed / f"{kill.name}.go").touch()

    def _kill_executors(self) -> None:
        executors = _executors(self._process)
        assert executors, "no process of an executor was found"
        for pid in executors:
            os.kill(pid, signal.SIGKILL)

    def _restart_brokers(self) -> None:
        """Restart each killed broker after a whole batch was written without it."""
        for broker, batch in list(self._stopped):
            if (self._folder / "checkpoint" / "commits" / str(batch)).exists():
                self._stopped.remove((broker, batch))
                self._brokers.restart(broker)

    def _await_abort(self) -> None:
        """Wait until the coordinator aborts the transaction because of its timeout."""
        assert isinstance(self._brokers, EmbeddedBrokers)
        cluster = self._brokers.cluster
        cluster.wait_for(
            lambda: any("Abort" in each.state for each in cluster.transactions.values()),
            timeout=60.0,
        )

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
