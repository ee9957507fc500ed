"""How much CPU time and memory does a group of 200 members in one process take?

The members join at the same time, and divide a topic of 1,000 empty partitions. The group is
settled when each partition is assigned to one member, and all members have equally many. Afterwards
the members only send heartbeats every three seconds and wait for records. "quiet" is the CPU time
of the process in this state, in ms per second. "MiB" is the growth of the process's memory until
all members have settled.

    python benchmarks/members.py [--count N] [--runs N] [--cases eager,cooperative,KIP-848]
"""

import itertools
import sys
from dataclasses import replace

from measuring import options
from measuring.brokers import Brokers
from measuring.group import set_times
from measuring.options import Options
from measuring.report import Report, Table, number
from measuring.runner import Job, Run, rounds, run_child
from measuring.spec import Spec
from scale import SMALL_INDEXES
from subjects.group_members import KIP_848, PROTOCOLS
from subjects.many_members import MANY

COUNT = 200
SHARE = 5
"""Partitions for each member."""
RUNS = 2
"""Largest number of runs, because each one takes several seconds."""
SESSION_MS, HEARTBEAT_MS = 45_000, 3_000
NUMBERS = itertools.count()
FIGURES = {
    "settled s": "settled_s",
    "CPU s": "settled_cpu_s",
    "MiB": "more_mib",
    "quiet CPU ms/s": "quiet_ms",
}


def execute(job: Job) -> Run:
    """Run the job in a new group."""
    group = f"{job.spec.topic}-{next(NUMBERS)}"
    if job.label == KIP_848:
        set_times(job.spec.bootstrap, [group], SESSION_MS, HEARTBEAT_MS)
    return run_child(job.subject, replace(job.spec, group=group))


def measure(given: Options, brokers: Brokers) -> Report:
    partitions = given.count * SHARE
    topic = brokers.new_topic(partitions, SMALL_INDEXES)
    same = Spec(bootstrap=brokers.bootstrap, topic=topic, count=given.count, partitions=partitions)
    jobs = [
        Job(subject, replace(same, mode=protocol), protocol)
        for protocol in filter(given.wanted, PROTOCOLS)
        for subject in given.chosen(MANY)
        if protocol in subject.protocols
    ]
    found = rounds(jobs, min(given.runs, RUNS), execute)
    table = Table(
        f"{given.count} members of a group in one process", ["client", "protocol", *FIGURES]
    )
    for (name, protocol), row in found.items():
        table.rows.append([name, protocol, *(number(row.figure(key)) for key in FIGURES.values())])
    report = Report(__doc__)
    report.add("members", found, table)
    brokers.delete(topic)
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
