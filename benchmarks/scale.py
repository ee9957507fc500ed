"""How does the CPU time per message grow with the number of partitions, and with the message size?

The clients produce without keys to topics with 1 to 10,000 partitions, all of which the client
knows, and produce and consume values of 10 B to 1 MB. The results are CPU seconds of the client per
million messages, or per GB for large values. "÷ 10" is the result divided by the result with ten
partitions.

    python benchmarks/scale.py [--count N] [--runs N] [--cases partitions,produce,consume]
"""

import sys
from dataclasses import replace

import consume
import produce
from measuring import options, read_back
from measuring.brokers import Brokers
from measuring.comparison import SAME, Case, Found
from measuring.options import Options
from measuring.report import Report, Table, number, ratio
from measuring.runner import Job, Run, RunFailedError, rounds, run_child
from subjects import aio_kafka, confluent, own

COUNT = 200_000
PARTITIONS = (1, 10, 100, 1_000, 10_000)
SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
BYTES = 100_000_000
"""Largest number of bytes in a run with large values."""
BY_PARTITIONS = (own.Gather(), own.SendMany(), confluent.Callbacks())
"""The producers of this benchmark. aiokafka is not among them, because it chooses a new partition
for each record without a key, which would make ten thousand batches."""
PRODUCERS = (own.Gather(), own.SendMany(), confluent.Callbacks(), aio_kafka.Send())
CONSUMERS = (own.Lists(), confluent.Consume(), aio_kafka.Getmany())
SMALL_INDEXES = {"segment.index.bytes": 4_096, "segment.bytes": 104_857_600}
"""Topic options with small index files. By default, each of the ten thousand partitions would map
two indexes of ten megabytes."""


def send_to(job: Job, brokers: Brokers) -> Run:
    """Produce to a topic that several runs share, and count its messages by end offsets."""
    spec = replace(job.sized(), warm_topic=job.spec.topic)
    before = read_back.count(spec.bootstrap, spec.topic, spec.partitions)
    run = run_child(job.subject, spec, brokers)
    came = read_back.count(spec.bootstrap, spec.topic, spec.partitions) - before
    # The warm-up and the measured run each send one message more, before all others.
    if came != spec.count + spec.warm_count + 2:
        raise RunFailedError(f"{spec.topic} has {came} messages of {job.subject.name}.")
    return run


def by_partitions(given: Options, brokers: Brokers) -> tuple[Found, Table]:
    widest = min(max(PARTITIONS), given.count)
    widths = [width for width in PARTITIONS if width <= widest]
    jobs = []
    for width in widths:
        spec = produce.spec_of(Case("100 B"), given.count, brokers, SAME)
        topic = brokers.new_topic(width, SMALL_INDEXES)
        spec = replace(spec, topic=topic, partitions=width)
        label = f"{width} partitions"
        jobs += [Job(subject, spec, label) for subject in given.chosen(BY_PARTITIONS)]
    found = rounds(jobs, given.runs, lambda job: send_to(job, brokers))
    brokers.delete(*dict.fromkeys(job.spec.topic for job in jobs))
    head = ["client", *(f"{width}" for width in widths), *(f"{w} ÷ 10" for w in widths if w > 10)]
    table = Table("CPU s/M of producing 100 B, by partitions of the topic", head)
    for name in dict.fromkeys(name for name, _ in found):
        costs = {width: found[name, f"{width} partitions"].cpu for width in widths}
        beyond = [ratio(costs[width], costs.get(10)) for width in widths if width > 10]
        table.rows.append([name, *map(number, costs.values()), *beyond])
    return found, table


def case_of(size: int, count: int) -> Case:
    return Case(f"{size} B", size=size, part=min(1.0, max(10, BYTES // size) / count))


def producing(given: Options, brokers: Brokers) -> tuple[Found, Table]:
    jobs = []
    for size in SIZES:
        case = case_of(size, given.count)
        spec = produce.spec_of(case, given.count, brokers, SAME)
        jobs += [Job(subject, spec, case.name) for subject in given.chosen(PRODUCERS)]
    found = rounds(jobs, given.runs, lambda job: produce.execute(job, brokers))
    return found, by_size("producing", found)


def consuming(given: Options, brokers: Brokers) -> tuple[Found, Table]:
    jobs = []
    for size in SIZES:
        case = case_of(size, given.count)
        spec = consume.spec_of(case, given.count, brokers)
        jobs += [Job(subject, spec, case.name) for subject in given.chosen(CONSUMERS)]
    topics = consume.Topics(brokers)
    found = rounds(jobs, given.runs, lambda job: consume.execute(job, brokers, topics))
    topics.delete()
    return found, by_size("consuming", found)


def by_size(what: str, found: Found) -> Table:
    head = ["client"]
    for size in SIZES:
        head.append(f"{size} B: s/M" if size < 10_000 else f"{size // 1000} KB: s/GB")
    table = Table(f"CPU of {what}, by size of the value", head)
    for name in dict.fromkeys(name for name, _ in found):
        cells = [name]
        for size in SIZES:
            cpu = found[name, f"{size} B"].cpu
            per_gb = cpu if cpu is None or size < 10_000 else cpu / (size * 1e6) * 1e9
            cells.append(number(per_gb))
        table.rows.append(cells)
    return table


def measure(given: Options, brokers: Brokers) -> Report:
    report = Report(__doc__)
    # Topics with many partitions come last, because a broker takes long to delete them.
    parts = {"produce": producing, "consume": consuming, "partitions": by_partitions}
    for name, part in parts.items():
        if given.wanted(name):
            found, table = part(given, brokers)
            report.add(f"scale {name}", found, table)
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
