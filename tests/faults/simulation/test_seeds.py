"""Simulated workloads with many seeds. AIOKCLIENT_SIM_SEED=n repeats one (`make sim SEED=n`)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import call_pairs
import incarnations
import pairing
import producing
import pytest
import seeded
import subscribing
import transacting
from thinned import IS_WHOLE

ROOT = Path(__file__).resolve().parents[3]
ONE = os.environ.get("AIOKCLIENT_SIM_SEED")
WANTED = int(os.environ.get("AIOKCLIENT_SIM_SEEDS") or 0)
SEEDS = [int(ONE)] if ONE else range(WANTED or (20 if IS_WHOLE else 3))
INCARNATIONS = [int(ONE)] if ONE else range(WANTED or (12 if IS_WHOLE else 3))
CALL_PAIRS = [int(ONE)] if ONE else range(WANTED or (20 if IS_WHOLE else 4))
PRODUCERS = [int(ONE)] if ONE else range(WANTED or (20 if IS_WHOLE else 4))
SUBSCRIPTIONS = [int(ONE)] if ONE else range(WANTED or (20 if IS_WHOLE else 4))
TRANSACTIONS = [int(ONE)] if ONE else range(WANTED or (18 if IS_WHOLE else 4))
PAIRS = [int(ONE)] if ONE else range(WANTED or (8 if IS_WHOLE else 3))


@pytest.mark.fault(1, 2, 3, 11, 15, 16, 17)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_invariants_hold_for_a_seed(seed: int) -> None:
    outcome = seeded.run(seed)
    assert outcome.seed == seed


@pytest.mark.fault(2, 4, 8, 9, 24, 57, 58)
@pytest.mark.parametrize("seed", INCARNATIONS)
def test_nothing_acknowledged_is_lost_when_topics_and_clusters_are_replaced(seed: int) -> None:
    outcome = incarnations.run(seed)
    assert outcome.seed == seed


@pytest.mark.parametrize("seed", TRANSACTIONS)
def test_transactions_are_whole_in_all_faults_for_a_seed(seed: int) -> None:
    outcome = transacting.run(seed)
    assert outcome.seed == seed


@pytest.mark.parametrize("seed", PAIRS)
def test_transactions_are_whole_when_two_tasks_call_and_levels_change_for_a_seed(seed: int) -> None:
    outcome = pairing.run(seed)
    assert outcome.seed == seed


@pytest.mark.parametrize("seed", SUBSCRIPTIONS)
def test_partitions_are_owned_once_and_read_after_subscriptions_have_changed(seed: int) -> None:
    outcome = subscribing.run(seed)
    assert outcome.seed == seed


@pytest.mark.parametrize("seed", CALL_PAIRS)
def test_calls_beside_each_other_end_and_leave_nothing_for_a_seed(seed: int) -> None:
    outcome = call_pairs.run(seed)
    assert outcome.seed == seed


@pytest.mark.parametrize("seed", PRODUCERS)
def test_promises_of_producers_hold_while_calls_are_paired_and_cancelled_for_a_seed(
    seed: int,
) -> None:
    outcome = producing.run(seed)
    assert outcome.seed == seed


@pytest.mark.parametrize(
    "workload", [call_pairs, seeded, incarnations, producing, subscribing, transacting, pairing]
)
def test_a_seed_gives_the_same_run_again(workload: Any) -> None:
    assert workload.run(1) == workload.run(1)


def test_a_seed_is_the_same_in_every_process() -> None:
    """The traces of two processes are equal byte for byte, whatever the hash seed for strings.

    A trace has a hash of each request.
    """
    outcomes = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        script = ROOT / "tests" / "harness" / "seeded.py"
        done = subprocess.run(
            [sys.executable, str(script), "5"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outcomes.append(json.loads(done.stdout))
    assert outcomes[0] == outcomes[1]
