"""What does a start of the command line cost?

Each command is a process of its own, whose output is a pipe. The CPU time, user and system, is that
of the whole process from its start to its end, and the minimum of all runs. The peak is that of the
resident memory, and at least that of a bare interpreter, which starts each process.

    python benchmarks/command_line.py [--runs N] [--bootstrap HOST:PORT]

The library is installed from a wheel, in an environment without anything else. The variable
AIOKCLIENT_PYTHON names an interpreter that has it, instead.
"""

from __future__ import annotations

import os
import sys

from measuring import options
from measuring.brokers import Brokers
from measuring.options import Options
from measuring.report import Report, Table, number
from measuring.runner import Job, Run, RunFailedError, rounds
from measuring.spec import Spec
from subjects.commands import COMMANDS, Own, run_command

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
    brokers.delete(topic)
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
