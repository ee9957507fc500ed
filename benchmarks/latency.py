"""How long does one awaited send take, if nothing else is in flight?

Each client sends 100 bytes to one partition with acks=all and linger 0, and waits for the outcome
before it sends the next message. "Floor" is the client's time divided by the time of a blocking
socket, which writes the same Produce request, encoded in advance, and reads the response. Broker
and client share the cores of the machine, so the time of the blocking socket also depends on the
load.

    python benchmarks/latency.py [--count N] [--runs N] [--bootstrap HOST:PORT]
"""

import sys
from dataclasses import replace

from measuring import options, read_back
from measuring.brokers import Brokers
from measuring.options import Options
from measuring.report import Report, Table, number, ratio
from measuring.runner import Job, Run, rounds, run_child
from measuring.spec import Spec
from subjects.one_by_one import ONE_BY_ONE, BlockingSocket

COUNT = 5_000
SIZE = 100


def execute(job: Job, brokers: Brokers) -> Run:
    topic, warm_topic = brokers.new_topic(1), brokers.new_topic(1)
    try:
        spec = replace(job.sized(), topic=topic, warm_topic=warm_topic)
        run = run_child(job.subject, spec, brokers)
        read_back.check(spec, job.subject.family)
        return run
    finally:
        brokers.delete(topic, warm_topic)


def measure(given: Options, brokers: Brokers) -> Report:
    spec = Spec(bootstrap=brokers.bootstrap, count=given.count, size=SIZE, partitions=1)
    spec = replace(spec, payloads=str(brokers.payloads(SIZE)))
    jobs = [Job(subject, spec) for subject in given.chosen(ONE_BY_ONE)]
    found = rounds(jobs, given.runs, lambda job: execute(job, brokers))
    head = ["client", "p50 us", "p99 us", "floor p50", "floor p99", "CPU us per send"]
    table = Table("One awaited send, 100 B, linger 0", head)
    floor = found.get((BlockingSocket.name, ""))
    for row in found.values():
        times = [row.figure("p50_us"), row.figure("p99_us")]
        floors = [floor.figure("p50_us"), floor.figure("p99_us")] if floor else [None, None]
        above = [ratio(time, least) for time, least in zip(times, floors, strict=True)]
        table.rows.append([row.name, *map(number, times), *above, number(row.cpu)])
    report = Report(__doc__)
    report.add("latency", found, table)
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
