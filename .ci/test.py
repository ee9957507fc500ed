"""Run every check and every test, and print one summary at the end.

The steps run in two lanes at the same time, so that no processor is idle. The first lane runs the
tests that need Kafka or Java, which mostly wait for other processes. The second lane runs all other
tests, with a lower priority. A lane that has finished runs the remaining steps, which repeat parts
of the suite in other environments. The output of the first lane is shown immediately, and that of
each other step when the step ends.

The tests of a step run in two worker processes. Those of `--quick` run in three, because the quick
tests often wait. `--workers N` selects another number. `--only NAME` runs one step. `--all` runs
the whole suite on Python 3.11 as well, with the lowest versions of the dependencies, and in each
kind of event loop.

`--quick` runs, at the same time, the linters and the tests that tell most for their time: those of
single modules, of what a user relies on (on the embedded cluster), and of the rules for the whole
code base. It omits those that are slow, need Kafka or Java, draw their input (Hypothesis), or make
something fail (`tests/faults`). Its tests may take 80 processor seconds.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
NEWEST = ".venv/bin/python"
OLDEST = ".venv-3.11/bin/python"
SPARK = ".venv-spark/bin/python"
# Tests that run on Python 3.11 in pure mode: those of all code that also has a native form.
PURE = [
    "tests/unit/record",
    "tests/unit/producer",
    "tests/unit/consumer",
    "tests/behavior/producer",
    "tests/behavior/consumer",
]
# Tests that run on Python 3.11 in native mode, because `await` works differently before 3.12.
AWAITING = [
    "tests/unit/producer",
    "tests/unit/consumer/delivery/test_iterators.py",
    "tests/behavior/producer",
]
# Tests that also run with the eager task factory: those of all objects with a lifecycle.
LIVES = [
    "tests/unit/cluster",
    "tests/unit/group",
    "tests/unit/patterns",
    "tests/unit/producer",
    "tests/unit/consumer/fetching",
    "tests/unit/consumer/membership",
    "tests/unit/consumer/test_cancellation.py",
]
# Tests in the folders above that take long: tests of random and large groups, of the times for
# which the event loop is blocked, and those that run in each kind of event loop anyway. They run
# only once, on the newest Python, except with `--all`.
NEWEST_ONLY = [
    "tests/unit/cluster/metadata/test_huge_metadata.py",
    "tests/unit/cluster/metadata/test_large.py",
    "tests/unit/consumer/assignors/test_confluent.py",
    "tests/unit/consumer/assignors/test_every.py",
    "tests/unit/consumer/assignors/test_sticky.py",
    "tests/unit/consumer/membership/test_many_members.py",
    "tests/unit/consumer/test_loop_time.py",
    "tests/unit/group/test_loop_watch.py",
]
# Tests of LIVES that compare the native form of a send with the Python one, for random records: the
# kind of event loop makes no difference to them.
LOOP_INDEPENDENT = [
    "tests/unit/producer/test_native_sends.py",
    "tests/unit/producer/test_send_arrow.py",
]
# Tests of AWAITING that take long, and await what other tests await as well.
LONG_SENDS = ["tests/unit/producer/test_send_arrow.py", "tests/unit/producer/transaction"]
# Tests of PURE whose code has no native form: that of members of groups.
MEMBERS = ["tests/unit/consumer/assignors", "tests/unit/consumer/membership"]
# Kinds of event loops, see tests/harness/loops.py.
LOOP = "AIOKCLIENT_TEST_LOOP"
SLOWEST = 10
"""The number of the slowest tests of each step that are printed."""
NICENESS = 5
"""The niceness of the steps that run at the same time as the tests with brokers. Those tests have
timeouts, so other steps must not delay them.
"""


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
    """For each test, the seconds that it took, including its fixtures, and its name."""
    reasons: Counter[str] = field(default_factory=Counter)
    """The number of skipped tests for each reason."""

    def run(self, live: bool, niceness: int) -> None:
        """Run the commands until one fails.

        With `live`, show their output immediately, otherwise at the end.
        """
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, Path(folder, "output").open("w+b") as output:
            if live:
                show_title(self.name)
            report = Path(folder, "junit.xml")
            extra = [f"--junitxml={report}"] if self.junit else []
            file = None if live else output
            self.ok = all(
                self._execute([*command, *extra], file, niceness) for command in self.commands
            )
            if self.junit:
                self._count(report)
            if not live:
                output.seek(0)
                show_title(self.name, output.read())
        self.seconds = time.monotonic() - began

    def _execute(self, command: list[str], output: IO[bytes] | None, niceness: int) -> bool:
        """Run the command, add its processor time, and return whether it succeeded."""
        environment = {**os.environ, **self.env}
        # This variable would make every process compile the project and its tests again.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        if niceness:
            os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
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
            self.reasons.update(each.get("message", "") for each in case.iter("skipped"))


def lint() -> Step:
    commands = [
        [NEWEST, "-m", "ruff", "check", "."],
        [NEWEST, "-m", "ruff", "format", "--check", "."],
        [NEWEST, "-m", "mypy"],
        [".venv/bin/lint-imports"],
    ]
    return Step("lint", commands)


Lanes = list[list[Step]]
"""One list of steps for each lane.

