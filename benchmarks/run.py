"""Run all benchmarks against one Kafka cluster, and write results.md and a plot.

python benchmarks/run.py [--runs N] [--scale X] [--only produce,consume] [--bootstrap HOST:PORT]

The result of each benchmark is saved as soon as it is complete. `--resume` continues a run that was
interrupted: benchmarks with a saved result are not measured again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import codec
import command_line
import concurrency
import consume
import echo
import latency
import logins
import members
import produce
import rebalance
import scale
import share
import startup
import targets
import telemetry
import tls
import transactions
import worker
from measuring import machine, plot
from measuring.brokers import running
from measuring.options import Benchmark, Options
from measuring.report import Report, Table
from measuring.runner import say

HERE = Path(__file__).resolve().parent
BENCHMARKS: dict[str, Benchmark] = {
    "produce": produce,
    "consume": consume,
    "latency": latency,
    "concurrency": concurrency,
    "echo": echo,
    "codec": codec,
    "startup": startup,
    "command_line": command_line,
    "scale": scale,
    "rebalance": rebalance,
    "members": members,
    "transactions": transactions,
    "worker": worker,
    "share": share,
    "tls": tls,
    "logins": logins,
    "telemetry": telemetry,
}


def written(reports: Sequence[Report], about: list[tuple[str, str]], picture: str | None) -> str:
    """Return the results as Markdown."""
    parts = ["# Benchmarks", "", "`make bench` writes this file. Figures are medians.", ""]
    parts += [Table("The machine", ["property", "value"], [list(row) for row in about]).markdown()]
    parts += [targets.table(reports).markdown()]
    if picture:
        parts += [f"![CPU per million messages]({picture})", ""]
    for report in reports:
        question, _, rest = report.question.strip().partition("\n")
        lines = [line for line in rest.strip().splitlines() if not line.startswith("    ")]
        parts += [f"## {question}", "", "\n".join(lines).strip(), ""]
        parts += [table.markdown() for table in report.tables]
    return "\n".join(parts).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of each subject")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the messages of a run")
    parser.add_argument("--only", default="", help="names of benchmarks, separated by commas")
    parser.add_argument("--bootstrap", help="an existing Kafka; without it, one is started")
    parser.add_argument("--saved", type=Path, default=HERE.parent / "build" / "benchmarks")
    parser.add_argument("--resume", action="store_true", help="reuse the results that are saved")
    parser.add_argument("--output", type=Path, default=HERE / "results.md")
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else list(BENCHMARKS)
    given.saved.mkdir(parents=True, exist_ok=True)
    reports = []
    with running(given.bootstrap) as brokers:
        for name in chosen:
            say(f"=== {name}")
            count = max(1, int(BENCHMARKS[name].COUNT * given.scale))
            file = given.saved / f"{name}.json"
            if given.resume and file.exists():
                report = Report.load(file)
            else:
                report = BENCHMARKS[name].measure(Options(count, given.runs), brokers)
                report.save(file)
            for table in report.tables:
                print(table.text(), flush=True)
            reports.append(report)
        # spark.py is not included: `make bench-spark` runs it in an environment of its own.
        spark = given.saved / "spark.json"
        if not given.only and spark.exists():
            reports.append(Report.load(spark))
        runs = f"{given.runs}, with {given.scale:g} times the usual number of messages"
        about = [*machine.describe(brokers.version), ("runs of each subject", runs)]
    print(targets.table(reports).text())
    picture = given.output.with_suffix(".png")
    drawn = plot.draw(reports, picture)
    given.output.write_text(written(reports, about, picture.name if drawn else None))
    for subject in (subject for report in reports for subject in report.failed):
        print(f"FAILED and left out: {subject}", file=sys.stderr)
    return int(any(report.failed for report in reports))


if __name__ == "__main__":
    sys.exit(main())
