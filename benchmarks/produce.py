"""How much CPU time does it take to produce a message and to check its outcome?

Every client sends the same values to a topic of six partitions with acks=all, and checks the
outcome of each message. "CPU s/M" is the CPU time of the client's process (user and system) per
million messages. Another client reads the messages and counts them. A column titled with the name
of a client and "÷" shows by what factor the client of the row takes less CPU time than the client
in the title. All clients are measured with the same batch size, linger and number of requests in
flight, and some also with their own defaults. "Cores busy" is the number of cores that client and
broker used together. If it is close to the number of all cores, these limit the messages per
second. "As users write it" is the loop of the README: `producer.send` is looked up for each
message, and `drain` called when the buffer is full; its window row gathers what was sent two chunks
ago. The other rows of aiokclient are the fastest ways. "In the loop of aiokafka's benchmark" is a
program written elsewhere: it sends to one partition, counts each message in a dict, and awaits a
flush at the end instead of each outcome.

    python benchmarks/produce.py [--count N] [--runs N] [--cases ...] [--bootstrap HOST:PORT]
"""

import sys
from dataclasses import replace

from measuring import options, read_back
from measuring.brokers import Brokers
from measuring.comparison import DEFAULTS, FEWER, SAME, Case, side_by_side
from measuring.options import Options
from measuring.report import Report
from measuring.runner import Job, Run, rounds, run_child
from measuring.spec import Spec
from subjects import aio_kafka, confluent, kafka_python, own, programs

COUNT = 1_000_000
PARTITIONS = 6
CASES = (
    Case("100 B", whole=True, defaults=True),
    Case("100 B keyed", keyed=True, part=0.5),
    Case("100 B lz4", compression="lz4", part=0.5),
    Case("1 KB", size=1_000, part=0.25, defaults=True),
    Case("1 KB lz4", size=1_000, compression="lz4", part=0.25),
    Case("1 KB zstd", size=1_000, compression="zstd", part=0.25),
)
SUBJECTS = (
    *own.PRODUCERS,
    *confluent.PRODUCERS,
    *aio_kafka.PRODUCERS,
    *kafka_python.PRODUCERS,
    *programs.PROGRAMS,
)
MAIN = (
    *own.WRITTEN,
    *(own.Gather(), own.SendMany(), confluent.Callbacks(), aio_kafka.Send()),
    *programs.PROGRAMS,
)
PEERS = (
    "confluent-kafka callbacks",
    "aiokafka send, await each",
    "kafka-python send, get each",
    "franz-go",
)
NOTES = (
    FEWER,
    "Same settings: acks=all, idempotent, batches of 131072 bytes, linger 5 ms, 5 in flight; "
    "aiokafka and franz-go always have one request in flight per partition.",
    "Defaults: aiokafka uses acks=1, and confluent-kafka is not idempotent.",
)


def spec_of(case: Case, count: int, brokers: Brokers, label: str) -> Spec:
    return Spec(
        bootstrap=brokers.bootstrap,
        count=int(count * case.part),
        size=case.size,
        payloads=str(brokers.payloads(case.size)),
        compression=case.compression,
        keyed=case.keyed,
        tuned=label == SAME,
        partitions=PARTITIONS,
    )


def execute(job: Job, brokers: Brokers) -> Run:
    """Produce to new topics, and count the messages in them afterwards."""
    topic, warm_topic = (brokers.new_topic(PARTITIONS) for _ in range(2))
    try:
        spec = replace(job.sized(), topic=topic, warm_topic=warm_topic)
        run = run_child(job.subject, spec, brokers)
        read_back.check(spec.over_plaintext(brokers.bootstrap), job.subject.family)
        return run
    finally:
        brokers.delete(topic, warm_topic)


def measure(given: Options, brokers: Brokers) -> Report:
    report = Report(__doc__)
    for case in CASES:
        if not given.wanted(case.name):
            continue
        subjects = given.chosen(SUBJECTS if case.whole else MAIN)
        jobs = [
            Job(subject, spec_of(case, given.count, brokers, label), label)
            for label in ((SAME, DEFAULTS) if case.defaults else (SAME,))
            for subject in subjects
            if label == SAME or subject in MAIN
        ]
        found = rounds(jobs, given.runs, lambda job: execute(job, brokers))
        table = side_by_side(f"Produce {case.name}", found, PEERS, NOTES)
        report.add(f"produce {case.name}", found, table)
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
