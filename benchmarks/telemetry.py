"""How much CPU time does it cost to push client metrics to the brokers (KIP-714)?

A producer sends 100 bytes per message to a topic of six partitions, and a consumer reads such a
topic in lists: with the push disabled, with the push enabled but without a subscription, and with a
subscription to all metrics at an interval of one second. The broker is a real one with a plugin
that receives the metrics. "CPU s/M" is the CPU time of the client's process (user and system, of
all threads) per million messages. The runs are short and interleaved, and each round starts with
another subject. "More" compares the CPU time with that of the same round with the push disabled. It
is the median of these differences over all rounds, followed by its confidence interval, which
contains the true median with a probability of 95%.

Bytecodes are counted in runs of their own, in all threads. Unlike the CPU time, they depend on the
load of the machine only through the sizes of batches and responses. "Share" is the bytecodes of a
push per second, divided by all other bytecodes of a second at the measured rate.

The last table shows for how long pushes block an event loop: that of a producer with 100 topics of
100 partitions, which pushes everything ten times per second, and that of the embedded cluster, to
which 1,000 connections push at the same instant. It shows the CPU time of the loop's thread.

    python benchmarks/telemetry.py [--count N] [--runs N] [--cases produce,consume,loops]
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from measuring import options, read_back
from measuring.brokers import JVM, PROPERTIES, Brokers, raise_open_files
from measuring.comparison import Found
from measuring.filling import fill
from measuring.options import Options
from measuring.report import Report, Table, number
from measuring.runner import Job, Measurement, Run, RunFailedError, rounds, run_child
from measuring.spec import Spec
from subjects.pushing import BYTECODES, CONSUMERS, PASSES, PRODUCERS, SUBSCRIBED

COUNT = 4_000_000
CONSUMED = 4
"""Number of messages to consume for each produced message."""
COUNTED = 10
"""Runs that count bytecodes have 1 / COUNTED of the messages of other runs."""
ROUNDS = 4
"""Number of rounds for each run of `--runs`. There are many, because differences are small."""
PARTITIONS = 6
SIZE = 100
TOPIC = "client-metrics"
LOOPS = "loops"
SUBJECTS: dict[str, Sequence[Any]] = {"produce": PRODUCERS, "consume": CONSUMERS}
NOTES = (
    "More: the median and its interval of 95%, over the rounds.",
    "Pushes: the median number of pushes in the measured part of a run.",
)


@contextlib.contextmanager
def receiving() -> Iterator[Brokers]:
    """Provide a new Kafka that receives the metrics of clients whose id is SUBSCRIBED."""
    from kafka_harness import KAFKA, KafkaCluster

    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        raise_open_files()
        with KafkaCluster(KAFKA, jvm=JVM, telemetry=TOPIC, properties=PROPERTIES) as kafka:
            kafka.create_topic(TOPIC, configs={"max.message.bytes": 1 << 24})
            asyncio.run(subscribe(kafka.bootstrap))
            pids = [node.pid for node in kafka.nodes.values()]
            yield Brokers(kafka, pids, Path(name), f"Apache Kafka {KAFKA.version}, one node")


async def subscribe(servers: str) -> None:
    from aiokclient import Admin
    from aiokclient.admin import ConfigResource

    resource = ConfigResource.client_metrics("everything")
    configs = {"metrics": "*", "interval.ms": "1000", "match": f"client_id={SUBSCRIBED}"}
    async with Admin(bootstrap_servers=servers, enable_metrics_push=False) as admin:
        (await admin.alter_configs({resource: configs})).raise_for_errors()


def produce(job: Job, brokers: Brokers) -> Run:
    topic, warm_topic = (brokers.new_topic(PARTITIONS) for _ in range(2))
    try:
        spec = replace(job.spec, topic=topic, warm_topic=warm_topic)
        run = run_child(job.subject, spec, brokers)
        there = read_back.count(spec.bootstrap, topic, PARTITIONS)
        if there != spec.count:
            raise RunFailedError(f"{job.subject.name}: {there} messages exist, not {spec.count}.")
        return run
    finally:
        brokers.delete(topic, warm_topic)


def consume(job: Job, brokers: Brokers) -> Run:
    run = run_child(job.subject, job.spec, brokers)
    if run.counts.bytes != job.spec.count * SIZE:
        raise RunFailedError(f"{job.subject.name} read {run.counts.bytes} bytes of values.")
    return run


def compared(row: Measurement, base: Measurement) -> list[float]:
    """Return the relative difference of the CPU times of `row` and `base` in each round."""
    pairs = zip(row.runs, base.runs, strict=False)
    return [one.counts.cpu_s / other.counts.cpu_s - 1 for one, other in pairs]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95% confidence interval of the median, by the sign test."""
    ordered, count = sorted(values), len(values)
    outside, rank = 2 * 0.5**count, 0
    while outside <= 0.05 and rank < count // 2:
        rank += 1
        outside += 2 * math.comb(count, rank) * 0.5**count
    low = max(rank - 1, 0)
    return ordered[low], ordered[count - 1 - low]


