"""Who is measured: a client library used in one way."""

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
    """What a subject needs is not on this machine; the message says what."""


class Subject(Protocol):
    name: str
    family: str
    """The library. Ratios are taken against families; a run is read back by another one."""
    share: float
    """How much of the messages it gets: figures are per message, and some are slow."""
    warming: float
    """The part of the messages that go before the run that counts."""
    environment: Mapping[str, str]

    def command(self, spec: Spec) -> list[str]:
        """What to run as a child process; raises NotMeasuredError.

        It prints `begin` and `end` around what counts, each on a line, and then its Counts as JSON.
        """
        ...


class Meter:
    """Measures this process while it is entered, and tells the parent so."""

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
        """The last message is there, and its value touched: the wall clock ends."""
        self._ended = time.perf_counter()
        self.counts.messages, self.counts.bytes = messages, size

    def arrived(self, messages: int) -> None:
        """The first messages are there: the wall clock begins anew, setting up is over."""
        self.counts.at_once = messages
        self._wall = time.perf_counter()

    def _say(self, line: str) -> None:
        if self._announce:
            print(line, flush=True)


async def read_one_by_one(consumer: Any, first: Any, count: int, meter: Meter) -> None:
    """Goes on by `async for` after the `first` record, and looks at the value of each."""
    meter.arrived(1)
    seen, size = 1, len(first.value)
    while seen < count:
        async for record in consumer:
            size += len(record.value)
            seen += 1
            if seen == count:
                break
    meter.complete(seen, size)


class PythonSubject(ABC):
    """A client for Python. It is imported in the child alone, by `work`."""

    name: ClassVar[str]
    family: ClassVar[str]
    requires: ClassVar[str]
    """The module that has to be there."""
    share: ClassVar[float] = 1.0
    warming: ClassVar[float] = 0.1
    environment: ClassVar[Mapping[str, str]] = {}

    def command(self, spec: Spec) -> list[str]:
        if importlib.util.find_spec(self.requires) is None:
            raise NotMeasuredError(f"{self.requires} is not installed")
        kind = type(self)
        place = f"{kind.__module__}:{kind.__qualname__}"
        return [sys.executable, str(CHILD), place, *spec.arguments()]

    def run(self, spec: Spec) -> Counts:
        """In the child: once to warm up, once that counts."""
        if spec.warm_count:
            self.work(spec.warming(), Meter(announce=False))
        meter = Meter()
        self.work(spec, meter)
        return meter.counts

    @abstractmethod
    def work(self, spec: Spec, meter: Meter) -> None:
        """Does the work, entering `meter` for what counts, and fills in `meter.counts`."""
