"""CPU time and memory of a Spark session, by its processes."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from kafka_harness import KafkaCluster
    from pyspark.sql import SparkSession

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
Processes: TypeAlias = dict[int, tuple[int, float, float]]
"""For each process id: the parent's id, the CPU seconds of the process, and those of its ended
children."""
READER = "python_streaming_source_runner"
"""Part of the command line of one process: the one on the driver that runs a stream's reader."""


@dataclass(frozen=True)
class Run:
    """The duration of a run, and the CPU seconds of the JVM, of Python, and of the broker."""

    seconds: float
    jvm: float
    python: float
    broker: float


class Meter:
    """The CPU time and the memory of the processes of a session and of the broker."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster) -> None:
        self._java: Any = spark.sparkContext._jvm
        self._jvm = int(self._java.java.lang.ProcessHandle.current().pid())
        self._brokers = [node.pid for node in kafka.nodes.values()]

    def measure(self, query: Callable[[], object]) -> Run:
        before, began = self._cpu(), time.perf_counter()
        query()
        seconds, after = time.perf_counter() - began, self._cpu()
        return Run(seconds, *(late - early for early, late in zip(before, after, strict=True)))

    def _cpu(self) -> tuple[float, float, float]:
        """Return the CPU seconds so far of the virtual machine, of Python, and of the broker."""
        found = self._processes()
        _, own, ended = found[self._jvm]
        python = ended + found[os.getpid()][1]
        python += sum(sum(found[pid][1:]) for pid in self._workers(found))
        return own, python, sum(found[pid][1] for pid in self._brokers)

    def _processes(self) -> Processes:
        """Read all processes, and repeat this if one of them has ended meanwhile.

        The CPU time of a worker that ends after its parent was read, but before the worker itself
        is read, would be missing.
        """
        found = dict(stats())
        while True:
            earlier, found = found, dict(stats())
            same = self._workers(earlier) == self._workers(found)
            if same and earlier[self._jvm][2] == found[self._jvm][2]:
                return found

    def _workers(self, found: Processes) -> set[int]:
        """Return the processes that the virtual machine and its children have started."""
        family = {self._jvm}
        while more := {pid for pid, (parent, *_) in found.items() if parent in family} - family:
            family |= more
        return family - {self._jvm}

    def memory(self) -> dict[str, float]:
        """Return the used Java heap after a garbage collection and Python's memory, in MiB."""
        self._java.java.lang.System.gc()
        runtime = self._java.java.lang.Runtime.getRuntime()
        heap = int(runtime.totalMemory()) - int(runtime.freeMemory())
        sizes: dict[str, list[float]] = {"reader": [], "worker": []}
        for pid in self._workers(dict(stats())):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_text()
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:
                continue
            sizes["reader" if READER in command else "worker"].append(pages * PAGE / MIB)
        return {
            "JVM heap": heap / MIB,
            "stream reader": max(sizes["reader"], default=0),
            "largest worker": max(sizes["worker"], default=0),
            "all workers": sum(sizes["worker"]),
            "workers": len(sizes["worker"]),
        }


def stats() -> Iterator[tuple[int, tuple[int, float, float]]]:
    """Yield the id and the values of each process, as in `Processes`."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                words = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            own, ended = int(words[11]) + int(words[12]), int(words[13]) + int(words[14])
            yield int(folder.name), (int(words[1]), own / TICKS, ended / TICKS)


def medians(runs: Sequence[Run], rows: int) -> dict[str, float]:
    seconds = statistics.median(run.seconds for run in runs)
    found = {"seconds": seconds, "k rows/s": rows / seconds / 1e3}
    found["CPU s/M"] = statistics.median(run.jvm + run.python for run in runs) / rows * 1e6
    for name in ("jvm", "python", "broker"):
        found[f"{name} s/M"] = statistics.median(getattr(run, name) for run in runs) / rows * 1e6
    return found
