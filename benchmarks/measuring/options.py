"""The command line that all benchmarks share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from measuring.brokers import Brokers, nowhere, running
from measuring.report import Report
from measuring.subject import Subject


@dataclass(frozen=True)
class Options:
    count: int
    runs: int = 5
    cases: str = ""
    only: str = ""

    def chosen(self, subjects: Iterable[Subject]) -> list[Subject]:
        """Return the subjects whose names contain one of the texts of `only`."""
        texts = [text.strip() for text in self.only.split(",")]
        return [each for each in subjects if any(text in each.name for text in texts)]

    def wanted(self, case: str) -> bool:
        return not self.cases or case in [each.strip() for each in self.cases.split(",")]


class Benchmark(Protocol):
    """A benchmark module, with its question, a number of messages, and `measure`."""

    __doc__: str
    COUNT: int
    measure: Callable[[Options, Brokers], Report]


def main(benchmark: Benchmark, *, kafka: bool = True) -> int:
    """Run one benchmark from the command line: measure, print, and save if requested.

    With `kafka=False`, no broker is started, because the benchmark needs none.
    """
    parser = argparse.ArgumentParser(description=benchmark.__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=benchmark.COUNT, help="messages in a run")
    parser.add_argument("--runs", type=int, default=5, help="runs of each; the tables show medians")
    parser.add_argument("--cases", default="", help="cases to measure, separated by commas")
    parser.add_argument(
        "--only", default="", help="subjects with one of these texts in their names"
    )
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--bootstrap", help="a Kafka of your own; otherwise one is started")
    given = parser.parse_args()
    options = Options(given.count, given.runs, given.cases, given.only)
    place = running(given.bootstrap) if kafka else nowhere()
    with place as brokers:
        report = benchmark.measure(options, brokers)
    for table in report.tables:
        print(table.text())
    if given.json:
        report.save(given.json)
    return int(bool(report.failed))


def this(name: str) -> Benchmark:
    """Return the module with this name as a Benchmark."""
    module: Benchmark = sys.modules[name]  # type: ignore[assignment]
    return module
