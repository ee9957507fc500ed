"""Each row once in the output, whatever is killed, wherever it is killed.

Each run copies a topic with a streaming query and kills a Python worker, an executor, the driver,
and a broker at five points (see `spark_eos`). `make spark-eos RUNS=n` takes n runs of each test.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from spark_eos import SCOPES, Kill, plan, run

pytestmark = [pytest.mark.usefixtures("java"), pytest.mark.timeout(900)]
RUNS = int(os.environ.get("AIOKCLIENT_EOS_RUNS", "2"))


@pytest.mark.parametrize("number", range(RUNS))
def test_output_has_each_row_once_after_kills_at_each_point(tmp_path: Path, number: int) -> None:
    scope = SCOPES[number % 2]
    kills = plan(number // 2, scope)
    outcome = run(tmp_path, kills, scope=scope)
    assert outcome.reached == [kill.name for kill in kills]
    assert (outcome.missing, outcome.duplicates) == ([], [])


@pytest.mark.long
@pytest.mark.parametrize("number", range(4))
def test_same_kills_show_duplicates_without_the_guarantee(tmp_path: Path, number: int) -> None:
    # The driver reaches `between-commits` of a batch only if there is more than one commit.
    kills = [kill for kill in plan(number, "batch") if kill.point != "between-commits"]
    outcome = run(tmp_path, kills, scope=None)
    assert outcome.reached == [kill.name for kill in kills]
    assert outcome.missing == []
    assert outcome.duplicates


@pytest.mark.long
def test_batch_beyond_the_transaction_timeout_fails_and_is_written_after_a_restart(
    tmp_path: Path,
) -> None:
    late = Kill("before-handoff", "late", 0, 0)
    timeout = {"kafka.transaction.timeout.ms": "3000"}
    outcome = run(tmp_path, [late], scope="batch", batches=2, **timeout)
    assert outcome.reached == [late.name]
    assert any("longer than kafka.transaction.timeout.ms (3000)" in f for f in outcome.failures)
    assert (outcome.missing, outcome.duplicates) == ([], [])
