"""How many transactions per second does a client commit, and how much CPU time does each take?

Each client commits transactions one after the other, with 1, 10, and 1,000 records of 100 bytes
each, to one partition. The transform reads committed records of one topic, and writes them to
another one, in transactions of 100 records that also commit the offsets. "CPU s/k" is the CPU time
of the client's process (user and system) per thousand transactions. All clients have the same batch
size and linger. "Raw requests" are the requests of a transaction with one record, Produce and
EndTxn, sent by `Client.request`. The committed records of each run are read back and compared.

    python benchmarks/transactions.py [--count N] [--runs N] [--cases ...] [--bootstrap HOST:PORT]
"""

import sys
from dataclasses import dataclass, replace

from measuring import options, read_back
from measuring.brokers import Brokers
from measuring.filling import fill
from measuring.options import Options
from measuring.report import Report, Table, number, ratio
from measuring.runner import Job, Measurement, Run, rounds, run_child
from measuring.spec import Spec
from subjects.programs import PROGRAMS
from subjects.transacting import TRANSACTING, TRANSFORM, Confluent, Raw

COUNT = 500
SIZE = 100


@dataclass(frozen=True)
class Case:
    """One kind of transaction."""

    name: str
    records: int
    mode: str = "transactions"
    part: float = 1.0
    """Fraction of the usual number of transactions. Large ones need fewer for a stable result."""


CASES = (
    Case("1 record", 1),
    Case("10 records", 10),
    Case("1000 records", 1_000, part=0.5),
    Case(TRANSFORM, 100, TRANSFORM, part=0.5),
)
SUBJECTS = (*TRANSACTING, *PROGRAMS)


def execute(job: Job, brokers: Brokers) -> Run:
    topics = [brokers.new_topic(1) for _ in range(3)]
    topic, warm_topic, output = topics
    try:
        spec = replace(job.sized(), topic=topic, warm_topic=warm_topic)
        if spec.mode == TRANSFORM:
            spec = replace(spec, output=output)
            fill(spec.all_records())
            fill(spec.warming().all_records())
        run = run_child(job.subject, spec, brokers)
        written = spec.all_records()
        if spec.mode != TRANSFORM:
            read_back.check_committed(written, job.subject.family)
        else:
            read_back.check_committed(replace(written, topic=output), job.subject.family)
        return run
    finally:
        brokers.delete(*topics)


def tabulated(case: Case, found: dict[tuple[str, str], Measurement]) -> Table:
    head = ["client", "transactions/s", "CPU s/k", "broker CPU s/k", f"{Confluent.name} ÷", "raw ÷"]
    table = Table(f"Transactions, {case.name} of {SIZE} B", head)
    by_name = {each.name: each for each in found.values()}
    others = [by_name.get(name) for name in (Confluent.name, Raw.name)]
    for row in found.values():
        if not row.runs:
            table.rows.append([row.name, f"not measured: {row.missing}", *[""] * (len(head) - 2)])
            continue
        rate, cpu, broker = row.rate, row.cpu, row.broker
        table.rows.append(
            [
                row.name,
                number(rate and rate * 1e3),
                number(cpu and cpu / 1e3, 3),
                number(broker and broker / 1e3, 3),
                *(ratio(other.cpu if other else None, cpu) for other in others),
            ]
        )
    return table


def measure(given: Options, brokers: Brokers) -> Report:
    report = Report(__doc__)
    for case in CASES:
        if not given.wanted(case.name):
            continue
        subjects = [*SUBJECTS, Raw()] if case.records == 1 else [*SUBJECTS]
        spec = Spec(
            bootstrap=brokers.bootstrap,
            mode=case.mode,
            count=max(1, int(given.count * case.part)),
            records=case.records,
            size=SIZE,
            partitions=1,
            payloads=str(brokers.payloads(SIZE)),
        )
        jobs = [Job(subject, spec) for subject in given.chosen(subjects)]
        found = rounds(jobs, given.runs, lambda job: execute(job, brokers))
        report.add(f"transactions {case.name}", found, tabulated(case, found))
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__)))
