"""What do a start of the command line and a line through its pipe cost?

Each command is a process of its own, whose output is a pipe. The CPU time, user and system, is that
of the whole process from its start to its end, and the minimum of all runs. The peak is that of the
resident memory, and at least that of a bare interpreter, which starts each process.

The second table is of lines of 100 bytes, from a pipe into a topic and from a topic into a pipe,
beside kcat. Its rates and CPU times include the start.

    python benchmarks/command_line.py [--runs N] [--bootstrap HOST:PORT]

The library is installed from a wheel, in an environment without anything else. The variable
AIOKCLIENT_PYTHON names an interpreter that has it, instead.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Collection

from measuring import options
from measuring.brokers import Brokers
from measuring.options import Options
from measuring.report import Report, Table, number
from measuring.runner import Job, Measurement, Run, RunFailedError, rounds
from measuring.spec import Spec
from subjects.commands import COMMANDS, CONSUMING, PRODUCING, Own, run_command

COUNT = 1
LEAST_RUNS = 12
BARE = "python -c pass"
TARGETS = {
    "aiokclient --version": (2.5, None),
    "aiokclient --help": (2.5, None),
    "completion of fixed words": (2.5, None),
    "completion from the cache": (2.5, None),
    "aiokclient topics list": (11.0, 40.0),
}
"""The most that a command may take: times the CPU of a bare interpreter, and MiB."""
LINES = 1_000_000
LEAST_RATE = 0.8
"""The least lines a second, as a fraction of those of kcat."""


def measure(given: Options, brokers: Brokers) -> Report:
    topic = brokers.new_topic(1)
    spec = Spec(bootstrap=brokers.bootstrap, topic=topic, count=1, partitions=1)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIOKCLIENT_")},
        "AIOKCLIENT_BOOTSTRAP_SERVERS": brokers.bootstrap,
        "XDG_CACHE_HOME": str(brokers.folder),
        # The first completion must fill the cache, however loaded the machine is.
        "AIOKCLIENT_COMPLETION_TIMEOUT": "30",
    }
    # Without bytecode, each run would compile all modules, and a development mode checks more.
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME"):
        environment.pop(name, None)
    jobs = [Job(subject, spec) for subject in given.chosen(COMMANDS)]

    def execute(job: Job) -> Run:
        run = run_command(job.subject.command(job.spec), environment)
        if isinstance(job.subject, Own) and not run.counts.figures["output_bytes"]:
            raise RunFailedError(f"{job.subject.name} has written nothing.")
        return run

    for job in jobs:  # The first run of each compiles the modules, and fills the cache.
        if isinstance(job.subject, Own):
            execute(job)
    found = rounds(jobs, max(given.runs, LEAST_RUNS if given.runs > 1 else 1), execute)
    for measured in found.values():
        measured.runs = sorted(measured.runs, key=lambda run: run.counts.cpu_s)[:1]
    bare = next((each.figure("cpu_ms") for each in found.values() if each.name == BARE), None)
    head = ["command", "CPU ms", "times python -c pass", "at most", "peak MiB", "at most"]
    table = Table("CPU and memory of a start", head)
    for row in found.values():
        cpu_ms, peak = row.figure("cpu_ms"), row.figure("peak_mib")
        times = cpu_ms / bare if cpu_ms and bare else None
        most, most_mib = TARGETS.get(row.name, (None, None))
        figures = (cpu_ms, times, most, peak, most_mib)
        table.rows.append([row.name, *(number(each, 1) for each in figures)])
    report = Report(__doc__)
    report.add("command line", found, table)
    if given.chosen(PRODUCING) or given.chosen(CONSUMING):
        measure_lines(given, brokers, environment, report)
    brokers.delete(topic)
    return report


def measure_lines(
    given: Options, brokers: Brokers, environment: dict[str, str], report: Report
) -> None:
    """Add a table of the lines that go from a pipe into a topic, and from a topic into a pipe."""
    count = LINES if given.runs > 1 else 1_000
    pool = brokers.payloads(99).read_bytes().replace(b"\n", b" ")
    lines = [pool[start : start + 99] + b"\n" for start in range(0, len(pool) - 98, 99)]
    with tempfile.NamedTemporaryFile() as file:
        for index in range(count):
            file.write(lines[index % len(lines)])
        file.flush()
        topic = brokers.new_topic(1)
        spec = Spec(bootstrap=brokers.bootstrap, topic=topic, count=count, partitions=1)

        def execute(job: Job) -> Run:
            subject = job.subject
            source = file.name if subject in PRODUCING else ""
            variables = {**environment, **subject.environment}
            run = run_command(subject.command(spec), variables, source, count)
            if not source and run.counts.figures["output_bytes"] != 100 * count:
                raise RunFailedError(f"{subject.name} has not written all lines.")
            return run

        # What was produced is consumed.
        for direction, subjects in (("from", PRODUCING), ("into", CONSUMING)):
            chosen = given.chosen(subjects)
            found = rounds([Job(each, spec) for each in chosen], given.runs, execute)
            title = f"{count:,} lines of 100 bytes {direction} a pipe"
            report.add(title, found, table_of_lines(title, found.values()))
        brokers.delete(topic)


def table_of_lines(title: str, found: Collection[Measurement]) -> Table:
    """Return a table with the rates beside that of kcat."""
    head = ["command", "lines a second", "times kcat", "at least", "CPU s", "peak MiB"]
    table = Table(title, head)
    rates = {each.name: best_rate(each) for each in found}
    kcat = next((rate for name, rate in rates.items() if name.startswith("kcat")), None)
    for row in found:
        rate, cpu_ms = rates[row.name], row.figure("cpu_ms")
        times = rate / kcat if rate and kcat else None
        least = LEAST_RATE if row.name.startswith("aiokclient") else None
        cpu_s = cpu_ms / 1e3 if cpu_ms else None
        figures = (rate, times, least, cpu_s, row.figure("peak_mib"))
        table.rows.append([row.name, *map(number, figures)])
    return table


def best_rate(measured: Measurement) -> float | None:
    """Return the highest rate of all runs, because other work on the machine only lowers it."""
    rates = [run.counts.messages / run.counts.wall_s for run in measured.runs]
    return max(rates, default=None)


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
