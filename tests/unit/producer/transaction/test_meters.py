"""The metrics of a producer's transactions, as a program reads them and as they are pushed."""

from __future__ import annotations

from typing import Any

from aiokclient.clock import SystemClock
from aiokclient.metrics import Metrics, OwnMetrics
from aiokclient.producer.transaction.ending import TransactionMeters
from aiokclient.producer.transaction.status import TransactionOutcome


class SteppingClock(SystemClock):
    """A clock that advances by two seconds whenever it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 2.0
        return self.now


def owned_by_a_producer() -> OwnMetrics:
    own_metrics = OwnMetrics(Metrics(), "producer")
    own_metrics.metrics.add_owner(own_metrics)
    return own_metrics


def pushed(own_metrics: OwnMetrics, key: str) -> dict[Any, float]:
    readings = own_metrics.take_sample(again=None).read_key(key)
    return {labels: reading.total for labels, reading in readings.items()}


def test_transactions_are_counted_by_their_outcome() -> None:
    own_metrics = owned_by_a_producer()
    meters = TransactionMeters(own_metrics, SteppingClock())
    for outcome, count in zip(TransactionOutcome, (3, 2, 1), strict=True):
        for _ in range(count):
            meters.count_end(outcome)
    snapshot = own_metrics.metrics.take_snapshot()
    expected = {"committed": 3, "aborted": 2, "unknown": 1}
    for outcome_name, count in expected.items():
        assert snapshot[f"producer.transactions{{outcome={outcome_name}}}"] == count
    assert pushed(own_metrics, "transactions") == {
        (("outcome", outcome_name),): count for outcome_name, count in expected.items()
    }


def test_durations_of_commits_and_aborts_are_observed_apart() -> None:
    own_metrics = owned_by_a_producer()
    meters = TransactionMeters(own_metrics, SteppingClock())
    meters.observe_duration("commit", 0.25)
    meters.observe_duration("commit", 0.5)
    meters.observe_duration("abort", 4.0)
    snapshot: Any = own_metrics.metrics.take_snapshot()
    commits = snapshot["producer.transaction.commit.seconds"]
    aborts = snapshot["producer.transaction.abort.seconds"]
    assert (commits["count"], commits["sum"]) == (2, 0.75)
    assert (aborts["count"], aborts["sum"]) == (1, 4.0)
    assert pushed(own_metrics, "commit.seconds") == {(): 0.75}
    assert pushed(own_metrics, "abort.seconds") == {(): 4.0}


def test_a_timed_block_adds_its_duration() -> None:
    own_metrics = owned_by_a_producer()
    meters = TransactionMeters(own_metrics, SteppingClock())
    for _ in range(3):
        with meters.time_block("offsets.seconds"):
            pass
    assert pushed(own_metrics, "offsets.seconds") == {(): 6.0}


def test_restarts_are_counted() -> None:
    own_metrics = owned_by_a_producer()
    metrics, meters = own_metrics.metrics, TransactionMeters(own_metrics, SteppingClock())
    assert "producer.transaction.restarts" not in metrics.take_snapshot()
    meters.count_restart()
    meters.count_restart()
    assert metrics.take_snapshot()["producer.transaction.restarts"] == 2
