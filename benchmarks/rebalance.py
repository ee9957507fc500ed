"""How long is a group interrupted when a member joins, and when a member dies?

Three members read twelve partitions, each of which receives a record every 50 ms. A fourth member
joins. Then the oldest member, which often leads the group, is killed by SIGKILL. "First record" is
the time until the first record is read from one of the partitions that move to another member; "all
of them" is the time until a record was read from each of these partitions. A partition counts as
stopped if one of its records was not read for longer than 100 ms; the partitions of a killed member
are not counted, because they must stop. All clients have a session timeout of 3,000 ms, which is
part of the time after a death, and a heartbeat interval of 500 ms; with KIP-848 the brokers set
both. Four groups run at the same time on one Kafka cluster, and read the same topic.

    python benchmarks/rebalance.py [--runs N] [--cases eager,cooperative,KIP-848] [--only ...]
"""

import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from measuring import options
from measuring.brokers import Brokers
from measuring.comparison import Found
from measuring.group import (
    HEARTBEAT_MS,
    PROMPT_NS,
    SESSION_MS,
    Group,
    NotSettledError,
    Ticker,
    Trail,
    set_times,
)
from measuring.options import Options
from measuring.report import Report, Table, number
from measuring.runner import Job, Measurement, Run, say
from measuring.spec import Counts, Spec
from measuring.subject import NotMeasuredError
from subjects.group_members import KIP_848, MEMBERS, PROTOCOLS

COUNT = 3
"""Number of members before another one joins."""
PARTITIONS = 12
AT_A_TIME = 4
"""Number of groups at a time, which mostly wait for the session timeout of a killed member."""
APART_S = 0.5
"""Seconds between two events in different groups, so that they do not affect each other."""
FIGURES = {
    "first record ms": "first_ms",
    "all of them ms": "last_ms",
    "partitions stopped": "stopped",
    "longest stop ms": "longest_ms",
}
EVENTS = ("A member joins", "A member dies")

Events = dict[str, Measurement]


class Gate:
    """A lock that permits one event at a time."""

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def __call__(self, event: Callable[[], object]) -> None:
        with self._turn:
            event()
            time.sleep(APART_S)


def arrival(group: Group, gate: Gate) -> dict[str, float]:
    """Let one more member join, and return the figures."""
    member = group.make()
    member.prepare()
    gate(lambda: group.join(member))
    start, trail = member.joined_at, group.trail
    group.settle(start)
    mine = [partition for partition, owner in trail.owners().items() if owner == member.number]
    taken = [trail.taken_over(p, start, lambda who: who == member.number) for p in mine]
    return figures_of(trail, start, taken, ())


def death(group: Group, gate: Gate) -> dict[str, float]:
    """Kill the oldest member, and return the figures."""
    member, trail = group.members[0], group.trail
    gone = [partition for partition, owner in trail.owners().items() if owner == member.number]
    gate(lambda: group.kill(member))
    start = member.killed_at
    group.settle(start)
    taken = [trail.taken_over(p, start, lambda who: who != member.number) for p in gone]
    return figures_of(trail, start, taken, gone)


def figures_of(
    trail: Trail, start: int, taken: Sequence[int], aside: Collection[int]
) -> dict[str, float]:
    """Return the figures of an event at `start`.

    Members took over the moved partitions at the times `taken`. The partitions `aside` had to stop
    and are not counted.
    """
    waits = [wait for partition, wait in trail.waits(start).items() if partition not in aside]
    return {
        "first_ms": (min(taken) - start) / 1e6,
        "last_ms": (max(taken) - start) / 1e6,
        "stopped": sum(wait > PROMPT_NS for wait in waits),
        "longest_ms": max(waits) / 1e6,
    }


def live(job: Job, runs: int, gate: Gate) -> Events:
    """Run one group, in which a member joins and a member dies `runs` times. Return the figures."""
    name, family = job.subject.name, job.subject.family
    found = {event: Measurement(name, family) for event in EVENTS}
    try:
        with Group(job.subject, job.spec) as group:
            for member in [group.make() for _ in range(job.spec.count)]:
                member.prepare()
                group.join(member)
            group.settle()
            for number in range(runs):
                for event, happen in zip(EVENTS, (arrival, death), strict=True):
                    figures = happen(group, gate)
                    found[event].runs.append(Run(Counts(messages=1, figures=figures), None))
                    text = ", ".join(f"{what} {figures[key]:.0f}" for what, key in FIGURES.items())
                    say(f"{number + 1}/{runs} {name} {job.label}: {event.lower()}: {text}")
    except (NotMeasuredError, NotSettledError) as error:
        for measurement in found.values():
            measurement.missing = str(error)
        say(f"{name} {job.label}: {error}")
    return found


def jobs_for(given: Options, brokers: Brokers, topic: str) -> list[Job]:
    same = Spec(bootstrap=brokers.bootstrap, topic=topic, count=given.count, partitions=PARTITIONS)
    jobs = []
    for protocol in filter(given.wanted, PROTOCOLS):
        for subject in given.chosen(MEMBERS):
            if protocol in subject.protocols:
                group = f"{topic}-{subject.family}-{protocol}"
                jobs.append(Job(subject, replace(same, mode=protocol, group=group), protocol))
    return jobs


def measure(given: Options, brokers: Brokers) -> Report:
    # The partitions must divide evenly among the members, before and after the join.
    given = replace(given, count=COUNT)
    topic = brokers.new_topic(PARTITIONS)
    jobs, gate = jobs_for(given, brokers, topic), Gate()
    newer = [job.spec.group for job in jobs if job.label == KIP_848]
    if newer:
        set_times(brokers.bootstrap, newer, SESSION_MS, HEARTBEAT_MS)
    with Ticker(brokers.bootstrap, topic, PARTITIONS), ThreadPoolExecutor(AT_A_TIME) as threads:
        lives = list(threads.map(lambda job: live(job, given.runs, gate), jobs))
    report = Report(__doc__)
    for event in EVENTS:
        found: Found = {
            (job.subject.name, job.label): events[event]
            for job, events in zip(jobs, lives, strict=True)
        }
        report.add(f"rebalance: {event.lower()}", found, table_of(event, found))
    brokers.delete(topic)
    return report


def table_of(event: str, found: Found) -> Table:
    table = Table(event, ["client", "protocol", *FIGURES])
    for (name, protocol), row in found.items():
        if row.runs:
            cells = [number(row.figure(key), 0) for key in FIGURES.values()]
        else:
            cells = [f"not measured: {row.missing}", *[""] * (len(FIGURES) - 1)]
        table.rows.append([name, protocol, *cells])
    return table


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
