"""Tests of the result of one commit for each of its offsets."""

import random
from typing import Any

from aiokclient import OffsetAndMetadata, TopicPartition
from aiokclient.consumer.membership.offsets.commits import CommitAttempt, CommitOrder
from aiokclient.errors import (
    CommitFailedError,
    KafkaError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    RequestTimedOutError,
)
from aiokclient.policy import Attempts, Backoff

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
OFFSETS = {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6), T2: OffsetAndMetadata(7)}


class Clock:
    rng = random.Random(1)

    def monotonic(self) -> float:
        return 0.0


class Commits:
    """Commits that retry all partitions, except those of which a rebalance is known."""

    def refresh_partition(self, tp: TopicPartition, error: KafkaError) -> bool:
        return True

    def is_final(self, tp: TopicPartition, error: KafkaError) -> bool:
        return isinstance(error, RebalanceInProgressError)


def attempt(attempts: float = 3) -> CommitAttempt:
    clock: Any = Clock()
    retry = Attempts(10.0, Backoff(0.1, 1.0), clock)
    held = dict.fromkeys(OFFSETS)
    commits: Any = Commits()
    return CommitAttempt(
        1,
        OFFSETS,
        held,
        retry,
        commits,
        attempts=attempts,
        rising=False,
    )


def test_each_partition_is_stored_superseded_or_refused() -> None:
    commit, error = attempt(), CommitFailedError(partitions=[T1])
    commit.refuse_partitions({T1: error})
    commit.skip_superseded({T2})
    assert not commit.is_done()
    assert commit.record_errors({}, renamed=False) == 0.0
    assert commit.is_done()
    assert commit.refused_errors == {T1: error}


def test_a_final_error_refuses_its_partition_and_a_retriable_one_keeps_it() -> None:
    commit, final, late = attempt(), OffsetMetadataTooLargeError(), RequestTimedOutError()
    delay_s = commit.record_errors({T0: final, T1: late}, renamed=False)
    assert commit.remaining_offsets == {T1: OFFSETS[T1]}
    assert commit.refused_errors == {T0: final}
    assert 0.08 <= delay_s <= 0.12


def test_no_error_is_final_if_the_identity_has_changed_since_the_attempt() -> None:
    commit, final = attempt(), OffsetMetadataTooLargeError()
    assert commit.record_errors({T0: final}, renamed=True) == 0.0
    assert (list(commit.remaining_offsets), commit.refused_errors) == ([T0], {})
    commit.record_errors({T0: final}, renamed=False)
    assert commit.refused_errors == {T0: final}


def test_an_error_that_waits_for_the_caller_is_final() -> None:
    commit, error = attempt(), RebalanceInProgressError()
    commit.record_errors({T2: error}, renamed=False)
    assert commit.refused_errors == {T2: error}


def test_each_partition_that_is_left_is_refused_with_its_own_error_after_the_last_attempt() -> None:
    commit, first, last = attempt(2), RequestTimedOutError(), RequestTimedOutError()
    commit.record_errors(dict.fromkeys(OFFSETS, first), renamed=False)
    commit.refuse_if_exhausted()
    assert (list(commit.remaining_offsets), commit.refused_errors) == ([T0, T1, T2], {})
    commit.record_errors({T1: first, T2: last}, renamed=False)
    commit.refuse_if_exhausted()
    assert (commit.is_done(), commit.refused_errors) == (True, {T1: first, T2: last})


def test_offsets_of_the_caller_are_not_changed() -> None:
    commit = attempt()
    commit.skip_superseded({T0})
    commit.refused_errors[T1] = RequestTimedOutError()
    assert len(OFFSETS) == 3
    assert commit.refused_errors == {}


def test_a_commit_is_superseded_only_by_a_later_one_that_was_stored_for_the_partition() -> None:
    order = CommitOrder()
    first, second = order.issue_ticket(), order.issue_ticket()
    assert not order.is_superseded(T0, first)
    order.mark_stored(T0, second)
    order.mark_stored(T0, first)
    assert order.is_superseded(T0, first)
    assert not order.is_superseded(T0, second)
    assert not order.is_superseded(T1, first)