def percent(value: float) -> str:
    return f"{value * 100:+.1f}%"


def tabulated(case: str, found: Found, counted: Found) -> Table:
    head = ["client metrics", "CPU s/M", "k msg/s", "pushes", "more", "interval"]
    table = Table(f"Client metrics, {case} {SIZE} B", [*head, "bytecodes/k", "a push", "share"])
    table.notes = NOTES
    base, counted_base = next(iter(found.values())), next(iter(counted.values()))
    for (name, label), row in found.items():
        cells = [name, number(row.cpu, 3), number(row.rate), number(row.figure("pushes"), 0)]
        more = compared(row, base)
        if row is base or not more:
            cells += ["-", "-"]
        else:
            cells += [percent(statistics.median(more)), " to ".join(map(percent, interval(more)))]
        cells += bytecodes(counted.get((name, label)), counted_base, row.rate)
        table.rows.append(cells)
    return table


def bytecodes(row: Measurement | None, base: Measurement, rate: float | None) -> list[str]:
    """Return the cells: bytecodes per thousand messages, bytecodes of a push, and share of pushes.

    A row with pushes has no value in the first cell, and a row without pushes only there.
    """
    if row is None or not row.runs or not base.runs or not rate:
        return ["-", "-", "-"]
    others = base.median(per_message) or 0.0
    pushed = [
        (each.counts.figures["bytecodes"] - others * each.counts.messages)
        / each.counts.figures["pushes"]
        for each in row.runs
        if each.counts.figures["pushes"]
    ]
    if not pushed:
        return [number((row.median(per_message) or 0.0) * 1e3), "-", "-"]
    push = statistics.median(pushed)
    return ["-", number(push), percent(push / (others * rate * 1e3))]


def per_message(run: Run) -> float:
    return run.counts.figures["bytecodes"] / run.counts.messages


def filled(spec: Spec, brokers: Brokers) -> Spec:
    """Return the same workload for consumers, with a topic that they read several times."""
    count = max(spec.count * CONSUMED // PASSES, 1)
    topic = brokers.new_topic(PARTITIONS)
    fill(replace(spec, count=count, topic=topic))
    return replace(spec, count=count * PASSES, topic=topic)


def loops() -> Table:
    """Measure and tabulate for how long pushes block an event loop."""
    from subjects import holding

    head = ["pushes", "longest callback, ms", "longest iteration, ms"]
    table = Table("Client metrics, CPU time for which they hold a loop", head)
    for name, held in (
        ("a producer's, of 100 x 100 partitions", holding.producer_pushes),
        ("of 1,000 connections at once, to the embedded cluster", holding.cluster_receives),
    ):
        table.rows.append([name, *(number(seconds * 1e3, 1) for seconds in asyncio.run(held()))])
    return table


def measure_costs(given: Options, brokers: Brokers, report: Report) -> None:
    all_of = Spec(bootstrap=brokers.bootstrap, size=SIZE, partitions=PARTITIONS)
    all_of = replace(all_of, payloads=str(brokers.payloads(SIZE)))
    for case in filter(given.wanted, SUBJECTS):
        subjects = given.chosen(SUBJECTS[case])
        work = []
        for count, mode, runs in (
            (given.count, case, ROUNDS * given.runs),
            (given.count // COUNTED, f"{case} {BYTECODES}", given.runs),
        ):
            spec = replace(all_of, count=max(count, 1), mode=mode)
            spec, execute = (
                (spec, produce) if case == "produce" else (filled(spec, brokers), consume)
            )
            jobs = [Job(subject, spec) for subject in subjects]
            work.append(rounds(jobs, runs, partial(execute, brokers=brokers)))
        found, counted = work
        report.add(f"telemetry {case}", found, tabulated(case, found, counted))


def measure(given: Options, _: Brokers) -> Report:
    report = Report(__doc__)
    if any(map(given.wanted, SUBJECTS)):
        with receiving() as brokers:
            measure_costs(given, brokers, report)
    if given.wanted(LOOPS):
        report.add(f"telemetry {LOOPS}", {}, loops())
    return report


if __name__ == "__main__":
    sys.exit(options.main(options.this(__name__), kafka=False))
