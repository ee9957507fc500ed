"""What do a thousand tasks cost that each await their own sends?

As handlers of a web service do: each of 1,000 tasks sends 100 bytes, awaits the outcome, and sends
the next; all share one producer. acks=all, idempotent, linger 0 where nothing else is said, since
with a thousand tasks waiting batches fill by themselves. With a linger of 5 ms aiokafka waits for
more; aiokclient, whose default that is, does not make those wait who await their sends.

    python benchmarks/concurrency.py [--count N] [--runs N] [--bootstrap HOST:PORT]
"""

import sys
from dataclasses import replace

import produce
from measuring import options
from measuring.brokers import Brokers
from measuring.options import Options
from measuring.report import Report, Table, number, ratios
from measuring.runner import Job, rounds
from measuring.spec import Spec
from subjects.many_tasks import TASKS

COUNT = 200_000
SIZE = 100
PEERS = ("confluent-kafka AIOProducer", "confluent-kafka polled by a thread", "aiokafka")


def measure(given: Options, brokers: Brokers) -> Report:
    spec = Spec(bootstrap=brokers.bootstrap, count=given.count, size=SIZE)
    spec = replace(spec, payloads=str(brokers.payloads(SIZE)), partitions=produce.PARTITIONS)
    spec = replace(spec, tasks=max(1, min(spec.tasks, given.count // 10)))
    jobs = [Job(subject, spec) for subject in given.chosen(TASKS)]
    found = rounds(jobs, given.runs, lambda job: produce.execute(job, brokers))
    head = ["client", "CPU s/M", "k msg/s", "broker CPU s/M", *(f"{peer} ÷" for peer in PEERS)]
    table = Table(f"{spec.tasks} tasks that await their sends, 100 B", head)
    rows = list(found.values())
    for row in rows:
        cells = [row.name, number(row.cpu), number(row.rate), number(row.broker)]
        table.rows.append([*cells, *ratios(row, rows, PEERS)])
    report = Report(__doc__)
    report.add("concurrency", found, table)
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
