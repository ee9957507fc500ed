"""Run every check and every test, one step after the other, and end in one summary.

The tests of a step run in two worker processes, `--workers N` in another number. `--only NAME` runs
one step. `--quick` runs the linters and the tests that are quick. `--all` runs the whole suite on
Python 3.11 as well, with the lowest versions of the dependencies, and in each kind of event loop.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEWEST = ".venv/bin/python"
OLDEST = ".venv-3.11/bin/python"
# Tests that run on Python 3.11 in pure mode. Of `behavior`, only those without a real Kafka run.
PURE = ["tests/unit/record", "tests/unit/producer", "tests/unit/consumer", "tests/behavior"]
# Tests that run on Python 3.11 in native mode, because `await` works differently before 3.12.
AWAITING = [
    "tests/unit/producer",
    "tests/unit/consumer/delivery/test_cursor.py",
    "tests/behavior/producer",
]
# Tests that also run with the eager task factory: those of all objects with a lifecycle.
LIVES = [
    "tests/unit/cluster",
    "tests/unit/group",
    "tests/unit/patterns",
    "tests/unit/producer",
    "tests/unit/consumer",
]
# Kinds of event loops, see tests/harness/loops.py.
LOOP = "AIOKCLIENT_TEST_LOOP"
SLOWEST = 20


@dataclass
class Step:
    name: str
    commands: list[list[str]]
    env: dict[str, str] = field(default_factory=dict)
    junit: bool = False
    ok: bool = False
    seconds: float = 0.0
    processor_seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    tests: list[tuple[float, str]] = field(default_factory=list)
    """Seconds and name of each test, with its fixtures."""

    def run(self) -> None:
        print(f"\n=== {self.name}", flush=True)
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "junit.xml")
            extra = [f"--junitxml={report}"] if self.junit else []
            self.ok = all(self._execute([*command, *extra]) for command in self.commands)
            if self.junit:
                self._count(report)
        self.seconds = time.monotonic() - began

    def _execute(self, command: list[str]) -> bool:
        """Run the command, add its processor time, and return whether it succeeded."""
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **self.env})
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.processor_seconds += used.ru_utime + used.ru_stime
        return process.returncode == 0

    def _count(self, report: Path) -> None:
        if not report.exists():
            self.failed = 1
            return
        root = ET.parse(report).getroot()
        for suite in root.iter("testsuite"):
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            self.failed += failed
            self.skipped += skipped
            self.passed += int(suite.get("tests", 0)) - failed - skipped
        for case in root.iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            self.tests.append((float(case.get("time", 0)), name))


def lint() -> Step:
    commands = [
        [NEWEST, "-m", "ruff", "check", "."],
        [NEWEST, "-m", "ruff", "format", "--check", "."],
        [NEWEST, "-m", "mypy"],
        [".venv/bin/lint-imports"],
    ]
    return Step("lint", commands)


def quick_steps(workers: int) -> list[Step]:
    chosen = ["-m", "not kafka and not java and not slow", "tests"]
    command = [NEWEST, "-m", "pytest", "-q", f"--numprocesses={workers}", *chosen]
    return [lint(), Step("tests, quick", [command], junit=True)]


def steps(everything: bool, workers: int) -> list[Step]:
    pytest = ["-m", "pytest", "-q", f"--numprocesses={workers}"]
    pure = {"AIOKCLIENT_PURE": "1"}
    found = [lint(), Step("tests", [[NEWEST, *pytest, "tests"]], junit=True)]
    if everything:
        found.append(Step("package", [[NEWEST, ".ci/check-package"]]))
        found.append(Step("tests, pure", [[NEWEST, *pytest, "tests"]], pure, junit=True))
        found.append(Step("tests, 3.11", [[OLDEST, *pytest, "tests"]], junit=True))
        for loop in ("eager", "uvloop"):
            env = {LOOP: loop}
            found.append(Step(f"tests, {loop}", [[NEWEST, *pytest, "tests"]], env, junit=True))
        env = {LOOP: "debug", "PYTHONDEVMODE": "1"}
        found.append(Step("tests, debug", [[NEWEST, *pytest, "tests"]], env, junit=True))
    else:
        chosen = ["-m", "not kafka and not java", *LIVES]
        env = {LOOP: "eager"}
        found.append(Step("tests, eager", [[NEWEST, *pytest, *chosen]], env, junit=True))
        chosen = ["-m", "not kafka and not java", *AWAITING]
        found.append(Step("tests, 3.11", [[OLDEST, *pytest, *chosen]], junit=True))
    selection = ["-m", "not kafka and not java", *PURE]
    found.append(Step("tests, 3.11 pure", [[OLDEST, *pytest, *selection]], pure, junit=True))
    return found


def show(chosen: list[Step]) -> None:
    """Print the slowest tests, a table of the steps, and the sums."""
    tests = sorted(((*test, step.name) for step in chosen for test in step.tests), reverse=True)
    print(f"\nthe slowest {SLOWEST} tests, in seconds")
    for seconds, test, name in tests[:SLOWEST]:
        print(f"{seconds:8.1f}  {test} ({name})")
    titles = ("step", "result", "passed", "failed", "skipped", "seconds", "processor")
    print("\n{:<20}{:<8}{:>8}{:>8}{:>9}{:>9}{:>11}".format(*titles))
    for s in chosen:
        counts = f"{s.passed:>8}{s.failed:>8}{s.skipped:>9}"
        times = f"{s.seconds:>9.0f}{s.processor_seconds:>11.0f}"
        print(f"{s.name:<20}{'ok' if s.ok else 'FAILED':<8}{counts}{times}")
    passed = sum(s.passed for s in chosen) + sum(s.ok and not s.junit for s in chosen)
    failed = sum(s.failed or (not s.ok) for s in chosen)
    skipped = sum(s.skipped for s in chosen)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    workers = options.workers
    found = quick_steps(workers) if options.quick else steps(options.all, workers)
    chosen = [step for step in found if options.only in (None, step.name)]
    for step in chosen:
        step.run()
    show(chosen)
    return 0 if chosen and all(s.ok for s in chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