The lanes run at the same time, and each lane runs its steps in order.
"""

BROKERS = "kafka or java"
QUICK = f"not ({BROKERS} or slow or hypothesis)"
"""Both are known to tests/conftest.py, which does not import the files without such tests."""
PYTEST = ["-m", "pytest", "-q"]


def quick_lanes(workers: int) -> Lanes:
    chosen = [f"--numprocesses={workers}", "-m", QUICK, "--ignore=tests/faults", "tests"]
    tests = Step("tests, quick", [[NEWEST, *PYTEST, *chosen]], junit=True)
    return [[*compiled(), tests], [lint()]]


def compiled() -> list[Step]:
    """Return a step that imports all tests once, if that has not been done in this checkout.

    pytest rewrites the assertions of each test file and keeps the result. Without this step, all
    workers would do so at the same time.
    """
    if any(ROOT.glob("tests/unit/__pycache__/test_*-pytest-*.pyc")):
        return []
    collect = f'"{NEWEST}" {" ".join(PYTEST)} --collect-only tests > {os.devnull}'
    # With this variable, tests/conftest.py makes no tests of most of what it imports.
    return [Step("compile tests", [["sh", "-c", collect]], {"AIOKCLIENT_COMPILE": "1"})]


class Suites:
    """The steps that run the test suite, in several environments."""

    def __init__(self, workers: int) -> None:
        self._pytest = [*PYTEST, f"--numprocesses={workers}"]
        self.brokers: list[Step] = []
        self.others: list[Step] = []
        self.rest: list[Step] = []

    def add(self, name: str, python: str, env: dict[str, str]) -> None:
        """Add the tests with brokers to one lane, and the tests without brokers to the other."""
        command = [python, *self._pytest, "-m"]
        with_brokers = [*command, BROKERS, "tests"]
        self.brokers.append(Step(f"{name}, Kafka", [with_brokers], env, junit=True))
        self.others.append(Step(name, [[*command, f"not ({BROKERS})", "tests"]], env, junit=True))

    def add_some(
        self,
        name: str,
        python: str,
        env: dict[str, str],
        paths: list[str],
        omitted: Sequence[str] = (),
    ) -> None:
        """Add the tests in these paths that need no broker and are not in NEWEST_ONLY or `omitted`.

        A lane that has finished runs them.
        """
        ignored = [f"--ignore={path}" for path in (*NEWEST_ONLY, *omitted)]
        command = [python, *self._pytest, *ignored, "-m", f"not ({BROKERS})", *paths]
        self.rest.append(Step(name, [command], env, junit=True))


def lanes(everything: bool, workers: int) -> tuple[Lanes, list[Step]]:
    """Return the steps of each lane, and the steps for lanes that have finished."""
    suites = Suites(workers)
    pure = {"AIOKCLIENT_PURE": "1"}
    suites.others.append(lint())
    suites.add("tests", NEWEST, {})
    halved, thinned = ({} if everything else {"AIOKCLIENT_REPEATED": str(step)} for step in (2, 3))
    suites.add_some("tests, 3.11 pure", OLDEST, pure | halved, PURE, MEMBERS)
    if everything:
        suites.others.append(Step("package", [[NEWEST, ".ci/check-package"]]))
        suites.add("tests, pure", NEWEST, pure)
        suites.add("tests, 3.11", OLDEST, {})
        for loop in ("eager", "uvloop"):
            suites.add(f"tests, {loop}", NEWEST, {LOOP: loop})
        suites.add("tests, debug", NEWEST, {LOOP: "debug", "PYTHONDEVMODE": "1"})
    else:
        eager = {LOOP: "eager"} | thinned
        suites.add_some("tests, eager", NEWEST, eager, LIVES, LOOP_INDEPENDENT)
        suites.add_some("tests, 3.11", OLDEST, thinned, AWAITING, LONG_SENDS)
    # A worker process runs whole files, because each file starts Java virtual machines for Spark
    # and Kafka. tests/spark/conftest.py determines the order of the files.
    chosen = [f"--numprocesses={workers}", "--dist=loadfile", "--no-loadscope-reorder"]
    chosen += [] if everything else ["-m", "not long"]
    spark = [SPARK, *PYTEST, *chosen, "tests/spark"]
    suites.brokers.append(Step("tests, Spark", [spark], junit=True))
    return [[*compiled(), *suites.brokers], suites.others], suites.rest


output_lock = threading.Lock()


def show_title(name: str, output: bytes = b"") -> None:
    """Print the name of a step, and its output."""
    with output_lock:
        sys.stdout.write(f"\n=== {name}\n{output.decode(errors='replace')}")
        sys.stdout.flush()


def run(chosen: Sequence[list[Step]], rest: Sequence[Step], niceness: int) -> None:
    """Run the lanes at the same time. All lanes but the first run with this niceness."""
    interrupted = threading.Event()
    left = iter(rest)

    def run_lane(index: int) -> None:
        for step in chosen[index]:
            if not interrupted.is_set():
                step.run(live=not index, niceness=niceness if index else 0)
        while not interrupted.is_set() and (more := next(left, None)):
            more.run(live=False, niceness=niceness)

    with ThreadPoolExecutor(len(chosen)) as pool:
        try:
            list(pool.map(run_lane, range(len(chosen))))
        except KeyboardInterrupt:
            interrupted.set()
            raise


def show(chosen: list[Step]) -> None:
    """Print the slowest tests of each step, a table of the steps, and the sums."""
    for step in chosen:
        if step.tests:
            print(f"\nthe slowest tests of the step {step.name!r}, in seconds")
        for seconds, test in sorted(step.tests, reverse=True)[:SLOWEST]:
            print(f"{seconds:8.1f}  {test}")
    titles = ("step", "result", "passed", "failed", "skipped", "seconds", "processor")
    print("\n{:<20}{:<8}{:>8}{:>8}{:>9}{:>9}{:>11}".format(*titles))
    for s in chosen:
        counts = f"{s.passed:>8}{s.failed:>8}{s.skipped:>9}"
        times = f"{s.seconds:>9.0f}{s.processor_seconds:>11.0f}"
        print(f"{s.name:<20}{'ok' if s.ok else 'FAILED':<8}{counts}{times}")
    for s in chosen:
        for reason, count in s.reasons.most_common():
            print(f"skipped in {s.name}: {count} test(s): {reason}")
    passed = sum(s.passed for s in chosen) + sum(s.ok and not s.junit for s in chosen)
    failed = sum(s.failed or (not s.ok) for s in chosen)
    skipped = sum(s.skipped for s in chosen)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    workers = options.workers or (3 if options.quick else 2)
    found, rest = (quick_lanes(workers), []) if options.quick else lanes(options.all, workers)
    chosen = [step for lane in [*found, rest] for step in lane]
    if options.only:
        chosen = [step for step in chosen if step.name == options.only]
        found, rest = [chosen], []
    run(found, rest, 0 if options.quick else NICENESS)
    show(chosen)
    return 0 if chosen and all(s.ok for s in chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
