"""Running subjects as child processes, one at a time.

The runs are in rounds, so that changes of the machine over time affect all subjects.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from measuring.brokers import Brokers
from measuring.spec import Counts, Spec
from measuring.subject import NotMeasuredError, Subject

TIMEOUT_S = 90.0
FAILURES = 2
"""Number of failed runs of a job that are repeated. After one more failure, the job is left out."""


class RunFailedError(Exception):
    """A child process failed, hung, or did not do its work."""


@dataclass
class Run:
    counts: Counts
    broker_cpu_s: float | None


@dataclass
class Measurement:
    """All runs of one subject with one spec, and their medians."""

    name: str
    family: str
    runs: list[Run] = field(default_factory=list)
    missing: str = ""
    """The reason why there are no runs."""
    failures: int = 0

    @property
    def failed(self) -> bool:
        """Whether the subject is left out because its runs failed."""
        return self.failures > FAILURES

    def median(self, figure: Callable[[Run], float | None]) -> float | None:
        found = [value for value in map(figure, self.runs) if value is not None]
        return statistics.median(found) if found else None

    @property
    def messages(self) -> float | None:
        """Thousands of messages in a run."""
        return self.median(lambda run: run.counts.messages / 1e3)

    @property
    def cpu(self) -> float | None:
        """CPU seconds of the client per million messages, which are microseconds per message."""
        return self.median(lambda run: run.counts.cpu_s / run.counts.messages * 1e6)

    @property
    def rate(self) -> float | None:
        """Thousands of messages per second."""
        return self.median(lambda run: run.counts.rate)

    @property
    def broker(self) -> float | None:
        """CPU seconds of the brokers per million messages."""
        return self.median(
            lambda run: run.broker_cpu_s and run.broker_cpu_s / run.counts.messages * 1e6
        )

    def figure(self, name: str) -> float | None:
        return self.median(lambda run: run.counts.figures.get(name))

    def numbers(self) -> dict[str, float]:
        """All medians by name."""
        found = {"cpu": self.cpu, "rate": self.rate, "broker": self.broker}
        names = self.runs[0].counts.figures if self.runs else ()
        found |= {name: self.figure(name) for name in names}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class Job:
    """A subject with a workload. `label` distinguishes jobs of the same subject."""

    subject: Subject
    spec: Spec
    label: str = ""

    def sized(self) -> Spec:
        """Return the spec with the subject's numbers of measured and of warm-up messages."""
        count = max(1, int(self.spec.count * self.subject.share))
        return replace(self.spec, count=count, warm_count=int(count * self.subject.warming) or 1)


Execute = Callable[[Job], Run]


def rounds(jobs: Sequence[Job], runs: int, execute: Execute) -> dict[tuple[str, str], Measurement]:
    """Run each job `runs` times, in interleaved rounds.

    Each key of the result is a pair: the subject's name, and the job's label.
    """
    found = {
        (job.subject.name, job.label): Measurement(job.subject.name, job.subject.family)
        for job in jobs
    }
    for number in range(runs):
        turn = number % len(jobs) if jobs else 0
        for job in [*jobs[turn:], *jobs[:turn]]:
            measurement = found[job.subject.name, job.label]
            if measurement.missing:
                continue
            try:
                measurement.runs.append(_execute(job, execute, measurement))
            except NotMeasuredError as error:
                measurement.missing = str(error)
            except RunFailedError:
                measurement.missing = f"{measurement.failures} runs failed"
                measurement.runs.clear()
            say(f"{number + 1}/{runs} {job.subject.name} {job.label}: {shown(measurement)}")
    return found


def _execute(job: Job, execute: Execute, measurement: Measurement) -> Run:
    while True:
        try:
            return execute(job)
        except RunFailedError as error:
            measurement.failures += 1
            print(f"FAILED: {job.label} {error}", file=sys.stderr, flush=True)
            if measurement.failed:
                raise


def shown(measurement: Measurement) -> str:
    if not measurement.runs:
        return f"not measured: {measurement.missing}"
    counts = measurement.runs[-1].counts
    return f"{counts.cpu_s / counts.messages * 1e6:.2f} us CPU per message"


def say(line: str) -> None:
    if os.environ.get("BENCH_QUIET", "0") == "0":
        print(line, file=sys.stderr, flush=True)


def run_child(subject: Subject, spec: Spec, brokers: Brokers | None = None) -> Run:
    """Run one child process to its end. Raises NotMeasuredError and RunFailedError."""
    command = subject.command(spec)
    environment = {**os.environ, **subject.environment}
    # Without bytecode files, each import would compile its module again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    errors: list[str] = []
    drain = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
    drain.start()
    timer = threading.Timer(TIMEOUT_S, process.kill)
    timer.start()
    try:
        run = _listen(process, brokers)
        code = process.wait()
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        drain.join()
    if code != 0 or run is None:
        tail = "".join(errors)[-3000:]
        raise RunFailedError(f"{subject.name} ended with {code}:\n{tail}")
    if run.counts.messages != spec.count:
        raise RunFailedError(f"{subject.name}: {run.counts.messages} messages, not {spec.count}")
    return run


def _listen(process: subprocess.Popen[str], brokers: Brokers | None) -> Run | None:
    before = after = None
    for line in process.stdout or ():
        if line == "begin\n":
            before = brokers.cpu_s() if brokers else None
        elif line == "end\n":
            after = brokers.cpu_s() if brokers else None
        elif line.startswith("{"):
            used = after - before if before is not None and after is not None else None
            return Run(Counts(**json.loads(line)), used)
    return None
