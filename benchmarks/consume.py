"""How much CPU time does it take to consume a message and to read its value?

Every client reads the same topic of six partitions from the start, and takes the length of each
value. "CPU s/M" is the CPU time of the client's process (user and system) per million messages,
from the creation of the consumer to its close. Messages per second are counted from the first
message on. The title of a column that ends in "÷" names a client. The column shows by what factor a
row takes less CPU time than this client. If a client has settings that matter for throughput, it is
measured twice: with these settings, and with its own defaults. "Lists" and "async for" are loops as
users write them; Arrow batches are the fastest way. "In the loop of aiokafka's benchmark" is a
program written elsewhere, which counts each record in a dict.

    python benchmarks/consume.py [--count N] [--runs N] [--cases ...] [--bootstrap HOST:PORT]
"""

import sys
from dataclasses import replace

from measuring import options
from measuring.brokers import Brokers
from measuring.comparison import DEFAULTS, FEWER, SAME, Case, Found, side_by_side
from measuring.filling import fill
from measuring.options import Options
from measuring.report import Report
from measuring.runner import Job, Run, RunFailedError, rounds, run_child
from measuring.spec import Spec
from subjects import aio_kafka, confluent, kafka_python, own, programs

COUNT = 2_000_000
PARTITIONS = 6
CASES = (
    Case("100 B", whole=True, defaults=True),
    Case("100 B lz4", compression="lz4"),
    Case("1 KB", size=1_000, part=0.25),
    Case("1 KB lz4", size=1_000, compression="lz4", part=0.25),
)
SUBJECTS = (
    *own.CONSUMERS,
    *confluent.CONSUMERS,
    *aio_kafka.CONSUMERS,
    *kafka_python.CONSUMERS,
    *programs.PROGRAMS,
)
MAIN = (
    *(own.Lists(), own.AsyncFor(), own.Arrow(), confluent.Consume(), aio_kafka.Getmany()),
    *programs.PROGRAMS,
)
PEERS = ("confluent-kafka consume(5000)", "aiokafka getmany", "kafka-python poll", "franz-go")
TUNED = ("confluent", "Java")
NOTES = (
    FEWER,
    "Settings: confluent-kafka fetch.queue.backoff.ms=1 and queued.min.messages=100000, "
    "kafka-python and Java max.poll.records=5000. The others have no settings that matter.",
    "By default, all clients except confluent-kafka check the CRC of each batch.",
)


def spec_of(case: Case, count: int, brokers: Brokers) -> Spec:
    return Spec(
        bootstrap=brokers.bootstrap,
        mode="consume",
        count=max(1, int(count * case.part)),
        size=case.size,
        payloads=str(brokers.payloads(case.size)),
        compression=case.compression,
        partitions=PARTITIONS,
    )


class Topics:
    """The topics with the messages to be read, which are created when a job first needs them."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._topics: dict[tuple[int, int, str], str] = {}

    def read_by(self, job: Job) -> Spec:
        spec = job.sized()
        about = (spec.count, spec.size, spec.compression)
        topic = self._topics.get(about)
        if topic is None:
            topic = self._topics[about] = self._brokers.new_topic(PARTITIONS)
            fill(replace(spec, topic=topic).over_plaintext(self._brokers.bootstrap))
        return replace(spec, topic=topic, warm_topic=topic)

    def delete(self) -> None:
        self._brokers.delete(*self._topics.values())


def execute(job: Job, brokers: Brokers, topics: Topics) -> Run:
    spec = topics.read_by(job)
    run = run_child(job.subject, spec, brokers)
    if run.counts.bytes != spec.count * spec.size:
        raise RunFailedError(f"{job.subject.name} read {run.counts.bytes} bytes of values.")
    return run


def measure_case(case: Case, given: Options, brokers: Brokers) -> Found:
    same = spec_of(case, given.count, brokers)
    subjects = given.chosen(SUBJECTS if case.whole else MAIN)
    jobs = [Job(subject, same, SAME) for subject in subjects]
    jobs += [
        Job(job.subject, job.spec.with_defaults(), DEFAULTS)
        for job in jobs
        if case.defaults and job.subject in MAIN and job.subject.name.startswith(TUNED)
    ]
    topics = Topics(brokers)
    try:
        return rounds(jobs, given.runs, lambda job: execute(job, brokers, topics))
    finally:
        topics.delete()


def measure(given: Options, brokers: Brokers) -> Report:
    report = Report(__doc__)
    for case in CASES:
        if given.wanted(case.name):
            found = measure_case(case, given, brokers)
            table = side_by_side(f"Consume {case.name}", found, PEERS, NOTES)
            report.add(f"consume {case.name}", found, table)
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
