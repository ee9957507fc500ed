"""How much time and memory does a program take from the import to the first message?

A new interpreter imports the library, starts a producer, sends one message and waits for its
outcome. The import of asyncio is included if the library needs it. The start of the interpreter
itself is not included.

    python benchmarks/startup.py [--runs N] [--bootstrap HOST:PORT]
"""

import sys

from measuring import options
from measuring.brokers import Brokers
from measuring.options import Options
from measuring.report import Report, Table, number
from measuring.runner import Job, rounds, run_child
from measuring.spec import Spec
from subjects.starting import STARTS

COUNT = 1
FIGURES = {
    "import ms": "import_ms",
    "import CPU ms": "import_cpu_ms",
    "first message ms": "first_message_ms",
    "first message CPU ms": "first_message_cpu_ms",
    "resident MiB": "memory_mib",
    "of that by it MiB": "more_mib",
}


def measure(given: Options, brokers: Brokers) -> Report:
    topic = brokers.new_topic(1)
    spec = Spec(bootstrap=brokers.bootstrap, topic=topic, count=1, partitions=1)
    jobs = [Job(subject, spec) for subject in given.chosen(STARTS)]
    for job in jobs:
        run_child(job.subject, spec)  # The first import compiles the modules.
    found = rounds(jobs, given.runs, lambda job: run_child(job.subject, job.spec, brokers))
    table = Table("From import to the first message", ["library", *FIGURES])
    for row in found.values():
        table.rows.append([row.name, *(number(row.figure(name), 1) for name in FIGURES.values())])
    report = Report(__doc__)
    report.add("startup", found, table)
    brokers.delete(topic)
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
