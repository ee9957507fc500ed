"""How long does the first login by each SASL mechanism take, and how long is the loop blocked?

A new interpreter imports the library, makes a client, and starts it. "First" is the time from the
start of this client to its first metadata response, in a process that has not connected before.
"Later" is the same time for the next clients of that process, with new credentials. "Loop held" is
the CPU time of the longest iteration of the event loop before the metadata response; the highest
value of all runs counts. A broker is started for this benchmark. SCRAM has 4096 iterations.

    python benchmarks/logins.py [--runs N] [--cases ...]
"""

import contextlib
import sys

from measuring import options
from measuring.brokers import Brokers
from measuring.comparison import Found
from measuring.options import Options
from measuring.report import Report, Table, number
from measuring.runner import Job, Measurement, rounds, run_child
from measuring.secured import LOGINS, NO_KERBEROS, Login, secured
from measuring.spec import Spec
from measuring.subject import NotMeasuredError
from subjects.connecting import CONNECTING

COUNT = 1
LIMIT_MS = 10.0
LIMIT, LONGEST = "a limit of 10 ms", "aiokclient, the mechanism that takes longest"
HEAD = (
    *("login", "aiokclient first ms", "later ms", "loop held ms", "later, loop held ms"),
    *("aiokafka first ms", "later ms", "loop held ms", "later, loop held ms"),
    *("confluent-kafka first ms", "later ms"),
)
FIGURES = ("first_ms", "later_ms")
HELD = ("held_ms", "later_held_ms")


def highest(measurement: Measurement, figure: str) -> float | None:
    """Return the highest value of a figure in all runs."""
    return max((run.counts.figures[figure] for run in measurement.runs), default=None)


def table_of(found: Found, logins: list[Login]) -> Table:
    table = Table("The first connection", HEAD)
    for login in logins:
        cells = [login.name]
        for name in ("aiokclient", "aiokafka", "confluent-kafka"):
            of = found.get((name, login.name)) or Measurement(name, name)
            cells += [number(of.figure(figure), 1) for figure in FIGURES]
            if name != "confluent-kafka":
                cells += [number(highest(of, figure), 1) for figure in HELD]
        table.rows.append(cells)
    return table


def measure(given: Options, _: Brokers) -> Report:
    report = Report(__doc__)
    logins = [login for login in LOGINS if given.wanted(login.name)]
    with secured() as brokers:
        jobs = [
            Job(subject, brokers.over(Spec(count=1), login), login.name)
            for login in logins
            for subject in given.chosen(CONNECTING)
        ]
        for job in jobs:
            if job.subject is CONNECTING[0]:
                with contextlib.suppress(NotMeasuredError):
                    # Not measured, because the first login at a broker is slow.
                    run_child(job.subject, job.spec)
        found = rounds(jobs, given.runs, lambda job: run_child(job.subject, job.spec, brokers))
        table = table_of(found, logins)
        if NO_KERBEROS:
            table.notes = (f"GSSAPI: not measured. Missing: {NO_KERBEROS}.",)
    report.add("logins", found, table)
    held = [highest(of, "held_ms") for of in found.values() if of.name == "aiokclient"]
    of_limit = {LONGEST: {"held_ms": max(filter(None, held), default=0.0)}}
    report.numbers["logins"] |= {**of_limit, LIMIT: {"held_ms": LIMIT_MS}}
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__), kafka=False))
