"""Tests of the policy against `policy_table.csv`.

The table has one row for each code, and one column for each scope. It was written by hand from
KIP-1050 and the Java client (Sender, TransactionManager, and the fetch, coordinator, and admin
code). It says what to do while time is left.
"""

from __future__ import annotations

import asyncio
import csv
import itertools
import math
import random
import socket
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient import errors, policy
from aiokclient.config.client import ClientConfig
from aiokclient.errors import ERRORS_BY_CODE, error_for
from aiokclient.policy import Attempts, Backoff, Decision, Scope, classify, decide

IN_TRANSACTION = (Scope.PRODUCE_TXN, Scope.TRANSACTION, Scope.TXN_OFFSET_COMMIT)
RETRIES = (Decision.RETRY, Decision.REFRESH_AND_RETRY)

Row = tuple[Scope, int]


def read_table() -> dict[Row, Decision]:
    with (Path(__file__).parent / "policy_table.csv").open() as file:
        return {
            (scope, int(line["code"])): Decision(line[scope.value])
            for line in csv.DictReader(file)
            for scope in Scope
        }


TABLE = read_table()


def decision(error: BaseException | None, scope: Scope, remaining_s: float = 30.0) -> Decision:
    assert error is not None
    return decide(error, scope, 0, remaining_s, random.Random(1)).decision


def deviations(table: dict[Row, Decision]) -> list[Row]:
    """Return the rows that policy.py decides differently."""
    return [
        (scope, code)
        for (scope, code), expected in table.items()
        if decision(error_for(code), scope) is not expected
    ]


def test_every_pair_is_in_the_table() -> None:
    assert set(TABLE) == set(itertools.product(Scope, ERRORS_BY_CODE))
    assert len(TABLE) == 17 * 137


def test_every_name_in_the_table_is_kafkas() -> None:
    with (Path(__file__).parent / "policy_table.csv").open() as file:
        for line in csv.DictReader(file):
            assert ERRORS_BY_CODE[int(line["code"])].name == line["name"]


def test_policy_decides_as_the_table_says() -> None:
    assert deviations(TABLE) == []


def test_flipping_any_row_of_the_table_is_noticed() -> None:
    for row, expected in TABLE.items():
        for other in Decision:
            if other is not expected:
                assert deviations({row: other}) == [row]


def test_flipping_any_decision_of_the_policy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for row, expected in TABLE.items():
        for other in Decision:
            if other is not expected:
                with monkeypatch.context() as patch:
                    patch.setitem(policy._BY_CODE, row, other)
                    assert deviations({row: expected}) == [row]


