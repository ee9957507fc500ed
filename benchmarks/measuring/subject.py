"""The subjects of the benchmarks: client libraries, each used in one way."""

from __future__ import annotations

import gc
import importlib.util
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

from measuring.spec import Counts, Spec

CHILD = Path(__file__).resolve().parent / "child.py"


class NotMeasuredError(Exception):
    """The error of a subject that cannot run here. The message names the missing requirement."""


class Subject(Protocol):
    name: str
    family: str
    """The client library. The report shows ratios between libraries. After a run, a consumer of
    another library reads the messages back to verify them."""
    share: float
    """The fraction of the messages that this subject gets. Slow subjects get fewer."""
    warming: float
    """The fraction of the messages for the warm-up before the measured run."""
    environment: Mapping[str, str]

    def command(self, spec: Spec) -> list[str]:
        """Return the command of the child process. Raises NotMeasuredError.

        The process prints `begin` and `end`, each on a line, before and after the measured part,
        and then its Counts as JSON.
        """
        ...


class Meter:
    """A context manager that measures this process and notifies the parent process."""

    def __init__(self, announce: bool = True) -> None:
        self.counts = Counts()
        self._announce = announce

    def __enter__(self) -> Self:
        gc.collect()
        self._say("begin")
        self._ended = 0.0
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.counts.cpu_s = time.process_time() - self._cpu
        self.counts.wall_s = (self._ended or time.perf_counter()) - self._wall
        self._say("end")

    def complete(self, messages: int, size: int) -> None:
        """Stop the wall clock, because the last message was received and its value read."""
        self._ended = time.perf_counter()
        self.counts.messages, self.counts.bytes = messages, size

    def arrived(self, messages: int) -> None:
        """Restart the wall clock, because the first messages have arrived and the setup is over."""
        self.counts.at_once = messages
        self._wall = time.perf_counter()

    def end_start(self) -> None:
        """Count the CPU time up to now as that of the start, and not of the messages."""
        now = time.process_time()
        self.counts.figures["start_ms"] = (now - self._cpu) * 1000
        self._cpu = now

    def _say(self, line: str) -> None:
        if self._announce:
            print(line, flush=True)


async def read_one_by_one(consumer: Any, first: Any, count: int, meter: Meter) -> None:
    """Read the records after `first` by `async for`, and take the length of each value."""
    meter.arrived(1)
    seen, size = 1, len(first.value)
    while seen < count:
        async for record in consumer:
            size += len(record.value)
            seen += 1
            if seen == count:
                break
    meter.complete(seen, size)


async def read_with_stats(consumer: Any, first: Any, count: int, meter: Meter) -> None:
    """Do the same as `read_one_by_one` in the loop of aiokafka's own benchmark."""
    meter.arrived(1)
    stats = [{"count": 1, "size": len(first.value)}]
    if count > 1:
        async for record in consumer:
            stats[-1]["count"] += 1
            stats[-1]["size"] += len(record.value)
            if stats[-1]["count"] >= count:
                break
    meter.complete(stats[-1]["count"], stats[-1]["size"])


class PythonSubject(ABC):
    """A Python client. Only the child process imports it."""

    name: ClassVar[str]
    family: ClassVar[str]
    requires: ClassVar[str]
    """The name of the module that must be installed."""
    share: ClassVar[float] = 1.0
    warming: ClassVar[float] = 0.1
    environment: ClassVar[Mapping[str, str]] = {}

    def command(self, spec: Spec) -> list[str]:
        if importlib.util.find_spec(self.requires) is None:
            raise NotMeasuredError(f"{self.requires} is not installed.")
        kind = type(self)
        place = f"{kind.__module__}:{kind.__qualname__}"
        return [sys.executable, str(CHILD), place, *spec.arguments()]

    def run(self, spec: Spec) -> Counts:
        """Run the workload in the child process: once to warm up, and once measured."""
        if spec.warm_count:
            self.work(spec.warming(), Meter(announce=False))
        meter = Meter()
        self.work(spec, meter)
        return meter.counts

    @abstractmethod
    def work(self, spec: Spec, meter: Meter) -> None:
        """Do the work, enter `meter` for the measured part, and set `meter.counts`."""
