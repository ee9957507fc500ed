"""How much CPU time and time does a member of a share group take for its records?

One member accepts all records of a topic with one partition: in batches, of which the next request
accepts the last one, or one by one. Each response has 2,000 records at most, and so have those of
the plain consumer, of which one row polls lists, and one iterates. "Handlers" starts a task for
each record, in a scope that holds the record's lock, or calls the handler of a worker, 1,000 at a
time. "Consumers" are 20 members in one process that share six partitions. "CPU s/M" is the CPU time
of the client's process (user and system) per million messages, from the creation of the consumer to
its close, and the last messages are accepted before. "plain ÷" is the CPU time of the row, divided
by that of the plain consumer that polls: the goal is at most 2 with 100 B and 1.4 with 1 KB. "p50"
and "p99" are times from the release of a record to its next delivery, in a topic that has more
records.

    python benchmarks/share.py [--count N] [--runs N] [--cases "100 B,1 KB,release"] \
[--bootstrap HOST:PORT]
"""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from measuring import options
from measuring.brokers import Brokers
from measuring.filling import fill
from measuring.options import Options
from measuring.report import Report, Table, number, ratio
from measuring.runner import Job, Run, RunFailedError, rounds, run_child
from measuring.spec import Spec
from measuring.subject import Subject
from subjects import sharing
from subjects.programs import PROGRAMS

COUNT = 400_000
BATCH = 500
"""About how many records a batch of the topics has."""
BATCHES: tuple[Subject, ...] = (*sharing.BATCHES, *cast("tuple[Subject, ...]", PROGRAMS))
NUMBERS = itertools.count()


@dataclass(frozen=True)
class Case:
    """A workload of one size, with the subjects that run it."""

    name: str
    title: str
    subjects: Sequence[Subject]
    size: int = 100
    part: float = 1.0
    """Fraction of the usual number of messages."""
    partitions: int = 1
    surplus: int = 1
    """How many messages the topic has for each one that is counted."""


CASES = (
    Case("100 B", "Accepted in batches, 100 B", BATCHES),
    Case("1 KB", "Accepted in batches, 1 KB", BATCHES, 1_000, 0.25),
    Case("100 B one by one", "Accepted one by one, 100 B", sharing.SINGLE),
    Case("1 KB one by one", "Accepted one by one, 1 KB", sharing.SINGLE, 1_000, 0.25),
    Case("handlers", "Handlers, 1,000 at a time, 100 B", sharing.HANDLERS, part=0.25),
    Case("consumers", "20 consumers, 100 B", sharing.MEMBERS_OF_ONE, partitions=6),
    Case("release", "Released and delivered again", sharing.RELEASES, part=1 / 800, surplus=3),
)


class Topics:
    """The topics of a case, with the messages to be read, and a group for each run."""

    def __init__(self, brokers: Brokers, case: Case) -> None:
        self._brokers, self._case = brokers, case
        self._topics: dict[int, str] = {}

    def read_by(self, job: Job) -> Spec:
        """Return the spec of one run, which reads a topic whole in a group of its own."""
        spec = job.sized()
        for count in (spec.count, spec.warm_count):
            if count not in self._topics:
                topic = self._topics[count] = self._brokers.new_topic(self._case.partitions)
                fill(replace(spec, topic=topic, count=count * self._case.surplus))
        spec = replace(
            spec,
            topic=self._topics[spec.count],
            warm_topic=self._topics[spec.warm_count],
            group=f"{self._topics[spec.count]}-{next(NUMBERS)}",
        )
        asyncio.run(create_group(spec))
        return spec

    def close(self) -> None:
        """Delete the topics."""
        self._brokers.delete(*self._topics.values())


async def create_group(spec: Spec) -> None:
    """Create the share group of a run, which begins with the first records."""
    from aiokclient import Admin

    async with Admin(bootstrap_servers=spec.bootstrap) as admin:
        topics = {spec.topic, spec.warm_topic}
        (await admin.create_share_group(spec.group, topics, "earliest")).raise_for_errors()


def execute(brokers: Brokers, topics: Topics, job: Job) -> Run:
    spec = topics.read_by(job)
    run = run_child(job.subject, spec, brokers)
    if run.counts.bytes not in (0, spec.count * spec.size):
        raise RunFailedError(f"{job.subject.name} read {run.counts.bytes} bytes of values.")
    return run


def measure(given: Options, brokers: Brokers) -> Report:
    report = Report(__doc__)
    for case in CASES:
        if not given.wanted(case.name):
            continue
        spec = Spec(
            bootstrap=brokers.bootstrap,
            mode="share",
            count=max(1, int(given.count * case.part)),
            size=case.size,
            payloads=str(brokers.payloads(case.size)),
            partitions=case.partitions,
            batch_bytes=BATCH * (case.size + sharing.OVERHEAD),
            records=sharing.RECORDS,
        )
        jobs = [Job(subject, spec) for subject in given.chosen(case.subjects)]
        with contextlib.closing(Topics(brokers, case)) as topics:
            found = rounds(jobs, given.runs, partial(execute, brokers, topics))
        plain = found.get((sharing.PlainConsumer.name, ""))
        is_timed = case.name == "release"
        last = ["p50 us", "p99 us"] if is_timed else ["k msg/s", "broker CPU s/M", "plain ÷"]
        table = Table(case.title, ["client", "k messages", "CPU s/M", *last])
        for row in found.values():
            figures = [row.messages, row.cpu]
            figures += [row.figure("p50_us"), row.figure("p99_us")] if is_timed else []
            figures += [] if is_timed else [row.rate, row.broker]
            cells = [row.name, *map(number, figures)]
            if not is_timed:
                cells.append(ratio(row.cpu, plain.cpu if plain else None))
            table.rows.append(cells)
        report.add(f"share {case.name}", found, table)
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
