"""How much CPU time does a worker take for each record, beyond what its handler takes?

One member of a group reads a topic of 50 partitions with 100 bytes per message, and calls a handler
that takes the length of the value: one at a time, 50 at a time, and 1,000 at a time. "Tasks by
hand" is a loop over `tracked` that starts a task for each record; "by key" and "by partition", for
each key or partition that has none. FastStream acknowledges after the handler, because with its
default it is not at least once. Its concurrency is a number of consumers, of which it has as many
as partitions at most. A last table has handlers that get lists of up to 500 records, 50 at a time:
those of workers, beside a loop with `poll` and a commit after each list, and a loop over `batches`,
whose lists are committed every five seconds. "CPU s/M" is the CPU time of the client's process
(user and system) per million messages, from the first call of the handler to the end of the
consumer's close. What it takes from the creation of the consumer to that call is the column "start
ms", because a service starts once and runs for long; the first fetches are a part of it. A column
that ends in "÷" shows by what factor a row takes less CPU time than the named one, without the
start.

    python benchmarks/worker.py [--count N] [--runs N] [--cases 1,50,1000,lists]
                                [--bootstrap HOST:PORT]
"""

import sys
from dataclasses import replace

from measuring import options
from measuring.brokers import Brokers
from measuring.filling import fill
from measuring.options import Options
from measuring.report import Report, Table, number, ratios
from measuring.runner import Job, Run, RunFailedError, rounds, run_child
from measuring.spec import Spec
from subjects.working import OF_LISTS, SUBJECTS, ByHand, FastStream, Lists, Polls

COUNT = 400_000
CASES = (1, 50, 1_000)
PARTITIONS = 50
SIZE = 100
LISTS = "lists"
PEERS = (FastStream.name, ByHand.name)
PEERS_OF_LISTS = (Polls.name, Lists.name)


class Topics:
    """The topics with the messages to be read, which are created when a job first needs them."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._topics: dict[int, str] = {}
        self._runs = 0

    def read_by(self, job: Job) -> Spec:
        """Return the spec of one run, which reads a topic whole in a group of its own."""
        spec = job.sized()
        for count in (spec.count, spec.warm_count):
            if count not in self._topics:
                topic = self._topics[count] = self._brokers.new_topic(PARTITIONS)
                fill(replace(spec, topic=topic, count=count))
        self._runs += 1
        return replace(
            spec,
            topic=self._topics[spec.count],
            warm_topic=self._topics[spec.warm_count],
            group=f"working-{self._runs}",
        )

    def delete(self) -> None:
        self._brokers.delete(*self._topics.values())


def execute(job: Job, brokers: Brokers, topics: Topics) -> Run:
    spec = topics.read_by(job)
    run = run_child(job.subject, spec, brokers)
    if run.counts.bytes != spec.count * spec.size:
        raise RunFailedError(f"{job.subject.name} handled {run.counts.bytes} bytes of values.")
    return run


def measure(given: Options, brokers: Brokers) -> Report:
    report = Report(__doc__)
    topics = Topics(brokers)
    try:
        for case in (*map(str, CASES), LISTS):
            if not given.wanted(case):
                continue
            of_lists = case == LISTS
            tasks = 50 if of_lists else int(case)
            subjects, peers = (OF_LISTS, PEERS_OF_LISTS) if of_lists else (SUBJECTS, PEERS)
            spec = Spec(
                bootstrap=brokers.bootstrap,
                mode="consume",
                count=given.count,
                size=SIZE,
                payloads=str(brokers.payloads(SIZE)),
                partitions=PARTITIONS,
                tasks=tasks,
                keyed=True,
            )
            jobs = [Job(subject, spec) for subject in given.chosen(subjects)]
            found = rounds(jobs, given.runs, lambda job: execute(job, brokers, topics))
            head = ["handlers", "k messages", "CPU s/M", "start ms", "k msg/s"]
            head += [f"{peer} ÷" for peer in peers]
            what = "lists" if of_lists else "single records"
            table = Table(f"Handlers of {what}, {tasks:,} at a time", head)
            rows = list(found.values())
            for row in rows:
                cells = [row.name, number(row.messages), number(row.cpu)]
                cells += [number(row.figure("start_ms")), number(row.rate)]
                table.rows.append([*cells, *ratios(row, rows, peers)])
            report.add(f"worker {case}", found, table)
    finally:
        topics.delete()
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
