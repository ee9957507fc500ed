"""The table of what follows a failed run, and the options of a retry."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aiokclient import TopicPartition
from aiokclient.errors import RecordError
from aiokclient.worker import Batch, BatchError, Exponential, Reject, Retry, RetryLater
from aiokclient.worker.retry import Outcome, Verdict, choose_outcome

QUICK = Exponential(1.0, max=4.0, jitter=0.0)
UNREADABLE = RecordError(topic_partition=TopicPartition("t", 0), offset=1)


def outcome(
    error: BaseException,
    attempts: int,
    retry: Retry,
    *,
    outages: int = 0,
    has_dead_letters: bool = False,
    skips: bool = False,
) -> Verdict:
    return choose_outcome(
        error,
        attempts,
        outages,
        retry,
        random.Random(1),
        has_dead_letters=has_dead_letters,
        skips=skips,
    )


@pytest.mark.parametrize(
    ("error", "attempts", "options", "expected"),
    [
        (ValueError(), 1, {}, Verdict(Outcome.AGAIN, 1.0)),
        (ValueError(), 2, {}, Verdict(Outcome.AGAIN, 2.0)),
        (ValueError(), 3, {}, Verdict(Outcome.STOP)),
        (ValueError(), 1, {"on": KeyError}, Verdict(Outcome.STOP)),
        (ValueError(), 1, {"never": (ValueError,)}, Verdict(Outcome.STOP)),
        (ConnectionError(), 9, {"always": OSError}, Verdict(Outcome.AGAIN, 1.0)),
        (Reject("old"), 1, {}, Verdict(Outcome.STOP)),
        (UNREADABLE, 1, {}, Verdict(Outcome.STOP)),
        (RetryLater(9), 1, {"on": KeyError}, Verdict(Outcome.AGAIN, 9)),
        (RetryLater(9), 3, {}, Verdict(Outcome.STOP)),
        (ValueError(), 2, {"topic": "r"}, Verdict(Outcome.TOPIC, 2.0, "r")),
        (ValueError(), 1, {"topic": [(5, "a"), (60, "b")]}, Verdict(Outcome.TOPIC, 5, "a")),
        (ValueError(), 2, {"topic": [(5, "a"), (60, "b")]}, Verdict(Outcome.TOPIC, 60, "b")),
        (ValueError(), 2, {"topic": [(5, "a")]}, Verdict(Outcome.TOPIC, 5, "a")),
        (RetryLater(9), 1, {"topic": [(5, "a")]}, Verdict(Outcome.TOPIC, 9, "a")),
    ],
)
def test_a_failed_run_has_the_outcome_of_the_table(
    error: BaseException, attempts: int, options: dict[str, Any], expected: Verdict
) -> None:
    assert outcome(error, attempts, Retry(3, QUICK, **options)) == expected


def test_giving_up_goes_to_the_dead_letters_or_skips() -> None:
    retry = Retry(1)
    assert outcome(ValueError(), 1, retry, has_dead_letters=True).outcome is Outcome.DEAD_LETTER
    assert outcome(ValueError(), 1, retry, skips=True).outcome is Outcome.SKIP


def test_an_outage_never_leads_to_a_topic_or_a_dead_letter() -> None:
    retry = Retry(1, QUICK, always=OSError, never=OSError, topic="r")
    verdict = outcome(OSError(), 0, retry, outages=20, has_dead_letters=True)
    assert verdict == Verdict(Outcome.AGAIN, 4.0)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Retry(0), ValueError),
        (lambda: Retry("3"), TypeError),  # type: ignore[arg-type]
        (lambda: Retry(on="ValueError"), TypeError),  # type: ignore[arg-type]
        (lambda: Retry(topic=[]), ValueError),
        (lambda: Retry(topic=["a"]), TypeError),  # type: ignore[list-item]
        (lambda: Retry(backoff=1.0), TypeError),  # type: ignore[arg-type]
        (lambda: Exponential(5, max=1), ValueError),
        (lambda: Exponential(1, jitter=2), ValueError),
        (lambda: RetryLater(-1), ValueError),
        (lambda: Batch(0), ValueError),
        (lambda: Batch(5, max_wait=-1), ValueError),
    ],
)
def test_wrong_options_of_retries_are_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_a_batch_error_counts_its_records() -> None:
    assert str(BatchError({})) == "0 records of the batch failed."
