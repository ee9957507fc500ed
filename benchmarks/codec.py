"""How much CPU time do encoding and decoding records take, without a client and a broker?

Values are encoded into batches of 131072 bytes, including CRC and compression. Batches are decoded
into the record objects of each library; the CRC is checked and every value is read. The results are
nanoseconds of CPU time per record. librdkafka has no public functions for this.

    python benchmarks/codec.py [--count N] [--runs N] [--cases ...]
"""

import sys

from measuring import options
from measuring.brokers import Brokers
from measuring.comparison import Case
from measuring.options import Options
from measuring.report import Report, Table, number, ratios
from measuring.runner import Job, rounds, run_child
from measuring.spec import Spec
from subjects.record_codecs import RECORD_CODECS

COUNT = 500_000
CASES = (
    Case("100 B"),
    Case("100 B lz4", compression="lz4"),
    Case("1 KB", size=1_000, part=0.25),
)
MODES = ("encode", "encode list", "decode")
LISTS = ("100 B",)
"""The cases that are also measured with "encode list". Only aiokclient has a call that encodes a
list. The other libraries run "encode" instead."""
PEERS = ("aiokafka", "aiokafka without extensions", "kafka-python")


def measure(given: Options, brokers: Brokers) -> Report:
    report = Report(__doc__)
    for case in CASES:
        if not given.wanted(case.name):
            continue
        for mode in MODES:
            if mode == "encode list" and case.name not in LISTS:
                continue
            spec = Spec(
                mode=mode,
                count=int(given.count * case.part),
                size=case.size,
                payloads=str(brokers.payloads(case.size)),
                compression=case.compression,
            )
            jobs = [Job(subject, spec) for subject in given.chosen(RECORD_CODECS)]
            found = rounds(jobs, given.runs, lambda job: run_child(job.subject, job.sized()))
            table = Table(
                f"Records without a client: {mode}, {case.name}",
                ["library", "ns per record", *(f"{peer} ÷" for peer in PEERS)],
            )
            rows = list(found.values())
            for row in rows:
                nanoseconds = None if row.cpu is None else row.cpu * 1e3
                table.rows.append([row.name, number(nanoseconds), *ratios(row, rows, PEERS)])
            report.add(f"codec {mode} {case.name}", found, table)
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__), kafka=False))
