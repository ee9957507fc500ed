"""How much CPU time does it take to receive a message and to send it again?

This is a program written elsewhere, in the shape of the benchmark of FastStream, a framework for
services: one message circulates. The program receives it from a topic of one partition, decodes its
JSON, encodes it, sends it to the same topic, and awaits the outcome. So each message takes a fetch
and a send, and nothing else is in flight. All clients have their own defaults; only the
AIOProducer sends each message at once (`batch_size=1`), for it would wait for more of them.

    python benchmarks/echo.py [--count N] [--runs N] [--bootstrap HOST:PORT]
"""

import sys
from dataclasses import replace

from measuring import options, read_back
from measuring.brokers import Brokers
from measuring.comparison import DEFAULTS
from measuring.options import Options
from measuring.report import Report, Table, number, ratios
from measuring.runner import Job, Run, RunFailedError, rounds, run_child
from measuring.spec import Spec
from subjects.echoing import ECHOES

COUNT = 4_000
PEERS = ("aiokafka", "confluent-kafka AIOConsumer and AIOProducer")


def execute(job: Job, brokers: Brokers) -> Run:
    topic, warm_topic = brokers.new_topic(1), brokers.new_topic(1)
    try:
        spec = replace(job.sized(), topic=topic, warm_topic=warm_topic)
        run = run_child(job.subject, spec, brokers)
        sent, expected = read_back.count(brokers.bootstrap, topic, 1), spec.count + 1
        if sent != expected:
            raise RunFailedError(f"{job.subject.name} sent {sent} messages, not {expected}.")
        return run
    finally:
        brokers.delete(topic, warm_topic)


def measure(given: Options, brokers: Brokers) -> Report:
    spec = Spec(bootstrap=brokers.bootstrap, count=given.count, partitions=1).with_defaults()
    jobs = [Job(subject, spec, DEFAULTS) for subject in given.chosen(ECHOES)]
    found = rounds(jobs, given.runs, lambda job: execute(job, brokers))
    head = ["client", "messages", "CPU us per message", "messages/s", *(f"{p} ÷" for p in PEERS)]
    table = Table("Receive a message and send it again", head)
    rows = list(found.values())
    for row in (each for each in rows if each.runs):
        count, rate = (figure and figure * 1e3 for figure in (row.messages, row.rate))
        figures = [number(count, 0), number(row.cpu), number(rate)]
        table.rows.append([row.name, *figures, *ratios(row, rows, PEERS)])
    report = Report(__doc__)
    report.add("echo", found, table)
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