def test_every_row_of_overrides_says_something_else_than_the_category(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each row is necessary: without it, exactly its own scope and code are decided differently."""
    for row in list(policy._BY_CODE):
        with monkeypatch.context() as patch:
            patch.delitem(policy._BY_CODE, row)
            assert deviations({row: TABLE[row]}) == [row]


@pytest.mark.parametrize("scope", Scope)
def test_out_of_time_a_retriable_error_fails_or_aborts(scope: Scope) -> None:
    ending = Decision.ABORT if scope in IN_TRANSACTION else Decision.FAIL
    for code in ERRORS_BY_CODE:
        in_time = TABLE[scope, code]
        expected = ending if in_time in RETRIES else in_time
        for remaining_s in (0.0, -1.0):
            assert decision(error_for(code), scope, remaining_s) is expected


@pytest.mark.parametrize("scope", Scope)
def test_an_unknown_code_is_recoverable(scope: Scope) -> None:
    assert decision(error_for(4711), scope) is Decision.RECOVER


FOREIGN = [
    (ConnectionResetError(), Decision.REFRESH_AND_RETRY),
    (ConnectionRefusedError(), Decision.REFRESH_AND_RETRY),
    (TimeoutError(), Decision.REFRESH_AND_RETRY),
    (socket.gaierror(), Decision.REFRESH_AND_RETRY),
    (EOFError(), Decision.REFRESH_AND_RETRY),
    (asyncio.IncompleteReadError(b"", 4), Decision.REFRESH_AND_RETRY),
    (ssl.SSLCertVerificationError(), Decision.FAIL),
    (errors.DisconnectedError(), Decision.REFRESH_AND_RETRY),
    (errors.ApiTimeoutError(), Decision.REFRESH_AND_RETRY),
    (errors.BootstrapError(), Decision.RETRY),
    (errors.ConnectionSetupError(), Decision.FAIL),
    (errors.BufferExhaustedError(), Decision.FAIL),
    (errors.ConfigError(), Decision.FAIL),
    (errors.SerializationError(), Decision.FAIL),
    (errors.ClosedError(), Decision.FAIL),
    (errors.IllegalStateError(), Decision.FAIL),
    (errors.NotWriterError(), Decision.RECOVER),
    (errors.NoOffsetError(), Decision.RECOVER),
    (ValueError(), Decision.RECOVER),
    (RuntimeError(), Decision.RECOVER),
    (asyncio.CancelledError(), Decision.FAIL),
    (KeyboardInterrupt(), Decision.FAIL),
]


@pytest.mark.parametrize(("error", "expected"), FOREIGN, ids=lambda v: type(v).__name__)
def test_errors_that_no_broker_sends(error: BaseException, expected: Decision) -> None:
    for scope in Scope:
        assert decision(error, scope) is expected


@pytest.mark.parametrize("scope", Scope)
def test_malformed_bytes(scope: Scope) -> None:
    """Clients retry, because another connection may work.

    Connection setup and tools fail immediately, so that the error is seen.
    """
    at_once = scope in (Scope.CONNECTION, Scope.ADMIN, Scope.CLIENT)
    expected = Decision.FAIL if at_once else Decision.REFRESH_AND_RETRY
    assert decision(errors.ProtocolError(), scope) is expected


@pytest.mark.parametrize("scope", Scope)
def test_a_delivery_timeout_is_final(scope: Scope) -> None:
    expected = Decision.ABORT if scope in IN_TRANSACTION else Decision.FAIL
    assert decision(errors.DeliveryTimeoutError(), scope) is expected


@given(attempt=st.integers(0, 10_000), seed=st.integers(0, 2**32))
def test_backoff_stays_within_its_jitter(attempt: int, seed: int) -> None:
    backoff = Backoff(initial_s=0.1, maximum_s=1.0)
    delay = backoff.compute_delay_s(attempt, random.Random(seed))
    term = min(0.1 * 2 ** min(attempt, 10), 1.0)
    assert term * 0.8 <= delay <= min(term * 1.2, 1.0)


def test_backoffs_take_their_delays_from_the_options() -> None:
    config = ClientConfig(
        bootstrap_servers="host:9092",
        retry_backoff_ms=1000,
        retry_backoff_max_ms=2000,
        reconnect_backoff_ms=3000,
        reconnect_backoff_max_ms=4000,
        socket_connection_setup_timeout_ms=5000,
        socket_connection_setup_timeout_max_ms=6000,
        sasl_login_retry_backoff_ms=7000,
        sasl_login_retry_backoff_max_ms=8000,
    )
    assert Backoff.of(config) == Backoff(1.0, 2.0)
    assert Backoff.of_reconnects(config) == Backoff(3.0, 4.0)
    assert Backoff.of_setup_timeouts(config) == Backoff(5.0, 6.0)
    assert Backoff.of_token_requests(config) == Backoff(7.0, 8.0)


@given(attempt=st.integers(0, 50), remaining_s=st.floats(0.001, 100), seed=st.integers(0, 99))
def test_a_retry_never_waits_past_the_deadline(attempt: int, remaining_s: float, seed: int) -> None:
    error = errors.NetworkError()
    action = decide(error, Scope.FETCH, attempt, remaining_s, random.Random(seed))
    assert 0 < action.delay_s <= remaining_s


def test_a_row_of_short_delays_counts_for_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {(Scope.FETCH, 5): 0.1, (Scope.FETCH, None): 0.2, (Scope.ADMIN, 5): 9.0}
    monkeypatch.setattr(policy, "SHORT_DELAYS_S", rows)
    backoff, rng = Backoff(1.0, 8.0, jitter=0.0), random.Random(1)
    own, other = errors.LeaderNotAvailableError(), errors.NetworkError()
    assert [backoff.compute_delay_after_s(own, Scope.FETCH, n, rng) for n in range(3)] == [
        0.1,
        0.2,
        0.4,
    ]
    assert backoff.compute_delay_after_s(other, Scope.FETCH, 0, rng) == 0.2
    assert backoff.compute_delay_after_s(None, Scope.FETCH, 0, rng) == 0.2
    assert backoff.compute_delay_after_s(own, Scope.PRODUCE, 0, rng) == 1.0
    assert backoff.compute_delay_after_s(own, Scope.ADMIN, 0, rng) == 1.0, (
        "a row lengthens no delay"
    )


def test_the_same_seed_gives_the_same_delays() -> None:
    first, second = random.Random(7), random.Random(7)
    error = errors.NetworkError()
    for attempt in range(10):
        assert decide(error, Scope.FETCH, attempt, 9, first) == decide(
            error, Scope.FETCH, attempt, 9, second
        )


def test_what_is_not_retried_waits_for_nothing() -> None:
    action = decide(errors.TopicAuthorizationError(), Scope.PRODUCE, 3, 9, random.Random(7))
    assert action == (Decision.FAIL, 0.0)
    assert not action.again


def test_what_is_retried_says_so() -> None:
    assert decide(errors.NetworkError(), Scope.PRODUCE, 0, 9, random.Random(7)).again


@pytest.mark.parametrize("scope", Scope)
def test_classify_returns_what_is_decided_while_time_is_left(scope: Scope) -> None:
    for code in ERRORS_BY_CODE:
        error = error_for(code)
        assert error is not None
        assert classify(error, scope) is TABLE[scope, code]


def test_only_the_two_retries_are_tried_again() -> None:
    assert tuple(decision for decision in Decision if decision.again) == RETRIES


class ManualClock:
    """A clock whose time changes only when the test sets it."""

    def __init__(self) -> None:
        self.rng = random.Random(1)
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return 0


def retry(deadline: float = 110.0) -> tuple[Attempts, ManualClock]:
    clock = ManualClock()
    return Attempts(deadline, Backoff(1.0, 100.0, jitter=0.0), clock), clock


def test_retry_waits_longer_after_each_failure_and_starts_over_after_a_success() -> None:
    attempts, _ = retry(math.inf)
    delays = [attempts.count_failure(errors.NetworkError(), Scope.FETCH).delay_s for _ in range(3)]
    assert delays == [1.0, 2.0, 4.0]
    attempts.start_over()
    assert attempts.count_failure(errors.NetworkError(), Scope.FETCH).delay_s == 1.0


def test_retry_counts_an_attempt_with_several_errors_once() -> None:
    attempts, _ = retry()
    assert attempts.decide(errors.NetworkError(), Scope.FETCH).delay_s == 1.0
    assert attempts.decide(errors.NetworkError(), Scope.FETCH).delay_s == 1.0
    attempts.next_attempt()
    assert attempts.attempt == 1
    assert attempts.decide(errors.NetworkError(), Scope.FETCH).delay_s == 2.0


def test_retry_ends_at_its_deadline() -> None:
    attempts, clock = retry()
    assert attempts.remaining_s == 10.0
    clock.now = 109.5
    assert attempts.count_failure(errors.NetworkError(), Scope.FETCH) == (
        Decision.REFRESH_AND_RETRY,
        0.5,
    )
    clock.now = 110.0
    assert attempts.count_failure(errors.NetworkError(), Scope.FETCH) == (Decision.FAIL, 0.0)


def test_retry_without_a_deadline_never_runs_out_of_time() -> None:
    attempts, clock = retry(math.inf)
    clock.now = 1e12
    assert attempts.remaining_s == math.inf
    assert attempts.count_failure(errors.NetworkError(), Scope.FETCH).again


def test_retry_pauses_by_its_backoff_whatever_the_error() -> None:
    attempts, _ = retry()
    assert [attempts.take_pause_s() for _ in range(3)] == [1.0, 2.0, 4.0]
    assert attempts.attempt == 3
