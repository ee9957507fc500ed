"""How much CPU time do a thousand tasks take if each one awaits its own sends?

As in the handlers of a web service, each of 1,000 tasks sends 100 bytes, awaits the outcome, and
then sends the next message. All tasks share one producer. The settings are acks=all, idempotent,
and linger 0 unless stated otherwise, because batches fill without lingering when a thousand tasks
send. With a linger of 5 ms, aiokafka waits for more messages. aiokclient has that linger by
default, but sends a batch without lingering if a task awaits one of its records.

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
