"""Tests that the output has each row once, when any process is killed at any point.

Each run copies a topic with a streaming query and kills a Python worker, an executor, the driver,
and a broker at five points (see `spark_eos`). `make spark-eos RUNS=n` makes n runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from spark_eos import (
    BROKERS,
    POINTS,
    VICTIMS,
    EmbeddedBrokers,
    Kill,
    Plan,
    RealBrokers,
    plan_of,
    run,
)

from aiokclient.testing import EmbeddedCluster

pytestmark = [pytest.mark.usefixtures("java"), pytest.mark.timeout(1800)]
SLOW_START = "Python worker failed to connect back"
"""The error of Spark if a Python process takes more than ten seconds to start."""
RUNS = int(os.environ.get("AIOKCLIENT_EOS_RUNS") or 0)
NUMBERS = [*range(RUNS)] or [0, pytest.param(1, marks=pytest.mark.long)]
"""The runs. Those with an even number are on the embedded cluster, the others on a real Kafka."""


@pytest.fixture
def embedded() -> Iterator[EmbeddedBrokers]:
    with EmbeddedCluster(brokers=BROKERS) as cluster:
        yield EmbeddedBrokers(cluster)


@pytest.mark.parametrize("is_real", [False, True])
def test_twenty_runs_kill_each_victim_at_each_point(is_real: bool) -> None:
    plans = [plan for plan in map(plan_of, range(20)) if plan.is_real is is_real]
    found = {(kill.victim, kill.point) for plan in plans for kill in plan.kills}
    assert found == set(product(VICTIMS, POINTS))


@pytest.mark.parametrize("number", NUMBERS)
def test_output_has_each_row_once_after_kills_at_each_point(
    tmp_path: Path, request: pytest.FixtureRequest, number: int
) -> None:
    plan = plan_of(number)
    brokers: EmbeddedBrokers | RealBrokers
    if plan.is_real:
        brokers = RealBrokers(request.getfixturevalue("kafka3"))
    else:
        brokers = request.getfixturevalue("embedded")
    outcome = run(tmp_path, plan, brokers)
    assert outcome.reached == [kill.name for kill in plan.kills]
    assert (outcome.missing, outcome.duplicates) == ([], [])
    # Other kills do not fail the query: Spark repeats tasks, and the sink waits for brokers.
    failures = [text for text in outcome.failures if SLOW_START not in text]
    assert len(failures) == sum(kill.fails_query for kill in plan.kills), failures


@pytest.mark.long
def test_same_kills_show_duplicates_without_the_guarantee(
    tmp_path: Path, embedded: EmbeddedBrokers
) -> None:
    plan = plan_of(0)
    # Without transactions, the driver commits nothing.
    kills = tuple(kill for kill in plan.kills if kill.point != "between-commits")
    outcome = run(tmp_path, replace(plan, exactly_once=False, kills=kills), embedded)
    assert outcome.reached == [kill.name for kill in kills]
    assert outcome.missing == []
    assert outcome.duplicates


@pytest.mark.long
def test_batch_beyond_the_transaction_timeout_fails_and_is_written_after_a_restart(
    tmp_path: Path, embedded: EmbeddedBrokers
) -> None:
    late = Kill("before-handoff", "late", 0, 0)
    timeout = {"kafka.transaction.timeout.ms": "3000"}
    outcome = run(tmp_path, Plan((late,), batches=2), embedded, **timeout)
    assert outcome.reached == [late.name]
    assert any("longer than kafka.transaction.timeout.ms (3000)" in f for f in outcome.failures)
    assert (outcome.missing, outcome.duplicates) == ([], [])
